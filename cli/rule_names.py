"""What stands for a filter rule: its name, its UUID, or the beginning of that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..storage import errors
from ..storage.filters import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow

_SHORT = 8
"""Least characters of a UUID that stand for the whole one."""

_BEGINNING = re.compile(rf"[0-9a-f]{{{_SHORT}}}[0-9a-f-]*")


def labels(rows: Sequence[FilterRow]) -> dict[str, str]:
    """What to call each rule, by its UUID: its name, else as much of the UUID as differs."""
    uuids = [row.uuid for row in rows]
    length = next(
        size
        for size in range(_SHORT, len(rules.PROPOSED_UUID) + 1)
        if len({uuid[:size] for uuid in uuids}) == len(set(uuids))
    )
    return {row.uuid: row.name or row.uuid[:length].rstrip("-") for row in rows}


def whole(client: Client, words: Sequence[str]) -> Sequence[str]:
    """The words, with the whole UUID for each that begins that of one rule alone."""
    if not any(map(_is_beginning, words)):
        return words
    rows = client.filters(None)
    return [_whole(word, rows) if _is_beginning(word) else word for word in words]


def _is_beginning(word: str) -> bool:
    return _BEGINNING.fullmatch(word) is not None and not rules.is_uuid(word)


def _whole(word: str, rows: Sequence[FilterRow]) -> str:
    if any(row.name == word for row in rows):
        return word
    found = [row.uuid for row in rows if row.uuid.startswith(word)]
    if len(found) > 1:
        raise errors.UsageError(f"{word!r} begins the UUIDs of {len(found)} rules: give more of it")
    return found[0] if found else word
