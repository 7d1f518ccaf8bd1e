"""Messages as msgpack frames, and back, strictly: the decoder refuses a wrong field.

A frame is one msgpack array: protocol version, request number, seconds until the deadline
(or nil), the message as a map with its ``type``. The sender of a request chooses its number, the
reply repeats it, and a notice has 0. The unpacker limits how deep values nest; for values that
are stored, so does `storage.plain_values`.

There are two readers. A typed decoder reads a valid frame whole. A frame that it refuses is
read again, part by part, so that the error names the fault and, if possible, the request's
number. The second reader's library is imported only then: a job process shares its memory with
the fork server, and never needs it.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec

from ..storage import errors, settings
from ..storage.plain_values import encodable
from .messages import PROTOCOL, Message

_encode = msgspec.msgpack.Encoder().encode

_SURELY_FEW_BYTES = settings.FRAME_CONTAINERS_MAX
_CONTAINER_HEADS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
"""The bytes with which an array or a map begins."""


_FEW_VALUES = 64
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Heads of binaries and texts, each with the width of the size that follows it."""

_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, **{0xCC + n: 1 << n for n in range(4)}}
_FIXED |= {0xD0 + n: 1 << n for n in range(4)}
"""Heads of other values but containers, each with the bytes that follow it."""


class Frame(msgspec.Struct, frozen=True):
    """What a frame holds besides its version."""

    number: int
    message: Message
    deadline_seconds: float | None = None


def encode(message: Message, number: int = 0, deadline_seconds: float | None = None) -> bytes:
    """The frame for ``message``; `FrameError` if it is larger than the limit."""
    data = _encode((PROTOCOL, number, deadline_seconds, message))
    if len(data) > settings.FRAME_BYTES_MAX:
        text = f"the message has {len(data)} bytes, more than {settings.FRAME_BYTES_MAX}"
        raise errors.FrameError(text)
    return data


def encode_reply(message: Message, number: int) -> bytes:
    """As `encode`, with escapes for what UTF-8 cannot hold: a reply may name any file."""
    try:
        return encode(message, number)
    except UnicodeEncodeError:
        return encode(encodable(message), number)


def decode(data: bytes, allowed: Any) -> Frame:  # noqa: ANN401 - a union of message types
    """The frame in ``data``, whose message must be one of the union ``allowed``.

    Raises `FrameError` for anything else; `UnreadableMessageError` (a `FrameError` that
    knows the request's number) if the number is readable, so that the listener can reply.
    """
    if len(data) > _SURELY_FEW_BYTES and not _has_few_values(data):
        _check_containers(data)
    if len(data) <= settings.FRAME_BYTES_MAX:
        known = _known.get(id(allowed))
        decoder = known[1] if known is not None else _decoder(allowed)
        try:
            version, number, deadline, message = decoder(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError):
            return _decode_in_parts(data, allowed)
        if version == PROTOCOL and number >= 0 and (deadline is None or math.isfinite(deadline)):
            return Frame(number, message, deadline)
    return _decode_in_parts(data, allowed)


_Decoder = Callable[[bytes], tuple[int, int, float | None, Message]]

_known: dict[int, tuple[object, _Decoder]] = {}
"""Decoders by the `id` of their unions, kept alive here: to hash a union takes long."""

_KNOWN_MAX = 64


def _decoder(allowed: Any) -> _Decoder:  # noqa: ANN401
    decoder = _new_decoder(allowed)
    if len(_known) < _KNOWN_MAX:
        _known[id(allowed)] = (allowed, decoder)
    return decoder


_building = _thread.allocate_lock()
"""One thread makes a decoder at a time. msgspec notes what it finds out of a class before it knows
all of it, and another thread that needs the same class meanwhile ends the process."""


@functools.cache
def _new_decoder(allowed: Any) -> _Decoder:  # noqa: ANN401
    return new_decoder(tuple[int, int, float | None, allowed])


def new_decoder(expected: Any) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type with messages in it
    """Decodes msgpack of this type. Any thread may make one."""
    with _building:
        return msgspec.msgpack.Decoder(expected).decode


def _decode_in_parts(data: bytes, allowed: Any) -> Frame:  # noqa: ANN401
    parts = _unpack(data)
    if not (isinstance(parts, list) and len(parts) == 4):  # noqa: PLR2004 - the four parts above
        raise errors.FrameError("a frame is an array of version, number, deadline and message")
    version, number, deadline, body = parts
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise errors.FrameError("the second part of a frame is the request's number")
    if isinstance(version, bool) or version != PROTOCOL:
        text = f"the frame has protocol version {version!r}, expected {PROTOCOL}"
        raise UnreadableMessageError(text, number, is_of_other_version=True)
    if deadline is not None and not _is_number(deadline):
        raise UnreadableMessageError("the deadline is a number of seconds or nil", number)
    try:
        message = msgspec.convert(body, allowed)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableMessageError(f"{_kind(body)}: {error}", number) from error
    return Frame(number, message, deadline)


class UnreadableMessageError(errors.FrameError):
    """The receiver does not know the message of the frame."""

    def __init__(
        self, text: str | None = None, number: int = 0, *, is_of_other_version: bool = False
    ) -> None:
        super().__init__(text)
        self.number = number
        self.is_of_other_version = is_of_other_version
        """Whether its sender would not understand a reply either."""


def _unpack(data: bytes) -> object:
    import msgpack  # noqa: PLC0415 - see above

    if len(data) > settings.FRAME_BYTES_MAX:
        text = f"the frame has {len(data)} bytes, more than {settings.FRAME_BYTES_MAX}"
        raise errors.FrameError(text)
    try:
        value: object = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            max_array_len=settings.FRAME_ITEMS_MAX,
            max_map_len=settings.FRAME_ITEMS_MAX,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        # A TypeError: a map whose key is itself a map or an array.
        reason = str(error) or type(error).__name__
        raise errors.FrameError(f"the frame is not valid msgpack: {reason}") from error
    return value


def _has_few_values(data: bytes) -> bool:
    """Whether the frame is large for its texts and binaries alone: it holds few values.

    Of a page of output, to look at each byte takes longer than all the rest.
    """
    place, size, left = 0, len(data), 1
    for _ in range(_FEW_VALUES):
        if not left or place >= size:
            break
        head = data[place]
        place, left = place + 1, left - 1
        if head in _SIZED:
            width = _SIZED[head]
            place += width + int.from_bytes(data[place : place + width], "big")
        elif 0xA0 <= head < 0xC0:  # noqa: PLR2004 - a short text
            place += head & 0x1F
        elif 0x80 <= head < 0xA0:  # noqa: PLR2004 - a short array, or a map with keys and values
            left += head & 0x0F if head >= 0x90 else 2 * (head & 0x0F)  # noqa: PLR2004
        elif 0x80 <= head < 0xE0:  # noqa: PLR2004 - others but small numbers
            if head not in _FIXED:
                return False
            place += _FIXED[head]
    return not left and place == size


def _check_containers(data: bytes) -> None:
    """Raise `FrameError` if the frame holds more arrays and maps than a frame may."""
    if len(data) - len(data.translate(None, _CONTAINER_HEADS)) <= settings.FRAME_CONTAINERS_MAX:
        # There cannot be more than bytes that could begin one.
        return
    import msgpack  # noqa: PLC0415 - see above

    count = 0
    number = _number_of(data)

    def note(_: object) -> None:
        nonlocal count
        count += 1
        if count > settings.FRAME_CONTAINERS_MAX:
            text = f"the frame holds more than {settings.FRAME_CONTAINERS_MAX} arrays and maps"
            raise UnreadableMessageError(text, number)

    # The decoder reports all other faults of the frame.
    with contextlib.suppress(ValueError, TypeError, RecursionError, msgpack.UnpackException):
        msgpack.unpackb(data, strict_map_key=False, list_hook=note, object_hook=note)


def _number_of(data: bytes) -> int:
    """The request's number, if it can be read; else 0."""
    import msgpack  # noqa: PLC0415 - see above

    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    try:
        unpacker.read_array_header()
        unpacker.skip()
        number = unpacker.unpack() if data[1:2] == _encode(PROTOCOL) else 0
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return 0
    return number if type(number) is int and number >= 0 else 0


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value)


def _kind(body: object) -> str:
    kind = body.get("type") if isinstance(body, dict) else None
    return kind if isinstance(kind, str) and len(kind) < 40 else "message"  # noqa: PLR2004
