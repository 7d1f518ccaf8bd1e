"""What the output reader accepts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .base import Notice, Reply, Request


class OutputPage(Reply, frozen=True):
    """Stored output as in the job's file (`queue_files.output_blocks`); ``size``: of the file.

    The last block may be cut off: it comes whole in the page that begins with it.
    """

    data: bytes
    size: int


class ReadOutput(Request[OutputPage], frozen=True):
    """A page of a job's stored output, live or archived, from the byte ``offset`` of its file on.

    With ``wait_seconds`` the answer waits for so long if there is nothing, or if the file still has
    the size ``known``. ``bytes_max`` is how much to send at most (0: a page). Of a job
    without output there is nothing.
    """

    id: int
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    known: int = 0


class OutputGrew(Notice, frozen=True):
    """From a job process: the file with its output has this size now."""

    job_id: int
    size: int
