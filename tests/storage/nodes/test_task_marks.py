"""The marks of tasks that may run on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganger.storage.disk import documents
from ganger.storage.nodes import task_marks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
                task_marks.write(lock_files[1], task)
            raise

    monkeypatch.setattr(documents, "replace", replaced)
    task_marks.write(lock_files[0], task)
    assert [task_marks.read(one) for one in lock_files] == [task, task]
