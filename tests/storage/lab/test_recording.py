from __future__ import annotations

from typing import Any

from ganger.storage.lab import traces
from ganger.storage.lab.recording import RecordedJob, RecordedOpcode, Recording

SECRET = "very-secret"


def command(program: str, seconds: float | None, **more: Any) -> RecordedOpcode:
    return RecordedOpcode({"OP_ID": "OP_EXEC", "argv": [program], **more}, seconds)


def job(number: int, *ops: RecordedOpcode, at: float = 1_000.0, **more: Any) -> RecordedJob:
    return RecordedJob(number, at, more.get("priority", 0), more.get("depends", ()), list(ops))


def recorded(*jobs: RecordedJob, left_out: int = 0) -> traces.Trace:
    recording = Recording()
    for one in jobs:
        recording.add(one)
    trace = recording.trace(7)
    assert recording.left_out == left_out
    # It can be read again.
    assert not trace.jobs or traces.read(traces.lines_of(trace), "it") == trace
    return trace


def test_nothing_that_a_user_wrote_gets_into_a_trace() -> None:
    locks = {
        level: {"shared": [f"{SECRET}-s"], "exclusive": [f"{SECRET}-x", "plain"]}
        for level in ("instance", "nodegroup", "node", "node-res", "network")
    }
    fields = {
        "argv": [f"/opt/{SECRET}/{SECRET}", SECRET],
        "env": {SECRET: SECRET},
        "cwd": f"/{SECRET}",
        "stdin": SECRET,
        "locks": locks,
        "comment": SECRET,
        "reason": [[SECRET, SECRET, 1]],
        SECRET: SECRET,
    }
    ops = [
        command("x", 1.0, **fields),
        RecordedOpcode({"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": SECRET}, 2.0),
        RecordedOpcode({"OP_ID": "OP_TAGS_SET", "kind": "node", "name": SECRET}, 2.0),
        RecordedOpcode({"OP_ID": "OP_TEST_DELAY", "duration": 1, "on_nodes": [SECRET]}, 2.0),
        RecordedOpcode({"OP_ID": "OP_OF_USERS", SECRET: SECRET}, 2.0),
    ]
    trace = recorded(job(1, *ops))
    text = b"".join(traces.lines_of(trace)).decode()
    assert SECRET not in text
    assert "plain" not in text
    assert "OP_OF_USERS" in text


def test_locks_and_commands_keep_their_numbers() -> None:
    locks = {"node": {"exclusive": ["b", "a"]}, "node-res": {"shared": ["a"]}}
    first, second = recorded(
        job(1, command("/bin/make", 1.0, locks=locks)),
        job(2, command("make", 2.0, locks={"node": {"shared": ["b"]}}), command("cc", 1.0)),
    ).jobs
    one, two, three = first.ops[0], *second.ops
    # Names are numbered as they come: a forecast has them in order.
    assert one.forecast.node == traces.TracedLevel("exclusive", (1, 2))
    assert one.forecast.node_res == traces.TracedLevel("shared", (1,))
    assert one.forecast.big_lock == "shared"
    assert two.forecast.node == traces.TracedLevel("shared", (2,))
    assert three.forecast == traces.NO_LOCKS
    assert (one.command, two.command, three.command) == (1, 1, 2)


def test_times_count_from_the_first_job() -> None:
    trace = recorded(job(2, command("x", 1.0), at=1_003.5), job(1, command("x", 1.0), at=1_001.0))
    assert [(job.id, job.at) for job in trace.jobs] == [(1, 0.0), (2, 2.5)]
    assert trace.slots == 7


def test_a_job_that_did_not_run_gets_the_run_time_of_others() -> None:
    trace = recorded(
        job(1, command("x", None)), job(2, command("/bin/x", 3.0)), job(3, command("y", None)),
        left_out=1,
    )  # fmt: skip
    assert [(job.id, job.seconds) for job in trace.jobs] == [(1, 3.0), (2, 3.0)]


def test_clocks_that_were_put_back_give_no_run_time() -> None:
    assert recorded(job(1, command("x", -3.0)), left_out=1).jobs == []


def test_malformed_jobs_are_left_out() -> None:
    ops = [RecordedOpcode({"OP_ID": one}, 1.0) for one in (None, "rm -rf", "OP_" + "X" * 99)]
    assert recorded(*(job(number, op) for number, op in enumerate(ops)), job(9), left_out=4) == (
        traces.Trace([], 7, "recorded")
    )


def test_dependencies_on_jobs_that_are_not_recorded_are_dropped() -> None:
    trace = recorded(
        job(4, command("x", 1.0)), job(5, command("x", 1.0), depends=(3, 4, 6), priority=-3)
    )
    assert trace.jobs[1].depends == (4,)
    assert trace.jobs[1].priority == -3
