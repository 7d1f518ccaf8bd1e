"""What the oracle says of clients that wait for changes of jobs: none waits in vain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.actors.ganeti.queue_parts import waits_of

from ganger.actors.ganeti.job_queries import _RowValues
from ganger.actors.ganeti.job_state import JobState
from ganger.actors.store.job_rows import Phase
from ganger.storage.ganeti.queries.jobs import JobRow
from ganger.storage.jobs import jobs

if TYPE_CHECKING:
    from tests.torture.simulation.user import Waiter
    from tests.torture.simulation.world import World

    from ganger.actors.queue.job_queue import JobQueue


class Waiting:
    """Watches the waits of the job queue."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look_at(self, queue: JobQueue) -> None:
        """Nobody waits who could have news, unless the queue is to look at his job."""
        waits = waits_of(queue)
        if queue.store.ledger._effects:
            # In the middle of a turn.
            return
        for job_id, line in waits._by_job.items():
            row = queue.store.table.find(job_id)
            if job_id in waits._changed or row is None:
                continue
            in_memory = queue.store.ledger.in_memory(job_id)
            if in_memory is None and row.phase is Phase.HANDED_OVER:
                # Its process may have written what it has not reported.
                continue
            job, log_until = queue.store.reader.followed(row)
            state = JobState(JobRow(job_id, job, known=_RowValues(row)), log_until)
            for wait in line.waits.values():
                has_log = state.has_log_after(wait.log_serial)
                if row.status.is_final or has_log or state.mark(wait.fields) != wait.known:
                    now = (row.phase, row.status, state.values(wait.fields))
                    text = f"job {job_id} has changed to {now}; a client that knows {wait.known!r}"
                    self._world.problem(f"{text} and log entry {wait.log_serial} waits in vain")

    def look_at_rest(self, queue: JobQueue) -> None:
        """The queue has looked at everybody whose job has changed."""
        if waits_of(queue).has_work:
            self._world.problem("at rest, but clients that wait for changes are to be looked at")

    def look_at_end_of(self, queue: JobQueue, waiter: Waiter) -> None:
        """A client that waits gets the whole log once, in order, and the job as it is in the end.

        But for one whose job was archived before that.
        """
        job_id = waiter.job_id
        if not waiter.is_final:
            if not queue.store.is_archived(job_id):
                self._world.problem(f"at the end somebody still waits for a change of job {job_id}")
            return
        job = jobs.decode_job(queue.store.reader.document(job_id).body)
        logged = [entry[0] for op in job.ops for entry in op.log]
        got = waiter.log_serials
        if got != sorted(set(got)) or not set(logged) <= set(got):
            # What the daemon and the job's process both lost when they died may be among them.
            self._world.problem(f"a waiter for job {job_id} got {got} of its log {logged}")
        shown = json.loads(JobState(JobRow(job_id, job)).values(waiter.FIELDS))
        if waiter.values != shown:
            self._world.problem(f"a waiter for job {job_id} got {waiter.values}, not {shown}")
