"""Messages to the output reader."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...storage.disk.disk_parts import DiskLimits, DiskUse
from .base import Notice, Reply, Request


class OutputPage(Reply, frozen=True):
    """A part of a job's stored output, in the format of its file (`queue_files.output_blocks`).

    ``size``: of the file. The last block may be incomplete: the page that starts with it has it
    whole.
    """

    data: bytes
    size: int


class ReadOutput(Request[OutputPage], frozen=True):
    """Read a part of a job's stored output, from the byte ``offset`` of its file on.

    The job may be live or archived; a job without output has an empty file. With ``wait_seconds``
    the reader waits so long for output, if there is none at ``offset``, or none behind ``known``:
    so far the asker has seen the file, which ended with a part of a block. ``bytes_max`` limits
    the reply (0: to a page).
    """

    id: int
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    known: int = 0


class DiskUseRead(Reply, frozen=True):
    """How much of the disk the queue takes, without its reserve."""

    use: DiskUse


class ReadDiskUse(Request[DiskUseRead], frozen=True):
    """From the supervisor: measure how much of the disk the queue takes."""


class DiskLimitsChanged(Notice, frozen=True):
    """From the configuration store: what jobs may take of the disk."""

    limits: DiskLimits


class DiskWatchDue(Notice, frozen=True):
    """From the output reader to itself: the disk is to be measured."""


class OutputGrew(Notice, frozen=True):
    """From a job process: the file with its output has this size now."""

    job_id: int
    size: int
