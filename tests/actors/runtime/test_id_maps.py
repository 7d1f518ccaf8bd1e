"""Maps from ids: they do what dictionaries do, in the order of the ids."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.runtime.id_maps import IdMap

IDS = st.one_of(st.integers(0, 200), st.integers(0, 10**18))


@given(st.lists(st.tuples(st.sampled_from(["put", "pop", "take", "delete", "look"]), IDS)))
def test_it_does_what_a_dictionary_does(steps: list[tuple[str, int]]) -> None:
    known: dict[int, str] = {}
    made: IdMap[str] = IdMap()
    for number, (what, one) in enumerate(steps):
        match what:
            case "put":
                known[one] = made[one] = f"value {number}"
            case "pop":
                assert made.pop(one, None) == known.pop(one, None)
            case "take":
                assert made.take(one) == known.pop(one, None)
            case "delete" if one in known:
                del known[one]
                del made[one]
            case "delete":
                with pytest.raises(KeyError):
                    del made[one]
            case _:
                assert made.get(one) == known.get(one)
                assert (one in made) == (one in known)
        assert len(made) == len(known)
    assert list(made) == sorted(known)
    assert list(made.in_order()) == [known[one] for one in sorted(known)]
    assert dict(made) == known
    for one, value in known.items():
        assert made[one] == value
    for one in set(range(100)) - known.keys():
        with pytest.raises(KeyError):
            made[one]
        assert made.get(one, "nothing") == "nothing"


def test_blocks_are_no_larger_than_what_the_interpreter_keeps_together() -> None:
    made: IdMap[int] = IdMap()
    made[7] = 1
    [block] = made._blocks.values()
    assert sys.getsizeof(block) - sys.getsizeof([]) <= 512


def test_what_comes_and_goes_meanwhile_does_no_harm() -> None:
    made: IdMap[int] = IdMap()
    for one in range(500):
        made[one] = one
    seen = []
    for one in made:
        seen.append(one)
        made.pop(one + 64, None)
        made[one + 10_000] = one
        if one > 20_000:
            break
    assert seen[:64] == list(range(64))


def test_it_takes_nothing_for_those_that_are_gone() -> None:
    made: IdMap[int] = IdMap()
    for one in range(1_000):
        made[one] = one
    for one in range(1_000):
        del made[one]
    assert (len(made), made._blocks) == (0, {})
