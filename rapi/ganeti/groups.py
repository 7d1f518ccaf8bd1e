"""Node groups. Source: Ganeti 3.0, RAPI, ``/2/groups``."""

from __future__ import annotations

from typing import Any, Final

from .. import rows
from ..declarations import Call, Method, Resource, Right
from . import noun_rows
from .submitting import DRY_RUN, FORCE, from_path, submits
from .tags import tags

FIELDS: Final = (
    "alloc_policy", "name", "node_cnt", "node_list", "ipolicy", "custom_ipolicy", "diskparams",
    "custom_diskparams", "ndparams", "custom_ndparams", *noun_rows.STAMP_FIELDS,
)  # fmt: skip

_NAME: Final = from_path("group_name")
_ONE: Final = "/2/groups/{group_name}"
_RENAMES: Final = {
    "custom_ndparams": "ndparams",
    "custom_ipolicy": "ipolicy",
    "custom_diskparams": "diskparams",
}


async def list_groups(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All groups: their names, or whole."""
    if call.flag("bulk"):
        return await rows.raw_objects(call.client, "group", FIELDS)
    return await noun_rows.index(call, "group", "/2/groups", "name")


async def show_group(call: Call) -> dict[str, Any]:
    """One group."""
    return await noun_rows.one(call, "group", FIELDS, call.path["group_name"])


RESOURCES = (
    Resource(
        path="/2/groups",
        methods={
            "GET": Method(
                handler=list_groups,
                right=Right.READ,
                summary="List node groups.",
                query=(rows.BULK,),
            ),
            "POST": submits(
                "OP_GROUP_ADD",
                "Add a node group.",
                DRY_RUN,
                renames={"name": "group_name"},
                takes_body=True,
            ),
        },
    ),
    Resource(
        path=_ONE,
        methods={
            "GET": Method(handler=show_group, right=Right.READ, summary="Show a node group."),
            "DELETE": submits("OP_GROUP_REMOVE", "Remove a node group.", _NAME, DRY_RUN),
        },
    ),
    Resource(
        path=f"{_ONE}/modify",
        methods={
            "PUT": submits(
                "OP_GROUP_SET_PARAMS",
                "Change parameters of a node group.",
                _NAME,
                renames=_RENAMES,
                takes_body=True,
            )
        },
    ),
    Resource(
        path=f"{_ONE}/rename",
        methods={
            "PUT": submits(
                "OP_GROUP_RENAME", "Rename a node group.", _NAME, DRY_RUN, takes_body=True
            )
        },
    ),
    Resource(
        path=f"{_ONE}/assign-nodes",
        methods={
            "PUT": submits(
                "OP_GROUP_ASSIGN_NODES",
                "Assign nodes to a node group.",
                _NAME,
                DRY_RUN,
                FORCE,
                takes_body=True,
            )
        },
    ),
    tags(f"{_ONE}/tags", "nodegroup", "group", "group_name"),
)
