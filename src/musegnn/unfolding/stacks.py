"""Sums along all relations and directions of a subgraph at once, differentiable.

Each way w has a matrix P_w = diag(left_w) A_w diag(right_w). They lie one below the other, so that one pass
makes all P_w X; and the transpose of that, [P_1' P_2' ...], adds up all P_w' M_w in another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample
from musegnn.unfolding.mixing import WayRows
from musegnn.unfolding.penalty import EntrywisePenalty, Rows
from musegnn.unfolding.resident import Matrix, resident
from musegnn.unfolding.ties import Csr, split

WayColumns = Float[Tensor, "ways nodes 1"]
Channels = Float[Tensor, "ways channels"]
Entries = Float[Tensor, " entries"]
Columns = Float[Tensor, "nodes 1"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Stack:
    """The entries of [A_1; A_2; ...] and of its transpose: those of way w are columns w n, w n + 1, ..."""

    A: Matrix
    At: Matrix
    num_ways: int


class Spread(NamedTuple):
    """P = [P_1; P_2; ...]: the weight of each entry, of the transpose in its own order.

    It is kept as long as the stack lives, and so must not hold the stack.
    """

    A: Matrix
    At: Matrix
    weight: Entries
    back: Entries
    load: WayColumns
    """P_w' 1."""


_stacks: "WeakKeyDictionary[Sample, dict[tuple[int, int], Stack]]" = WeakKeyDictionary()
_made: "WeakKeyDictionary[Stack, dict[object, tuple[Any, ...]]]" = WeakKeyDictionary()


def stacked(sample: Sample, num_relations: int, directions: int) -> Stack:
    """All relations of a subgraph, each along its direction, then (of 2 directions) against it."""
    key = num_relations, directions
    found = _stacks.setdefault(sample, {})
    if key not in found:
        found[key] = _stack(sample, num_relations, directions)
    return found[key]


def _stack(sample: Sample, num_relations: int, directions: int) -> Stack:
    if not num_relations:
        # Symmetric: its own transpose. Not the sample itself, which would then be kept by what it keeps.
        matrix = Csr(sample.indptr, sample.indices)
        return Stack(matrix, matrix, 1)
    ways = [way for tie in split(sample, num_relations) for way in (tie, tie.back)[:directions]]
    below, backs = (_one_below_the_other([way[side] for way in ways]) for side in (0, 1))
    return Stack(below, Csr(*ops.side_by_side(backs.indptr, backs.indices, len(ways))), len(ways))


def _one_below_the_other(matrices: list[Matrix]) -> Csr:
    counts = [np.diff(matrix.indptr) for matrix in matrices]
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return Csr(indptr, np.concatenate([matrix.indices for matrix in matrices]))


def weighed(
    stack: Stack, name: object, like: Tensor, make: Callable[[WayColumns, WayColumns], tuple[WayColumns, ...]]
) -> tuple[Spread, tuple[WayColumns, ...]]:
    """P, and what else `make` makes beside left and right of the degrees of all ways, once for a subgraph.

    The degrees are in float64: edges that leave a node, and those that arrive. What is made is kept in
    float32 or more: rows in bfloat16 are added up with such weights.
    """
    exact, found = torch.promote_types(like.dtype, torch.float32), _made.setdefault(stack, {})
    key = name, like.device, exact
    if key not in found:
        # Not as inference tensors, which could not be trained with.
        with torch.inference_mode(False), torch.no_grad():
            (rows, columns), (nodes, across) = (_ends(matrix, like.device) for matrix in (stack.A, stack.At))
            size = stack.num_ways, len(stack.At.indptr) - 1, 1
            n = size[1]
            # Where an entry of way w ends, among all nodes of all ways.
            ends = rows // max(n, 1) * n + columns
            leaving, arriving = (
                torch.zeros(size[0] * n, dtype=torch.float64, device=like.device)
                .index_add_(0, at, torch.ones(len(at), dtype=torch.float64, device=like.device))
                .view(size)
                for at in (rows, ends)
            )
            left, right, *others = (part.to(exact) for part in make(leaving, arriving))
            there = left.flatten()[rows] * right.flatten()[ends]
            back = left.flatten()[across] * right.flatten()[across // max(n, 1) * n + nodes]
            load = torch.zeros(size[0] * n, dtype=torch.float64, device=like.device)
            load = load.index_add_(0, ends, there.double()).view(size).to(exact)
            found[key] = Spread(stack.A, stack.At, there, back, load), *others
    P, *others = found[key]
    return P, tuple(others)


def edges_of_ways(P: Spread, device: torch.device) -> list[Int64[Tensor, "2 edges"]]:
    """Of each way the nodes i and j of its entries."""
    (rows, columns), (num_ways, n, _) = _ends(P.A, device), P.load.shape
    edges = torch.stack([rows % max(n, 1), columns])
    counts = np.diff(P.A.indptr[::n]).tolist() if n else [0] * num_ways
    return list(edges.split(counts, dim=1))


def spread(P: Spread, X: Rows) -> WayRows:
    """P_w X of each way."""
    found: Tensor = _Sum.apply(X, P, True)
    return found.view(len(P.load), len(X), X.shape[1])


def gathered(P: Spread, M: WayRows) -> Rows:
    """The sum of P_w' M_w."""
    found: Rows = _Sum.apply(M.reshape(-1, M.shape[-1]), P, False)
    return found


@torch.no_grad()
def settled(
    P: Spread,
    M: WayRows,
    R: WayRows,
    scale: Channels,
    keep: Columns,
    take: Columns,
    X: Rows,
    B: Rows | None = None,
    penalty: EntrywisePenalty | None = None,
) -> Rows:
    """prox_{take/2}(keep X + take (B - total)), total = sum_w scale_w R_w - P_w' M_w; without a tape.

    See `musegnn.ops.settle`.
    """
    exact, clip = P.back.dtype, ops.Clip() if penalty is None else penalty.clip
    scale = scale.expand(-1, X.shape[1]).to(exact).contiguous()
    keep, take = (column.expand(len(X), 1)[:, 0].to(exact).contiguous() for column in (keep, take))
    M = M.reshape(-1, M.shape[-1])
    if X.device.type == "cuda" and has_triton():
        from musegnn.ops.settle import triton

        X, B = X.contiguous(), None if B is None else B.contiguous()
        out, csr = torch.empty_like(X), resident(P.At, X.device).csr
        triton.settle(csr, P.back, M, R.contiguous(), scale, keep, take, X, B, clip, out)
        return out
    if X.device.type == "cpu":
        wide = [part.to(exact).contiguous().numpy() for part in (M, R, scale, keep, take, X)]
        added = None if B is None else B.to(exact).contiguous().numpy()
        out, At = torch.empty(X.shape, dtype=exact), P.At
        given: Any = At.indptr, At.indices, P.back.numpy(), *wide, added, clip, out.numpy()
        ops.settle(*given, threads=torch.get_num_threads())
        return out.to(X.dtype)
    return _settled_by_torch(P, M, R, scale, keep, take, X, B, penalty)


def _settled_by_torch(
    P: Spread,
    M: Float[Tensor, "columns dim"],
    R: WayRows,
    scale: Channels,
    keep: Float[Tensor, " nodes"],
    take: Float[Tensor, " nodes"],
    X: Rows,
    B: Rows | None,
    penalty: EntrywisePenalty | None,
) -> Rows:
    """On any device."""
    total = (scale[:, None] * R).sum(dim=0) - _sum_by_torch(P.At, P.back, M)
    moved = keep[:, None] * X + take[:, None] * (-total if B is None else B - total)
    return (moved if penalty is None else penalty.prox(moved, take[:, None] / 2)).to(X.dtype)


class _Sum(Function):
    """P X, or P' X."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, P: Spread, is_there: bool) -> Tensor:
        ctx.given = P, is_there
        return _sum(*_side(P, is_there), X.detach())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        P, is_there = ctx.given
        return _Sum.apply(grads[0], P, not is_there), None, None


def _side(P: Spread, is_there: bool) -> tuple[Matrix, Entries]:
    return (P.A, P.weight) if is_there else (P.At, P.back)


def _sum(matrix: Matrix, weight: Entries, X: Float[Tensor, "columns dim"]) -> Float[Tensor, "rows dim"]:
    num_rows = len(matrix.indptr) - 1
    if X.device.type == "cuda" and has_triton():
        from musegnn.ops.settle import triton

        out = X.new_empty(num_rows, X.shape[1])
        triton.spread(resident(matrix, X.device).csr, weight, X.contiguous(), out)
        return out
    if X.device.type == "cpu":
        wide = X.to(weight.dtype).contiguous()
        out = wide.new_empty(num_rows, X.shape[1])
        given = matrix.indptr, matrix.indices, weight.numpy(), wide.numpy(), out.numpy()
        ops.spread(*given, threads=torch.get_num_threads())
        return out.to(X.dtype)
    return _sum_by_torch(matrix, weight, X)


def _sum_by_torch(
    matrix: Matrix, weight: Entries, X: Float[Tensor, "columns dim"]
) -> Float[Tensor, "rows dim"]:
    """On any device; every entry costs a row of memory."""
    rows, columns = _ends(matrix, X.device)
    empty = torch.zeros(len(matrix.indptr) - 1, X.shape[1], dtype=weight.dtype, device=X.device)
    return empty.index_add_(0, rows, weight[:, None] * X[columns]).to(X.dtype)


def _ends(
    matrix: Matrix, device: torch.device
) -> tuple[Int64[Tensor, " entries"], Int64[Tensor, " entries"]]:
    """Row and column of each entry."""
    if device.type == "cuda" and has_triton():
        csr = resident(matrix, device).csr
        indptr, columns = csr.indptr, csr.indices.long()
    else:
        indptr = torch.from_numpy(np.array(matrix.indptr, dtype=np.int64)).to(device)
        columns = torch.from_numpy(np.array(matrix.indices, dtype=np.int64)).to(device)
    rows = torch.arange(len(indptr) - 1, device=device)
    return rows.repeat_interleave(indptr.diff(), output_size=len(columns)), columns
