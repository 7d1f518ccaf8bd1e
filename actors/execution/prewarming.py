"""Runs whole jobs inside a fork server, before it serves, so that its children start warm.

The interpreter rewrites code as it learns what runs often, and fills caches at first use.
Every child inherits what the template has learned. The rest each child would have to learn
again, in memory pages that the kernel must copy first. So the template does
dry runs of a job, over a link that answers as the daemon would. An idle spare child does one
dry run as well: it then owns the pages before its job arrives.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from ...storage import jobs, opcodes
from ...transport import frames, messages
from ..job import process
from ..job.daemon_link import Link
from ..processes import channels, fork_protocol

DRY_RUNS = 12
"""The dry runs of a template: enough for the interpreter to settle on its shortcuts."""

FILLING_BLOCKS_MAX = 20_000
"""Most blocks of one size that `fill_holes` takes."""

_POOL_BYTES = 16_384
_HEADER_BYTES = 48
_SMALL_BYTES_MAX = 512
_BYTES_OBJECT = sys.getsizeof(b"")

_filling: list[bytes] = []

_FIELDS: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
_LOCKED: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_nodes": ["n1"]}


class _DryRunLink(Link):
    """A link without a daemon: packs and unpacks each message, and answers at once."""

    peer: channels.Channel
    go: messages.JobGo

    def send(self, message: messages.Message, number: int) -> bool:
        """Answer ``message`` as the daemon would, over the real channel."""
        sent = super().send(message, number)
        answer = self.go if isinstance(message, messages.JobHello) else _answer(message)
        if answer is not None:
            self.peer.send(frames.encode(answer, number))
        while self.peer.receive() is not None:
            pass
        return sent


def _answer(message: messages.Message) -> messages.Message | None:
    match message:
        case messages.RecordState():
            return messages.StateRecorded(serial=message.serial)
        case messages.RequestLocks():
            return messages.LocksGranted()
        case messages.ReleaseLocks():
            return messages.Done()
        case messages.AskGate():
            return messages.GateAnswered(is_open=True)
    return None


def dry_run(folder: str, times: int = 1) -> None:
    """Run a job without locks and one with locks, so many times.

    Their files lie in a new folder within ``folder``, which goes afterwards, also after an error.
    Raises `OSError` or `StorageError`.
    """
    _run_all(folder, [[_FIELDS], [_FIELDS, _LOCKED]] * times)


def sample_run(folder: str) -> None:
    """Run a job without locks, as `dry_run` does: it does only what every job does."""
    _run_all(folder, [[_FIELDS]])


def _run_all(folder: str, dry_jobs: list[list[dict[str, Any]]]) -> None:
    own = f"{folder}/{os.getpid()}"
    _make(folder)
    os.mkdir(own, 0o700)  # noqa: PTH102 - pathlib is not for the template
    try:
        for fields in dry_jobs:
            _dry_run_one(own, fields)
    finally:
        _remove(own)


def clear(folder: str) -> None:
    """Make ``folder`` if need be, and remove the folders of killed processes from it.

    A folder whose pid belongs to another live process by now stays.
    """
    _make(folder)
    for name in os.listdir(folder):  # noqa: PTH208 - likewise
        if name == str(os.getpid()) or not os.path.exists(f"/proc/{name}"):  # noqa: PTH110
            _remove(f"{folder}/{name}")


def fill_holes() -> None:
    """Take the free blocks that lie scattered among the template's objects, for good.

    A child's own objects then lie side by side in fresh memory, and not in the holes of a hundred
    pages, each of which would have to be copied for it. The interpreter's allocator keeps blocks
    of each size in pools: when one pool has been taken from its first block to its last, those
    with holes are full.
    """
    for size in range(_BYTES_OBJECT + 15 & ~15, _SMALL_BYTES_MAX + 1, 16):
        in_a_row = before = 0
        for _ in range(FILLING_BLOCKS_MAX):
            block = bytes(size - _BYTES_OBJECT)
            in_a_row = in_a_row + 1 if id(block) == before + size else 1
            before = id(block)
            _filling.append(block)
            if in_a_row == (_POOL_BYTES - _HEADER_BYTES) // size:
                # This pool was free before, and is so again: each fork pays for memory in use.
                del block, _filling[-in_a_row:]
                break
        else:
            # This allocator has no such pools.
            return


def _make(folder: str) -> None:
    """Make ``folder``, which a cleaner of old files may have removed, but not its parents.

    A daemon that ends removes these, and a process that still warms up must not bring them back.
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


def _dry_run_one(folder: str, ops: list[dict[str, Any]]) -> None:
    ours, theirs = channels.pair()
    link = _DryRunLink(channels.Channel(_as_in_a_child(ours)))
    link.peer = channels.Channel(theirs)
    link.go = _go(folder, [f"{folder}/spare-{place}" for place in range(2)], ops)
    try:
        process.run_process(0, link, folder, spare=f"{folder}/spare_0")
    finally:
        link.peer.close()


def _as_in_a_child(end: channels.End) -> channels.End:
    """The end of a channel as a child receives it: a bare descriptor."""
    server, spare = channels.pair()
    fork_protocol.request(server, 0, end.fileno())
    received = fork_protocol.receive_request(spare)
    for each in (server, spare, end):
        each.close()
    assert received is not None
    return channels.end_of(received[1])


def _go(directory: str, spares: list[str], ops: list[dict[str, Any]]) -> messages.JobGo:
    entries = [jobs.OpcodeEntry(input=opcodes.check_opcode(dict(fields))) for fields in ops]
    body = jobs.encode_job(jobs.Job(id=0, ops=entries, extra={jobs.STATE_SERIAL_KEY: 1}))
    return messages.JobGo(body=body, spares=spares, secrets={}, queue=directory, socket="")
