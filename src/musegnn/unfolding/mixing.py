"""H, a learned matrix between channels: any, diagonal, or diagonal and a few directions."""

from math import inf
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.unfolding.penalty import Rows


class Mixing(nn.Module):
    """X -> X H, with H = diag(h) + U V', or any matrix if no rank is given; I at the start.

    |H|_2 <= `limit`: a larger one is scaled down, since steps must be the smaller the larger H is. The factor
    is a constant to gradients, as the step size is.
    """

    def __init__(self, dim: int, rank: int | None = None, limit: float = inf) -> None:
        super().__init__()
        self.limit = limit
        self.H = self.h = self.U = self.V = None
        self._known: Tensor | None = None
        if rank is None:
            self.H = nn.Parameter(torch.eye(dim))
            return
        self.h = nn.Parameter(torch.ones(dim))
        if rank:
            # One of them is 0, so that H = I; the other is not, so that it can be learned.
            self.U = nn.Parameter(torch.randn(dim, rank) / dim**0.5)
            self.V = nn.Parameter(torch.zeros(dim, rank))

    def forward(self, X: Rows) -> Rows:
        """X H."""
        return self.allowed(X).times(X)

    def allowed(self, like: Tensor) -> "Factors":
        """As much of H as `limit` allows, made once for many products; `like` them."""
        H, h, U, V = (
            None if part is None else part.to(like.dtype) for part in (self.H, self.h, self.U, self.V)
        )
        if self.limit == inf:
            return Factors(H, h, U, V)
        share = (self.limit / self._bound()).clamp(max=1).to(like)
        H, h, U = (None if part is None else part * share for part in (H, h, U))
        return Factors(H, h, U, V)

    def matrix(self) -> Float[Tensor, "dim dim"]:
        """H."""
        some = self.H if self.H is not None else self.h
        assert some is not None
        return self.forward(torch.eye(len(some), dtype=some.dtype, device=some.device))

    def norm(self) -> Float[Tensor, ""]:
        """At least |H|_2; of any matrix of 512 columns no more than 3 % above it."""
        return self._bound().clamp(max=self.limit)

    @torch.no_grad()
    def measure(self) -> None:
        """Bound the norm of what is learned; to be called when that has changed, which no tensor tells."""
        if self.H is not None:
            self._known = _norm(self.H)
            return
        assert self.h is not None
        self._known = self.h.double().abs().max()
        if self.U is not None and self.V is not None:
            self._known = self._known + _norm(self.U) * _norm(self.V)

    def _bound(self) -> Float[Tensor, ""]:
        """That of what is learned, before it is scaled."""
        if self._known is None:
            self.measure()
        assert self._known is not None
        return self._known


class Factors(NamedTuple):
    """H, or the parts of H = diag(h) + U V'."""

    H: Float[Tensor, "dim dim"] | None
    h: Float[Tensor, " dim"] | None
    U: Float[Tensor, "dim rank"] | None
    V: Float[Tensor, "dim rank"] | None

    def times(self, X: Rows) -> Rows:
        """X H."""
        if self.H is not None:
            return X @ self.H
        assert self.h is not None
        scaled = X * self.h
        if self.U is None or self.V is None:
            return scaled
        return scaled.addmm_(X @ self.U, self.V.T)

    def transposed(self) -> "Factors":
        """H'."""
        return Factors(None if self.H is None else self.H.T, self.h, self.V, self.U)

    def weighed(self, weight: Float[Tensor, " channels"]) -> "Factors":
        """diag(weight) H; one weight for all channels, or one for each."""
        H, U = (None if part is None else weight[:, None] * part for part in (self.H, self.U))
        return Factors(H, None if self.h is None else weight * self.h, U, self.V)


_SQUARINGS = 6


def _norm(H: Float[Tensor, "rows columns"]) -> Float[Tensor, ""]:
    """At least |H|_2, without iterating and without waiting for a GPU.

        |H|_2^2 = |H'H|_2 <= |(H'H)^p|_F^(1/p) <= d^(1/2p) |H|_2^2,   p = 64

    by squaring; each square is scaled to a norm of 1, whose logarithm is added up. A product rounds by less
    than d units in the last place, and those of later squares count half as much each time.
    """
    # On a GPU float64 is as fast, and float32 may be less than it says.
    exact = H if H.device.type == "cpu" else H.double()
    G = exact.T @ exact
    log = torch.zeros((), dtype=torch.float64, device=H.device)
    for k in range(_SQUARINGS + 1):
        if k:
            G = G @ G
        size = G.norm().clamp(min=torch.finfo(G.dtype).tiny)
        G = G / size
        log = log + size.double().log() / 2**k
    return (log / 2).exp() * (1 + 4 * len(G) * torch.finfo(G.dtype).eps)
