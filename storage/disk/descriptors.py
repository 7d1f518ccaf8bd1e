"""Shares out the descriptors that a daemon may open: to its listeners, its run slots, its files.

libzmq aborts the process when a socket cannot accept for want of a descriptor, and a component
without a descriptor cannot open its file. So each listener has its share, the jobs have theirs,
and the daemon's own files have the rest.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Mapping

import msgspec

from .. import errors, settings

_LISTENER_MIN = 16
"""What a listener has at least."""


class DescriptorBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How many descriptors each part of the daemon may use."""

    limit: int
    """Descriptors that the process may have open at one time."""
    listener: int
    """Descriptors that one listener may use."""
    doors: dict[str, int] = {}
    """Connections that the socket of each listener of a package may have, by its name."""
    run_slots: int
    """Jobs that may run at one time."""


def raise_limit() -> int:
    """Raise the limit as far as the system permits; returns the former one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.DESCRIPTORS_MAX
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems permit fewer than they say; then the limit stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def set_limit(soft: int, pid: int = 0) -> None:
    """Restore the limit of this process, or of another one."""
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def limit() -> int:
    """How many descriptors this process may have open at one time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return settings.DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft


def own_budget(*, is_remote: bool, wishes: Mapping[str, int]) -> DescriptorBudget:
    """The budget of this process, as `share` makes it."""
    return share(limit(), is_remote=is_remote, wishes=wishes)


def share(limit: int, *, is_remote: bool, wishes: Mapping[str, int]) -> DescriptorBudget:
    """Share ``limit`` descriptors out; `OperatorError` if they are too few.

    ``wishes``: the most connections that each listener of a package has a use for. Each gets the
    same share of what the smaller wishes leave, but the own listener keeps its least.

    >>> share(256, is_remote=False, wishes={"big": 8_192, "small": 256})
    DescriptorBudget(limit=256, listener=34, doors={'small': 17, 'big': 18}, run_slots=46)
    """
    needed = settings.DESCRIPTORS_REMOTE_MIN if is_remote else settings.DESCRIPTORS_MIN
    if limit < needed:
        what = "a daemon with a remote listener" if is_remote else "a daemon"
        raise errors.OperatorError(
            f"only {limit} files may be open at one time, and {what} needs {needed}; raise the "
            "hard limit (`ulimit -Hn`, or LimitNOFILE= of the service)"
        )
    rest = limit - settings.DESCRIPTORS_OWN
    if is_remote:
        rest -= settings.ACCEPTED_UNSEEN_MAX
    left = rest // 3
    doors: dict[str, int] = {}
    for name, wish in sorted(wishes.items(), key=lambda one: one[1]):
        sharers = len(wishes) - len(doors) + 1
        doors[name] = min(wish, (left - _LISTENER_MIN) // sharers)
        left -= doors[name]
    listeners = 2 if is_remote else 1
    listener = min(settings.LISTENER_DESCRIPTORS_MAX, left // listeners)
    rest -= sum(doors.values()) + listeners * listener
    return DescriptorBudget(
        limit=limit,
        listener=listener,
        doors=doors,
        run_slots=rest // settings.DESCRIPTORS_PER_JOB,
    )
