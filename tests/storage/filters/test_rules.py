"""Filter rules as stored: reading, refusing, writing back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.filters import rules
from ganger.storage.filters.filters import Comparison, Not
from ganger.storage.filters.predicates import Predicate
from ganger.storage.filters.rules import Action, ActionName, FilterRule

CORPUS = Path(__file__).parents[2] / "compatibility" / "data" / "filters-from-config.json"
UUID = "11111111-2222-4333-8444-555555555555"


def raw_rule(**fields: Any) -> dict[str, Any]:
    return {"uuid": UUID, "watermark": 12, **fields}


@pytest.mark.parametrize("raw", json.loads(CORPUS.read_text()).values(), ids=lambda r: r["uuid"])
def test_a_rule_that_ganeti_wrote_is_written_back_unchanged(raw: dict[str, Any]) -> None:
    written = rules.to_raw(rules.parse_rule(raw))
    assert written == raw
    assert list(written) == list(raw)


def test_a_rule_is_read_into_typed_values() -> None:
    rule = rules.parse_rule(
        raw_rule(
            priority=2,
            predicates=[["opcode", ["!=", "OP_ID", "OP_EXEC"]]],
            action=["RATE_LIMIT", 3],
            reason_trail=[["gnt:user", "slow", 5]],
        )
    )
    assert rule == FilterRule(
        uuid=UUID,
        watermark=12,
        priority=2,
        predicates=(Predicate("opcode", Not(Comparison("==", "OP_ID", "OP_EXEC"))),),
        action=Action(ActionName.RATE_LIMIT, 3),
        reason_trail=(("gnt:user", "slow", 5),),
    )


def test_all_but_uuid_and_watermark_have_defaults() -> None:
    assert rules.to_raw(rules.parse_rule(raw_rule())) == {
        "uuid": UUID,
        "watermark": 12,
        "priority": 0,
        "predicates": [],
        "action": "CONTINUE",
        "reason_trail": [],
    }


def test_expressions_are_written_normalised() -> None:
    rule = rules.parse_rule(raw_rule(predicates=[["jobid", ["!=", "id", "watermark"]]]))
    assert rules.to_raw(rule)["predicates"] == [["jobid", ["!", ["==", "id", "watermark"]]]]


def test_unknown_keys_of_a_rule_survive_a_rewrite() -> None:
    raw = raw_rule(owner={"team": "storage"}, extra=[1])
    written = rules.to_raw(rules.parse_rule(raw))
    assert written["owner"] == {"team": "storage"}
    assert written["extra"] == [1]


@pytest.mark.parametrize("name", ["ACCEPT", "PAUSE", "REJECT", "CONTINUE"])
def test_an_action_without_a_number_is_its_name(name: str) -> None:
    action = rules.parse_action(name)
    assert action == Action(ActionName(name))
    assert rules.action_to_raw(action) == name


def test_a_rate_limit_is_a_list_with_its_number() -> None:
    action = rules.parse_action(["RATE_LIMIT", 1])
    assert rules.action_to_raw(action) == ["RATE_LIMIT", 1]


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("RATE_LIMIT 3", ["RATE_LIMIT", 3]),
        ("RATE_LIMIT=3", ["RATE_LIMIT", 3]),
        ("rate-limit:3", ["RATE_LIMIT", 3]),
        ("RATE_LIMIT many", ["RATE_LIMIT", "many"]),
        ("RATE_LIMIT " + "9" * 5_000, ["RATE_LIMIT", "9" * 5_000]),
        ("RATE_LIMIT", "RATE_LIMIT"),
        ("PAUSE", "PAUSE"),
        (["RATE_LIMIT", 3], ["RATE_LIMIT", 3]),
        (None, None),
    ],
)
def test_a_limit_may_be_written_as_one_text(written: object, action: object) -> None:
    assert rules.written_action(written) == action


def test_every_action_has_a_line_in_the_table() -> None:
    assert set(rules.ACTIONS) == set(ActionName)


def test_a_window_is_written_only_when_set() -> None:
    written = rules.to_raw(rules.parse_rule(raw_rule(valid_from=5, valid_until=None)))
    assert written["valid_from"] == pytest.approx(5.0)
    assert "valid_until" not in written


@pytest.mark.parametrize(
    ("window", "now", "is_in_force", "is_expired"),
    [
        ({}, 0.0, True, False),
        ({"valid_from": 10}, 9.9, False, False),
        ({"valid_from": 10}, 10.0, True, False),
        ({"valid_until": 20}, 19.9, True, False),
        ({"valid_until": 20}, 20.0, False, True),
        ({"valid_from": 10, "valid_until": 20}, 9.0, False, False),
        ({"valid_from": 10, "valid_until": 20}, 15.0, True, False),
        ({"valid_from": 10, "valid_until": 20}, 21.0, False, True),
    ],
)
def test_a_rule_is_in_force_from_its_start_until_before_its_end(
    window: dict[str, Any], now: float, *, is_in_force: bool, is_expired: bool
) -> None:
    rule = rules.parse_rule(raw_rule(**window))
    assert rule.is_in_force(now) is is_in_force
    assert rule.is_expired(now) is is_expired


NO_ACTION = "action: malformed FilterAction JSON: "
NO_LIMIT = "action: RATE_LIMIT argument must be a positive integer"
NOT_NEGATIVE = "priority: Invalid value for non-negative type "

BAD: list[tuple[object, str]] = [
    ([], "rule: expected an object, not []"),
    ({"watermark": 1}, "uuid: Unable to parse UUID None"),
    (raw_rule(uuid="not-a-uuid"), "uuid: Unable to parse UUID 'not-a-uuid'"),
    (raw_rule(uuid="ABCDEF00-2222-4333-8444-555555555555"), "uuid: Unable to parse UUID"),
    (raw_rule(uuid=UUID + "\n"), "uuid: Unable to parse UUID"),
    (raw_rule(uuid=UUID.replace("-", "")), "uuid: Unable to parse UUID"),
    ({"uuid": UUID}, "watermark: Invalid value for non-negative type 'None'"),
    (raw_rule(watermark=-1), "watermark: Invalid value for non-negative type '-1'"),
    (raw_rule(priority=-1), NOT_NEGATIVE + "'-1'"),
    (raw_rule(priority="1"), NOT_NEGATIVE),
    (raw_rule(priority=True), NOT_NEGATIVE),
    (raw_rule(priority=1.5), NOT_NEGATIVE),
    (raw_rule(priority=2**63), NOT_NEGATIVE),
    (raw_rule(predicates="x"), "predicates: expected a list, not 'x'"),
    (raw_rule(predicates=[["jobid", None]] * 101), "predicates: a rule has at most 100"),
    (raw_rule(predicates=["jobid"]), "predicates[0]: malformed FilterPredicate: must be a list"),
    (raw_rule(predicates=[[]]), "predicates[0]: malformed FilterPredicate: must be a list"),
    (raw_rule(predicates=[[5, None]]), "predicates[0]: malformed FilterPredicate: must be a list"),
    (
        raw_rule(predicates=[["jobid", None], ["owner", None]]),
        (
            "predicates[1]: malformed FilterPredicate: bad parameter list for 'owner' predicate:"
            " [None]; expected one of jobid, opcode, reason, lock and one expression"
        ),
    ),
    (
        raw_rule(predicates=[["JobId", None]]),
        "predicates[0]: malformed FilterPredicate: bad parameter list for 'JobId' predicate",
    ),
    (
        raw_rule(predicates=[["jobid"]]),
        "predicates[0]: malformed FilterPredicate: bad parameter list for 'jobid' predicate: []",
    ),
    (
        raw_rule(predicates=[["jobid", None, None]]),
        "predicates[0]: malformed FilterPredicate: bad parameter list for 'jobid' predicate",
    ),
    (
        raw_rule(predicates=[["opcode", None], ["reason", ["&", ["~~", "reason", "x"]]]]),
        "predicates[1][1][1][0]: Unknown filter operand '~~'",
    ),
    (
        raw_rule(predicates=[["opcode", ["=~", "OP_ID", "("]]]),
        "predicates[0][1][2]: broken regular",
    ),
    (raw_rule(action="FROB"), NO_ACTION + "'FROB'; expected one of ACCEPT, PAUSE"),
    (raw_rule(action="pause"), NO_ACTION + "'pause'"),
    (raw_rule(action=None), NO_ACTION + "None"),
    (raw_rule(action=[]), NO_ACTION + "[]"),
    (raw_rule(action=["FROB", 1]), NO_ACTION + "['FROB', 1]"),
    (raw_rule(action=["PAUSE"]), NO_ACTION + "only RATE_LIMIT is written as a list"),
    (raw_rule(action=["PAUSE", 1]), NO_ACTION + "only RATE_LIMIT is written as a list"),
    (raw_rule(action="RATE_LIMIT"), NO_LIMIT),
    (raw_rule(action="RATE_LIMIT 5"), NO_ACTION + "'RATE_LIMIT 5'"),
    (raw_rule(action=["RATE_LIMIT"]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", 0]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", 0]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", 2**63]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", "x"]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", True]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", 1.5]), NO_LIMIT),
    (raw_rule(action=["RATE_LIMIT", 1, 2]), NO_LIMIT),
    (raw_rule(reason_trail={}), "reason_trail: expected a list, not {}"),
    (raw_rule(reason_trail=["x"]), "reason_trail[0]: expected [source, text, nanoseconds]"),
    (
        raw_rule(reason_trail=[["a", "b", 1], ["a", "b"]]),
        "reason_trail[1]: expected [source, text, nanoseconds], not ['a', 'b']",
    ),
    (raw_rule(reason_trail=[["a", 1, 1]]), "reason_trail[0]: expected [source, text"),
    (raw_rule(reason_trail=[["a", "b", True]]), "reason_trail[0]: expected [source, text"),
    (raw_rule(reason_trail=[["a", "b", 2**63]]), "reason_trail[0]: expected [source, text"),
    (raw_rule(valid_from="now"), "valid_from: expected a time in seconds"),
    (raw_rule(valid_from=True), "valid_from: expected a time in seconds"),
    (raw_rule(valid_until=float("nan")), "valid_until: expected a time in seconds"),
    (raw_rule(valid_until=float("inf")), "valid_until: expected a time in seconds"),
    (raw_rule(valid_until=10**400), "valid_until: expected a time in seconds"),
    (raw_rule(valid_from=5, valid_until=5), "valid_until: must be later than valid_from"),
]


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0, "watermark": 0, "action": ["RATE_LIMIT", 1]},
        {"priority": 2**63 - 1, "watermark": 2**63 - 1, "action": ["RATE_LIMIT", 2**63 - 1]},
        {"reason_trail": [["a", "b", 2**63 - 1], ["a", "b", 1 - 2**63]]},
        {"predicates": [["jobid", None]] * 100},
    ],
)
def test_a_rule_is_taken_up_to_all_bounds(fields: dict[str, Any]) -> None:
    written = rules.to_raw(rules.parse_rule(raw_rule(**fields)))
    assert {name: written[name] for name in fields} == fields


def test_the_window_of_a_stored_rule_may_be_as_long_as_integers_are() -> None:
    rule = rules.parse_rule(raw_rule(valid_from=1 - 2**63, valid_until=2**63 - 1))
    assert (rule.valid_from, rule.valid_until) == (-(2.0**63), 2.0**63)


@pytest.mark.parametrize(("raw", "text"), BAD, ids=[text for _, text in BAD])
def test_a_malformed_rule_is_refused_naming_the_place(raw: object, text: str) -> None:
    with pytest.raises(errors.FilterRuleError, match="^" + re.escape(text)):
        rules.parse_rule(raw)


def test_an_unknown_field_is_accepted_in_a_predicate() -> None:
    rule = rules.parse_rule(raw_rule(predicates=[["jobid", ["=", "zzz", 1]]]))
    assert rule.predicates == (Predicate("jobid", Comparison("==", "zzz", 1)),)


def test_a_rule_that_cannot_be_read_does_not_take_the_others_with_it() -> None:
    parsed = rules.parse_rules(
        {"a": raw_rule(priority=-1), "b": raw_rule(priority=4), "c": "rubbish"}
    )
    assert {key: rule.priority for key, rule in parsed.rules.items()} == {"b": 4}
    texts = [problem.text for problem in parsed.problems]
    assert texts[0].startswith(f"filters['{UUID}'].priority: ")
    assert texts[1] == "filters[2]: expected an object, not 'rubbish'"
