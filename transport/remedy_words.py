"""Puts remedies and lists of jobs into words. Pure.

The daemon names no command: its client may be the command line, a program, or an HTTP server. Each
hands in its own `Commands`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..storage.locks.locks import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .messages import HoldingBack, Remedy

_JOBS_SHOWN_MAX = 10


class Commands(NamedTuple):
    """What a user types to carry out the steps of a remedy: templates that `remedy` fills in."""

    delete_rule: Callable[[str], str] = "filter rule {} is deleted".format
    """Of the name or UUID of a rule."""

    give_space: str = ""
    set_slots: str = ""
    set_priority: str = ""


def remedy(wanted: Remedy, job_id: int, commands: Commands = Commands()) -> str:  # noqa: B008
    """The change that lets job ``job_id`` go on, as a condition; "" if there is none.

    >>> from ganger.transport.messages import Remedy
    >>> remedy(Remedy(locks=[1], depends=[2]), 7)
    'job 2 ends as it must; and job 1 ends, or gives the lock back'
    """
    return "; and ".join(steps(wanted, job_id, commands))


def steps(wanted: Remedy, job_id: int, commands: Commands = Commands()) -> list[str]:  # noqa: B008
    """The conditions that must all be met; a condition may name alternatives."""
    parts = [f"the disk takes writes again{commands.give_space}"] if wanted.is_disk else []
    if wanted.depends:
        ends = "ends as it" if len(wanted.depends) == 1 else "end as they"
        parts.append(f"{jobs(wanted.depends)} {ends} must")
    if wanted.locks:
        ends = "ends, or gives the lock" if len(wanted.locks) == 1 else "end, or give the locks"
        parts.append(f"{jobs(wanted.locks)} {ends} back")
    if wanted.rules:
        parts.append(_rules(wanted, commands))
    parts += [_one_ends(alternatives) for alternatives in wanted.ends]
    if wanted.slots is not None:
        parts[-1] += f", or {_there_are(wanted.slots, commands)}"
    if wanted.needs_slots is not None:
        parts.append(_there_are(wanted.needs_slots, commands))
    if wanted.priority is not None:
        command = commands.set_priority.format(job=job_id, priority=wanted.priority)
        turn = "those before it have had their turn"
        parts.append(f"{turn}, or it has priority {wanted.priority} or better{command}")
    if wanted.is_turn:
        first = f", first {jobs(wanted.first_ahead)}" if wanted.first_ahead else ""
        parts.append(f"those before it have had their turn{first}")
    return parts


def jobs(ids: Sequence[int], count: int | None = None) -> str:
    """Several jobs: ``jobs 3, 4``; of a long list the first ones, and how many more there are.

    ``count``: of all, if ``ids`` are only the first ones.
    """
    count = len(ids) if count is None else count
    shown = ids[:_JOBS_SHOWN_MAX]
    more = count - len(shown)
    word = "job" if count == 1 else "jobs"
    return f"{word} {', '.join(map(str, shown))}" + (f" and {more} more" if more > 0 else "")


def slots_taken(count: int) -> str:
    """No run slot is free, of so many.

    >>> slots_taken(1)
    'the only run slot is taken'
    """
    if count == 0:
        return "there is no run slot"
    return "the only run slot is taken" if count == 1 else f"all {count} run slots are taken"


def taken(held_back: HoldingBack) -> str:
    """A lock for which a job would wait, and the owners that have it.

    >>> from ganger.transport.messages import HoldingBack
    >>> taken(HoldingBack(lock="node/a", mode="exclusive", jobs=[5]))
    'node/a (exclusive), held by job 5'
    """
    owners = [jobs(held_back.jobs)] if held_back.jobs else []
    owners += held_back.others
    parts = [f"held by {' and '.join(owners)}"] if owners else []
    if held_back.soon:
        parts.append(f"about to be taken by {jobs(held_back.soon)}")
    return f"{typed(held_back.lock)} ({held_back.mode}), {' and '.join(parts)}"


def _rules(wanted: Remedy, commands: Commands) -> str:
    text = " and ".join(map(commands.delete_rule, wanted.rules))
    if wanted.accept_below is not None:
        text += f", or an ACCEPT rule with a priority below {wanted.accept_below}"
    return text + (f", or it is {wanted.until}" if wanted.until else "")


def _there_are(slots: int, commands: Commands) -> str:
    count = "is 1 run slot" if slots == 1 else f"are {slots} run slots"
    return f"there {count}{commands.set_slots.format(slots=slots)}"


def _one_ends(ids: Sequence[int]) -> str:
    return f"{jobs(ids)} ends" if len(ids) == 1 else f"one of {jobs(ids)} ends"
