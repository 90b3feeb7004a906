"""`muse`: the commands, and how errors leave it (one line, exit code 2; our own faults show a traceback)."""

import difflib
import sys
import warnings

import click
import typer

from musegnn.cli import doctor, import_, info
from musegnn.errors import InputError
from musegnn.progress import show_progress
from musegnn.version import __version__

app = typer.Typer(
    name="muse",
    help="Train deep graph neural networks whose layers are descent steps on an energy.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("import")(import_.import_)
app.command("info")(info.info)
app.command("doctor")(doctor.doctor)


@app.callback()
def options(
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    """Train deep graph neural networks whose layers are descent steps on an energy."""
    show_progress(not quiet)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 bad input, 1 our own fault, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments[:1]:
        print(f"musegnn {__version__}")
        return 0
    warnings.showwarning = _show_warning
    command = typer.main.get_command(app)
    try:
        command.main(arguments, prog_name="muse", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 0
    except click.UsageError as error:
        return _fail(_usage_line(error, command))
    except (InputError, click.ClickException) as error:
        return _fail(error.format_message() if isinstance(error, click.ClickException) else str(error))
    except (KeyboardInterrupt, click.Abort):
        print("muse: interrupted; nothing half-written was kept.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough.
        sys.stderr.close()
        return 0
    return 0


def _fail(message: str) -> int:
    print("muse:", " ".join(message.split("\n")), file=sys.stderr)
    return 2


def _usage_line(error: click.UsageError, command: click.Command) -> str:
    path = error.ctx.command_path if error.ctx is not None else "muse"
    message = error.format_message()
    if isinstance(command, click.Group) and message.startswith("No such command"):
        wanted = message.split("'")[1] if "'" in message else ""
        near = difflib.get_close_matches(wanted, command.commands, n=1, cutoff=0.4)
        message += f" Did you mean {near[0]}?" if near else ""
    return f"{message} See `{path} --help`."


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"muse: warning: {message}", file=sys.stderr)
