"""Jobs that are too large: when they are submitted, beside their files, and stored ones."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.actors.job.test_job import FakeLink
from tests.actors.queue.queue_stage import DELAY, Queue, spec
from tests.refusals import refusing

from ganger.actors.execution.children import ChannelAddress
from ganger.actors.job import process
from ganger.actors.job.job import JobActor
from ganger.actors.processes import channels
from ganger.actors.store.job_rows import Phase
from ganger.storage import opcodes, settings
from ganger.storage.jobs import job_bounds, jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.storage.log import records
from ganger.storage.log.journal import Journal
from ganger.storage.opcodes import Opcode, OperationContext, catalogue
from ganger.storage.queue_files import job_files, replay, spool
from ganger.transport import frames, messages
from ganger.transport.envelopes import Envelope
from ganger.transport.links.link import Received
from ganger.transport.messages import DiskRetried, JobSpec, SubmitJobs

SUCCESS, ERROR, QUEUED = JobStatus.SUCCESS, JobStatus.ERROR, JobStatus.QUEUED
MEGABYTE = 1024 * 1024
NULS = "\0" * MEGABYTE
LARGE = settings.FRAME_BYTES_MAX + MEGABYTE


def command(**fields: Any) -> dict[str, Any]:
    return {"OP_ID": "OP_EXEC", "argv": ["cat"], **fields}


def spooled(queue: Queue) -> dict[str, bytes]:
    folder = queue.stage.places.spool
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def put_large_job(queue: Queue, job_id: int = 1, *, ops: int = 1) -> None:
    """Another program, or an older version, has stored a job that fits into no frame."""
    quick = opcodes.check_opcode({**DELAY, "duration": 0.000001, "on_master": False})
    entries = [jobs.OpcodeEntry(input=dict(quick)) for _ in range(ops)]
    entries[-1].input["comment"] = "x" * LARGE
    body = jobs.encode_job(jobs.Job(id=job_id, ops=entries))
    (queue.stage.places.queue / f"job-{job_id}").write_bytes(body)


# Submission.


def test_a_job_that_is_too_large_as_it_is_stored_is_refused_and_nothing_is(queue: Queue) -> None:
    asked = queue.submit(JobSpec(ops=[command(env={"A": NULS.replace("\0", "\1")})]))
    name, text = asked.refusal
    assert name == "BadRequestError"
    assert text.startswith("the job is too large: 62")
    assert text.endswith(f"at most {settings.JOB_SUBMITTED_BYTES_MAX} are stored")
    assert queue.submitted() == [1]


def test_of_a_batch_the_job_and_the_opcode_are_named(queue: Queue) -> None:
    large = JobSpec(ops=[DELAY, command(argv=["\1" * MEGABYTE])])
    for fields in ({}, {"dry_run": True}):
        _, text = queue.submit(spec(), large, **fields).refusal
        assert text.startswith("job 1 of the submission: the job is too large: ")
        assert "the largest opcode is opcode 1, with " in text
    assert queue.statuses() == {}


def test_large_standard_input_lies_beside_the_job_before_the_id_is_answered(queue: Queue) -> None:
    ops = [command(stdin="small"), command(stdin=5 * NULS)]
    asked = queue.actor.say(SubmitJobs(jobs=[JobSpec(ops=ops)]))
    assert spooled(queue) == {"job-1-input-1": 5 * NULS.encode()}
    assert asked.answers == []
    queue.actor.end_turn()
    assert asked.answer == messages.JobsSubmitted(ids=[1])
    small, large = queue.job(1).ops
    assert (small.input["stdin"], "stdin_file" in small.input) == ("small", False)
    assert (large.input["stdin_file"], "stdin" in large.input) == ("job-1-input-1", False)
    assert len((queue.stage.places.queue / "journal/00000001.journal").read_bytes()) < MEGABYTE


def test_small_standard_input_costs_no_file(queue: Queue) -> None:
    queue.submitted(JobSpec(ops=[command(stdin="x" * 16_000)]))
    assert spooled(queue) == {}


def test_input_that_cannot_be_stored_is_refused_with_its_job(queue: Queue) -> None:
    with refusing("fdatasync"):
        name, text = queue.submit(JobSpec(ops=[command(stdin=NULS)])).refusal
        assert name == "ReadOnlyError"
        assert "job-1-input-0: No space left on device; remove jobs that have ended" in text
    assert spooled(queue) == {}
    assert queue.statuses() == {}


def test_input_of_a_job_that_the_journal_did_not_take_goes(queue: Queue) -> None:
    asked = queue.actor.say(SubmitJobs(jobs=[JobSpec(ops=[command(stdin=NULS)])]))
    assert set(spooled(queue)) == {"job-1-input-0"}
    with refusing("fdatasync"):
        queue.actor.end_turn()
    assert asked.refusal[0] == "OutcomeUnknownError"
    # A loss of power may bring the record back until the journal has a new segment.
    assert set(spooled(queue)) == {"job-1-input-0"}
    queue.actor.notify(DiskRetried())
    assert spooled(queue) == {}


def test_a_start_removes_input_of_a_submission_that_was_never_answered(queue: Queue) -> None:
    queue.submitted(JobSpec(ops=[command(stdin=NULS)]))
    queue.actor.say(SubmitJobs(jobs=[JobSpec(ops=[command(stdin=NULS)])]))
    assert set(spooled(queue)) == {"job-1-input-0", "job-2-input-0"}
    queue.restart()
    assert set(spooled(queue)) == {"job-1-input-0"}


def test_no_submission_may_name_a_file_beside_a_job(queue: Queue) -> None:
    queue.submitted(JobSpec(ops=[command(stdin=NULS)]))
    name, text = queue.submit(JobSpec(ops=[command(stdin_file="job-1-input-0")])).refusal
    assert name == "OpcodeError"
    assert text == "OP_EXEC: stdin_file: the queue sets this itself; give stdin"


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_retry_has_its_own_copy_of_the_input(queue: Queue, *, is_archived: bool) -> None:
    queue.submitted(JobSpec(ops=[command(stdin=NULS)]))
    queue.finish(1, ERROR)
    if is_archived:
        queue.actor.ask(messages.ArchiveJob(id=1)).answer_as(messages.ArchiveOutcome)
        assert spooled(queue) == {}
        archived = queue.stage.places.archive / "0/spool/job-1-input-0"
        assert archived.read_bytes() == NULS.encode()
    retried = queue.actor.ask(messages.RetryJob(id=1, key="again"))
    assert retried.answer_as(messages.JobsSubmitted).ids == [2]
    assert spooled(queue)["job-2-input-0"] == NULS.encode()
    assert queue.job(2).ops[0].input["stdin_file"] == "job-2-input-0"


def test_a_retry_with_other_opcodes_may_name_the_files_of_that_job_alone(queue: Queue) -> None:
    queue.submitted(JobSpec(ops=[command(stdin=NULS)]), JobSpec(ops=[command(stdin=NULS)]))
    queue.finish(1, ERROR)

    def retry(name: str) -> Any:
        asked = messages.RetryJob(id=1, key="k", ops=[command(stdin_file=name)])
        return queue.actor.ask(asked)

    for name in ("job-2-input-0", "job-1-input-1", "../job-2", "job-1-output"):
        _, text = retry(name).refusal
        assert text == f"OP_EXEC: stdin_file: there is no '{name}' of this job"
    assert retry("job-1-input-0").answer_as(messages.JobsSubmitted).ids == [3]
    assert spooled(queue)["job-3-input-0"] == NULS.encode()


# What is stored already.


@pytest.mark.parametrize("more", [0, 1])
def test_a_process_reads_a_job_itself_that_is_too_large_for_a_frame(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    lock_file = queue.start_new()
    body = bytes(settings.JOB_BYTES_MAX + more)
    monkeypatch.setattr(queue.actor.component.store.ledger.files, "body", lambda _: body)
    queue.ask_hand_over(1, lock_file)
    go = queue.channels[1].answers[-1]
    assert isinstance(go, messages.JobGo)
    assert go.body == (b"" if more else body)


def test_a_job_too_large_for_a_frame_starts_runs_and_ends(queue: Queue) -> None:
    put_large_job(queue)
    queue.restart()
    queue.choose(1)
    lock_file = queue.hand_over(1)
    go = queue.channels[1].answer_as(messages.JobGo)
    assert go.body == b""
    assert frames.encode(go)
    line = OpenGate()
    data = job_files.path(go.queue, 1)
    body = Path(data).read_bytes()
    assert jobs.decode_job(body).livelock == lock_file
    line.hear(go)
    folder = str(queue.stage.places.lock_files)
    process.run_process(1, line, folder, spare=f"{folder}/spare_1_1")
    assert jobs.decode_job(Path(data).read_bytes()).status is SUCCESS
    state = line.states()[-1]
    assert (state.body, len(state.digest or b"")) == (None, 16)


def test_a_job_too_large_for_a_frame_can_be_read_listed_canceled_and_archived(
    queue: Queue,
) -> None:
    put_large_job(queue)
    queue.restart()
    document = queue.actor.ask(messages.ReadJob(id=1)).answer_as(messages.JobDocument)
    assert frames.encode(document)
    assert job_bounds.CUT_KEY in jobs.decode_job(document.body).extra
    assert queue.statuses() == {1: "queued"}
    canceled = queue.actor.ask(messages.CancelJob(id=1))
    assert canceled.answer_as(messages.CancelOutcome).accepted
    assert queue.actor.ask(messages.ArchiveJob(id=1)).answer == messages.ArchiveOutcome(
        archived=[1], left=0
    )
    archived = queue.actor.ask(messages.ReadJob(id=1)).answer_as(messages.JobDocument)
    assert frames.encode(archived)
    path = queue.stage.places.archive / "0/job-1"
    assert len(jobs.decode_job(path.read_bytes()).ops[0].input["comment"]) == LARGE


@pytest.mark.slow
def test_a_long_log_is_sent_in_parts(queue: Queue) -> None:
    put_large_job(queue)
    path = queue.stage.places.queue / "job-1"
    job = jobs.decode_job(path.read_bytes())
    job.ops[0].status = SUCCESS
    job.ops[0].log = [(n, (1, 1), "stdout", "\1" * 100_000) for n in range(1, 120)]
    path.write_bytes(jobs.encode_job(job))
    queue.restart()
    watching = queue.actor.ask(messages.WatchJobs(ids=[1], log=True))
    parts = [one for one in watching.answers if isinstance(one, messages.JobLogged)]
    assert [entry[0] for part in parts for entry in part.entries] == list(range(1, 120))
    assert all(frames.encode(part) for part in parts)
    assert isinstance(watching.answers[-1], messages.WatchEnded)


def test_a_page_of_long_summaries_fits_into_a_frame(queue: Queue) -> None:
    ops = [{**DELAY, "reason": [("me", "\U0001f600" * 3_000, 1)]}] * 100
    queue.submitted(JobSpec(ops=ops))
    [row] = queue.actor.say(messages.ListJobs()).answer_as(messages.JobRows).rows
    page = messages.JobRows(rows=[row] * settings.LIST_PAGE_ROWS)
    assert frames.encode(page)
    assert row.summary.endswith("...")
    assert row.reason == "\U0001f600" * 99 + "..."


def test_a_job_whose_processes_always_end_before_it_begins_ends_in_an_error(queue: Queue) -> None:
    [job_id] = queue.submitted()
    for attempt in range(settings.START_ATTEMPTS_MAX):
        assert queue.statuses() == {job_id: "queued"}, attempt
        queue.start(job_id)
        queue.lose_process(job_id)
        if attempt == 0:
            queue.choose(job_id)
            sent = queue.actor.ask(messages.ExplainJob(id=job_id))
            text = sent.answer_as(messages.JobExplained).text
            assert "is being started again: 1 of its processes ended before it began" in text
            row = queue.actor.component.store.table.find(job_id)
            assert row is not None
            row.phase = Phase.PENDING
    job = queue.job(job_id)
    assert job.status is ERROR
    assert job.ops[0].result == (
        f"job 1 failed to start: {settings.START_ATTEMPTS_MAX} of its processes, one after the "
        "other, ended before it began"
    )
    finished = queue.stage.take(messages.JobsFinished)
    assert finished[-1].jobs == [(job_id, ERROR)]


# A large job in its process.


class Wasteful(Opcode, kw_only=True):
    """Gives a large result, or logs a lot."""

    op_id = "OP_WASTEFUL"
    result_bytes: int = 0
    log_bytes: int = 0

    def run(self, context: OperationContext) -> str:
        for _ in range(self.log_bytes // 10_000):
            context.log("x" * 10_000)
        return "x" * self.result_bytes


@pytest.fixture(autouse=True)
def declare_wasteful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue._from_users, "OP_WASTEFUL", Wasteful)


def run(folder: Path, line: FakeLink, *ops: dict[str, Any]) -> jobs.Job:
    """Run a job to its end; what its file says then."""
    entries = [jobs.OpcodeEntry(input=fields) for fields in ops]
    body = jobs.encode_job(jobs.Job(id=5, ops=entries, extra={jobs.STATE_SERIAL_KEY: 1}))
    (folder / "job-5").write_bytes(body)
    go = messages.JobGo(body=body, spares=[], secrets={}, queue=str(folder), socket="")
    owner = Owner(5, str(folder / "lock"), os.getpid())
    JobActor(jobs.decode_job(body), line, owner, go).run()
    return jobs.decode_job((folder / "job-5").read_bytes())


class OpenGate(FakeLink):
    """Nothing holds the next opcode; every message must fit into a frame."""

    def send(self, message: messages.Message, number: int) -> bool:
        frames.encode(message, number)
        if isinstance(message, messages.AskGate):
            answer = messages.GateAnswered(is_open=True)
            self._answers.append(Received(answer, number))
            return True
        return super().send(message, number)

    def wait(self, *given: Any) -> list[int]:
        descriptors, _ = given
        poll = select.poll()
        for descriptor, mask in descriptors.items():
            poll.register(descriptor, mask)
        return [found for found, _ in poll.poll(1_000 if descriptors else 0)]

    def use_socket(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def test_twelve_opcodes_with_much_output_each_stay_readable(tmp_path: Path) -> None:
    ops = [{"OP_ID": "OP_WASTEFUL", "log_bytes": 1_100_000, "result_bytes": 1_000}] * 12
    job = run(tmp_path, OpenGate(), *ops)
    assert job.status is SUCCESS
    assert (tmp_path / "job-5").stat().st_size <= settings.JOB_BYTES_MAX
    texts = [entry[3] for op in job.ops for entry in op.log]
    assert texts.count(job_bounds.LOG_MARK.format(limit=settings.JOB_LOG_BYTES_MAX)) == 1
    assert job.last_log_serial == len(texts)


def test_a_result_for_which_there_is_no_room_ends_its_opcode_in_an_error(tmp_path: Path) -> None:
    ops = [{"OP_ID": "OP_WASTEFUL", "result_bytes": MEGABYTE}] * 6
    job = run(tmp_path, OpenGate(), *ops)
    statuses = [op.status for op in job.ops]
    assert statuses == [SUCCESS] * 4 + [ERROR] * 2
    name, [text] = job.ops[4].result
    assert name == "OpResultError"
    assert text.startswith("OP_WASTEFUL: the result has 1048578 bytes as JSON, and this job has")
    assert (tmp_path / "job-5").stat().st_size <= settings.JOB_BYTES_MAX


def test_a_command_for_whose_result_there_is_no_room_keeps_all_but_the_tails(
    tmp_path: Path,
) -> None:
    fill = [{"OP_ID": "OP_WASTEFUL", "result_bytes": MEGABYTE}] * 4
    fill += [{"OP_ID": "OP_WASTEFUL", "result_bytes": MEGABYTE // 3}]
    loud = {"OP_ID": "OP_EXEC", "argv": ["head", "-c", "1M", "/dev/zero"]}
    job = run(tmp_path, OpenGate(), *fill, *[loud] * 5)
    assert job.status is SUCCESS
    last = job.ops[-1].result
    assert (last["exit_code"], last["stdout_tail"], last["truncated"]) == (0, "", True)


def test_a_large_state_is_read_from_the_file(tmp_path: Path) -> None:
    fields = {**DELAY, "on_master": False, "duration": 0.000001, "comment": "x" * 100_000}

    class ClosedGate(OpenGate):
        def send(self, message: messages.Message, number: int) -> bool:
            if isinstance(message, messages.AskGate):
                answer = messages.GateAnswered(is_open=False, text="paused")
                self._answers.append(Received(answer, number))
                return True
            return super().send(message, number)

    line = ClosedGate()
    job = run(tmp_path, line, fields, {**fields, "on_nodes": ["n1"]})
    assert job.is_returned
    [given] = [one for one in line.said if isinstance(one, messages.JobReturns)]
    assert given.body is None
    assert given.digest == records.digest_of((tmp_path / "job-5").read_bytes())


def filed(queue: Queue) -> dict[int, tuple[int, bytes]]:
    """Serials and digests of the states that the log names, and only files have."""
    return replay.read_journal(Journal(queue.stage.places.journal)).filed


def test_a_large_job_that_was_paused_between_opcodes_goes_on(queue: Queue) -> None:
    put_large_job(queue, ops=2)
    queue.restart()
    queue.choose(1)
    queue.hand_over(1)
    job = jobs.decode_job((queue.stage.places.queue / "job-1").read_bytes())
    job.ops[0].status = SUCCESS
    job.livelock = None
    serial = job.advance_serial()
    queue.write_as_process(1, jobs.encode_job(job))
    digest = records.digest_of(jobs.encode_job(job))
    given = queue.actor.ask(messages.JobReturns(job_id=1, serial=serial, body=None, digest=digest))
    assert given.answer == messages.StateRecorded(serial=serial)
    assert filed(queue) == {1: (serial, digest)}
    queue.lose_process(1, has_left=True)
    assert queue.statuses() == {1: "queued"}
    queue.choose(1)
    queue.hand_over(1)
    assert queue.channels[1].answer_as(messages.JobGo).body == b""


def test_a_large_job_that_waits_for_locks_is_shown_so(queue: Queue) -> None:
    put_large_job(queue)
    queue.restart()
    queue.choose(1)
    queue.hand_over(1)
    job = jobs.decode_job((queue.stage.places.queue / "job-1").read_bytes())
    job.ops[0].status = JobStatus.WAITING
    serial = job.advance_serial()
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.ask(messages.JobWaits(job_id=1, serial=serial, body=None))
    assert queue.statuses() == {1: "waiting"}


def test_a_file_that_is_ahead_of_the_messages_of_its_process_is_not_shown(queue: Queue) -> None:
    put_large_job(queue)
    queue.restart()
    queue.choose(1)
    queue.hand_over(1)
    job = jobs.decode_job((queue.stage.places.queue / "job-1").read_bytes())
    waits = messages.JobWaits(job_id=1, serial=job.advance_serial(), body=None)
    job.ops[0].status = SUCCESS
    job.advance_serial()
    queue.write_as_process(1, jobs.encode_job(job))
    queue.actor.ask(waits)
    assert queue.statuses() == {1: "queued"}


def test_a_frame_that_was_sent_in_part_is_followed_by_none() -> None:
    class Interrupted(socket.socket):
        sent = 0

        def send(self, *given: Any) -> int:
            self.sent += 1
            if self.sent == 2:
                raise MemoryError
            return super().send(*given)

    ours, theirs = channels.pair()
    with Interrupted(fileno=ours.detach()) as end, contextlib.closing(theirs):
        channel = channels.Channel(end)
        with pytest.raises(MemoryError):
            channel.send(bytes(3 * channels.PACKET_BYTES))
        with pytest.raises(channels.ChannelClosedError):
            channel.send(b"next")
        with pytest.raises(channels.ChannelClosedError):
            channels.Channel(theirs).receive()


def test_input_that_is_gone_ends_its_opcode_in_an_error(tmp_path: Path) -> None:
    fields = opcodes.check_opcode(command()) | {"stdin_file": "job-5-input-0"}
    job = run(tmp_path, OpenGate(), fields)
    assert job.ops[0].result == [
        "OpExecError",
        ["command cannot be started: its standard input job-5-input-0: No such file or directory"],
    ]


def test_a_command_reads_its_large_input(tmp_path: Path) -> None:
    (tmp_path / spool.FOLDER).mkdir()
    (tmp_path / spool.FOLDER / "job-5-input-0").write_bytes(b"\0\xffx")
    fields = opcodes.check_opcode(command(argv=["od", "-An", "-tx1"]))
    job = run(tmp_path, OpenGate(), fields | {"stdin_file": "job-5-input-0"})
    assert job.ops[0].result["stdout_tail"] == " 00 ff 78\n"


def test_a_message_that_fits_into_no_frame_ends_the_channel_and_is_not_waited_for() -> None:
    ours, theirs = channels.pair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        large = messages.JobGo(body=bytes(LARGE), spares=[], secrets={}, queue="", socket="")
        ChannelAddress(ours).tell(Envelope(large))
        with pytest.raises(channels.ChannelClosedError):
            channels.Channel(theirs).receive()
