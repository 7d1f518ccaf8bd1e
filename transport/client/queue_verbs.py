# Made from async_queue_verbs.py by docs/make_client.py: change that file, then run the script.
"""The verbs of the client that change jobs that are there, and the queue.

And those that tell why and when jobs will run, and what a change would do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...storage import errors
from ...storage.jobs.jobs import check_id
from ...storage.jobs.origins import Submitter
from ..messages import (
    ArchiveJob,
    ArchiveOutcome,
    AutoArchiveJobs,
    CancelJob,
    CancelOutcome,
    ChangeJobPriority,
    ExplainJob,
    JobExplained,
    LimitsRead,
    PriorityOutcome,
    PurgeJobs,
    ReadPlan,
    RetryJob,
    RuleTest,
    SetDrain,
    Simulated,
    StopDaemon,
    TestFilters,
)
from . import filter_requests, requests
from .caller import Caller
from .etas import Etas, etas_of
from .purges import PurgedJobs, purges


class QueueVerbs:
    """What changes jobs and the queue, or tells why. A base of `client.Client`."""

    _caller: Caller

    # Jobs that are there.

    def cancel(
        self, job_id: int, *, kill: bool = False, timeout: float | None = None
    ) -> CancelOutcome:
        """Cancel a job that has not started; the outcome says whether that was accepted.

        With ``kill`` also a running job: its command gets SIGTERM, then SIGKILL.
        """
        job_id = check_id(job_id)
        return self._caller.call(CancelJob(id=job_id, kill=kill), timeout)

    def set_priority(
        self, job_id: int, priority: int, *, timeout: float | None = None
    ) -> PriorityOutcome:
        """Change the priority (-20, most urgent, to 19) of the opcodes that have not started."""
        job_id = check_id(job_id)
        asked = ChangeJobPriority(id=job_id, priority=requests.checked_priority(priority))
        return self._caller.call(asked, timeout)

    def archive(self, job_id: int, *, timeout: float | None = None) -> ArchiveOutcome:
        """Move a job that has ended to the archive."""
        job_id = check_id(job_id)
        return self._caller.call(ArchiveJob(id=job_id), timeout)

    def autoarchive(self, age: float, *, timeout: float | None = None) -> ArchiveOutcome:
        """Archive the jobs that ended more than ``age`` seconds ago (negative: all that ended)."""
        message = AutoArchiveJobs(age_seconds=requests.checked_age(age))
        return self._caller.call(message, timeout)

    def purge(
        self,
        ids: Iterable[int] | None = None,
        *,
        older_than: float | None = None,
        larger_than: int = 0,
        dry_run: bool = False,
        timeout: float | None = None,
        progress: Callable[[PurgedJobs], None] | None = None,
    ) -> PurgedJobs:
        """Remove jobs that have ended, live or archived, with their output, for good.

        Of all jobs, or those with these ``ids``, the ones that ended more than ``older_than``
        seconds ago and take ``larger_than`` bytes at least; one of the three must be given. The
        reply says how many bytes each took, and which stay, and why: a job on which another one
        depends does. With ``dry_run``: says which, and removes nothing. ``timeout``: of each
        request, of which there may be many; after each ``progress`` gets what is purged so far.
        """
        found = PurgedJobs()
        parts = purges(ids, older_than=older_than, larger_than=larger_than, dry_run=dry_run)
        for first in [*parts]:
            asked: PurgeJobs | None = first
            while asked is not None:
                asked = found.take(asked, self._caller.call(asked, timeout))
                if progress is not None:
                    progress(found)
        return found

    def retry(
        self,
        job_id: int,
        *,
        whole: bool = False,
        ops: requests.Ops | None = None,
        key: str | None = None,
        submitter: Submitter | None = None,
        timeout: float | None = None,
    ) -> int:
        """Submit a new job like an ended one and return its id; each of the two names the other.

        The new job has the opcodes from the first that did not succeed; all with ``whole``.
        ``ops`` replaces them. ``submitter`` as in `submit`.
        """
        job_id = check_id(job_id)
        message = RetryJob(
            id=job_id,
            is_whole=whole,
            ops=None if ops is None else requests.checked_ops(ops, "ops"),
            key=key or requests.fresh_key(),
            submitter=submitter,
        )
        return requests.submitted(self._caller.call(message, timeout), 1)[0]

    # The queue.

    def drain(self, *, drained: bool = True, timeout: float | None = None) -> None:
        """Refuse submissions from now on (also after a restart), or take them again."""
        self._caller.call(SetDrain(is_drained=drained), timeout)

    def limits(
        self,
        *,
        running: int | None = None,
        tracked: int | None = None,
        disk: Mapping[str, float] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> LimitsRead:
        """The limits of the queue, after changing those that are given.

        ``disk`` has those of the disk: ``output_job_bytes`` (output of one job), ``output_bytes``
        (output and archive of all), ``keep_seconds`` and ``keep_bytes`` (ended jobs beyond them are
        purged); 0: none. ``key``: as in `add_filter`.
        """
        asked = requests.limits(running, tracked, key, disk)
        return self._caller.call(asked, timeout)

    def simulate(
        self,
        *,
        rule: Mapping[str, Any] | None = None,
        without: str | None = None,
        priorities: Mapping[int, int] | None = None,
        running: int | None = None,
        ended: Mapping[int, str] | None = None,
        timeout: float | None = None,
    ) -> Simulated:
        """Which jobs would start now, wait and be rejected after these changes. Changes nothing.

        ``rule`` would be stored: it has the arguments of `add_filter`, or was listed. The rule with
        the UUID ``without`` would be deleted. Jobs would have these ``priorities``, the queue
        ``running`` run slots, and the jobs ``ended`` the given final statuses. In the reply a rule
        without a UUID is called ``ffffffff-ffff-ffff-ffff-ffffffffffff``.
        """
        message = filter_requests.simulation(
            rule, without=without, priorities=priorities, running=running, ended=ended
        )
        return self._caller.call(message, timeout)

    def test_filters(
        self,
        rule: Mapping[str, Any] | None = None,
        *,
        without: str | None = None,
        timeout: float | None = None,
    ) -> list[RuleTest]:
        """For each job that has not ended: which rule applies to it, and which would.

        ``rule`` and ``without`` as for `simulate`. Changes nothing.
        """
        message: TestFilters | None = filter_requests.filter_test(rule, without)
        rows: list[RuleTest] = []
        while message is not None:
            reply = self._caller.call(message, timeout)
            rows += reply.rows
            message = filter_requests.next_test(message, reply)
        return rows

    # Why and when.

    def explain(self, job_id: int, *, timeout: float | None = None) -> JobExplained:
        """Why the job does not run: what holds it back, first things first, and what would help.

        ``remedy`` has what would help as data, ``change`` the same in words.
        """
        job_id = check_id(job_id)
        return self._caller.call(ExplainJob(id=job_id), timeout)

    def eta(self, *, timeout: float | None = None) -> Etas:
        """When the jobs that run and the first 10,000 pending ones will start and end.

        The plan comes from the run times of earlier jobs, and knows no waits for locks. A job whose
        opcodes have no history has no end: ``unknown`` says so.
        """
        return etas_of(self._caller.call(ReadPlan(), timeout))

    def waiting(self, *, timeout: float | None = None) -> dict[str, int]:
        """For what how many jobs wait: the kind of the first obstacle, as in `explain`.

        ``process``: jobs that wait for locks with a process.
        """
        asked = ReadPlan(limit=0, has_causes=True)
        return (self._caller.call(asked, timeout)).waiting

    def causes(
        self, job_ids: Iterable[int], *, timeout: float | None = None
    ) -> dict[int, tuple[str, str]]:
        """For what these pending jobs wait: the kind of the first obstacle, and what it is about.

        That is a lock, a rule, a rate limit or the ids of jobs; "": nothing with a name. One
        request for at most 1,000 jobs; those that have a process or have ended are left out.
        """
        asked = ReadPlan(limit=0, causes_of=[check_id(one) for one in job_ids])
        return (self._caller.call(asked, timeout)).causes

    # The end.

    def stop(self, *, timeout: float | None = None) -> None:
        """Stop the daemon; running jobs go on."""
        # The connection may end before the reply comes: then the daemon has stopped as well.
        with contextlib.suppress(errors.ConnectionLostError):
            self._caller.call(StopDaemon(), timeout)
