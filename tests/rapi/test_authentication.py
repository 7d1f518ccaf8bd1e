"""Who sends a request: basic authentication, and what the log has of refused attempts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import pytest
from starlette.requests import Request
from tests.rapi.asked import basic
from tests.rapi.noted import Noted

from ganger.rapi.authentication import Authentication
from ganger.rapi.problems import HttpError
from ganger.storage.access import rapi_settings
from ganger.storage.access.rapi_users import NOBODY, User

T = TypeVar("T")
PASSWORD = "geheim: 4711 ü"


class Users:
    def __init__(self) -> None:
        self.users: Mapping[str, User] = {"joe": User("joe", PASSWORD), "ann": User("ann", "x")}
        self.looks = 0

    def look(self) -> None:
        self.looks += 1


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """An authentication with its surroundings."""

    def __init__(self) -> None:
        self.users, self.notes, self.clock = Users(), Noted(), Clock()
        self.authentication = Authentication(
            self.users, self.notes, is_required=True, clock=self.clock
        )

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            return await work()

        return asyncio.run(main())

    def user(self, header: str | None, address: str = "192.0.2.1") -> User:
        headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
        scope = {"type": "http", "headers": headers, "client": (address, 1)}
        return self.run(lambda: self.authentication.user(Request(scope)))

    def refused(self, header: str) -> HttpError:
        with pytest.raises(HttpError) as caught:
            self.user(header)
        return caught.value


@pytest.fixture(name="world")
def an_authentication() -> Iterator[World]:
    world = World()
    yield world
    world.authentication.close()


def test_a_user_is_who_has_the_password(world: World) -> None:
    assert world.user(basic("joe", PASSWORD)).name == "joe"
    assert world.user(basic("joe", PASSWORD).replace("Basic", "bAsIc")).name == "joe"
    assert world.user(None) is NOBODY
    assert world.notes.lines == []


def encoded(text: bytes) -> str:
    return "Basic " + base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (basic("joe", "geheim"), "wrong password"),
        (basic("joe", ""), "wrong password"),
        (basic("ann", PASSWORD), "wrong password"),
        (basic("jim", PASSWORD), "unknown user"),
        (basic("", PASSWORD), "unknown user"),
        (encoded(b"joe"), "malformed credentials"),
        (encoded(b"joe:\xff"), "malformed credentials"),
        (basic("joe", "x" * 2_000), "malformed credentials"),
        ("Basic", "malformed credentials"),
        ("Basic a", "malformed credentials"),
        ("Basic ***", "malformed credentials"),
        ("Digest " + base64.b64encode(b"joe:geheim: 4711").decode(), "malformed credentials"),
        ("", "malformed credentials"),
        ("\xff\xff", "malformed credentials"),
        ("Basic \xcaam9lOng=", "malformed credentials"),
        ("Basic /////w==", "malformed credentials"),
    ],
)
def test_everything_else_is_refused_and_logged_without_what_was_sent(
    world: World, header: str, why: str
) -> None:
    error = world.refused(header)
    assert error.code == 401
    assert error.headers == {"WWW-Authenticate": 'Basic realm="Ganeti Remote API"'}
    [(level, event, fields)] = world.notes.taken()
    assert (level, event, fields["why"]) == ("warning", "login refused", why)
    assert fields["address"] == "192.0.2.1"
    assert "4711" not in repr(fields)


def test_the_name_of_an_unknown_user_is_not_logged(world: World) -> None:
    """It may be a password that was typed in the wrong place."""
    world.refused(basic("my-password-4711", "x"))
    world.refused(basic("joe", "x"))
    (*_, unknown), (*_, known) = world.notes.taken()
    assert "4711" not in repr(unknown)
    assert known["user"] == "joe"


def test_of_many_refused_attempts_only_the_number_is_logged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapi_settings, "REFUSALS_LOGGED_MAX", 3)
    for _ in range(10):
        world.refused(basic("joe", "x"))
    assert len(world.notes.taken()) == 3
    world.clock.now += rapi_settings.REFUSALS_LOGGED_SECONDS
    world.authentication.look()
    assert world.notes.taken() == [("warning", "further logins refused", {"count": 7})]
    world.refused(basic("joe", "x"))
    assert [event for _, event, _ in world.notes.taken()] == ["login refused"]
    world.clock.now += rapi_settings.REFUSALS_LOGGED_SECONDS
    world.authentication.look()
    assert world.notes.taken() == []


def test_each_request_with_credentials_sees_the_file_as_it_is_now(world: World) -> None:
    assert world.user(basic("joe", PASSWORD)).options == frozenset()
    world.users.users = {"joe": User("joe", PASSWORD, frozenset({"admin"}))}
    assert world.user(basic("joe", PASSWORD)).options == {"admin"}
    world.users.users = {}
    assert world.refused(basic("joe", PASSWORD)).code == 401
    assert world.users.looks == 3


def test_a_user_who_is_gone_or_has_a_new_secret_must_log_in_anew(world: World) -> None:
    user = world.user(basic("joe", PASSWORD))
    current = world.authentication.current
    assert current(user) == user
    changed = User("joe", PASSWORD, frozenset({"read"}))
    world.users.users = {"joe": changed}
    assert current(user) is changed
    world.users.users = {"joe": User("joe", "new")}
    assert current(user) is None
    world.users.users = {}
    assert current(user) is None
    assert current(NOBODY) is NOBODY


def test_cleartext_and_ganetis_hash_and_new_ones_all_let_in(world: World) -> None:
    world.users.users = {
        name: User(name, secret)
        for name, secret in {
            "clear": "{CLEARTEXT}käse",
            "ha1": "{HA1}849e7394df8e15983ff4f478de7c5fc8",
        }.items()
    }
    assert world.user(basic("clear", "käse")).name == "clear"
    assert world.user(basic("ha1", "käse")).name == "ha1"
