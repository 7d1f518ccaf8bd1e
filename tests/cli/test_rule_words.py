"""The words for what a filter rule matches, and what stands for a rule."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ganger.cli import rule_names, rule_words
from ganger.storage import errors
from ganger.transport.messages import FilterRow

FIRST = "0123abcd-0000-4000-8000-000000000001"
SECOND = "0123abcd-0000-4000-8000-000000000002"
THIRD = "ffff0000-0000-4000-8000-000000000003"


def rule(uuid: str = FIRST, name: str = "", predicates: list[Any] | None = None) -> FilterRow:
    return FilterRow(
        uuid=uuid,
        watermark=17,
        priority=0,
        predicates=predicates or [],
        action="PAUSE",
        reason_trail=[],
        name=name,
    )


def exec_or(*others: str) -> list[Any]:
    return ["|", *(["==", "OP_ID", one] for one in ("OP_EXEC", *others))]


N7 = ["=", "touches", "node/n7"]


@pytest.mark.parametrize(
    ("predicates", "words"),
    [
        ([], "every job"),
        ([["opcode", exec_or()]], "opcode = OP_EXEC"),
        ([["opcode", exec_or("OP_TEST_DELAY")]], "opcode = OP_EXEC or OP_TEST_DELAY"),
        (
            [["opcode", exec_or("OP_TEST_DELAY")], ["jobid", [">", "id", "watermark"]]],
            "(opcode = OP_EXEC or OP_TEST_DELAY) and id > 17",
        ),
        ([["opcode", ["!=", "OP_ID", "OP_EXEC"]]], "opcode != OP_EXEC"),
        ([["opcode", ["&", exec_or(), ["<", "priority", 5]]]], "opcode = OP_EXEC and priority < 5"),
        (
            [["opcode", ["|", ["?", "dry_run"], ["=[]", "argv", "-rf"]]]],
            "dry_run is true or argv has -rf",
        ),
        ([["opcode", ["=", "cwd", "17"]]], 'cwd = "17"'),
        ([["opcode", ["=", "cwd", ""]]], 'cwd = ""'),
        ([["opcode", ["!", exec_or("OP_X")]]], "not (opcode = OP_EXEC or OP_X)"),
        ([["lock", N7]], "touches node/n7"),
        ([["lock", ["!=", *N7[1:]]]], "does not touch node/n7"),
        ([["lock", ["|", N7, ["=", "touches", "node/*"]]]], "touches node/n7 or node/*"),
        ([["lock", ["&", N7, ["=", "mode", "shared"]]]], "touches node/n7 (shared)"),
        ([["lock", ["=", "level", "node"]]], "lock.level = node"),
        ([["!", ["reason", ["=~", "reason", "rack 7"]]]], 'not reason =~ "rack 7"'),
        ([["reason", ["=", "source", "user:alice"]]], "reason.source = user:alice"),
        ([["jobid", ["=", "id", 4]]], "id = 4"),
        # What only a later version can read stays as it is.
        ([["moon", ["=", "phase", "full"]]], '[["moon",["=","phase","full"]]]'),
    ],
)
def test_predicates_are_put_into_words(predicates: list[Any], words: str) -> None:
    assert rule_words.matched(rule(predicates=predicates)) == words


def test_a_rule_is_called_by_its_name_or_as_much_of_its_uuid_as_differs() -> None:
    one, other = rule(FIRST), rule(THIRD)
    assert rule_names.labels([]) == {}
    assert rule_names.labels([one, other]) == {FIRST: "0123abcd", THIRD: "ffff0000"}
    named = [one, rule(SECOND), rule(THIRD, "quiet")]
    assert rule_names.labels(named) == {FIRST: FIRST, SECOND: SECOND, THIRD: "quiet"}


def test_the_beginning_of_a_uuid_stands_for_it_if_no_other_rule_begins_so() -> None:
    client = mock.Mock()
    client.filters.return_value = [rule(FIRST), rule(SECOND), rule(THIRD), rule(name="0123abcd00")]
    words = ["ffff0000", FIRST, "quiet", "ffff", "abcdabcd", "0123abcd00"]
    assert rule_names.whole(client, words) == [THIRD, *words[1:]]
    with pytest.raises(errors.UsageError, match="'0123abcd' begins the UUIDs of 3 rules"):
        rule_names.whole(client, ["0123abcd"])
    client.filters.reset_mock()
    assert rule_names.whole(client, [FIRST, "quiet", "ffff"]) == [FIRST, "quiet", "ffff"]
    client.filters.assert_not_called()
