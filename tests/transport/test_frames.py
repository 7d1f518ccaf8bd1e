"""Frames: what is accepted, byte for byte, and how everything else is refused."""

from __future__ import annotations

import os
import threading
from typing import Any, get_args

import msgpack
import msgspec
import pytest

from ganger.storage import errors, settings
from ganger.transport import frames, messages
from ganger.transport.messages import PROTOCOL, JobSpec, ListJobs, SubmitJobs

REQUESTS = messages.ClientRequest
LIST = {"type": "list_jobs"}


def pack(*parts: object) -> bytes:
    data: bytes = msgpack.packb(list(parts))
    return data


def test_a_message_comes_out_as_it_went_in() -> None:
    spec = JobSpec(ops=[{"OP_ID": "OP_X", "a": [1, None, {"b": "ä"}]}], depends=[(-1, ["error"])])
    message = SubmitJobs(jobs=[spec], key="k")
    frame = frames.decode(frames.encode(message, 7, 2.5), REQUESTS)
    assert frame == frames.Frame(7, message, 2.5)


def test_bytes_stay_bytes() -> None:
    document = messages.JobDocument(id=3, body=b'\x00\xff{"id": 3}')
    assert frames.decode(frames.encode(document, 1), messages.ClientReply).message == document


@pytest.mark.parametrize(
    ("message", "golden"),
    [
        (
            messages.CancelJob(id=17),
            "940105cb400400000000000082a474797065aa63616e63656c5f6a6f62a2696411",
        ),
        (
            messages.OutputPage(data=b"\x00\xff", size=2),
            "940105cb400400000000000083a474797065ab6f75747075745f70616765a464617461c40200ffa473697a6502",
        ),
        (messages.Done(), "940105cb400400000000000081a474797065a4646f6e65"),
    ],
)
def test_the_bytes_of_a_frame_do_not_change(message: messages.Message, golden: str) -> None:
    assert frames.encode(message, 5, 2.5).hex() == golden


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not valid msgpack"),
        (b"\xc1", "not valid msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not valid msgpack"),
        (pack(1, 2) + b"more", "not valid msgpack"),
        (b"\x91" * 100_000, "not valid msgpack"),
        (msgpack.packb({"a": 1}), "a frame is an array"),
        (pack(PROTOCOL, 1, None), "a frame is an array"),
        (pack(PROTOCOL, "1", None, LIST), "the request's number"),
        (msgpack.packb([PROTOCOL, True, None, LIST]), "the request's number"),
        (pack(PROTOCOL, -1, None, LIST), "the request's number"),
        (b"x" * (settings.FRAME_BYTES_MAX + 1), "more than"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(errors.FrameError, match=text) as caught:
        frames.decode(data, REQUESTS)
    assert not isinstance(caught.value, frames.UnreadableMessageError)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((PROTOCOL + 1, 7, None, LIST), f"protocol version {PROTOCOL + 1}, expected {PROTOCOL}"),
        ((PROTOCOL, 7, "soon", LIST), "the deadline is a number"),
        ((PROTOCOL, 7, None, {"type": "no_such"}), "no_such"),
        ((PROTOCOL, 7, None, {}), "message: .*type"),
        ((PROTOCOL, 0, None, 5), "message: "),
        ((PROTOCOL, 7, None, {"type": "x" * 39}), "x" * 39),
        ((PROTOCOL, 7, None, {"type": "x" * 40}), "^message: "),
        ((PROTOCOL, 7, None, {**LIST, "limit": "many"}), r"list_jobs: .*int.*\$\.limit"),
        ((PROTOCOL, 7, None, {"type": "boot"}), "boot: "),
        ((PROTOCOL, 7, None, {"type": "submit_jobs", "jobs": [{"ops": [1]}]}), "submit_jobs: "),
        (
            (PROTOCOL, 7, None, {"type": "submit_jobs", "jobs": [{"ops": [], "colour": 1}]}),
            "submit_jobs: .*colour",
        ),
    ],
)
def test_a_request_that_cannot_be_read_can_still_be_answered(
    parts: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(frames.UnreadableMessageError, match=text) as caught:
        frames.decode(pack(*parts), REQUESTS)
    assert caught.value.number == parts[1]


def test_a_message_larger_than_the_limit_is_not_made() -> None:
    with pytest.raises(errors.FrameError, match=str(settings.FRAME_BYTES_MAX)):
        frames.encode(messages.JobDocument(id=1, body=bytes(settings.FRAME_BYTES_MAX)))


def test_every_client_request_has_a_receiver_and_names_its_reply() -> None:
    for request in get_args(messages.ClientRequest):
        assert request in messages.RECEIVERS
        if request is messages.StopWatch:
            continue
        (base,) = request.__orig_bases__
        (reply,) = get_args(base)
        for each in get_args(reply) or (reply,):
            assert each in get_args(messages.ClientReply), request


def test_defaults_need_not_be_sent() -> None:
    frame = frames.decode(pack(PROTOCOL, 1, None, LIST), REQUESTS)
    assert frame.message == ListJobs()


def test_a_frame_of_too_many_arrays_is_refused_under_its_number() -> None:
    many = settings.FRAME_CONTAINERS_MAX
    # The frame, the message and the list of these are three more.
    for more, number in ((0, 7), (1, 7), (1, 0)):
        ids: list[list[int]] = [[]] * (many - 3 + more)
        # A byte that looks like the beginning of one makes the reader count.
        data = pack(PROTOCOL, number, None, {"type": "list_jobs", "ids": ids, "x": "\u0440"})
        with pytest.raises(errors.FrameError) as caught:
            frames.decode(data, REQUESTS)
        assert (f"more than {many} arrays" in caught.value.text) == (more == 1)
        if isinstance(caught.value, frames.UnreadableMessageError):
            assert caught.value.number == number
    # Bytes that look like the beginning of one, as in other alphabets, are not counted.
    text = "\u0440" * (2 * many)
    spec = messages.JobSpec(ops=[{"OP_ID": "OP_EXEC", "argv": ["echo", text]}])
    submission = messages.SubmitJobs(jobs=[spec])
    assert frames.decode(frames.encode(submission, 8), REQUESTS).message == submission


def test_one_thread_makes_a_decoder_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two threads that look at one class for the first time ended the process in msgspec.
    at_work: list[int] = []
    most = 0
    both = threading.Barrier(2)

    class SlowDecoder:
        def __init__(self, _: object) -> None:
            nonlocal most
            at_work.append(1)
            most = max(most, len(at_work))
            for _step in range(1_000):
                # The other thread gets its turn here, if nothing keeps it.
                os.sched_yield()
            at_work.pop()

        def decode(self, _: bytes) -> object:
            return None

    def make() -> None:
        both.wait()
        frames.new_decoder(int)

    monkeypatch.setattr(msgspec.msgpack, "Decoder", SlowDecoder)
    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
