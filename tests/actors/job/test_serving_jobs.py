"""The process of jobs: when it takes another one, and what it leaves of the last."""

from __future__ import annotations

import gc
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actors.job.test_job import DELAY, LOCKED, FakeLink
from tests.own_children import leave_alone

from ganger.actors.job import process
from ganger.actors.processes import channels, descendants, own_state
from ganger.storage import errors, opcodes
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.disk import documents
from ganger.storage.jobs import jobs
from ganger.transport import messages
from ganger.transport.links.link import Received

FAILING = {"OP_ID": "OP_TEST_DELAY", "duration": -1.0, "on_master": False}


class Line(FakeLink):
    """A daemon that hands out jobs, numbered from 1, as soon as the process is free."""

    def __init__(self, folder: Path, *ops: list[dict[str, Any]], reuses: bool = True) -> None:
        super().__init__()
        ours, theirs = channels.pair()
        theirs.close()
        self._channel = channels.Channel(ours)
        self._direct_wires = {}
        self.folder = folder
        self.ops = ops
        self.reuses = reuses
        self.numbers: list[int] = []
        self.lacks_reply = self.is_canceled = False
        self.closes = False

    def send(self, message: messages.Message, number: int) -> bool:
        if number:
            self.numbers.append(number)
        if self.lacks_reply and isinstance(message, messages.RecordState):
            self.said.append(message)
            return True
        sent = super().send(message, number)
        match message:
            case messages.JobHello():
                self._answers.append(Received(self._go(message.job_id), 0))
            case messages.ReleaseLocks():
                self._answers.append(Received(messages.Done(), number))
            case messages.RecordState() if self.is_canceled:
                self.hear(messages.CancelRequested(token=1, kill=True))
        return sent

    def wait(self, *asked: Any) -> list[int]:
        descriptors, timeout_seconds = asked
        if descriptors:
            poll = select.poll()
            for descriptor, mask in descriptors.items():
                poll.register(descriptor, mask)
            return [one for one, _ in poll.poll((timeout_seconds or 0) * 1_000)]
        left = [one for one in self.said if isinstance(one, messages.JobLeft)]
        hellos = [one for one in self.said if isinstance(one, messages.JobHello)]
        if len(left) == len(hellos):
            if len(left) == len(self.ops) or self.closes:
                self.is_up = False
            else:
                # Late words about the last job come first.
                self.hear(messages.CancelRequested(token=2))
                self.hear(messages.ResendRequested())
                self.hear(messages.NextJob(job_id=len(left) + 1))
        return []

    def close(self) -> None:
        assert self._channel is not None
        self._channel.close()

    def _go(self, job_id: int) -> messages.JobGo:
        entries = [
            jobs.OpcodeEntry(input=opcodes.check_opcode(dict(op))) for op in self.ops[job_id - 1]
        ]
        job = jobs.Job(id=job_id, ops=entries, extra={jobs.STATE_SERIAL_KEY: 1})
        body = jobs.encode_job(job)
        queue = str(self.folder)
        (self.folder / f"job-{job_id}").write_bytes(body)
        return messages.JobGo(
            body=body, spares=[], secrets={}, queue=queue, socket="/s", reuses=self.reuses
        )

    @property
    def left(self) -> list[messages.JobLeft]:
        return [one for one in self.said if isinstance(one, messages.JobLeft)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    leave_alone(monkeypatch)
    # The collector would close what earlier tests have left, while a job runs.
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The jobs that the process has said to serve."""
    found: list[int | None] = []
    names: dict[int | None, bytes] = {None: b"job -"}

    def show_job(job_id: int | None) -> None:
        found.append(job_id)

    real = own_state.take

    def take(*, without: int = -1) -> own_state.OwnState:
        state = real(without=without)
        if found:
            state["name"] = names.get(found[-1], b"job %d" % (found[-1] or 0))
        return state

    monkeypatch.setattr(process_identity, "show_job", show_job)
    monkeypatch.setattr(own_state, "take", take)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "locks").mkdir()
    yield tmp_path
    assert [*(tmp_path / "locks").iterdir()] in ([], [tmp_path / "locks" / "spare"])


def run(line: Line) -> None:
    locks = line.folder / "locks"
    process.run_process(1, line, str(locks), spare=str(locks / "spare"))


def test_it_serves_one_job_after_the_other(folder: Path, shown: list[int | None]) -> None:
    line = Line(folder, [DELAY], [LOCKED], [DELAY, DELAY])
    run(line)
    assert [(one.job_id, one.is_free) for one in line.left] == [(1, True), (2, True), (3, True)]
    assert shown == [None, 2, None, 3, None]
    for job_id in (1, 2, 3):
        found = jobs.decode_job((folder / f"job-{job_id}").read_bytes())
        assert found.status is jobs.JobStatus.SUCCESS
    # Each with a lock file of its own, and with its own number in it.
    hellos = [one for one in line.said if isinstance(one, messages.JobHello)]
    assert [os.path.basename(one.lock_file)[:10] for one in hellos] == [
        f"job_{number:06d}" for number in (1, 2, 3)
    ]


def test_no_number_of_a_request_is_used_again(folder: Path, shown: list[int | None]) -> None:
    line = Line(folder, [DELAY], [DELAY], [LOCKED])
    run(line)
    assert len(shown) > 1
    assert line.numbers == sorted(set(line.numbers))


def test_its_lock_file_has_no_owner_when_it_says_that_it_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shown: list[int | None]
) -> None:
    line = Line(folder, [DELAY])
    seen = []
    real = lock_files.LockFile.remove

    def remove(held: lock_files.LockFile) -> None:
        # While the lock is held, the process says already that it serves no job.
        seen.append((os.path.exists(held.path), shown == [None], line.left == []))
        real(held)

    monkeypatch.setattr(lock_files.LockFile, "remove", remove)
    run(line)
    assert seen[0] == (True, True, True)


def test_a_job_that_may_not_share_its_process_is_its_last(folder: Path) -> None:
    line = Line(folder, [DELAY], [DELAY], reuses=False)
    run(line)
    assert [(one.job_id, one.is_free) for one in line.left] == [(1, False)]


@pytest.mark.parametrize("why", ["error", "canceled", "no reply", "stale file", "another link"])
def test_after_a_job_that_did_not_end_well_it_ends(
    folder: Path, shown: list[int | None], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    line = Line(folder, [FAILING if why == "error" else DELAY], [DELAY])
    match why:
        case "canceled":
            line.is_canceled = True
        case "no reply":
            line.lacks_reply = True
            monkeypatch.setattr("ganger.actors.job.conversation.REPLY_SECONDS", 0.0)
        case "another link":
            assert line._channel is not None
            line._channel.close()
            line._channel = None
            monkeypatch.setattr(line, "close", lambda: None)
        case "stale file":

            def refuse(*_: object, **__: object) -> None:
                raise errors.StorageError("the disk refuses")

            monkeypatch.setattr(documents, "replace", refuse)
    run(line)
    assert all(not one.is_free for one in line.left)
    assert shown == []


def test_a_process_that_has_changed_says_what(folder: Path, shown: list[int | None]) -> None:
    line = Line(folder, [DELAY], [DELAY])
    real = line.send

    def send(message: messages.Message, number: int) -> bool:
        if isinstance(message, messages.RecordState) and message.status.is_final:
            os.environ["LEFT_BEHIND"] = "1"
        return real(message, number)

    line.send = send  # type: ignore[method-assign]
    run(line)
    del os.environ["LEFT_BEHIND"]
    assert [(one.is_free, one.unclean) for one in line.left] == [(False, "environment")]
    assert shown == []


def test_output_of_a_job_leaves_the_process_as_it_was(
    folder: Path, shown: list[int | None]
) -> None:
    echo = {"OP_ID": "OP_EXEC", "argv": ["echo", "hello"]}
    line = Line(folder, [echo], [echo, echo], [DELAY])
    run(line)
    assert [(one.is_free, one.unclean) for one in line.left] == [(True, "")] * 3
    assert shown == [None, 2, None, 3, None]
    assert (folder / "spool" / "job-2-output").stat().st_size > 0


def test_a_process_with_a_descendant_ends(
    folder: Path, shown: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descendants, "has_children", lambda: True)
    line = Line(folder, [DELAY], [DELAY])
    run(line)
    assert [(one.is_free, one.unclean) for one in line.left] == [
        (False, "a process that it started is left")
    ]
    assert shown == []


def test_a_system_that_does_not_show_the_job_ends_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError("no name")

    monkeypatch.setattr(process_identity, "show_job", refuse)
    line = Line(folder, [DELAY], [DELAY])
    run(line)
    assert [(one.is_free, one.unclean) for one in line.left] == [(False, "no name")]


def test_it_ends_with_its_channel_while_it_is_idle(folder: Path, shown: list[int | None]) -> None:
    line = Line(folder, [DELAY], [DELAY])
    line.closes = True
    run(line)
    assert shown == [None]
    # It seeks no successor of the daemon: it has no job.
    assert line._socket == ""


def test_nothing_of_a_job_waits_for_the_collector(folder: Path, shown: list[int | None]) -> None:
    run(Line(folder, [DELAY]))
    gc.collect()
    gc.disable()
    try:
        run(Line(folder, *([DELAY], [LOCKED]) * 10))
        assert gc.collect() < 20, "each job leaves some objects that refer to each other"
    finally:
        gc.enable()
    assert len(shown) > 20
