"""Large submissions: the queue works at them in slices, and serves others in between."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.queue.queue_rules import REJECTS, command, take_rules
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Asker
from tests.actors.store.test_job_table import row, table

from ganger.storage import errors, settings
from ganger.transport import messages
from ganger.transport.messages import JobSpec, SubmitJobs

MANY = 2 * settings.SUBMITTED_AT_ONCE + 1


def submit(queue: Queue, *specs: JobSpec, key: str | None = None) -> Asker:
    asker = queue.actor.say(SubmitJobs(jobs=list(specs) or [spec()] * MANY, key=key))
    queue.actor.end_turn()
    return asker


def test_smaller_submissions_are_answered_meanwhile_and_have_higher_ids(queue: Queue) -> None:
    large = submit(queue)
    assert queue.submitted(spec()) == [MANY + 1]
    assert large.answers == []
    assert queue.actor.work_off() > 4
    assert large.answer_as(messages.JobsSubmitted).ids == list(range(1, MANY + 1))
    assert [job.id for job in queue.actor.component.store.table] == list(range(1, MANY + 2))
    queue.restart()
    assert sorted(queue.statuses()) == list(range(1, MANY + 2))


def test_large_submissions_take_turns(queue: Queue) -> None:
    first, second = submit(queue), submit(queue)
    queue.actor.work_off()
    assert first.answer_as(messages.JobsSubmitted).ids == list(range(1, MANY + 1))
    assert second.answer_as(messages.JobsSubmitted).ids[0] == MANY + 1


def test_all_jobs_are_announced_before_the_answer_and_after_the_flush(queue: Queue) -> None:
    large = submit(queue)
    announced: list[int] = []
    while queue.actor.take_slice():
        for notice in queue.stage.take(messages.JobsArrived):
            announced += [one.job.id for one in notice.jobs]
            assert queue.actor.component.store.ledger.files.serial(notice.jobs[0].job.id) == 1
        assert not large.answers or len(announced) == MANY
    assert announced == list(range(1, MANY + 1))


def test_one_bad_job_refuses_all_and_their_ids_are_not_given_again(queue: Queue) -> None:
    bad = JobSpec(ops=[{"OP_ID": "QUITE_ANOTHER"}])
    large = submit(queue, *[spec()] * (MANY - 1), bad)
    queue.actor.work_off()
    assert large.refusal == (
        "OpcodeError",
        f"job {MANY - 1} of the submission: unknown opcode 'QUITE_ANOTHER'",
    )
    assert queue.statuses() == {}
    assert queue.submitted(spec()) == [MANY + 1]


def test_a_repetition_waits_for_the_large_submission(queue: Queue) -> None:
    first = submit(queue, key="k")
    again, other = submit(queue, key="k"), submit(queue, spec(), key="k")
    queue.actor.work_off()
    ids = first.answer_as(messages.JobsSubmitted).ids
    assert again.answer == messages.JobsSubmitted(ids=ids, is_repeat=True)
    assert other.refusal[0] == "BadRequestError"
    assert len(queue.statuses()) == MANY


def test_a_repetition_that_comes_while_its_jobs_become_known_waits_for_the_last(
    queue: Queue,
) -> None:
    first = submit(queue, key="k")
    table, again = queue.actor.component.store.table, None
    while queue.actor.take_slice():
        if again is None and 0 < len(table) < MANY:
            again = submit(queue, key="k")
            assert again.answers == []
    ids = first.answer_as(messages.JobsSubmitted).ids
    assert again is not None
    assert again.answer == messages.JobsSubmitted(ids=ids, is_repeat=True)
    assert len(table) == MANY


def test_what_waited_for_a_refused_one_is_stored(queue: Queue) -> None:
    bad = JobSpec(ops=[{"OP_ID": "QUITE_ANOTHER"}])
    first = submit(queue, *[spec()] * MANY, bad, key="k")
    second = submit(queue, spec(), key="k")
    queue.actor.work_off()
    queue.actor.end_turn()
    assert first.refusal[0] == "OpcodeError"
    assert second.answer_as(messages.JobsSubmitted).ids == [MANY + 2]


def test_rules_reject_some_of_a_large_submission(queue: Queue) -> None:
    take_rules(queue, REJECTS)
    large = submit(queue, *[spec(), command()] * MANY)
    queue.actor.work_off()
    answer = large.answer_as(messages.JobsSubmitted)
    assert answer.ids == list(range(2, 2 * MANY + 1, 2))
    assert sorted(answer.rejected) == list(range(0, 2 * MANY, 2))


def test_a_disk_that_refuses_leaves_nothing_of_it(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = submit(queue)

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        queue.actor.work_off()
    assert large.refusal[0] == errors.OutcomeUnknownError().name
    assert queue.stage.take(messages.JobsArrived) == []
    assert len(queue.actor.component.store.table) == 0


def test_a_dry_run_of_many_stores_nothing(queue: Queue) -> None:
    large = queue.actor.say(SubmitJobs(jobs=[spec()] * MANY, dry_run=True))
    queue.actor.end_turn()
    queue.actor.work_off()
    assert large.answer == messages.JobsSubmitted(ids=[])
    assert queue.submitted(spec()) == [1]


@given(
    st.lists(st.integers(min_value=1, max_value=60), unique=True),
    st.sets(st.integers(min_value=1, max_value=60)),
    st.integers(min_value=0, max_value=60),
    st.integers(min_value=1, max_value=7),
)
def test_the_table_is_in_the_order_of_ids_whatever_came_first(
    added: list[int], removed: set[int], after: int, limit: int
) -> None:
    known = table(*map(row, added))
    for job_id in removed:
        known.remove(job_id)
    left = sorted(set(added) - removed)
    assert [one.id for one in known] == left
    behind = [one for one in left if one > after]
    page, has_more = known.page(after=after, limit=limit, statuses=None)
    assert [one.id for one in page] == behind[:limit]
    assert has_more == (len(behind) > limit)
    assert list(known.ids_after(after)) == behind


def test_ids_of_removed_rows_do_not_pile_up() -> None:
    known = table(*map(row, range(1, 5_001)))
    for job_id in range(1, 5_000):
        known.remove(job_id)
    assert len(known._ids) < 1_100
    assert [one.id for one in known] == [5_000]


def test_a_large_submission_is_stored_though_its_client_is_gone(queue: Queue) -> None:
    queue.actor.say(SubmitJobs(jobs=[spec()] * MANY), peer=b"p")
    queue.actor.turn(messages.PeerGone(peer=b"p"))
    queue.actor.work_off()
    assert len(queue.statuses()) == MANY
