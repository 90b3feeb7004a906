"""The benches: which rows, which measures, which figure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from musegnn.benches.contenders import CONTENDERS, Contender, Settings
from musegnn.benches.figures import Line, Panel
from musegnn.benches.tables import Measure, Record, Table

_IDENTITY = (
    *("architecture", "sampler", "online", "history", "norm", "residual", "correct_and_smooth"),
    *("kind", "label_inputs"),
)
_MUSE = "Jiang et al., ICLR 2025"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A table or figure of the paper."""

    about: str
    rows: dict[str, Contender]
    measures: Callable[[list[Record]], list[Measure]]
    panels: Callable[[Table], list[Panel]]
    settings: Settings = field(default_factory=dict)
    """Of all rows, on top of what the recipe says."""
    seeds: int = 3
    data: str = ""
    """Where none is given."""
    fixed: tuple[str, ...] = _IDENTITY
    """What its rows are about: not to be changed with --set."""
    takes_models: bool = False
    """Whether the rows are contenders, which `--models` may choose from."""
    can_tune: bool = False
    times_sampling: bool = False


def _percent(name: str) -> Callable[[Record], float | None]:
    return lambda record: None if record.get(name) is None else 100 * record[name]


def _number(name: str) -> Callable[[Record], float | None]:
    return lambda record: record.get(name)


TEST = Measure("test accuracy, %", _percent("test_accuracy"), best="most")
VALID = Measure("validation accuracy, %", _percent("valid_accuracy"), is_shown=False)
SECONDS = Measure("training, s", _number("seconds"), 1, is_shown=False)
EPOCH = Measure("epoch, s", _number("epoch_seconds"), 3, "least")


def _accuracies(records: list[Record]) -> list[Measure]:
    # MAG240M has no labels of test nodes, and others may have none, either.
    no_test = bool(records) and not any(one.get("test_accuracy") is not None for one in records)
    first = [Measure(VALID.name, VALID.value, best="most")] if no_test else [TEST, VALID]
    return [*first, SECONDS]


def _dots(table: Table, is_log: bool = False) -> list[Panel]:
    """The first measure of each row, a panel for each graph."""
    measure = table.measures[0]
    panels = []
    for data in table.datas:
        found = [(row, table.entry(row, data, measure)) for row in table.rows]
        dots = [(row, one.mean, one.spread) for row, one in found if one.mean is not None]
        panels.append(Panel(title=data, x=measure.name, dots=dots, is_log=is_log))
    return panels


# Tables 2 and 5 of the paper, and 7.

_OFFLINE_ONLINE = [f"{name} {way}" for way in ("offline", "online") for name in ("GCN", "GAT", "SAGE")]
_CURVES = ["MuseGNN", "GCN offline", "SAGE tuned online", "GAT tuned online"]


def _some(names: list[str]) -> dict[str, Contender]:
    return {name: CONTENDERS[name] for name in names}


# Table 6.

GAMMAS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.0)
_OF_GAMMA = {f"gamma {gamma:g}": gamma for gamma in GAMMAS}


def _gammas(settings: Settings) -> dict[str, Contender]:
    return {
        row: Contender(about="MuseGNN", reference=_MUSE, settings={"gamma": gamma, **settings})
        for row, gamma in _OF_GAMMA.items()
    }


def _over_gamma(table: Table) -> list[Panel]:
    lines: dict[str, Line] = {}
    for data in table.datas:
        found = [(gamma, table.entry(row, data, TEST)) for row, gamma in _OF_GAMMA.items()]
        points = [(gamma, one.mean, one.spread) for gamma, one in found if one.mean is not None]
        lines |= {data: points} if points else {}
    return [Panel(x="gamma", y=TEST.name, lines=lines)]


# MuseGNN with every sampler. Free ones are sized like ShadowKHop's: about eight visits a node and epoch.

_SAMPLERS: dict[str, Settings] = {
    "ShadowKHop": {},
    "FullKHop": {"hops": 2},
    "NeighborSampling": {},
    "PersonalizedPageRank": {"top_k": 16},
    "UniformInduced": {"p": 0.5, "num_samples": 16},
    "RandomWalk": {"roots": 4000, "length": 4, "num_samples": 32},
    "Cluster": {},
}


def _samplers() -> dict[str, Contender]:
    rows = {}
    for name, settings in _SAMPLERS.items():
        for way in ("stored", "online"):
            chosen: Settings = {"sampler": name, "online": way == "online", **settings}
            rows[f"{name} {way}"] = Contender(about="MuseGNN", reference=_MUSE, settings=chosen)
    reason = "a partition is the same in every epoch: as stored"
    rows["Cluster online"] = replace(rows["Cluster online"], settings=None, reason=reason)
    return rows


# Figure 1. Where Y^0 has entries that the penalty forbids, its energy is infinite: none is told.


def _energy(k: int, last: bool) -> Callable[[Record], float | None]:
    """E(Y^k), or how far above E(Y^K) it is, in percent."""

    def value(record: Record) -> float | None:
        energies: list[float | None] = record["energies"]
        energy, end = (energies[k], energies[-1]) if k < len(energies) else (None, None)
        return energy if energy is None or end is None or not last else 100 * (energy / end - 1)

    return value


def _energies(records: list[Record]) -> list[Measure]:
    count = max([len(one.get("energies") or []) for one in records], default=0)
    above = [Measure(f"E(Y^{k}) above E(Y^{count - 1}), %", _energy(k, True), 3) for k in range(1, count - 1)]
    raw = [Measure(f"E(Y^{k})", _energy(k, False), is_shown=False) for k in range(count)]
    return [Measure("error bound", _number("error_bound"), 4, "least"), *above, *raw]


def _over_steps(table: Table) -> list[Panel]:
    panels = []
    for data in table.datas:
        lines: dict[str, Line] = {}
        for row in table.rows:
            records = [one for one in table.of(row, data) if one.get("energies")]
            if records:
                energies = enumerate(records[0]["energies"])
                lines[row] = [(k, energy, 0.0) for k, energy in energies if energy is not None]
        panels.append(Panel(title=f"{data}, first test sample", x="step", y="energy", lines=lines))
    return panels


# The loss, epoch by epoch.

LOSS, VALID_OF_EPOCH = 1, 2


def _epoch(number: int, column: int) -> Callable[[Record], float | None]:
    return lambda record: record["curve"][number][column] if number < len(record["curve"]) else None


def _losses(records: list[Record]) -> list[Measure]:
    count = max([len(one.get("curve") or []) for one in records], default=0)
    first = Measure("loss of the first epoch", _epoch(0, LOSS), 3)
    last = Measure("of the last", lambda record: record["curve"][-1][LOSS], 3, "least")
    every = [
        Measure(f"{name}, epoch {e + 1}", _epoch(e, column), is_shown=False)
        for name, column in (("loss", LOSS), ("validation accuracy", VALID_OF_EPOCH))
        for e in range(count)
    ]
    return [first, last, Measure(VALID.name, VALID.value, best="most"), *every]


def _over_epochs(table: Table) -> list[Panel]:
    """The first seed: a mean over seeds would hide what a curve is for."""
    panels = []
    for data in table.datas:
        for column, label in ((LOSS, "training loss"), (VALID_OF_EPOCH, "validation accuracy")):
            lines: dict[str, Line] = {}
            for row in table.rows:
                curve: list[list[Any]] = next(
                    (one["curve"] for one in table.of(row, data) if one.get("curve")), []
                )
                points = [(point[0], point[column], 0.0) for point in curve if point[column] is not None]
                lines |= {row: points} if points else {}
            panels.append(Panel(title=data, x="epoch", y=label, lines=lines))
    return panels


# Scaling: one of n, edges, K and d at a time.

_SERIES: dict[str, Settings] = {
    "MuseGNN": {"gamma": 0.5},
    "GCN GAS": {**(CONTENDERS["GCN GAS"].settings or {}), "dropout": 0.0},
}
_AXES = {"nodes": (1, 2, 4, 8), "edges": (1, 2, 4, 8), "K": (2, 4, 8, 16), "d": (32, 64, 128, 256)}
_BASE_K, _BASE_D = 4, 64
_OF_SCALING = {
    f"{axis} {'x ' if axis in ('nodes', 'edges') else ''}{at}, {series}": (axis, at, series)
    for axis, values in _AXES.items()
    for at in values
    for series in _SERIES
}


def _scaled() -> dict[str, Contender]:
    rows = {}
    for row, (axis, at, series) in _OF_SCALING.items():
        K, d = (at if axis == "K" else _BASE_K), (at if axis == "d" else _BASE_D)  # noqa: N806
        depth = {"steps": K} if series == "MuseGNN" else {"layers": K}
        growth = {axis: float(at)} if axis in ("nodes", "edges") else {}
        settings = {**_SERIES[series], **depth, "hidden": d}
        rows[row] = Contender(about=series, reference="", settings=settings, growth=growth)
    return rows


def _counted(record: Record) -> float:
    """n d of M and n counts, against n d (K - 1) of histories; 4 bytes each, in MiB."""
    axis, at, series = _OF_SCALING[record["row"]]
    K, d = (at if axis == "K" else _BASE_K), (at if axis == "d" else _BASE_D)  # noqa: N806
    n: int = record["nodes"]
    return (n * (d + 1) * 4 if series == "MuseGNN" else n * d * (K - 1) * 4) / 2**20


_SIZES = [
    Measure(EPOCH.name, EPOCH.value, 3),
    Measure("peak memory, MiB", _number("memory_mb"), 0),
    Measure("kept between steps, MiB", _number("kept_mb"), 1),
    Measure("counted, MiB", _counted, 1),
]


def _over_sizes(table: Table) -> list[Panel]:
    panels = []
    for measure in (_SIZES[0], _SIZES[2]):
        for axis in _AXES:
            lines: dict[str, Line] = {}
            for row, (of, at, series) in _OF_SCALING.items():
                one = table.entry(row, table.datas[0], measure) if of == axis and row in table.rows else None
                if one is not None and one.mean:
                    lines.setdefault(series, []).append((at, one.mean, one.spread))
            x = f"{axis}, times" if axis in ("nodes", "edges") else axis
            panels.append(Panel(x=x, y=measure.name, lines=lines, is_log=True))
    return panels


BENCHES: dict[str, Bench] = {
    "accuracy": Bench(
        about="Tables 2 and 5: test accuracy in percent of all contenders.",
        rows=CONTENDERS,
        measures=_accuracies,
        panels=_dots,
        takes_models=True,
        can_tune=True,
    ),
    "speed": Bench(
        about="Table 3: seconds of an epoch (median of all but the first), and of drawing its samples.",
        rows=CONTENDERS,
        measures=lambda records: [
            EPOCH,
            Measure("of it waiting, %", _percent("waited"), 1),
            Measure("sampling, s", _number("sampling_seconds"), 2),
        ],
        panels=lambda table: _dots(table, is_log=True),
        settings={"epochs": 4, "evaluate_every": 4, "patience": 0},
        seeds=1,
        takes_models=True,
        times_sampling=True,
    ),
    "gamma": Bench(
        about="Table 6: test accuracy in percent of MuseGNN by gamma.",
        rows=_gammas({}),
        measures=_accuracies,
        panels=_over_gamma,
        fixed=("gamma",),
    ),
    "baseline-sampler": Bench(
        about="Table 7: test accuracy in percent of GCN, GAT and SAGE, offline and online.",
        rows=_some(_OFFLINE_ONLINE),
        measures=_accuracies,
        panels=_dots,
        takes_models=True,
        can_tune=True,
    ),
    "sampler": Bench(
        about="Test accuracy in percent of MuseGNN with every sampler, stored and online.",
        rows=_samplers(),
        measures=_accuracies,
        panels=_dots,
        fixed=("sampler", "online"),
    ),
    "energy": Bench(
        about="Figure 1: the energy behind each step of trained models, on a test sample.",
        rows=_gammas({"steps": 8}),
        measures=_energies,
        panels=_over_steps,
        seeds=1,
        fixed=("gamma",),
    ),
    "loss": Bench(
        about="The appendix's figure: training loss and validation accuracy by epoch.",
        rows={"MuseGNN gamma 1": _gammas({})["gamma 1"], **_some(_CURVES)},
        measures=_losses,
        panels=_over_epochs,
        seeds=1,
        takes_models=True,
    ),
    "scaling": Bench(
        about="Time, memory and what is kept from step to step, against nodes, edges, K and d.",
        rows=_scaled(),
        measures=lambda records: _SIZES,
        panels=_over_sizes,
        # Samples that are small beside the smallest graph: otherwise it is they that grow.
        settings={"epochs": 3, "evaluate_every": 3, "batch_size": 100, "fanouts": [5, 3]},
        seeds=1,
        data="synthetic:10000",
        fixed=("steps", "layers", "hidden", "gamma", *_IDENTITY),
    ),
}
