"""An explanation: the shares of a node's logits, and how they are told."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer

Kind = Literal["own", "neighbor", "own mean", "mean", "bias", "penalty"]
Hops = Int64[np.ndarray, " nodes"]
PerClass = Float64[np.ndarray, " classes"]
NodesPerClass = Float64[np.ndarray, "nodes classes"]
_NUMBERS = "  hop    margin  percent "


class Part(NamedTuple):
    """One summand of the margin."""

    kind: Kind
    node: int | None
    """Whose base prediction or mean; None of what belongs to no node."""
    hop: int | None
    share: float
    percent: float = 0.0
    """Of the sum of all absolute values, with the sign of the share."""


class Sum(NamedTuple):
    """Several summands of one sign, as one."""

    num_parts: int
    share: float
    percent: float

    def __str__(self) -> str:
        return f"{self.num_parts:,} other share{'s' * (self.num_parts > 1)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation:
    """logits = shares, summed over the nodes, + means, likewise, + bias + rest."""

    node: int
    predicted: int
    runner_up: int | None
    """The class that the margin is over; None of a model with one logit."""
    logits: PerClass
    nodes: Integer[np.ndarray, " nodes"]
    """Of the sample, by their ids in the graph."""
    hops: Hops
    """Edges of the sample from the node; -1 if no path leads there."""
    shares: NodesPerClass
    """Of each node's base prediction Z_j."""
    means: NodesPerClass
    """Of each node's mean mu_j."""
    bias: PerClass
    """g's constant."""
    rest: PerClass
    """The constant that a penalty such as L1 or a box leaves; with ReLU or none, rounding."""
    error_bound: float
    """At least |Y - Y*|_F / |Y|_F of the sample; inf if there were no steps."""
    node_name: Callable[[int], str] = str
    class_name: Callable[[int], str] = str
    relations: Mapping[int, str] = field(default_factory=dict)
    """How the node and each of its neighbors are joined, in words, where the graph tells."""

    def __repr__(self) -> str:
        return f"Explanation({self.sentence()})"

    @property
    def margin(self) -> float:
        """By how much the predicted class is ahead."""
        return float(self.of_margin(self.logits))

    def of_margin(self, values: np.ndarray) -> np.ndarray:
        """From values by class to their differences, predicted less runner-up."""
        first = values[..., self.predicted]
        return np.asarray(first if self.runner_up is None else first - values[..., self.runner_up])

    @cached_property
    def parts(self) -> list[Part]:
        """The margin's summands, the largest first; a penalty's only if it is more than rounding."""
        found = list(self._summands())
        total = sum(abs(part.share) for part in found) or 1.0
        parts = [part._replace(percent=100 * part.share / total) for part in found]
        return sorted(parts, key=lambda part: -abs(part.share))

    def _summands(self) -> Iterator[Part]:
        kinds: tuple[tuple[NodesPerClass, Kind, Kind], ...] = (
            (self.shares, "own", "neighbor"),
            (self.means, "own mean", "mean"),
        )
        for values, own, other in kinds:
            shares = self.of_margin(values)
            for i in np.flatnonzero(shares):
                node = int(self.nodes[i])
                kind = own if node == self.node else other
                yield Part(kind, node, int(self.hops[i]), float(shares[i]))
        yield Part("bias", None, None, float(self.of_margin(self.bias)))
        rest = float(self.of_margin(self.rest))
        if abs(rest) > 1e-4 * (np.abs(self.shares).sum() + np.abs(self.means).sum()):
            yield Part("penalty", None, None, rest)

    @property
    def influence(self) -> Float64[np.ndarray, " nodes"]:
        """How much each node's base prediction moves the probabilities p, whichever way: Var_p(share)^1/2.

        Without a share s, p becomes p' ~ p exp(-s), and KL(p | p') = Var_p(s) / 2 up to the third order.
        """
        p, centered = self._centered()
        spread: np.ndarray = np.sqrt(np.square(centered) @ p)
        return spread

    @property
    def support(self) -> Float64[np.ndarray, " nodes"]:
        """How much each node's base prediction is for the class, over all others: its share of log p.

        d log p_c = s_c - sum_i p_i s_i, for a change s of the logits.
        """
        _, centered = self._centered()
        return centered[:, self.predicted]

    def _centered(self) -> tuple[PerClass, NodesPerClass]:
        """p, and the shares less their mean under p."""
        p = np.exp(self.logits - self.logits.max())
        p /= p.sum()
        return p, self.shares - (self.shares @ p)[:, None]

    def by_hop(self) -> dict[int, list[Sum]]:
        """What comes from each distance, base predictions and means together."""
        hops = sorted({part.hop for part in self.parts if part.hop is not None})
        return {hop: _sums(part for part in self.parts if part.hop == hop) for hop in hops}

    def by_relation(self) -> dict[str, list[Sum]]:
        """What comes from the neighbors that are joined in the same way, where the graph tells."""
        ways: dict[str, list[Part]] = {}
        for part in self.parts:
            if relation := self._relation(part):
                ways.setdefault(relation, []).append(part)
        return {way: _sums(some) for way, some in ways.items()}

    def others(self, top: int) -> list[tuple[str, Sum]]:
        """What is left beside the largest parts: what is for the class, and what is against it."""
        return [
            (f"{rest} {'against' if rest.share < 0 else 'for'} it", rest) for rest in _sums(self.parts[top:])
        ]

    def label(self, part: Part) -> str:
        """What a person calls it."""
        if part.kind in ("own", "own mean"):
            return {"own": "own features", "own mean": "own mean"}[part.kind]
        if part.node is None:
            return part.kind
        return ("mean of " if part.kind == "mean" else "") + self.node_name(part.node)

    def sentence(self, top: int = 4) -> str:
        """curl is predicted `web` (margin 2 over `net`). Of all for it, and against it (-): 31 % own, ..."""
        over = "" if self.runner_up is None else f" over `{self.class_name(self.runner_up)}`"
        said = [f"{part.percent:.0f} % {self.label(part)}" for part in self.parts[:top]]
        said += [f"{rest.percent:.0f} % from {rest}" for _, rest in self.others(top)]
        name, class_name = self.node_name(self.node), self.class_name(self.predicted)
        head = f"{name} is predicted `{class_name}` (margin {self.margin:.2g}{over})"
        return f"{head}. Of all that is for it, and against it (-): {', '.join(said)}."

    def table(self, top: int = 10, columns: int | None = None) -> str:
        """The largest shares of the margin, as lines of text that add up to it.

        In so many columns, a long name has a line of its own, and relations are told where they fit.
        """
        rows = [
            (self.label(part), _hop(part.hop), part.share, part.percent, self._relation(part))
            for part in self.parts[:top]
        ]
        rows += [(label, "", rest.share, rest.percent, "") for label, rest in self.others(top)]
        widest = max(len(label) for label, *_ in rows)
        width = max(len("sum = margin"), min(widest, (columns or 1000) - len(_NUMBERS)))
        room = (columns or 1000) - width - len(_NUMBERS) - 1
        head = "  joined by" if 0 < max(len(row[4]) for row in rows) <= room else ""
        lines = [f"{'share of':<{width}}{_NUMBERS}{head}".rstrip()]
        for label, hop, share, percent, relation in rows:
            if len(label) > width:
                lines.append(label)
                label = ""
            line = f"{label:<{width}}  {hop:>3}  {share:>+8.3f}  {percent:>+6.1f} %"
            lines.append(f"{line}  {relation}".rstrip() if head else line)
        lines.append(f"{'sum = margin':<{width}}       {sum(row[2] for row in rows):>+8.3f}")
        return "\n".join(lines)

    def _relation(self, part: Part) -> str:
        return "" if part.node is None else self.relations.get(part.node, "")

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON has it; nodes whose shares are all 0 are left out."""
        counts = (self.shares != 0).any(axis=1) | (self.means != 0).any(axis=1)
        margins, means = self.of_margin(self.shares), self.of_margin(self.means)
        return {
            "node": self.node,
            "name": self.node_name(self.node),
            "predicted": self.predicted,
            "predicted_name": self.class_name(self.predicted),
            "runner_up": self.runner_up,
            "runner_up_name": None if self.runner_up is None else self.class_name(self.runner_up),
            "margin": self.margin,
            "logits": self.logits.tolist(),
            "bias": self.bias.tolist(),
            "penalty": self.rest.tolist(),
            "error_bound": self.error_bound if np.isfinite(self.error_bound) else None,
            "sentence": self.sentence(),
            "parts": [part._asdict() | {"label": self.label(part)} for part in self.parts],
            "by_hop": [
                {"hop": hop, **rest._asdict()} for hop, sums in self.by_hop().items() for rest in sums
            ],
            "by_relation": [
                {"relation": way, **rest._asdict()}
                for way, sums in self.by_relation().items()
                for rest in sums
            ],
            "nodes": [
                {
                    "node": int(self.nodes[i]),
                    "name": self.node_name(int(self.nodes[i])),
                    "hop": int(self.hops[i]),
                    "relation": self.relations.get(int(self.nodes[i])),
                    "margin": float(margins[i]),
                    "mean_margin": float(means[i]),
                    "logits": self.shares[i].tolist(),
                    "mean_logits": self.means[i].tolist(),
                }
                for i in np.flatnonzero(counts)
            ],
        }


def _hop(hop: int | None) -> str:
    return "" if hop is None else str(hop)


def _sums(parts: Iterable[Part]) -> list[Sum]:
    """Of what is for the class, and of what is against it; neither hides the other."""
    found: tuple[list[Part], list[Part]] = [], []
    for part in parts:
        found[part.share < 0].append(part)
    return [
        Sum(len(some), sum(part.share for part in some), sum(part.percent for part in some))
        for some in found
        if some
    ]
