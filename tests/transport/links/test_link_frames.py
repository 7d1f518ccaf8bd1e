"""Frames between the processes of one daemon."""

from __future__ import annotations

import inspect
from typing import get_args

import msgspec
import pytest

from ganger.storage import errors, settings
from ganger.storage.filters import rules
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.links import link_frames
from ganger.transport.links.link_frames import LinkFrame

OWNER = Owner(7, "/l/job_000007_1", 815)
EVERY_FILTER = [
    "&",
    ["|", None, ["?", "a"], ["!", ["=", "b", 1]]],
    ["=~", "c", "^d"],
    ["=[]", "e", "f"],
    ["<", "g", 3],
]
RULE = rules.parse_rule(
    {
        "uuid": "0d3d5d1c-2b6f-4c3e-8f8e-3a1d9e1f0a11",
        "watermark": 4,
        "predicates": [["jobid", ["=", "id", 1]], ["opcode", EVERY_FILTER]],
        "action": ["RATE_LIMIT", 3],
        "reason_trail": [["gnt", "why", 5]],
        "valid_until": 1.5,
        "another": {"key": [1, "two"]},
    }
)


@pytest.mark.parametrize(
    "frame",
    [
        LinkFrame("lock_manager", 3, 1.5, messages.RequestLocks(OWNER, 0, [("node/a", "shared")])),
        LinkFrame("", 3, None, messages.LocksPending([OWNER])),
        LinkFrame("filter_evaluator", 0, None, messages.RulesChanged(rules=[RULE], serial=8)),
        LinkFrame("config_store", 0, None, messages.ComponentReplaced("job_queue")),
        LinkFrame("supervisor", 0, None, messages.ComponentFailed("lock_manager", 2, "why")),
        LinkFrame("job_queue", 9, 60.0, messages.ReadLastId()),
    ],
    ids=lambda frame: type(frame.message).__name__,
)
def test_what_was_sent_arrives(frame: LinkFrame) -> None:
    sent = link_frames.encode(frame.to, frame.message, frame.number, frame.deadline_seconds)
    assert link_frames.decode(sent) == frame


def test_every_message_that_a_component_accepts_can_be_read() -> None:
    accepted = {kind for union in messages.ACCEPTED.values() for kind in get_args(union)}
    replies = {
        kind
        for _, kind in inspect.getmembers(messages, inspect.isclass)
        if issubclass(kind, messages.Reply) and kind not in (messages.Reply, messages.InterimReply)
    }
    for kind in accepted | replies:
        named = {"type": kind.__struct_config__.tag}
        refusal = _refusal(msgspec.msgpack.encode(("x", 0, None, named)))
        # It knows the name, and perhaps lacks fields.
        assert not refusal or "missing required field" in refusal, kind


def test_a_message_that_is_too_large_is_refused() -> None:
    large = messages.ComponentFailed("x", 1, "y" * settings.FRAME_BYTES_MAX)
    with pytest.raises(errors.FrameError, match="more than"):
        link_frames.encode("supervisor", large)


def test_a_value_that_is_not_plain_is_refused() -> None:
    odd = messages.SetValues(kind="cluster", name="", values=[(["a"], object())])  # type: ignore[arg-type]
    with pytest.raises(errors.FrameError, match="SetValues cannot go to another process"):
        link_frames.encode("config_store", odd)


def test_a_file_name_that_is_no_text_is_escaped() -> None:
    failure = messages.Failure("StorageError", "/data/\udcff: full")
    assert "\\udcff" in link_frames.decode(link_frames.encode("", failure)).message.text  # type: ignore[attr-defined]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x94\xa0\x00\xc0", b"\x90" * 5_000])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(errors.FrameError):
        link_frames.decode(data)


def _refusal(data: bytes) -> str:
    try:
        link_frames.decode(data)
    except errors.FrameError as error:
        return error.text
    return ""
