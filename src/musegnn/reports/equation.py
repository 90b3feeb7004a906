"""The equation of a run's energy."""

from musegnn.reports.markup import Html, join, tag
from musegnn.reports.reading import RunFiles
from musegnn.training.config import EnergyConfig


def equation(run: RunFiles) -> Html:
    """E(Y), as far as a config describes it; of another energy, which terms it has."""
    part, model = run.config.energy, run.config.model
    shape = f"{model.steps} steps"
    if part.acceleration != "none":
        shape += f" with {part.acceleration}"
    between = _between(run)
    if between is None:
        named = (run.analysis or {}).get("steps") or {"terms": {}}
        return join("E(Y) = ", " + ".join(named["terms"]) or "?", tag("small", "an energy of your own"))
    term, about = between
    terms = ["E(Y) = |Y \u2212 Z|\u00b2", f" + {term}"]
    terms += [f" + {part.gamma:g} |Y \u2212 \u03bc|\u00b2"] if part.gamma else []
    terms += [f" + \u03b6(Y), \u03b6: {part.prox}"] if part.prox != "none" else []
    names = ["fidelity", part.kind if part.kind in ("smoothness", "robust") else "relations"]
    names += ["consensus"] * bool(part.gamma) + ["penalty"] * (part.prox != "none")
    return join(*terms, tag("small", f"{', '.join(names)}; {about}, {shape}"))


def _between(run: RunFiles) -> tuple[str, str] | None:
    """The term of the edges, and what there is to say of it; None where no config tells it."""
    part = run.config.energy
    if run.record.get("model") is None:
        return None
    rank = (
        "any matrix" if part.rank == "full" else f"diagonal + rank {part.rank}" if part.rank else "diagonal"
    )
    learned = f"\u03bb\u1d63 and H\u1d63 are learned, H\u1d63: {rank}, |H\u1d63| \u2264 {part.limit:g}"
    shared = {"graph": ", one \u03bb for all", "relation": "", "channel": ", a \u03bb\u1d63 for each channel"}
    learned += shared[part.lambda_per]
    learned += f"; the last of {part.stages} stages" if part.is_staged else ""
    scale = "s = (d + 1)^\u2212\u00bd" if part.laplacian == "normalized" else "s = 1"
    if part.kind == "smoothness":
        return f"{part.lambda_:g} tr(Y\u1d40 L Y)", f"{part.laplacian} Laplacian"
    if part.kind == "predictive":
        mean = "the mean over neighbors" if part.average == "row" else "their symmetric average"
        term = "\u03a3\u1d63 \u03bb\u1d63 |h\u1d63 \u2218 (Y \u2212 P\u1d63 Y H\u1d63)|\u00b2"
        return term, f"P\u1d63: {mean}, h\u1d63: who has any; {learned}"
    if part.kind == "relational":
        edges = "\u03a3 over i\u2192j of r"
        term = f"\u03a3\u1d63 \u03bb\u1d63 {edges} |s\u1d62 Y\u1d62 H\u1d63 \u2212 s\u2c7c Y\u2c7c|\u00b2"
        return term, f"{scale}; {learned}"
    if part.kind == "robust":
        term = "\u03a3 over edges of c \u03c1(|s\u1d62 Y\u1d62 \u2212 s\u2c7c Y\u2c7c|\u00b2 / c)"
        return f"{part.lambda_:g} {term}", f"{_rho(part)}, c = {part.robust_scale:g}, {scale}"
    return None


def _rho(part: EnergyConfig) -> str:
    """How a disagreement counts (`musegnn.Robust`)."""
    p = part.robust_power
    rho = f"(2 / p) ((1 + t)^(p/2) \u2212 1), p = {p:g}" if p else "log(1 + t)"
    cut = "" if part.robust_cutoff == "none" else f", constant from t = {part.robust_cutoff:g} on"
    return f"\u03c1(t) = {rho}{cut}"
