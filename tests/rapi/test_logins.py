"""Credentials are compared once, in a thread, and nobody learns from the time who is known."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ganger.rapi import logins as module
from ganger.rapi.logins import Logins
from ganger.rapi.problems import HttpError
from ganger.storage.access import rapi_passwords, rapi_settings
from ganger.storage.access.rapi_users import User

T = TypeVar("T")


class Comparisons:
    """Compares at once, or when it is let; notes what it compared."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.threads: set[str] = set()
        self.may_go = threading.Event()
        if not is_held:
            self.may_go.set()

    def __call__(self, secret: str, name: str, password: str) -> bool:
        self.seen.append((secret, name, password))
        self.threads.add(threading.current_thread().name)
        assert self.may_go.wait(20)
        return secret.endswith(f"${password}")


COSTLY = {
    name: User(name, f"{{ARGON2ID}}${password}")
    for name, password in {"joe": "brot", "jim": "wein"}.items()
}


def run(work: Callable[[Logins], Awaitable[T]], comparisons: Comparisons) -> T:
    async def main() -> T:
        logins = Logins(comparisons)
        try:
            return await asyncio.wait_for(work(logins), 20)
        finally:
            comparisons.may_go.set()
            logins.close()

    return asyncio.run(main())


async def name_of(
    logins: Logins, name: str, password: str, users: dict[str, User] | None = None
) -> str | None:
    found = await logins.user(COSTLY if users is None else users, name, password)
    return None if found is None else found.name


def test_the_right_password_is_the_users_and_any_other_is_nobodys() -> None:
    async def work(logins: Logins) -> list[str | None]:
        tries = [("joe", "brot"), ("joe", "wein"), ("jim", "wein"), ("ann", "brot"), ("", "")]
        return [await name_of(logins, *one) for one in tries]

    assert run(work, Comparisons()) == ["joe", None, "jim", None, None]


def test_what_was_right_is_not_compared_again_and_what_was_wrong_is() -> None:
    comparisons = Comparisons()

    async def work(logins: Logins) -> None:
        for _ in range(3):
            assert await name_of(logins, "joe", "brot") == "joe"
        for _ in range(3):
            assert await name_of(logins, "joe", "wein") is None

    run(work, comparisons)
    assert [password for *_, password in comparisons.seen] == ["brot", *["wein"] * 3]


def test_a_new_secret_needs_a_new_comparison_also_for_the_old_password() -> None:
    comparisons = Comparisons()
    changed = {"joe": User("joe", "{ARGON2ID}$kuchen")}

    async def work(logins: Logins) -> None:
        assert await name_of(logins, "joe", "brot") == "joe"
        assert await name_of(logins, "joe", "brot", changed) is None
        assert await name_of(logins, "joe", "kuchen", changed) == "joe"
        assert await name_of(logins, "joe", "brot", {}) is None
        assert await name_of(logins, "joe", "brot") == "joe"

    run(work, comparisons)
    assert len(comparisons.seen) == 4


def test_new_options_are_in_force_without_a_new_comparison() -> None:
    comparisons = Comparisons()
    changed = {"joe": User("joe", COSTLY["joe"].secret, frozenset({"admin"}))}

    async def work(logins: Logins) -> frozenset[str]:
        await logins.user(COSTLY, "joe", "brot")
        found = await logins.user(changed, "joe", "brot")
        assert found is not None
        return found.options

    assert run(work, comparisons) == {"admin"}
    assert len(comparisons.seen) == 1


def test_an_unknown_name_is_compared_with_the_secret_of_a_known_user_always_the_same() -> None:
    comparisons = Comparisons()

    async def work(logins: Logins) -> None:
        for name in [f"u{number}" for number in range(40)] * 2:
            # Also with a password that is right for the stand-in.
            assert await name_of(logins, name, "brot") is None

    run(work, comparisons)
    chosen = {name: secret for secret, name, _ in comparisons.seen}
    assert len(comparisons.seen) == 80
    assert [chosen[name] for _, name, _ in comparisons.seen] == [
        secret for secret, *_ in comparisons.seen
    ]
    assert set(chosen.values()) == {user.secret for user in COSTLY.values()}


def test_without_users_an_unknown_name_costs_a_hash_of_the_usual_kind() -> None:
    comparisons = Comparisons()

    async def work(logins: Logins) -> None:
        assert await name_of(logins, "joe", "x", {}) is None

    run(work, comparisons)
    assert comparisons.seen == [(rapi_passwords.unmatched(), "joe", "x")]


def test_unknown_users_cost_the_processor_as_much_as_wrong_passwords() -> None:
    users = {"joe": User("joe", rapi_passwords.hashed("brot"))}

    async def cost(logins: Logins, name: str) -> float:
        await logins.user(users, name, "warm")
        costs = []
        for number in range(5):
            before = time.process_time()
            await logins.user(users, name, str(number))
            costs.append(time.process_time() - before)
        return min(costs)

    async def work() -> tuple[float, float]:
        logins = Logins()
        try:
            return await cost(logins, "joe"), await cost(logins, "ann")
        finally:
            logins.close()

    known, unknown = asyncio.run(work())
    assert known > 0.005
    assert 0.5 < known / unknown < 2


def test_a_known_login_costs_far_less_than_a_millisecond() -> None:
    async def work(logins: Logins) -> float:
        await logins.user(COSTLY, "joe", "brot")
        before = time.process_time()
        for _ in range(1_000):
            await logins.user(COSTLY, "joe", "brot")
        return time.process_time() - before

    assert run(work, Comparisons()) < 0.5


def test_others_are_served_while_passwords_are_compared_one_after_the_other() -> None:
    comparisons = Comparisons(is_held=True)

    async def work(logins: Logins) -> None:
        comparisons.may_go.set()
        assert await name_of(logins, "jim", "wein") == "jim"
        comparisons.may_go.clear()
        waiting = [asyncio.create_task(name_of(logins, "joe", str(n))) for n in range(20)]
        await asyncio.sleep(0)
        assert await name_of(logins, "jim", "wein") == "jim"
        assert not any(task.done() for task in waiting)
        comparisons.may_go.set()
        assert await asyncio.gather(*waiting) == [None] * 20

    run(work, comparisons)
    assert len(comparisons.threads) == 1
    assert threading.main_thread().name not in comparisons.threads


def test_the_same_credentials_at_the_same_time_are_compared_once() -> None:
    comparisons = Comparisons(is_held=True)

    async def work(logins: Logins) -> None:
        waiting = [asyncio.create_task(name_of(logins, "joe", "brot")) for _ in range(50)]
        await asyncio.sleep(0)
        # One of them gives up: the others still get their answer.
        waiting[0].cancel()
        comparisons.may_go.set()
        assert await asyncio.gather(*waiting[1:]) == ["joe"] * 49

    run(work, comparisons)
    assert len(comparisons.seen) == 1


def test_too_many_waiting_logins_are_refused_by_address_and_in_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rapi_settings, "LOGINS_WAITING_OF_ADDRESS_MAX", 3)
    monkeypatch.setattr(rapi_settings, "LOGINS_WAITING_MAX", 5)
    comparisons = Comparisons(is_held=True)

    async def work(logins: Logins) -> None:
        async def one(number: int, address: str) -> bool:
            return await logins.user(COSTLY, "joe", str(number), address) is None

        waiting = [asyncio.create_task(one(n, "a")) for n in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError) as caught:
            await one(9, "a")
        assert caught.value.code == 503
        waiting += [asyncio.create_task(one(n, "b")) for n in range(10, 12)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError, match="Too many logins are being checked"):
            await one(9, "c")
        comparisons.may_go.set()
        assert all(await asyncio.gather(*waiting))
        assert await one(9, "a")
        assert logins._running == {}
        assert logins._of_address == {}

    run(work, comparisons)


def test_a_bounded_number_of_logins_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "LOGINS_KNOWN_MAX", 3)
    users = {f"u{n}": User(f"u{n}", f"{{ARGON2ID}}${n}") for n in range(5)}
    comparisons = Comparisons()

    async def work(logins: Logins) -> None:
        for number in (0, 1, 2, 0, 3, 4, 0, 1):
            assert await name_of(logins, f"u{number}", str(number), users) == f"u{number}"

    run(work, comparisons)
    assert [name for _, name, _ in comparisons.seen] == ["u0", "u1", "u2", "u3", "u4", "u1"]


def test_what_is_remembered_holds_no_credentials() -> None:
    async def work(logins: Logins) -> None:
        await logins.user(COSTLY, "joe", "brot")
        [digest] = logins._right
        assert len(digest) == module._KEY_BYTES
        other = Logins(Comparisons())
        assert other._digest("joe", "brot", COSTLY["joe"].secret) != digest
        other.close()

    run(work, Comparisons())


def test_parts_of_credentials_do_not_run_into_each_other() -> None:
    async def work(logins: Logins) -> None:
        assert logins._digest("ab", "c") != logins._digest("a", "bc")

    run(work, Comparisons())
