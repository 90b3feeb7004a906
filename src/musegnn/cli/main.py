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
from musegnn.cli.answer import answering, be_quiet
from musegnn.cli.show import columns
from musegnn.cli.start import INTERRUPTED
from musegnn.errors import InputError, RankError
from musegnn.memory import is_out_of_memory
from musegnn.ranks import is_launched, join
from musegnn.store import file_errors
from musegnn.version import __version__

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
for _command in (
    *(import_.import_, sample.sample, pack.pack, train.train, evaluate.evaluate, predict.predict),
    *(explain.explain, report.report, bench.bench, recipes.recipes, info.info, doctor.doctor),
):
    app.command(_command.__name__.rstrip("_"))(answering(_command))


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"musegnn {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    quiet: bool = typer.Option(False, "--quiet", "-q", help="The result alone, as behind a command."),
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Train deep graph neural networks whose layers are descent steps on an energy."""
    be_quiet(quiet)


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
    command = _fitting(typer.main.get_command(app))
    try:
        with _as_one_of_many(arguments) as is_needed, file_errors(Path("the output")):
            # Typer answers an interrupt with an exit code instead of an exception.
            how: dict[str, Any] = {"prog_name": "muse", "standalone_mode": False, **_width()}
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


def _width() -> dict[str, int]:
    """Click writes no help that is narrower than 50, unless it is told to."""
    wide = columns()
    return {"terminal_width": max(wide - 2, 20)} if wide is not None and wide < 52 else {}


def _fitting(command: Any) -> Any:
    """The command, with options on lines of their own where they would leave no room for words."""
    given = command.context_class.formatter_class

    class Formatter(given):  # type: ignore[misc, valid-type]
        def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
            super().write_dl(rows, min(col_max, 2 * self.width // 5), col_spacing)

    context = type("Context", (command.context_class,), {"formatter_class": Formatter})
    for one in (command, *command.commands.values()):
        one.context_class = context
    return command


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
