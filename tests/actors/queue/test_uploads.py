"""Standard input that is sent before its job: whole, durable, and its job's alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.actors.queue.queue_rules import take_rules
from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Asker

from ganger.storage import settings
from ganger.storage.queue_files import spool
from ganger.transport import messages
from ganger.transport.messages import JobSpec

TOKEN = "0123456789abcdef" * 2


def send(queue: Queue, data: bytes, offset: int = 0, **fields: Any) -> Asker:
    asked = messages.StoreInput(token=TOKEN, offset=offset, data=data, **fields)
    return queue.actor.ask(asked)


def finish(queue: Queue, asked: Asker) -> int:
    """The thread flushes, and says so."""
    assert not asked.answers, "not before it is durable"
    queue.stage.run_timers()
    queue.actor.turn(*queue.stage.take(messages.InputFlushed))
    return asked.answer_as(messages.InputStored).size


def submit(queue: Queue) -> Asker:
    op = {"OP_ID": "OP_EXEC", "argv": ["cat"], "stdin_file": spool.upload_name(TOKEN)}
    return queue.submit(JobSpec(ops=[op]))


def files(queue: Queue) -> dict[str, bytes]:
    folder = queue.stage.places.queue / spool.FOLDER
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_parts_become_the_input_of_the_job(queue: Queue) -> None:
    assert send(queue, b"ab").answer_as(messages.InputStored).size == 2
    # A part may come twice, when the connection has broken.
    assert send(queue, b"ab").answer_as(messages.InputStored).size == 2
    assert finish(queue, send(queue, b"c\xff", 2, is_last=True)) == 4
    assert submit(queue).answer_as(messages.JobsSubmitted).ids == [1]
    assert files(queue) == {"job-1-input-0": b"abc\xff"}
    assert queue.job(1).ops[0].input["stdin_file"] == "job-1-input-0"
    queue.restart()
    assert files(queue) == {"job-1-input-0": b"abc\xff"}


def test_what_no_job_has_taken_is_gone_after_a_restart(queue: Queue) -> None:
    finish(queue, send(queue, b"ab", is_last=True))
    queue.restart()
    take_rules(queue)
    assert files(queue) == {}
    name, text = submit(queue).refusal
    assert name == "InputLostError"
    assert text == "OP_EXEC: stdin_file: what was sent before is gone; send it again"
    assert send(queue, b"c", 2).refusal == (
        "InputLostError",
        "stdin: what was sent before is gone; send all of it again",
    )


def test_what_nobody_takes_is_deleted_in_time(queue: Queue) -> None:
    send(queue, b"old")
    [old] = (queue.stage.places.queue / spool.FOLDER).iterdir()
    os.utime(old, (0, 0))
    asked = messages.StoreInput(token="f" * 32, offset=0, data=b"new", is_last=True)
    finish(queue, queue.actor.ask(asked))
    assert list(files(queue).values()) == [b"new"]


def test_two_jobs_do_not_share_an_input(queue: Queue) -> None:
    finish(queue, send(queue, b"ab", is_last=True))
    submit(queue)
    assert submit(queue).refusal[0] == "InputLostError"


def test_too_much_is_refused_by_the_name_of_the_limit(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "STDIN_BYTES_MAX", 3)
    send(queue, b"ab").answer_as(messages.InputStored)
    assert send(queue, b"cd", 2).refusal == (
        "BadRequestError",
        "stdin: more than 3 bytes (STDIN_BYTES_MAX)",
    )


@pytest.mark.parametrize("token", ["", "../x", "f" * 31, "F" * 32, "f" * 33])
def test_a_token_names_no_other_file(queue: Queue, token: str) -> None:
    asked = messages.StoreInput(token=token, offset=0, data=b"x")
    assert queue.actor.ask(asked).refusal == (
        "BadRequestError",
        "token: expected 32 hexadecimal digits",
    )


def test_a_gap_is_refused(queue: Queue) -> None:
    send(queue, b"ab")
    assert send(queue, b"x", 3).refusal[0] == "InputLostError"


def test_a_full_disk_keeps_no_half_of_an_input(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ganger.storage.disk.documents.write_all_at", full)
    name, text = send(queue, b"ab").refusal
    assert name == "StorageError"
    assert "No space left" in text
    assert files(queue) == {}
    assert not queue.actor.component.store.ledger.is_read_only


def test_a_retry_shares_the_file_of_its_job(queue: Queue) -> None:
    finish(queue, send(queue, b"ab", is_last=True))
    submit(queue)
    queue.finish(1)
    asked = messages.RetryJob(id=1, is_whole=True)
    assert queue.actor.ask(asked).answer_as(messages.JobsSubmitted).ids == [2]
    assert files(queue) == {"job-1-input-0": b"ab", "job-2-input-0": b"ab"}
    assert _inode(queue, 1) == _inode(queue, 2), "no second gigabyte"


def _inode(queue: Queue, job_id: int) -> int:
    folder: Path = queue.stage.places.queue / spool.FOLDER
    return (folder / f"job-{job_id}-input-0").stat().st_ino
