"""``ganger hold`` and ``ganger release``: no job begins where somebody works.

Progress goes to standard error: standard output is the command's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..storage import errors
from . import choices, completing, held, output, rule_options
from .call import INTERRUPTED_EXIT_CODE
from .draining import running
from .execute import TIMED_OUT_EXIT_CODE
from .held import Locks
from .holding import Hold, Wish, hold_job
from .in_place import SIGNAL_BASE, EndedError, InPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from .call import Call
    from .held import Target


@click.command(cls=held.HoldCommand, short_help="Let no job begin on a host, or hold a job.")
@click.argument("targets", nargs=-1, required=True, metavar=held.LOCK_OR_JOB, type=held.LockOrJob())
@click.option(
    "--except-reason",
    "exceptions",
    type=choices.Text(),
    multiple=True,
    metavar="R",
    help="Do not hold jobs that were submitted with this reason. May be repeated.",
)
@click.option(
    "--until",
    type=rule_options.Moment(),
    metavar="TIME",
    help="The hold ends by itself then: +2h, 2026-11-21T18:00, or seconds since the epoch.",
)
@click.option("--drain", is_flag=True, help="Show which jobs still run there, and how each ends.")
@click.option(
    "--no-wait", is_flag=True, help="Do not wait: say what still runs there. It stays held."
)
@click.option(
    "--timeout",
    type=choices.Seconds(),
    metavar="SPAN",
    help="Wait no longer than this for what runs there, such as 10m. Then it "
    "stays held, or is released if there is a COMMAND, which does not run (exit code 124).",
)
@click.option(
    "--reason", type=choices.Text(), default="", metavar="TEXT", help="Why; `job why` shows it."
)
@click.pass_obj
def hold(
    call: Call,
    *,
    targets: Sequence[Target],
    command: Sequence[str],
    exceptions: Sequence[str],
    until: float | None,
    drain: bool,
    no_wait: bool,
    timeout: float | None,
    reason: str,
) -> int:
    """Let no job begin that touches a LOCK, wait until none runs there, and run COMMAND.

    \b
    ganger hold node/n7 --reason 'new memory' --until +2h
    ganger hold node/n7 node/n8 -- ssh n7 reboot
    ganger hold 4711
    ganger hold backup

    A job touches node/n7 if it takes that lock, shared or exclusively, or every node lock (*), or
    if it may take any; one with several opcodes pauses before its next one. The hold ends with
    COMMAND, whose exit code is returned, also after Ctrl-C. Without COMMAND it stays until
    `ganger release`, also after Ctrl-C: the same command goes on waiting then, for the same hold.
    A JOB that runs is held before its next opcode; nothing is waited for.
    """  # noqa: D301 - the mark that keeps lines apart
    locks = Locks(list(dict.fromkeys(targets)))
    target = _job(locks)
    _check(target, command, is_waited_for=not no_wait, timeout=timeout)
    if target is not None and (exceptions or drain):
        raise errors.UsageError("--except-reason and --drain go with a lock, not a job")
    if until is not None and until <= time.time():
        raise errors.UsageError(f"--until: {output.absolute(until)} is over")
    for each in exceptions:
        rule_options.check_named(each, "--except-reason")
    wish = Wish(until, reason, exceptions)
    with call.client() as client:
        if target is not None:
            output.echo(hold_job(client, target, wish))
            return 0
        holding = Hold(client, locks, wish, is_shown=drain)
        if command:
            return _work(holding, command, timeout)
        return _stay(holding, locks, 0 if no_wait else timeout, is_asked_to_wait=not no_wait)


def _job(locks: Locks) -> Target | None:
    """The job that is to be held; None: locks are."""
    jobs = [one for one in locks.targets if one.job_id is not None]
    if jobs and len(locks.targets) > 1:
        text = f"job {jobs[0].text} is held by a command of its own: several locks go together"
        raise errors.UsageError(f"{text}, and a COMMAND stands behind --")
    return jobs[0] if jobs else None


def _check(
    target: Target | None, command: Sequence[str], *, is_waited_for: bool, timeout: float | None
) -> None:
    if target is not None and (command or timeout is not None or not is_waited_for):
        text = "COMMAND, --timeout and --no-wait go with a lock, not a job: it is not waited for"
        raise errors.UsageError(text)
    if not is_waited_for and (command or timeout is not None):
        raise errors.UsageError("--no-wait goes without COMMAND and --timeout")


@click.command(short_help="End a hold.")
@click.argument(
    "targets",
    nargs=-1,
    required=True,
    metavar="LOCK|JOB...",
    type=choices.Text(),
    shell_complete=completing.holds,
)
@click.pass_obj
@click.pass_context
def release(ctx: click.Context, call: Call, targets: Sequence[str]) -> int:
    """End the holds of these locks or jobs: what they held may start.

    A name stands for the held jobs of that name, or of the plan with that name.
    """
    with call.client() as client:
        wanted, code = _wanted(client, ctx, targets)
        for one in wanted:
            try:
                client.delete_filter(one.rule_name)
            except errors.UnknownFilterError:
                output.echo(f"ganger: {one.subject} is not held{_others(client)}", err=True)
                code = 1
            else:
                output.echo(f"{one.subject} is released")
    return code


def _wanted(client: Client, ctx: click.Context, texts: Sequence[str]) -> tuple[list[Target], int]:
    """What is to be released, and 0; 1 if there are no such jobs for some of the texts."""
    found: list[Target] = []
    code = 0
    for text in texts:
        try:
            found += held.targets(client, text, ctx)
        except errors.UnknownJobError as error:
            output.echo(f"ganger: {error.text}", err=True)
            code = 1
    return found, code


def _others(client: Client) -> str:
    found = held.holds(client)
    return f"; held are {', '.join(found)}" if found else ""


def _stay(holding: Hold, locks: Locks, seconds: float | None, *, is_asked_to_wait: bool) -> int:
    """Hold it, wait until nothing runs there, and leave it held."""
    holding.begin(may_join=True)
    try:
        left = holding.await_end(seconds)
    except KeyboardInterrupt:
        text = f"jobs still run on {locks.text}, which {locks.stay} held; {locks.end}"
        output.echo(f"\nganger: {text}", err=True)
        return INTERRUPTED_EXIT_CODE
    if not left:
        output.echo(f"{locks.text} {locks.be} held, and nothing runs there; {locks.end}")
        return 0
    if not is_asked_to_wait:
        output.echo(f"{locks.text} {locks.be} held; {running(left)}; {locks.end}")
        return 0
    stay = f"{locks.text} {locks.stay} held; {locks.end}"
    output.echo(f"ganger: after {output.span(seconds)}, {running(left)}; {stay}", err=True)
    return TIMED_OUT_EXIT_CODE


def _work(holding: Hold, command: Sequence[str], seconds: float | None) -> int:
    """Hold it, run the command when nothing runs there, and release it; the exit code."""
    try:
        with InPlace() as place:
            try:
                # A hold that somebody else ends would not last as long as the command.
                holding.begin(may_join=False)
                left = holding.await_end(seconds)
                if not left:
                    return place.run(command)
            except EndedError as error:
                return SIGNAL_BASE + error.number
        text = f"after {output.span(seconds)}, {running(left)}; {command[0]} has not run"
        output.echo(f"ganger: {text}", err=True)
        return TIMED_OUT_EXIT_CODE
    finally:
        holding.end()
