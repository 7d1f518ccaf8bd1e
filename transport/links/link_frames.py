"""Frames between the processes of one daemon: any message, to any component, and back.

A frame is one msgpack array: the receiver's name (empty: a reply), the request's number (0: a
notice), seconds until the deadline or nil, the message. Only processes of the same daemon send
them to each other, so both have the same version, and the decoder need not be as patient as that
of `frames`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from ...storage import errors, settings
from ...storage.filters import rules
from ...storage.plain_values import encodable
from .. import frames, messages
from ..messages import Message, filter_evaluator, several

_encode = msgspec.msgpack.Encoder().encode


class LinkFrame(msgspec.Struct, frozen=True):
    """What a frame holds. ``to``: a component; empty: the message is a reply."""

    to: str
    number: int
    deadline_seconds: float | None
    message: Message


def encode(
    to: str, message: Message, number: int = 0, deadline_seconds: float | None = None
) -> bytes:
    """The frame for ``message``; `FrameError` if it is too large, or holds no plain values."""
    try:
        try:
            data = _encode((to, number, deadline_seconds, message))
        except UnicodeEncodeError:
            # It names a file, which may have any name.
            data = _encode((to, number, deadline_seconds, encodable(message)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        kind = type(message).__name__
        raise errors.FrameError(f"{kind} cannot go to another process: {error}") from error
    if len(data) > settings.FRAME_BYTES_MAX:
        text = f"the message has {len(data)} bytes, more than {settings.FRAME_BYTES_MAX}"
        raise errors.FrameError(text)
    return data


def decode(data: bytes) -> LinkFrame:
    """The frame in ``data``; `FrameError` if it is none."""
    try:
        return LinkFrame(*_decoder()(data))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise errors.FrameError(f"no frame of another process: {error}") from error


@functools.cache
def _decoder() -> Callable[[bytes], tuple[str, int, float | None, Message]]:
    # Clients and jobs have these messages too, but never need the rules in them.
    for module in (filter_evaluator, several):
        vars(module)["FilterRule"] = rules.FilterRule
    unions = [*messages.ACCEPTED.values(), *_REPLIES]
    every: Any = functools.reduce(operator.or_, dict.fromkeys(sum(map(get_args, unions), ())))
    return frames.new_decoder(tuple[str, int, float | None, every])


_REPLIES = (
    messages.ClientReply,
    messages.ToJob,
    messages.ComponentReply,
    messages.ToNode,
    messages.FromNode,
)
