"""How Y^(k+1) is made of Y^k and Y^(k-1): plain steps, momentum, or Chebyshev's polynomials.

With H <= D = diag(1 / a), the majorizer, the eigenvalues of D^-1 H lie in [q, 1], q = tau min(a). The last
two need about 1 / sqrt(q) steps where plain ones need 1 / q. Their energies may rise on the way; where they
stand is known all the same: the error bound holds for any Y.
"""

from math import sqrt

from musegnn.errors import InputError
from musegnn.unfolding.contract import AbstractProblem, Acceleration, Back, Wanted
from musegnn.unfolding.penalty import EntrywisePenalty, Penalty, Rows, penalty_of


class Pace:
    """Plain steps."""

    looks_back = False
    """Whether Y^(k-1) counts."""

    def __init__(self, problem: AbstractProblem) -> None:
        self.problem = problem

    def step(self, k: int, Y: Rows, before: Rows, Z: Rows) -> Rows:
        """Y^(k+1) from Y^k and Y^(k-1); `before` is Y^0 at k = 0."""
        return self.problem.descend(Y, Z)

    def back(
        self, k: int, Y: Rows, before: Rows, after: Rows | None, G: Rows, wanted: Wanted
    ) -> tuple[Back, Rows | None]:
        """From G = dY^(k+1), `after`, to dY^k and all else; and dY^(k-1), if that counts."""
        return self.problem.back(Y, after, G, self.problem.rows, wanted), None


class Momentum(Pace):
    """Nesterov's, for what is strongly convex.

    U = Y^k + b (Y^k - Y^(k-1)),   b = (1 - sqrt(q)) / (1 + sqrt(q))
    Y^(k+1) = prox_{a/2}(U - a (H U - b(Z)))
    """

    looks_back = True

    def __init__(self, problem: AbstractProblem) -> None:
        super().__init__(problem)
        self.a = problem.majorizer().detach()
        self.q = problem.tau * float(self.a.min()) if len(self.a) else 1.0

    def step(self, k: int, Y: Rows, before: Rows, Z: Rows) -> Rows:
        """A step from where Y would come to by itself."""
        return self.problem.stepped(self._pushed(k, Y, before), Z, self.a)

    def back(
        self, k: int, Y: Rows, before: Rows, after: Rows | None, G: Rows, wanted: Wanted
    ) -> tuple[Back, Rows | None]:
        """dY^k = (1 + b) dU,   dY^(k-1) = -b dU."""
        found, push = self.problem.back(self._pushed(k, Y, before), after, G, self.a, wanted), self._push(k)
        dbefore = -push * found.U
        if k == 1 and isinstance(self.problem.penalty, EntrywisePenalty):
            dbefore = self.problem.penalty.passed(self._inside(k, before), dbefore)
        return found._replace(U=(1 + push) * found.U), dbefore

    def _push(self, k: int) -> float:
        """b."""
        return (1 - sqrt(self.q)) / (1 + sqrt(self.q)) if k else 0.0

    def _pushed(self, k: int, Y: Rows, before: Rows) -> Rows:
        """U."""
        return Y + self._push(k) * (Y - self._inside(k, before))

    def _inside(self, k: int, before: Rows) -> Rows:
        # Y^0 may lie outside of the penalty; the way inside is no direction to go on in.
        return self.problem.penalty.prox(before, 0.0) if k == 1 else before


class Chebyshev(Momentum):
    """Of all polynomials of degree k in D^-1 H, the one whose largest error on [q, 1] is least; no penalty.

    Y^(k+1) = Y^k - w_k a (H Y^k - b(Z)) + r_k r_(k-1) (Y^k - Y^(k-1))
    s = (1 + q) / (1 - q),   r_0 = 1 / s,   r_k = 1 / (2 s - r_(k-1))
    w_0 = 2 / (1 + q),   w_k = 4 r_k / (1 - q)
    """

    def __init__(self, problem: AbstractProblem) -> None:
        super().__init__(problem)
        _check_free(problem.penalty)

    def step(self, k: int, Y: Rows, before: Rows, Z: Rows) -> Rows:
        """Along the gradient and along the last step."""
        rate, push = self._rates(k)
        return self.problem.stepped(Y, Z, rate * self.a) + push * (Y - before)

    def back(
        self, k: int, Y: Rows, before: Rows, after: Rows | None, G: Rows, wanted: Wanted
    ) -> tuple[Back, Rows | None]:
        """Along both: there is no penalty."""
        rate, push = self._rates(k)
        found = self.problem.back(Y, after, G, rate * self.a, wanted)
        return found._replace(U=found.U + push * G), -push * G

    def _rates(self, k: int) -> tuple[float, float]:
        """w_k and r_k r_(k-1)."""
        if not k or self.q >= 1:
            return 2 / (1 + self.q), 0.0
        s = (1 + self.q) / (1 - self.q)
        last = r = 1 / s
        for _ in range(k):
            last, r = r, 1 / (2 * s - r)
        return 4 * r / (1 - self.q), r * last


PACES: dict[str, type[Pace]] = {"none": Pace, "momentum": Momentum, "chebyshev": Chebyshev}


def pace_of(problem: AbstractProblem, acceleration: Acceleration) -> Pace:
    """By its name."""
    return PACES[acceleration](problem)


def check_acceleration(acceleration: object, prox: str | Penalty) -> Acceleration:
    """A name that is known, of steps that the penalty allows."""
    if acceleration not in PACES:
        raise InputError(f"acceleration must be 'none', 'momentum' or 'chebyshev', got {acceleration!r}.")
    if acceleration == "chebyshev":
        _check_free(prox)
    return acceleration  # type: ignore[return-value]


def _check_free(prox: str | Penalty) -> None:
    penalty = penalty_of(prox)
    if not (isinstance(penalty, EntrywisePenalty) and penalty.clip.is_free):
        raise InputError(f"acceleration='chebyshev' needs prox='none'; got prox={prox!r}. Take 'momentum'.")
