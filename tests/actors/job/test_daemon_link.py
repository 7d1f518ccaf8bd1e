"""How a job's process finds a successor of its daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from ganger.actors.job import daemon_link
from ganger.actors.processes import channels
from ganger.storage.locks.locks import Owner
from ganger.transport import frames, messages
from ganger.transport.links import link as links
from ganger.transport.zmq.connection_event import ConnectionEvent

WIRE = "ganger.transport.links.attached_wire.LocalWire"
ATTACH = messages.AttachJob(job_id=5, lock_file="/l/job_000005_1", process_id=7)


class Successor:
    """A link that has lost its daemon; the test is the other end of its new connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._wire = mock.Mock(has_news=False)
        monkeypatch.setattr(WIRE, lambda _: self._wire)
        ours, theirs = channels.pair()
        self.link = daemon_link.DaemonLink(channels.Channel(ours))
        self.link.use_socket("/run/socket", ATTACH, {})
        theirs.close()
        self.hear()

    def hear(self, *news: bytes | ConnectionEvent) -> list[links.Received]:
        """The link takes in what has come."""
        self._wire.receive.side_effect = [*news, None]
        return self.link.receive()

    def wait(self) -> None:
        """Let the time go by after which the link asks again."""
        with self._monkeypatch.context() as patched:
            patched.setattr(links, "ATTACH_SECONDS", 0.0)
            self.hear()

    def asked(self) -> list[int]:
        """The numbers of the attachments that were sent so far."""
        calls = self._wire.send.mock_calls
        sent = [frames.decode(one.args[0], messages.JobMessage) for one in calls]
        assert {one.message for one in sent} == {ATTACH}
        return [one.number for one in sent]

    def answer(self, number: int, message: messages.Message | None = None) -> None:
        """Answer an attachment; the job does not see that."""
        assert self.hear(frames.encode(message or messages.Done(), number)) == []

    def state(self) -> tuple[bool, bool]:
        """Whether the link is up, and whether requests without an answer are to be sent again."""
        return self.link.is_up, self.link.has_changed


@pytest.fixture(name="successor")
def link_that_seeks_a_successor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Successor]:
    monkeypatch.setattr(links, "ATTACH_SECONDS", 1_000.0)
    made = Successor(monkeypatch)
    yield made
    made.link.close()


def test_a_successor_is_asked_again_until_it_answers(successor: Successor) -> None:
    assert len(successor.asked()) == 1
    successor.hear()
    assert len(successor.asked()) == 1
    successor.wait()
    assert len(successor.asked()) == 2
    successor.answer(successor.asked()[-1], messages.Failure("BusyError", ""))
    assert successor.state() == (False, False)
    successor.wait()
    successor.answer(successor.asked()[-1])
    assert successor.state() == (True, True)
    successor.wait()
    assert len(successor.asked()) == 3


def test_a_successor_that_is_always_too_late_for_the_newest_attachment_is_reached(
    successor: Successor,
) -> None:
    successor.hear(ConnectionEvent.MADE)
    successor.wait()
    _, first, second = successor.asked()
    successor.answer(first)
    assert successor.state() == (True, True)
    # What is without an answer is sent again once.
    successor.link.has_changed = False
    successor.answer(second)
    assert successor.state() == (True, False)


def test_an_answer_to_an_attachment_over_an_earlier_connection_does_not_count(
    successor: Successor,
) -> None:
    successor.hear(ConnectionEvent.MADE)
    early = successor.asked()[-1]
    successor.hear(ConnectionEvent.LOST)
    successor.hear(ConnectionEvent.MADE)
    successor.answer(early)
    assert successor.state() == (False, False)
    successor.answer(successor.asked()[-1])
    assert successor.state() == (True, True)


OWNER = Owner(5, "/l/job_000005_1", 7)
LOCKS = messages.RequestLocks(OWNER, 0, [("node/a", "shared")])
WAITS = messages.JobWaits(job_id=5, serial=1, body=None)


class Elsewhere:
    """Stands for the connection to the process of the lock manager; the test is its other end."""

    has_news = False

    def __init__(self, path: str, *, is_connected: bool) -> None:
        assert path == "/run/a/socket"
        self.news: deque[bytes | ConnectionEvent] = deque()
        self.got: list[tuple[int, messages.Message]] = []
        self.is_connected = is_connected
        self.is_closed = False

    def send(self, data: bytes) -> bool:
        if self.is_connected:
            frame = frames.decode(data, messages.JobMessage)
            self.got.append((frame.number, frame.message))
        return self.is_connected

    def receive(self) -> bytes | ConnectionEvent | None:
        return self.news.popleft() if self.news else None

    def descriptors(self) -> dict[int, int]:
        return {}

    def close(self) -> None:
        self.is_closed = True

    def connect(self) -> None:
        """The connection is made."""
        self.is_connected = True
        self.news.append(ConnectionEvent.MADE)

    def reply(self, message: messages.Message, number: int) -> None:
        self.news.append(frames.encode(message, number))

    def let_in(self, link: daemon_link.DaemonLink) -> list[links.Received]:
        """Answer the newest attachment; what the job then receives."""
        link.receive()
        number, attach = self.got[-1]
        assert attach == ATTACH
        self.reply(messages.Done(), number)
        return link.receive()


class Direct:
    """A link to a daemon whose lock manager lives elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Elsewhere] = []
        self.is_there = False
        """Whether that process listens when the link first connects."""
        monkeypatch.setattr(WIRE, self._connect)
        ours, theirs = channels.pair()
        self.daemon = channels.Channel(theirs)
        self.link = daemon_link.DaemonLink(channels.Channel(ours))
        self.link.use_socket("/run/socket", ATTACH, {"lock_manager": "/run/a/socket"})

    def _connect(self, path: str) -> Any:
        if path == "/run/socket":
            return mock.Mock(receive=mock.Mock(return_value=None), has_news=False)
        self.made.append(Elsewhere(path, is_connected=self.is_there))
        return self.made[-1]

    def received_by_daemon(self) -> list[messages.Message]:
        found = []
        while (frame := self.daemon.receive()) is not None:
            found.append(frames.decode(frame, messages.JobMessage).message)
        return found


@pytest.fixture(name="direct")
def link_with_a_process_beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Direct]:
    made = Direct(monkeypatch)
    yield made
    made.link.close()
    made.daemon.close()


def test_a_job_without_locks_makes_no_second_connection(direct: Direct) -> None:
    assert direct.link.send(WAITS, 0)
    assert direct.received_by_daemon() == [WAITS]
    assert direct.made == []


def test_lock_requests_go_to_the_process_of_the_lock_manager(direct: Direct) -> None:
    assert direct.link.ask(LOCKS) == 1
    direct.link.send(LOCKS, 1)
    assert direct.link.send(WAITS, 0)
    # A request to the daemon itself, and one that nobody waits for any more.
    direct.link.ask(messages.AskGate(job_id=5, chosen=messages.ChosenUnder()))
    direct.link.withdraw(direct.link.ask(LOCKS))
    [there] = direct.made
    there.connect()
    assert there.let_in(direct.link) == []
    assert [one for one in there.got if one[1] != ATTACH] == [(1, LOCKS)]
    release: messages.Message = messages.ReleaseLocks(OWNER)
    assert direct.link.send(release, 2)
    assert there.got[-1:] == [(2, release)]
    there.reply(messages.LocksGranted(), 1)
    granted = links.Received(messages.LocksGranted(), 1)
    assert direct.link.receive() == [granted]
    assert direct.received_by_daemon() == [WAITS]


def test_a_first_request_goes_right_behind_the_introduction_and_once(direct: Direct) -> None:
    direct.is_there = True
    direct.link.send(LOCKS, direct.link.ask(LOCKS))
    [there] = direct.made
    assert [message for _, message in there.got] == [ATTACH, LOCKS]
    there.reply(messages.Done(), there.got[0][0])
    assert direct.link.receive() == []
    assert len(there.got) == 2


def test_a_first_request_that_was_lost_with_its_connection_goes_again(direct: Direct) -> None:
    direct.is_there = True
    direct.link.send(LOCKS, direct.link.ask(LOCKS))
    [there] = direct.made
    there.news += [ConnectionEvent.LOST, ConnectionEvent.MADE]
    assert there.let_in(direct.link) == []
    assert there.got[-1] == (1, LOCKS)


def test_when_that_process_was_replaced_unanswered_requests_are_asked_for_again(
    direct: Direct,
) -> None:
    direct.link.send(LOCKS, 1)
    [there] = direct.made
    there.connect()
    there.let_in(direct.link)
    there.news.append(ConnectionEvent.LOST)
    assert direct.link.receive() == []
    assert not direct.link.send(LOCKS, 1)
    # The daemon is still there.
    assert direct.link.is_up
    again = links.Received(messages.ResendRequested(), 0)
    assert there.let_in(direct.link) == [again]
    direct.link.send(LOCKS, 2)
    assert there.got[-1] == (2, LOCKS)


def test_after_the_daemons_death_everything_goes_to_its_successor(direct: Direct) -> None:
    direct.link.send(LOCKS, 1)
    [there] = direct.made
    direct.daemon.close()
    assert direct.link.receive() == []
    assert there.is_closed
    assert not direct.link.send(LOCKS, 1)
    assert len(direct.made) == 1
