"""Write RESULTS.md from results.json: `python benchmarks/render.py`."""

import json

from record import FOLDER, RESULTS

TARGET = FOLDER / "RESULTS.md"
HEAD = """# Results

Made from `results.json` by `make results`, never edited. Each figure stands with the command that measures it
again. The machines are shared: ratios within one run mean more than seconds.
"""


def render() -> str:
    """One table for each command, in the order of results.json."""
    figures = json.loads(RESULTS.read_text())
    sections = [HEAD]
    for command in dict.fromkeys(figure["command"] for figure in figures):
        rows = [figure for figure in figures if figure["command"] == command]
        origin = sorted({f"{row['hardware']}; commit {row['commit']}, {row['date']}" for row in rows})
        table = ["| figure | data | value | unit |", "|---|---|---:|---|"]
        table += [f"| {row['name']} | {row['data']} | {row['value']:,} | {row['unit']} |" for row in rows]
        sections.append(f"## `{command}`\n\n{'; '.join(origin)}\n\n" + "\n".join(table) + "\n")
    return "\n".join(sections)


if __name__ == "__main__":
    TARGET.write_text(render())
    print(f"Wrote {TARGET}")
