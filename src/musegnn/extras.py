"""Optional packages: imported where they are used, with the command that installs a missing one."""

import importlib
from types import ModuleType

from musegnn.errors import MissingExtraError

EXTRAS = {
    "torch_geometric": "pyg",
    "pyarrow": "parquet",
    "pymetis": "cluster",
    "tensorboard": "log",
    "wandb": "log",
}
"""Module name -> the extra of this package that brings it."""


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(
            f"{purpose} needs the package {module.partition('.')[0]}, which is not installed. "
            f"Install it with: pip install 'musegnn[{extra}]'"
        ) from error
