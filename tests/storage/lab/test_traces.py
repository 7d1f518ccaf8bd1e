from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.lab import generating, traces

HEADER = b'{"trace":1,"slots":4}\n'
JOB = b'{"at":0.5,"id":3,"ops":[{"op":"OP_EXEC","seconds":2.5,"command":1}]}\n'


def refused(*lines: bytes) -> str:
    with pytest.raises(errors.TraceError) as caught:
        traces.read(lines, "week.trace")
    assert "\n" not in caught.value.text
    return caught.value.text


@given(st.sampled_from(generating.KINDS), st.integers(1, 60), st.integers(0, 2**32))
def test_what_is_written_is_read_again(kind: str, jobs: int, seed: int) -> None:
    trace = generating.generate(kind, jobs, random.Random(seed))
    assert len(trace.jobs) == jobs
    assert traces.read(traces.lines_of(trace), "it") == trace


@given(st.sampled_from(generating.KINDS), st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_trace(kind: str, seed: int) -> None:
    first, second = (generating.generate(kind, 30, random.Random(seed)) for _ in range(2))
    assert first == second


def test_empty_lines_are_passed_over() -> None:
    assert len(traces.read([HEADER, b"\n", JOB, b"  \n"], "it").jobs) == 1


def test_equal_locks_of_a_trace_are_one_object() -> None:
    op = b'{"op":"OP_EXEC","seconds":%d,"forecast":{"node":{"type":"exclusive","names":[4]}}}'
    lines = [b'{"at":0,"id":%d,"ops":[%s]}' % (number, op % number) for number in (1, 2)]
    first, second = traces.read([HEADER, *lines], "it").jobs
    assert first.ops[0].forecast is second.ops[0].forecast


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "Input data was truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"at":0,"id":4,"ops":[]}', "Expected `array` of length >= 1 - at `ops`"),
        (b'{"at":-1,"id":4,"ops":[]}', "Expected `float` >= 0.0 - at `at`"),
        (b'{"at":0,"id":4,"ops":[{"op":"rm","seconds":1}]}', "at `ops[0].op`"),
        (b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1e10}]}', "at `ops[0].seconds`"),
        (b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":NaN}]}', "malformed"),
        (b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1}],"priority":99}', "at `priority`"),
        (b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1,"argv":["a"]}]}', "unknown field `argv`"),
        (JOB, "the id 3 stands on an earlier line, too"),
        (
            b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1}],"depends":[9]}',
            "depends: no earlier line has job 9",
        ),
        (
            (
                b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1,"forecast":'
                b'{"node":{"type":"exclusive"}}}]}'
            ),
            "names: expected numbers of locks with the type exclusive",
        ),
        (
            (
                b'{"at":0,"id":4,"ops":[{"op":"OP_X","seconds":1,"locks":'
                b'{"node":{"type":"unknown_shared"}}}]}'
            ),
            "locks.node: what an opcode took is never unknown_shared",
        ),
    ],
)
def test_a_damaged_line_is_named_with_its_number(line: bytes, problem: str) -> None:
    text = refused(HEADER, JOB, line)
    assert text.startswith("week.trace, line 3: ")
    assert problem in text


@pytest.mark.parametrize(
    ("locks", "field"),
    [
        (b'"names":[7,7]', "names"),
        (b'"names":[7],"also_shared":[8,9,8]', "also_shared"),
    ],
)
def test_a_lock_that_one_opcode_names_twice_is_refused(locks: bytes, field: str) -> None:
    # The bound would count it twice, and lie above what the policies reach.
    op = b'{"op":"OP_X","seconds":1,"forecast":{"node":{"type":"exclusive",%s}}}' % locks
    said = refused(HEADER, b'{"at":0,"id":4,"ops":[%s]}' % op)
    assert f"line 2: {field}: has a number twice - at `ops[0].forecast.node`" in said


def test_a_trace_without_its_header_is_refused() -> None:
    assert refused().startswith("week.trace, line 1: expected the header")
    assert refused(JOB).startswith("week.trace, line 1: expected the header")
    assert refused(b'{"trace":2}').endswith("expected version 1 of the format, got 2")


def test_a_trace_without_jobs_is_refused() -> None:
    assert refused(HEADER) == "week.trace: has no jobs"


def test_a_trace_with_too_many_jobs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "JOBS_MAX", 1)
    assert refused(HEADER, JOB, JOB.replace(b'"id":3', b'"id":4')) == (
        "week.trace, line 3: more than 1 jobs"
    )


def test_names_get_numbers_of_their_kind_in_their_order() -> None:
    numbering = traces.Numbering()
    found = [numbering.number(*one) for one in (("node", "b"), ("node", "a"), ("instance", "a"))]
    assert found == [1, 2, 1]
    assert numbering.number("node", "b") == 1


def test_a_hot_trace_has_17000_waiters_and_free_work() -> None:
    trace = generating.generate("hot", 20_000, random.Random(1))
    waiters = [job for job in trace.jobs if job.ops[0].forecast.node is not None]
    assert len(waiters) == 17_000
    assert {job.ops[0].forecast for job in waiters} == {waiters[0].ops[0].forecast}
    assert sum(job.ops[0].forecast == traces.NO_LOCKS for job in trace.jobs) == 3_000
