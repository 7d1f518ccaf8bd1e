"""The list of locks."""

from __future__ import annotations

from ganger.storage.locks.lock_rows import LockView, lock_rows
from ganger.storage.locks.locks import LockChange, LockMode, Owner, Pending

ONE, TWO = Owner(1, "/one", 1), Owner(2, "/two", 2)


def test_every_lock_that_is_held_or_wanted_has_one_row() -> None:
    held = [
        ("node/[lockset]", []),
        ("node/n2", [(ONE, LockMode.SHARED), (TWO, LockMode.SHARED)]),
    ]
    line = [
        Pending(0, TWO, (("node/n10", LockChange.SHARED), ("node/n2", LockChange.EXCLUSIVE))),
        Pending(5, ONE, (("node/n10", LockChange.EXCLUSIVE),)),
    ]
    assert lock_rows(held, line) == [
        LockView("node/[lockset]", None, (), ()),
        LockView("node/n2", LockMode.SHARED, (ONE, TWO), ((LockChange.EXCLUSIVE, TWO),)),
        LockView("node/n10", None, (), ((LockChange.SHARED, TWO), (LockChange.EXCLUSIVE, ONE))),
    ]
    assert lock_rows([], []) == []


def test_a_request_that_names_a_lock_twice_waits_for_it_once() -> None:
    line = [Pending(0, ONE, (("node/n1", LockChange.SHARED), ("node/n1", LockChange.SHARED)))]
    (row,) = lock_rows([], line)
    assert row.pending == ((LockChange.SHARED, ONE),)
