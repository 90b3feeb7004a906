"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isCoarse = matchMedia("(pointer: coarse)").matches;

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  // "@blue" is a color where a color is meant, and a text everywhere else.
  const colored = (value, isColor, style) => {
    if (Array.isArray(value)) return value.map((part) => colored(part, isColor, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, part]) => [key, colored(part, /color(scale)?$/.test(key), style)]),
      );
    }
    return isColor && typeof value === "string" && value[0] === "@"
      ? style.getPropertyValue("--" + value.slice(1)).trim()
      : value;
  };

  const axis = (given, isFixed) => ({
    gridcolor: "@grid", linecolor: "@rule", zerolinecolor: "@rule", automargin: true, fixedrange: isFixed, ...given,
    title: { standoff: 8, ...given?.title },
  });

  const layoutOf = (id, layout) => {
    const isFixed = isCoarse && id !== "confusion";
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "@text" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 8, t: layout.showlegend === false ? 8 : 28, b: 8 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "@muted", activecolor: "@accent" },
      hoverlabel: { bgcolor: "@panel", bordercolor: "@rule", font: { color: "@text" } },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      dragmode: isFixed ? false : "zoom",
      ...layout,
      xaxis: axis(layout.xaxis, isFixed), yaxis: axis(layout.yaxis, isFixed),
    };
  };

  // The matrix in the order and the kind of numbers that were chosen; a narrow one is told by a tap.
  const confusion = (chart, width) => {
    const [heat] = chart.data, counts = heat.customdata, names = heat.text, n = names.length;
    const order = document.getElementById("order").value, isCount = document.getElementById("shown").value === "count";
    const size = counts.map((row) => row.reduce((sum, one) => sum + one, 0));
    const orders = {
      size: (a, b) => size[b] - size[a], accuracy: (a, b) => heat.z[a][a] - heat.z[b][b],
      name: (a, b) => names[a].localeCompare(names[b]), given: (a, b) => a - b,
    };
    const places = [...names.keys()].sort((a, b) => orders[order](a, b) || a - b);
    const of = (matrix) => places.map((k) => places.map((j) => matrix[k][j]));
    const hover = places.map((k) => places.map((j) =>
      `${names[k]}${j === k ? "" : `<br>taken for ${names[j]}`}: ` +
      `${counts[k][j].toLocaleString("en")} of ${size[k].toLocaleString("en")}`));
    const isNarrow = width < 600;
    const ticks = {
      tickvals: [...names.keys()], ticktext: places.map((k) => names[k]),
      tickfont: { size: n > 60 ? 7 : n > 30 ? (isNarrow ? 8 : 10) : 12 },
    };
    const largest = Math.max(1, ...counts.flat());
    const shown = isCount
      ? { z: of(counts), zmax: largest, colorbar: { ...heat.colorbar, title: { text: "nodes" }, tickformat: "~s" } }
      : { z: of(heat.z), zmax: 1 };
    return {
      data: [{ ...heat, ...shown, customdata: undefined, text: undefined, hovertext: hover, hoverinfo: "text", showscale: !isNarrow }],
      layout: {
        ...chart.layout, height: isNarrow ? Math.min(chart.layout.height, 1.35 * width) : chart.layout.height,
        xaxis: { ...chart.layout.xaxis, ...ticks, tickangle: -90, showticklabels: !isNarrow || n < 24 }, yaxis: { ...chart.layout.yaxis, ...ticks },
      },
    };
  };

  const draw = (id) => {
    const place = document.getElementById("plot-" + id);
    const style = getComputedStyle(root);
    const { data, layout } = id === "confusion" ? confusion(charts[id], place.clientWidth) : charts[id];
    place.style.height = layout.height + "px";
    // Paper does not wait for a chart that asks how wide it may be.
    const width = root.classList.contains("printing") ? { width: place.clientWidth } : { autosize: true };
    // Numbers in bars that are too narrow for some of them are left out of all.
    const fitting = data.map((trace) =>
      trace.type === "bar" && trace.text && place.clientWidth < 32 * trace.x.length ? { ...trace, text: undefined } : trace);
    Plotly.react(
      place, colored(fitting, false, style), colored({ ...layoutOf(id, layout), ...width }, false, style),
      { responsive: true, displaylogo: false, displayModeBar: id === "confusion",
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] },
    );
  };

  const drawAll = () => {
    document.getElementById("theme").textContent = isDark() ? "Light" : "Dark";
    Object.keys(charts).forEach(draw);
  };

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    drawAll();
  });
  prefersDark.addEventListener("change", drawAll);
  for (const id of ["order", "shown"]) {
    document.getElementById(id)?.addEventListener("change", () => draw("confusion"));
  }

  // A printed page is light, and as wide as paper.
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    root.classList.add("printing");
    drawAll();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    root.classList.remove("printing");
    drawAll();
  });

  const number = (cell) => parseFloat(cell.textContent.replace(/[,\s]/g, ""));
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : column > 0;
      const sign = isDown ? -1 : 1;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        if (column === 0) return sign * x.textContent.localeCompare(y.textContent);
        const [p, q] = [number(x), number(y)];
        return Number.isNaN(p) - Number.isNaN(q) || sign * (p - q) || 0;
      });
      table.tBodies[0].append(...rows);
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    }));
  }

  drawAll();
})();
