"""``ganger``: the command line. Finds the command, opens the client, turns errors into one line.

Commands are imported when they are called, so that each starts fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..storage import errors
from ..storage.disk import ownership, paths
from . import hints, output
from .call import INTERRUPTED_EXIT_CODE, UNREAD_EXIT_CODE, Call
from .help_text import HelpFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

_COMMANDS = {
    "up": ("ganger.cli.up", "up", "Start the daemon in the background."),
    "daemon": ("ganger.cli.daemon", "daemon", "Run the daemon in the foreground."),
    "down": ("ganger.cli.up", "down", "Stop the daemon; running jobs go on."),
    "status": ("ganger.cli.status", "status", "Tell how the daemon is."),
    "fsck": ("ganger.cli.fsck", "fsck", "Check a data directory that no daemon uses."),
    "import-ganeti": (
        "ganger.cli.ganeti.import_ganeti",
        "import_ganeti",
        "Take over a state directory of Ganeti.",
    ),
    "exec": ("ganger.cli.execute", "execute", "Run a command as a job and follow it."),
    "job": ("ganger.cli.job", "job", "Submit, list, follow and change jobs."),
    "filter": ("ganger.cli.filter", "filter_rules", "Hold, reject or limit jobs by rules."),
    "hold": ("ganger.cli.hold", "hold", "Let no job begin on a host, or hold one job."),
    "release": ("ganger.cli.hold", "release", "End a hold."),
    "queue": ("ganger.cli.queue", "queue", "Drain, limit and simulate the queue."),
    "lock": ("ganger.cli.lock", "lock", "See which jobs hold which locks."),
    "query": ("ganger.cli.ganeti.query", "query", "Show fields of jobs, locks and other objects."),
    "query-fields": (
        "ganger.cli.ganeti.query",
        "query_fields",
        "List the fields that `query` can show.",
    ),
    "cluster": ("ganger.cli.cluster", "cluster", "See and change the cluster's settings."),
    "config": (
        "ganger.cli.config",
        "config",
        "Read and change the configuration.",
    ),
    "opcodes": (
        "ganger.cli.opcodes",
        "opcodes",
        "List the opcodes, or the parameters of one.",
    ),
    "node": ("ganger.cli.node", "node", "Let hosts join, and see and remove them."),
    "key": ("ganger.cli.key", "key", "Make, authorise and revoke keys for remote clients."),
    "rapi": ("ganger.cli.rapi", "rapi", "Keep the users of the remote API."),
    "completion": ("ganger.cli.completion", "completion", "Print a shell completion script."),
}

EXIT_CODES = """\b
Exit codes:
  0    done (`job wait`, `job submit --wait`: every job has ended well)
  1    refused, no daemon answers, the data directory is wrong, or a job has
       not ended well; the reason is on standard error
  2    the command line is wrong
  3    `status`: no daemon runs
  70   the operator must act (`up`, `status`: the daemon does not listen where
       it should)
  74   the disk refuses (`status`: the queue is read-only), or the output
       cannot be written
  75   try again later
  124  a deadline has passed
  130  interrupted; jobs go on
  141  the reader of the output has left, as of `ganger job list | head -1`;
       jobs go on

`ganger exec` ends with the exit code of its command (128 + the signal's
number if a signal ended it), with 127 if there is no such command, and with
126 if it cannot be executed."""


click.Context.formatter_class = HelpFormatter


def _installed() -> dict[str, tuple[str, str, str]]:
    """The commands that are here: a package may leave out those for Ganeti."""
    return {name: found for name, found in _COMMANDS.items() if _is_here(found[0])}


def _is_here(module: str) -> bool:
    folder, _, _ = module.rpartition(".")
    try:
        return folder == __package__ or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _EnoughError(Exception):
    """The reader of our output has left. click would turn a `BrokenPipeError` into exit code 1."""


class _Commands(click.Group):
    """The commands, each imported when it is needed."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _EnoughError from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = _installed()
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{hints.meant(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_installed())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        found = _installed().get(cmd_name)
        if found is None:
            return None
        command: click.Command = getattr(importlib.import_module(found[0]), found[1])
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # From the table: to name the commands must not import all of them.
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

        found = _installed().items()
        commands = [
            CompletionItem(name, help=text)
            for name, (_, _, text) in found
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        # From the table: the help of all commands must not import all of them.
        with formatter.section("Commands"):
            formatter.write_dl([(name, found[2]) for name, found in _installed().items()])


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not context.resilient_parsing:
        from ..storage.version import version  # noqa: PLC0415 - costs more than most commands

        output.echo(f"ganger {version()}")
        context.exit()


SETTINGS: dict[str, Any] = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}
"""What holds for all commands."""


@click.group(cls=_Commands, epilog=EXIT_CODES, context_settings=SETTINGS)
@click.option(
    "--data",
    metavar="DIR",
    envvar="GANGER_DATA",
    # The code that reads it finds out whether it may, and names the owner.
    type=click.Path(file_okay=False, readable=False),
    help="Data directory of the daemon. Without it: GANGER_DATA, else "
    f"{paths.DEFAULT_DATA_DIRECTORY} (root) or ~/.local/share/ganger.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and end.",
)
@click.pass_context
def ganger(context: click.Context, data: str | None) -> None:
    """Run operations as durable, supervised jobs that declare their locks.

    \b
    Start:    ganger up
    Try:      ganger exec -- sh -c 'echo hello'
    Look:     ganger job list
    Stop:     ganger down
    """  # noqa: D301 - the mark that keeps lines apart
    if context.get_parameter_source("data") is ParameterSource.COMMANDLINE and not data:
        # Probably an unset variable of a script: the default directory may be another daemon's.
        raise click.UsageError("--data: is empty", context)
    context.obj = Call(data=data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    _open_missing_streams()
    output.write_whole()
    try:
        code = ganger.main(arguments, prog_name="ganger", standalone_mode=False)
        sys.stdout.flush()
        sys.stderr.flush()
    except click.exceptions.Abort:
        _tell("interrupted")
        sys.exit(INTERRUPTED_EXIT_CODE)
    except click.exceptions.NoArgsIsHelpError as error:
        output.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except click.UsageError as error:
        context = error.ctx
        hint = f" (see `{context.command_path} --help`)" if context is not None else ""
        _tell(f"{_usage_text(error)}{hint}")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _tell(error.format_message())
        sys.exit(error.exit_code)
    except errors.GangerError as error:
        _tell(error.text + hints.remedy(error))
        sys.exit(error.exit_code)
    except (BrokenPipeError, _EnoughError):
        _drop_output()
        sys.exit(UNREAD_EXIT_CODE)
    except OSError as error:
        _drop_output()
        _tell(ownership.explained(error.filename or "standard output", error))
        sys.exit(errors.StorageError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _usage_text(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption) and error.option_name == "--data":
        return "--data: stands before the command, as in `ganger --data DIR status`"
    return error.format_message()


def _open_missing_streams() -> None:
    """Open /dev/null as each standard stream that is closed, before a file takes its number.

    What a command prints to a standard output that is closed is a failure, as on a full disk.
    """
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            stream = output.closed_output() if descriptor == 1 else os.fdopen(descriptor, "w")
            setattr(sys, name, stream)
            output.missing.append(stream)


def _drop_output() -> None:
    """Discard unwritten output: the interpreter would try again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, descriptor)
    if output.is_missing(sys.stdout):
        sys.stdout = os.fdopen(1, "w", closefd=False)


def _tell(text: str) -> None:
    line = " ".join(text.split())
    output.echo(f"ganger: {line}", err=True)


if __name__ == "__main__":
    main()
