"""The plan of `make demo` is what its comments say it is. It is not run here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.examples import demo_findings, demo_plan

from ganger.cli.plans import PlannedJob
from ganger.storage import opcodes, settings
from ganger.storage.jobs.jobs import JobStatus

SCRATCH = Path("/demo")


@pytest.fixture(name="plan", scope="module")
def load_plan() -> list[PlannedJob]:
    # Reading it refuses unknown names, doubled names and cycles.
    return demo_plan.load_plan(SCRATCH)


def lock_needs(plan: list[PlannedJob]) -> list[dict[str, dict[str, list[str]]]]:
    return [op.get("locks", {}) for job in plan for op in job.ops]


def test_the_plan_has_at_least_thirty_named_jobs(plan: list[PlannedJob]) -> None:
    names = [job.name for job in plan]
    assert len(names) >= 30
    assert None not in names


def test_every_opcode_of_the_plan_is_accepted(plan: list[PlannedJob]) -> None:
    for job in plan:
        for op in job.ops:
            opcodes.parse(opcodes.check_opcode(op))


def test_every_command_runs_in_the_scratch_folder(plan: list[PlannedJob]) -> None:
    assert {op["cwd"] for job in plan for op in job.ops} == {str(SCRATCH)}
    assert "$DEMO" not in str(plan)


def test_the_file_is_already_in_the_order_of_submission(plan: list[PlannedJob]) -> None:
    written = re.findall(r"^  - name: (\S+)$", demo_plan.PLAN.read_text(), re.MULTILINE)
    assert [job.name for job in plan] == written


def test_exactly_two_jobs_fail_and_two_are_stopped_by_it(plan: list[PlannedJob]) -> None:
    ends, stopped = demo_plan.foresee(plan)
    failed = {name for name, status in ends.items() if status is JobStatus.ERROR}
    assert set(demo_plan.PLANNED_FAILURES) == {"verify-node05", "restore-last-year"}
    assert stopped == {"restore-node05", "compare-last-year"}
    assert failed == stopped | set(demo_plan.PLANNED_FAILURES)


def test_one_job_runs_only_because_of_a_failure(plan: list[PlannedJob]) -> None:
    waits_for_failure = [
        job.name for job in plan if any(statuses == ["error"] for _, statuses in job.depends)
    ]
    assert waits_for_failure == ["quarantine-node05"]


def test_the_plan_takes_locks_of_every_kind_it_promises(plan: list[PlannedJob]) -> None:
    taken = {
        (level, mode, name if name == "*" else "")
        for needs in lock_needs(plan)
        for level, modes in needs.items()
        for mode, names in modes.items()
        for name in names
    }
    assert taken >= {
        ("node", "exclusive", ""),
        ("node", "shared", "*"),
        ("nodegroup", "shared", ""),
        ("nodegroup", "exclusive", ""),
        ("instance", "shared", ""),
        ("instance", "exclusive", ""),
    }


def test_twelve_nodes_are_worked_on_alone(plan: list[PlannedJob]) -> None:
    exclusive = [needs.get("node", {}).get("exclusive", []) for needs in lock_needs(plan)]
    assert {name for names in exclusive for name in names} == set(demo_plan.NODES)


def test_the_urgent_job_comes_late_and_its_rivals_exceed_the_run_slots(
    plan: list[PlannedJob],
) -> None:
    urgent = next(job for job in plan if job.name == demo_plan.HOT_FIX)
    assert urgent.priority == -20
    assert plan.index(urgent) >= len(plan) - 3
    survey = [
        job
        for number, job in enumerate(plan)
        if demo_plan.needed_by(plan, number) == [("survey", ["success"])]
    ]
    # Otherwise all could start at once, and none would overtake another.
    assert len(survey) > settings.RUNNING_JOBS_MAX


def test_each_step_has_a_name_of_its_own(plan: list[PlannedJob]) -> None:
    steps = [demo_plan.step_of(op) for job in plan for op in job.ops]
    assert len(set(steps)) == len(steps)


def test_each_step_first_of_all_leaves_a_witness(plan: list[PlannedJob]) -> None:
    for job in plan:
        for op in job.ops:
            script = op["argv"][2]
            # The survey makes the folders first.
            lines = script.splitlines()[2 if job.name == "survey" else 0 :]
            assert lines[0] == 'echo "$GANGER_JOB_ID" >> witness/$0', demo_plan.step_of(op)


@pytest.mark.parametrize(
    ("one", "other", "excludes"),
    [
        (("node", "n1", "exclusive"), ("node", "n1", "shared"), True),
        (("node", "n1", "shared"), ("node", "n1", "shared"), False),
        (("node", "n1", "exclusive"), ("node", "n2", "exclusive"), False),
        (("node", "*", "shared"), ("node", "n2", "exclusive"), True),
        (("node", "n1", "exclusive"), ("instance", "n1", "exclusive"), False),
    ],
)
def test_locks_exclude_each_other_if_one_is_exclusive(
    one: tuple[str, str, str], other: tuple[str, str, str], *, excludes: bool
) -> None:
    first = demo_findings.Holding("a", one[:2], one[2], 0.0, 1.0)
    second = demo_findings.Holding("b", other[:2], other[2], 0.0, 1.0)
    assert first.excludes(second) is excludes
    assert second.excludes(first) is excludes
