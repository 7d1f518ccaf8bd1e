"""Runs one opcode in this process, without a daemon and without locks: for tests of opcodes.

    context = LocalContext()
    result = context.run({"OP_ID": "OP_EXEC", "argv": ["echo", "hello"]})
    assert context.lines("stdout") == ["hello"]

Not used by the daemon.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...storage import opcodes, settings
from . import registry


class LocalContext:
    """An `OperationContext` that really waits, and remembers log entries and output.

    After the log entry ``skip_after``, the next ``skips`` waits with a time limit that find
    nothing ready return at once, as if that time had passed. So tests need not wait for limits.
    """

    def __init__(
        self,
        *,
        dry_run: bool = False,
        skip_after: str | None = None,
        skips: int = 1,
        data_directory: str = "/nonexistent",
    ) -> None:
        self.job_id = 1
        self.op_index = 0
        self.dry_run = dry_run
        self.data_directory = data_directory
        self.logged: list[tuple[str, str | list[str]]] = []
        """Kind and text of each entry, in order."""
        self.written: list[tuple[str, bytes]] = []
        """Stream and data of each piece of output, in order."""
        self.output_limit = settings.OUTPUT_BYTES_MAX
        self._skip_after = skip_after
        self._skips = skips
        self._skipped_seconds = 0.0

    def run(self, fields: Mapping[str, Any]) -> object:
        """Check the opcode, run its operation, return its result."""
        opcode = opcodes.parse(opcodes.check_opcode(dict(fields)))
        return registry.operation_for(opcode)(opcode, self)

    def lines(self, kind: str = "message") -> list[str | list[str]]:
        """The log entries of this kind."""
        return [text for logged_kind, text in self.logged if logged_kind == kind]

    def joined_nodes(self) -> set[str]:
        """None: there is no daemon."""
        return set()

    def open_input(self, name: str) -> int:
        """Refuse: a test has no job with files beside it."""
        raise FileNotFoundError(name)

    def log(self, text: str | list[str], kind: str = "message") -> None:
        """Remember one entry."""
        self.logged.append((kind, text))

    def log_lines(self, lines: list[str], kind: str = "message") -> None:
        """Remember one entry for each line."""
        self.logged += [(kind, line) for line in lines]

    def output(self, data: bytes, stream: str = "stdout") -> int:
        """Remember a piece of output, within ``output_limit``."""
        kept = data[: self.output_limit]
        self.output_limit -= len(kept)
        if kept:
            self.written.append((stream, kept))
        return len(kept)

    def written_to(self, stream: str = "stdout") -> bytes:
        """All output on this stream."""
        return b"".join(data for written, data in self.written if written == stream)

    def clock(self) -> float:
        """Monotonic seconds, including skipped ones."""
        return time.monotonic() + self._skipped_seconds

    def poll(
        self, descriptors: Mapping[int, int] | Sequence[int], timeout_seconds: float | None
    ) -> list[int]:
        """Wait for one of ``descriptors``, unless this wait is skipped."""
        masks = descriptors if isinstance(descriptors, Mapping) else None
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, masks[descriptor] if masks else select.POLLIN)
        milliseconds = None if timeout_seconds is None else int(timeout_seconds * 1000) + 1
        skips = timeout_seconds is not None and self._is_skipping()
        ready = [descriptor for descriptor, _ in poll.poll(0 if skips else milliseconds)]
        if skips and not ready:
            self._skips -= 1
            self._skipped_seconds += timeout_seconds or 0.0
        return ready

    def _is_skipping(self) -> bool:
        if self._skips <= 0 or self._skip_after is None:
            return False
        return any(text == self._skip_after for _, text in self.logged)
