"""A run, what belongs to it, and a device, as a command names them."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from musegnn.errors import InputError, StoreError
from musegnn.ranks import current

MovedSamples = Annotated[Path | None, typer.Option(help="The run's sample store, if it was moved.")]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one; digits repeat on the CPU.")
]


def check_run(folder: Path) -> None:
    """Refuse what is no run at once: the rest waits some seconds for torch."""
    if not (folder / "config.toml").is_file():
        hint = near_folder(folder) or " Pass the folder of a run."
        raise StoreError(f"{folder} is not a run: it has no config.toml.{hint}")


def near_folder(folder: Path, files: Sequence[str] = ("config.toml",)) -> str:
    """' Did you mean ...?': a folder beside it that holds one of these files; or nothing.

    Where there is no such place, the nearest one is looked into: runs/debian for run/debian.
    """
    place = folder.parent
    if not place.is_dir():
        others = {path.name.lower(): path for path in place.parent.glob("*/")}
        likely = difflib.get_close_matches(place.name.lower(), others, n=1, cutoff=0.5)
        place = others[likely[0]] if likely else place
    found = (path.parent for file in files for path in place.glob(f"*/{file}"))
    beside = {path.name.lower(): path for path in found if path != folder}
    near = difflib.get_close_matches(folder.name.lower(), beside, n=1, cutoff=0.5)
    if beside and not near and place != folder.parent:
        return f" There is {place}, with {', '.join(sorted(path.name for path in beside.values())[:3])}."
    return f" Did you mean {beside[near[0]]}?" if near else ""


def check_page(path: Path, option: str) -> None:
    """Refuse a name that would hide what is in it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} writes a page of HTML: {path} must end in .html.")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}. Make it, or name another.")


def pick_device(device: str) -> str:
    """A device that torch has."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not current().is_alone:
        device = f"cuda:{current().local}"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"--device must be cpu, cuda or auto; got {device!r}.") from error
    if wanted.type not in ("cpu", "cuda") or (wanted.type == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {device} is not there. `muse doctor` says what is; take --device cpu.")
    if wanted.index is not None and wanted.type == "cuda":
        count = torch.cuda.device_count()
        if wanted.index >= count:
            raise InputError(f"--device {device} is not there: the GPUs are cuda:0 to cuda:{count - 1}.")
        # Kernels and streams are those of the current one.
        torch.cuda.set_device(wanted)
    return device
