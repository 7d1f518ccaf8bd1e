"""What resources read by queries: objects with the values of fields; paths of items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .declarations import Parameter

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient

BULK: Final = Parameter("bulk", bool, "1: whole objects.")


_decode_rows: Final = msgspec.json.Decoder(list[list[tuple[int, msgspec.Raw]]]).decode


async def raw_objects(
    client: AsyncClient, what: str, fields: Sequence[str], raw_filter: object = None
) -> list[dict[str, Any]]:
    """The values of these fields for all items, or those that pass: they stay JSON."""
    _, data = await client.query_json(what, fields, raw_filter)
    return [
        dict(zip(fields, (value for _status, value in row), strict=True))
        for row in _decode_rows(data)
    ]


def uris(names: Iterable[object], path: str, key: str) -> list[dict[str, Any]]:
    """Each name with the path of its resource."""
    return [{key: name, "uri": f"{path}/{name}"} for name in names]
