"""The packets between the daemon and a fork server: one each way for each job."""

from __future__ import annotations

import struct

from . import channels

UNKNOWN = -1
"""In place of a process's status: the server has no such child."""

_REQUEST = struct.Struct("<q")
_REPLY = struct.Struct("<qi")


def request(server: channels.End, job_id: int, channel: int) -> None:
    """Ask for a process for a job, whose end of the channel is the descriptor ``channel``.

    Raises `OSError` if the server (or the spare child to which it passes the request) is gone.
    """
    channels.send_with_descriptors(server, _REQUEST.pack(job_id), [channel])


def ask_status(server: channels.End, pid: int) -> None:
    """Ask for the exit status of a child of the server. Raises `OSError` if the server is gone."""
    server.send(_REQUEST.pack(_status_of(pid)))


def asked_status(job_id: int) -> int | None:
    """The process of a request for a status; None if ``job_id`` is a job's id."""
    return -job_id - 1 if job_id < 0 else None


def reply_status(daemon: channels.End, pid: int, status: int) -> None:
    """Send the child's exit status as of `os.waitpid`, or `UNKNOWN`."""
    daemon.send(_REPLY.pack(_status_of(pid), status))


def _status_of(pid: int) -> int:
    # Less than any job's id.
    return -pid - 1


def receive_request(end: channels.End) -> tuple[int, int] | None:
    """The job's id and the descriptor of its channel; None when the other end was closed.

    For `asked_status`, the descriptor is -1.
    """
    data, descriptors = channels.receive_with_descriptors(end)
    if not data:
        return None
    (job_id,) = _REQUEST.unpack(data)
    return job_id, descriptors[0] if descriptors else -1


def reply(daemon: channels.End, job_id: int, pid: int, pidfd: int) -> None:
    """Send the daemon the process of the job."""
    channels.send_with_descriptors(daemon, _REPLY.pack(job_id, pid), [pidfd])


def receive_reply(server: channels.End) -> tuple[int, int, int] | None:
    """The job's id, the pid and the pidfd of its process; None if the server has ended.

    The pidfd is -1 if this process has too many descriptors to take it. In a reply to `ask_status`,
    `asked_status` of the first gives the process, and the second is its status.
    """
    try:
        data, descriptors = channels.receive_with_descriptors(server)
    except ConnectionError:
        return None
    if not data:
        return None
    job_id, pid = _REPLY.unpack(data)
    return job_id, pid, descriptors[0] if descriptors else -1
