"""What resources of Ganeti's nouns read by queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...storage import errors
from ..declarations import Call, Parameter
from ..problems import HttpError
from ..rows import uris

LOCK: Final = Parameter("lock", bool, "1: refused, as locking is not possible.")
STAMP_FIELDS: Final = ("ctime", "mtime", "uuid", "serial_no", "tags")
"""The fields with which the objects of the configuration end."""


async def objects(
    call: Call, what: str, fields: Sequence[str], raw_filter: object = None
) -> list[dict[str, Any]]:
    """The values of these fields for all items, or those that pass; None where there is none."""
    return (await call.client.query(what, fields, raw_filter)).items


async def one(call: Call, what: str, fields: Sequence[str], name: str) -> dict[str, Any]:
    """The object with this name or UUID; `HttpError` 404 if there is none."""
    try:
        [found] = await objects(call, what, fields, ["==", "name", name])
    except errors.UnknownObjectError as error:
        raise HttpError(404) from error
    return found


async def index(call: Call, what: str, path: str, key: str) -> list[dict[str, Any]]:
    """The names of all items, each with the path of its resource."""
    rows = (await call.client.query(what, ["name"])).data
    return uris((name for ((_status, name),) in rows), path, key)


def refuse_locking(call: Call) -> None:
    """`HttpError` 500, as LuxiD's, if the request asks for locks."""
    if call.flag("lock"):
        raise HttpError(500, str(("Sync queries are not allowed", "wrong_input")))
