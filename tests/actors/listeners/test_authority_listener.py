"""The listener of a process with components of its own: who may say what there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.listeners.test_wire_listener import Sockets
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.listeners import authority_listener
from ganger.actors.listeners.authority_listener import AuthorityListener
from ganger.actors.listeners.job_credentials import JobCredentials
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.runtime.host import Host
from ganger.storage.locks.locks import Owner
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope
from ganger.transport.links import link_frames
from ganger.transport.zmq.peers import Credentials, Incoming

START = messages.StartComponent("lock_manager", 2)


def process(pid: int) -> Credentials:
    return Credentials(kind="local", uid=os.geteuid(), pid=pid)


def owner() -> Owner:
    return Owner(5, "/l/job_000005_1", os.getpid())


def attach() -> messages.AttachJob:
    return messages.AttachJob(job_id=5, lock_file=owner().lock_file, process_id=os.getpid())


class DaemonSockets(Sockets):
    """The router of the process."""

    kept: bytes | None = None

    def keep(self, peer: bytes) -> None:
        self.kept = peer


class Listener:
    """The listener, and what has come of its words."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.started: list[tuple[type, str, int]] = []
        self.opened: list[str] = []
        monkeypatch.setattr(
            "ganger.actors.listeners.authority_listener.start",
            lambda _, *start: self.started.append(start),
        )
        components = {"lock_manager": (LockManager, "core")}
        self.actor: Staged[AuthorityListener] = stage.make(
            AuthorityListener,
            stage.places.authority_socket,
            components,
            lambda: self.opened.append("opened"),
            self.opened.append,
        )
        self.actor.say(messages.Boot())
        stage.sent.clear()
        stage.requests.clear()
        sockets: Any = self.actor.component._router
        self.sockets: DaemonSockets = sockets

    def come(self, data: bytes, identity: Credentials, peer: bytes = b"L1") -> None:
        self.sockets.coming.append(Incoming(peer, data, identity))
        self.actor.end_turn()
        self.actor.handle_mail()

    def answer(self, message: messages.Message) -> messages.Message:
        """What a process that is not the daemon gets to hear."""
        self.sockets.sent.clear()
        self.come(frames.encode(message, 3), process(os.getpid()))
        [sent] = self.sockets.sent
        frame = frames.decode(sent, messages.ToJob)
        assert frame.number == 3
        return frame.message


@pytest.fixture(name="listener")
def listener_on_a_stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setattr(authority_listener, "Router", DaemonSockets)
    found = Listener(stage, monkeypatch)
    yield found
    found.actor.component.is_stopping = True
    found.actor.close()


def test_it_says_when_its_socket_is_open(listener: Listener) -> None:
    assert listener.opened == ["opened"]


def test_the_daemon_has_components_started_and_speaks_to_them(listener: Listener) -> None:
    listener.come(link_frames.encode("authority_listener", START), process(os.getppid()))
    assert listener.started == [(LockManager, "core", 2)]
    assert listener.sockets.kept == b"L1"
    listener.come(
        link_frames.encode("lock_manager", messages.RecheckOwners()), process(os.getppid())
    )
    listener.stage.take_one(messages.RecheckOwners, to="lock_manager")


def test_the_daemon_gets_a_sign_of_life(listener: Listener) -> None:
    listener.come(
        link_frames.encode("authority_listener", messages.ReadPulse(), 8), process(os.getppid())
    )
    [sent] = listener.sockets.sent
    assert link_frames.decode(sent) == link_frames.LinkFrame("", 8, None, messages.Done())


def test_nothing_is_sent_to_a_daemon_that_has_said_nothing(listener: Listener) -> None:
    listener.actor.component.link.tell("supervisor", Envelope(START))
    assert listener.sockets.sent == []


def test_another_process_is_not_taken_for_the_daemon(listener: Listener) -> None:
    listener.come(link_frames.encode("authority_listener", START), process(os.getpid()))
    assert listener.started == []
    [sent] = listener.sockets.sent
    refusal = frames.decode(sent, messages.ClientReply).message
    assert isinstance(refusal, messages.Failure)
    assert refusal.error == "UnreadableMessageError"


def test_a_job_that_has_proved_itself_asks_for_its_locks(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobCredentials, "_check_introduction", lambda *_: None)
    assert listener.answer(attach()) == messages.Done()
    request = messages.RequestLocks(owner(), 0, [("node/a", "shared")])
    listener.come(frames.encode(request, 4), process(os.getpid()))
    [(name, envelope)] = listener.stage.requests
    assert (name, envelope.message) == ("lock_manager", request)


def test_a_job_that_has_not_proved_itself_gets_nothing(listener: Listener) -> None:
    for message in (attach(), messages.RequestLocks(owner(), 0, [("node/a", "shared")])):
        refusal = listener.answer(message)
        assert isinstance(refusal, messages.Failure)
        assert refusal.error == "NotAllowedError"
    assert listener.stage.requests == []


@pytest.mark.parametrize(
    "message",
    [
        messages.ListLocks(),
        messages.StopDaemon(),
        messages.AskGate(job_id=5, chosen=messages.ChosenUnder()),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_for_the_daemon_is_refused(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, message: messages.Message
) -> None:
    monkeypatch.setattr(JobCredentials, "check", lambda *_: None)
    refusal = listener.answer(message)
    assert isinstance(refusal, messages.Failure)
    assert refusal.error == "NotAllowedError"
    assert refusal.text.endswith("ask at the socket of the daemon")
    assert listener.stage.sent == []


def test_the_process_ends_with_its_listener_and_when_the_daemon_does_not_read(
    listener: Listener,
) -> None:
    listener.come(
        link_frames.encode("lock_manager", messages.RecheckOwners()), process(os.getppid())
    )
    listener.sockets.stuck.append(b"L1")
    listener.actor.component.link.tell("supervisor", Envelope(START))
    assert listener.opened[1:] == ["the daemon does not read what is sent to it"]
    listener.actor.component.close()
    assert len(listener.opened) == 3


def test_a_replaced_component_of_the_daemon_is_asked_again(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated: list[str] = []
    monkeypatch.setattr(Host, "repeat_asks", lambda _, name: repeated.append(name))
    replaced = messages.ComponentReplaced("job_queue")
    listener.come(link_frames.encode("authority_listener", replaced), process(os.getppid()))
    assert repeated == ["job_queue"]
