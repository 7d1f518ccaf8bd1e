"""Makes one page of objects of the configuration, small enough for a reply, short for a turn.

A page begins behind the object with which the one before it ended, in the order of the UUIDs (or of
the names asked for), whatever has changed since. So an object that exists all the time comes once.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ...storage import errors, settings
from ...storage.cluster.differences import masked
from ...storage.cluster.objects import CONTAINERS
from ...storage.plain_values import encoded
from ...transport import messages
from . import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...storage.cluster.configuration import Configuration


def page(
    snapshot: Configuration, message: messages.ReadObjects, is_enough: Callable[[], bool]
) -> messages.ObjectsRead:
    """The page that the message asks for: up to `QUERY_PAGE_BYTES_MAX`, but at least one object.

    It also ends when ``is_enough``, asked after each object. Raises `UnknownObjectError`, and
    `BadRequestError` if ``after`` is no mark.
    """
    found: list[dict[str, Any]] = []
    size, mark = 0, None
    for own_mark, one in _behind(snapshot, message):
        size += len(encoded(one))
        if mark is not None and (size > settings.QUERY_PAGE_BYTES_MAX or is_enough()):
            break
        found.append(one)
        mark = own_mark
    else:
        mark = None
    return messages.ObjectsRead(serial_no=snapshot.serial_no, objects=found, next_after=mark)


def counted(snapshot: Configuration) -> messages.ObjectsCounted:
    """How many objects of each kind there are; costs nothing."""
    counts = {kind.value: snapshot.count(kind) for kind in CONTAINERS}
    return messages.ObjectsCounted(serial_no=snapshot.serial_no, counts=counts)


def _behind(
    snapshot: Configuration, message: messages.ReadObjects
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object behind the mark, without its secrets, and its own mark."""
    kind, after = message.kind, message.after
    if message.names is None:
        uuids = (uuid for uuid, _ in snapshot.objects(kind) if after is None or uuid > after)
        for uuid in sorted(uuids):
            yield uuid, masked(snapshot.get(kind, uuid))
        return
    begin = 0 if after is None else _number(after) + 1
    for number, name in itertools.islice(enumerate(message.names), begin, None):
        yield str(number), objects.found(snapshot, kind, name)


def _number(mark: str) -> int:
    if not mark.isascii() or not mark.isdigit() or len(mark) > len(str(2**32)):
        raise errors.BadRequestError("after: expected what an earlier page ended with")
    return int(mark)
