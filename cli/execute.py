"""``ganger exec``: one command as a job, followed as if it ran here."""

from __future__ import annotations

import base64
import functools
import itertools
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..storage import errors, settings
from ..storage.jobs import job_views, jobs
from ..storage.locks.locks import LockLevel, LockMode
from . import (
    choices,
    completing,
    following,
    hints,
    lock_names,
    logs,
    output,
    reading,
    repeating,
    whys,
)
from .call import INTERRUPTED_EXIT_CODE, UNREAD_EXIT_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..transport.client.client import Client
    from .call import Call

TIMED_OUT_EXIT_CODE = 124
_SIGNAL_BASE = 128
_NOT_STARTED = "command cannot be started: "


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option(
    "--lock",
    "locks",
    type=choices.Text(),
    multiple=True,
    metavar="LEVEL/NAME[:shared]",
    shell_complete=completing.locks,
    help="Hold this lock while the command runs, such as node/n1 or instance/web:shared; "
    "NAME * is the whole level. May be repeated.",
)
@click.option(
    "--on",
    "node",
    type=choices.Text(),
    metavar="NODE",
    help="Run it on this node, which the job locks shared unless --lock says more.",
)
@click.option(
    "--as-user",
    "user",
    type=choices.Text(),
    metavar="USER",
    help="Run it as this user; a host says which users it allows (`ganger node check`).",
)
@click.option(
    "--timeout",
    type=choices.Seconds(least=0.001),
    metavar="TIME",
    help="End the command after this time, such as 5m.",
)
@click.option(
    "--cwd",
    type=choices.Text(),
    metavar="DIR",
    help="Directory to run in, / without it; a relative one, such as ., is seen from here.",
)
@click.option(
    "--env",
    "variables",
    type=choices.Text(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Set this variable. May be repeated.",
)
@click.option(
    "--env-from-here",
    "from_here",
    type=choices.Text(),
    multiple=True,
    metavar="NAME,...",
    help="Set these variables as they are here. May be repeated.",
)
@click.option(
    "--leave-running",
    is_flag=True,
    help="Let processes that leave the command's process group (daemons) go on when it has ended.",
)
@click.option(
    "--stdin",
    type=choices.Text(),
    metavar="TEXT",
    help="Standard input of the command; - passes ours on, whatever its bytes and its size.",
)
@choices.submission_options
@repeating.key_option("a submission")
@click.option("-d", "--detach", is_flag=True, help="Print the id and return; the job goes on.")
@whys.quiet_option
@click.argument("command", nargs=-1, required=True, type=choices.Text())
@click.pass_obj
def execute(
    call: Call,
    /,
    *,
    command: Sequence[str],
    locks: Sequence[str],
    node: str | None,
    user: str | None,
    timeout: float | None,
    cwd: str | None,
    variables: Sequence[str],
    from_here: Sequence[str],
    leave_running: bool,
    stdin: str | None,
    detach: bool,
    quiet: bool,
    key: str | None,
    dry_run: bool,
    **submission: Any,  # noqa: ANN401 - as `Client.submit`
) -> int:
    """Run COMMAND as a job, show its output, and end with its exit code.

    \b
    ganger exec -- sh -c 'echo hello; exit 3'
    ganger exec --lock node/n1 --timeout 5m -- /usr/local/bin/upgrade n1
    ganger exec -d --name backup --cwd . -- make backup
    ganger exec --on web1 -- uptime

    The command runs as the daemon's user, in a clean environment. If the job is silent for a
    second, standard error tells what it waits for. Interrupting (Ctrl-C) stops following; the
    job goes on. So does a reader of the output that leaves (`| head -1`): the exit code is 141,
    as how the job ends is not known yet. Output above a limit is dropped: standard error says so,
    and the exit code is that of the command all the same.
    """  # noqa: D301 - the mark that keeps lines apart
    given = {
        "argv": list(command),
        "locks": _locks(locks) if locks else None,
        "env": _variables_here(from_here) | _variables(variables) or None,
        "node": node,
        "user": user,
        "timeout": timeout,
        "cwd": _directory(cwd),
        "leave_running": leave_running or None,
    }
    opcode = _without_none({"OP_ID": "OP_EXEC", **given})
    end = _detached if detach else functools.partial(_ended, quiet=quiet)
    return _submitted(call, opcode, end, stdin=stdin, key=key, dry_run=dry_run, **submission)


def _submitted(
    call: Call,
    opcode: dict[str, Any],
    end: Callable[[Client, int], int],
    *,
    stdin: str | None,
    key: str | None,
    dry_run: bool,
    **submission: Any,  # noqa: ANN401 - as `Client.submit`
) -> int:
    """Submit the job, unless it is a dry run, and do what ``end`` does with its id."""
    with call.client() as client:
        opcode |= _standard_input(stdin, client, dry_run=dry_run)
        if dry_run:
            client.submit(opcode, dry_run=True, **submission)
            output.echo("The job would be accepted.")
            return 0
        with repeating.under(key) as used:
            job_id = client.submit(opcode, key=used, **submission)
        return end(client, job_id)


def _detached(_: Client, job_id: int) -> int:
    output.echo(job_id)
    return 0


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _ended(client: Client, job_id: int, *, quiet: bool) -> int:
    """Follow the job to its end; the exit code."""
    watch = f"follow it with `ganger job watch {job_id}`"
    try:
        _follow(client, job_id, quiet=quiet)
    except KeyboardInterrupt:
        output.echo(f"\nganger: job {job_id} goes on; {watch}", err=True)
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # Standard error may be the same pipe.
        with suppress(BrokenPipeError):
            text = f"nobody reads the output any more; job {job_id} {_now(client, job_id)}"
            output.echo(f"ganger: {text}", err=True)
        return UNREAD_EXIT_CODE
    except errors.DaemonUnreachableError:
        text = f"job {job_id} is stored; when a daemon runs again, {watch}"
        output.echo(f"ganger: {text}", err=True)
        raise
    return _exit_code(client, client.job(job_id))


def _now(client: Client, job_id: int) -> str:
    """How the job ended, or how to follow it."""
    with suppress(errors.GangerError):
        [job] = client.jobs([job_id])
        if job.is_final:
            return following.ending(job)
    return f"goes on; follow it with `ganger job watch {job_id}`"


def _follow(client: Client, job_id: int, *, quiet: bool) -> None:
    printer = logs.Printer()
    for part in whys.followed(client, job_id, quiet=quiet):
        if isinstance(part, job_views.OutputChunk):
            printer.show(part)
        elif isinstance(part, job_views.LogLine):
            output.echo(part.text, err=True)
    printer.finish()


def _exit_code(client: Client, job: job_views.JobInfo) -> int:
    assert job.ops is not None
    result = job.ops[0].result
    if job.status is jobs.JobStatus.SUCCESS:
        return int(result.get("exit_code") or 0) if isinstance(result, dict) else 0
    code, hint = 0 if following.has_ended_well(client, job) else 1, ""
    match result:
        case [_, [str(text), dict(details), *_]]:
            if (ended := _code_of(details)) is not None:
                if text != f"command exited with code {ended}":
                    output.echo(f"ganger: job {job.id} {following.ending(job)}", err=True)
                # One that is ended on request may end with 0, and has not succeeded.
                return ended or 1
            code = int(details.get("shell_code") or 1)
            if text.startswith(_NOT_STARTED):
                hint = hints.shell(job.ops[0].input.get("argv") or [])
    output.echo(f"ganger: job {job.id} {following.ending(job)}{hint}", err=True)
    return code


def _code_of(details: dict[str, Any]) -> int | None:
    """The exit code for a command that has run; None: it has not, or nothing is known of it."""
    if details.get("timed_out"):
        return TIMED_OUT_EXIT_CODE
    if isinstance(details.get("signal"), int):
        return _SIGNAL_BASE + int(details["signal"])
    return details["exit_code"] if isinstance(details.get("exit_code"), int) else None


def _locks(given: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    locks: dict[str, dict[str, list[str]]] = {}
    for one in given:
        level, _, name = one.partition("/")
        name, colon, mode = name.partition(":")
        if not (level and name) or (colon and mode not in [*LockMode]):
            form = "expected LEVEL/NAME or LEVEL/NAME:shared"
            raise errors.UsageError(f"--lock: {form}, such as {_such_as(one)}, got {one!r}")
        lock_names.check_one_lock(one, "--lock")
        lock_names.check_lock(level, name, "--lock")
        locks.setdefault(level, {}).setdefault(mode or LockMode.EXCLUSIVE, []).append(name)
    return locks


def _such_as(text: str) -> str:
    """A lock that may be meant by a text without a level."""
    name, _, mode = text.partition(":")
    is_name = name not in {"", "*", *LockLevel} and "/" not in name
    return f"node/{text}" if is_name and (not mode or mode in [*LockMode]) else "node/n7"


def _variables(given: Sequence[str]) -> dict[str, str]:
    variables = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise errors.UsageError(f"--env: expected NAME=VALUE, got {one!r}")
        variables[name] = value
    return variables


def _variables_here(given: Sequence[str]) -> dict[str, str]:
    variables = {}
    for name in (name.strip() for names in given for name in names.split(",")):
        if not name:
            raise errors.UsageError("--env-from-here: expected names, separated by commas")
        if name not in os.environ:
            also = "; --env sets a value" if "=" in name else ""
            raise errors.UsageError(f"--env-from-here: no variable {name!r} is set here{also}")
        variables[name] = value = os.environ[name]
        try:
            value.encode()
        except UnicodeEncodeError as error:
            text = f"--env-from-here: the value of {name} is not UTF-8 text"
            raise errors.UsageError(text) from error
    return variables


def _directory(given: str | None) -> str | None:
    """The directory, absolute: the daemon knows no other."""
    if given == "":
        raise errors.UsageError("--cwd: is empty")
    return None if given is None else os.fspath(Path(given).absolute())


def _standard_input(given: str | None, client: Client, *, dry_run: bool) -> dict[str, str]:
    """The parameter that gives the command its standard input; what is large is sent by now."""
    if given is None:
        return {}
    if given != "-":
        return _inline_input(given.encode())
    stream = reading.standard_input()
    first = stream.read(settings.STDIN_PART_BYTES)
    rest = iter(lambda: stream.read(settings.STDIN_PART_BYTES), b"")
    second = next(rest, b"") if len(first) == settings.STDIN_PART_BYTES else b""
    if dry_run or not second:
        return _inline_input(first)
    return {"stdin_file": client.store_input(itertools.chain((first, second), rest))}


def _inline_input(data: bytes) -> dict[str, str]:
    try:
        return {"stdin": data.decode()}
    except UnicodeDecodeError:
        return {"stdin_base64": base64.b64encode(data).decode()}
