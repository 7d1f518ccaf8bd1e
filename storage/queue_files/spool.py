"""Files that lie beside a job's file: large standard input, output of its commands.

Names these files and moves them with the job; their content is raw bytes. They lie in the folder
``spool`` beside the job's file: ``queue/spool`` while the job is live, ``queue/archive/<n>/spool``
when it is archived::

    job-<id>-input-<place of the opcode>
    job-<id>-output

The queue writes inputs, durably, before it answers a submission. The job's process writes the
output. Both stay when the job ends, and move when it is archived.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

import msgspec

from .. import errors, settings
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

FOLDER = "spool"
"""The folder's name, in the queue directory and in each folder of the archive."""

_NAME = re.compile(r"job-(0|[1-9][0-9]{0,17})-(output|input-(0|[1-9][0-9]{0,8}))")
_UPLOAD = re.compile(r"upload-([0-9a-f]{32})")
_TEMPORARY = re.compile(re.escape(documents.TEMPORARY_PREFIX) + r"job-([0-9]{1,18})-")


class Stored(msgspec.Struct, frozen=True):
    """Standard input that lies in a file already: it is moved to its job, or else gets a link."""

    path: str
    is_moved: bool


class Spooled(msgspec.Struct, frozen=True):
    """The job and opcode in a file's name; ``op_index`` is None for output."""

    job_id: int
    op_index: int | None


def upload_name(token: str) -> str:
    """How a submission names standard input that was sent before, in 32 hexadecimal digits."""
    return f"upload-{token}"


def upload_of(name: object) -> str | None:
    """The file of standard input that was sent before; None if this is not the name of one.

    It is a temporary file: a start deletes it if no submission has taken it.
    """
    match = _UPLOAD.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else f"{documents.TEMPORARY_PREFIX}job-0-input-{match[1]}"


def folder(queue: str | os.PathLike[str]) -> str:
    """The folder for the files of live jobs."""
    return f"{os.fspath(queue)}/{FOLDER}"


def input_name(job_id: int, op_index: int) -> str:
    """The name of the file with the standard input of this opcode."""
    return f"job-{job_id}-input-{op_index}"


def output_name(job_id: int) -> str:
    """The name of the file with the output of this job's commands."""
    return f"job-{job_id}-output"


def parse_name(name: str) -> Spooled | None:
    """The job and opcode of the file with this name; None if the name is not ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Spooled(int(match[1]), None if match[3] is None else int(match[3]))


def owner_of(name: str) -> int:
    """The job in the name of such a file; 0 if the name is not ours."""
    spooled = parse_name(name)
    return 0 if spooled is None else spooled.job_id


def input_path(queue: str | os.PathLike[str], job_id: int, op_index: int) -> str:
    """The path of the standard input of a live job's opcode, if it is not in the job's file."""
    return f"{folder(queue)}/{input_name(job_id, op_index)}"


def output_path(queue: str | os.PathLike[str], job_id: int) -> str:
    """The path of the output of a live job."""
    return f"{folder(queue)}/{output_name(job_id)}"


def make_folder(path: str) -> None:
    """Make the folder of a spool durable, and make it if it is missing; else `StorageError`.

    An existing folder is flushed too: its maker may have ended before it was durable.
    """
    with documents.storage_errors(path):
        try:
            os.mkdir(path, documents.DIRECTORY_MODE)
            is_new = True
        except FileExistsError:
            is_new = False
        try:
            documents.flush_directory(os.path.dirname(path))
        except OSError:
            if is_new:
                # Do not leave a folder that is not durable.
                with contextlib.suppress(OSError):
                    os.rmdir(path)
            raise


class SpoolDirectory:
    """The spool of one queue, for the queue's owner.

    Inputs are few, and only the owner makes them, so it remembers their names: to archive an
    ordinary job costs one look for its output, and no listing.
    """

    def __init__(self, queue: str) -> None:
        self._folder = folder(queue)
        self._inputs: dict[int, set[str]] | None = None
        self._durable_targets: set[str] = set()

    def prepare(self) -> None:
        """Make the folder if it is missing, durably."""
        make_folder(self._folder)

    def names(self) -> list[str]:
        """All names in the folder of live jobs, in order."""
        return documents.names_in(self._folder)

    def path(self, name: str) -> str:
        """The path of a live job's file of this name."""
        return f"{self._folder}/{name}"

    def uploaded(self, name: object) -> Stored | None:
        """Standard input that was sent under this name; None if there is none."""
        file = upload_of(name)
        if file is None or not os.path.exists(self.path(file)):
            return None
        return Stored(self.path(file), is_moved=True)

    def add_to_upload(self, name: str, data: bytes, offset: int) -> int:
        """Write a part of standard input; the size so far. `BadRequestError` if one is missing."""
        file = upload_of(name)
        assert file is not None, "only uploads have parts"
        path = self.path(file)
        flags = os.O_WRONLY | os.O_CLOEXEC | (0 if offset else os.O_CREAT)
        with documents.storage_errors(path):
            try:
                descriptor = os.open(path, flags, documents.SECRET_MODE)
            except FileNotFoundError as error:
                raise _lost_upload() from error
            try:
                if os.fstat(descriptor).st_size < offset:
                    raise _lost_upload()
                documents.write_all_at(descriptor, data, offset)
            except OSError:
                # The disk may be full: nobody will want half of it.
                os.unlink(path)
                raise
            finally:
                os.close(descriptor)
        return offset + len(data)

    def finish_upload(self, name: str) -> None:
        """Flush standard input that has come, and delete what nobody has taken for long.

        Any thread may call this. `StorageError`: it is not durable.
        """
        file = upload_of(name)
        assert file is not None, "only uploads are finished"
        _flush(self.path(file))
        limit = time.time() - settings.UPLOAD_SECONDS_MAX
        for other in self.names():
            if is_unfinished_input(other):
                with contextlib.suppress(OSError):
                    if os.stat(self.path(other)).st_mtime < limit:
                        os.unlink(self.path(other))

    def write_inputs(self, inputs: Iterable[tuple[str, bytes | Stored]]) -> None:
        """Write files (name, content) durably; after a `StorageError` none of them is there."""
        written: list[str] = []
        if not os.path.isdir(self._folder):
            self.prepare()
        try:
            for name, data in inputs:
                written.append(name)
                self._put(name, data)
                self._note(name)
            if written:
                with documents.storage_errors(self._folder):
                    documents.flush_directory(self._folder)
        except BaseException:
            for name in written:
                self.remove_file(name)
            raise

    def _put(self, name: str, data: bytes | Stored) -> None:
        if isinstance(data, bytes):
            documents.replace(self.path(name), data, flush=False)
            _flush(self.path(name))
            return
        with documents.storage_errors(self.path(name)):
            if data.is_moved:
                os.rename(data.path, self.path(name))
            else:
                os.link(data.path, self.path(name))

    def archive(self, job_id: int, target: str) -> None:
        """Move the job's files into ``spool`` of the archive's folder ``target``. Repeatable.

        Call it before the job's own file moves: after a crash between the two the job is live, and
        the queue archives it again.
        """
        for name in (output_name(job_id), *sorted(self.inputs_of(job_id))):
            self._move(name, f"{target}/{FOLDER}")
        self.forget(job_id)

    def remove_file(self, name: str) -> None:
        """Delete one file, if it is there."""
        with documents.storage_errors(self.path(name)), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))
        spooled = parse_name(name)
        if spooled is not None:
            self._known().get(spooled.job_id, set()).discard(name)

    def _move(self, name: str, target: str) -> None:
        source = self.path(name)
        with documents.storage_errors(source):
            if target in self._durable_targets:
                # If it fails there is nothing to move, or the folder was deleted.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(source, f"{target}/{name}")
                    return
            if not os.path.lexists(source):
                return
            # Also if it is there: its maker may have ended, or failed, before it was durable.
            make_folder(target)
            self._durable_targets.add(target)
            os.rename(source, f"{target}/{name}")

    def inputs_of(self, job_id: int) -> set[str]:
        """The names of the files with the standard input of a live job."""
        return set(self._known().get(job_id, ()))

    def forget(self, job_id: int) -> None:
        """The job's files are gone."""
        self._known().pop(job_id, None)

    def _known(self) -> dict[int, set[str]]:
        if self._inputs is None:
            self._inputs = {}
            for name in self.names():
                self._note(name)
        return self._inputs

    def _note(self, name: str) -> None:
        spooled = parse_name(name)
        if spooled is not None and spooled.op_index is not None:
            self._known().setdefault(spooled.job_id, set()).add(name)


def files_in(jobs_folder: str) -> Iterator[tuple[str, str]]:
    """Each file (path, name) beside the jobs of the queue, or of one folder of the archive."""
    path = folder(jobs_folder)
    for name in documents.names_in(path):
        yield f"{path}/{name}", name


def is_unfinished_input(name: str) -> bool:
    """Whether this is the temporary file of an input, which only a starting daemon may delete."""
    match = _TEMPORARY.match(name)
    return match is not None and name[match.end() :].startswith("input-")


def is_copy_of_other(name: str, jobs: Collection[int]) -> bool:
    """Whether this is an unfinished copy of output, and not of one of these jobs."""
    match = _TEMPORARY.match(name)
    if match is None or not name[match.end() :].startswith("output."):
        return False
    return int(match[1]) not in jobs


def owner_of_temporary(name: str) -> int | None:
    """The job in the name of a temporary file of the spool."""
    match = _TEMPORARY.match(name)
    return None if match is None else int(match[1])


def _flush(path: str) -> None:
    with documents.storage_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def _lost_upload() -> errors.InputLostError:
    return errors.InputLostError("stdin: what was sent before is gone; send all of it again")
