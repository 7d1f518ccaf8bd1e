"""Instances. Source: Ganeti 3.0, RAPI, ``/2/instances``."""

from __future__ import annotations

from typing import Any, Final

from ...storage import errors
from .. import bodies, jobs, problems, rows
from ..declarations import Call, Method, Parameter, Resource, Right, whole
from ..problems import HttpError
from . import noun_rows, submitting
from .submitting import DRY_RUN, FORCE, Part, constant, flag, from_path, submits, text
from .tags import tags

FIELDS: Final = (
    "name", "admin_state", "os", "pnode", "snodes", "disk_template", "nic.ips", "nic.macs",
    "nic.modes", "nic.uuids", "nic.names", "nic.links", "nic.networks", "nic.networks.names",
    "nic.bridges", "network_port", "disk.sizes", "disk.spindles", "disk_usage", "disk.uuids",
    "disk.names", "beparams", "hvparams", "oper_state", "oper_ram", "oper_vcpus", "status",
    "custom_hvparams", "custom_beparams", "custom_nicparams", "custom_osparams",
    *noun_rows.STAMP_FIELDS,
)  # fmt: skip

_NAME: Final = from_path("instance_name")
_ONE: Final = "/2/instances/{instance_name}"
_RENAMES: Final = {"os": "os_type", "name": "instance_name"}
_VERSION: Final = "__version__"
_NO_REMEMBER: Final = flag("no_remember")
_IGNORE_SIZE: Final = flag("ignore_size")

_REPLACE: Final = ("remote_node", "mode", "disks", "iallocator")
_REINSTALL: Final = ("os", "start", "osparams")


async def list_instances(call: Call) -> Any:  # noqa: ANN401 - JSON
    """All instances: their names, or whole."""
    noun_rows.refuse_locking(call)
    if call.flag("bulk"):
        return [_shown(instance) for instance in await noun_rows.objects(call, "instance", FIELDS)]
    return await noun_rows.index(call, "instance", "/2/instances", "id")


async def show_instance(call: Call) -> dict[str, Any]:
    """One instance."""
    noun_rows.refuse_locking(call)
    return _shown(await noun_rows.one(call, "instance", FIELDS, call.path["instance_name"]))


async def show_console(call: Call) -> dict[str, Any]:
    """How to reach the console of an instance."""
    wanted = ["==", "name", call.path["instance_name"]]
    try:
        [found] = await noun_rows.objects(call, "instance", ["console"], wanted)
    except errors.UnknownObjectError as error:
        raise problems.of_query(error) from error
    console: dict[str, Any] | None = found["console"]
    if console is None:
        raise HttpError(503, "Instance console unavailable")
    return console


async def reinstall(call: Call) -> int:
    """Shut an instance down, install it anew, and start it unless told otherwise."""
    body = bodies.optional_mapping(call.body)
    if body:
        if call.text("os") is not None or call.text("nostartup") is not None:
            text = "Only one of the body and the query string may have parameters"
            raise HttpError(400, text)
        bodies.refuse_others(body, (*_REINSTALL, "depends"), "OpInstanceReinstall")
        system = bodies.parameter(body, "os", str, None)
        starts = bodies.parameter(body, "start", bool, default=True)
        parameters = bodies.parameter(body, "osparams", dict, None)
    else:
        system, parameters = call.text("os"), None
        starts = not call.flag("nostartup")
    name = {"instance_name": call.path["instance_name"]}
    given = {"os_type": system, "osparams": parameters}
    known = {field: value for field, value in given.items() if value is not None}
    first = {"depends": body["depends"]} if body.get("depends") else {}
    opcodes = [
        {"OP_ID": "OP_INSTANCE_SHUTDOWN", **name, **first},
        {"OP_ID": "OP_INSTANCE_REINSTALL", **name, **known},
    ]
    if starts:
        opcodes.append({"OP_ID": "OP_INSTANCE_STARTUP", **name})
    return await jobs.submitted(call, [submitting.checked(op) for op in opcodes])


def _shown(instance: dict[str, Any]) -> dict[str, Any]:
    parameters = instance["beparams"]
    if parameters is None:
        return instance
    return {**instance, "beparams": {**parameters, "memory": parameters.get("maxmem")}}


def _new(call: Call) -> dict[str, Any]:
    """The parameters of a new instance; `HttpError` 400 unless it has the version that we know."""
    body = dict(bodies.mapping(call.body))
    version = body.pop(_VERSION, 0)
    bodies.check_type(version, int, f"'{_VERSION}' parameter")
    if version == 0:
        text = "Instance creation request version 0 is no longer supported"
        raise HttpError(400, text)
    if version != 1:
        raise HttpError(400, f"Unsupported request data version {version}")
    return _with_commas(body)


def _with_commas(body: dict[str, Any]) -> dict[str, Any]:
    """USB devices may stand with blanks between them."""
    parameters = body.get("hvparams")
    devices = parameters.get("usb_devices") if isinstance(parameters, dict) else None
    if not isinstance(devices, str):
        return body
    return {**body, "hvparams": {**(parameters or {}), "usb_devices": devices.replace(" ", ",")}}


def _several(call: Call) -> dict[str, Any]:
    """The parameters of several new instances."""
    body = bodies.mapping(call.body)
    opcodes = []
    for instance in bodies.parameter(body, "instances", list):
        bodies.check_type(instance, dict, "Instance")
        parameters = submitting.renamed(
            {name: value for name, value in instance.items() if name != _VERSION}, _RENAMES
        )
        opcodes.append(submitting.joined(parameters, {"OP_ID": "OP_INSTANCE_CREATE"}))
    return {**body, "instances": opcodes}


def _replacement(call: Call) -> dict[str, Any]:
    """What to replace: from the body, or, for older clients, from the query string."""
    body = bodies.optional_mapping(call.body)
    if not body:
        body = {name: value for name in _REPLACE if (value := call.text(name)) is not None}
    disks = body.get("disks")
    if not isinstance(disks, str):
        return body
    try:
        return {**body, "disks": [int(part) for part in disks.split(",")]}
    except ValueError as error:
        raise HttpError(400, f"Invalid disk index passed: {disks}") from error


def _disk(call: Call) -> int:
    """The index of a disk in the path; `HttpError` 404 for one that no disk has."""
    found = whole(call.path["disk"])
    if found is None:
        raise HttpError(404)
    return found


def _needed(call: Call) -> dict[str, Any]:
    return bodies.mapping(call.body)


def _put(verb: str, op_id: str, summary: str, *parts: Part, **more: Any) -> Resource:  # noqa: ANN401 - as `submits`
    """A resource that does something with an instance."""
    return Resource(path=f"{_ONE}/{verb}", methods={"PUT": submits(op_id, summary, *parts, **more)})


def _post(verb: str, op_id: str, summary: str, *parts: Part, **more: Any) -> Resource:  # noqa: ANN401 - as `submits`
    """A resource that does something with an instance."""
    method = submits(op_id, summary, *parts, **more)
    return Resource(path=f"{_ONE}/{verb}", methods={"POST": method})


RESOURCES = (
    Resource(
        path="/2/instances",
        methods={
            "GET": Method(
                handler=list_instances,
                right=Right.READ,
                summary="List instances.",
                query=(rows.BULK, noun_rows.LOCK),
            ),
            "POST": submits(
                "OP_INSTANCE_CREATE", "Create an instance.", DRY_RUN, renames=_RENAMES, values=_new
            ),
        },
    ),
    Resource(
        path="/2/instances-multi-alloc",
        methods={
            "POST": submits(
                "OP_INSTANCE_MULTI_ALLOC", "Create several instances.", DRY_RUN, values=_several
            )
        },
    ),
    Resource(
        path=_ONE,
        methods={
            "GET": Method(
                handler=show_instance,
                right=Right.READ,
                summary="Show an instance.",
                query=(noun_rows.LOCK,),
            ),
            "DELETE": submits(
                "OP_INSTANCE_REMOVE",
                "Remove an instance.",
                _NAME,
                constant("ignore_failures", value=False),
                DRY_RUN,
                takes_body=True,
            ),
        },
    ),
    Resource(
        path=f"{_ONE}/info",
        methods={
            "GET": submits(
                "OP_INSTANCE_QUERY_DATA",
                "Read everything about an instance.",
                Part("instances", lambda call: [call.path["instance_name"]]),
                flag("static"),
            )
        },
    ),
    _post(
        "reboot",
        "OP_INSTANCE_REBOOT",
        "Reboot an instance.",
        _NAME,
        text("type", "reboot_type", "hard, soft or full.", default="hard"),
        flag("ignore_secondaries"),
        DRY_RUN,
        takes_body=True,
    ),
    _put(
        "startup", "OP_INSTANCE_STARTUP", "Start an instance.", _NAME, FORCE, DRY_RUN, _NO_REMEMBER
    ),
    _put(
        "shutdown",
        "OP_INSTANCE_SHUTDOWN",
        "Shut an instance down.",
        _NAME,
        DRY_RUN,
        _NO_REMEMBER,
        takes_body=True,
    ),
    Resource(
        path=f"{_ONE}/reinstall",
        methods={
            "POST": Method(
                handler=reinstall,
                right=Right.SUBMIT,
                summary="Install an instance anew.",
                query=(Parameter("os"), Parameter("nostartup", bool)),
                opcode="OP_INSTANCE_REINSTALL",
                more_opcodes=("OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_STARTUP"),
                reply=int,
            )
        },
    ),
    _post(
        "replace-disks",
        "OP_INSTANCE_REPLACE_DISKS",
        "Replace disks of an instance.",
        _NAME,
        values=_replacement,
        query=tuple(map(Parameter, _REPLACE)),
    ),
    _put("activate-disks", "OP_INSTANCE_ACTIVATE_DISKS", "Activate disks.", _NAME, _IGNORE_SIZE),
    _put("deactivate-disks", "OP_INSTANCE_DEACTIVATE_DISKS", "Deactivate disks.", _NAME, FORCE),
    _post(
        "recreate-disks", "OP_INSTANCE_RECREATE_DISKS", "Recreate disks.", _NAME, takes_body=True
    ),
    _put(
        "prepare-export",
        "OP_BACKUP_PREPARE",
        "Prepare the export of an instance.",
        _NAME,
        text("mode"),
    ),
    Resource(
        path=f"{_ONE}/export",
        methods={
            "PUT": submits(
                "OP_BACKUP_EXPORT",
                "Export an instance.",
                _NAME,
                renames={"destination": "target_node"},
                takes_body=True,
            ),
            "DELETE": submits(
                "OP_BACKUP_REMOVE", "Remove the export of an instance.", _NAME, takes_body=True
            ),
        },
    ),
    _put("migrate", "OP_INSTANCE_MIGRATE", "Migrate an instance.", _NAME, takes_body=True),
    _put("failover", "OP_INSTANCE_FAILOVER", "Move an instance.", _NAME, takes_body=True),
    _put("rename", "OP_INSTANCE_RENAME", "Rename an instance.", _NAME, takes_body=True),
    _put(
        "modify",
        "OP_INSTANCE_SET_PARAMS",
        "Change parameters of an instance.",
        _NAME,
        renames={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
        values=_needed,
    ),
    _post(
        "disk/{disk:int}/grow",
        "OP_INSTANCE_GROW_DISK",
        "Make a disk larger.",
        _NAME,
        Part("disk", _disk),
        takes_body=True,
    ),
    Resource(
        path=f"{_ONE}/console",
        methods={
            "GET": Method(
                handler=show_console, right=Right.READ, summary="Show how to reach a console."
            )
        },
    ),
    tags(f"{_ONE}/tags", "instance", "instance", "instance_name"),
)
