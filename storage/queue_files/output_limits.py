"""How much output jobs may store, as their processes see it: a small file beside the jobs.

The output reader writes it, and the process of each job looks whether it has changed: so a limit
holds at once, for all jobs that run, and while no daemon is there. Without the file the limit of
each job is the usual one, and there is none for all together.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from .. import errors, settings
from ..disk import documents

NAME = "output-limits"
"""The file's name in the queue directory."""


class OutputLimits(msgspec.Struct, frozen=True):
    """``job_bytes``: of one job, before compression. ``refusal``: why none is stored now, if so."""

    job_bytes: int = settings.OUTPUT_JOB_BYTES_MAX
    refusal: str = ""


_USUAL = OutputLimits()
_decode = msgspec.json.Decoder(OutputLimits).decode


class LimitsInForce:
    """The limits of a queue directory, read again when the file has changed."""

    def __init__(self, queue: str) -> None:
        self._path = f"{queue}/{NAME}"
        self._known: tuple[tuple[int, int] | None, OutputLimits] = None, _USUAL

    def now(self) -> OutputLimits:
        """The limits; the usual ones if the file is gone or cannot be read."""
        try:
            status = os.stat(self._path)
        except OSError:
            return _USUAL
        mark = status.st_ino, status.st_mtime_ns
        if mark != self._known[0]:
            self._known = mark, self._read()
        return self._known[1]

    def _read(self) -> OutputLimits:
        with contextlib.suppress(errors.StorageError, msgspec.DecodeError):
            return _decode(documents.read(self._path) or b"{}")
        return _USUAL


def write(queue: str, limits: OutputLimits) -> None:
    """Put these limits in force; `StorageError` if the disk refuses."""
    path = f"{queue}/{NAME}"
    if limits == LimitsInForce(queue).now():
        return
    if limits != _USUAL:
        documents.replace(path, msgspec.json.encode(limits), flush=False)
        return
    with documents.storage_errors(path), contextlib.suppress(FileNotFoundError):
        os.unlink(path)
