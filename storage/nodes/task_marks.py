"""Which task on a node a job's process has begun: a small file that outlives the process.

How it works. The process writes the mark before it sends the task to the node, and removes it when
it knows that the task has ended. While the mark is there, the locks of its owner are not freed,
whatever has become of the process. The mark has the name of the process's lock file
(``livelocks/job_...`` and ``nodes/tasks/job_...``), so whoever knows the owner of locks finds it.

The file is not flushed: after a loss of power `jobs_task` makes it anew from the job's file, which
was flushed before the operation began. It is flushed (`keep`) before a job ends that does not know
what became of its task. The mark has the locks, too: those files are not flushed either, and the
lock manager takes them back for the task before any job starts.
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
    from collections.abc import Iterator

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


def key_of(job: Job, index: int) -> str:
    """The name of an opcode's task on any node: another one for each job and opcode.

    The time when the job came tells a job from one of a restored directory with the same id.
    """
    whole, micro = job.received_timestamp or (0, 0)
    return f"task-{job.id}-{index}-{whole}.{micro:06}"


def write(lock_file: str, task: MarkedTask) -> None:
    """Mark the task, in place of an earlier one. `StorageError` if the disk refuses."""
    path = path_of(lock_file)
    data = msgspec.json.encode(task)
    try:
        documents.replace(path, data, flush=False)
    except errors.StorageError:
        # Others may make the folders at this moment, too.
        folder = Path(path).parent
        documents.make_private_directory(folder.parent)
        documents.make_private_directory(folder)
        documents.replace(path, data, flush=False)


def is_marked(lock_file: str) -> bool:
    """Whether a task of this process may run; True if that cannot be known."""
    try:
        os.lstat(path_of(lock_file))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def read(lock_file: str) -> MarkedTask | None:
    """The task that may run; None: there is none. `StorageError` if the mark is damaged."""
    path = path_of(lock_file)
    data = documents.read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=MarkedTask)
    except msgspec.MsgspecError as error:
        raise errors.StorageError(f"{path}: {error}") from error


def keep(lock_file: str) -> None:
    """Make the mark outlive a loss of power, if there is one: its job ends, and its task may not.

    `StorageError` if the disk refuses.
    """
    task = read(lock_file)
    if task is not None:
        documents.replace(path_of(lock_file), msgspec.json.encode(task), flush=True)


def remove(lock_file: str) -> None:
    """The task has ended, or never began; harmless if there is no mark."""
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
