"""Runs whole jobs inside a fork server, before it serves, so that its children start warm.

The interpreter rewrites code as it learns what runs often, and fills caches at first use.
What the template has learned every child inherits; what it has not, each child would learn
again, in memory pages of its own that must be copied first. So the template rehearses a
job's life, with a link that answers as the daemon would.
"""

from __future__ import annotations

import os
import socket

from ..storage import jobs, opcodes
from ..transport import frames, messages
from . import channels, fork_requests, job
from .job_links import Link

REHEARSALS = 40
"""How often a job is rehearsed: enough for the interpreter to settle on its shortcuts."""

_FIELDS = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
_LOCKED = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_nodes": ["n1"]}


class _RehearsalLink(Link):
    """A link to nobody: what is sent is packed and unpacked, and answered at once."""

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


def rehearse(directory: str) -> None:
    """Run a few dozen jobs whose files lie in ``directory``, and remove what they leave."""
    for number in range(REHEARSALS):
        _rehearse_one(directory, f"rehearsal-{os.getpid()}-{number}")


def _rehearse_one(directory: str, stem: str) -> None:
    ours, theirs = channels.pair()
    link = _RehearsalLink(channels.Channel(_as_in_a_child(ours)))
    link.peer = channels.Channel(theirs)
    spares = [f"{directory}/{stem}-{place}" for place in range(2)]
    link.go = _go(directory, spares)
    try:
        job.run_process(0, link, directory)
    finally:
        link.peer.close()
        for path in (*spares, f"{directory}/job-0"):
            if os.path.exists(path):  # noqa: PTH110 - pathlib is not for the template
                os.unlink(path)  # noqa: PTH108 - likewise


def _as_in_a_child(end: socket.socket) -> socket.socket:
    """The end of a channel after the way that it takes to a child: as a bare descriptor."""
    server, spare = channels.pair()
    with server, spare, end:
        fork_requests.request(server, 0, end.fileno())
        received = fork_requests.receive_request(spare)
    assert received is not None
    return socket.socket(*channels.KIND, fileno=received[1])


def _go(directory: str, spares: list[str]) -> messages.JobGo:
    entries = [
        jobs.OpcodeEntry(input=opcodes.check_opcode(dict(fields))) for fields in (_FIELDS, _LOCKED)
    ]
    body = jobs.encode_job(jobs.Job(id=0, ops=entries, extra={jobs.STATE_SERIAL_KEY: 1}))
    return messages.JobGo(body=body, spares=spares, secrets={}, queue=directory, socket="")
