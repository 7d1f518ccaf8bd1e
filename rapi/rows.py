"""What resources read by queries: objects with the values of fields, or the ids of all items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..storage import errors
from .declarations import Call, Parameter
from .problems import HttpError

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient

BULK: Final = Parameter("bulk", bool, "1: whole objects.")
LOCK: Final = Parameter("lock", bool, "1: refused, as locking is not possible.")
STAMP_FIELDS: Final = ("ctime", "mtime", "uuid", "serial_no", "tags")
"""The fields with which the objects of the configuration end."""


_decode_rows: Final = msgspec.json.Decoder(list[list[tuple[int, msgspec.Raw]]]).decode


async def raw_objects(
    call: Call, what: str, fields: Sequence[str], raw_filter: object = None
) -> list[dict[str, Any]]:
    """As `objects`, for those who only pass the values on: they stay JSON."""
    return await raw_objects_of(call.client, what, fields, raw_filter)


async def raw_objects_of(
    client: AsyncClient, what: str, fields: Sequence[str], raw_filter: object = None
) -> list[dict[str, Any]]:
    """As `raw_objects`, apart from a request."""
    _, data = await client.query_json(what, fields, raw_filter)
    return [
        dict(zip(fields, (value for _status, value in row), strict=True))
        for row in _decode_rows(data)
    ]


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


def uris(names: Iterable[object], path: str, key: str) -> list[dict[str, Any]]:
    """Each name with the path of its resource."""
    return [{key: name, "uri": f"{path}/{name}"} for name in names]


def refuse_locking(call: Call) -> None:
    """`HttpError` 500, as LuxiD's, if the request asks for locks."""
    if call.flag("lock"):
        raise HttpError(500, str(("Sync queries are not allowed", "wrong_input")))
