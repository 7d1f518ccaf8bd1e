"""Which files the count of `bench.paths` takes for files on the way of a call."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from bench.path_recorder import Recorder

from ganger.storage import wording
from ganger.storage.jobs import jobs
from ganger.transport import frames
from ganger.transport.messages import Done
from ganger.transport.zmq.local_listener import LocalPeer


@pytest.fixture
def peer() -> Iterator[LocalPeer]:
    here, there = socket.socketpair()
    with here, there:
        yield LocalPeer(here, b"peer")


def recorded(recorder: Recorder, work: Callable[[], object]) -> None:
    """Do the work in a thread that is recorded."""

    def watched() -> None:
        sys.setprofile(recorder.note)
        work()

    thread = threading.Thread(target=watched)
    thread.start()
    thread.join()


def test_the_way_to_a_reply_has_the_files_of_the_thread_that_sends_it(peer: LocalPeer) -> None:
    recorder = Recorder()

    def answer() -> None:
        wording.counted(1, "job")
        # Another thread works meanwhile.
        recorded(recorder, lambda: frames.encode(Done()))
        peer.write(b"reply")

    recorded(recorder, answer)

    assert recorder.files_to_reply(time.monotonic()) == {
        "storage/wording.py",
        "transport/zmq/local_listener.py",
    }


def test_what_a_thread_does_after_its_reply_is_not_on_the_way(peer: LocalPeer) -> None:
    recorder = Recorder()

    def answer() -> None:
        peer.write(b"reply")
        jobs.timestamp(0.0)

    recorded(recorder, answer)

    assert recorder.files_to_reply(time.monotonic()) == {"transport/zmq/local_listener.py"}


def test_a_frame_that_is_sent_after_the_end_of_the_call_is_none_of_its_replies(
    peer: LocalPeer,
) -> None:
    recorder = Recorder()
    until = time.monotonic()

    recorded(recorder, lambda: peer.write(b"reply"))

    assert recorder.files_to_reply(until) == set()


def test_the_recorder_forgets_what_was_before_a_call(peer: LocalPeer) -> None:
    recorder = Recorder()
    recorded(recorder, lambda: peer.write(b"reply"))

    recorder.begin()

    assert recorder.files_to_reply(time.monotonic()) == set()
