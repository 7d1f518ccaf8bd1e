"""Entries in order, in runs that orders hand over to each other."""

from __future__ import annotations

import random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ganger.actors.scheduling.runs import FEW, Entry, Runs


def emptied(runs: Runs) -> list[Entry]:
    found = []
    while (run := runs.first()) is not None:
        found.append(run.entries[0])
        runs.pop(run)
    return found


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=100)
def test_two_orders_have_their_entries_in_order_whatever_they_hand_over(
    seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    orders = (Runs(), Runs())
    expected: tuple[list[Entry], list[Entry]] = ([], [])
    for _ in range(steps):
        place = chance.randrange(2)
        here, there = orders[place], orders[1 - place]
        match chance.randrange(5):
            case 0 | 1:
                for _ in range(chance.choice([1, 3, FEW, 3 * FEW])):
                    entry = Entry(chance.choice([-1, 0, 0]), chance.randrange(1_000))
                    here.add(entry, chance.choice([None, None, "a", "b"]))
                    expected[place].append(entry)
            case 2:
                for _ in range(chance.choice([1, 2 * FEW])):
                    if (run := here.first()) is not None:
                        assert run.entries[0] == min(expected[place])
                        expected[place].remove(run.entries[0])
                        here.pop(run)
            case 3:
                if (run := here.first()) is not None:
                    event("a run goes to the other order")
                    for entry in run.entries:
                        expected[place].remove(entry)
                    expected[1 - place].extend(run.entries)
                    here.give(run, there)
            case _:
                here.give_all(there)
                expected[1 - place].extend(expected[place])
                expected[place].clear()
        assert [len(one) for one in orders] == [len(one) for one in expected]
        assert [bool(one) for one in orders] == [bool(one) for one in expected]
    assert [emptied(one) for one in orders] == [sorted(one) for one in expected]


def test_a_run_changes_hands_without_a_look_at_each_entry() -> None:
    here, there = Runs(), Runs()
    for number in range(10 * FEW):
        here.add(Entry(0, number))
        there.add(Entry(0, -number))
    run = here.first()
    assert run is not None
    before = run.entries
    here.give_all(there)
    assert run.home is there
    assert run.entries is before
    assert not here
    assert len(emptied(there)) == 20 * FEW


def test_small_runs_do_not_pile_up() -> None:
    here, there = Runs(), Runs()
    for number in range(20 * FEW):
        there.add(Entry(0, number))
        there.give_all(here)
    assert len(here._all) == 1


def test_a_small_run_enters_a_large_one_that_comes() -> None:
    here, there = Runs(), Runs()
    here.add(Entry(0, 5))
    for number in range(10 * FEW):
        there.add(Entry(0, number))
    there.give_all(here)
    assert len(here._all) == 1
    assert [entry.id for entry in emptied(here)][:7] == [0, 1, 2, 3, 4, 5, 5]
