"""A configuration store and a lock manager on one stage: they hear each other."""

from __future__ import annotations

from typing import Any

from tests import clusters
from tests.actors.locks.lock_stage import Locks
from tests.actors.runtime import staged_log
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.storage import config_files
from ganger.storage.locks.locks import CONFIG_LOCK, Owner
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import Message


class StoreAndLocks:
    """Both, and owners of locks that live as long as the test says."""

    def __init__(self, stage: Stage, configuration: dict[str, Any] | None = None) -> None:
        stage.grants_config_lock = False
        stage.renew_log()
        self.stage = stage
        made = configuration or clusters.made_configuration(nodes=3, instances=2)
        config_files.write(stage.places.config, made)
        self.locks = Locks(stage)
        self.store: Staged[ConfigStore] = stage.start(ConfigStore)
        self.settle()

    def settle(self) -> None:
        """Let them talk until nobody has anything to say, nor a thread of the store to do."""
        self.talk()
        while self.store.work_beside():
            self.talk()

    def talk(self) -> None:
        """As `settle`, while no thread gets on."""
        while asked := self._asked():
            for entry in asked:
                self.stage.requests.remove(entry)
                if entry[0] == "job_queue":
                    self.stage.log_of_changes.take(entry[1])
                else:
                    self.locks.actor.handle(entry[1])
            self.locks.actor.end_turn()
            self.locks.work_beside()
            self.store.handle_mail()

    def _asked(self) -> list[tuple[str, Envelope]]:
        """What the store asks the lock manager, or has for the log."""
        kinds = staged_log.REQUESTS
        return [
            (name, envelope)
            for name, envelope in self.stage.requests
            if name == "lock_manager" or isinstance(envelope.message, kinds)
        ]

    def retry_disk(self) -> None:
        """The queue finds out that the disk works again."""
        assert self.stage.log_of_changes.retry()
        self.store.handle_mail()
        self.settle()

    def say(self, message: Message, *, deadline: float | None = None) -> Asker:
        """What the store hears; nobody else hears anything yet."""
        asker = Asker()
        self.store.handle(Envelope(message, asker, deadline=deadline))
        return asker

    def ask(self, message: Message, *, deadline: float | None = None) -> Asker:
        """What the store hears, and all that follows."""
        asker = self.say(message, deadline=deadline)
        self.settle()
        return asker

    def ask_without_threads(self, message: Message) -> Asker:
        """As `ask`, while no thread gets on."""
        asker = self.say(message)
        self.talk()
        return asker

    def hold(self, job_id: int = 1, mode: str = "exclusive") -> Owner:
        """Another owner that has the configuration lock."""
        owner = self.locks.owner(job_id)
        self.locks.take(owner, (CONFIG_LOCK, mode))
        return owner

    def release(self, owner: Owner) -> None:
        """It gives all its locks back."""
        self.locks.actor.ask(messages.ReleaseLocks(owner))
        self.store.handle_mail()
        self.settle()

    def restart_store(self) -> None:
        """The store fails, and its successor begins."""
        self.store = self.stage.start(ConfigStore)
        self.settle()

    def restart_locks(self) -> None:
        """The lock manager fails over all that it was asked, and its successor begins."""
        self.stage.requests = [one for one in self.stage.requests if one[0] != "lock_manager"]
        self.locks.actor.component.close()
        self.locks.actor = self.stage.start(LockManager, incarnation=2)
        self.store.hear_of_restart("lock_manager")
        self.settle()

    def held(self) -> dict[str, list[Owner]]:
        """The owners of each lock."""
        return {lock: [owner for owner, _ in owners] for lock, owners in self.table().held}

    def table(self) -> messages.LockTable:
        """Every lock, and the line."""
        return self.locks.question(messages.ReadLockTable()).answer_as(messages.LockTable)
