"""How the descriptors that a daemon may open are shared out: its doors, its run slots, itself.

libzmq ends the process when a door of its cannot accept for want of a descriptor, and a component
that gets none for its file can do nothing. So nothing may take what others need: each door has
its share, the jobs have theirs, and what is left over belongs to the daemon's files.
"""

from __future__ import annotations

import contextlib
import resource

import msgspec

from . import errors, settings


class DescriptorBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Who may have how many descriptors."""

    limit: int
    """Descriptors that the process may have open at one time."""
    listener: int
    """Descriptors that one door may use."""
    run_slots: int
    """Jobs that may run at one time."""


def raise_limit() -> int:
    """Take as many descriptors as the system gives; what the limit was before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.DESCRIPTORS_MAX
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems give fewer than they promise; then there are as many as before.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def set_limit(soft: int, pid: int = 0) -> None:
    """Set the limit of this process, or of another one, back to what it was."""
    with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def own_budget(*, is_remote: bool) -> DescriptorBudget:
    """The budget of this process, with or without a remote door."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = settings.DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    return share(limit, is_remote=is_remote)


def share(limit: int, *, is_remote: bool) -> DescriptorBudget:
    """Share ``limit`` descriptors out; an `OperatorError` if they do not do.

    >>> share(256, is_remote=False)
    DescriptorBudget(limit=256, listener=69, run_slots=46)
    """
    needed = settings.DESCRIPTORS_REMOTE_MIN if is_remote else settings.DESCRIPTORS_MIN
    if limit < needed:
        what = "a daemon with a remote door" if is_remote else "a daemon"
        raise errors.OperatorError(
            f"only {limit} files may be open at one time, and {what} needs {needed}; raise the "
            "hard limit (`ulimit -Hn`, or LimitNOFILE= of the service)"
        )
    rest = limit - settings.DESCRIPTORS_OWN
    if is_remote:
        rest -= settings.ACCEPTED_UNSEEN_MAX
    listener = min(settings.LISTENER_DESCRIPTORS_MAX, rest // (6 if is_remote else 3))
    rest -= 2 * listener if is_remote else listener
    return DescriptorBudget(
        limit=limit, listener=listener, run_slots=rest // settings.DESCRIPTORS_PER_JOB
    )
