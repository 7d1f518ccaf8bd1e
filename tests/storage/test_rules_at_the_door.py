"""What is asked of a new rule and not of one that is stored: a sensible window, and room for it."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.actors.rules import rule_changes
from ganger.storage import errors, rules
from ganger.transport.messages import ReplaceFilter

UUID = "11111111-2222-4333-8444-555555555555"
YEAR_9999 = rules.TIME_MAX


def made(**fields: Any) -> rules.FilterRule:
    asked = ReplaceFilter(**({"uuid": UUID, "action": "PAUSE"} | fields))
    return rule_changes.made(asked, watermark=1, now_nanoseconds=1)


@pytest.mark.parametrize("name", ["valid_from", "valid_until"])
@pytest.mark.parametrize("moment", [YEAR_9999 + 1, 1_800_000_000_000_000, -1, -1e12])
def test_a_window_that_no_calendar_has_is_refused_with_its_place(name: str, moment: float) -> None:
    place = f"^{name}: expected seconds since the epoch, up to the year 9999, not "
    with pytest.raises(errors.FilterRuleError, match=place):
        made(**{name: moment})


@pytest.mark.parametrize("moment", [0.0, 1.5, YEAR_9999])
def test_every_window_of_the_calendar_is_taken(moment: float) -> None:
    assert made(valid_until=moment).valid_until == moment


def test_a_stored_rule_with_such_a_window_is_obeyed_all_the_same() -> None:
    stored = {"uuid": UUID, "watermark": 1, "action": "PAUSE", "valid_until": YEAR_9999 * 1000}
    parsed = rules.parse_rules([stored])
    assert parsed.problems == ()
    assert parsed.rules[0].is_in_force(1_800_000_000.0)


# How many.


def stored(count: int, **fields: Any) -> dict[str, Any]:
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(count)]
    return {uuid: {"uuid": uuid, "watermark": 1, "action": "PAUSE", **fields} for uuid in uuids}


def test_a_rule_is_added_to_those_that_are_stored() -> None:
    before = stored(2)
    after = rule_changes.with_rule(before, made())
    assert after == before | {UUID: rules.to_raw(made())}
    assert len(before) == 2


def test_there_are_as_many_rules_as_the_limit_says_and_no_more() -> None:
    known = rule_changes.with_rule(stored(rules.RULES_MAX - 1), made())
    assert len(known) == rules.RULES_MAX
    with pytest.raises(
        errors.FilterRuleError,
        match=f"^there are {rules.RULES_MAX} filter rules, and no more than {rules.RULES_MAX} are",
    ):
        rule_changes.with_rule(stored(rules.RULES_MAX), made())


@pytest.mark.parametrize("count", [rules.RULES_MAX, rules.RULES_MAX + 5])
def test_where_all_places_are_taken_a_rule_may_still_be_replaced(count: int) -> None:
    known = stored(count)
    uuid = min(known)
    after = rule_changes.with_rule(known, made(uuid=uuid, action="REJECT"))
    assert after[uuid]["action"] == "REJECT"
    assert len(after) == count


def test_all_rules_together_fit_into_one_listing() -> None:
    text = "x" * (rules.RULES_BYTES_MAX // 4)
    known = stored(3, reason_trail=[["gnt:user", text, 1]])
    assert rule_changes.with_rule(known, made(reason="short"))
    with pytest.raises(
        errors.FilterRuleError,
        match=rf"^all filter rules together would have \d+ bytes, .* {rules.RULES_BYTES_MAX} are",
    ):
        rule_changes.with_rule(known, made(reason=text))


def test_rules_that_are_too_large_already_may_be_replaced_by_smaller_ones_alone() -> None:
    text = "x" * (rules.RULES_BYTES_MAX // 2)
    known = stored(3, reason_trail=[["gnt:user", text, 1]])
    uuid = min(known)
    assert rule_changes.with_rule(known, made(uuid=uuid, reason="short"))
    with pytest.raises(errors.FilterRuleError, match="make this one smaller"):
        rule_changes.with_rule(known, made(uuid=uuid, reason=text + "longer" * 20))


# Regular expressions.


def searching(count: int) -> list[list[Any]]:
    return [["opcode", ["|", *(["=~", "comment", f"x{number}"] for number in range(count))]]]


def test_a_rule_has_as_many_regular_expressions_as_the_limit_says_and_no_more() -> None:
    assert made(predicates=searching(rules.SEARCHES_MAX)).predicates
    with pytest.raises(errors.FilterRuleError, match=r"^predicates: more than 1000 regular"):
        # They are not even compiled.
        made(predicates=[*searching(rules.SEARCHES_MAX), ["opcode", ["=~", "comment", "("]]])


def test_all_rules_together_have_no_more_regular_expressions_than_the_limit_says() -> None:
    known = stored(2, predicates=searching(rules.SEARCHES_MAX // 2))
    assert rule_changes.with_rule(known, made())
    with pytest.raises(errors.FilterRuleError, match="would have 1001 regular expressions"):
        rule_changes.with_rule(known, made(predicates=searching(1)))


def test_where_there_are_too_many_already_a_rule_may_be_replaced_by_no_larger_one() -> None:
    known = stored(3, predicates=searching(rules.SEARCHES_MAX))
    uuid = min(known)
    assert rule_changes.with_rule(known, made(uuid=uuid, predicates=searching(7)))
