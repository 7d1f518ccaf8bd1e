"""Which filter rule applies to odd jobs; tests/transcripts/rules shows the rest."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.rules.filtering import (
    ACCEPTED,
    JobFacts,
    RuleChain,
    Verdict,
    compile_chain,
    judge,
    refused_priorities,
)
from ganger.storage import settings
from ganger.storage.filters.rules import ActionName, FilterRule, parse_rule

UUID_A = "aaaaaaaa-0000-4000-8000-000000000000"


def rule(uuid: str = UUID_A, *, watermark: int = 100, **fields: Any) -> FilterRule:
    return parse_rule({"uuid": uuid, "watermark": watermark, "action": "PAUSE", **fields})


def verdict(*known: FilterRule, job: JobFacts, now: float = 0.0) -> Verdict:
    return judge(compile_chain(known, now), job)


def test_depend_is_found_under_either_spelling() -> None:
    pause = rule(predicates=[["opcode", [">", "depends", "any text"]]])
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "depend": [[-1, ["success"]]]}])
    assert verdict(pause, job=job).action is ActionName.PAUSE


def test_an_unset_parameter_is_missing_whether_left_out_or_null() -> None:
    pause = rule(predicates=[["opcode", ["!", ["=~", "comment", "."]]]])
    for opcode in ({"OP_ID": "OP_EXEC"}, {"OP_ID": "OP_EXEC", "comment": None}):
        assert verdict(pause, job=JobFacts.of(1, [opcode])).action is ActionName.PAUSE


@pytest.mark.parametrize("trail", [None, "x", [["only", "two"]], [7], [None]])
def test_a_broken_trail_has_no_reasons(trail: object) -> None:
    pause = rule(predicates=[["reason", None]])
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "reason": trail}])
    assert verdict(pause, job=job) == ACCEPTED


def test_without_rules_every_job_is_accepted() -> None:
    assert judge(RuleChain(), JobFacts(101)) == ACCEPTED
    assert compile_chain([], 0.0) == RuleChain()


@pytest.mark.parametrize(
    ("now", "changes_at"), [(9.0, 10.0), (10.0, 20.0), (19.0, 20.0), (20.0, None), (21.0, None)]
)
def test_a_chain_changes_next_when_a_window_begins_or_ends(
    now: float, changes_at: float | None
) -> None:
    assert compile_chain([rule(valid_from=10, valid_until=20)], now).changes_at == changes_at


@pytest.mark.parametrize(
    ("predicate", "refused"),
    [
        (["opcode", ["<", "priority", -5]], [*range(-20, -5)]),
        (["opcode", ["=", "OP_ID", "OP_EXEC"]], []),
        (["opcode", [">=", "priority", 0]], [*range(-20, 0)]),
        (["jobid", ["=", "id", 1]], []),
    ],
)
@pytest.mark.parametrize("action", ["PAUSE", "REJECT", ["RATE_LIMIT", 1]])
def test_priorities_at_which_rules_treat_a_job_in_another_way_are_refused(
    predicate: list[Any], refused: list[int], action: object
) -> None:
    chain = compile_chain([rule(predicates=[predicate], action=action)], 0.0)
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "priority": 0}])
    assert refused_priorities(chain, job) == refused


def test_all_priorities_are_refused_if_it_takes_too_much_work_to_try_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "JUDGE_STEPS_AT_ONCE", 10_000)
    searched = ["opcode", ["&", ["=~", "comment", "x$"], [">=", "priority", 0]]]
    chain = compile_chain([rule(predicates=[searched])], 0.0)
    job = JobFacts.of(1, [{"OP_ID": "OP_EXEC", "comment": "x" * 1_000}])
    assert refused_priorities(chain, job) == [*range(-20, 20)]
