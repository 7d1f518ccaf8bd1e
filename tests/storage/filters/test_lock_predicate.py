"""The predicate `lock`: which locks a job takes, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.filters.lock_claims import claims_of
from ganger.storage.filters.lock_predicate import parse_lock
from ganger.storage.filters.predicates import (
    JobFacts,
    compile_predicate,
    looks_at,
    parse_predicates,
    to_raw,
)
from ganger.storage.locks.locks import LockLevel, typed


def command(**locks: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": locks}


def matches(predicate: list[Any], *opcodes: dict[str, Any]) -> bool:
    (parsed,) = parse_predicates([predicate], "predicates")
    return compile_predicate(parsed, 0).matches(JobFacts.of(1, opcodes))


def test_every_opcode_of_a_job_counts_also_one_that_has_run() -> None:
    ops = [command(node={"shared": ["n1"]}), command(), command(node={"exclusive": ["n2"]})]
    assert [(one.level, one.name, one.mode) for one in claims_of(ops)] == [
        ("cluster", "BGL", "shared"),
        ("node", "n1", "shared"),
        ("node", "n2", "exclusive"),
    ]
    for name in ("n1", "n2", "*"):
        assert matches(["lock", ["=", "touches", f"node/{name}"]], *ops)
    assert not matches(["lock", ["=", "touches", "node/n3"]], *ops)


@pytest.mark.parametrize("opcode", [{"OP_ID": "OP_NOBODY_KNOWS"}, {}, command(node=7)])
def test_a_job_of_which_nothing_is_known_may_take_any_lock(opcode: dict[str, Any]) -> None:
    for lock in ("node/n1", "node-res/n1", "instance/*", "network/x", "nodegroup/y"):
        assert matches(["lock", ["=", "touches", lock]], opcode)
    assert not matches(["lock", ["=", "touches", "node/n1"]], command())


def test_fields_say_how_a_lock_is_taken() -> None:
    op = command(node={"shared": ["n1"], "exclusive": ["n2"]})
    alone = ["lock", ["&", ["=", "touches", "node/n1"], ["=", "mode", "exclusive"]]]
    assert not matches(alone, op)
    assert matches(["lock", ["&", ["=~", "name", "^n"], ["=", "mode", "exclusive"]]], op)
    assert matches(["lock", ["=", "touches", "node/[lockset]"]], op)


@pytest.mark.parametrize("level", [one for one in LockLevel if one is not LockLevel.CONFIG])
def test_each_lock_set_is_understood_as_lists_of_locks_show_it(level: LockLevel) -> None:
    shown = typed(f"{level}/[lockset]")
    assert shown == f"{level}/*"
    assert parse_lock(shown, "here") == (level, "*")


def test_a_negated_predicate_matches_if_no_part_of_the_job_does() -> None:
    op = command(node={"shared": ["n1"]}) | {"reason": [["gnt:user", "a", 1], ["gnt:user", "b", 2]]}
    is_a = ["reason", ["=", "reason", "a"]]
    assert matches(["reason", ["!", ["=", "reason", "a"]]], op)
    assert not matches(["!", is_a], op)
    assert matches(["!", ["reason", ["=", "reason", "c"]]], op)
    assert matches(["!", ["lock", ["=", "touches", "node/n2"]]], op)
    (parsed,) = parse_predicates([["!", is_a]], "predicates")
    assert to_raw(parsed) == ["!", ["reason", ["==", "reason", "a"]]]


def test_it_looks_at_locks_and_at_no_private_parameter() -> None:
    found = looks_at(parse_predicates([["lock", ["=", "touches", "node/n1"]]], ""))
    assert (found.locks, found.parameters, found.id, found.reasons) == (
        True, frozenset(), False, False,
    )  # fmt: skip


REFUSED = {
    '["lock", ["=", "touches", "n7"]]': "touches: expected a lock such as node/n7",
    '["lock", ["=", "touches", 7]]': "touches: expected a lock such as node/n7, node/* or instance",
    '["lock", ["=", "touches", "node/"]]': "touches: expected a lock such as node/n7",
    '["lock", ["=", "touches", "node/?"]]': "touches: expected a lock such as node/n7",
    '["lock", ["=", "touches", "cluster/config"]]': "touches: no rule sees cluster/config",
    '["lock", ["=", "touches", "node/n7\\n"]]': "touches: expected no control characters, got ",
    '["lock", ["&", ["=", "name", "n7\\u0007"]]]': "name: expected no control characters, got ",
    '["lock", ["<", "touches", "node/n7"]]': " expected touches with = or !=",
    '["lock", ["!", ["?", "touches"]]]': " expected touches with = or !=",
    '["lock", ["&", ["=~", "touches", "n7"]]]': " expected touches with = or !=",
    '["lock", ["|", ["=[]", "touches", "node/n7"]]]': " expected touches with = or !=",
}


@pytest.mark.parametrize("written", REFUSED)
def test_touches_takes_a_lock_and_says_so(written: str) -> None:
    with pytest.raises(errors.FilterRuleError, match=re.escape("predicates[0][1]:")) as refused:
        parse_predicates([json.loads(written)], "predicates")
    assert REFUSED[written] in refused.value.text
    with pytest.raises(errors.FilterRuleError, match=re.escape("predicates[0][1][1]:")):
        parse_predicates([["!", json.loads(written)]], "predicates")
