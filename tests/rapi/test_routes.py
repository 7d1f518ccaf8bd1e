"""A path leads to the resource that starlette's own routes would find."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from starlette.routing import Match, Route
from tests.rapi.asked import ask
from tests.rapi.noted import Noted

from ganger.rapi import table
from ganger.rapi.application import Service, application
from ganger.rapi.authentication import Authentication
from ganger.rapi.declarations import Call, Method, Right
from ganger.rapi.views import Views


class NoUsers:
    def __init__(self) -> None:
        self.users: dict[str, Any] = {}

    def look(self) -> None:
        pass


def test_each_path_leads_to_the_first_resource_that_fits() -> None:
    async def shown(call: Call) -> Any:
        return [call.resource, call.path]

    method = Method(handler=shown, right=Right.NOTHING, summary="")
    resources = [
        msgspec.structs.replace(one, methods={"GET": method}, page="") for one in table.RESOURCES
    ]
    nothing = cast("Any", None)
    notes = Noted()
    app = application(
        resources,
        Service(
            authentication=Authentication(NoUsers(), notes, is_required=False),
            notes=notes,
            views=Views(nothing),
        ),
    )
    routes = [Route(one.path, cast("Any", object())) for one in resources]

    def expected(path: str) -> list[Any] | None:
        for one, route in zip(resources, routes, strict=True):
            match, scope = route.matches({"type": "http", "path": path, "method": "GET"})
            if match is not Match.NONE:
                return [one.path, {**scope["path_params"]}]
        return None

    paths = [_filled(one.path, part) for one in resources for part in ("7", "node.x-1")]
    paths += [path + more for path in paths for more in ("/", "/x", "//")]
    paths += ["", "/", "//", "/2", "/2/", "/1/jobs", "/2/jobs/7/nothing", "/3/jobs/7"]
    for path in paths:
        reply = asyncio.run(ask(app, "GET", path))
        wanted = expected(path)
        assert reply.status == (404 if wanted is None else 200), path
        if wanted is not None:
            assert reply.body == wanted


def test_a_newline_behind_a_path_is_no_part_of_it() -> None:
    nothing = cast("Any", None)
    notes = Noted()
    service = Service(
        authentication=Authentication(NoUsers(), notes, is_required=False),
        notes=notes,
        views=Views(nothing),
    )
    app = application(table.RESOURCES, service)
    assert asyncio.run(ask(app, "GET", "/2/jobs/7\n")).status == 404


def _filled(path: str, part: str) -> str:
    parts = (part if one.startswith("{") else one for one in path.split("/"))
    return "/".join(parts)
