"""What a user of the simulated world has purged: only jobs that have ended, and none comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganger.transport import messages

if TYPE_CHECKING:
    from tests.torture.simulation.user import User

    from ganger.actors.queue.job_queue import JobQueue

AFTER_SECONDS = (5.0, 10.0, 30.0, 60.0)


class Purger:
    """Archives and purges, and knows what of it was acknowledged."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.asked: set[int] = set()
        """They may be gone: the reply may have been lost."""
        self.gone: set[int] = set()

    def plan(self) -> None:
        """Put everything on the agenda."""
        core = self._user.core
        for _ in range(core.character.purges):
            core.later(core.dice.choice(AFTER_SECONDS) * core.dice.random(), self.act)

    def act(self) -> None:
        """Purge some jobs by their ids, or all that have ended.

        A repeated submission must find its jobs, and those on which new ones depend.
        """
        user, dice = self._user, self._user.core.dice
        if user.may_repeat_submission() or not user.acknowledged:
            return
        known = sorted(user.acknowledged)
        if dice.random() < 0.3:
            self.asked.update(known)
            user.ask(messages.PurgeJobs(age_seconds=-1.0, bytes_min=1), self._note)
            return
        ids = dice.sample(known, min(len(known), dice.randint(1, 4)))
        self.asked.update(ids)
        user.ask(messages.PurgeJobs(ids=ids), self._note)

    def _note(self, outcome: messages.PurgeOutcome) -> None:
        core = self._user.core
        for job_id, _ in outcome.jobs:
            self.gone.add(job_id)
            core.oracle.purged(job_id)

    def is_gone(self, queue: JobQueue, job_id: int) -> bool:
        """Whether the job has gone as it was asked for; one that came back is a problem."""
        if job_id not in self.asked:
            return False
        is_live = queue.store.table.find(job_id) is not None
        is_there = is_live or bool(queue.store.ledger.directory.archived_among([job_id]))
        if is_there and job_id in self.gone:
            self._user.core.problem(f"job {job_id} was purged and is there again")
        return not is_there
