"""The ZeroMQ listener on a stage: how much it reads at a time."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.listeners import wire_listener
from ganger.actors.listeners.job_credentials import JobCredentials
from ganger.actors.listeners.wire_listener import WireListener
from ganger.actors.queue.job_queue import JobQueue
from ganger.storage import settings
from ganger.storage.access import keys
from ganger.storage.access.submitters import local_user
from ganger.storage.jobs.origins import Submitter
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope
from ganger.transport.zmq.peers import Credentials, Incoming
from ganger.transport.zmq.router import Sent

SIZE = 10_000


def here() -> Credentials:
    return Credentials(kind="local", uid=os.geteuid(), pid=os.getpid())


class Sockets:
    """Stands in for the router: frames to come, one at each call, and those sent."""

    endpoints = ("ipc://nowhere",)

    def __init__(self, *_: object, **__: object) -> None:
        self.coming: deque[Incoming] = deque()
        self.refused: list[tuple[str, str]] = []
        self.sent: list[bytes] = []
        self.between = Sent.NO
        self.left: list[bytes] = []
        self.stuck: list[bytes] = []
        self.reported: list[list[int] | None] = []
        self.has_connections = False
        self.looks = 0

    def filenos(self) -> list[int]:
        return []

    @property
    def has_more(self) -> bool:
        return bool(self.coming)

    def receive(
        self, limit: int | None = None, reported: list[int] | None = None
    ) -> list[Incoming]:
        self.reported.append(reported)
        if limit == 0:
            return []
        return [self.coming.popleft()] if self.coming else []

    look_seconds = 1.0

    def guard_memory(self, _kept: int = 0) -> int:
        self.looks += 1
        return 2

    def end_unheard(self) -> int:
        return 3

    def take_refused(self) -> list[tuple[str, str]]:
        refused, self.refused = self.refused, []
        return refused

    def take_left(self) -> list[bytes]:
        left, self.left = self.left, []
        return left

    def send(self, peer: bytes, data: bytes) -> bool:
        self.sent.append(data)
        return peer not in self.stuck

    def try_send(self, _peer: bytes, data: bytes) -> Sent:
        if self.between is not Sent.NO:
            self.sent.append(data)
        return self.between

    def close(self) -> None:
        """There is nothing to close."""


class Listener:
    """The listener, and what has come to it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.actor: Staged[WireListener] = stage.start(WireListener)
        stage.requests.clear()
        sockets: Any = self.actor.component._router
        self.sockets: Sockets = sockets
        self._numbers = iter(range(1, 1_000))

    def come(self, message: messages.Message, peer: bytes = b"L1") -> None:
        data = frames.encode(message, next(self._numbers))
        self.sockets.coming.append(Incoming(peer, data, here()))

    def answers(self) -> list[messages.Message]:
        return [frames.decode(sent, messages.ClientReply).message for sent in self.sockets.sent]

    def errors(self) -> list[str]:
        return [found.text for found in self.answers() if isinstance(found, messages.Failure)]

    def asked(self, message: messages.Message) -> Envelope:
        """What a component gets of a request that comes in."""
        self.come(message)
        self.actor.end_turn()
        self.stage.sent.clear()
        return self.stage.requests.pop()[1]


@pytest.fixture
def listener(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setattr(wire_listener, "Router", Sockets)
    listener = Listener(stage)
    yield listener
    listener.actor.close()


def large(size: int = SIZE) -> messages.SubmitJobs:
    spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["true"], "stdin": "x" * size}])
    return messages.SubmitJobs(jobs=[spec])


def size_of(message: messages.Message) -> int:
    return len(frames.encode(message, 1))


def test_nothing_more_is_read_while_components_are_at_too_much(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", 3 * size_of(large()))
    for _ in range(9):
        listener.come(large())
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 3
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 3
    # One is done: the listener hears of it by a descriptor, and reads the next.
    assert not _is_readable(listener)
    listener.stage.requests.pop()
    listener.stage.sent.clear()
    assert _is_readable(listener)
    listener.actor.component.readable([listener.actor.component._open.descriptor])
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 3
    assert len(listener.sockets.coming) == 5
    assert not _is_readable(listener)


@pytest.mark.parametrize("how", ["it leaves", "it does not read"])
def test_the_queue_hears_of_a_peer_that_is_gone(listener: Listener, how: str) -> None:
    listener.come(messages.ReadInfo())
    (listener.sockets.left if how == "it leaves" else listener.sockets.stuck).append(b"L1")
    listener.actor.end_turn()
    if how == "it does not read":
        listener.actor.notify(messages.ReplyDue(peer=b"L1", number=1, message=messages.Done()))
    assert listener.stage.take_one(messages.PeerGone, to="job_queue").peer == b"L1"
    assert not listener.actor.component._unanswered


def test_small_frames_are_not_counted(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", 100)
    monkeypatch.setattr(settings, "SMALL_FRAME_BYTES", size_of(messages.ReadInfo()))
    for _ in range(9):
        listener.come(messages.ReadInfo())
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 9


def test_a_component_with_too_much_mail_gets_no_more(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MAILBOX_DEPTH_MAX", 2)
    queue = listener.stage.make(JobQueue).actor
    listener.stage.enter(queue.name, queue)
    for depth in range(1, 4):
        listener.come(messages.ReadJob(id=depth))
        listener.actor.end_turn()
        queue.put(depth)
    assert len(listener.stage.requests) == 3
    listener.come(messages.ReadJob(id=4))
    listener.come(messages.ReadLimits())
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 4
    assert listener.errors() == ["job_queue has too much work waiting; try again"]
    # A refused request is not among the open ones.
    listener.actor.notify(messages.ComponentReplaced(component="job_queue"))
    assert len(listener.errors()) == 1 + 3


def test_large_lasting_requests_are_refused_and_block_no_other_request(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = messages.WatchJobs(ids=list(range(1_000, 3_000)))
    monkeypatch.setattr(settings, "FRAME_BYTES_MAX", size_of(watch))
    monkeypatch.setattr(settings, "FRAMES_BYTES_OPEN_MAX", size_of(watch))
    for _ in range(4):
        listener.come(watch)
    listener.come(messages.ReadInfo())
    listener.actor.end_turn()
    kinds = [type(envelope.message) for _, envelope in listener.stage.requests]
    assert kinds == [messages.WatchJobs] * 2 + [messages.ReadInfo]
    assert listener.errors() == ["the open requests are too large together; try again"] * 2
    listener.stage.requests.clear()
    listener.stage.sent.clear()
    listener.come(watch)
    listener.actor.end_turn()
    assert [type(envelope.message) for _, envelope in listener.stage.requests] == [
        messages.WatchJobs
    ]


def test_silent_connections_are_looked_for_while_there_are_connections(
    listener: Listener,
) -> None:
    stage, sockets, looks = listener.stage, listener.sockets, listener.sockets.looks
    runtime = listener.actor.component.runtime
    patiences = [runtime.patience_seconds]
    sockets.has_connections = True
    listener.actor.component.readable([])
    for passed, more_looks in ((0.0, 1), (0.5, 0), (0.5, 1)):
        stage.now += passed
        listener.actor.end_turn()
        looks += more_looks
        assert sockets.looks == looks
        patiences.append(runtime.patience_seconds)
    last = stage.log_stream.getvalue().splitlines()[-2:]
    assert [(json.loads(line)["event"], json.loads(line)["count"]) for line in last] == [
        ("silent connections are ended: memory grows", 2),
        ("silent connections are ended: a listener is full", 3),
    ]
    sockets.has_connections = False
    stage.now += 1.0
    for _ in range(2):
        listener.actor.be_quiet()
        assert sockets.looks == looks + 1
        patiences.append(runtime.patience_seconds)
    assert patiences == [None, 1.0, 0.5, 1.0, None, None]


SUBMITTED = messages.JobsSubmitted(ids=[7])


def test_a_submission_is_answered_at_once_while_the_listener_sleeps(
    listener: Listener,
) -> None:
    envelope = listener.asked(large())
    listener.sockets.between = Sent.YES
    envelope.reply(SUBMITTED)
    assert listener.answers() == [SUBMITTED]
    assert listener.stage.sent == []
    # No request waits any more: none is refused because the queue was replaced.
    listener.actor.notify(messages.ComponentReplaced(component="job_queue"))
    assert listener.answers() == [SUBMITTED]


def test_the_listener_is_notified_of_frames_that_no_descriptor_reports(
    listener: Listener,
) -> None:
    envelope = listener.asked(large())
    listener.sockets.between = Sent.YES_AND_READ_ON
    envelope.reply(SUBMITTED)
    assert listener.stage.sent == [("wire_listener", messages.FramesWaiting())]
    listener.come(messages.ReadInfo())
    listener.actor.turn(messages.FramesWaiting())
    assert isinstance(listener.stage.requests.pop()[1].message, messages.ReadInfo)


def test_a_listener_at_work_answers_itself(listener: Listener) -> None:
    envelope = listener.asked(large())
    envelope.reply(SUBMITTED)
    assert listener.answers() == []
    [(_, due)] = listener.stage.sent
    listener.actor.notify(due)
    assert listener.answers() == [SUBMITTED]


def test_an_answer_does_not_overtake_an_earlier_one_to_the_same_peer(listener: Listener) -> None:
    first, second = listener.asked(large()), listener.asked(messages.ListLocks())
    listener.come(messages.ReadInfo(), b"L2")
    listener.actor.end_turn()
    other = listener.stage.requests.pop()[1]
    answers = [messages.JobsSubmitted(ids=[number]) for number in range(5)]
    # The sockets are in use when the first is due, and free afterwards.
    first.reply(answers[0])
    listener.sockets.between = Sent.YES
    second.reply(answers[1])
    other.reply(answers[2])
    assert listener.answers() == [answers[2]]
    for due in listener.stage.take(messages.ReplyDue):
        listener.actor.notify(due)
    assert listener.answers() == [answers[2], answers[0], answers[1]]
    listener.asked(messages.ListLocks()).reply(answers[3])
    assert listener.answers()[-1] == answers[3]


def test_a_part_leaves_its_request_open(listener: Listener) -> None:
    envelope = listener.asked(messages.WatchJobs(ids=[1]))
    listener.sockets.between = Sent.YES
    envelope.reply(messages.JobLogged(id=1, op_index=0, entries=[]))
    listener.actor.notify(messages.ComponentReplaced(component="job_queue"))
    assert listener.errors() == ["component job_queue was restarted"]


def test_the_router_learns_which_descriptors_are_readable(listener: Listener) -> None:
    listener.sockets.reported.clear()
    listener.actor.component.readable([7])
    assert listener.sockets.reported == [[7]]


def test_an_answer_that_is_larger_than_a_frame_is_the_listeners_matter(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelope = listener.asked(large())
    listener.sockets.between = Sent.YES
    monkeypatch.setattr(settings, "FRAME_BYTES_MAX", 100)
    envelope.reply(messages.JobsSubmitted(ids=list(range(100))))
    [(_, due)] = listener.stage.sent
    listener.actor.notify(due)
    assert "more than 100" in listener.errors()[0]


def test_an_answer_may_name_a_file_whose_name_is_not_utf_8(listener: Listener) -> None:
    listener.asked(large()).reply(messages.Failure("StorageError", "/queue/\udcff: broken"))
    for _, due in listener.stage.sent:
        listener.actor.notify(due)
    assert listener.errors() == ["/queue/\\udcff: broken"]


@pytest.mark.parametrize(("uid", "is_admitted"), [(0, True), (os.geteuid(), True), (4711, False)])
def test_a_local_peer_is_root_or_the_user_of_the_daemon(
    listener: Listener, uid: int, *, is_admitted: bool
) -> None:
    stranger = Credentials(kind="local", uid=uid, pid=1)
    data = frames.encode(large(), 1)
    listener.sockets.coming.append(Incoming(b"L1", data, stranger))
    listener.actor.end_turn()
    refusal = f"user {uid} may not use this daemon"
    assert listener.errors() == ([] if is_admitted else [refusal])
    assert len(listener.stage.requests) == is_admitted
    # The log has the refusal, and not the request: it may hold secrets.
    log = listener.stage.log_stream.getvalue()
    assert (refusal in log, "xxx" in log) == (not is_admitted, False)


def test_a_watch_is_refused_also_after_its_first_part(listener: Listener) -> None:
    envelope = listener.asked(messages.WatchJobs(ids=[1]))
    envelope.reply(messages.JobLogged(id=1, op_index=0, entries=[]))
    listener.actor.notify(listener.stage.take_one(messages.ReplyDue))
    listener.actor.notify(messages.ComponentReplaced(component="job_queue"))
    assert listener.errors() == ["component job_queue was restarted"]


def test_a_new_executor_gets_the_jobs_that_attached_themselves_to_its_predecessor(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobCredentials, "check", lambda *_: None)
    attach = messages.AttachJob(job_id=1, lock_file="/l/job_000001_1", process_id=2)
    envelope = listener.asked(attach)
    for component, again in (("scheduler", []), ("executor", [("executor", attach)])):
        listener.actor.notify(messages.ComponentReplaced(component=component))
        assert listener.stage.sent == again
    assert listener.stage.requests[-1][1] is envelope
    # A process that has gone is not attached any more.
    listener.sockets.left.append(b"L1")
    listener.actor.component.readable([])
    listener.stage.sent.clear()
    listener.actor.notify(messages.ComponentReplaced(component="executor"))
    assert listener.stage.sent == []


def test_a_refused_request_gets_no_answer_past_the_mailbox(listener: Listener) -> None:
    envelope = listener.asked(large())
    listener.actor.notify(messages.ComponentReplaced(component="job_queue"))
    listener.sockets.between = Sent.YES
    envelope.reply(SUBMITTED)
    assert listener.errors() == ["component job_queue was restarted"]
    [(name, _)] = listener.stage.sent
    assert name == "wire_listener"


def _is_readable(listener: Listener) -> bool:
    poll = select.poll()
    poll.register(listener.actor.component._open.descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_one_connection_does_not_use_up_what_all_have(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REQUESTS_OPEN_PER_PEER_MAX", 3)
    monkeypatch.setattr(settings, "REQUESTS_COUNTED_SECONDS", 0.0)
    for job_id in range(1, 6):
        listener.come(messages.ReadJob(id=job_id))
    listener.actor.end_turn()
    assert len(listener.stage.requests) == 3
    assert listener.errors() == ["too many requests of this connection are open; try again"] * 2
    # Another one is served as always.
    listener.come(messages.ReadJob(id=7), b"L2")
    listener.actor.end_turn()
    assert listener.stage.requests[-1][1].message == messages.ReadJob(id=7)
    # An answer makes room for another request.
    listener.stage.requests[0][1].reply(messages.JobDocument(id=1, body=b""))
    listener.actor.notify(listener.stage.take_one(messages.ReplyDue))
    listener.come(messages.ReadJob(id=8))
    listener.actor.end_turn()
    assert listener.stage.requests[-1][1].message == messages.ReadJob(id=8)


def test_between_two_counts_each_request_is_added_to_the_share_of_its_connection(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REQUESTS_OPEN_PER_PEER_MAX", 3)
    monkeypatch.setattr(settings, "REQUESTS_COUNTED_SECONDS", 60.0)
    peers = [b"L1", b"L1", b"L2"]
    # With these, one has two open requests and the other one; then all are counted.
    for job_id, peer in enumerate([*peers, b"L1", b"L1", b"L2", b"L2", b"L2"], 1):
        listener.come(messages.ReadJob(id=job_id), peer)
    listener.actor.end_turn()
    taken = [sent[1].message.id for sent in listener.stage.requests]  # type: ignore[attr-defined]
    assert taken == [1, 2, 3, 4, 6, 7]


def test_unanswered_requests_have_a_limit(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REQUESTS_OPEN_MAX", 3)
    monkeypatch.setattr(settings, "REQUESTS_OPEN_PER_PEER_MAX", 3)
    envelopes = [listener.asked(messages.ReadJob(id=job_id)) for job_id in (1, 2, 3)]
    assert listener.errors() == []
    listener.come(messages.ReadJob(id=4))
    listener.actor.end_turn()
    assert listener.errors() == ["too many requests are open; try again"]
    assert listener.stage.take(messages.ReadJob) == []
    # An answer makes room for another request.
    envelopes[0].reply(messages.JobDocument(id=1, body=b""))
    listener.actor.notify(listener.stage.take_one(messages.ReplyDue))
    listener.stage.requests.clear()
    assert listener.asked(messages.ReadJob(id=5)).message == messages.ReadJob(id=5)


def test_a_submission_names_its_user_whatever_it_says(listener: Listener) -> None:
    own = local_user(os.geteuid(), "socket")
    for claimed in (None, Submitter(user="bob", via="rapi"), Submitter(user="x", via="key")):
        asked = listener.asked(messages.SubmitJobs(jobs=[], submitter=claimed))
        assert asked.message == messages.SubmitJobs(jobs=[], submitter=own)
    retried = listener.asked(messages.RetryJob(id=1)).message
    assert isinstance(retried, messages.RetryJob)
    assert retried.submitter == own


def test_the_process_of_the_remote_api_names_its_users(listener: Listener) -> None:
    bob = Submitter(user="bob", via="rapi")
    listener.stage.host.processes["rapi_keeper"] = os.getpid()
    asked = listener.asked(messages.SubmitJobs(jobs=[], submitter=bob)).message
    assert asked == messages.SubmitJobs(jobs=[], submitter=bob)
    # It has no say about other ways in.
    root = listener.asked(messages.SubmitJobs(jobs=[], submitter=Submitter(user="x", via="luxi")))
    assert root.message == messages.SubmitJobs(
        jobs=[], submitter=local_user(os.geteuid(), "socket")
    )


def test_a_remote_client_is_called_as_its_key(listener: Listener) -> None:
    public = "0" * 40
    key = Credentials(kind="remote", key=public, address="10.0.0.1")

    def submitter() -> Submitter | None:
        data = frames.encode(messages.SubmitJobs(jobs=[]), 900)
        listener.sockets.coming.append(Incoming(b"R1", data, key))
        listener.actor.end_turn()
        message = listener.stage.requests.pop()[1].message
        assert isinstance(message, messages.SubmitJobs)
        return message.submitter

    keys.authorise(listener.stage.places.keys, public, "laptop")
    assert submitter() == Submitter(user="laptop", via="key")
    keys.revoke(listener.stage.places.keys, "laptop")
    listener.sockets.coming.append(Incoming(b"R1", frames.encode(messages.ReadInfo(), 901), key))
    listener.actor.end_turn()
    assert listener.errors() == ["the key of this client was revoked"]


def test_a_refused_key_is_logged_with_its_address(listener: Listener) -> None:
    listener.sockets.refused.append(("ab" * 32, "10.0.0.1"))
    listener.sockets.coming.append(Incoming(b"L1", b"", here()))
    listener.actor.end_turn()
    log = listener.stage.log_stream.getvalue()
    assert "a remote client is refused: unknown key" in log
    assert "ab" * 32 in log
    assert "10.0.0.1" in log
