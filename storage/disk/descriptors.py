"""Shares out the descriptors that a daemon may open: to its listeners, its run slots, its files.

libzmq aborts the process when a socket cannot accept for want of a descriptor, and a component
without a descriptor cannot open its file. So each listener has its share, the jobs have theirs,
and the daemon's own files have the rest.
"""

from __future__ import annotations

import contextlib
import resource

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
    documents: int
    """Connections that WConfD's socket may have."""
    luxi: int
    """Connections that LUXI's socket may have."""
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


def own_budget(*, is_remote: bool) -> DescriptorBudget:
    """The budget of this process, with or without a remote listener."""
    return share(limit(), is_remote=is_remote)


def share(limit: int, *, is_remote: bool) -> DescriptorBudget:
    """Share ``limit`` descriptors out; `OperatorError` if they are too few.

    >>> share(256, is_remote=False)
    DescriptorBudget(limit=256, listener=34, documents=17, luxi=18, run_slots=46)
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
    doors = rest // 3
    documents = min(settings.DOCUMENT_CONNECTIONS_MAX, doors // 4)
    luxi = min(settings.LUXI_CONNECTIONS_MAX, (doors - documents - _LISTENER_MIN) // 2)
    listeners = 2 if is_remote else 1
    listener = min(settings.LISTENER_DESCRIPTORS_MAX, (doors - documents - luxi) // listeners)
    rest -= documents + luxi + listeners * listener
    return DescriptorBudget(
        limit=limit,
        listener=listener,
        documents=documents,
        luxi=luxi,
        run_slots=rest // settings.DESCRIPTORS_PER_JOB,
    )
