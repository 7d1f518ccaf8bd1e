"""What ``ganger hold`` and ``ganger release`` name: a lock with all that touches it, or a job."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from ..storage import errors, wording
from ..storage.filters import rules
from ..storage.jobs import origins
from ..storage.locks.locks import LockLevel
from . import choices, completing, rule_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from click.shell_completion import CompletionItem

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow

LOCK_OR_JOB, LOCKS_OR_JOB = "LOCK|JOB", "LOCK...|JOB"


class Target(NamedTuple):
    """What is held. ``text``: the lock, or the id of the job."""

    text: str
    job_id: int | None = None

    @property
    def subject(self) -> str:
        """What a sentence calls it."""
        return self.text if self.job_id is None else f"job {self.text}"

    @property
    def rule_name(self) -> str:
        """The name of the rule that holds it."""
        return f"{rules.HOLD_PREFIX}{self.text}"

    @property
    def end(self) -> str:
        """What a user types to end the hold, in a sentence."""
        return f"`ganger release {shlex.quote(self.text)}` ends that"


class Locks(NamedTuple):
    """The locks that are held and released together."""

    targets: Sequence[Target]

    @property
    def text(self) -> str:
        """All of them, in a sentence."""
        *others, last = (one.text for one in self.targets)
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def be(self) -> str:
        """The verb that goes with them."""
        return "is" if len(self.targets) == 1 else "are"

    @property
    def stay(self) -> str:
        """The verb that goes with them."""
        return "stays" if len(self.targets) == 1 else "stay"

    @property
    def end(self) -> str:
        """What a user types to end the hold, in a sentence."""
        return f"`ganger release {shlex.join(one.text for one in self.targets)}` ends that"


class HoldCommand(click.Command):
    """A command in which all that stands behind ``--`` is another command."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """As of each command."""
        pieces = super().collect_usage_pieces(ctx)
        several = [LOCKS_OR_JOB if one == LOCK_OR_JOB else one for one in pieces]
        return [*several, "[-- COMMAND...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of each command; raises `UsageError` for a COMMAND without ``--`` before it."""
        mark = args.index("--") if "--" in args else len(args)
        command = [choices.Text().convert(word, None, ctx) for word in args[mark + 1 :]]
        if mark + 1 == len(args):
            raise click.UsageError("COMMAND is missing behind --", ctx)
        words = [word for word in args[:mark] if not word.startswith("-")]
        try:
            left = super().parse_args(ctx, args[:mark])
        except click.NoSuchOption as error:
            if mark == len(args) and len(words) > 1:
                first, second, *_ = map(shlex.quote, words)
                behind = _BEHIND.format(f"{first} -- {second}")
                raise click.UsageError(f"{error.message.rstrip('.')}{behind}", ctx) from error
            raise
        ctx.params["command"] = command
        return left


_BEHIND = "; a COMMAND stands behind --, as in `ganger hold {}`"


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
            if ctx is not None:
                ctx.meta.setdefault(_FIRST, text)
            return lock
        try:
            number = choices.JobId().convert(text, param, ctx)
        except errors.UnknownJobError as error:
            first = None if ctx is None else ctx.meta.get(_FIRST)
            if first is not None:
                behind = _BEHIND.format(f"{shlex.quote(first)} -- {shlex.quote(text)}")
                raise click.UsageError(f"{text!r} is no lock and no job{behind}", ctx) from error
            raise errors.UnknownJobError(_also_no_lock(text, error)) from error
        return Target(str(number), number)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found = completing.locks(ctx, param, incomplete)
        return found if "/" in incomplete else [*found, *completing.jobs(ctx, incomplete)]


_FIRST = "ganger.first_lock"
"""Key of a context: the lock that was named first. A command may follow it."""

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
    known = [str(one) for one in LockLevel if one is not LockLevel.CONFIG]
    level, slash, name = text.partition("/")
    meant = wording.likeness(level.lower(), known, f"/{name}") if slash else ""
    form = f"a lock is LEVEL/NAME, such as node/n7; the levels are {', '.join(known)}"
    return f"{error.text}{meant}, and {form}"


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
