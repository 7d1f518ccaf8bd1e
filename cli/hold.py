"""``ganger hold`` and ``ganger release``: no job begins where somebody works.

A hold is a filter rule with a name. It pauses each job that touches the lock, and comes before the
other rules of its priority. Progress goes to standard error: standard output is the command's.
"""

from __future__ import annotations

import functools
import getpass
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from ..storage import errors
from ..storage.filters import lock_predicate, rules
from ..storage.opcodes.declarations import WHOLE_LEVEL
from . import choices, completing, held, output, rule_options
from .call import INTERRUPTED_EXIT_CODE
from .draining import Draining
from .filter import reason_text
from .in_place import SIGNAL_BASE, EndedError, InPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow
    from .call import Call
    from .held import Target


@click.command(short_help="Let no job begin on a host, or hold one job.")
@click.argument("target", metavar=held.LOCK_OR_JOB, type=held.LockOrJob())
@click.argument("command", nargs=-1, type=choices.Text())
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
    "--reason", type=choices.Text(), default="", metavar="TEXT", help="Why; `job why` shows it."
)
@click.pass_obj
def hold(
    call: Call,
    *,
    target: Target,
    command: Sequence[str],
    exceptions: Sequence[str],
    until: float | None,
    drain: bool,
    reason: str,
) -> int:
    """Let no job begin that touches LOCK, wait until none runs there, and run COMMAND.

    \b
    ganger hold node/n7 --reason 'new memory' --until +2h
    ganger hold node/n7 -- ssh n7 reboot
    ganger hold 4711
    ganger hold backup

    A job touches node/n7 if it takes that lock, shared or exclusively, or every node lock (*), or
    if it may take any; one with several opcodes pauses before its next one. The hold ends with
    COMMAND, whose exit code is returned, also after Ctrl-C. Without COMMAND it stays until
    `ganger release`. A JOB that runs is held before its next opcode.
    """  # noqa: D301 - the mark that keeps lines apart
    if target.job_id is not None and (command or exceptions or drain):
        raise errors.UsageError("COMMAND, --except-reason and --drain go with a lock, not a job")
    if until is not None and until <= time.time():
        raise errors.UsageError(f"--until: {output.absolute(until)} is over")
    for each in exceptions:
        rule_options.check_named(each, "--except-reason")
    with call.client() as client:
        if target.job_id is not None:
            return _hold_job(client, target, until, reason)
        holding = _Hold(client, target, until=until)
        begin = functools.partial(holding.begin, reason, exceptions, is_shown=drain)
        return _work(holding, begin, command) if command else _stay(target, begin)


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
                output.echo(f"ganger: {one.text} is not held{_others(client)}", err=True)
                code = 1
            else:
                output.echo(f"{one.text} is released")
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


def _touching(client: Client, lock: str) -> list[Any]:
    """The expression for jobs that touch this lock, under its object's name and its UUID.

    Commands declare whatever they are told to; Ganeti's opcodes lock nodes, groups and networks by
    UUID.
    """
    level, _, name = lock.partition("/")
    names = {name}
    if (kind := _KINDS.get(level)) and name != WHOLE_LEVEL:
        with suppress(errors.UnknownObjectError):
            [found] = client.objects(kind, name)
            names |= {found["uuid"], found["name"]}
    touching = [["=", lock_predicate.TOUCHES, f"{level}/{one}"] for one in sorted(names)]
    return touching[0] if len(touching) == 1 else ["|", *touching]


_KINDS = {"node": "nodes", "node-res": "nodes", "nodegroup": "nodegroups", "network": "networks"}


def _store(
    client: Client,
    wanted: Target,
    predicates: list[Any],
    *,
    uuid: str,
    until: float | None,
    reason: str,
) -> None:
    """Store the rule under this UUID. `JobStateError` if the same is held already."""
    old = next((rule for rule in client.filters() if rule.name == wanted.rule_name), None)
    if old is not None:
        if old.state != "expired":
            text = f"{wanted.text} is held already{_about(old)}"
            raise errors.JobStateError(f"{text}; {wanted.end}")
        # Its name is needed.
        with suppress(errors.UnknownFilterError):
            client.delete_filter(old.uuid)
    client.add_filter(
        uuid=uuid,
        name=wanted.rule_name,
        first=True,
        predicates=predicates,
        action="PAUSE",
        reason=[(f"{rules.USER_SOURCE}{_user()}", reason, time.time_ns())],
        valid_until=until,
    )


def _about(rule: FilterRow) -> str:
    who = [str(source).removeprefix(rules.USER_SOURCE) for source, _, _ in rule.reason_trail[:1]]
    why = reason_text(rule)
    until = "" if rule.valid_until is None else f"until {output.absolute(rule.valid_until)}"
    parts = [part for part in (": ".join(filter(None, [*who, why])), until) if part]
    return f" ({', '.join(parts)})" if parts else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _hold_job(client: Client, wanted: Target, until: float | None, reason: str) -> int:
    assert wanted.job_id is not None
    [job] = client.jobs([wanted.job_id])
    if job.is_final:
        raise errors.JobStateError(f"job {job.id} has ended: {job.status}")
    is_it = ["jobid", ["=", "id", wanted.job_id]]
    _store(client, wanted, [is_it], uuid=str(uuid4()), until=until, reason=reason)
    [job] = client.jobs([wanted.job_id])
    if job.is_final:
        client.delete_filter(wanted.rule_name)
        raise errors.JobStateError(f"job {job.id} has ended meanwhile: {job.status}")
    what = "runs, and is held before its next opcode" if job.status == "running" else "is held"
    output.echo(f"job {job.id} {what}; {wanted.end}")
    return 0


class _Hold:
    """The hold of a lock."""

    def __init__(self, client: Client, wanted: Target, *, until: float | None) -> None:
        self._client = client
        self._wanted = wanted
        self._until = until
        # Named here: whoever is interrupted while it is stored can delete it.
        self._rule = str(uuid4())

    def begin(self, reason: str, exceptions: Sequence[str], *, is_shown: bool) -> None:
        """Let no job begin there from now on, and wait until none runs there."""
        named = [["=", "reason", each] for each in exceptions]
        touching = _touching(self._client, self._wanted.text)
        predicates = [["lock", touching], *([["!", ["reason", ["|", *named]]]] if named else [])]
        _store(
            self._client,
            self._wanted,
            predicates,
            uuid=self._rule,
            until=self._until,
            reason=reason,
        )
        Draining(
            self._client,
            self._wanted.text,
            touching,
            rule=self._rule if exceptions else None,
            until=self._until,
            is_shown=is_shown,
        ).await_end()

    def end(self) -> None:
        """Let jobs begin there again."""
        try:
            self._client.delete_filter(self._rule)
        except errors.UnknownFilterError:
            # It was not stored, or somebody has released it meanwhile.
            return
        except BaseException:
            text = f"{self._wanted.text} may still be held; {self._wanted.end}"
            output.echo(f"ganger: {text}", err=True)
            raise
        output.echo(f"ganger: {self._wanted.text} is released", err=True)


def _stay(wanted: Target, begin: Callable[[], None]) -> int:
    """Hold it, wait until nothing runs there, and leave it held."""
    try:
        begin()
    except KeyboardInterrupt:
        output.echo(
            f"\nganger: jobs still run on {wanted.text}, which stays held; {wanted.end}", err=True
        )
        return INTERRUPTED_EXIT_CODE
    output.echo(f"{wanted.text} is held, and nothing runs there; {wanted.end}")
    return 0


def _work(holding: _Hold, begin: Callable[[], None], command: Sequence[str]) -> int:
    """Hold it, run the command when nothing runs there, and release it; the exit code."""
    try:
        with InPlace() as place:
            try:
                begin()
                return place.run(command)
            except EndedError as error:
                return SIGNAL_BASE + error.number
    finally:
        holding.end()
