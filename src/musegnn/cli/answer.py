"""How every command answers: lines for people, one object for machines, and what is said on the way."""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from musegnn.cli import show
from musegnn.progress import show_progress
from musegnn.ranks import current

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON; all else goes to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no progress, no advice.")]
_FLAGS = {"as_json": Json, "quiet": Quiet}

_is_quiet = False


@dataclass(frozen=True)
class Answer:
    """What a command has found. What it prints while it works is no part of it."""

    record: Any
    """For machines, as JSON has it."""
    tell: Callable[[], None]
    """For people: prints it."""
    next: str = ""
    """A command that they may want next."""


def be_quiet(quiet: bool) -> None:
    """Of all commands of this process, as by `muse --quiet COMMAND`."""
    global _is_quiet
    _is_quiet = quiet
    show_progress(not quiet and current().is_first)


def answering(command: Callable[..., Answer]) -> Callable[..., None]:
    """The command, with --json and --quiet."""

    @functools.wraps(command)
    def run(*, as_json: bool, quiet: bool, **given: Any) -> None:
        if quiet:
            be_quiet(True)
        with open(os.devnull, "w") as nowhere:
            # Of several ranks, the others have been told to say nothing.
            aside = nowhere if _is_quiet or not current().is_first else sys.stderr
            with redirect_stdout(aside) if as_json or _is_quiet else nullcontext():
                answer = command(**given)
        if as_json:
            print(json.dumps(answer.record, indent=1))
            return
        answer.tell()
        if answer.next and not _is_quiet:
            show.text(f"Next: {answer.next}", indent=6)

    signature = inspect.signature(command)
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=hint)
        for name, hint in _FLAGS.items()
    ]
    parameters = [*signature.parameters.values(), *flags]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
