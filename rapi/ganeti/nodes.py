"""Nodes. Source: Ganeti 3.0, RAPI, ``/2/nodes``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .. import bodies, rows
from ..declarations import Call, Method, Parameter, Resource, Right
from ..problems import HttpError
from . import noun_rows
from .submitting import DRY_RUN, FORCE, Part, flag, from_path, submits, text
from .tags import tags

FIELDS: Final = (
    "name", "offline", "master_candidate", "drained", "dtotal", "dfree", "sptotal", "spfree",
    "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt", "ctotal", "cnos", "cnodes", "csockets",
    "pip", "sip", "role", "pinst_list", "sinst_list", "master_capable", "vm_capable", "ndparams",
    "group.uuid", *noun_rows.STAMP_FIELDS,
)  # fmt: skip

ROLES: Final = {
    "M": "master",
    "C": "master-candidate",
    "D": "drained",
    "O": "offline",
    "R": "regular",
}
"""Names of roles by the letters of queries."""

_FLAGS: Final = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}
"""What the parameters of a node must become for each role that can be set."""

_NAME: Final = from_path("node_name")
_ONE: Final = "/2/nodes/{node_name}"
_STORAGE_TYPE: Final = text("storage_type", needed="Missing the required 'storage_type' parameter")
_STORAGE_NAME: Final = text("name", needed="Missing the required 'name' parameter")


async def list_nodes(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All nodes: their names, or whole."""
    if call.flag("bulk"):
        noun_rows.refuse_locking(call)
        return [_shown(node) for node in await noun_rows.objects(call, "node", FIELDS)]
    return await noun_rows.index(call, "node", "/2/nodes", "id")


async def show_node(call: Call) -> dict[str, Any]:
    """One node."""
    noun_rows.refuse_locking(call)
    return _shown(await noun_rows.one(call, "node", FIELDS, call.path["node_name"]))


async def show_role(call: Call) -> str:
    """The role of a node."""
    found = await noun_rows.one(call, "node", ["role"], call.path["node_name"])
    return ROLES[found["role"]]


def _shown(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "secondary_ip": node["sip"]}


def _flags_of_role(call: Call) -> dict[str, Any]:
    role = None if call.body is msgspec.UNSET else call.body
    bodies.check_type(role, str, "Body contents")
    assert isinstance(role, str)
    if role not in _FLAGS:
        raise HttpError(400, f"Can't set '{role}' role")
    return _FLAGS[role]


def _migration(call: Call) -> dict[str, Any]:
    """The parameters of the body, or those that older clients have in the query string."""
    live, mode = call.text("live"), call.text("mode")
    if live is not None:
        if mode is not None:
            raise HttpError(400, "Only one of 'live' and 'mode' should be passed")
        mode = "live" if call.flag("live") else "non-live"
    return bodies.optional_mapping(call.body) if mode is None else {"mode": mode}


def _output_fields(call: Call) -> list[str]:
    found = call.names("output_fields")
    if found is None:
        raise HttpError(400, "Missing the required 'output_fields' parameter")
    return found


def _allocatable(call: Call) -> dict[str, Any]:
    return {"allocatable": call.flag("allocatable")} if call.text("allocatable") else {}


def _change(verb: str, op_id: str, summary: str, *parts: Part) -> Resource:
    """A resource that changes a node, with the parameters in the body."""
    method = submits(op_id, summary, _NAME, *parts, takes_body=True)
    return Resource(path=f"{_ONE}/{verb}", methods={"POST": method})


RESOURCES = (
    Resource(
        path="/2/nodes",
        methods={
            "GET": Method(
                handler=list_nodes,
                right=Right.READ,
                summary="List nodes.",
                query=(rows.BULK, noun_rows.LOCK),
            )
        },
    ),
    Resource(
        path=_ONE,
        methods={
            "GET": Method(
                handler=show_node, right=Right.READ, summary="Show a node.", query=(noun_rows.LOCK,)
            )
        },
    ),
    _change("powercycle", "OP_NODE_POWERCYCLE", "Switch a node off and on.", FORCE),
    Resource(
        path=f"{_ONE}/role",
        methods={
            "GET": Method(handler=show_role, right=Right.READ, summary="Show a node's role."),
            "PUT": submits(
                "OP_NODE_SET_PARAMS",
                "Change a node's role.",
                _NAME,
                FORCE,
                flag("auto-promote", "auto_promote"),
                values=_flags_of_role,
            ),
        },
    ),
    _change("evacuate", "OP_NODE_EVACUATE", "Move the instances of a node.", DRY_RUN),
    Resource(
        path=f"{_ONE}/migrate",
        methods={
            "POST": submits(
                "OP_NODE_MIGRATE",
                "Migrate the instances of a node.",
                _NAME,
                values=_migration,
                query=(Parameter("live", bool), Parameter("mode")),
            )
        },
    ),
    _change("modify", "OP_NODE_SET_PARAMS", "Change parameters of a node."),
    Resource(
        path=f"{_ONE}/storage",
        methods={
            "GET": submits(
                "OP_NODE_QUERY_STORAGE",
                "Read the storage units of a node.",
                Part("nodes", lambda call: [call.path["node_name"]]),
                _STORAGE_TYPE,
                Part("output_fields", _output_fields, Parameter("output_fields")),
            )
        },
    ),
    Resource(
        path=f"{_ONE}/storage/modify",
        methods={
            "PUT": submits(
                "OP_NODE_MODIFY_STORAGE",
                "Change a storage unit of a node.",
                _NAME,
                _STORAGE_TYPE,
                _STORAGE_NAME,
                Part("changes", _allocatable, Parameter("allocatable", bool)),
            )
        },
    ),
    Resource(
        path=f"{_ONE}/storage/repair",
        methods={
            "PUT": submits(
                "OP_REPAIR_NODE_STORAGE",
                "Repair a storage unit of a node.",
                _NAME,
                _STORAGE_TYPE,
                _STORAGE_NAME,
            )
        },
    ),
    tags(f"{_ONE}/tags", "node", "node", "node_name"),
)
