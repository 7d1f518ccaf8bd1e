"""The oracle of releases: the first word of each must do, though a second one would repair it.

Locks are given back when the job's process asks between two opcodes, and when the queue tells of
the job's end. Had one of these been forgotten, the end of the process would free the locks all the
same, a moment later: nothing would be wrong but that others waited for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganger.actors.store.job_rows import Phase
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

if TYPE_CHECKING:
    from tests.torture.simulation.simulated_daemon import ActorTask
    from tests.torture.simulation.world import World

    from ganger.actors.locks.locking import LockState
    from ganger.actors.queue.job_queue import JobQueue


class Releases:
    """Looks after each step at what should be released by then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: dict[int, tuple[int, str]] = {}
        """Jobs with a process that is not final, as the queue of this number has shown them."""

    def started(self, job_id: int, names: set[str]) -> None:
        """An opcode of the job begins, under locks of these names: it holds no others."""
        state = self._state()
        for owner in [] if state is None else state.owners():
            if owner.identifier == job_id:
                held = {name for name, _ in state.list_locks(owner)}  # type: ignore[union-attr]
                if held - names:
                    text = f"starts an opcode and still holds {sorted(held - names)}"
                    self._world.problem(f"job {job_id} {text}")

    def look_at_queue(self, queue: JobQueue) -> None:
        """After a step of the queue: it has announced each end of a job that holds locks."""
        for row in queue.store.table:
            if row.phase is not Phase.HANDED_OVER or row.lock_file is None:
                self._running.pop(row.id, None)
            elif not row.status.is_final:
                self._running[row.id] = (id(queue), row.lock_file)
            elif self._running.pop(row.id, None) == (id(queue), row.lock_file):
                self._look_at_end(row.id, row.lock_file)

    def look_at_locks(self, task: ActorTask) -> None:
        """After a step of the lock manager: an owner that has released all locks holds none."""
        said = task.handled.message if isinstance(task.handled, Envelope) else None
        state: Any = getattr(task.component, "_state", None)
        if state is None or task.is_over:
            return
        match said:
            case messages.ReleaseLocks():
                left = [owner for owner in state.owners() if owner == said.owner]
            case messages.OwnerEnded():
                left = [owner for owner in state.owners() if owner.lock_file == said.lock_file]
            case _:
                return
        for owner in left:
            self._world.problem(f"{owner} has given back its locks, and holds some: {said}")

    def _look_at_end(self, job_id: int, lock_file: str) -> None:
        daemon = self._world.daemon
        state = self._state()
        if daemon is None or state is None:
            return
        if all(owner.lock_file != lock_file for owner in state.owners()):
            return
        on_their_way = daemon.actors["lock_manager"].mailbox.waiting()
        ended = messages.OwnerEnded(lock_file=lock_file)
        if not any(isinstance(one, Envelope) and one.message == ended for one in on_their_way):
            self._world.problem(f"job {job_id} is final, and its locks are not announced as free")

    def _state(self) -> LockState | None:
        daemon = self._world.daemon
        manager = None if daemon is None else daemon.component("lock_manager")
        return None if manager is None else manager._state
