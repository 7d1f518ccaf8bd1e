"""Resources that submit a job with an opcode: how it is made from path, query and body.

Source: Ganeti 3.0, RAPI. The names in the reason trail come from the path of the resource.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ...storage import errors
from ...storage.opcodes import catalogue, checks
from .. import bodies
from ..declarations import Call, Method, Parameter, Right
from ..jobs import submitted
from ..problems import HttpError

USER_SOURCE: Final = "gnt:user"
LIBRARY_SOURCE: Final = "gnt:library:rlib2"

_OTHER_NAMES: Final = {
    "/2/modify": "cluster_modify",
    "/2/redistribute-config": "redist_config",
    "/2/instances/{instance_name}/disk/{disk:int}/grow": "instances_name_disk_grow",
}


class Part(msgspec.Struct, frozen=True):
    """A parameter of the opcode that the URL determines; None: it is not given."""

    field: str
    get: Callable[[Call], Any]
    parameter: Parameter | None = None
    """Where it comes from in the query string."""


def from_path(name: str) -> Part:
    """A part of the path; the parameter has the same name."""
    return Part(name, lambda call: call.path[name])


def flag(name: str, field: str = "", summary: str = "") -> Part:
    """A flag of the query string; false if it is not given."""
    parameter = Parameter(name, bool, summary)
    return Part(field or name, lambda call: call.flag(name), parameter)


def text(
    name: str, field: str = "", summary: str = "", default: str | None = None, needed: str = ""
) -> Part:
    """A text of the query string. With ``needed`` a request without it is refused so."""

    def get(call: Call) -> str | None:
        given = call.text(name)
        if given is None and needed:
            raise HttpError(400, needed)
        return default if given is None else given

    return Part(field or name, get, Parameter(name, str, summary))


def constant(field: str, value: object) -> Part:
    """A value that the resource itself determines."""
    return Part(field, lambda _call: value)


DRY_RUN: Final = flag("dry-run", "dry_run", "1: check only, change nothing.")
FORCE: Final = flag("force", summary="1: go on in spite of warnings.")
REASON: Final = Parameter("reason", str, "Why: the beginning of the reason trail.")


def submits(
    op_id: str,
    summary: str,
    *parts: Part,
    renames: Mapping[str, str] | None = None,
    takes_body: bool = False,
    values: Callable[[Call], dict[str, Any]] | None = None,
    query: tuple[Parameter, ...] = (),
) -> Method:
    """A method that submits a job with one opcode and answers with the job's id.

    ``parts`` come from the URL. With ``takes_body`` the body holds further parameters, some by
    other names (``renames``); without it only its ``depends`` counts. ``values`` finds them in
    another way; ``query`` names the parameters that it reads.
    """

    async def handler(call: Call) -> int:
        if values is not None:
            given = values(call)
        elif takes_body:
            given = bodies.optional_mapping(call.body)
        else:
            given = _dependencies(call.body)
        opcode = made(call, op_id, given, parts, renames or {})
        return await submitted(call, [opcode])

    found = tuple(part.parameter for part in parts if part.parameter is not None)
    return Method(
        handler=handler,
        right=Right.SUBMIT,
        summary=summary,
        query=(*found, *query, REASON),
        opcode=op_id,
        reply=int,
    )


def made(
    call: Call,
    op_id: str,
    given: Mapping[str, Any],
    parts: Iterable[Part] = (),
    renames: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The opcode, with its reason trail. `HttpError` 400 if its parameters are wrong.

    `OperationMissingError` if nothing on this system can run it.
    """
    fixed = {part.field: value for part in parts if (value := part.get(call)) is not None}
    fixed["reason"] = trail(call)
    parameters = joined(renamed(given, renames or {}), {**fixed, "OP_ID": op_id})
    return checked(_given(op_id, parameters))


def _given(op_id: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters without those that are null: for clients, null stands for the default."""
    declared = catalogue.find(op_id)
    known = () if declared is None else declared.__struct_encode_fields__
    return {
        name: value for name, value in parameters.items() if value is not None or name not in known
    }


def checked(opcode: dict[str, Any]) -> dict[str, Any]:
    """The opcode, if it is one. Raises as `made`."""
    try:
        declared = checks.parse(opcode)
    except (errors.OpcodeError, errors.DependencyError) as error:
        raise HttpError(400, f"Invalid body parameters: {error.text}") from error
    checks.check_operation(type(declared))
    return opcode


def renamed(given: Mapping[str, Any], renames: Mapping[str, str]) -> dict[str, Any]:
    """The parameters under the names that the opcode has for them; `HttpError` 400 if two meet."""
    found = dict(given)
    for old, new in renames.items():
        if old in found:
            if new in found:
                text = f"Parameter '{old}' was renamed to '{new}', but both are specified"
                raise HttpError(400, text)
            found[new] = found.pop(old)
    return found


def trail(call: Call) -> list[list[Any]]:
    """The beginning of the reason trail: what the user said, and which resource was used."""
    found: list[list[Any]] = []
    reason = call.text("reason")
    if reason:
        found.append([USER_SOURCE, reason, time.time_ns()])
    found.append([f"{LIBRARY_SOURCE}:{resource_name(call.resource)}", "", time.time_ns()])
    return found


def resource_name(path: str) -> str:
    """The name of a resource in reason trails.

    >>> resource_name("/2/instances/{instance_name}/replace-disks")
    'instances_name_replace_disks'
    """
    if path in _OTHER_NAMES:
        return _OTHER_NAMES[path]
    words = path.removeprefix("/2/").split("/")
    return "_".join("name" if word.startswith("{") else word.replace("-", "_") for word in words)


def joined(given: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Both together; `HttpError` 400 if the client names what the resource determines."""
    both = sorted(given.keys() & fixed.keys())
    if both:
        raise HttpError(400, f"Can't overwrite static parameters {set(both)}")
    return {**given, **fixed}


def _dependencies(body: object) -> dict[str, Any]:
    if isinstance(body, Mapping) and body.get("depends"):
        return {"depends": body["depends"]}
    return {}
