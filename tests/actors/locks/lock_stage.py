"""A lock manager on the stage, and owners that live as long as a test says."""

from __future__ import annotations

import os

from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.locks.lock_manager import LockManager
from ganger.storage.alive import lock_files, process_identity
from ganger.storage.locks import lock_journal
from ganger.storage.locks.locks import LocksFile, Owner
from ganger.transport import messages
from ganger.transport.messages import LocksGranted, RequestLocks

NODE_A, NODE_B = "node/a", "node/b"


class Locks:
    """A lock manager on the stage, and owners that live as long as the test says."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.actor: Staged[LockManager] = stage.start(LockManager)
        self.held: dict[Owner, lock_files.LockFile] = {}

    def owner(self, job_id: int) -> Owner:
        # Of an earlier boot, so that the lock alone says which process lives.
        stem = lock_files.job_stem(
            job_id, 1.0, process_identity.ProcessIdentity(job_id, 1, "earlier")
        )
        held = lock_files.create(self.stage.places.lock_files, stem)
        owner = Owner(job_id, held.path, os.getpid())
        self.held[owner] = held
        return owner

    def kill(self, owner: Owner) -> None:
        self.held.pop(owner).remove()

    def request(self, owner: Owner, *changes: tuple[str, str], priority: int = 0) -> Asker:
        """The turn goes on."""
        message = RequestLocks(owner=owner, priority=priority, changes=list(changes))
        return self.actor.say(
            message,
            number=abs(hash(owner)) if isinstance(owner.identifier, str) else owner.identifier,
        )

    def ask(self, owner: Owner, *changes: tuple[str, str], priority: int = 0) -> Asker:
        """As `request`; the turn ends."""
        asker = self.request(owner, *changes, priority=priority)
        self.actor.end_turn()
        return asker

    def holder_and_other(self) -> tuple[Owner, Owner]:
        """An owner that holds node A alone, and another one."""
        holder, other = self.owner(1), self.owner(2)
        self.take(holder, (NODE_A, "exclusive"))
        return holder, other

    def take(self, owner: Owner, *changes: tuple[str, str]) -> None:
        """Get locks that are free."""
        assert self.ask(owner, *changes).answer == LocksGranted()

    def file(self) -> LocksFile:
        return lock_journal.read(self.stage.places).file

    def on_disk(self) -> dict[object, list[str]]:
        return {
            holding.owner.identifier: [name for name, _ in holding.locks]
            for holding in self.file().allocation
        }

    def listed(self) -> list[messages.LockRow]:
        return self.question(messages.ListLocks()).answer_as(messages.LocksListed).rows

    def question(self, message: messages.Message) -> Asker:
        """As `actor.ask`, with what is then done in a thread beside."""
        asker = self.actor.ask(message)
        self.work_beside()
        return asker

    def work_beside(self) -> None:
        """Do what threads beside have to do."""
        timers = self.stage.timers
        while works := [timer for timer in timers if timer.component == LockManager.name]:
            for work in works:
                timers.remove(work)
                work.run_out()
            self.actor.turn(*self.stage.take(messages.QuestionsAnswered))
