"""The errors a user can cause. Each message says what, got, allowed, and the next step, in one line."""


class InputError(ValueError):
    """Something the caller passed in cannot be used."""


class StoreError(InputError):
    """A file or folder cannot be read or written: damaged, unfinished, of another version, disk full."""


class MissingExtraError(InputError, ImportError):
    """An optional package is needed that is not installed."""


class RankError(RuntimeError):
    """Another rank of the same job has failed, is stuck, or cannot be reached."""


class DivergenceError(InputError, ArithmeticError):
    """Numbers that are not finite, or an energy that rises where it must fall."""

    def __init__(self, message: str, *, step: int = 0, energy: float = float("nan")) -> None:
        super().__init__(message)
        self.step = step
        """The step after which it was seen; 0 for the input."""
        self.energy = energy
        """The last finite energy."""
