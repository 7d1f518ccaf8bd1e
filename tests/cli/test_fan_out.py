"""The jobs of a command for several nodes."""

from __future__ import annotations

import itertools

import pytest

from ganger.cli.fan_out import Spread, plan_name, plan_of

OPCODE = {"OP_ID": "OP_EXEC", "argv": ["true"]}


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_each_node_has_a_job_of_its_name_and_without_more_they_do_not_wait() -> None:
    planned = plan_of([OPCODE], ["a", "b"], Spread(), [(7, ["success"])], "x")
    assert [(one.name, one.ops[0]["node"], one.depends) for one in planned] == [
        ("a", "a", [(7, ["success"])]),
        ("b", "b", [(7, ["success"])]),
    ]


def test_a_limit_is_one_bucket_for_all() -> None:
    planned = plan_of([OPCODE], names(3), Spread(2), [], "label")
    assert {one.ops[0]["reason"][0][1] for one in planned} == {"rate-limit:2:label"}
    assert all(one.depends == [] for one in planned)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_with_a_stop_no_more_than_the_limit_run_and_none_begins_behind_a_failure(
    width: int,
) -> None:
    count = 10
    planned = plan_of([OPCODE], names(count), Spread(width, stops_on_failure=True), [], "x")
    needs = [{place + target for target, _ in one.depends} for place, one in enumerate(planned)]
    behind: list[set[int]] = []
    for own in needs:
        behind.append(own.union(*(behind[one] for one in own)))
    # All that a job may run beside have not succeeded yet: so many at most.
    for place, others in enumerate(behind):
        assert others == set(range(max(0, place - width + 1)))
    assert max(map(len, needs)) <= width


def test_a_plan_is_called_by_program_and_nodes() -> None:
    assert plan_name(None, ["/usr/bin/uptime"], ["tag:web", "db1"]) == "uptime on tag:web,db1"
    assert plan_name("mine", ["x"], ["a"]) == "mine"
    assert plan_name(None, ["-x"], ["a"]) == "exec on nodes"
    assert len(plan_name(None, ["x"], itertools.repeat("node", 900))) <= 256  # type: ignore[arg-type]
