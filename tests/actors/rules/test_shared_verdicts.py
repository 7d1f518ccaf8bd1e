"""One verdict for all jobs that a chain of rules cannot tell apart."""

from __future__ import annotations

from typing import Any

from ganger.actors.rules.filtering import ACCEPTED, Verdict, compile_chain
from ganger.actors.rules.shared_verdicts import SharedVerdicts
from ganger.storage.filters.rules import ActionName, parse_rule
from ganger.transport.messages import JobToJudge, PendingJob, SharedInputs

UUID = "aaaaaaaa-0000-4000-8000-000000000000"


def verdicts(*predicates: list[Any]) -> SharedVerdicts:
    rule = {"uuid": UUID, "watermark": 9, "action": "PAUSE", "predicates": list(predicates)}
    return SharedVerdicts(compile_chain([parse_rule(rule)], now=0.0))


def job(number: int, shared: SharedInputs | None = None) -> JobToJudge:
    return JobToJudge(job=PendingJob(id=number, priority=0), inputs=None, shared=shared)


def test_rules_that_look_at_nothing_say_the_same_of_every_job() -> None:
    assert verdicts().find(job(1)) == Verdict(UUID, ActionName.PAUSE)
    assert SharedVerdicts(compile_chain([], now=0.0)).find(job(1)) == ACCEPTED


def test_rules_that_look_at_jobs_say_nothing_of_one_that_they_have_not_seen() -> None:
    seen, unseen = (SharedInputs(inputs=[{"OP_ID": "OP_EXEC"}], number=n) for n in (1, 2))
    for predicate in (["jobid", [">", "id", 5]], ["reason", ["=", "reason", "x"]]):
        known = verdicts(predicate)
        known.note(job(1, seen), ACCEPTED)
        assert known.find(job(2, seen)) is None
    known = verdicts(["opcode", ["=", "OP_ID", "OP_EXEC"]])
    known.note(job(1, seen), ACCEPTED)
    assert known.find(job(2, seen)) is ACCEPTED
    assert known.find(job(3, unseen)) is None
    assert known.find(job(4)) is None
