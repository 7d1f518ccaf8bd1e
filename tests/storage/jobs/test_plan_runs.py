"""The newest plan of a name: its submission, with the retries of its jobs."""

from __future__ import annotations

import pytest

from ganger.storage.jobs.plan_runs import Member, newest_run

OLD, NEW, LATER = 1.0, 2.0, 3.0


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, []),
        ({1: Member(OLD, None), 2: Member(OLD, None), 3: Member(NEW, None)}, [3]),
        ({1: Member(OLD, None), 2: Member(NEW, None), 3: Member(LATER, 1)}, [2]),
        (
            {2: Member(NEW, None), 3: Member(NEW, None), 4: Member(LATER, 2), 9: Member(LATER, 4)},
            [2, 3, 4, 9],
        ),
        # Of what they repeat there is nothing left.
        ({7: Member(LATER, 2), 8: Member(LATER, 7)}, [7, 8]),
        ({5: Member(NEW, None), 7: Member(LATER, 2)}, [5]),
        # A file that somebody has written: a job that repeats itself.
        ({5: Member(NEW, None), 7: Member(LATER, 7)}, [5]),
        ({5: Member(None, None), 6: Member(None, 5)}, [5, 6]),
    ],
)
def test_a_retry_is_of_the_plan_of_the_job_that_it_repeats(
    members: dict[int, Member], expected: list[int]
) -> None:
    assert newest_run(members) == expected
