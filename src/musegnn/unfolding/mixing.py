"""H, learned matrices between channels: any, diagonal, or diagonal and a few directions."""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

WayRows = Float[Tensor, "ways nodes dim"]


class Mixings(nn.Module):
    """Matrices H with |H|_2 <= `limit`, since steps must be the smaller the larger H is; I at the start.

    Any matrix if no rank is given: H = W T^-1 with T'T = I + W'W / limit^2, so that each singular value w of
    what is learned counts as w / sqrt(1 + w^2 / limit^2), and the largest does not shrink the others. (With a
    limit of 1 or less H cannot be I, and begins as what W = I allows.)

    Else H = diag(h) + U V', and all of it is scaled down if it is too large; the factor is a constant to
    gradients, as the step size is.
    """

    def __init__(self, count: int, dim: int, rank: int | None = None, limit: float = inf) -> None:
        super().__init__()
        self.limit = limit
        self.W = self.h = self.U = self.V = None
        if rank is None:
            begin = (1 - limit**-2) ** -0.5 if limit > 1 else 1.0
            self.W = nn.Parameter(begin * torch.eye(dim).repeat(count, 1, 1))
            return
        self.h = nn.Parameter(torch.ones(count, dim))
        if rank:
            # One of them is 0, so that H = I; the other is not, so that it can be learned.
            self.U = nn.Parameter(torch.randn(count, dim, rank) / dim**0.5)
            self.V = nn.Parameter(torch.zeros(count, dim, rank))

    def forward(self) -> tuple["Factors", Float[Tensor, " count"]]:
        """All of them, and at least |H|_2 of each; of any matrix of 512 columns no more than 3 % above it."""
        return _held(self.raw, self.limit)

    @property
    def raw(self) -> "Factors":
        """What is learned."""
        return Factors(self.W, self.h, self.U, self.V)

    @staticmethod
    def together(several: Sequence["Mixings"]) -> list[tuple["Factors", Float[Tensor, " count"]]]:
        """As each of them makes it, of all at once where they are of one kind: a GPU does as much in a go."""
        kinds = {
            (mixings.limit, *(None if part is None else part.shape[1:] for part in mixings.raw))
            for mixings in several
        }
        if len(kinds) > 1:
            return [mixings() for mixings in several]
        raw = (
            None if parts[0] is None else torch.cat(parts)
            for parts in zip(*(mixings.raw for mixings in several), strict=True)
        )
        factors, norms = _held(Factors(*raw), several[0].limit)
        counts = [len(next(part for part in mixings.raw if part is not None)) for mixings in several]
        return list(zip(factors.split(counts), norms.split(counts), strict=True))

    @torch.no_grad()
    def matrices(self) -> Float[Tensor, "count dim dim"]:
        """H."""
        matrices: Tensor = self()[0].dense()
        return matrices

    @property
    def begins_at(self) -> float:
        """How many times I each H is where nothing was learned yet."""
        if self.limit > 1:
            return 1.0
        return self.limit if self.W is None else (1 + self.limit**-2) ** -0.5


class Factors(NamedTuple):
    """H, or the parts of H = diag(h) + U V'; of one, or one behind the other of several."""

    H: Float[Tensor, "*count dim dim"] | None
    h: Float[Tensor, "*count dim"] | None
    U: Float[Tensor, "*count dim rank"] | None
    V: Float[Tensor, "*count dim rank"] | None

    def split(self, counts: Sequence[int]) -> list["Factors"]:
        """So many at a time."""
        parts = [[None] * len(counts) if part is None else part.split(list(counts)) for part in self]
        return [Factors(*each) for each in zip(*parts, strict=True)]

    def to(self, dtype: torch.dtype) -> "Factors":
        """As what they are multiplied with is kept."""
        return Factors(*(None if part is None else part.to(dtype) for part in self))

    def dense(self) -> Float[Tensor, "*count dim dim"]:
        """H, whatever its parts."""
        if self.H is not None:
            return self.H
        assert self.h is not None
        H = torch.diag_embed(self.h)
        return H if self.U is None or self.V is None else H + self.U @ self.V.mT

    @torch.no_grad()
    def growth(self, dtype: torch.dtype, weights: Float[Tensor, "count channels"]) -> Float[Tensor, " count"]:
        """At least by how much each |H|_2 grows where H, and diag(weight) H' / weight, are rounded.

        |H + E|_2 <= |H|_2 + |E|_2, with the E there are.
        """
        exact = self.to(torch.float64).dense()
        # A lambda that underflows says nothing, and must not make NaN.
        weight = weights.double()[..., None].clamp(min=torch.finfo(torch.float64).tiny)
        there = self.to(dtype).to(torch.float64).dense() - exact
        back = self.transposed().weighed(weights).to(dtype).to(torch.float64).dense() / weight - exact.mT
        # It is small beside |H|: two squarings, at most d^(1/16) above, will do for both at once.
        return _norm(torch.cat([there, back]), squarings=2).view(2, -1).amax(dim=0)

    def times(self, X: WayRows) -> WayRows:
        """X_w H_w, of several."""
        if self.H is not None:
            return X @ self.H
        assert self.h is not None
        scaled = X * self.h[:, None]
        if self.U is None or self.V is None:
            return scaled
        return scaled.baddbmm_(X @ self.U, self.V.mT)

    def taken_from(self, total: WayRows, X: WayRows) -> WayRows:
        """total - X_w H_w, of several; `total` is written to."""
        if self.H is not None:
            return total.baddbmm_(X, self.H, alpha=-1)
        assert self.h is not None
        total = total.addcmul_(X, self.h[:, None], value=-1)
        if self.U is None or self.V is None:
            return total
        return total.baddbmm_(X @ self.U, self.V.mT, alpha=-1)

    def slopes(self, X: WayRows, Y: WayRows, weight: Float[Tensor, "count channels"]) -> "Factors":
        """The gradient of sum_w <X_w H_w, weight_w Y_w> by each part."""
        if self.H is not None:
            return Factors(_crossed(X, Y) * weight[:, None], None, None, None)
        h, U, V = torch.sum(X * Y, dim=1, dtype=weight.dtype) * weight, None, None
        if self.U is not None and self.V is not None:
            U = _crossed(X, Y @ (weight[..., None] * self.V).to(Y.dtype))
            V = weight[..., None] * _crossed(Y, X @ self.U)
        return Factors(None, h, U, V)

    def plus(self, other: "Factors") -> "Factors":
        """Part by part."""
        pairs = zip(self, other, strict=True)
        return Factors(*(None if a is None or b is None else a + b for a, b in pairs))

    def transposed(self) -> "Factors":
        """H'."""
        return Factors(None if self.H is None else self.H.mT, self.h, self.V, self.U)

    def weighed(self, weight: Float[Tensor, "*count channels"]) -> "Factors":
        """diag(weight) H; one weight for all channels, or one for each."""
        H, U = (None if part is None else weight[..., None] * part for part in (self.H, self.U))
        return Factors(H, None if self.h is None else weight * self.h, U, self.V)


def scaled(weight: Tensor, X: Tensor, total: WayRows | None = None) -> WayRows:
    """weight * X, or total - weight * X, kept as X is; a weight may have more digits, which are used.

    Without a tape a GPU keeps nothing in between: of rows in bfloat16 that would be rows in float32.
    """
    if torch.is_grad_enabled():
        product = weight * X
        return (product if total is None else total - product).to(X.dtype)
    out = X.new_empty(torch.broadcast_shapes(weight.shape, X.shape))
    if total is None:
        return torch.mul(weight, X, out=out)
    return torch.addcmul(total, weight, X, value=-1, out=out)


def _crossed(X: WayRows, Y: Float[Tensor, "count nodes others"]) -> Float[Tensor, "count dim others"]:
    """X_w' Y_w, of several."""
    if X.dtype == torch.float32:
        # One by one: a GPU then cuts their long sums, and is up to ten times as fast.
        return torch.stack([x.T @ y for x, y in zip(X, Y, strict=True)])
    return X.mT @ Y


def _held(raw: Factors, limit: float) -> tuple[Factors, Float[Tensor, " count"]]:
    W, h, U, V = raw
    if W is not None:
        norm = _norm(W)
        if limit == inf:
            return raw, norm
        # Of I beside W'W / limit^2, by rounding.
        lost = W.shape[-1] * torch.finfo(torch.float64).eps * (norm / limit) ** 2
        # As its singular values: the larger w, the larger w / sqrt(1 + w^2 / limit^2).
        bound = (norm**-2 + limit**-2).rsqrt()
        # H is made in float64 and rounded once.
        bound = bound * (1 + W.shape[-1] ** 0.5 * torch.finfo(W.dtype).eps + lost)
        return Factors(_held_below(limit, W, lost < _LOST), None, None, None), bound
    assert h is not None
    bound = h.detach().double().abs().amax(dim=1)
    if U is not None and V is not None:
        bound = bound + _norm(U) * _norm(V)
    share = (limit / bound).clamp(max=1).to(h)
    U = None if U is None else share[:, None, None] * U
    return Factors(None, share[:, None] * h, U, V), bound.clamp(max=limit)


_LOST = 1e-3
"""Of I; |W| is 1e5 times the limit then, or more."""


def _held_below(
    limit: float, W: Float[Tensor, "count dim dim"], is_known: Bool[Tensor, " count"]
) -> Float[Tensor, "count dim dim"]:
    """W T^-1, T'T = I + W'W / limit^2: |W x|^2 < limit^2 |T x|^2 for every x, so that |W T^-1|_2 < limit."""
    exact = W.double()
    gram = torch.eye(W.shape[-1], dtype=exact.dtype, device=W.device) + exact.mT @ exact / limit**2
    T, failed = torch.linalg.cholesky_ex(gram, upper=True)
    H: Tensor = torch.linalg.solve_triangular(T, exact, upper=True, left=False)
    # Where I is lost beside W'W, H is not a number, which a descent tells of. To ask here would wait for a
    # GPU.
    return H.where((is_known & (failed == 0))[:, None, None], torch.nan).to(W.dtype)


@torch.no_grad()
def _norm(H: Float[Tensor, "count rows columns"], squarings: int = 6) -> Float[Tensor, " count"]:
    """At least |H|_2 of each, without iterating and without waiting for a GPU.

        |H|_2^2 = |H'H|_2 <= |(H'H)^p|_F^(1/p) <= d^(1/2p) |H|_2^2,   p = 2^squarings

    by squaring; each square is scaled to a norm of 1, whose logarithm is added up. A product rounds by less
    than d units in the last place, and those of later squares count half as much each time.
    """
    # On a GPU float64 is as fast, and float32 may be less than it says.
    exact = H if H.device.type == "cpu" else H.double()
    # Or the squares of what is small or large would be 0 or inf.
    largest = exact.abs().amax(dim=(1, 2), keepdim=True).clamp_(min=torch.finfo(exact.dtype).tiny)
    exact = exact / largest
    G, sizes = exact.mT.bmm(exact), []
    for k in range(squarings + 1):
        if k:
            G = G.bmm(G)
        size = torch.linalg.vector_norm(G, dim=(1, 2), keepdim=True).clamp_(min=torch.finfo(G.dtype).tiny)
        G = G / size
        sizes.append(size)
    logs = torch.cat(sizes, dim=2)[:, 0].double().log_()
    shares = 0.5 ** torch.arange(1, squarings + 2, dtype=torch.float64, device=H.device)
    return (logs @ shares).exp_() * largest[:, 0, 0].double() * _rounding(G)


def _rounding(G: Float[Tensor, "count rows columns"]) -> float:
    """By how much more than exact numbers those of products may be."""
    return 1 + (4 * G.shape[-1] + 64) * torch.finfo(G.dtype).eps
