"""Why a job does not run, in words."""

from __future__ import annotations

import pytest

from ganger.actors.answers import explaining
from ganger.actors.answers.explaining import HoldingRule
from ganger.actors.store.job_rows import JobClass, Row
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.settings import PRIORITY_MIN
from ganger.transport import remedy_words
from ganger.transport.messages import FullLimit, HoldingBack, QueuePosition, Remedy

EARLY, LATE = "2027-01-15 08:00:00 UTC", "2027-01-15 09:00:00 UTC"
DELETED_A, DELETED_B = "filter rule a is deleted", "filter rule b is deleted"


def row() -> Row:
    return Row(id=7, status=JobStatus.QUEUED, priority=0, job_class=JobClass(summary="x"))


def test_a_rule_for_a_time_names_when_it_ends_by_itself() -> None:
    found = explaining.of_rule(row(), HoldingRule("a", "paused by filter rule a", 0, EARLY))
    assert found.text == f"paused by filter rule a; that ends by itself at {EARLY}"
    assert remedy_words.remedy(found.remedy, 7) == f"{DELETED_A}, or it is {EARLY}"


def test_a_rule_without_an_end_names_none() -> None:
    found = explaining.of_rule(row(), HoldingRule("a", "paused by filter rule a", 3))
    assert found.text == "paused by filter rule a"
    assert (
        remedy_words.remedy(found.remedy, 7)
        == f"{DELETED_A}, or an ACCEPT rule with a priority below 3"
    )


@pytest.mark.parametrize(("until", "change"), [
    ((EARLY, LATE), f"{DELETED_A} and {DELETED_B}, or it is {LATE}"),
    ((EARLY, ""), f"{DELETED_A} and {DELETED_B}"),
])  # fmt: skip
def test_several_rules_end_by_themselves_when_all_do(until: tuple[str, str], change: str) -> None:
    rules = [HoldingRule(uuid, uuid, 0, end) for uuid, end in zip("ab", until, strict=True)]
    position = QueuePosition(
        open=[], full=[], action="PAUSE", rule="a", ahead=0, first_ahead=[], running=[],
        slots=1, best_priority=0, holding=["a", "b"], remedy=Remedy(rules=["a", "b"]),
    )  # fmt: skip
    remedy = explaining.remedy_of_pending(position, rules)
    assert remedy_words.remedy(remedy, 7) == change


@pytest.mark.parametrize(("ahead", "best", "remedy"), [
    (0, 0, None),
    (2, PRIORITY_MIN + 1, Remedy(priority=PRIORITY_MIN)),
    # No priority is better than the best: its turn must come.
    (2, PRIORITY_MIN, Remedy(is_turn=True, first_ahead=[3])),
])  # fmt: skip
def test_slots_hold_a_job_where_all_are_taken(ahead: int, best: int, remedy: Remedy | None) -> None:
    for running in ([], [1], [1, 2], [1, 2, 3]):
        position = QueuePosition(
            open=[], full=[], action="ACCEPT", rule=None, ahead=ahead, first_ahead=[3],
            running=running, slots=2, best_priority=best,
        )  # fmt: skip
        found = explaining.of_pending(row(), position, [])
        kinds = ["slots"] + ["order"] * (ahead > 0) if len(running) >= 2 else []
        assert [obstacle.kind for obstacle in found] == kinds
    assert found[0].remedy == Remedy(ends=[[1, 2, 3]], slots=4)
    if remedy is not None:
        assert found[1].remedy == remedy


def test_a_job_that_is_still_being_judged_is_held_by_the_rule_that_takes_so_long() -> None:
    position = QueuePosition(
        open=[], full=[], action="PAUSE", rule=None, ahead=0, first_ahead=[], running=[],
        slots=1, best_priority=0, holding=["a"],
    )  # fmt: skip
    assert explaining.holding(position) == ["a"]


@pytest.mark.parametrize(("limiting", "named"), [
    ("the rule 'one at a time'", "the rule 'one at a time'"),
    ("", "filter rule a"),
])  # fmt: skip
def test_a_rule_that_limits_is_called_by_its_name(limiting: str, named: str) -> None:
    full = FullLimit(name="rule:a", size=1, inside=[5])
    position = QueuePosition(full=[full], action="RATE_LIMIT", rule="a", slots=2)
    [found] = explaining.of_pending(row(), position, [], limiting)
    assert found.text == f"{named} lets 1 run at once: job 5"
    assert (found.rule, found.jobs) == ("a", [5])


def test_a_job_that_is_held_back_names_the_lock_and_its_owners() -> None:
    held = HoldingBack(lock="node/a", mode="exclusive", jobs=[3], soon=[4], others=["mover"])
    position = QueuePosition(held_back=[held], running=[3, 4], slots=2)
    found = explaining.of_pending(row(), position, [])
    assert [one.kind for one in found] == ["lock", "slots"]
    assert found[0].text == (
        "it would have to wait for node/a (exclusive), held by job 3 and mover "
        "and about to be taken by job 4"
    )
    assert (found[0].lock, found[0].jobs) == ("node/a", [3, 4])
    change = remedy_words.remedy(found[0].remedy, 7)
    assert change == "jobs 3, 4 end, or give the locks back"
