"""The line of waiting requests: each has a place of its own, and leaves from that."""

from __future__ import annotations

import itertools

import pytest

from ganger.actors.locks.waiting import WaitingLine
from ganger.storage.locks.locks import LockMode, Owner, Pending


def job(number: int) -> Owner:
    return Owner(number, f"/run/livelocks/job_{number}", 1000 + number)


@pytest.mark.parametrize("order", [*itertools.permutations(range(1, 5))])
def test_owners_stand_in_their_order_and_leave_from_their_own_place(order: tuple[int, ...]) -> None:
    line = WaitingLine()
    for number in order:
        line.enter(Pending(0, job(number), ()), {"node/a": LockMode.EXCLUSIVE}, ())
        places = [waiter.place for waiter in line]
        assert places == sorted(set(places))
    left = [1, 2, 3, 4]
    for number in order:
        assert [waiter.owner.identifier for waiter in line] == left
        line.leave(job(number))
        left.remove(number)
    assert len(line) == 0


def test_a_request_stands_behind_those_that_it_would_harm() -> None:
    line = WaitingLine()
    for number in (2, 4, 1):
        line.enter(Pending(0, job(number), ()), {}, {job(2)})
    assert [waiter.owner.identifier for waiter in line] == [2, 1, 4]
