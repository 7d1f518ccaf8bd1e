"""What is refused before any resource sees it: bodies that are too large, pages of other sites."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, ClassVar, cast

import pytest
from tests.rapi.asked import Reply, ask, basic
from tests.rapi.noted import Noted

from ganger.rapi.application import Service, application
from ganger.rapi.authentication import Authentication
from ganger.rapi.declarations import Call, Method, Resource, Right
from ganger.rapi.event_streams import EventStream, event
from ganger.rapi.views import Views
from ganger.storage import errors
from ganger.storage.access import rapi_settings
from ganger.storage.access.rapi_users import User

NOTES = Noted()


class Users:
    users: ClassVar[dict[str, User]] = {"joe": User("joe", "x", frozenset({"admin"}))}

    def look(self) -> None:
        pass


async def handled(call: Call) -> Any:
    if call.body == "fail":
        raise ZeroDivisionError("a secret: 4711")
    if call.body == "gone":
        raise errors.DaemonUnreachableError
    return call.body if isinstance(call.body, list) else "done"


async def two_parts() -> AsyncGenerator[bytes, None]:
    yield event("first", {})
    Users.users = {}
    yield event("second", {})
    raise AssertionError("nobody may ask for more")


async def streamed(_call: Call) -> EventStream:
    return EventStream(two_parts())


STREAM = Method(handler=streamed, right=Right.READ, summary="")
METHOD = Method(handler=handled, right=Right.ADMIN, summary="")
SERVICE = Service(
    authentication=Authentication(Users(), NOTES, is_required=True),
    notes=NOTES,
    views=Views(cast("Any", None)),
)
APP = application(
    [
        Resource(path="/a", methods={"GET": METHOD, "POST": METHOD}),
        Resource(path="/stream", methods={"GET": STREAM}),
    ],
    SERVICE,
)


def asked(method: str = "POST", **more: Any) -> Reply:
    return asyncio.run(ask(APP, method, "/a", authorization=basic("joe", "x"), **more))


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://localhost.evil", "http://"]
)
def test_a_page_of_another_site_changes_nothing(origin: str) -> None:
    reply = asked(more={"origin": origin})
    assert reply.status == 403
    assert reply.body["message"] == "Requests of other sites&#x27; pages are refused"


def test_our_own_page_and_programs_may_change_things_and_everybody_may_look() -> None:
    assert asked(more={"origin": "https://LOCALHOST"}).status == 200
    assert asked().status == 200
    assert asked("GET", more={"origin": "https://evil.example"}).status == 200


def sized(*parts: int, **more: str) -> Reply:
    return asked(parts=[b" " * size for size in parts], more=more)


def test_bodies_up_to_the_limit_are_taken_and_larger_ones_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rapi_settings, "BODY_BYTES_MAX", 10)
    monkeypatch.setattr(rapi_settings, "BODY_DISCARDED_MAX", 40)
    assert asked(parts=[b"[1,", b"2,3]    "[:7]]).text == "[1,2,3]\n"
    for reply in (sized(11), sized(6, 6), sized(6, 6, 6, 6, 6, 6, 6, 6)):
        assert reply.status == 413
        assert reply.body["message"] == "Request body is larger than 10 bytes"
        assert reply.headers["connection"] == "close"


def test_a_body_that_says_it_is_too_large_is_not_read_if_the_client_waits_or_it_is_huge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rapi_settings, "BODY_BYTES_MAX", 10)
    monkeypatch.setattr(rapi_settings, "BODY_DISCARDED_MAX", 40)
    # What comes would be right: only what was said of it is wrong.
    right = [b"[]"]
    assert asked(parts=right, more={"content-length": "41"}).status == 413
    waiting = {"content-length": "11", "expect": "100-continue"}
    assert asked(parts=right, more=waiting).status == 413
    assert asked(parts=right, more={"content-length": "2"}).status == 200


def test_a_stream_ends_when_its_user_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Users, "users", Users.users)
    reply = asyncio.run(ask(APP, "GET", "/stream", authorization=basic("joe", "x")))
    assert (reply.status, reply.text) == (200, event("first", {}).decode())


def test_a_failure_of_ours_is_logged_and_not_shown() -> None:
    NOTES.taken()
    reply = asked(body="fail")
    assert reply.status == 500
    assert "4711" not in reply.text
    [(_, event, fields)] = NOTES.taken()
    assert event == "request failed"
    assert fields["error"] == "ZeroDivisionError"
    assert fields["where"].startswith("test_application.py:")
    assert "4711" not in repr(fields)


def test_a_daemon_that_is_gone_is_a_bad_gateway() -> None:
    assert asked(body="gone").status == 502
