"""What ``ganger hold`` and ``ganger release`` name: a lock with all that touches it, or a job."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from ..storage import errors
from ..storage.filters import rules
from ..storage.jobs import origins
from ..storage.locks.locks import LockLevel
from . import choices, completing, rule_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.shell_completion import CompletionItem

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow

LOCK_OR_JOB = "LOCK|JOB"


class Target(NamedTuple):
    """What is held. ``text``: the lock, or the id of the job."""

    text: str
    job_id: int | None = None

    @property
    def rule_name(self) -> str:
        """The name of the rule that holds it."""
        return f"{rules.HOLD_PREFIX}{self.text}"

    @property
    def end(self) -> str:
        """What a user types to end the hold, in a sentence."""
        return f"`ganger release {shlex.quote(self.text)}` ends that"


class LockOrJob(click.ParamType[Target]):
    """A lock with its level (``node/n7``), or what stands for one job (`choices.JobId`).

    A job whose name is that of a lock is named by its id.
    """

    name = "lock or job"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Target:
        if isinstance(value, Target):
            return value
        text = choices.Text().convert(value, param, ctx)
        if (lock := _lock(text)) is not None:
            return lock
        try:
            number = choices.JobId().convert(text, param, ctx)
        except errors.UnknownJobError as error:
            raise errors.UnknownJobError(_also_no_lock(text, error)) from error
        return Target(str(number), number)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found = completing.locks(ctx, param, incomplete)
        return found if "/" in incomplete else [*found, *completing.jobs(ctx, incomplete)]


_LEVELS = frozenset(map(str, LockLevel))


def _lock(text: str) -> Target | None:
    """The lock that this names; None: it can only be a job."""
    level, slash, _ = text.partition("/")
    if text and not (slash and level in _LEVELS):
        return None
    return Target(rule_options.one_lock(text, LOCK_OR_JOB))


def _also_no_lock(text: str, error: errors.UnknownJobError) -> str:
    if text == origins.LAST:
        return error.text
    levels = ", ".join(one for one in LockLevel if one is not LockLevel.CONFIG)
    return f"{error.text}, and a lock is LEVEL/NAME, such as node/n7; the levels are {levels}"


def holds(client: Client) -> dict[str, FilterRow]:
    """The rules that are holds and in force or to come, by what they hold."""
    return {
        rule.name.removeprefix(rules.HOLD_PREFIX): rule
        for rule in client.filters()
        if rule.name.startswith(rules.HOLD_PREFIX) and rule.state != "expired"
    }


def targets(client: Client, text: str, ctx: click.Context) -> list[Target]:
    """What is to be released: a name is that of held jobs first, which need not be the newest.

    Raises `UnknownJobError` if there is no such job.
    """
    is_job = _lock(text) is None and origins.is_name(text)
    named = sorted(_held_jobs(client, text), key=lambda one: one.job_id or 0) if is_job else []
    return named or [LockOrJob().convert(text, None, ctx)]


def _held_jobs(client: Client, name: str) -> Iterator[Target]:
    """The held jobs that have this name, or are of the plan with this name."""
    for text in holds(client):
        if not (text.isdecimal() and text.isascii()):
            continue
        # It may have been purged.
        with suppress(errors.UnknownJobError):
            [job] = client.jobs([int(text)])
            if name in (job.name, job.plan):
                yield Target(text, job.id)
