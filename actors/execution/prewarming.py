"""Runs whole jobs inside a fork server, before it serves, so that its children start warm.

The interpreter rewrites code as it learns what runs often, and libraries fill caches at first use.
Every child inherits what the template has learned; otherwise each would have to learn it again, in
memory pages that the kernel must copy first. Another process answers the dry runs as the daemon
would: what the template learned from a link of another class would not fit a child's.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Self

from ...storage import opcodes, settings
from ...storage.alive import lock_files
from ...storage.jobs import jobs
from ...storage.queue_files import job_files
from ...transport import frames, messages
from ..processes import channels

DRY_RUNS = 12
"""The dry runs of a template: enough for the interpreter to settle on its shortcuts."""

NUMBER = 0
"""The number of the spare lock file of a dry run; those of children count from 1."""

_FIELDS: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
_LOCKED: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001}
_DRY_JOBS = [[_FIELDS], [_FIELDS, _LOCKED]]


def _answer(message: messages.Message) -> messages.Message | None:
    match message:
        case messages.RecordState():
            return messages.StateRecorded(serial=message.serial)
        case messages.PrepareOpcode():
            return messages.OpcodePrepared(locks={"node": {"exclusive": ("n1",)}}, serial_no=0)
        case messages.RequestLocks():
            return messages.LocksGranted()
        case messages.ReleaseLocks():
            return messages.Done()
        case messages.AskGate():
            return messages.GateAnswered(is_open=True)
    return None


class PreparedRuns:
    """A job without locks and one with locks, ``times`` times. Raises `OSError`.

    ``ends`` are the channels of the jobs. Another process answers them, one after the other, as the
    daemon would. ``folder`` is new, and goes afterwards; it has the files that a job finds.
    """

    def __init__(self, folder: str, times: int) -> None:
        self.folder = _own_folder(folder)
        self.ends: list[channels.End] = []
        peers: list[tuple[channels.Channel, messages.JobGo]] = []
        for ops in _DRY_JOBS * times:
            ours, theirs = channels.pair()
            self.ends.append(ours)
            peers.append((channels.Channel(theirs), _go(self.folder, ops)))
        spare = lock_files.spare_path(self.folder, os.getpid(), NUMBER)
        for path in (spare, job_files.path(self.folder, 0), *_spares(self.folder)):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        self._pid = os.fork()
        if self._pid == 0:
            _be_daemon(self.ends, peers)
        for channel, _ in peers:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process that answers, which it does with the channels, and remove the files."""
        for end in self.ends:
            end.close()
        os.waitpid(self._pid, 0)
        _remove(self.folder)


def _be_daemon(
    strange: list[channels.End], peers: list[tuple[channels.Channel, messages.JobGo]]
) -> None:
    """In a child of the template: answer each job until its channel is closed."""
    # Every path ends in os._exit: no code of the template may run in the child.
    try:
        for end in strange:
            end.close()
        for channel, go in peers:
            with contextlib.suppress(channels.ChannelClosedError):
                while channel.wait(None):
                    while (frame := channel.receive()) is not None:
                        received = frames.decode(frame, messages.JobMessage)
                        _reply(channel, received.message, received.number, go)
    finally:
        os._exit(0)


def _reply(
    peer: channels.Channel, message: messages.Message, number: int, go: messages.JobGo
) -> None:
    answer = go if isinstance(message, messages.JobHello) else _answer(message)
    if answer is not None:
        peer.send(frames.encode(answer, number))


def _own_folder(folder: str) -> str:
    own = f"{folder}/{os.getpid()}"
    _make(folder)
    os.mkdir(own, 0o700)  # noqa: PTH102 - pathlib is not for the template
    return own


def clear(folder: str) -> None:
    """Make ``folder`` if need be, and remove the folders of killed processes from it.

    A folder whose pid belongs to another live process by now stays.
    """
    _make(folder)
    for name in os.listdir(folder):  # noqa: PTH208 - likewise
        if name == str(os.getpid()) or not os.path.exists(f"/proc/{name}"):  # noqa: PTH110
            _remove(f"{folder}/{name}")


def _make(folder: str) -> None:
    """Make ``folder``, which a cleaner of old files may have removed, but not its parents.

    A daemon that ends removes these, and a server that still learns must not bring them back.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)  # noqa: PTH102 - pathlib is not for the template


def _remove(folder: str) -> None:
    # Another process may remove it too.
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):  # noqa: PTH208 - pathlib is not for the template
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")  # noqa: PTH108 - likewise
        os.rmdir(folder)  # noqa: PTH106 - likewise


def _go(directory: str, ops: list[dict[str, Any]]) -> messages.JobGo:
    entries = [jobs.OpcodeEntry(input=opcodes.check_opcode(dict(fields))) for fields in ops]
    body = jobs.encode_job(jobs.Job(id=0, ops=entries, extra={jobs.STATE_SERIAL_KEY: 1}))
    return messages.JobGo(
        body=body, spares=_spares(directory), secrets={}, queue=directory, socket=""
    )


def _spares(directory: str) -> list[str]:
    return [f"{directory}/spare-{place}" for place in range(settings.SPARES_PER_JOB)]
