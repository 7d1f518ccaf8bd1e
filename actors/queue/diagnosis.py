"""What the queue must ask others for before it can answer: why a job waits, and what if."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, jobs, settings
from ...storage.jobs import JobStatus
from ...transport import messages
from ..rules import rule_changes
from ..runtime.addresses import FILTER_EVALUATOR, LOCK_MANAGER
from ..scheduling import simulating
from . import explaining
from .job_store import QueueCore
from .job_table import Phase, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...transport.envelopes import Envelope

_CHAIN_MAX = 50
"""Longest chain of dependencies that is told."""


class QueueAnswers(QueueCore):
    """Explains why jobs do not run, and what would happen if."""

    def _explain(self, envelope: Envelope, job_id: int) -> None:
        row = self._table.find(job_id)
        if row is None:
            if self._ledger.directory.read_archived(job_id) is None:
                raise errors.UnknownJobError(f"there is no job {job_id}")
            raise errors.JobStateError(f"job {job_id} has ended, and is archived")
        if row.phase is Phase.PENDING:
            token = self._ask(envelope, row)
            self._report_jobs([job_id])
            asked = messages.ExplainPending(token=token, id=job_id, job=self._whole(row))
            self.runtime.tell(FILTER_EVALUATOR, asked)
        elif row.phase is Phase.HANDED_OVER and row.status is JobStatus.WAITING:
            assert row.lock_file is not None
            token = self._ask(envelope, row)
            owner = messages.ExplainOwner(token=token, lock_file=row.lock_file)
            self.runtime.tell(LOCK_MANAGER, owner)
        else:
            # It runs, or is about to start, unless the rules have changed since it was chosen.
            obstacles, rules = self._of_rules(row) if row.status is JobStatus.QUEUED else ([], [])
            remedy = explaining.without_rules(messages.Remedy(), rules)
            envelope.reply(explaining.explained(row, obstacles, remedy))

    def _ask(self, envelope: Envelope, row: Row) -> int:
        self._tokens += 1
        self._unexplained[self._tokens] = envelope, row.id
        while len(self._unexplained) > settings.QUESTIONS_MAX:
            # More than can be answered; the asker has a deadline.
            del self._unexplained[next(iter(self._unexplained))]
        return self._tokens

    def _ask_anew(self, component: str) -> None:
        """This one was replaced, and may have taken answers with it that questions wait for."""
        if component == self.name:
            return
        unexplained, self._unexplained = self._unexplained, {}
        simulations, self._simulations = self._simulations, {}
        self._simulated.clear()
        asked: list[tuple[Envelope, Callable[[], None]]] = [
            (envelope, functools.partial(self._explain, envelope, job_id))
            for envelope, job_id in unexplained.values()
        ]
        asked += [
            (envelope, functools.partial(self._simulate, envelope, message))
            for envelope, message in simulations.values()
        ]
        for envelope, ask in asked:
            try:
                ask()
            except errors.GangerError as error:
                envelope.refuse(error)

    def _take_explanation(
        self, message: messages.PendingExplained | messages.OwnerExplained
    ) -> None:
        envelope, job_id = self._unexplained.pop(message.token, (None, 0))
        row = self._table.find(job_id)
        if envelope is None:
            return
        if row is None:
            envelope.refuse(errors.JobStateError(f"job {job_id} has ended meanwhile"))
            return
        ahead = None
        remedy = messages.Remedy()
        obstacles: list[messages.Obstacle] = []
        if isinstance(message, messages.OwnerExplained):
            # The rules hold it back when it has the locks.
            of_rules, rules = self._of_rules(row)
            obstacles = explaining.of_locks(row, message.locks) + of_rules
            remedy = explaining.without_rules(message.remedy, rules)
        elif message.position is not None:
            position = message.position
            rules = self._holding(explaining.holding(position))
            obstacles = explaining.of_pending(row, position, rules)
            obstacles += self._chain_behind(row, position.open)
            remedy = explaining.remedy_of_pending(position, rules)
            ahead = position.ahead
        if self._ledger.is_read_only:
            text = "the disk refuses writes, and nothing starts until it takes them"
            disk = messages.Remedy(is_disk=True)
            obstacles.insert(0, messages.Obstacle(kind="disk", held=job_id, text=text, remedy=disk))
            remedy = msgspec.structs.replace(remedy, is_disk=True)
        envelope.reply(explaining.explained(row, obstacles, remedy, ahead))

    def _of_rules(self, row: Row) -> tuple[list[messages.Obstacle], list[explaining.HoldingRule]]:
        """What sends a chosen job back, or cancels it, before its next opcode."""
        if self._door is None or self._door.lets_all_start(row.chosen):
            return [], []
        job = self._read(row.id)
        rules = self._holding(self._door.stopping(job))
        found = [explaining.of_rule(row, rule) for rule in rules]
        gate = self._door.gate(job, row.chosen, has_begun=job.has_begun)
        if not found and not gate.is_open:
            text = f"it goes back to the queue, {gate.text}"
            found.append(messages.Obstacle(kind="limit", held=row.id, text=text))
        return found, rules

    def _holding(self, uuids: Iterable[str]) -> list[explaining.HoldingRule]:
        door = self._door
        if door is None:
            # Not told yet, after a restart of the queue; the scheduler knows them already.
            return [explaining.HoldingRule(uuid, f"filter rule {uuid}", 0) for uuid in uuids]
        return [
            explaining.HoldingRule(uuid, door.told(uuid), door.priority(uuid), door.ends_at(uuid))
            for uuid in uuids
        ]

    # ------------------------------------------------------------ what if

    def _check_proposed(self, message: messages.TestFilters | messages.Simulate) -> None:
        if message.rule is not None:
            rule_changes.build_rule(message.rule, watermark=0, now_nanoseconds=0)
        assert self._door is not None
        if message.without is not None and not self._door.knows(message.without):
            raise errors.UnknownFilterError(f"without: there is no rule {message.without}")

    def _test_filters(self, envelope: Envelope, message: messages.TestFilters) -> None:
        self._check_proposed(message)
        rows, has_more = self._table.unfinished_after(message.after, settings.SWEEP_JOBS)
        judge = messages.JudgeTest(
            test=message,
            last_id=self._ledger.last_id,
            jobs=[self._whole(row) for row in rows],
            statuses=[row.status for row in rows],
            next_after=rows[-1].id if has_more else None,
        )
        forwarded = msgspec.structs.replace(envelope, message=judge)
        self.runtime.forward(FILTER_EVALUATOR, forwarded)

    def _simulate(self, envelope: Envelope, message: messages.Simulate) -> None:
        self._check_proposed(message)
        for job_id, priority in message.priorities.items():
            jobs.check_priority(priority, f"priorities[{job_id}]")
        for job_id, status in message.ended.items():
            if not status.is_final:
                text = f"ended[{job_id}]: expected a final status, not {status}"
                raise errors.BadRequestError(text)
        for job_id in (*message.priorities, *message.ended):
            if self._table.find(job_id) is None:
                raise errors.UnknownJobError(f"there is no live job {job_id}")
        self._tokens += 1
        self._simulations[self._tokens] = envelope, message
        while len(self._simulations) > settings.QUESTIONS_MAX:
            oldest = next(iter(self._simulations))
            del self._simulations[oldest]
            self._simulated.pop(oldest, None)
        self._simulate_page(self._tokens, 0)

    def _simulate_page(self, token: int, after: int) -> None:
        if token not in self._simulations:
            return
        _, simulation = self._simulations[token]
        rows, has_more = self._table.pending_after(after, settings.SWEEP_JOBS)
        running = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER) if not after else []
        page = messages.JudgeSimulation(
            token=token,
            simulation=simulation,
            last_id=self._ledger.last_id,
            jobs=[self._whole(row) for row in rows],
            running=[self._occupant(row) for row in running if not row.status.is_final],
            next_after=rows[-1].id if has_more else None,
        )
        self.runtime.tell(FILTER_EVALUATOR, page)

    def _is_idle(self, row: Row) -> bool:
        """Whether it holds a run slot while no opcode of it runs."""
        return row.status in (JobStatus.QUEUED, JobStatus.WAITING)

    def _occupant(self, row: Row) -> messages.JobToJudge:
        """A job that holds a run slot, with what a rule for it would find."""
        arrived = self._whole(row)
        is_idle = self._is_idle(row)
        is_unbegun = is_idle and not self._read(row.id).has_begun
        job = msgspec.structs.replace(arrived.job, is_idle=is_idle, is_unbegun=is_unbegun)
        return msgspec.structs.replace(arrived, job=job)

    def _end_simulation(self, message: messages.SimulationDone) -> None:
        """The scheduler has said its part; the rest is the lock manager's."""
        _, simulation = self._simulations.get(message.token, (None, None))
        if simulation is None:
            return
        self._simulated[message.token] = message.outcome
        gone = [*message.outcome.paused, *(job_id for job_id, _ in message.outcome.ended)]
        rows = [self._table.find(job_id) for job_id in simulation.ended]
        # Those that would be sent back or canceled while they wait, wait no more.
        rows += [row for one in gone if (row := self._table.find(one)) and self._is_idle(row)]
        ended = [row.lock_file for row in rows if row is not None and row.lock_file is not None]
        asked = messages.SimulateLocks(token=message.token, ended=ended)
        self.runtime.tell(LOCK_MANAGER, asked)

    def _refuse_simulation(self, message: messages.SimulationFailed) -> None:
        envelope, _ = self._simulations.pop(message.token, (None, None))
        self._simulated.pop(message.token, None)
        if envelope is not None:
            envelope.refuse(errors.BadRequestError(message.text))

    def _answer_simulation(self, message: messages.LocksSimulated) -> None:
        envelope, _ = self._simulations.pop(message.token, (None, None))
        outcome = self._simulated.pop(message.token, None)
        if envelope is not None and outcome is not None:
            envelope.reply(simulating.with_locks(outcome, message))

    def _whole(self, row: Row) -> messages.JobToJudge:
        """A job with the inputs of its opcodes, or word that its file has them.

        Files are not read here: a thread that often gives up the interpreter, as reading does, gets
        it back late from one that judges jobs, and all others would wait for this one.
        """
        if (body := self._ledger.in_memory(row.id)) is None:
            return messages.JobToJudge(job=row.as_pending(), inputs=None, is_in_file=True)
        inputs = jobs.decode_job(body).judged_inputs
        return messages.JobToJudge(job=row.as_pending(), inputs=inputs)

    def _chain_behind(self, row: Row, open_jobs: list[int]) -> list[messages.Obstacle]:
        """The jobs that it waits for, those that these wait for, and so on."""
        found: list[messages.Obstacle] = []
        seen = {row.id}
        unseen = [(row, target) for target in open_jobs]
        while unseen and len(found) < _CHAIN_MAX:
            waiting, target = unseen.pop(0)
            other = self._table.find(target)
            if other is None or target in seen:
                continue
            seen.add(target)
            wanted = dict(waiting.depends).get(target, ())
            found.append(explaining.of_dependency(other, wanted, other.status))
            if other.phase is Phase.PENDING:
                unseen += [(other, deeper) for deeper, _ in other.depends]
        return found

    def _report_jobs(self, ids: list[int]) -> None:
        """Send these jobs to be judged anew."""
        raise NotImplementedError
