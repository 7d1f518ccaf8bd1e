"""Any bytes decode to a frame or raise a `FrameError`, and nothing else."""

from __future__ import annotations

import math
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors, settings
from ganger.transport import frames, messages

ANY = messages.ClientRequest | messages.JobMessage
INFO = {"type": "read_info"}


def refused(data: bytes) -> errors.FrameError:
    with pytest.raises(errors.FrameError) as caught:
        frames.decode(data, ANY)
    assert "\n" not in caught.value.text
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"\x81\x90\x01",  # a map with an array as its key
        b"\x81\x80\x01",  # a map with a map as its key
        b"\xd4\x01\x00",  # an extension type
        b"\xd6\xff\x00\x00\x00\x01",  # a time stamp
        b"\xa1\xff",  # text that is not UTF-8
        b"\xdd\xff\xff\xff\xff",  # an array that claims to be huge
        b"\xdf\xff\xff\xff\xff",  # a map that claims to be huge
        b"\xdb\xff\xff\xff\xff",  # a text that claims to be huge
        b"\xc6\xff\xff\xff\xff",  # bytes that claim to be huge
        b"\xc1",  # a byte that means nothing
        b"\x81\xa4type",  # a map without its value
        b"\x91" * 2_000 + b"\xc0",  # nested too deep
    ],
)
def test_what_msgpack_does_not_take_is_refused(body: bytes) -> None:
    assert refused(b"\x94\x01\x07\xc0" + body).text.startswith("the frame is not valid msgpack: ")


@pytest.mark.parametrize("deadline", [True, math.nan, math.inf, -math.inf, "5", [5], {}])
def test_a_deadline_is_a_finite_number(deadline: object) -> None:
    error = refused(msgpack.packb([1, 7, deadline, INFO]))
    assert isinstance(error, frames.UnreadableMessageError)
    assert (error.text, error.number) == ("the deadline is a number of seconds or nil", 7)


@pytest.mark.parametrize("version", [True, None, "1", 2, 1.5, [1]])
def test_a_version_is_the_number_that_is_spoken(version: object) -> None:
    assert "protocol version" in refused(msgpack.packb([version, 7, None, INFO])).text


def test_nesting_that_msgpack_takes_is_left_to_the_reader_of_the_parameter() -> None:
    nested: object = None
    for _ in range(900):
        nested = [nested]
    body = {"type": "submit_jobs", "jobs": [{"ops": [{"a": nested}]}]}
    message = frames.decode(msgpack.packb([1, 7, None, body]), ANY).message
    assert isinstance(message, messages.SubmitJobs)


def test_a_frame_may_have_the_largest_size_and_no_more() -> None:
    empty = len(frames.encode(messages.JobDocument(id=1, body=b"x" * 100_000)))
    room = settings.FRAME_BYTES_MAX - (empty - 100_000)
    data = frames.encode(messages.JobDocument(id=1, body=bytes(room)))
    assert len(data) == settings.FRAME_BYTES_MAX
    assert frames.decode(data, messages.ClientReply).message == messages.JobDocument(
        id=1, body=bytes(room)
    )
    with pytest.raises(errors.FrameError) as caught:
        frames.encode(messages.JobDocument(id=1, body=bytes(room + 1)))
    expected = f"the message has {len(data) + 1} bytes, more than {settings.FRAME_BYTES_MAX}"
    assert caught.value.text == expected


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"type": "cancel_job", "id": "17"}, r"cancel_job: .*`int`, got `str` - at `\$.id`"),
        ({"type": "cancel_job", "id": 17.5}, r"`int`, got `float` - at `\$.id`"),
        ({"type": "cancel_job", "id": True}, r"`int`, got `bool` - at `\$.id`"),
        ({"type": "cancel_job", "id": None}, r"`int`, got `null` - at `\$.id`"),
        ({"type": "cancel_job"}, "missing required field `id`"),
        ({"type": "cancel_job", "id": 1, "force": True}, "unknown field `force`"),
        ({"type": "list_jobs", "statuses": ["done"]}, r"'done' - at `\$.statuses"),
        ({"type": "submit_jobs", "jobs": [{"ops": {}}]}, r"\$.jobs\[0\].ops"),
        ({"type": "record_state", "body": "text"}, "record_state: "),
        ({"type": b"read_info"}, "message: "),
        ({"type": "x" * 1_000}, "message: "),
        ({b"type": "read_info"}, "message: "),
        ({"type": "jobs_chosen", "start": [1]}, "jobs_chosen: "),
        (["read_info"], "message: "),
    ],
)
def test_a_wrong_field_never_gets_past_the_frame(body: object, text: str) -> None:
    with pytest.raises(frames.UnreadableMessageError, match=text) as caught:
        frames.decode(msgpack.packb([1, 7, None, body]), ANY)
    assert caught.value.number == 7


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_frame_or_a_frame_error(data: bytes) -> None:
    with suppress(errors.FrameError):
        frames.decode(data, ANY)
    with suppress(errors.FrameError):
        frames.decode(b"\x94\x01\x07\xc0" + data, ANY)


_VALID = frames.encode(
    messages.SubmitJobs(jobs=[messages.JobSpec(ops=[{"OP_ID": "OP_X", "a": [1, "b"]}])], key="k"),
    7,
    2.5,
)


@given(st.data())
def test_a_damaged_frame_gives_a_frame_or_a_frame_error(data: st.DataObject) -> None:
    damaged = bytearray(_VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for form in (bytes(damaged), bytes(damaged[:cut])):
        with suppress(errors.FrameError):
            frames.decode(form, ANY)


_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=40),
        st.binary(max_size=70),
        st.just(b"b" * 70_000),
        st.just("t" * 300),
    ),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=90,
)


@given(_VALUES)
def test_a_frame_of_few_values_is_told_without_a_look_at_its_bytes(value: object) -> None:
    data = msgpack.packb(value)
    if frames._has_few_values(data):
        assert _count(value) <= frames._FEW_VALUES
    if _count(value) <= frames._FEW_VALUES and _widest(value) < 16:
        assert frames._has_few_values(data)
    assert not frames._has_few_values(data + b"x")
    assert not frames._has_few_values(data[:-1])


@given(st.binary())
def test_of_arbitrary_bytes_no_more_is_believed(data: bytes) -> None:
    if frames._has_few_values(data):
        with suppress(ValueError, TypeError):
            assert _count(msgpack.unpackb(data, strict_map_key=False)) <= frames._FEW_VALUES


def test_a_large_binary_does_not_hide_containers_beside_it() -> None:
    noise = bytes(range(0x80, 0x100)) * 2_000
    answered = messages.TaskAnswered(frame=noise)
    assert frames.decode(frames.encode(answered, 3), messages.FromNode).message == answered
    many: list[list[int]] = [[]] * (settings.FRAME_CONTAINERS_MAX + 1)
    data = msgpack.packb([messages.PROTOCOL, 3, None, {"type": "x", "a": noise, "b": many}])
    with pytest.raises(frames.UnreadableMessageError, match="arrays and maps") as caught:
        frames.decode(data, messages.FromNode)
    assert caught.value.number == 3


def _count(value: object) -> int:
    match value:
        case list():
            return 1 + sum(map(_count, value))
        case dict():
            return 1 + len(value) + sum(map(_count, value.values()))
    return 1


def _widest(value: object) -> int:
    match value:
        case list():
            return max([len(value), *map(_widest, value)])
        case dict():
            return max([len(value), *map(_widest, value.values())])
    return 0
