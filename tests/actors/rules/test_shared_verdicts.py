"""One verdict for all jobs of a class, if the rules look at nothing in which they differ."""

from __future__ import annotations

from typing import Any

from ganger.actors.rules.filtering import ACCEPTED, Verdict, compile_chain
from ganger.actors.rules.shared_verdicts import SharedVerdicts
from ganger.storage.filters.rules import ActionName, parse_rule
from ganger.transport.messages import PendingJob

UUID = "aaaaaaaa-0000-4000-8000-000000000000"


def verdicts(*predicates: list[Any]) -> SharedVerdicts:
    rule = {"uuid": UUID, "watermark": 9, "action": "PAUSE", "predicates": list(predicates)}
    return SharedVerdicts(compile_chain([parse_rule(rule)], now=0.0))


def job(number: int, job_class: int = 0) -> PendingJob:
    return PendingJob(id=number, priority=0, job_class=job_class)


def test_rules_that_look_at_nothing_say_the_same_of_every_job() -> None:
    assert verdicts().find(job(1)) == Verdict(UUID, ActionName.PAUSE)
    assert SharedVerdicts(compile_chain([], now=0.0)).find(job(1)) == ACCEPTED


def test_rules_that_look_at_jobs_say_nothing_of_a_class_that_they_have_not_seen() -> None:
    seen, unseen = 1, 2
    for predicate in (["jobid", [">", "id", 5]], ["reason", ["=", "reason", "x"]]):
        known = verdicts(predicate)
        known.note(job(1, seen), ACCEPTED)
        assert known.find(job(2, seen)) is None
    known = verdicts(["opcode", ["=", "OP_ID", "OP_EXEC"]])
    known.note(job(1, seen), ACCEPTED)
    assert known.find(job(2, seen)) is ACCEPTED
    assert known.find(job(3, unseen)) is None
    assert known.find(job(4)) is None
