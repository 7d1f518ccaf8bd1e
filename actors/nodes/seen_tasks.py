"""The highest job id that each node has given to a task, as far as the hub has seen.

It is written now and then, without a flush: it outlives the hub and the daemon. After a loss of
power it may be lower than it was, and never too high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, settings
from ...storage.disk import documents
from ...transport import frames, messages

if TYPE_CHECKING:
    from pathlib import Path

    from ..runtime.component import Runtime

WRITE_SECONDS = 0.5
"""How long after a change it is written."""


class SeenTasks:
    """The ids, in memory and in a file."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        self._runtime = runtime
        self._path = path
        self._ids: dict[str, int] = {}
        self._is_due = False

    def read(self) -> None:
        """Take in the file."""
        data = documents.read(self._path)
        if data is not None:
            try:
                self._ids = msgspec.json.decode(data, type=dict[str, int])
            except msgspec.MsgspecError as error:
                raise errors.StorageError(f"{self._path}: {error}") from error

    def of(self, node: str) -> int:
        """The highest id of a task on this node; 0: none."""
        return self._ids.get(node, 0)

    def note_start(self, node: str, message: messages.TaskAnswered) -> None:
        """The node has answered the start of a task."""
        reply: Any = frames.decode(message.frame, messages.TaskReply).message
        match reply:
            case messages.JobsSubmitted():
                job_id = max(reply.ids, default=0)
            case messages.JobDocument():
                job_id = reply.id
            case _:
                return
        if job_id <= self.of(node):
            return
        self._ids[node] = job_id
        if not self._is_due:
            self._is_due = True
            self._runtime.later(WRITE_SECONDS, messages.SeenTasksDue())

    def forget(self, node: str) -> None:
        """The node joins anew, or was removed."""
        if self._ids.pop(node, None) is not None:
            self.write_what_is_due()

    def write_what_is_due(self) -> None:
        """Write the file; if the disk refuses, later."""
        self._is_due = False
        try:
            documents.replace(self._path, msgspec.json.encode(self._ids), flush=False)
        except errors.StorageError as error:
            text = "how far the tasks of nodes have come is not stored"
            self._runtime.log.error(text, error=error.text)
            self._is_due = True
            self._runtime.later(settings.DISK_RETRY_SECONDS, messages.SeenTasksDue())
