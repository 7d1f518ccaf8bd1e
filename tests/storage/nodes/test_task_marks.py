"""The marks of tasks that may run on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.disk import documents
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry
from ganger.storage.nodes import task_marks
from ganger.storage.nodes.task_marks import MarkedTask

TASK = MarkedTask("web1", "task-7-0-1.000002", 12.5)


def test_a_mark_is_found_by_the_lock_file_of_its_process(tmp_path: Path) -> None:
    lock_file = str(tmp_path / "livelocks" / "job_000007_1_4711.88123.1a2b3c4d")
    assert task_marks.read(lock_file) == []
    assert not task_marks.is_marked(lock_file)
    task_marks.remove(lock_file)
    task_marks.write(lock_file, [TASK])
    assert task_marks.is_marked(lock_file)
    assert task_marks.read(lock_file) == [TASK]
    assert [*task_marks.lock_files_in(tmp_path / "livelocks")] == [lock_file]
    task_marks.remove(lock_file)
    assert not task_marks.is_marked(lock_file)
    assert [*task_marks.lock_files_in(tmp_path / "livelocks")] == []


def test_a_mark_that_is_kept_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bool] = []
    replace = documents.replace

    def replaced(path: Any, data: bytes, *, flush: bool) -> None:
        flushed.append(flush)
        replace(path, data, flush=flush)

    lock_file = str(tmp_path / "livelocks" / "job_1")
    task_marks.write(lock_file, [TASK])
    monkeypatch.setattr(documents, "replace", replaced)
    task_marks.keep(lock_file)
    assert (flushed, task_marks.read(lock_file)) == ([True], [TASK])
    task_marks.remove(lock_file)
    task_marks.keep(lock_file)
    assert flushed == [True]


def test_the_marks_of_several_tasks_stand_side_by_side(tmp_path: Path) -> None:
    lock_file = str(tmp_path / "livelocks" / "job_1")
    job = Job(id=7, ops=[OpcodeEntry(input={})], received_timestamp=(1, 2))
    keys = [task_marks.key_of(job, 0, number) for number in range(3)]
    assert keys == ["task-7-0-1.000002", "task-7-0-1.000002-1", "task-7-0-1.000002-2"]
    tasks = [MarkedTask(f"web{number}", key, 1.0) for number, key in enumerate(keys)]
    task_marks.write(lock_file, tasks, flush=True)
    assert task_marks.read(lock_file) == tasks
    task_marks.write(lock_file, tasks[1:2])
    # As earlier versions have written it.
    assert (tmp_path / "nodes" / "tasks" / "job_1").read_bytes().startswith(b'{"node":"web1"')
    assert task_marks.read(lock_file) == tasks[1:2]


def test_after_a_loss_of_power_the_task_of_the_job_stands_beside_what_was_flushed(
    tmp_path: Path,
) -> None:
    lock_file = str(tmp_path / "livelocks" / "job_1")
    task_marks.write_again(lock_file, TASK)
    task_marks.write_again(lock_file, TASK)
    assert task_marks.read(lock_file) == [TASK]
    other = MarkedTask("web2", f"{TASK.key}-1", 12.5)
    task_marks.write(lock_file, [other])
    task_marks.write_again(lock_file, TASK)
    assert task_marks.read(lock_file) == [TASK, other]
    Path(task_marks.path_of(lock_file)).write_text("{")
    task_marks.write_again(lock_file, TASK)
    assert task_marks.read(lock_file) == [TASK]


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    lock_file = str(tmp_path / "livelocks" / "job_1")
    task_marks.write(lock_file, [TASK])
    (tmp_path / "nodes" / "tasks" / "job_1").write_text("{")
    assert task_marks.is_marked(lock_file)
    with pytest.raises(errors.StorageError, match="nodes/tasks/job_1"):
        task_marks.read(lock_file)


def test_the_file_of_a_job_tells_its_task() -> None:
    done = OpcodeEntry(input={"OP_ID": "OP_EXEC", "node": "web0"}, status=JobStatus.SUCCESS)
    runs = OpcodeEntry(
        input={"OP_ID": "OP_EXEC", "node": "web1"},
        status=JobStatus.RUNNING,
        exec_timestamp=(12, 500_000),
    )
    job = Job(id=7, ops=[done, runs], received_timestamp=(1, 2))
    assert task_marks.jobs_task(job) == MarkedTask("web1", "task-7-1-1.000002", 12.5)
    runs.input |= {"argv": ["true"], "locks": {"instance": {"exclusive": ["i1"]}}}
    locks = [("cluster/BGL", "shared"), ("instance/i1", "exclusive"), ("node/web1", "shared")]
    assert task_marks.jobs_task(job) == MarkedTask("web1", "task-7-1-1.000002", 12.5, locks)
    assert task_marks.jobs_task(Job(id=7, ops=[done])) is None


def test_two_jobs_that_mark_the_first_tasks_at_once_make_the_folders_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_files = [str(tmp_path / "livelocks" / name) for name in ("job_1", "job_2")]
    task = task_marks.MarkedTask("web1", "task-1", 7.0)
    replace, is_first = documents.replace, True

    def replaced(*given: Any, **named: Any) -> None:
        nonlocal is_first
        try:
            replace(*given, **named)
        except BaseException:
            if is_first:
                # The other job comes in between.
                is_first = False
                task_marks.write(lock_files[1], [task])
            raise

    monkeypatch.setattr(documents, "replace", replaced)
    task_marks.write(lock_files[0], [task])
    assert [task_marks.read(one) for one in lock_files] == [[task], [task]]
