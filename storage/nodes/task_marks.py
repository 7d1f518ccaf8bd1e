"""Which tasks on nodes a job's process has begun: a small file that outlives the process.

How it works. The process writes the mark before it sends a task to the node, and removes it when
it knows that all its tasks have ended. While the mark is there, the locks of its owner are not
freed, whatever has become of the process. The mark has the name of the process's lock file
(``livelocks/job_...`` and ``nodes/tasks/job_...``), so whoever knows the owner of locks finds it.

The mark of an opcode's first task on the node that its parameter ``node`` names is not flushed:
after a loss of power `jobs_task` makes it anew from the job's file, which was flushed before the
operation began. The job's file does not say which other tasks there were: these marks are flushed.
All are flushed (`keep`) before a job ends that does not know what became of its tasks. The mark has
the locks, too: those files are not flushed either, and the lock manager takes them back for the
tasks before any job starts.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import errors, opcodes
from ..disk import documents
from ..jobs.jobs import Job, JobStatus, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = ("nodes", "tasks")


class MarkedTask(msgspec.Struct, frozen=True):
    """A task that may run on a node. ``began``: when its opcode began, in epoch seconds.

    ``locks``: under which it runs, each with its mode, in lock order.
    """

    node: str
    key: str
    began: float
    locks: list[tuple[str, str]] = []


def path_of(lock_file: str) -> str:
    """Where the mark of the process with this lock file is."""
    data, name = os.path.dirname(os.path.dirname(lock_file)), os.path.basename(lock_file)
    return os.path.join(data, *_FOLDER, name)


def key_of(job: Job, index: int, number: int = 0) -> str:
    """The name of an opcode's task on any node: another one for each job, opcode and task.

    ``number``: how many tasks the opcode has begun before. The time when the job came tells a job
    from one of a restored directory with the same id.
    """
    whole, micro = job.received_timestamp or (0, 0)
    later = f"-{number}" if number else ""
    return f"task-{job.id}-{index}-{whole}.{micro:06}{later}"


def write(lock_file: str, tasks: Sequence[MarkedTask], *, flush: bool = False) -> None:
    """Mark these tasks, in place of earlier ones. `StorageError` if the disk refuses."""
    path = path_of(lock_file)
    # Earlier versions know a single one.
    data = msgspec.json.encode(tasks[0] if len(tasks) == 1 else tasks)
    try:
        documents.replace(path, data, flush=flush)
    except errors.StorageError:
        # Others may make the folders at this moment, too.
        folder = Path(path).parent
        documents.make_private_directory(folder.parent)
        documents.make_private_directory(folder)
        documents.replace(path, data, flush=flush)


def is_marked(lock_file: str) -> bool:
    """Whether a task of this process may run; True if that cannot be known."""
    try:
        os.lstat(path_of(lock_file))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def read(lock_file: str) -> list[MarkedTask]:
    """The tasks that may run. `StorageError` if the mark is damaged."""
    path = path_of(lock_file)
    data = documents.read(path)
    if data is None:
        return []
    try:
        found = msgspec.json.decode(data, type=MarkedTask | list[MarkedTask])
    except msgspec.MsgspecError as error:
        raise errors.StorageError(f"{path}: {error}") from error
    return found if isinstance(found, list) else [found]


def keep(lock_file: str) -> None:
    """Make the mark outlive a loss of power, if there is one: its job ends, and its tasks may not.

    `StorageError` if the disk refuses.
    """
    if tasks := read(lock_file):
        write(lock_file, tasks, flush=True)


def write_again(lock_file: str, task: MarkedTask) -> None:
    """After a loss of power: mark the task that the job's file tells, beside those that are marked.

    `StorageError` if the disk refuses.
    """
    try:
        marked = read(lock_file)
    except errors.StorageError:
        # The loss has damaged it: it was not flushed.
        marked = []
    if task.key not in {one.key for one in marked}:
        write(lock_file, [task, *marked])


def remove(lock_file: str) -> None:
    """The tasks have ended, or never began; harmless if there is no mark."""
    path = path_of(lock_file)
    with documents.storage_errors(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def lock_files_in(livelocks: str | os.PathLike[str]) -> Iterator[str]:
    """The lock files in ``livelocks``, there or gone, whose processes have a mark."""
    folder = os.path.dirname(path_of(os.path.join(livelocks, "any")))
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(names):
        if not name.startswith(documents.TEMPORARY_PREFIX):
            yield os.path.join(livelocks, name)


def jobs_task(job: Job) -> MarkedTask | None:
    """The task that the job may have on a node, as its file says; None: there is none."""
    for index, op in enumerate(job.ops):
        node = op.input.get("node")
        if op.status is JobStatus.RUNNING and isinstance(node, str):
            began = seconds(op.exec_timestamp) or 0.0
            return MarkedTask(node, key_of(job, index), began, _locks(op.input))
    return None


def _locks(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """The locks of the opcode, as its process takes them; none if nobody knows it any more."""
    try:
        return [*opcodes.parse(fields).lock_needs().to_changes()]
    except errors.GangerError:
        return []
