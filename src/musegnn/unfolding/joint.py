"""The joint minimum over all samples of a store: in alternation (theorem 5.3), or with gamma = inf."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from jaxtyping import Float64
from torch import Tensor

from musegnn.errors import InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.checks import check_rows
from musegnn.unfolding.contract import AbstractEnergy
from musegnn.unfolding.energy import Energy, number
from musegnn.unfolding.minimum import solve
from musegnn.unfolding.penalty import EntrywisePenalty, Rows


@dataclass(frozen=True)
class Alternation:
    """Where alternating minimization got to."""

    M: Rows
    """The means; zeros for nodes in no sample."""
    Y: list[Tensor]
    """Y_s of each sample."""
    energies: Float64[Tensor, " rounds"]
    """l_muse(Y, M) after each round."""


@torch.no_grad()
def alternate(
    Z: Rows, samples: Sequence[Sample], energy: AbstractEnergy, rounds: int, *, M: Rows | None = None
) -> Alternation:
    """Minimize l_muse over all Y_s, then over M, in turn.

        Y_s = argmin E_s(Y; mu_s),   M_v = the mean of the Y_s,i with I(s, i) = v

    Args:
        Z: f(X) of the whole graph, a row for each node.
        samples: Such as `store["train"]`.
        energy: Of each sample; gamma finite and positive.
        rounds: How often.
        M: Means to start from; zeros unless given.
    """
    gamma = number(getattr(energy, "gamma", 1.0))
    if not 0 < gamma < inf:
        raise InputError(f"Alternating minimization needs 0 < gamma < inf, got {gamma:g}.")
    if not isinstance(rounds, Integral) or rounds < 1:
        raise InputError(f"rounds must be a whole number, 1 or more; got {rounds!r}.")
    _check_samples(Z, samples)
    check_rows(Z, M=M)
    exact = Z.detach().double()
    M = torch.zeros_like(exact) if M is None else M.detach().double()
    places = [torch.from_numpy(sample.node_ids.astype(np.int64)) for sample in samples]
    energies = []
    for _ in range(rounds):
        Y = [solve(exact[at], sample, energy, M[at]) for sample, at in zip(samples, places, strict=True)]
        M = _means(Y, places, len(exact))
        parts = zip(Y, samples, places, strict=True)
        energies.append(sum(float(energy.value(y, exact[at], sample, mu=M[at])) for y, sample, at in parts))
    return Alternation(M, Y, torch.tensor(energies, dtype=torch.float64))


def _check_samples(Z: Rows, samples: Sequence[Sample]) -> None:
    if not len(samples):
        raise InputError("There are no samples. Pass those of a split, such as store['train'].")
    last = max((int(sample.node_ids.max(initial=-1)) for sample in samples), default=-1)
    if last >= len(Z):
        raise InputError(
            f"Z must have a row for each node of the graph, {last + 1} or more; it has {len(Z)}."
        )


def _means(Y: list[Tensor], places: list[Tensor], num_nodes: int) -> Rows:
    total, count = Y[0].new_zeros(num_nodes, Y[0].shape[1]), Y[0].new_zeros(num_nodes, 1)
    for y, at in zip(Y, places, strict=True):
        total[at] += y
        count[at] += 1
    return total / count.clamp(min=1)


@torch.no_grad()
def consensus(Z: Rows, samples: Sequence[Sample], energy: Energy) -> Rows:
    """The minimizer M of eq. 7: gamma = inf makes every Y_s equal to mu_s. Zeros for nodes in no sample.

    (sum_s S_s' (I + lambda L_s) S_s) M = sum_s S_s' Z_s,   S_s the rows of a sample; no penalty
    """
    if not (isinstance(energy.penalty, EntrywisePenalty) and energy.penalty.clip.is_free):
        raise InputError(f"consensus solves without a penalty, got {energy.penalty}. Take prox='none'.")
    _check_samples(Z, samples)
    check_rows(Z)
    exact = Z.detach().double().cpu()
    n, parts, right = len(exact), [], np.zeros(exact.shape)
    free = Energy(number(energy.lambda_), 0.0, energy.laplacian, "none")
    for sample in samples:
        ids = sample.node_ids
        matrix = free.on(sample, None, None, like=exact[ids]).matrix().tocoo()
        parts.append((matrix.data, ids[matrix.row], ids[matrix.col]))
        right[ids] += exact[ids].numpy()
    data, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    system = scipy.sparse.coo_array((data, (rows, columns)), (n, n)).tocsr()
    there = np.flatnonzero(system.diagonal())
    M = np.zeros(exact.shape)
    M[there] = scipy.sparse.linalg.splu(system[there][:, there].tocsc()).solve(right[there])
    return torch.from_numpy(M).to(Z.dtype)
