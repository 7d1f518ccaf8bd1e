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

from ..storage import errors, settings, wording
from ..storage.jobs import job_views, jobs
from ..storage.locks.locks import LockLevel, LockMode
from ..storage.nodes import choosing
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
    from collections.abc import Callable, Iterable, Sequence

    from ..transport.client.client import Client
    from .call import Call

TIMED_OUT_EXIT_CODE = 124
_SIGNAL_BASE = 128


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
    "nodes",
    type=choices.Text(),
    multiple=True,
    metavar="NODE|tag:TAG",
    help="Run it on this node, which the job locks shared unless --lock says more; or on all nodes "
    "with this tag. Repeated, or with commas: on each, in a job of its own.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    metavar="N",
    help="With several nodes: run on N at a time; on all without it.",
)
@click.option(
    "--stop-on-failure",
    is_flag=True,
    help="With several nodes: begin on no further one when it has failed on one. One node after "
    "the other, unless --parallel says more.",
)
@click.option(
    "--as-user",
    "user",
    type=choices.Text(),
    metavar="USER",
    help="Run it as this user; a host says which users it allows (`ganger node check`).",
)
@click.option(
    "--lost-after",
    type=choices.Seconds(least=0.001),
    metavar="TIME",
    help="Wait no longer than this for a node that is silent, such as 10m. Its locks stay.",
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
    nodes: Sequence[str],
    parallel: int | None,
    stop_on_failure: bool,
    cwd: str | None,
    variables: Sequence[str],
    from_here: Sequence[str],
    leave_running: bool,
    detach: bool,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - parameters of the opcode, and what `Client.submit` takes
) -> int:
    """Run COMMAND as a job, show its output, and end with its exit code.

    \b
    ganger exec -- sh -c 'echo hello; exit 3'
    ganger exec --lock node/n1 --timeout 5m -- /usr/local/bin/upgrade n1
    ganger exec -d --name backup --cwd . -- make backup
    ganger exec --on web1 -- uptime
    ganger exec --on tag:web --parallel 3 -- systemctl restart nginx

    The command runs as the daemon's user, in a clean environment. If the job is silent for a
    second, standard error tells what it waits for. Interrupting (Ctrl-C) stops following; the
    job goes on. So does a reader of the output that leaves (`| head -1`): the exit code is 141,
    as how the job ends is not known yet. Output above a limit is dropped: standard error says so,
    and the exit code is that of the command all the same.

    On several nodes there is a job for each, together one plan, and a line for each as it ends,
    with the last line of its output. The last lines of those that fail follow on standard error.
    The exit code is 0 if all succeed, and that of the command if it is the same wherever it fails.
    """  # noqa: D301 - the mark that keeps lines apart
    given = {
        "argv": list(command),
        "locks": _locks(locks) if locks else None,
        "env": _variables_here(from_here) | _variables(variables) or None,
        "cwd": _directory(cwd),
        "leave_running": leave_running or None,
        **{name: options.pop(name) for name in ("user", "lost_after", "timeout")},
    }
    opcode = _without_none({"OP_ID": "OP_EXEC", **given})
    spread = parallel, stop_on_failure
    return _on_nodes(call, opcode, nodes, spread, detach=detach, quiet=quiet, **options)


def _on_nodes(
    call: Call,
    opcode: dict[str, Any],
    nodes: Sequence[str],
    spread: tuple[int | None, bool],
    *,
    detach: bool,
    quiet: bool,
    **options: Any,  # noqa: ANN401 - as `_submitted`
) -> int:
    """Run it here, on the node, or on each of several; the exit code."""
    given, nodes = nodes, choosing.words_of(nodes)
    if given and not nodes:
        raise errors.UsageError(f"--on: expected a node, or tag:TAG, got {given[0]!r}")
    if len(nodes) > 1 or any(map(choosing.is_group, nodes)):
        return _on_several(call, opcode, nodes, spread, detach=detach, quiet=quiet, **options)
    if any(spread):
        raise errors.UsageError("--parallel and --stop-on-failure go with --on for several nodes")
    if nodes:
        opcode["node"] = nodes[0]
    end = functools.partial(finish, detach=detach, quiet=quiet)
    return _submitted(call, opcode, end, **options)


def _on_several(
    call: Call,
    opcode: dict[str, Any],
    words: Sequence[str],
    spread: tuple[int | None, bool],
    *,
    stdin: str | None,
    key: str | None,
    name: str | None,
    depends: Sequence[tuple[int, list[str]]],
    dry_run: bool,
    **options: Any,  # noqa: ANN401 - as `Client.submit_many`
) -> int:
    """Submit a job for each of the nodes, and follow them; the exit code."""
    from . import fan_out  # noqa: PLC0415 - most commands run on one machine

    plan = fan_out.plan_name(name, opcode["argv"], words)
    with call.client() as client:
        nodes = fan_out.nodes_of(client, words)
        given, rest = _first_input(stdin, dry_run=dry_run)
        label = f"{plan} {key or os.urandom(8).hex()}"
        planned = fan_out.plan_of([opcode | given], nodes, fan_out.Spread(*spread), depends, label)
        if rest is not None:
            fan_out.send_input(client, planned, rest)
        return fan_out.run(client, planned, plan=plan, key=key, dry_run=dry_run, **options)


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


def finish(client: Client, job_id: int, *, detach: bool, quiet: bool) -> int:
    """Follow the job to its end, or only print its id; the exit code."""
    if not detach:
        return _ended(client, job_id, quiet=quiet)
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
            if wording.NOT_STARTED in text:
                hint = hints.shell(job.ops[0].input.get("argv") or [])
    output.echo(f"ganger: job {job.id} {following.ending(job)}{hint}", err=True)
    return code


def exit_code_of(job: job_views.JobInfo) -> int:
    """The exit code for a job that has run one command and has failed; 0: nothing is known of it.

    One that was ended on request may have ended with 0.
    """
    assert job.ops is not None
    match job.ops[0].result:
        case [_, [str(), dict(details), *_]]:
            return _code_of(details) or int(details.get("shell_code") or 0)
    return 0


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
    found, large = _first_input(given, dry_run=dry_run)
    return found if large is None else {"stdin_file": client.store_input(large)}


def _first_input(
    given: str | None, *, dry_run: bool
) -> tuple[dict[str, str], Iterable[bytes] | None]:
    """The parameter for a standard input that is small; what is large, in parts, instead."""
    if given is None:
        return {}, None
    if given != "-":
        return _inline_input(given.encode()), None
    stream = reading.standard_input()
    first = stream.read(settings.STDIN_PART_BYTES)
    rest = iter(lambda: stream.read(settings.STDIN_PART_BYTES), b"")
    second = next(rest, b"") if len(first) == settings.STDIN_PART_BYTES else b""
    if dry_run or not second:
        return _inline_input(first), None
    return {}, itertools.chain((first, second), rest)


def _inline_input(data: bytes) -> dict[str, str]:
    try:
        return {"stdin": data.decode()}
    except UnicodeDecodeError:
        return {"stdin_base64": base64.b64encode(data).decode()}
