"""Messages as msgpack frames, and back, strictly: a wrong field never gets past this file.

A frame is one msgpack array: protocol version, request number, seconds until the deadline
(or nil), the message as a map with its ``type``. Numbers belong to the sender: a reply
carries the number of its request; a notice carries 0. How deep values nest is limited by
the unpacker, and for what is stored by `storage.explanations`.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack
import msgspec

from ..storage import errors, settings
from .messages import PROTOCOL, Message


class Frame(msgspec.Struct, frozen=True):
    """What a frame holds besides its version."""

    number: int
    message: Message
    deadline_seconds: float | None = None


def encode(message: Message, number: int = 0, deadline_seconds: float | None = None) -> bytes:
    """The frame for ``message``; `FrameError` if it is larger than the limit."""
    body = msgspec.to_builtins(message, builtin_types=(bytes,))
    data: bytes = msgpack.packb([PROTOCOL, number, deadline_seconds, body], use_bin_type=True)
    if len(data) > settings.FRAME_BYTES_MAX:
        text = f"the message has {len(data)} bytes, more than {settings.FRAME_BYTES_MAX}"
        raise errors.FrameError(text)
    return data


def decode(data: bytes, allowed: Any) -> Frame:  # noqa: ANN401 - a union of message types
    """The frame in ``data``, whose message must be one of the union ``allowed``.

    Raises `FrameError` for anything else; `UnreadableMessageError` (a `FrameError` that
    knows the request's number) once the number could be read, so that the door can answer.
    """
    parts = _unpack(data)
    if not (isinstance(parts, list) and len(parts) == 4):  # noqa: PLR2004 - the four parts above
        raise errors.FrameError("a frame is an array of version, number, deadline and message")
    version, number, deadline, body = parts
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise errors.FrameError("the second part of a frame is the request's number")
    if isinstance(version, bool) or version != PROTOCOL:
        text = f"the frame has protocol version {version!r}, expected {PROTOCOL}"
        raise UnreadableMessageError(text, number)
    if deadline is not None and not _is_number(deadline):
        raise UnreadableMessageError("the deadline is a number of seconds or nil", number)
    try:
        message = msgspec.convert(body, allowed)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableMessageError(f"{_kind(body)}: {error}", number) from error
    return Frame(number, message, deadline)


class UnreadableMessageError(errors.FrameError):
    """The frame's message is not one that is known here."""

    def __init__(self, text: str | None = None, number: int = 0) -> None:
        super().__init__(text)
        self.number = number


def _unpack(data: bytes) -> object:
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
        raise errors.FrameError(f"the frame is not valid msgpack: {error}") from error
    return value


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value)


def _kind(body: object) -> str:
    kind = body.get("type") if isinstance(body, dict) else None
    return kind if isinstance(kind, str) and len(kind) < 40 else "message"  # noqa: PLR2004
