"""Keeps the ssconf files as the configuration says, in a thread, after each change.

A change waits for none of them. What the disk refuses is written later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.cluster.integrity import problems
from ...storage.cluster.objects import ObjectKind
from ...storage.ganeti import ssconf, ssconf_files
from ...storage.queue_files import job_files
from . import notices

if TYPE_CHECKING:
    from pathlib import Path

    from ...storage.cluster.configuration import Change, Configuration
    from ..runtime.component import Runtime


class SsconfFiles:
    """The only writer of the ssconf files. ``snapshot``: the present configuration."""

    def __init__(
        self, runtime: Runtime, folder: Path, snapshot: Callable[[], Configuration]
    ) -> None:
        self._runtime = runtime
        self._folder = folder
        self._home = job_files.folder_inode(str(folder.parent))
        self._snapshot = snapshot
        self._is_all_due = False
        self._due: set[str] = set()
        self._is_damaged = False
        self._is_writing = self._is_retry_due = False
        self._waiting: list[Callable[[str | None], None]] = []
        self._fence = threading.Lock()
        self._is_closed = False

    def begin(self) -> None:
        """Bring all files up to date: a crash may have left old ones."""
        self._is_all_due = True
        self._write()

    def note(self, before: Configuration, after: Configuration, changes: Sequence[Change]) -> None:
        """The configuration has changed, durably."""
        for change in changes:
            is_cluster = change.kind is ObjectKind.CLUSTER
            one, other = (
                state.cluster if is_cluster else state.get(change.kind, change.uuid)
                for state in (before, after)
            )
            self._due |= ssconf.affected(change.kind.value, one, other)
        if self._is_damaged:
            # The change may be the repair.
            self._is_damaged, self._is_all_due = False, True
        self._write()

    def when_written(self, done: Callable[[str | None], None]) -> None:
        """Call ``done`` when the files are as the configuration is now, or with why they are not.

        What the disk refused before is tried again at once.
        """
        self._is_retry_due = False
        self._write()
        if self._is_up_to_date:
            done(None)
        else:
            self._waiting.append(done)

    def write_due(self) -> None:
        """Try again what the disk refused."""
        self._is_retry_due = False
        self._write()

    def note_written(self, message: notices.SsconfWritten) -> None:
        """A thread has written files, or failed."""
        if message.incarnation != self._runtime.incarnation:
            # A predecessor's: all that it should have written is due here.
            return
        self._is_writing = False
        if message.is_damaged:
            # Only a change helps, and it may concern other files.
            self._runtime.log.error("ssconf files are not written", error=message.error)
            self._is_damaged = True
        elif message.error is not None:
            self._is_all_due |= message.names is None
            self._due.update(message.names or ())
            self._retry_later(message.error)
        self._write()
        if self._is_up_to_date or message.error is not None:
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                done(message.error)

    def close(self) -> None:
        """Write what is due. What a thread writes now is finished; none begins later."""
        with self._fence:
            self._is_closed = True
        if not self._is_up_to_date:
            # Perhaps also what a thread has been given, and had not begun.
            try:
                self._write_files(self._snapshot(), None)
            except (errors.StorageError, errors.IntegrityError) as error:
                # The next start writes them.
                self._runtime.log.error("ssconf files are not written", error=error.text)

    @property
    def _is_up_to_date(self) -> bool:
        return not (self._due or self._is_all_due or self._is_writing)

    def _write(self) -> None:
        if self._is_writing or self._is_retry_due or self._is_up_to_date:
            return
        names = None if self._is_all_due else sorted(self._due)
        self._is_all_due = False
        self._due.clear()
        self._is_writing = True
        snapshot, incarnation = self._snapshot(), self._runtime.incarnation

        def work() -> notices.SsconfWritten:
            text, is_damaged = None, False
            with self._fence:
                if not self._is_closed:
                    try:
                        self._write_files(snapshot, names)
                    except (errors.StorageError, errors.IntegrityError) as error:
                        text, is_damaged = error.text, isinstance(error, errors.IntegrityError)
            return notices.SsconfWritten(
                names=names, error=text, is_damaged=is_damaged, incarnation=incarnation
            )

        self._runtime.in_thread(work)

    def _write_files(self, snapshot: Configuration, names: Sequence[str] | None) -> None:
        """Runs in any thread. Raises `StorageError`, or `IntegrityError`."""
        if job_files.folder_inode(str(self._folder.parent)) != self._home:
            # Another daemon may have the directory that is there now.
            raise errors.StorageError(f"{self._folder.parent}: deleted or replaced")
        try:
            ssconf_files.write(self._folder, snapshot.document, names)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # A damaged configuration is served, too; its repair writes them.
            found = problems(snapshot)
            if not found:
                raise
            text = f"the configuration is damaged: {found[0]}; ssconf files stay as they are"
            raise errors.IntegrityError(text) from error

    def _retry_later(self, error: str) -> None:
        self._runtime.log.error("ssconf files are not written; tried again later", error=error)
        self._is_retry_due = True
        self._runtime.later(settings.DISK_RETRY_SECONDS, notices.SsconfDue())
