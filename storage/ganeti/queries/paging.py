"""Answers to queries page by page: one reply is bounded in size, and one turn in time.

A page begins where the one before it ended: behind an item, whatever has changed since. So every
item that exists all the time comes once, and a reader needs no memory of earlier pages.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ... import errors
from ...plain_values import encoded
from ...wording import brief
from .answering import ParsedQuery, Resource
from .fields import Item, Source

FIELDS_MAX: Final = 1_000
"""Most fields in one query; each may be named more than once."""

FIELD_NAME_MAX: Final = 100
"""Longest name of a field, in characters: its definition repeats it, also if it is unknown."""


class Bounds(NamedTuple):
    """Where a page ends: before ``page_bytes`` of JSON, or when ``is_enough``, asked after each.

    A single item may be larger than a page; ``reply_bytes``: as large as a reply may be.
    """

    page_bytes: int
    reply_bytes: int
    is_enough: Callable[[], bool]


class Page(NamedTuple):
    """Part of an answer: definitions, items as a JSON array of rows, and where the next begins."""

    fields: list[dict[str, str]]
    rows: bytes
    next_after: str | None
    """None: this is the last page. A page may have no rows, and not be the last."""


def page(
    resource: Resource[Source],
    source: Source,
    fields: Sequence[str],
    raw_filter: object,
    after: str | None,
    *,
    bounds: Bounds,
    is_classic: bool = False,
) -> Page:
    """The page behind the mark ``after``; None: the first. ``is_classic``: as `answering.values`.

    Raises what `answering.query` raises (or `answering.values`), and `BadRequestError` if ``after``
    is no mark, if there are too many fields, or if a single item is too large for a reply.
    """
    check_fields(fields)
    asked = ParsedQuery(resource, fields, raw_filter, is_classic=is_classic)
    return page_of(asked, source, after, bounds)


def page_of(asked: ParsedQuery[Source], source: Source, after: str | None, bounds: Bounds) -> Page:
    """As `page`, of a query that was checked before: all pages of an answer may share it."""
    resource = asked.resource
    definitions = asked.definitions()
    room = bounds.reply_bytes - len(encoded(definitions))
    rows: list[bytes] = []
    size, mark = 2, after
    for item, own_mark, is_wanted in _looked_at(asked, source, after):
        if mark is not after and bounds.is_enough():
            return Page(definitions, _joined(rows), mark)
        if is_wanted:
            row = encoded(asked.row(source, item))
            if rows and size + len(row) > bounds.page_bytes:
                return Page(definitions, _joined(rows), mark)
            if len(row) > room:
                raise _too_large(resource, resource.mark(item), len(row), room)
            rows.append(row)
            size += len(row) + 1
        mark = own_mark
    return Page(definitions, _joined(rows), None)


def check_fields(fields: Sequence[str]) -> None:
    """Raise `BadRequestError` if there are too many, or one is too long."""
    if len(fields) > FIELDS_MAX:
        raise errors.BadRequestError(f"fields: expected at most {FIELDS_MAX}, got {len(fields)}")
    for name in fields:
        if len(name) > FIELD_NAME_MAX:
            text = f"fields: {brief(name)} has more than {FIELD_NAME_MAX} characters"
            raise errors.BadRequestError(text)


def _looked_at(
    asked: ParsedQuery[Source], source: Source, after: str | None
) -> Iterator[tuple[Item, str, bool]]:
    """Each item behind the mark, its mark, and whether it passes the filter."""
    if asked.is_as_named:
        begin = 0 if after is None else max(0, _place(int, after) + 1)
        for number, item in enumerate(asked.named(source, begin), begin):
            yield item, str(number), True
        return
    resource = asked.resource
    if asked.names is not None:
        for item in _behind(resource, asked.known(source), after):
            yield item, resource.mark(item), True
        return
    for item in _behind(resource, resource.items(source), after):
        yield item, resource.mark(item), asked.passes(source, item)


def _behind(resource: Resource[Source], items: Iterable[Item], after: str | None) -> Iterable[Item]:
    if after is None:
        return items
    place = _place(resource.place, after)

    def place_of(item: Item) -> Any:  # noqa: ANN401 - a key
        return resource.place(resource.mark(item))

    if isinstance(items, Sequence):
        return items[bisect.bisect_right(items, place, key=place_of) :]
    return itertools.dropwhile(lambda item: place_of(item) <= place, items)


def _place(parse: Callable[[str], Any], mark: str) -> Any:  # noqa: ANN401 - a key
    try:
        return parse(mark)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise errors.BadRequestError("after: expected what an earlier page ended with") from error


def _too_large(resource: Resource[Any], mark: str, size: int, room: int) -> errors.BadRequestError:
    return errors.BadRequestError(
        f"{resource.name} {brief(mark)}: these fields of it have {size} bytes as JSON, and a reply "
        f"has room for {room}; ask for fewer fields"
    )


def _joined(rows: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(rows)
