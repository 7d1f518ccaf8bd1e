"""The job queue as a configuration store sees it: a real log, which takes its changes."""

from __future__ import annotations

from ganger.actors.durable.change_log import ChangeLog
from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import recovery
from ganger.storage.disk.paths import Places
from ganger.storage.log.journal import Journal
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

REQUESTS = (messages.StoreChanges, messages.AwaitSettled, messages.ConfigFilesWritten)


class StagedLog:
    """Answers at once, with a flush for each batch of changes."""

    def __init__(self, places: Places) -> None:
        directory = QueueDirectory(places)
        directory.prepare()
        journal = Journal(places.journal)
        loaded = recovery.load(directory, journal, "none")
        self.ledger = Ledger(directory, journal)
        self.ledger.begin(loaded)
        self.changes = ChangeLog(self.ledger)

    def take(self, envelope: Envelope) -> None:
        """Handle a request of the store."""
        match message := envelope.message:
            case messages.StoreChanges():
                self.changes.store(envelope, message)
                self.ledger.commit()
            case messages.AwaitSettled():
                self.changes.await_settled(envelope, message)
            case messages.ConfigFilesWritten():
                self.changes.note_written(message)

    def retry(self) -> bool:
        """Whether the disk takes writes again."""
        if is_well := self.ledger.retry():
            self.changes.settle()
        return is_well

    def close(self) -> None:
        self.ledger.close()
