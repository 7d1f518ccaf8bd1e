"""What the daemon says as data, in the words of the reader's door."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ganger.cli import whys
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import remedy_words
from ganger.transport.messages import JobExplained, Remedy

if TYPE_CHECKING:
    from ganger import Client

MANY = list(range(1, 13))


@pytest.mark.parametrize(("remedy", "words"), [
    (Remedy(), ""),
    (Remedy(is_disk=True, depends=[1]), "the disk takes writes again; and job 1 ends as it must"),
    (Remedy(depends=[1, 2]), "jobs 1, 2 end as they must"),
    (Remedy(locks=[1]), "job 1 ends, or gives the lock back"),
    (Remedy(locks=MANY),
     "jobs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more end, or give the locks back"),
    (Remedy(rules=["a"], accept_below=3, until="noon"),
     "filter rule a is deleted, or an ACCEPT rule with a priority below 3, or it is noon"),
    (Remedy(ends=[[1], [2, 3]], slots=4),
     "job 1 ends; and one of jobs 2, 3 ends, or there are 4 run slots"),
    (Remedy(ends=[[1]], needs_slots=2), "job 1 ends; and there are 2 run slots"),
    (Remedy(needs_slots=1), "there is 1 run slot"),
    (Remedy(priority=-1), "those before it have had their turn, or it has priority -1 or better"),
    (Remedy(is_turn=True, first_ahead=[8, 9]),
     "those before it have had their turn, first jobs 8, 9"),
])  # fmt: skip
def test_a_remedy_in_words_names_no_command(remedy: Remedy, words: str) -> None:
    assert remedy_words.remedy(remedy, 7) == words


class RemediesDaemon:
    def __init__(self, answer: JobExplained) -> None:
        self.answer = answer

    def explain(self, job_id: int) -> JobExplained:
        assert job_id == self.answer.id
        return self.answer


@pytest.mark.parametrize(("remedy", "change"), [
    (Remedy(rules=["a", "b"]), "`ganger filter delete a` and `ganger filter delete b`"),
    (Remedy(ends=[[1, 2]], slots=3),
     "one of jobs 1, 2 ends, or there are 3 run slots (`ganger queue limit 3`)"),
    (Remedy(needs_slots=2), "there are 2 run slots (`ganger queue limit 2`)"),
    (Remedy(priority=-1),
     ("those before it have had their turn, or it has priority -1 or better"
      " (`ganger job change-priority 7 --priority -1`)")),
    (Remedy(), "an older daemon's words"),
])  # fmt: skip
def test_the_command_line_words_a_remedy_with_its_commands(remedy: Remedy, change: str) -> None:
    answer = JobExplained(
        id=7, status=JobStatus.QUEUED, text="", change="an older daemon's words", remedy=remedy
    )
    assert whys.asked(cast("Client", RemediesDaemon(answer)), 7).change == change
