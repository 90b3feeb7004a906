"""H, a learned matrix between channels: any, diagonal, or diagonal and a few directions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.unfolding.penalty import Rows


class Mixing(nn.Module):
    """X -> X H, with H = diag(h) + U V', or any matrix if no rank is given; I at the start."""

    def __init__(self, dim: int, rank: int | None = None) -> None:
        super().__init__()
        self.H = self.h = self.U = self.V = None
        self._known: tuple[object, float] | None = None
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
        return self._apply_matrix(X, transposed=False)

    def transposed(self, X: Rows) -> Rows:
        """X H'."""
        return self._apply_matrix(X, transposed=True)

    def _apply_matrix(self, X: Rows, *, transposed: bool) -> Rows:
        if self.H is not None:
            H = self.H.to(X.dtype)
            return X @ (H.T if transposed else H)
        assert self.h is not None
        result = X * self.h.to(X.dtype)
        if self.U is not None and self.V is not None:
            first, second = (self.V, self.U) if transposed else (self.U, self.V)
            result = result + (X @ first.to(X.dtype)) @ second.to(X.dtype).T
        return result

    def matrix(self) -> Float[Tensor, "dim dim"]:
        """H."""
        some = self.H if self.H is not None else self.h
        assert some is not None
        return self.forward(torch.eye(len(some), dtype=some.dtype, device=some.device))

    @torch.no_grad()
    def norm(self) -> float:
        """At least |H|_2; computed anew when H has changed."""
        version = tuple((part.data_ptr(), part._version) for part in self.parameters())
        if self._known is None or self._known[0] != version:
            self._known = version, self._norm()
        return self._known[1]

    def _norm(self) -> float:
        if self.H is not None:
            found = torch.linalg.matrix_norm(self.H.double(), 2)
        else:
            assert self.h is not None
            found = self.h.double().abs().max()
            if self.U is not None and self.V is not None:
                found = found + _norm(self.U) * _norm(self.V)
        # What is rounded is much less.
        return float(found) * (1 + 1e-9)


def _norm(U: Float[Tensor, "dim rank"]) -> Tensor:
    """|U|_2, from the few numbers of U'U."""
    found: Tensor = torch.linalg.eigvalsh(U.double().T @ U.double())[-1].clamp(min=0).sqrt()
    return found
