"""Networks. Source: Ganeti 3.0, RAPI, ``/2/networks``."""

from __future__ import annotations

from typing import Any, Final

from .. import rows
from ..declarations import Call, Method, Resource, Right
from . import noun_rows
from .submitting import DRY_RUN, from_path, submits
from .tags import tags

FIELDS: Final = (
    "name", "network", "gateway", "network6", "gateway6", "mac_prefix", "free_count",
    "reserved_count", "map", "group_list", "inst_list", "external_reservations",
    *noun_rows.STAMP_FIELDS,
)  # fmt: skip

_NAME: Final = from_path("network_name")
_ONE: Final = "/2/networks/{network_name}"


async def list_networks(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All networks: their names, or whole."""
    if call.flag("bulk"):
        return await rows.raw_objects(call.client, "network", FIELDS)
    return await noun_rows.index(call, "network", "/2/networks", "name")


async def show_network(call: Call) -> dict[str, Any]:
    """One network."""
    return await noun_rows.one(call, "network", FIELDS, call.path["network_name"])


def _change(verb: str, op_id: str, summary: str) -> Resource:
    """A resource that changes a network, with the parameters in the body."""
    method = submits(op_id, summary, _NAME, DRY_RUN, takes_body=True)
    return Resource(path=f"{_ONE}/{verb}", methods={"PUT": method})


RESOURCES = (
    Resource(
        path="/2/networks",
        methods={
            "GET": Method(
                handler=list_networks,
                right=Right.READ,
                summary="List networks.",
                query=(rows.BULK,),
            ),
            "POST": submits(
                "OP_NETWORK_ADD",
                "Add a network.",
                DRY_RUN,
                renames={"name": "network_name"},
                takes_body=True,
            ),
        },
    ),
    Resource(
        path=_ONE,
        methods={
            "GET": Method(handler=show_network, right=Right.READ, summary="Show a network."),
            "DELETE": submits("OP_NETWORK_REMOVE", "Remove a network.", _NAME, DRY_RUN),
        },
    ),
    _change("connect", "OP_NETWORK_CONNECT", "Connect a network to a node group."),
    _change("disconnect", "OP_NETWORK_DISCONNECT", "Disconnect a network from a node group."),
    Resource(
        path=f"{_ONE}/modify",
        methods={
            "PUT": submits(
                "OP_NETWORK_SET_PARAMS", "Change parameters of a network.", _NAME, takes_body=True
            )
        },
    ),
    _change("rename", "OP_NETWORK_RENAME", "Rename a network."),
    tags(f"{_ONE}/tags", "network", "network", "network_name"),
)
