"""From a request to a filter rule, and from the stored rules to what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.rules import rule_changes
from ganger.storage import errors, rules
from ganger.transport.messages import FilterRow, ReplaceFilter

A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
NOW = 17


def made(**fields: Any) -> rules.FilterRule:
    asked = ReplaceFilter(**({"uuid": A} | fields))
    return rule_changes.made(asked, watermark=9, now_nanoseconds=NOW)


def raw(uuid: str, **fields: Any) -> dict[str, Any]:
    return {"uuid": uuid, "watermark": 1, "action": "PAUSE"} | fields


def test_a_rule_has_the_watermark_of_its_moment_and_defaults() -> None:
    rule = made()
    assert (rule.uuid, rule.watermark, rule.priority, rule.predicates) == (A, 9, 0, ())
    assert rule.action == rules.Action(rules.ActionName.CONTINUE)


def test_a_reason_is_signed_by_its_user_and_followed_by_that_of_the_daemon() -> None:
    assert made(reason="because").reason_trail == (
        ("gnt:user", "because", NOW),
        ("luxid", "", NOW),
    )
    assert made(reason="").reason_trail == (("luxid", "", NOW),)


def test_a_whole_trail_is_kept() -> None:
    trail = [["gnt:client:gnt-filter", "", 3], ["gnt:user", "x", 4]]
    assert made(reason=trail).reason_trail == (
        ("gnt:client:gnt-filter", "", 3),
        ("gnt:user", "x", 4),
        ("luxid", "", NOW),
    )


def test_expressions_are_stored_as_ganeti_writes_them() -> None:
    predicates = [["opcode", ["=", "OP_ID", "OP_X"]], ["jobid", ["!=", "id", 3]]]
    assert rules.to_raw(made(predicates=predicates))["predicates"] == [
        ["opcode", ["==", "OP_ID", "OP_X"]],
        ["jobid", ["!", ["==", "id", 3]]],
    ]


def test_a_wrong_rule_is_named() -> None:
    with pytest.raises(errors.FilterRuleError, match=r"predicates\[0\]: malformed"):
        made(predicates=[["nothing", None]])


def test_rules_are_shown_whole() -> None:
    stored = {A: raw(A, priority=2, action=["RATE_LIMIT", 3], valid_from=5.0, extra_key=1)}
    assert rule_changes.listed(stored, None, now=10.0) == [
        FilterRow(
            uuid=A,
            watermark=1,
            priority=2,
            predicates=[],
            action=["RATE_LIMIT", 3],
            reason_trail=[],
            valid_from=5.0,
        )
    ]


@pytest.mark.parametrize(
    ("now", "state"),
    [(4.9, "not yet"), (5.0, "in force"), (9.9, "in force"), (10.0, "expired")],
)
def test_a_rule_is_shown_with_the_state_of_its_window(now: float, state: str) -> None:
    stored = {A: raw(A, valid_from=5.0, valid_until=10.0)}
    [row] = rule_changes.listed(stored, None, now)
    assert row.state == state


def test_rules_come_in_order_however_they_are_asked_for() -> None:
    stored = {A: raw(A, priority=2), B: raw(B, watermark=2), C: raw(C)}
    assert [row.uuid for row in rule_changes.listed(stored, None, 0.0)] == [C, B, A]
    assert [row.uuid for row in rule_changes.listed(stored, [A, A, C], 0.0)] == [C, A]


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (B, errors.UnknownFilterError, f"Filter rule with UUID {B} does not exist"),
        (A.upper(), errors.FilterRuleError, "Unable to parse UUID"),
    ],
)
def test_who_asks_for_a_rule_that_is_not_there_is_told(
    wanted: str, error: type[errors.GangerError], text: str
) -> None:
    with pytest.raises(error, match=text):
        rule_changes.listed({A: raw(A)}, [A, wanted], 0.0)


def test_a_stored_rule_that_cannot_be_read_does_not_hide_the_others() -> None:
    stored = {A: raw(A, action="STOP"), B: raw(B)}
    assert [row.uuid for row in rule_changes.listed(stored, None, 0.0)] == [B]
