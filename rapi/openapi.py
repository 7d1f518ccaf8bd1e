"""The OpenAPI document of the remote API, made from the declarations of all resources. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..storage.opcodes import catalogue
from ..storage.version import version as release
from .declarations import Call, Method, Parameter, Resource, Right

VERSION = "3.1.0"

_PART = re.compile(r"\{(\w+)(?::(\w+))?\}")
_TYPES: dict[type, dict[str, Any]] = {
    bool: {"type": "integer", "enum": [0, 1]},
    int: {"type": "integer"},
    str: {"type": "string"},
    list: {"type": "array", "items": {"type": "string"}},
}
_ERROR = {
    "type": "object",
    "required": ["code", "message", "explain"],
    "properties": {
        "code": {"type": "integer"},
        "message": {"type": "string"},
        "explain": {"type": "string"},
    },
}


def document(resources: Sequence[Resource], version: str) -> dict[str, Any]:
    """The document that describes these resources."""
    types = [kind for one in _methods(resources) for kind in (one.body, one.reply) if kind]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():
        _untag(component)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for resource in resources:
        if not resource.methods:
            continue
        path = _PART.sub(r"{\1}", resource.path)
        paths[path] = {
            name.lower(): _operation(resource, name, method, by_type)
            for name, method in resource.methods.items()
        }
    return {
        "openapi": VERSION,
        "info": {
            "title": "Ganger",
            "version": version,
            "description": "Ganeti's remote API, version 2, and Ganger's own resources.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
        "security": [{"basic": []}],
    }


def _untag(schema: dict[str, Any]) -> None:
    """Leave out the name of a message's type: answers do not have it (`explanations.plain`)."""
    if "enum" in schema.get("properties", {}).get("type", {}):
        del schema["properties"]["type"]
        schema["required"] = [name for name in schema.get("required", ()) if name != "type"]


def _methods(resources: Iterable[Resource]) -> Iterable[Method]:
    return (method for resource in resources for method in resource.methods.values())


def _operation(
    resource: Resource, name: str, method: Method, by_type: dict[str, Any]
) -> dict[str, Any]:
    parameters = [_in_path(*found) for found in _PART.findall(resource.path)]
    parameters += [_in_query(parameter) for parameter in method.query]
    words = [word for word in re.split(r"\W+", _PART.sub(r"\1", resource.path)) if word]
    found: dict[str, Any] = {
        "operationId": "_".join([name.lower(), *words]) or name.lower(),
        "summary": method.summary,
        "parameters": parameters,
        "responses": {
            "200": _reply(method, by_type),
            "default": _json({"$ref": "#/components/schemas/Error"}, "The request failed."),
        },
    }
    if method.right is Right.NOTHING:
        found["security"] = [{}]
    schema = _body(method, by_type)
    if schema is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if not resource.is_own:
        found["tags"] = ["Ganeti"]
    return found


def _reply(method: Method, by_type: dict[str, Any]) -> dict[str, Any]:
    if method.reply is not None:
        return _json(by_type[repr(method.reply)], method.summary)
    if method.opcode:
        return _json({"type": "integer"}, "The id of the job.")
    return {"description": method.summary}


def _json(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str, kind: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if kind == "int" else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.summary,
        "schema": _TYPES[parameter.kind],
    }


def _body(method: Method, by_type: dict[str, Any]) -> dict[str, Any] | None:
    if method.body is not None:
        found: dict[str, Any] = by_type[repr(method.body)]
        return found
    kind = catalogue.find(method.opcode) if method.opcode else None
    if kind is None:
        return None
    _, components = msgspec.json.schema_components([kind])
    # The path sets some of the parameters, so none of them is required in the body.
    return {"type": "object", "properties": components[kind.__name__]["properties"]}


def resource(others: Sequence[Resource]) -> Resource:
    """The resource that serves the document of ``others`` and of itself."""

    @functools.cache
    def served() -> dict[str, Any]:
        return document([*others, own], release())

    async def read_document(_: Call) -> Any:  # noqa: ANN401 - JSON
        """The OpenAPI document."""
        return served()

    summary = "This document, in OpenAPI 3.1."
    method = Method(handler=read_document, right=Right.READ, summary=summary)
    own = Resource(path="/2/openapi.json", is_own=True, methods={"GET": method})
    return own
