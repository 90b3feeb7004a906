"""Optional packages: imported where they are used, with the command that installs a missing one."""

import importlib
import warnings
from functools import cache
from types import ModuleType

from musegnn.errors import MissingExtraError

EXTRAS = {
    "torch_geometric": "pyg",
    "pyarrow": "parquet",
    "pymetis": "cluster",
    "tensorboard": "log",
    "wandb": "log",
    "matplotlib": "bench",
}
"""Module name -> the extra of this package that brings it."""


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        with warnings.catch_warnings():
            # What others warn of at their import is theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not installed. "
            f"Install it with: pip install 'musegnn[{extra}]'"
        ) from error


@cache
def has_triton() -> bool:
    """Whether there are kernels for GPUs; asked only where there is one, and told once if not."""
    try:
        importlib.import_module("triton")
    except ImportError:
        warnings.warn(
            "Triton is not installed: steps on the GPU are taken with torch.sparse, which is several times "
            "slower. It comes with torch on Linux; elsewhere: pip install triton.",
            stacklevel=2,
        )
        return False
    return True
