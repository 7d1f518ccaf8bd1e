"""From a request to a filter rule, and from the stored rules to what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.rules import rule_requests
from ganger.storage import errors
from ganger.storage.filters import rules
from ganger.transport.messages import FilterRow, ReplaceFilter

A, B, C = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "abc")
YEAR_9999 = rules.TIME_MAX
NOW = 17


def built(**fields: Any) -> rules.FilterRule:
    asked = ReplaceFilter(**({"uuid": A} | fields))
    return rule_requests.build_rule(asked, watermark=9, now_nanoseconds=NOW)


def rule(uuid: str, **fields: Any) -> rules.FilterRule:
    return rules.parse_rule({"uuid": uuid, "watermark": 1, "action": "PAUSE"} | fields)


def test_a_rule_has_the_watermark_of_its_moment_and_defaults() -> None:
    rule = built()
    assert (rule.uuid, rule.watermark, rule.priority, rule.predicates) == (A, 9, 0, ())
    assert rule.action == rules.Action(rules.ActionName.CONTINUE)


def test_a_reason_is_signed_by_its_user_and_followed_by_that_of_the_daemon() -> None:
    assert built(reason="because").reason_trail == (
        ("gnt:user", "because", NOW),
        ("luxid", "", NOW),
    )
    assert built(reason="").reason_trail == (("luxid", "", NOW),)


def test_a_whole_trail_is_kept() -> None:
    trail = [["gnt:client:gnt-filter", "", 3], ["gnt:user", "x", 4]]
    assert built(reason=trail).reason_trail == (
        ("gnt:client:gnt-filter", "", 3),
        ("gnt:user", "x", 4),
        ("luxid", "", NOW),
    )


def test_expressions_are_stored_as_ganeti_writes_them() -> None:
    predicates = [["opcode", ["=", "OP_ID", "OP_X"]], ["jobid", ["!=", "id", 3]]]
    assert rules.to_raw(built(predicates=predicates))["predicates"] == [
        ["opcode", ["==", "OP_ID", "OP_X"]],
        ["jobid", ["!", ["==", "id", 3]]],
    ]


def test_a_wrong_rule_is_named() -> None:
    with pytest.raises(errors.FilterRuleError, match=r"predicates\[0\]: malformed"):
        built(predicates=[["nothing", None]])


def test_rules_are_shown_whole() -> None:
    stored = [rule(A, priority=2, action=["RATE_LIMIT", 3], valid_from=5.0, extra_key=1)]
    assert rule_requests.listed(stored, None, now=10.0) == [
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
    stored = [rule(A, valid_from=5.0, valid_until=10.0)]
    [row] = rule_requests.listed(stored, None, now)
    assert row.state == state


def test_rules_come_in_order_however_they_are_asked_for() -> None:
    stored = [rule(A, priority=2), rule(B, watermark=2), rule(C)]
    assert [row.uuid for row in rule_requests.listed(stored, None, 0.0)] == [C, B, A]
    assert [row.uuid for row in rule_requests.listed(stored, [A, A, C], 0.0)] == [C, A]


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (B, errors.UnknownFilterError, f"Filter rule with UUID {B} does not exist"),
        (A.upper(), errors.UnknownFilterError, f"the UUID or name '{A.upper()}'"),
        ("", errors.UnknownFilterError, "the UUID or name ''"),
    ],
)
def test_a_uuid_or_name_that_no_rule_has_is_refused(
    wanted: str, error: type[errors.GangerError], text: str
) -> None:
    stored: dict[str, Any] = {A: None, C: {"name": "the third"}}
    assert rule_requests.uuid_of(stored, A) == A
    assert rule_requests.uuid_of(stored, "the third") == C
    with pytest.raises(error, match=text):
        rule_requests.uuid_of(stored, wanted)


@pytest.mark.parametrize(
    "name", [7, " a", "a ", "-a", "a\nb", "x" * 101, A, "a\x1b[31m", ["a"], {}]
)
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(errors.FilterRuleError, match=r"^name: expected up to 100 printable"):
        built(name=name)


def test_a_name_is_for_one_rule_alone() -> None:
    stored = {A: rules.to_raw(rule(A, name="nightly"))}
    rule_requests.check_name_is_free(stored, rule(A, name="nightly"))
    rule_requests.check_name_is_free(stored, rule(B, name="nightly 2"))
    rule_requests.check_name_is_free(stored, rule(B))
    with pytest.raises(errors.FilterRuleError, match=f"'nightly' is the name of the rule {A}"):
        rule_requests.check_name_is_free(stored, rule(B, name="nightly"))


def test_a_rule_that_is_first_comes_before_others_of_its_priority_alone() -> None:
    stored = [rule(A, priority=1, first=True), rule(B), rule(C, watermark=9, first=True)]
    assert [row.uuid for row in rule_requests.listed(stored, None, 0.0)] == [C, B, A]
    with pytest.raises(errors.FilterRuleError, match="first: expected true or false, not 'yes'"):
        built(first="yes")


# A new rule, unlike a stored one, needs a sensible window, and room.


@pytest.mark.parametrize("name", ["valid_from", "valid_until"])
@pytest.mark.parametrize("moment", [YEAR_9999 + 1, 1_800_000_000_000_000, -1, -1e12])
def test_a_window_that_no_calendar_has_is_refused_with_its_place(name: str, moment: float) -> None:
    place = f"^{name}: expected seconds since the epoch, up to the year 9999, not "
    with pytest.raises(errors.FilterRuleError, match=place):
        built(**{name: moment})


@pytest.mark.parametrize("moment", [0.0, 1.5, YEAR_9999])
def test_every_window_of_the_calendar_is_taken(moment: float) -> None:
    assert built(valid_until=moment).valid_until == moment


def test_a_stored_rule_with_such_a_window_is_obeyed_all_the_same() -> None:
    stored = {"uuid": A, "watermark": 1, "action": "PAUSE", "valid_until": YEAR_9999 * 1000}
    parsed = rules.parse_rules({A: stored})
    assert parsed.problems == ()
    assert parsed.rules[A].is_in_force(1_800_000_000.0)


# How many.


def stored(count: int, **fields: Any) -> dict[str, Any]:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(count)]
    return {uuid: {"uuid": uuid, "watermark": 1, "action": "PAUSE", **fields} for uuid in uuids}


def test_a_rule_is_added_to_those_that_are_stored() -> None:
    before = stored(2)
    after = rule_requests.with_rule(before, built())
    assert after == before | {A: rules.to_raw(built())}
    assert len(before) == 2


def test_the_number_of_rules_has_a_limit() -> None:
    known = rule_requests.with_rule(stored(rules.RULES_MAX - 1), built())
    assert len(known) == rules.RULES_MAX
    with pytest.raises(
        errors.FilterRuleError,
        match=f"^there are {rules.RULES_MAX} filter rules, and no more than {rules.RULES_MAX} are",
    ):
        rule_requests.with_rule(stored(rules.RULES_MAX), built())


@pytest.mark.parametrize("count", [rules.RULES_MAX, rules.RULES_MAX + 5])
def test_where_all_places_are_taken_a_rule_may_still_be_replaced(count: int) -> None:
    known = stored(count)
    uuid = min(known)
    after = rule_requests.with_rule(known, built(uuid=uuid, action="REJECT"))
    assert after[uuid]["action"] == "REJECT"
    assert len(after) == count


def test_all_rules_together_fit_into_one_listing() -> None:
    text = "x" * (rules.RULES_BYTES_MAX // 4)
    known = stored(3, reason_trail=[["gnt:user", text, 1]])
    assert rule_requests.with_rule(known, built(reason="short"))
    with pytest.raises(
        errors.FilterRuleError,
        match=rf"^all filter rules together would have \d+ bytes, .* {rules.RULES_BYTES_MAX} are",
    ):
        rule_requests.with_rule(known, built(reason=text))


def test_rules_may_have_as_many_bytes_as_they_had_or_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = stored(3)
    size = rule_requests._size(rule_requests.with_rule(known, built()))
    for more, is_taken in ((0, True), (-1, False)):
        monkeypatch.setattr(rules, "RULES_BYTES_MAX", size + more)
        if is_taken:
            known = rule_requests.with_rule(known, built())
        else:
            with pytest.raises(errors.FilterRuleError, match="make this one smaller"):
                rule_requests.with_rule(known, built(reason="y"))
    assert rule_requests.with_rule(known, built()) == known


def test_rules_that_are_too_large_already_may_be_replaced_by_smaller_ones_alone() -> None:
    text = "x" * (rules.RULES_BYTES_MAX // 2)
    known = stored(3, reason_trail=[["gnt:user", text, 1]])
    uuid = min(known)
    assert rule_requests.with_rule(known, built(uuid=uuid, reason="short"))
    with pytest.raises(errors.FilterRuleError, match="make this one smaller"):
        rule_requests.with_rule(known, built(uuid=uuid, reason=text + "longer" * 20))


# Regular expressions.


def searching(count: int) -> list[list[Any]]:
    return [["opcode", ["|", *(["=~", "comment", f"x{number}"] for number in range(count))]]]


def test_the_number_of_regular_expressions_of_a_rule_has_a_limit() -> None:
    assert built(predicates=searching(rules.SEARCHES_MAX)).predicates
    with pytest.raises(errors.FilterRuleError, match=r"^predicates: more than 1000 regular"):
        # They are not even compiled.
        built(predicates=[*searching(rules.SEARCHES_MAX), ["opcode", ["=~", "comment", "("]]])


def test_the_number_of_regular_expressions_of_all_rules_has_a_limit() -> None:
    known = stored(2, predicates=searching(rules.SEARCHES_MAX // 2))
    assert rule_requests.with_rule(known, built())
    with pytest.raises(errors.FilterRuleError, match="would have 1001 regular expressions"):
        rule_requests.with_rule(known, built(predicates=searching(1)))


@pytest.mark.parametrize("count", [7, rules.SEARCHES_MAX])
def test_where_there_are_too_many_already_a_rule_may_be_replaced_by_no_larger_one(
    count: int,
) -> None:
    known = stored(3, predicates=searching(rules.SEARCHES_MAX))
    uuid = min(known)
    assert rule_requests.with_rule(known, built(uuid=uuid, predicates=searching(count)))
