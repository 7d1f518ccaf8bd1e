"""Jobs under every sequence of events: statuses against a plain model, files against values."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ganger.storage import errors
from ganger.storage.jobs import job_ends, jobs
from ganger.storage.jobs.jobs import JobStatus, OpcodeEvent

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
# Hypothesis knows the names that the code knows; these are none of them.
unknown_fields = st.dictionaries(texts.map(lambda text: f"x {text}"), plain, max_size=3)
stamps = st.none() | st.tuples(st.integers(0, 2**32), st.integers(0, 999_999)).map(list)
opcodes = st.fixed_dictionaries(
    {"input": st.dictionaries(texts, plain, max_size=4)},
    optional={
        "status": st.sampled_from([str(status) for status in JobStatus]),
        "result": plain,
        "priority": st.integers(-100, 100),
        "start_timestamp": stamps,
        "end_timestamp": stamps,
        "log": st.lists(
            st.tuples(st.integers(1, 99), st.just([1, 2]), texts, plain).map(list), max_size=2
        ),
    },
)
documents = st.fixed_dictionaries(
    {"id": st.integers(0, 2**40), "ops": st.lists(opcodes, max_size=3)},
    optional={
        "livelock": st.none() | texts,
        "process_id": st.none() | st.integers(1, 99_999),
        "received_timestamp": stamps,
        "ganger_serial": st.integers(0, 99),
        "ganger_key": texts,
    },
)


@given(documents, unknown_fields, st.data())
def test_unknown_fields_survive_a_rewrite(
    document: dict[str, Any], unknown: dict[str, Any], data: st.DataObject
) -> None:
    document = {**unknown, **document}
    for op in document["ops"]:
        op.update(data.draw(unknown_fields))
    # With spaces, as other programs write: a text like one of ours would need a checksum.
    job = jobs.decode_job(json.dumps(document).encode())
    written = msgspec.json.decode(jobs.encode_job(job))
    assert {name: written[name] for name in document if name != "ops"} == {
        name: value for name, value in document.items() if name != "ops"
    }
    for op, given_op in zip(written["ops"], document["ops"], strict=True):
        assert {name: op[name] for name in given_op} == given_op
    # Byte for byte, and in the same order, from the second time on.
    assert [name for name in written if name in unknown] == list(unknown)
    assert jobs.encode_job(jobs.decode_job(jobs.encode_job(job))) == jobs.encode_job(job)


@given(st.binary(max_size=200) | plain.map(msgspec.json.encode))
def test_arbitrary_text_is_a_job_or_an_error(data: bytes) -> None:
    try:
        job = jobs.decode_job(data)
    except errors.StorageError:
        return
    assert jobs.decode_job(jobs.encode_job(job)).status is job.status


def slow_status(statuses: list[JobStatus]) -> JobStatus:
    """The four rules of the job file, one after the other."""
    stopped = [status for status in statuses if status in (ERROR, CANCELING, CANCELED)]
    if stopped:
        return stopped[0]
    active = [status for status in statuses if status in (WAITING, RUNNING)]
    if active:
        return active[-1]
    return SUCCESS if all(status is SUCCESS for status in statuses) else QUEUED


@given(st.lists(st.sampled_from(JobStatus), max_size=6))
def test_the_status_of_a_job_follows_the_rules(statuses: list[JobStatus]) -> None:
    assert jobs.job_status(statuses) is slow_status(statuses)


class LifeOfAJob(RuleBasedStateMachine):
    """A job as its process and the queue treat it; every state is written and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.job = jobs.Job(id=1, ops=[])
        self.index = 0
        self.now = 0
        self.was_final = False
        self.serials: list[int] = []

    @initialize(count=st.integers(1, 4))
    def submit(self, count: int) -> None:
        self.job.ops = [jobs.OpcodeEntry(input={}) for _ in range(count)]

    def tick(self) -> jobs.Timestamp:
        self.now += 1
        return self.now, 0

    @property
    def op(self) -> jobs.OpcodeEntry:
        return self.job.ops[self.index]

    @rule(event=st.sampled_from([OpcodeEvent.TAKE_UP, OpcodeEvent.START, OpcodeEvent.CANCEL]))
    def step(self, event: OpcodeEvent) -> None:
        self.apply(event)

    @rule()
    def succeed(self) -> None:
        if self.apply(OpcodeEvent.SUCCEED) and self.index < len(self.job.ops) - 1:
            self.index += 1

    @rule()
    def confirm_cancel(self) -> None:
        if self.op.status is CANCELING:
            job_ends.cancel_from(self.job, self.index, self.tick())

    @rule()
    def fail(self) -> None:
        if not self.job.status.is_final and self.op.status is not CANCELING:
            job_ends.fail_from(self.job, self.index, self.tick(), ["OpExecError", ["no"]])

    @rule()
    def cancel_while_pending(self) -> None:
        if {op.status for op in self.job.ops} == {QUEUED}:
            job_ends.cancel_pending(self.job, self.tick())

    @rule()
    def lose_process(self) -> None:
        if not self.job.status.is_final:
            job_ends.fail_whole(self.job, self.tick(), source="s", text="lost")
            assert {op.status for op in self.job.ops} == {ERROR}

    def apply(self, event: OpcodeEvent) -> bool:
        before = self.op.status
        expected = jobs.TRANSITIONS.get((before, event))
        try:
            self.op.apply(event)
        except errors.JobStateError:
            assert expected is None
            assert self.op.status is before
            return False
        assert self.op.status is expected
        return True

    @invariant()
    def a_final_job_stays_final(self) -> None:
        assert self.job.status.is_final or not self.was_final
        self.was_final = self.job.status.is_final

    @invariant()
    def no_opcode_behind_the_current_one_has_begun(self) -> None:
        for op in self.job.ops[self.index + 1 :]:
            assert op.status not in (WAITING, CANCELING, RUNNING, SUCCESS)

    @invariant()
    def it_reads_as_it_was_written(self) -> None:
        self.serials.append(self.job.advance_serial())
        read = jobs.decode_job(jobs.encode_job(self.job))
        assert (read.status, read.serial) == (self.job.status, self.serials[-1])
        assert [op.status for op in read.ops] == [op.status for op in self.job.ops]
        assert self.serials == sorted(set(self.serials))


TestLifeOfAJob = LifeOfAJob.TestCase
TestLifeOfAJob.settings = settings(max_examples=60, stateful_step_count=20)
