"""A hold of a lock or a job: a filter rule with a name, which comes before the others."""

from __future__ import annotations

import getpass
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from ..storage import errors
from ..storage.filters import lock_predicate, rules
from ..storage.opcodes.declarations import WHOLE_LEVEL
from . import output
from .draining import Draining, HeldLock
from .filter import reason_text
from .held import Locks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow
    from .held import Target


class Wish(NamedTuple):
    """What a hold is to be. ``until``: in seconds since the epoch; ``exceptions``: reasons."""

    until: float | None = None
    reason: str = ""
    exceptions: Sequence[str] = ()


class Hold:
    """The hold of locks: of each a rule of its own, or the one that holds it already."""

    def __init__(self, client: Client, locks: Locks, wish: Wish, *, is_shown: bool) -> None:
        self._client = client
        self._locks = locks
        self._wish = wish
        self._is_shown = is_shown
        # Named here: whoever is interrupted while they are stored can delete them.
        self._own = {one: str(uuid4()) for one in locks.targets}
        self._draining: Draining | None = None

    def begin(self, *, may_join: bool) -> None:
        """Let no job begin there from now on.

        If a lock is held already: go on with that rule, or raise `JobStateError`. All are held, or
        none by this.
        """
        held: list[HeldLock] = []
        for target in self._locks.targets:
            try:
                held.append(self._begun(target, may_join=may_join))
            except errors.GangerError:
                for one in self._locks.targets[: len(held)]:
                    self._end(one)
                raise
        self._draining = Draining(self._client, self._locks, held, is_shown=self._is_shown)

    def _begun(self, target: Target, *, may_join: bool) -> HeldLock:
        rule = _free_name(self._client, target)
        if rule is not None:
            touching = self._joined(target, rule, may_join=may_join)
            has_exceptions = len(rule.predicates) > 1
            return HeldLock(target.text, touching, rule.uuid, has_exceptions, rule.valid_until)
        touching = _touching(self._client, target.text)
        named = [["=", "reason", each] for each in self._wish.exceptions]
        predicates = [["lock", touching], *([["!", ["reason", ["|", *named]]]] if named else [])]
        own = self._own[target]
        _add(self._client, target, predicates, self._wish, uuid=own)
        return HeldLock(target.text, touching, own, bool(named), self._wish.until)

    def _joined(self, target: Target, rule: FilterRow, *, may_join: bool) -> list[Any]:
        """The expression of the rule that holds it already, on locks."""
        touching = _touched_by(rule)
        if touching is None or not may_join:
            text = f"{target.text} is held already{about(rule)}"
            raise errors.JobStateError(f"{text}; {target.end}")
        given = {
            "--reason": self._wish.reason not in ("", reason_text(rule)),
            "--until": self._wish.until is not None,
            "--except-reason": bool(self._wish.exceptions),
        }
        unused = ", ".join(name for name, is_given in given.items() if is_given)
        more = f"; it stays as it is, without {unused} of this command" if unused else ""
        text = f"{target.text} is held already{about(rule)}; that hold goes on{more}"
        output.echo(f"ganger: {text}", err=True)
        return touching

    def await_end(self, seconds: float | None = None) -> list[str]:
        """Wait until none runs there; the jobs that still do after ``seconds``.

        `JobStateError` if the hold ends before.
        """
        assert self._draining is not None, "it has begun"
        return self._draining.await_end(seconds)

    def end(self) -> None:
        """Let jobs begin there again."""
        for place, target in enumerate(self._locks.targets):
            try:
                self._end(target)
            except BaseException:
                left = Locks(self._locks.targets[place:])
                output.echo(f"ganger: {left.text} may still be held; {left.end}", err=True)
                raise

    def _end(self, target: Target) -> None:
        try:
            self._client.delete_filter(self._own[target])
        except errors.UnknownFilterError:
            # It was not stored, or somebody has released it meanwhile.
            return
        # A reader that has left must not keep the others held.
        with suppress(OSError):
            output.echo(f"ganger: {target.text} is released", err=True)


def hold_job(client: Client, target: Target, wish: Wish) -> str:
    """Hold one job; a sentence about it. `JobStateError` if it has ended, or is held already."""
    assert target.job_id is not None
    [job] = client.jobs([target.job_id])
    if job.is_final:
        raise errors.JobStateError(f"job {job.id} has ended: {job.status}")
    rule = _free_name(client, target)
    if rule is not None:
        raise errors.JobStateError(f"job {job.id} is held already{about(rule)}; {target.end}")
    is_it = ["jobid", ["=", "id", target.job_id]]
    _add(client, target, [is_it], wish, uuid=str(uuid4()))
    [job] = client.jobs([target.job_id])
    if job.is_final:
        client.delete_filter(target.rule_name)
        raise errors.JobStateError(f"job {job.id} has ended meanwhile: {job.status}")
    what = "runs, and is held before its next opcode" if job.status == "running" else "is held"
    return f"job {job.id} {what}; {target.end}"


def _free_name(client: Client, target: Target) -> FilterRow | None:
    """The rule that holds it already. One that is over is deleted: its name is needed."""
    old = next((rule for rule in client.filters() if rule.name == target.rule_name), None)
    if old is None or old.state != "expired":
        return old
    with suppress(errors.UnknownFilterError):
        client.delete_filter(old.uuid)
    return None


def _add(client: Client, target: Target, predicates: list[Any], wish: Wish, *, uuid: str) -> None:
    client.add_filter(
        uuid=uuid,
        name=target.rule_name,
        first=True,
        predicates=predicates,
        action="PAUSE",
        reason=[(f"{rules.USER_SOURCE}{_user()}", wish.reason, time.time_ns())],
        valid_until=wish.until,
    )


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


def _touched_by(rule: FilterRow) -> list[Any] | None:
    """The expression on locks of a hold; None: the rule is none, whatever its name says."""
    first = rule.predicates[0] if rule.predicates else [""]
    is_hold = rule.action == "PAUSE" and rule.state == "in force" and first[0] == "lock"
    return list(first[1]) if is_hold else None


def about(rule: FilterRow) -> str:
    """Who holds it, why and until when, in brackets."""
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
