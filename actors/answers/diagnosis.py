"""Queries that need the scheduler or the lock manager: why a job waits, and what if."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ...storage import errors, settings
from ...storage.jobs import jobs
from ...storage.jobs.jobs import JobStatus
from ...transport import messages
from ..rules import rule_requests
from ..runtime.addresses import CONFIG_STORE, FILTER_EVALUATOR, LOCK_MANAGER, SCHEDULER
from ..scheduling import simulating
from ..store.job_rows import Phase
from . import explaining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime
    from ..store.job_rows import Row
    from ..store.job_store import JobStore
    from ..store.start_gate import StartGate

_CHAIN_MAX = 50
"""Longest chain of dependencies that is shown."""


class Diagnosis:
    """Explains why jobs do not run, and what would happen if."""

    def __init__(
        self,
        runtime: Runtime,
        store: JobStore,
        gate: StartGate,
        held_up: Callable[[int], str],
        awaited_node: Callable[[int], str],
        *,
        in_names: Callable[[str], str] = str,
    ) -> None:
        """``held_up``: why the newest state of a job is not stored; empty if it is.

        ``awaited_node``: for what a running job waits on a node; empty: for nothing. ``in_names``
        gives the locks in a text the names that users know.
        """
        self._runtime = runtime
        self._store = store
        self._table = store.table
        self._announcements = store.announcements
        self._gate = gate
        self._held_up = held_up
        self._awaited_node = awaited_node
        self._in_names = in_names
        self._simulating: Counter[bytes] = Counter()
        """How many simulations of each client have jobs that are not judged yet."""

    def explain(self, envelope: Envelope, job_id: int) -> None:
        """Say why the job does not run, and what would let it."""
        envelope = msgspec.structs.replace(envelope, reply_to=_InNames(envelope, self._in_names))
        row = self._table.find(job_id)
        if row is None:
            job = self._store.read_archived(job_id)
            if job is None:
                raise errors.UnknownJobError(f"there is no job {job_id}")
            envelope.reply(explaining.explained_archived(job))
            return
        if row.phase is Phase.PENDING:
            pending = messages.ExplainPending(id=job_id, job=self._announcements.whole(row))
            answer = functools.partial(self._answer_pending, envelope, job_id)
            self._runtime.ask(FILTER_EVALUATOR, pending, answer, envelope.refuse, envelope.deadline)
        elif row.phase is Phase.HANDED_OVER and (text := self._held_up(job_id)):
            disk = messages.Remedy(is_disk=True)
            held = messages.Obstacle(kind="disk", held=job_id, text=text, remedy=disk)
            envelope.reply(explaining.explained(row, [held], disk))
        elif row.phase is Phase.HANDED_OVER and row.status is JobStatus.WAITING:
            assert row.lock_file is not None
            owner = messages.ExplainOwner(lock_file=row.lock_file)
            waits = functools.partial(self._answer_owner, envelope, job_id)
            self._runtime.ask(LOCK_MANAGER, owner, waits, envelope.refuse, envelope.deadline)
        elif row.status is JobStatus.RUNNING:
            # Its opcode may be a change of the configuration, and others hold the lock for that.
            self._ask_opcode_wait(envelope, job_id)
        else:
            # It runs, or is about to start, unless the rules have changed since it was chosen.
            obstacles, rules = self._of_rules(row) if row.status is JobStatus.QUEUED else ([], [])
            remedy = explaining.without_rules(messages.Remedy(), rules)
            envelope.reply(explaining.explained(row, obstacles, remedy))

    def _answer_pending(
        self, envelope: Envelope, job_id: int, found: messages.PendingExplained
    ) -> None:
        row, position = self._live(job_id), found.position
        if position is None:
            self._answer(envelope, row, [], messages.Remedy())
            return
        rules = self._holding(explaining.holding(position), position.because)
        if position.action == "PAUSE" and not rules and (unreadable := self._of_text(row)):
            self._answer(envelope, row, unreadable, messages.Remedy(), position)
            return
        known = self._gate.rules
        limiting = "" if known is None or position.rule is None else known.called(position.rule)
        obstacles = explaining.of_pending(row, position, rules, limiting)
        obstacles += self._chain_behind(row, position.open)
        remedy = explaining.remedy_of_pending(position, rules)
        self._answer(envelope, row, obstacles, remedy, position)

    def _of_text(self, row: Row) -> list[messages.Obstacle]:
        """A job whose text cannot be read is held: the rules cannot be applied to it."""
        try:
            self._store.read(row.id)
        except errors.StorageError as error:
            text = f"no filter rule can be applied, because its file is damaged: {error.text}"
            return [messages.Obstacle(kind="disk", held=row.id, text=text)]
        return []

    def _answer_owner(
        self, envelope: Envelope, job_id: int, found: messages.OwnerExplained
    ) -> None:
        row = self._live(job_id)
        # The rules hold it back when it has the locks.
        of_rules, rules = self._of_rules(row)
        obstacles = explaining.of_locks(row, found.locks) + of_rules
        remedy, known = found.remedy, self._gate.rules
        if remedy.priority is not None and (
            known is None or known.refuses(self._store.read(job_id), remedy.priority)
        ):
            remedy = msgspec.structs.replace(remedy, priority=None, is_turn=True)
        self._answer(envelope, row, obstacles, explaining.without_rules(remedy, rules))

    def _ask_opcode_wait(self, envelope: Envelope, job_id: int) -> None:
        """Answer without the store, if that says nothing: it may be replaced again and again."""

        def unknown(error: errors.GangerError) -> None:
            row = self._table.find(job_id)
            if row is None:
                envelope.refuse(error)
            else:
                envelope.reply(explaining.explained_without_store(row))

        deadline = self._runtime.clock() + settings.OPCODE_WAIT_SECONDS
        if envelope.deadline is not None:
            deadline = min(deadline, envelope.deadline)
        wait = functools.partial(self._answer_running, envelope, job_id)
        asked = messages.ReadOpcodeWait(job_id)
        self._runtime.ask(CONFIG_STORE, asked, wait, unknown, deadline)

    def _answer_running(self, envelope: Envelope, job_id: int, found: messages.OpcodeWait) -> None:
        row = self._live(job_id)
        obstacles = [explaining.of_config_lock(row, found)] if found.is_waiting else []
        if why := self._store.output_dropped.get(job_id):
            obstacles.append(messages.Obstacle(kind="disk", held=job_id, text=why))
        if why := self._awaited_node(job_id):
            obstacles.append(messages.Obstacle(kind="node", held=job_id, text=why))
        remedy = obstacles[0].remedy if obstacles else messages.Remedy()
        envelope.reply(explaining.explained(row, obstacles, remedy))

    def _live(self, job_id: int) -> Row:
        row = self._table.find(job_id)
        if row is None:
            raise errors.JobStateError(f"job {job_id} has ended meanwhile")
        return row

    def _answer(
        self,
        envelope: Envelope,
        row: Row,
        obstacles: list[messages.Obstacle],
        remedy: messages.Remedy,
        position: messages.QueuePosition | None = None,
    ) -> None:
        ledger = self._store.ledger
        if not ledger.takes_work:
            text = "the disk refuses writes, and nothing starts until it takes them"
            if not ledger.is_read_only:
                text = "the disk is full, and nothing starts until there is space again"
            disk = messages.Remedy(is_disk=True)
            obstacles.insert(0, messages.Obstacle(kind="disk", held=row.id, text=text, remedy=disk))
            remedy = msgspec.structs.replace(remedy, is_disk=True)
        envelope.reply(explaining.explained(row, obstacles, remedy, position))

    def _of_rules(self, row: Row) -> tuple[list[messages.Obstacle], list[explaining.HoldingRule]]:
        """The rules that send a chosen job back, or cancel it, before its next opcode."""
        known = self._gate.rules
        if known is None or known.lets_all_start(row.chosen):
            return [], []
        job = self._store.read(row.id)
        stopping = known.stopping(job)
        rules = self._holding(stopping, {uuid: known.because(uuid, job) for uuid in stopping})
        found = [explaining.of_rule(row, rule) for rule in rules]
        gate = known.gate(job, row.chosen, has_begun=job.has_begun)
        if not found and not gate.is_open:
            text = f"it goes back to the queue, {gate.text}"
            found.append(messages.Obstacle(kind="limit", held=row.id, text=text))
        return found, rules

    def _holding(
        self, uuids: Iterable[str], because: Mapping[str, str]
    ) -> list[explaining.HoldingRule]:
        """``because``: what the job does with the locks at which a rule looks, in words."""
        known = self._gate.rules
        if known is None:
            # After a restart of the queue: the scheduler has the rules already, the queue has not.
            return [explaining.HoldingRule(uuid, f"filter rule {uuid}", 0) for uuid in uuids]
        return [
            explaining.HoldingRule(
                uuid,
                ": ".join(filter(None, (known.describe(uuid), because.get(uuid)))),
                known.priority(uuid),
                known.ends_at(uuid),
                known.name(uuid),
            )
            for uuid in uuids
        ]

    # ------------------------------------------------------------ what if

    def _check_proposed(self, message: messages.TestFilters | messages.Simulate) -> None:
        assert self._gate.rules is not None
        if message.rule is not None:
            rule = rule_requests.addressed(message.rule, self._gate.rules.names)
            rule_requests.build_rule(rule, watermark=0, now_nanoseconds=0)
        if message.without is not None and not self._gate.rules.knows(message.without):
            raise errors.UnknownFilterError(f"without: there is no rule {message.without}")

    def test_filters(self, envelope: Envelope, message: messages.TestFilters) -> None:
        """Let the filter evaluator judge a page of jobs with and without a proposed rule."""
        self._check_proposed(message)
        rows, has_more = self._table.unfinished_after(message.after, settings.TRIED_JOBS)
        self._store.ledger.files.has_left_memory |= has_more
        judge = messages.JudgeTest(
            test=message,
            last_id=self._store.ledger.last_id,
            jobs=[self._announcements.whole(row) for row in rows],
            statuses=[row.status for row in rows],
            next_after=rows[-1].id if has_more else None,
        )
        self._runtime.ask(
            FILTER_EVALUATOR, judge, envelope.reply, envelope.refuse, envelope.deadline
        )

    def simulate(self, envelope: Envelope, message: messages.Simulate) -> None:
        """Find out what would happen if: ask the evaluator, the scheduler and the lock manager."""
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
        self._simulating[envelope.peer] += 1
        simulated = len(self._table) * self._simulating.total()
        size = simulated * settings.SIMULATED_JOB_MEMORY_BYTES
        self._runtime.host.keep_memory("simulations", size)
        self._judge_page(envelope, messages.RunSimulation(simulation=message, jobs=[], running=[]))

    def read_rule_hits(self, envelope: Envelope, rejections: Counter[str]) -> None:
        """Answer with what the scheduler has counted, and the rejected submissions."""

        def answer(found: messages.RuleHits) -> None:
            envelope.reply(messages.RuleHits(hits=dict(Counter(found.hits) + rejections)))

        asked = messages.ReportRuleHits()
        self._runtime.ask(SCHEDULER, asked, answer, envelope.refuse, envelope.deadline)

    def forget_peer(self, peer: bytes) -> None:
        """Give up the simulations of a client that is gone: it may have come again, and repeated.

        Each takes the memory of another queue, and a second one beside it takes that again.
        """
        self._simulating.pop(peer, None)

    def _has_judged(self, peer: bytes) -> None:
        """All jobs of one simulation of this client are judged, or it is refused."""
        self._simulating[peer] -= 1
        if self._simulating[peer] <= 0:
            del self._simulating[peer]

    def _judge_page(
        self, envelope: Envelope, simulation: messages.RunSimulation, after: int = 0
    ) -> None:
        """Ask for verdicts on one page of jobs after the other, then for the scheduler's part."""
        rows, has_more = self._table.pending_after(after, settings.TRIED_JOBS)
        self._store.ledger.files.has_left_memory |= has_more
        running = self._table.in_phase(Phase.STARTING, Phase.HANDED_OVER) if not after else []
        page = messages.JudgeSimulation(
            simulation=simulation.simulation,
            last_id=self._store.ledger.last_id,
            jobs=[self._announcements.whole(row) for row in rows],
            running=[self._occupant(row) for row in running if not row.status.is_final],
        )

        def refuse(error: errors.GangerError) -> None:
            self._has_judged(envelope.peer)
            envelope.refuse(error)

        def judged(found: messages.SimulationJudged) -> None:
            if envelope.peer not in self._simulating:
                return
            simulation.jobs.extend(found.jobs)
            simulation.running.extend(found.running)
            if has_more:
                self._judge_page(envelope, simulation, rows[-1].id)
                return
            self._has_judged(envelope.peer)
            then = functools.partial(self._simulate_locks, envelope, simulation.simulation)
            self._runtime.ask(SCHEDULER, simulation, then, envelope.refuse, envelope.deadline)

        self._runtime.ask(FILTER_EVALUATOR, page, judged, refuse, envelope.deadline)

    def _occupant(self, row: Row) -> messages.JobToJudge:
        """A job that holds a run slot, with all that rules look at."""
        arrived = self._announcements.whole(row)
        is_idle = _is_idle(row)
        is_unbegun = is_idle and not self._store.read(row.id).has_begun
        job = msgspec.structs.replace(arrived.job, is_idle=is_idle, is_unbegun=is_unbegun)
        return msgspec.structs.replace(arrived, job=job)

    def _simulate_locks(
        self, envelope: Envelope, simulation: messages.Simulate, outcome: messages.Simulated
    ) -> None:
        self._store.ledger.files.has_left_memory |= len(self._table) > settings.TRIED_JOBS
        gone = [*outcome.paused, *(job_id for job_id, _ in outcome.ended)]
        rows = [self._table.find(job_id) for job_id in simulation.ended]
        # Jobs that would be sent back or canceled while they wait for locks give up their place.
        rows += [row for one in gone if (row := self._table.find(one)) and _is_idle(row)]
        ended = [row.lock_file for row in rows if row is not None and row.lock_file is not None]

        def simulated(locks: messages.LocksSimulated) -> None:
            envelope.reply(simulating.with_locks(outcome, locks))

        asked = messages.SimulateLocks(ended=ended)
        self._runtime.ask(LOCK_MANAGER, asked, simulated, envelope.refuse, envelope.deadline)

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


def _is_idle(row: Row) -> bool:
    """Whether a job with a run slot runs no opcode now."""
    return row.status in (JobStatus.QUEUED, JobStatus.WAITING)


class _InNames:
    """Where an explanation goes: to who has asked, with the names of locks that users know."""

    def __init__(self, asked: Envelope, in_names: Callable[[str], str]) -> None:
        self._asked = asked
        self._in_names = in_names

    def tell(self, envelope: Envelope) -> None:
        """Pass it on."""
        message = envelope.message
        if isinstance(message, messages.JobExplained):
            message = explaining.renamed(message, self._in_names)
        self._asked.reply(message)
