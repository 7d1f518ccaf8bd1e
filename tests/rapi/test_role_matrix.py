"""Role by resource by method: who gets to the handler of each declared method, and who does not.

The handlers are replaced by one that only says that it was reached. What a method needs is not
taken from its declaration, but from Ganeti's rules (`expected_right`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from starlette.types import ASGIApp
from tests.core_alone import NEEDS_HIDDEN
from tests.rapi.asked import Reply, ask, basic
from tests.rapi.noted import Noted

from ganger.rapi import table
from ganger.rapi.application import Service, application
from ganger.rapi.authentication import Authentication
from ganger.rapi.declarations import Call, Method, Resource, Right
from ganger.rapi.explanations import Change
from ganger.rapi.jobs import NewJob
from ganger.rapi.limits import NewLimits, Purge
from ganger.rapi.queue_views import NewPriority, Retry
from ganger.rapi.views import Views
from ganger.storage.access import rapi_settings, rapi_users
from ganger.storage.access.rapi_users import User

ROLES = {
    "nobody": None,
    "plain": "",
    "reader": "read",
    "commander": "exec",
    "operator": "operate,opcode:OP_TAGS_SET,opcode:OP_TEST_DELAY",
    "runner": "operate,exec",
    "writer": "write",
    "admin": "admin",
    "runner-admin": "admin,exec",
}
"""The options of each user; None: without credentials."""

FULL = {"writer", "admin", "runner-admin"}
KNOWN = set(ROLES) - {"nobody"}
OPERATORS = {"operator", "runner"}

WHO: dict[Right, set[str]] = {
    Right.NOTHING: set(ROLES),
    Right.READ: KNOWN,
    Right.WAIT: FULL | OPERATORS,
    Right.SUBMIT: FULL,
    Right.CANCEL: FULL | OPERATORS,
    Right.FILTERS: FULL | OPERATORS,
    Right.ADMIN: FULL,
}
"""Who may use a method that needs this right; for submissions, those who need no named opcode."""

LOOKS_BY_POST = {"/2/simulate"}
"""They change nothing, though their arguments come in a body."""

CHANGES_OF_RULES = ("/2/filters", "/2/rules")
CHANGES_OF_JOBS = ("/2/jobs/{job_id:int}", "/2/jobs/{job_id:int}/priority")

WITHOUT_AN_OPCODE = {("POST", "/2/jobs"), ("POST", "/2/jobs/{job_id:int}/retry")}
"""Submissions whose opcodes stand in the body, or in another job."""

Declared = tuple[Resource, str, Method]


DECLARED: list[Declared] = [
    (resource, name, method)
    for resource in table.RESOURCES
    for name, method in resource.methods.items()
]


def title(one: Declared) -> str:
    return f"{one[1]} {one[0].path}"


def expected_right(resource: Resource, name: str, method: Method) -> Right:
    """What Ganeti's rules, and for Ganger's own resources the issue's, ask for."""
    path = resource.path
    if path in {"/healthz", "/readyz"}:
        return Right.NOTHING
    if path.endswith("/wait"):
        return Right.WAIT
    if method.opcode or (name, path) in WITHOUT_AN_OPCODE:
        return Right.SUBMIT
    if name == "GET" or path in LOOKS_BY_POST or path.startswith("/2/query/"):
        return Right.READ
    if path.startswith(CHANGES_OF_RULES):
        return Right.FILTERS
    if path in CHANGES_OF_JOBS:
        return Right.CANCEL
    return Right.ADMIN


class Job(msgspec.Struct):
    ops: list[Any] = []


class Daemon:
    """Any job is everybody's, and there are no rules: test_changes_by_role has others."""

    async def filters(self) -> list[Any]:
        return []

    async def job(self, _job_id: int) -> Any:
        return Job()


class Users:
    def __init__(self) -> None:
        lines = [
            f"{name} {name} {options}" for name, options in ROLES.items() if options is not None
        ]
        self.users: Mapping[str, User] = {
            user.name: user for user in rapi_users.parse("\n".join(lines)).values()
        }

    def look(self) -> None:
        pass


async def reached(_call: Call) -> str:
    return "reached"


def app_for(*, is_required: bool = True) -> ASGIApp:
    resources = [
        msgspec.structs.replace(
            resource,
            methods={
                name: msgspec.structs.replace(method, handler=reached)
                for name, method in resource.methods.items()
            },
        )
        for resource in table.RESOURCES
    ]
    notes = Noted()
    service = Service(
        authentication=Authentication(Users(), notes, is_required=is_required),
        notes=notes,
        views=Views(cast("Any", Daemon())),
    )
    return application(resources, service)


def path_of(resource: Resource) -> str:
    """A path of the resource, with something in each part that varies."""
    parts = [
        VALUES.get(part, "7" if part.endswith(":int}") else "node") if part[:1] == "{" else part
        for part in resource.path.split("/")
    ]
    return "/".join(parts)


VALUES = {"{uuid}": "00000000-0000-4000-8000-000000000001"}


def body_for(method: Method) -> Any:
    """A body with which an operator may do it."""
    if method.right is Right.FILTERS:
        return {"predicates": [["opcode", ["=", "OP_ID", "OP_TAGS_SET"]]]}
    bodies: dict[Any, Any] = {NewJob: {"ops": []}, NewPriority: {"priority": 0}}
    return {**bodies, Retry: {}, Change: {}, NewLimits: {}, Purge: {}}.get(method.body)


def replies(app: ASGIApp, *, body: Any = ...) -> dict[tuple[str, str], Reply]:
    """What each user gets for each method."""

    async def main() -> dict[tuple[str, str], Reply]:
        found = {}
        for one in DECLARED:
            resource, name, method = one
            sent = body_for(method) if body is ... else body
            for user, options in ROLES.items():
                header = None if options is None else basic(user, user)
                path = path_of(resource)
                found[title(one), user] = await ask(
                    app, name, path, authorization=header, body=sent
                )
        return found

    return asyncio.run(main())


@pytest.fixture(name="matrix", scope="module")
def all_replies() -> dict[tuple[str, str], Reply]:
    return replies(app_for())


@pytest.mark.parametrize("one", DECLARED, ids=title)
def test_each_method_needs_the_right_that_ganetis_rules_give_it(one: Declared) -> None:
    assert one[2].right is expected_right(*one)


def allowed(one: Declared) -> set[str]:
    found = set(WHO[expected_right(*one)])
    if one[2].opcode == "OP_TAGS_SET":
        found.add("operator")
    if title(one) == "POST /2/jobs/{job_id:int}/retry":
        # What is retried decides: the handler looks at the job.
        found |= OPERATORS
    if title(one) == "POST /2/jobs":
        found |= OPERATORS
    if expected_right(*one) is Right.FILTERS and one[1] != "DELETE":
        found.discard("runner")
    return found


@pytest.mark.parametrize("one", DECLARED, ids=title)
def test_who_may_use_each_method(one: Declared, matrix: dict[tuple[str, str], Reply]) -> None:
    got = {user: matrix[title(one), user] for user in ROLES}
    assert {user for user, reply in got.items() if reply.text == '"reached"\n'} == allowed(one)
    for user in set(ROLES) - allowed(one):
        reply = got[user]
        code = 401 if user == "nobody" else 403
        assert reply.status == code, user
        assert reply.body["code"] == code
        assert ("www-authenticate" in reply.headers) == (code == 401)
        assert user == "nobody" or f"user {user} may " in reply.body["message"]


@NEEDS_HIDDEN
def test_every_submission_names_its_opcodes_before_the_handler_sees_it() -> None:
    without = {
        (name, resource.path)
        for resource, name, method in DECLARED
        if method.right is Right.SUBMIT and not method.opcode
    }
    assert without == WITHOUT_AN_OPCODE
    named = [
        opcode
        for *_, method in DECLARED
        for opcode in (method.opcode, *method.more_opcodes)
        if opcode
    ]
    assert named
    assert all(opcode.startswith("OP_") for opcode in named)


def test_without_required_authentication_everybody_may_look_and_do_nothing_else() -> None:
    found = replies(app_for(is_required=False))
    for one in DECLARED:
        reply = found[title(one), "nobody"]
        is_look = expected_right(*one) in {Right.NOTHING, Right.READ}
        assert reply.status == (200 if is_look else 401), title(one)


@pytest.mark.parametrize("header", ["Basic !", "Bearer x", "", basic("reader", "wrong"), "Basic "])
def test_wrong_credentials_are_refused_also_where_none_are_needed(header: str) -> None:
    async def main() -> set[int]:
        app = app_for(is_required=False)
        return {
            (await ask(app, name, path_of(resource), authorization=header)).status
            for resource, name, _ in DECLARED
        }

    assert asyncio.run(main()) == {401}


def test_who_is_not_known_sends_no_large_body() -> None:
    large = "x" * rapi_settings.BODY_BYTES_MAX_OF_NOBODY
    ready = "/readyz"
    assert asyncio.run(ask(app_for(), "GET", ready, body="x")).status == 200
    assert asyncio.run(ask(app_for(), "GET", ready, body=large)).status == 413
    admin = basic("admin", "admin")
    assert asyncio.run(ask(app_for(), "GET", ready, body=large, authorization=admin)).status == 200


def test_a_request_with_two_lengths_is_refused() -> None:
    headers = {"transfer-encoding": "chunked", "content-length": "2"}
    admin = basic("admin", "admin")
    reply = asyncio.run(
        ask(app_for(), "POST", "/2/filters", authorization=admin, more=headers, body={})
    )
    assert (reply.status, reply.headers["connection"]) == (400, "close")


def test_a_path_or_method_that_is_not_there_says_nothing_to_who_has_not_logged_in() -> None:
    async def main() -> list[int]:
        app = app_for()
        reader = basic("reader", "reader")
        return [
            (await ask(app, "GET", "/2/nothing")).status,
            (await ask(app, "GET", "/2/nothing", authorization=reader)).status,
            (await ask(app, "PATCH", "/2/jobs", authorization=reader)).status,
        ]

    assert asyncio.run(main()) == [401, 404, 501]
