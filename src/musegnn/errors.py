"""The errors a user can cause. Each message says what, got, allowed, and the next step, in one line."""


class InputError(ValueError):
    """Something the caller passed in cannot be used."""


class StoreError(InputError):
    """A file or folder cannot be read or written: damaged, unfinished, of another version, disk full."""


class MissingExtraError(InputError, ImportError):
    """An optional package is needed that is not installed."""
