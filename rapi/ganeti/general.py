"""The API itself and the cluster as a whole. Source: Ganeti 3.0, RAPI, ``/2/info`` and the like."""

from __future__ import annotations

from typing import Any, Final

from .. import bodies, jobs
from ..declarations import Call, Method, Parameter, Resource, Right
from .submitting import checked, submits

VERSION: Final = 2
FEATURES: Final = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
)
"""What clients may rely on."""


async def show_nothing(_call: Call) -> None:
    """Nothing, as in Ganeti: the resource is there."""


async def show_version(_call: Call) -> int:
    """The version of the API."""
    return VERSION


async def show_features(_call: Call) -> list[str]:
    """What clients may rely on."""
    return list(FEATURES)


async def show_info(call: Call) -> dict[str, Any]:
    """The cluster."""
    found = await call.client.cluster_info()
    return {
        **found,
        "vg_name": found["volume_group_name"],
        "drbd_helper": found["drbd_usermode_helper"],
    }


async def list_systems(_call: Call) -> None:
    """Operating systems for instances: only nodes know them."""
    checked({"OP_ID": "OP_OS_DIAGNOSE", "output_fields": ["name"]})


def _changes(call: Call) -> dict[str, Any]:
    found = bodies.optional_mapping(call.body)
    jobs.refuse_commands(found)
    return found


RESOURCES = (
    Resource(
        path="/2",
        methods={"GET": Method(handler=show_nothing, right=Right.READ, summary="Nothing.")},
    ),
    Resource(
        path="/version",
        methods={
            "GET": Method(handler=show_version, right=Right.READ, summary="The API's version.")
        },
    ),
    Resource(
        path="/2/info",
        methods={"GET": Method(handler=show_info, right=Right.READ, summary="Show the cluster.")},
    ),
    Resource(
        path="/2/features",
        methods={
            "GET": Method(
                handler=show_features, right=Right.READ, summary="What clients may rely on."
            )
        },
    ),
    Resource(
        path="/2/modify",
        methods={
            "PUT": submits(
                "OP_CLUSTER_SET_PARAMS", "Change parameters of the cluster.", values=_changes
            )
        },
    ),
    Resource(
        path="/2/redistribute-config",
        methods={
            "PUT": submits(
                "OP_CLUSTER_REDIST_CONF", "Distribute the configuration anew.", takes_body=True
            )
        },
    ),
    Resource(
        path="/2/os",
        methods={
            "GET": Method(
                handler=list_systems,
                right=Right.READ,
                summary="List operating systems for instances.",
                query=(Parameter("bulk", bool),),
            )
        },
    ),
)
