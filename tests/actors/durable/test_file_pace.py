"""How many files a busy queue lets be created: an endless stream never fills the journal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.actors.durable.file_pace import Due, FilePace, due_for_each

LIMIT = 200_000
"""Jobs that fill the journal."""


@pytest.mark.parametrize("new", [1, 30, 5_000])
def test_nothing_is_due_while_the_journal_has_room(new: int) -> None:
    pace = FilePace()
    assert {pace.after_turn(new, 0, used / 100) for used in range(50)} == {Due()}


def test_more_is_due_the_less_room_is_left() -> None:
    due = [due_for_each(used / 100) for used in range(101)]
    assert due == sorted(due)
    assert due[50] == 0 < due[51]
    # It catches up long before the limit.
    assert due[70] > 1


def test_a_turn_waits_the_longer_the_less_room_is_left_and_only_if_files_are_late() -> None:
    waits = []
    for used in (0.5, 0.6, 0.8, 1.0, 3.0):
        late, in_time = FilePace(), FilePace()
        for _ in range(100):
            wait = late.after_turn(30, 0, used).wait
            assert in_time.after_turn(30, 10_000, used).wait == 0
        waits.append(wait)
    assert waits[0] == 0 < waits[1] < waits[2] < waits[3] == waits[4] == 1


def test_a_queue_that_rests_enough_lets_nothing_more_be_done() -> None:
    pace = FilePace()
    assert {pace.after_turn(1, 10, 0.9) for _ in range(100)} == {Due()}


def test_one_large_submission_does_not_make_the_small_ones_after_it_wait_for_long() -> None:
    pace = FilePace()
    assert pace.after_turn(5_000, 0, 0.8).files > 100
    due = [pace.after_turn(1, 0, 0.8).files for _ in range(1_000)]
    assert max(due[500:]) <= due_for_each(0.8) + 1


@settings(max_examples=30)
@given(
    turns=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    at_rest=st.integers(0, 2),
)
def test_an_endless_stream_never_reaches_the_limit(turns: list[int], at_rest: int) -> None:
    """Turns of these sizes, again and again; ``at_rest``: files of each turn made meanwhile.

    What is due is created, and a new segment begins once few jobs are without files.
    """
    pace, stored, missing, due = FilePace(), 0, 0, Due()
    rounds = 3 * LIMIT // (sum(turns) or LIMIT)
    for new in turns * rounds:
        created = min(missing, due.files + at_rest)
        missing += new - created
        stored += new
        assert stored < LIMIT
        due = pace.after_turn(new, created, stored / LIMIT)
        if stored > LIMIT // 2 and missing <= LIMIT // 100:
            stored = missing
