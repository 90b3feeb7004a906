"""How a disagreement counts."""

from math import inf
from typing import NamedTuple


class Rho(NamedTuple):
    """rho(t) = (2 / p) ((1 + t)^(p/2) - 1) up to the cutoff and constant from there on, t = |D|^2 / scale.

    rho' = (1 + t)^(p/2 - 1) below the cutoff, else 0. With p <= 2 it is concave, rho(0) = 0 and rho'(0) = 1;
    log(1 + t) with p = 0.
    """

    power: float
    cutoff: float = inf
    scale: float = 1.0
