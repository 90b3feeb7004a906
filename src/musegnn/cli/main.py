"""`muse`: the commands, and how errors leave it (one line, exit code 2; our own faults show a traceback)."""

import difflib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, cast

import typer

from musegnn.cli import (
    bench,
    doctor,
    evaluate,
    explain,
    import_,
    info,
    pack,
    predict,
    recipes,
    report,
    sample,
    train,
)
from musegnn.errors import InputError, RankError
from musegnn.memory import is_out_of_memory
from musegnn.progress import show_progress
from musegnn.ranks import current, is_launched, join
from musegnn.store import file_errors
from musegnn.version import __version__

INTERRUPTED = 130
TOGETHER = ("sample", "train", "evaluate", "predict")
"""What the ranks of torchrun do together."""
ENVIRONMENT = {
    **{"OMP_WAIT_POLICY": "PASSIVE", "THP_MEM_ALLOC_ENABLE": "1"},
    **{"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "FATAL"},
}
"""What torch reads when it starts. Threads that wait by spinning take a shared machine from the one they wait
for; without huge pages, to touch fresh memory takes longer than to compute what goes into it; the profiler
talks to nobody, and what goes wrong between ranks is told by us."""

# Typer brings its own copy of click from 0.17 on, so click's classes are taken from Typer's public ones.
_UsageError = typer.BadParameter.__bases__[0]
_ClickError = cast(type[Exception], _UsageError.__bases__[0])

_IN_PYTHON = re.compile(r"\b(?:\w+=\S+|(\w+)(?= \(--\1\b)) \((--[^)]+)\)")
"""What the library calls 'overwrite=True (--overwrite)' or 'root (--root)' is an option alone here."""

app = typer.Typer(
    name="muse",
    help="Train deep graph neural networks whose layers are descent steps on an energy.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("import")(import_.import_)
app.command("sample")(sample.sample)
app.command("pack")(pack.pack)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("explain")(explain.explain)
app.command("report")(report.report)
app.command("bench")(bench.bench)
app.command("recipes")(recipes.recipes)
app.command("info")(info.info)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"musegnn {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Train deep graph neural networks whose layers are descent steps on an energy."""
    show_progress(not quiet and current().is_first)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 bad input, 1 our own fault, 130 interrupted."""
    if arguments is None:
        arguments = sys.argv[1:]
        # A reader that has seen enough (head) ends us quietly; SIGTERM cleans up as Ctrl-C does.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names of others may hold what a terminal cannot show.
            sys.stdout.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    command = typer.main.get_command(app)
    try:
        with _as_one_of_many(arguments) as is_needed, file_errors(Path("the output")):
            # Typer answers an interrupt with an exit code instead of an exception.
            how: dict[str, Any] = {"prog_name": "muse", "standalone_mode": False}
            if is_needed and command.main(arguments or ["--help"], **how) == INTERRUPTED:
                raise KeyboardInterrupt
    except InputError as error:
        return _fail(str(error))
    except RankError as error:
        _fail(str(error))
        return 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return _fail(
            "Out of memory. Lower hidden, batch_size or fanouts (--set ...); with gamma > 0 and M too large, "
            "--set means_home=disk."
        )
    except _ClickError as error:
        return _fail(_usage_line(error, command))
    except (KeyboardInterrupt, typer.Abort):
        if _is_heard():
            print(
                "muse: interrupted; nothing half-written is taken for complete. Run the same command again.",
                file=sys.stderr,
            )
        return INTERRUPTED
    return 0


@contextmanager
def _as_one_of_many(arguments: list[str]) -> Iterator[bool]:
    """Whether this process takes part. Of several ranks the first one speaks, and does alone what one can."""
    if not is_launched():
        yield True
        return
    with join() as ranks, open(os.devnull, "w") as nowhere:
        command = next((part for part in arguments if not part.startswith("-")), "")
        from musegnn.runs.alike import versions

        with nullcontext() if ranks.is_first else redirect_stdout(nowhere):
            try:
                ranks.check_same({"the command": command, **versions()})
                yield ranks.is_first or command in TOGETHER
            except (InputError, _ClickError) as error:
                # All ranks get the same command: what it got wrong is said once.
                if ranks.board is not None and ranks.board.is_said_by_first(error):
                    raise SystemExit(2) from error
                raise


def _is_heard() -> bool:
    """Whether this is the process that says what all could say."""
    return not is_launched() or os.environ["RANK"] == "0"


def _fail(message: str) -> int:
    said = _IN_PYTHON.sub(r"\2", " ".join(message.split("\n")))
    print("muse:", said if _is_heard() else f"rank {os.environ['RANK']}: {said}", file=sys.stderr)
    return 2


def _usage_line(error: Any, command: Any) -> str:
    message = error.format_message().rstrip(".")
    # Where Typer lets pydantic check options, the sentence leaves out what was got.
    if details := getattr(error.__cause__, "errors", None):
        message += f"; got {details()[0]['input']!r}"
    if message.startswith("No such command") and "Did you mean" not in message:
        near = difflib.get_close_matches(message.split("'")[1], command.commands, n=1, cutoff=0.4)
        message += f". Did you mean {near[0]!r}?" if near else ""
    context = getattr(error, "ctx", None)
    return f"{message}. See `{context.command_path if context else 'muse'} --help`.".replace("?.", "?")


def _show_warning(message: Warning | str, *_: object) -> None:
    if _is_heard():
        print(f"muse: warning: {message}", file=sys.stderr)
