"""``for_each`` in plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ganger.cli import plans
from ganger.storage import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAN = """
name: rollout
jobs:
  - name: drain
    for_each: {node: "tag:web"}
    reason: "for {node}"
    ops: [{OP_ID: OP_EXEC, argv: [drain, "{node}"], node: "{node}"}]
  - name: "upgrade {node}"
    for_each: {node: [web1, web2]}
    after: ["drain-{node}"]
    ops: [{OP_ID: OP_EXEC, argv: [upgrade], locks: {node: {exclusive: ["{node}"]}}}]
  - name: report
    after: [{drain: always}, "upgrade {node}"]
    ops: [{OP_ID: OP_EXEC, argv: [report, "{node}"]}]
"""


def two(words: Sequence[str]) -> list[str]:
    assert words in (["tag:web"], ["web1", "web2"])
    return ["web1", "web2"]


def test_a_job_is_made_for_each_node_and_others_wait_for_all_of_them() -> None:
    found = {one.name: one for one in plans.read(PLAN, "plan", find_nodes=two)}
    order = [*found]
    assert order == [
        "drain-web1", "drain-web2", "upgrade web1", "upgrade web2", "report",
    ]  # fmt: skip
    drain = found["drain-web2"]
    assert (drain.ops[0]["argv"], drain.ops[0]["node"]) == (["drain", "web2"], "web2")
    assert (drain.reason, drain.plan) == ("for web2", "rollout")
    upgrade = found["upgrade web2"]
    assert upgrade.ops[0]["locks"] == {"node": {"exclusive": ["web2"]}}
    assert [order[3 + target] for target, _ in upgrade.depends] == ["drain-web2"]
    report = found["report"]
    assert [order[4 + target] for target, _ in report.depends] == order[:4]
    assert report.ops[0]["argv"] == ["report", "{node}"]


@pytest.mark.parametrize("wrong", ["web1", "{group: a}", "{node: []}", "{node: [1]}", "{node: 7}"])
def test_a_malformed_one_is_named(wrong: str) -> None:
    text = f"jobs: [{{name: a, for_each: {wrong}, ops: [{{OP_ID: OP_EXEC, argv: [x]}}]}}]"
    with pytest.raises(errors.PlanError, match=r"plan: jobs\[0\].for_each: expected \{node: NAME"):
        plans.read(text, "plan", find_nodes=two)


def test_without_a_daemon_no_nodes_are_known() -> None:
    with pytest.raises(errors.PlanError, match="no nodes are known here"):
        plans.read(PLAN, "plan")
