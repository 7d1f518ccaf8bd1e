"""What every message is: a request, a reply or a notice."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

PROTOCOL = 1
"""Version of the frames; a peer that speaks another one is told so."""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


class Message(msgspec.Struct, frozen=True, tag=_snake, tag_field="type", kw_only=True):
    """Anything that is said."""


ReplyT_co = TypeVar("ReplyT_co", bound="Message", covariant=True)


class Request(
    Message,
    Generic[ReplyT_co],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Something that is answered, by a ``ReplyT_co`` or a `Failure`.

    A field that is not known is refused: if it is a misspelt ``dry_run``, jobs depend on it.
    """


class Reply(Message, frozen=True, kw_only=True):
    """An answer."""


class Notice(Message, frozen=True, kw_only=True):
    """Something that is not answered."""


class Failure(Reply, frozen=True):
    """The request failed: the name of an error class of `storage.errors`, and its text."""

    error: str
    text: str


class Done(Reply, frozen=True):
    """It is done, and there is nothing more to say."""
