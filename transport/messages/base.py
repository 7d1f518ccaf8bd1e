"""What every message is: a request, a reply or a notice."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

PROTOCOL = 1
"""Version of the frames; a frame of another version is refused."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Message(msgspec.Struct, frozen=True, tag=_snake, tag_field="type", kw_only=True):
    """Base of all messages.

    The tag is the class name in snake case. A class or a field that was renamed keeps its old name
    on the wire, because released clients and job processes use it.
    """


ReplyT_co = TypeVar("ReplyT_co", bound="Message", covariant=True)


class Request(
    Message,
    Generic[ReplyT_co],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A message with an answer: a ``ReplyT_co`` or a `Failure`.

    An unknown field is refused: it may be a misspelt ``dry_run``.
    """


class Reply(Message, frozen=True, kw_only=True):
    """An answer."""


class InterimReply(Reply, frozen=True, kw_only=True):
    """An answer after which another one follows."""


class Notice(Message, frozen=True, kw_only=True):
    """A message without an answer."""


class Failure(Reply, frozen=True):
    """The request failed. ``error`` names an error class of `storage.errors`."""

    error: str
    text: str


class Done(Reply, frozen=True):
    """The request is done, and there is nothing to report."""
