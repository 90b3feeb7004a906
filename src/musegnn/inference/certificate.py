"""The error bound of steps that are done in files, in files too."""

from copy import deepcopy
from math import sqrt
from pathlib import Path

import torch

from musegnn.inference import scratch
from musegnn.ops import Clip
from musegnn.sampling.record import Sample
from musegnn.unfolding import AbstractEnergy, Energy
from musegnn.unfolding.contract import Alpha, Seen
from musegnn.unfolding.kernel import CpuKernel
from musegnn.unfolding.penalty import Rows

_ROUNDING = 16
"""Units in the last place that a step may be off."""
FILES = 3


class Certificate:
    """`AbstractProblem.error_bound` by two passes of the step's own kernel, in float64.

        |Y - Y*| <= |Y - S| + |V| / tau,   S = prox(T U + a B),   V = T (U - S) / a,   T = I - a H

    With U the point where the last step began. H and the penalty treat all columns alike: those that are
    added one after the other are bounded one by one, which is less than all at once, if anything.

    Args:
        energy, sample, seen, alpha: Whose steps these are.
        folder: For three files of `width` columns, in float64.
        width: Columns that are looked at together.
        block_rows: Rows that are in memory together.
    """

    def __init__(
        self,
        energy: AbstractEnergy,
        sample: Sample,
        seen: Seen | None,
        alpha: Alpha,
        *,
        folder: Path,
        width: int,
        block_rows: int,
    ) -> None:
        if isinstance(energy, Energy) and energy.precondition == "authors":
            # Those are no gradient steps; any others will do.
            energy, alpha = deepcopy(energy), "auto"
            energy.precondition = "none"
        nothing = torch.zeros((), dtype=torch.float64).expand(sample.num_nodes, width)
        self._problem = energy.on(sample, nothing, seen, like=nothing, alpha=alpha)
        kernel = self._problem.fused()
        assert isinstance(kernel, CpuKernel)
        self._step, self._map = kernel, CpuKernel(sample, kernel.step, Clip(), 0.0)
        self._files = [scratch.numbers(folder, nothing.numel(), torch.float64) for _ in range(FILES)]
        self._width, self._block_rows = width, block_rows
        self._squared = 0.0

    @property
    def error_bound(self) -> float:
        """At least |Y - Y*|_F of the columns so far."""
        return sqrt(self._squared)

    def add(self, B: Rows, U: Rows, Y: Rows) -> None:
        """Some columns: Z + gamma mu, where the last step began, and where it led."""
        for first in range(0, B.shape[1], self._width):
            columns = slice(first, first + self._width)
            self._squared += self._bound(B[:, columns], U[:, columns], Y[:, columns]) ** 2

    def _bound(self, B: Rows, U: Rows, Y: Rows) -> float:
        problem, a = self._problem, self._problem.rows
        target, moved, stepped = (file[: B.numel()].view(B.shape) for file in self._files)
        target.copy_(B)
        moved.copy_(U)
        self._step.descend(moved, target, stepped, None, watch=False)
        apart = scaled = start = aim = residual = 0.0
        for rows in scratch.blocks(len(B), self._block_rows):
            apart += _squares(Y[rows].double() - stepped[rows])
            scaled += _squares(moved[rows] / a[rows])
            start += _squares(moved[rows])
            aim += _squares(target[rows])
            moved[rows] -= stepped[rows]
        self._map.descend(moved, target.zero_(), stepped, None, watch=False)
        for rows in scratch.blocks(len(B), self._block_rows):
            residual += _squares(stepped[rows] / a[rows])
        # What is rounded here: |U| / a + |H U - B| + |B|, of which the second is at most sigma |U| + |B|.
        size = sqrt(scaled) + problem.sigma * sqrt(start) + 2 * sqrt(aim)
        rounded = _ROUNDING * torch.finfo(torch.float64).eps * size
        return sqrt(apart) + (sqrt(residual) + rounded) / problem.tau


def _squares(rows: Rows) -> float:
    return float(rows.square().sum())
