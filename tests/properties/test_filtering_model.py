"""Rule chains against a second evaluator: slow, on the raw JSON, written from the description.

It shares no code with the real one. An expression comes to one of three words, "true",
"false" or "invalid", and every rule is read anew for every job.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganger.actors.rules.filtering import JobFacts, compile_chain, judge
from ganger.storage.filters.predicates import PREDICATES as PREDICATE_KINDS
from ganger.storage.filters.rules import parse_rule, to_raw

Truth = Literal["true", "false", "invalid"]
Job = tuple[int, list[dict[str, Any]]]

NOW = 10.0


# ---------------------------------------------------------------- the second evaluator


class Absent:
    """What `look_up` gives for a field that is not there."""


def slow_verdict(raw_rules: list[dict[str, Any]], job: Job) -> tuple[str | None, object]:
    rules = list(raw_rules)
    while rules:
        first = rules[0]
        for other in rules:
            if place_of(other) < place_of(first):
                first = other
        rules.remove(first)
        if slow_applies(first, job):
            return first["uuid"], first["action"]
    return None, "ACCEPT"


def place_of(rule: dict[str, Any]) -> tuple[int, int, int, str]:
    later = 0 if rule.get("first") else 1
    return rule["priority"], later, rule["watermark"], rule["uuid"]


def slow_applies(rule: dict[str, Any], job: Job) -> bool:
    if rule["action"] == "CONTINUE":
        return False
    if "valid_from" in rule and rule["valid_from"] > NOW:
        return False
    if "valid_until" in rule and rule["valid_until"] <= NOW:
        return False
    for predicate in rule["predicates"]:
        is_negated = predicate[0] == "!"
        name, expression = predicate[1] if is_negated else predicate
        outcomes = [
            slow_truth(expression, name, thing, rule["watermark"])
            for thing in things_to_look_at(name, job)
        ]
        if ("true" in outcomes) is is_negated:
            return False
    return True


def things_to_look_at(name: str, job: Job) -> list[dict[str, Any]]:
    job_id, opcodes = job
    if name == "jobid":
        return [{"id": job_id}]
    if name == "opcode":
        return opcodes
    if name == "lock":
        return [lock for opcode in opcodes for lock in locks_taken(opcode)]
    return [
        {"source": entry[0], "reason": entry[1], "timestamp": entry[2]}
        for opcode in opcodes
        for entry in opcode["reason"]
    ]


def locks_taken(opcode: dict[str, Any]) -> list[dict[str, Any]]:
    """What a command declares; an opcode that nobody knows may take any lock."""
    if opcode["OP_ID"] != "OP_EXEC":
        levels = ("nodegroup", "instance", "node", "node-res", "network")
        unknown = [{"level": one, "name": "?", "mode": "exclusive"} for one in levels]
        return [{"level": "cluster", "name": "BGL", "mode": "shared"}, *unknown]
    declared = opcode.get("locks") or {}
    taken = [
        {"level": level, "name": name, "mode": mode}
        for level, modes in declared.items()
        for mode, names in modes.items()
        for name in names
    ]
    if taken and "cluster" not in declared:
        taken.append({"level": "cluster", "name": "BGL", "mode": "shared"})
    if {"level": "cluster", "name": "BGL", "mode": "exclusive"} in taken:
        levels = ("instance", "nodegroup", "node", "node-res", "network")
        taken += [{"level": level, "name": "*", "mode": "exclusive"} for level in levels]
    return taken


def is_touched(thing: dict[str, Any], lock: str) -> bool:
    """``node-res/a`` is a part of ``node/a``; ``*`` and ``?`` stand for each name."""
    level, name = lock.split("/")
    if thing["level"] != level and (thing["level"], level) != ("node-res", "node"):
        return False
    return name == "*" or thing["name"] in {name, "*", "?"}


def slow_truth(expression: Any, name: str, thing: dict[str, Any], watermark: int) -> Truth:
    if expression is None:
        return "true"
    sign, *operands = expression
    if sign in {"&", "|"}:
        decides: Truth = "false" if sign == "&" else "true"
        for operand in operands:
            outcome = slow_truth(operand, name, thing, watermark)
            if outcome in {"invalid", decides}:
                return outcome
        return "true" if sign == "&" else "false"
    if sign == "!":
        return negated(slow_truth(operands[0], name, thing, watermark))
    if name == "lock" and operands[0] == "touches":
        touched = word(holds=is_touched(thing, operands[1]))
        return negated(touched) if sign == "!=" else touched
    found = look_up(operands[0], name, thing)
    if found is Absent:
        return negated("false") if sign == "!=" else "false"
    if sign == "?":
        return word(holds=found) if isinstance(found, bool) else "invalid"
    if sign == "=~":
        return slow_search(operands[1], found, name)
    if name == "jobid" and isinstance(operands[1], str):
        if operands[1] != "watermark":
            return "invalid"
        operands[1] = watermark
    if sign == "=[]":
        return slow_membership(found, operands[1])
    return slow_comparison(sign, found, operands[1], name)


def look_up(field: str, name: str, thing: dict[str, Any]) -> object:
    spellings = [field]
    if name == "opcode":
        for one, other in (("depend", "depends"), ("depends", "depend")):
            if field == one or field.startswith(one + "."):
                spellings.append(other + field[len(one) :])
    for spelling in spellings:
        names = spelling.split(".") if name == "opcode" else [spelling]
        if thing.get(names[0]) is None:
            continue
        found: Any = thing
        for part in names:
            found = found[part] if isinstance(found, dict) and part in found else Absent
        return found
    return Absent


def slow_search(pattern: str, found: object, name: str) -> Truth:
    if isinstance(found, str):
        return word(holds=re.search(pattern, found) is not None)
    if type(found) is int and name not in {"opcode", "lock"}:
        return word(holds=re.search(pattern, str(found)) is not None)
    return "invalid"


def slow_membership(found: object, wanted: str | int) -> Truth:
    if not isinstance(found, list):
        return "invalid"
    if any(type(item) is not type(wanted) for item in found):
        return "invalid"
    return word(holds=any(item == wanted for item in found))


def slow_comparison(sign: str, found: object, wanted: str | int, name: str) -> Truth:
    here, there = kind_of(found, name), kind_of(wanted, name)
    a: Any = found
    b: Any = wanted
    is_equal = here == there and a == b
    is_less = here < there or (here == there and a < b)
    outcomes = {
        "=": is_equal,
        "==": is_equal,
        "!=": not is_equal,
        "<": is_less,
        "<=": is_less or is_equal,
        ">": not is_less and not is_equal,
        ">=": not is_less,
    }
    return word(holds=outcomes[sign])


def kind_of(value: object, name: str) -> int:
    kinds = ["null", "bool", "number", "string", "array", "object"]
    if name == "reason":
        kinds = ["string", "number"]
    for python, kind in (
        (bool, "bool"),
        (int, "number"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, python):
            return kinds.index(kind)
    return kinds.index("null")


def word(*, holds: bool) -> Truth:
    return "true" if holds else "false"


def negated(outcome: Truth) -> Truth:
    swapped: dict[Truth, Truth] = {"true": "false", "false": "true", "invalid": "invalid"}
    return swapped[outcome]


# ---------------------------------------------------------------- rules and jobs

# Few names and few values, so that rules often match, and often only just.
TEXTS = st.sampled_from(["", "a", "ab", "b", "7"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7])
PATTERNS = st.sampled_from(["", "a", "^a$", "^b", "b|7", "[0-3]", "a+b?$", "x"])
COMPARING = st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="])
ANYTHING = st.one_of(
    TEXTS,
    NUMBERS,
    st.sampled_from([0.5, 1.0, 2.5]),
    st.booleans(),
    st.none(),
    st.lists(TEXTS, max_size=2),
    st.lists(NUMBERS, max_size=2),
    st.just(["a", 1]),
)
LOCKS = st.sampled_from(["node/a", "node/*", "node/b", "node-res/a", "cluster/BGL", "instance/a"])
FIELDS = {
    "lock": st.sampled_from(["level", "name", "mode", "name", "zzz"]),
    "jobid": st.sampled_from(["id", "id", "id", "zzz"]),
    "reason": st.sampled_from(["source", "reason", "timestamp", "reason", "zzz"]),
    "opcode": st.sampled_from(
        [
            "OP_ID",
            "name",
            "size",
            "flag",
            "tags",
            "os",
            "os.kernel",
            "os.deep.er",
            "depend.x",
            "name.x",
            "zzz",
            "comment",
            "depends",
            "depend",
            "priority",
        ]
    ),
}


def comparisons(name: str) -> st.SearchStrategy[Any]:
    found = plain_comparisons(name)
    if name != "lock":
        return found
    return found | st.tuples(st.sampled_from(["=", "==", "!="]), st.just("touches"), LOCKS)


def plain_comparisons(name: str) -> st.SearchStrategy[Any]:
    field = FIELDS[name]
    texts = {
        "jobid": st.sampled_from(["watermark", "watermark", "2"]),
        "lock": st.sampled_from(["node", "instance", "a", "*", "?", "shared", "exclusive"]),
    }
    value = NUMBERS | texts.get(name, TEXTS)
    return st.one_of(
        st.tuples(COMPARING, field, value),
        st.tuples(COMPARING, field, value),
        st.tuples(st.just("=~"), field, PATTERNS),
        st.tuples(st.just("?"), field),
        st.tuples(st.just("=[]"), field, value),
    )


def expressions(name: str) -> st.SearchStrategy[Any]:
    return st.recursive(
        comparisons(name) | st.none(),
        lambda part: st.one_of(
            part.map(lambda one: ["!", one]),
            st.lists(part, max_size=3).map(lambda parts: ["&", *parts]),
            st.lists(part, max_size=3).map(lambda parts: ["|", *parts]),
        ),
        max_leaves=5,
    )


NAMES = st.sampled_from(sorted(PREDICATE_KINDS))


def of_each_kind(
    expression: Callable[[str], st.SearchStrategy[Any]],
) -> st.SearchStrategy[list[Any]]:
    """A predicate of any kind. Each kind's strategy is made once: hypothesis looks through it."""
    kinds = {name: st.tuples(st.just(name), expression(name)).map(list) for name in PREDICATE_KINDS}
    return NAMES.flatmap(kinds.__getitem__)


PLAIN_PREDICATES = of_each_kind(expressions)
PREDICATES = st.one_of(
    PLAIN_PREDICATES, PLAIN_PREDICATES, PLAIN_PREDICATES.map(lambda one: ["!", one])
)
COMPARISONS = of_each_kind(comparisons)
ACTIONS = st.sampled_from(["ACCEPT", "PAUSE", "REJECT", "CONTINUE", ["RATE_LIMIT", 2]])
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "uuid": st.sampled_from([f"{n:08x}-0000-4000-8000-000000000000" for n in range(6)]),
            "watermark": st.integers(0, 1),
            "priority": st.integers(0, 1),
            "predicates": st.lists(PREDICATES, max_size=2),
            "action": ACTIONS,
        },
        optional={
            "valid_from": st.sampled_from([5, NOW]) | st.sampled_from([9, 11]),
            "valid_until": st.sampled_from([12, 13.5, 20]),
            "first": st.sampled_from([False, False, False, True]),
            "name": st.sampled_from(["a", "b c/d"]),
        },
    )
    | st.fixed_dictionaries(
        {
            "uuid": st.sampled_from([f"{n:08x}-1111-4000-8000-000000000000" for n in range(3)]),
            "watermark": st.integers(0, 1),
            "priority": st.integers(0, 1),
            "predicates": st.lists(PREDICATES, max_size=1),
            "action": ACTIONS,
            "valid_until": st.sampled_from([9, NOW, 10.5]),
        }
    ),
    max_size=4,
    unique_by=lambda rule: rule["uuid"],
)
REASONS = st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=2)
LISTS = st.lists(TEXTS, max_size=2) | st.lists(NUMBERS, max_size=2) | st.just(["a", 1])
NODES_LOCKED = st.sampled_from(
    [
        {"shared": ["a"]},
        {"exclusive": ["a"], "shared": ["b"]},
        {"shared": ["*"]},
        {"exclusive": ["*"]},
        {"exclusive": ["b"]},
    ]
)
LOCKS_DECLARED = st.sampled_from(
    [{}, {"cluster": {"shared": ["BGL"]}}, {"cluster": {"exclusive": ["BGL"]}}]
) | st.dictionaries(st.sampled_from(["node", "node-res", "instance"]), NODES_LOCKED, max_size=2)
OPCODES = st.fixed_dictionaries(
    {
        "OP_ID": st.sampled_from(["a", "ab", "OP_X", "OP_EXEC", "OP_EXEC", "OP_EXEC"]),
        "reason": REASONS,
        "name": TEXTS,
        "size": NUMBERS | st.sampled_from([0.5, 1.0, 2.5]),
        "flag": st.booleans(),
        "tags": LISTS,
        "os": st.fixed_dictionaries(
            {}, optional={"kernel": ANYTHING, "deep": st.just({"er": True}) | ANYTHING}
        ),
    },
    optional={
        **dict.fromkeys(("comment", "depends", "depend", "priority"), ANYTHING),
        "locks": LOCKS_DECLARED,
    },
)
JOBS: st.SearchStrategy[Job] = st.tuples(
    st.integers(0, 4), st.lists(OPCODES, min_size=1, max_size=2)
)


def negated_within(predicate: list[Any]) -> list[Any]:
    if predicate[0] == "!":
        return ["!", negated_within(predicate[1])]
    return [predicate[0], ["!", predicate[1]]]


def paused_by(predicates: list[Any]) -> list[dict[str, Any]]:
    uuid = "00000000-0000-4000-8000-000000000000"
    return [
        {
            "uuid": uuid,
            "watermark": 2,
            "priority": 0,
            "predicates": predicates,
            "action": "PAUSE",
        }
    ]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(COMPARISONS | PREDICATES, min_size=6, max_size=12),
    st.lists(JOBS, min_size=2, max_size=3),
)
def test_a_predicate_matches_where_the_slow_evaluator_matches(
    predicates: list[Any], jobs: list[Job]
) -> None:
    for predicate in predicates:
        for raw in (predicate, ["!", predicate], negated_within(predicate)):
            if raw[0] == "!" and raw[1][0] == "!":
                continue
            raw_rules = paused_by([raw])
            chain = compile_chain([parse_rule(rule) for rule in raw_rules], NOW)
            for job in jobs:
                verdict = judge(chain, JobFacts.of(*job))
                expected = slow_verdict(raw_rules, job)
                assert (verdict.rule, str(verdict.action)) == expected, (raw, job)


@settings(max_examples=150, deadline=None)
@given(RULES, st.lists(JOBS, min_size=1, max_size=4))
def test_a_chain_gives_the_verdict_of_the_slow_evaluator(
    raw_rules: list[dict[str, Any]], jobs: list[Job]
) -> None:
    chain = compile_chain([parse_rule(raw) for raw in raw_rules], NOW)
    for job in jobs:
        facts = JobFacts.of(*job) if chain.looks_at.opcodes else JobFacts(job[0])
        verdict = judge(chain, facts)
        action = str(verdict.action) if verdict.limit is None else ["RATE_LIMIT", verdict.limit]
        assert (verdict.rule, action) == slow_verdict(raw_rules, job)


@settings(max_examples=75, deadline=None)
@given(RULES, JOBS)
def test_a_stored_rule_gives_the_verdict_of_the_one_submitted(
    raw_rules: list[dict[str, Any]], job: Job
) -> None:
    submitted = [parse_rule(raw) for raw in raw_rules]
    stored = [parse_rule(to_raw(rule)) for rule in submitted]
    assert stored == submitted
    facts = JobFacts.of(*job)
    assert judge(compile_chain(stored, NOW), facts) == judge(compile_chain(submitted, NOW), facts)


@pytest.mark.slow
def test_the_generated_predicates_come_to_each_outcome_often() -> None:
    """The comparison above would say little if hardly any predicate were true, or invalid."""
    seen: Counter[tuple[str, Truth]] = Counter()

    @settings(max_examples=250, deadline=None, derandomize=True, database=None)
    @given(PREDICATES, JOBS)
    def count(predicate: list[Any], job: Job) -> None:
        name, expression = predicate[1] if predicate[0] == "!" else predicate
        for thing in things_to_look_at(name, job):
            seen[name, slow_truth(expression, name, thing, 2)] += 1

    count()
    outcomes: list[Truth] = ["true", "false", "invalid"]
    rare = {(name, o): seen[name, o] for name in FIELDS for o in outcomes if seen[name, o] < 3}
    assert not rare, seen


@pytest.mark.slow
def test_the_generated_chains_come_to_each_action_and_depend_on_their_order_often() -> None:
    """Nor if hardly any chain had two rules that say different things of one job."""
    actions: Counter[str] = Counter()
    by_order: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(RULES, JOBS)
    def count(raw_rules: list[dict[str, Any]], job: Job) -> None:
        uuid, action = slow_verdict(raw_rules, job)
        actions[action if isinstance(action, str) else "RATE_LIMIT"] += uuid is not None
        applying = [raw for raw in raw_rules if slow_applies(raw, job)]
        by_order["more than one"] += len(applying) > 1
        for key in ("priority", "first", "watermark", "uuid"):
            others = [raw for raw in applying if raw["uuid"] != uuid]
            by_order[key] += any(place_decides(key, uuid, raw_rules, other) for other in others)

    count()
    assert {name for name, times in actions.items() if times >= 4} == {
        "ACCEPT", "PAUSE", "REJECT", "RATE_LIMIT",
    }  # fmt: skip
    assert all(by_order.values()), by_order


def place_decides(
    key: str, uuid: str | None, raw_rules: list[dict[str, Any]], other: dict[str, Any]
) -> bool:
    """Whether this is the first part of their places in which two rules differ."""
    [winner] = [raw for raw in raw_rules if raw["uuid"] == uuid]
    parts = ["priority", "first", "watermark", "uuid"]
    return next(part for part in parts if winner.get(part) != other.get(part)) == key
