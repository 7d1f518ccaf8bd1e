"""Drafted changes of the configuration go into the log, as configuration store and queue do it."""

from __future__ import annotations

from tests.actors.runtime.stage import Asker

from ganger.actors.config.stored_configuration import StoredConfiguration
from ganger.actors.durable.change_log import ChangeLog
from ganger.actors.durable.ledger import Ledger
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope


def append_drafts(stored: StoredConfiguration, changes: ChangeLog, ledger: Ledger) -> None:
    """Append what is drafted, with one flush; raises the error with which the log refuses it."""
    batch = stored.next_batch()
    if batch is None:
        return
    asker, message = Asker(), messages.StoreChanges(*batch)
    changes.store(Envelope(message, asker), message)
    ledger.commit()
    if isinstance(answer := asker.answer, messages.Failure):
        error = errors.from_wire(answer.error, answer.text)
        stored.refused(error)
        raise error
    assert asker.answer_as(messages.ChangesStored).position is not None
    stored.stored()
    stored.enter()
