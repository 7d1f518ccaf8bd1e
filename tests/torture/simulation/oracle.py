"""The oracle of the simulated world: what must never be, what must be at rest, and at the end.

It shares no code with what it judges where that decides: conflicts of locks, transitions and
counts of starts are worked out here from the plainest statement of each rule.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from tests.torture.simulation.core import ProcessHandle
from tests.torture.simulation.release_oracle import Releases
from tests.torture.simulation.user_rules import BEGUN, RuleBook
from tests.torture.simulation.waiting_oracle import Waiting

from ganger.actors.locks.locking import LockState
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.rules import filtering
from ganger.actors.scheduling.scheduling import Schedule
from ganger.actors.store.job_rows import Phase, Row
from ganger.storage import opcodes
from ganger.storage.alive import lock_files
from ganger.storage.disk import line_files
from ganger.storage.jobs import jobs, outcomes
from ganger.storage.jobs.jobs import JobStatus, OpcodeEvent
from ganger.storage.prediction.policy import Policy
from ganger.storage.queue_files import spool
from ganger.transport import messages
from ganger.transport.links.link import ATTACH_SECONDS

if TYPE_CHECKING:
    from tests.torture.simulation.user import Follower
    from tests.torture.simulation.world import World

    from ganger.actors.execution.children import Child

Needs = tuple[tuple[str, str], ...]
"""Lock names, each with ``shared`` or ``exclusive``."""

LAST_OPCODE = {"OP_ID": "OP_EXEC", "argv": ["simulated", "0.0"]}
LAST_JOB_SECONDS = 60.0


def _reachable() -> dict[JobStatus, set[JobStatus]]:
    """From each status of an opcode, those that the table leads to, in any number of steps."""
    found: dict[JobStatus, set[JobStatus]] = {}
    for status in JobStatus:
        seen, waiting = {status}, [status]
        while waiting:
            at = waiting.pop()
            for (before, event), after in jobs.TRANSITIONS.items():
                is_death = event is OpcodeEvent.LOSE_PROCESS and at in (
                    JobStatus.CANCELED,
                    JobStatus.ERROR,
                )
                if before is at and after not in seen and not is_death:
                    seen.add(after)
                    waiting.append(after)
        found[status] = seen
    return found


REACHABLE = _reachable()

UNDONE = frozenset({JobStatus.QUEUED, JobStatus.WAITING, JobStatus.CANCELED})
"""Where an opcode may be that was recorded as running, and did not start."""


def conflict(one: Needs, other: Needs) -> bool:
    """Whether two may not hold these at the same time."""
    for name, mode in one:
        for other_name, other_mode in other:
            level, _, member = name.partition("/")
            other_level, _, other_member = other_name.partition("/")
            meets = name == other_name or (
                level == other_level and "[lockset]" in (member, other_member)
            )
            if meets and "exclusive" in (mode, other_mode):
                return True
    return False


CHAIN = 1
"""The rule chain under which the checks judge."""


def _present(job: jobs.Job) -> list[dict[str, Any]]:
    """The opcodes of a job as rules see them: with the priorities that they have now."""
    return [{**op.input, "priority": op.priority} for op in job.ops]


def _needs(queue: JobQueue, row: Row) -> Needs:
    """The locks of the opcode that is next."""
    job = queue.store.read(row.id)
    if job.next_index >= len(job.ops):
        return ()
    opcode = opcodes.parse(job.ops[job.next_index].input)
    if opcode.is_locked_by_store:
        # Tags of the cluster, which have no locks.
        return ()
    return tuple((name, str(mode)) for name, mode in opcode.lock_needs().to_changes())


class Oracle:
    """Watches the world, and counts what was broken."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.releases = Releases(world)
        self._waiting = Waiting(world)
        self.lost = 0
        self.doubled = 0
        self.conflicting = 0
        self.starts: Counter[tuple[int, int]] = Counter()
        self.ends: Counter[str] = Counter()
        self.quiet_checks = 0
        self.held_back = 0
        """How often a job that could have started was certain to wait for locks."""

        self._holding: dict[tuple[int, int], tuple[Any, Needs]] = {}
        self._seen: dict[int, tuple[int, JobStatus]] = {}
        self._ops: dict[int, list[JobStatus]] = {}
        self._finals: dict[int, JobStatus] = {}
        self.book = RuleBook()

    # What operations say of themselves.

    def started(self, job_id: int, index: int, needs: Needs) -> None:
        """An operation begins, under these locks."""
        world = self._world
        world.note(f"job {job_id}", f"starts opcode {index}")
        self.starts[job_id, index] += 1
        self.releases.started(job_id, {name for name, _ in needs})
        if self.starts[job_id, index] > 1:
            self.doubled += 1
            world.problem(f"opcode {index} of job {job_id} starts again")
        running = [other for (other, _), (program, _) in self._holding.items() if program.is_alive]
        if (forbidden := self.book.forbids(job_id, index, running)) is not None:
            world.problem(f"opcode {index} of job {job_id} starts, and {forbidden}")
        for (other, place), (program, held) in self._holding.items():
            if program.is_alive and conflict(needs, held):
                self.conflicting += 1
                world.problem(f"job {job_id} starts {needs} while {other}.{place} holds {held}")
        assert world.current is not None
        self._holding[job_id, index] = (world.current.program, needs)

    def ended(self, job_id: int, index: int) -> None:
        """The operation has ended."""
        self._world.note(f"job {job_id}", f"ends opcode {index}")
        del self._holding[job_id, index]

    def purged(self, job_id: int) -> None:
        """A client was told that the job has gone."""
        running = [other for (other, _), (program, _) in self._holding.items() if program.is_alive]
        if job_id in running:
            self._world.problem(f"job {job_id} was purged while it ran")
        if job_id not in self._finals:
            self._world.problem(f"job {job_id} was purged before it had ended")

    # What the queue says.

    def begun(self) -> set[tuple[int, int]]:
        """The opcodes that have begun, as far as was recorded."""
        world = self._world
        found = set(self.starts)
        for job_id, statuses in self._ops.items():
            found |= {(job_id, index) for index, one in enumerate(statuses) if one in BEGUN}
        if world.daemon is None or world.daemon.component("job_queue") is None:
            # It may have recorded something just before it failed.
            for task in world.jobs():
                if task.actor is not None and task.actor._daemon._postponed is not None:
                    found.add((task.job_id, task.actor._running.index))
        return found

    def look_at(self, queue: JobQueue) -> None:
        """After each step of the job queue."""
        running = 0
        for row in queue.store.table:
            running += row.phase in (Phase.STARTING, Phase.HANDED_OVER) and not row.status.is_final
            if self._seen.get(row.id) != (row.serial, row.status):
                self._seen[row.id] = (row.serial, row.status)
                self._look_at_row(queue, row)
        self._waiting.look_at(queue)
        if running > self._world.slots_ever:
            self._world.problem(f"{running} jobs run in {self._world.slots_ever} slots")

    def _look_at_row(self, queue: JobQueue, row: Row) -> None:
        final = self._finals.get(row.id)
        if final is not None and row.status is not final:
            self._world.problem(f"job {row.id} was {final} and is {row.status}")
        if row.status.is_final and final is None:
            self._finals[row.id] = row.status
            self.ends[str(row.status)] += 1
        body = queue.store.ledger.files.body(row.id)
        if body is None:
            return
        statuses = [op.status for op in jobs.decode_job(body).ops]
        before = self._ops.get(row.id, statuses)
        self._ops[row.id] = statuses
        for index, (old, new) in enumerate(zip(before, statuses, strict=True)):
            # Recorded for a process that got no answer, and then asked the rules that it found.
            is_unstarted = old is JobStatus.RUNNING and not self.starts[row.id, index]
            is_undone = is_unstarted and new in UNDONE
            is_back = old is JobStatus.WAITING and new is JobStatus.QUEUED
            is_right = is_undone or (is_back and row.phase is not Phase.HANDED_OVER)
            if new not in REACHABLE[old] and not is_right:
                self._world.problem(f"opcode {index} of job {row.id} went from {old} to {new}")

    # At rest.

    def look_at_rest(self) -> None:
        """No message is on its way: whatever can go on without waiting must have gone on."""
        world = self._world
        daemon = world.daemon
        if daemon is None or not daemon.is_whole or world.entries["restart"]:
            return
        queue = daemon.component("job_queue")
        executor = daemon.component("executor")
        if queue.store.ledger.is_read_only or "lean" not in executor._servers:
            return
        self.quiet_checks += 1
        scheduler, manager = daemon.component("scheduler"), daemon.component("lock_manager")
        self._waiting.look_at_rest(queue)
        self._nothing_may_start(queue, scheduler, manager)
        self._everything_handed_over_lives(queue)
        self._no_lock_may_be_had(daemon.component("lock_manager"))
        self._no_owner_waits_in_vain(daemon.component("lock_manager"))
        self._no_answer_is_missing(daemon.component("lock_manager"))
        if world.tools is not None and daemon.component("luxi_listener") is not None:
            world.tools.look_at_rest(queue)

    def _nothing_may_start(self, queue: JobQueue, scheduler: Any, manager: Any) -> None:
        world = self._world
        pending = queue.store.table.in_phase(Phase.PENDING)
        occupied = [
            row
            for row in queue.store.table.in_phase(Phase.STARTING, Phase.HANDED_OVER)
            if not row.status.is_final
        ]
        running = [row.id for row in occupied]
        taken = self._taken(queue, manager, occupied)
        # Whatever the order of the jobs, none is left that may start.
        schedule = Schedule(world.slots, CHAIN, policy=Policy(is_predictive=False))
        schedule.replace_all(
            [self._verdict_unless_held_back(row, queue, taken) for row in pending],
            [self._verdict(row, queue) for row in occupied],
        )
        start, unsatisfiable = [], []
        while True:
            decided = schedule.decide()
            start += decided.start
            unsatisfiable += [one.id for one in decided.unsatisfiable]
            if not decided.unknown:
                break
            for job_id in decided.unknown:
                schedule.learn(job_id, *(queue.store.endings.of(job_id) or (None,)))
        if start or unsatisfiable:
            world.problem(f"at rest, but {start} could start and {unsatisfiable} are unsatisfiable")
        held = sorted(scheduler._schedule.running)
        if held != sorted(running):
            world.problem(f"at rest, but slots are held by {held}, and {sorted(running)} run")

    def _taken(self, queue: JobQueue, manager: Any, occupied: list[Row]) -> list[Needs]:
        """What is held, and what jobs in run slots will take that hold nothing yet."""
        held = {
            owner.identifier: tuple(
                (name, str(mode)) for name, mode in manager._state.list_locks(owner)
            )
            for owner in manager._state.owners()
            if manager._state.list_locks(owner)
        }
        waiting = [_needs(queue, row) for row in occupied if row.id not in held]
        return [*held.values(), *waiting]

    def _verdict_unless_held_back(
        self, row: Row, queue: JobQueue, taken: list[Needs]
    ) -> messages.JobVerdict:
        """A job that is certain to wait for locks may be held back, and so need not start."""
        verdict = self._verdict(row, queue)
        needs = _needs(queue, row)
        if verdict.action == "REJECT" or not any(conflict(needs, one) for one in taken):
            return verdict
        self.held_back += 1
        return msgspec.structs.replace(verdict, action="PAUSE")

    def _verdict(self, row: Row, queue: JobQueue) -> messages.JobVerdict:
        world = self._world
        chain = filtering.compile_chain(world.stored_rules(), world.clock.time())
        facts = filtering.JobFacts.of(row.id, _present(queue.store.read(row.id)))
        verdict = filtering.judge(chain, facts)
        return messages.JobVerdict(
            job=row.as_pending(),
            action=str(verdict.action),
            rule=verdict.rule,
            limit=verdict.limit,
            chain=CHAIN,
        )

    def _stopped_child(self, job_id: int) -> Child | None:
        """The job's process as the executor watches it, if it lives and somebody has stopped it."""
        world = self._world
        executor = None if world.daemon is None else world.daemon.component("executor")
        child: Child | None = None if executor is None else executor._children.get(job_id)
        watched = None if child is None else world.handles.get(child.pidfd)
        target = watched.target if isinstance(watched, ProcessHandle) else None
        return child if target is not None and target.is_alive and target.is_stopped else None

    def _everything_handed_over_lives(self, queue: JobQueue) -> None:
        world = self._world
        for row in queue.store.table.in_phase(Phase.STARTING):
            is_stopped = any(task.program.is_stopped for task in world.jobs(row.id))
            # It may have been given to a process between two jobs.
            if not is_stopped and self._stopped_child(row.id) is None:
                world.problem(f"at rest, but job {row.id} is being started")
        for row in queue.store.table.in_phase(Phase.HANDED_OVER):
            if row.lock_file is not None and not lock_files.is_dead(row.lock_file):
                continue
            child = self._stopped_child(row.id)
            # One that has left its job, which has ended, ends as soon as it goes on.
            if child is None or not child.is_free or not row.status.is_final:
                world.problem(f"at rest, but the process of job {row.id} is dead unnoticed")

    def _no_lock_may_be_had(self, manager: Any) -> None:
        world = self._world
        _, woken = LockState.restore(manager._state.snapshot())
        if woken:
            world.problem(f"at rest, but locks could be granted to {woken}")
        for owner in manager._state.owners():
            if lock_files.is_dead(owner.lock_file):
                world.problem(f"at rest, but the dead {owner} holds locks or waits")

    def _no_owner_waits_in_vain(self, manager: Any) -> None:
        """A waiting owner may start with its locks, and stands where its priority puts it."""
        world = self._world
        for task in world.jobs():
            actor = task.actor
            if actor is None or task.program.is_stopped or not actor._is_in_line:
                continue
            if not actor._daemon.link.is_up:
                continue
            if self.book.must_not_wait(task.job_id):
                world.problem(f"at rest, but job {task.job_id} waits for locks, and may not start")
            waiter = manager._state._line.get(actor._running.owner)
            priority = actor._running.op.priority
            if waiter is not None and waiter.pending.priority != priority:
                text = f"at rest, but job {task.job_id} waits with {waiter.pending.priority}"
                world.problem(f"{text}, and its priority is {priority}")

    def _no_answer_is_missing(self, manager: Any) -> None:
        world = self._world
        for task in world.jobs():
            actor = task.actor
            if actor is None or task.program.is_stopped or task.is_operating:
                continue
            if not actor._daemon.link.is_up:
                # No component could take its request; it asks again after this time.
                if task.alarm() > world.clock.now + ATTACH_SECONDS:
                    world.problem(f"at rest, but job {task.job_id} does not seek the daemon")
                continue
            for request in actor._daemon.link.open.values():
                match request:
                    case messages.RequestLocks():
                        is_known = manager._state.has_pending(request.owner)
                    case _:
                        is_known = False
                if not is_known:
                    world.problem(f"at rest, but job {task.job_id} waits for {request!r:.80}")

    # At the end.

    def look_at_end(self) -> None:
        """Faults have ended and everything had time: nothing may be left over."""
        world = self._world
        daemon = world.daemon
        if daemon is None or not daemon.is_whole:
            world.problem("at the end the daemon is not whole")
            return
        if left := world.stored_rules():
            world.problem(f"at the end there are rules, all of which were deleted: {left}")
        queue, executor = daemon.component("job_queue"), daemon.component("executor")
        if world.tools is not None:
            world.tools.look_at_end(queue)
        for job_id in self._kept(queue):
            end = queue.store.endings.of(job_id)
            status = None if end is None else end.status
            if status is None:
                self.lost += 1
                world.problem(f"job {job_id} was acknowledged and is lost")
            elif not status.is_final:
                world.problem(f"at the end job {job_id} is {status}")
            else:
                self._look_at_ended(queue, job_id, status)
                shown = jobs.decode_job(queue.store.reader.document(job_id).body).status
                if shown is not status:
                    world.problem(f"at the end job {job_id} is {status}, its file says {shown}")
        self._look_for_strangers(queue)
        self._look_at_changes(queue)
        if owners := daemon.component("lock_manager")._state.owners():
            world.problem(f"at the end locks are held by {owners}")
        if running := daemon.component("scheduler")._schedule.running:
            world.problem(f"at the end slots are held by {sorted(running)}")
        if children := executor._children:
            world.problem(f"at the end the executor knows of {sorted(children)}")
        self._look_at_clients(queue)
        self._look_at_spool(queue)
        self._look_for_lock_files()

    def _look_at_clients(self, queue: JobQueue) -> None:
        user = self._world.user
        for follower in user.followers:
            if not user.purger.is_gone(queue, follower.job_id):
                self._look_at_follower(queue, follower)
        for waiter in user.waiters:
            if not user.purger.is_gone(queue, waiter.job_id):
                self._waiting.look_at_end_of(queue, waiter)

    def _kept(self, queue: JobQueue) -> list[int]:
        """The jobs that were acknowledged, and that nobody had purged."""
        user = self._world.user
        return [one for one in sorted(user.acknowledged) if not user.purger.is_gone(queue, one)]

    def _look_at_spool(self, queue: JobQueue) -> None:
        """Each input lies beside its job, and none without its job."""
        places = self._world.places
        for path in places.queue.rglob("spool/job-*"):
            spooled = spool.parse_name(path.name)
            job_id = 0 if spooled is None else spooled.job_id
            beside = path.parent.parent / f"job-{job_id}"
            if not beside.exists() and queue.store.table.find(job_id) is None:
                self._world.problem(f"at the end {path} lies beside no job")
        for job_id in self._kept(queue):
            row, folder = queue.store.table.find(job_id), places.archive / "0"
            where = folder / "spool" if row is None else places.spool
            job = jobs.decode_job(queue.store.reader.document(job_id).body)
            names = [op.input.get("stdin_file") for op in job.ops]
            missing = [name for name in names if name and not (where / name).exists()]
            if missing:
                self._world.problem(f"at the end {missing} are not in {where}")

    def _look_at_follower(self, queue: JobQueue, follower: Follower) -> None:
        """A follower gets the whole log once, in order, and before the end."""
        job_id, sent = follower.job_id, follower.log_serials
        if not follower.watch.is_done or follower.watch.error is not None:
            error = follower.watch.error
            self._world.problem(f"at the end job {job_id} is still followed: {error!r}")
            return
        job = jobs.decode_job(queue.store.reader.document(job_id).body)
        logged = [entry[0] for op in job.ops for entry in op.log]
        if sent != sorted(set(sent)) or not set(logged) <= set(sent):
            self._world.problem(f"a follower of job {job_id} got {sent} of its log {logged}")
        if follower.statuses[-1:] != [job.status]:
            was = ", ".join(map(str, follower.statuses))
            self._world.problem(f"job {job_id} is {job.status}; its follower got {was}")

    def _look_for_lock_files(self) -> None:
        """A lock file that no living program knows of stays until another job has ended."""
        world = self._world
        if not any(world.places.lock_files.glob("job_*")):
            return
        asked = world.user.submit([messages.JobSpec(ops=[LAST_OPCODE])])
        end = world.clock.now + LAST_JOB_SECONDS
        world.run(lambda: world.clock.now >= end)
        if asked.ids is None:
            world.problem("the last job was not accepted")
        if left := sorted(map(str, world.places.lock_files.glob("job_*"))):
            world.problem(f"at the end there are lock files: {left}")

    def _look_at_ended(self, queue: JobQueue, job_id: int, status: JobStatus) -> None:
        asked = next(one for one in self._world.user.submissions if job_id in (one.ids or ()))
        assert asked.ids is not None
        ops = asked.specs[asked.ids.index(job_id)].ops
        executed = [index for index, op in enumerate(ops) if op["OP_ID"] == "OP_EXEC"]
        started = [self.starts[job_id, index] for index in executed]
        if status is JobStatus.SUCCESS and started != [1] * len(executed):
            self._world.problem(f"job {job_id} is a success, and its opcodes started {started}")
        job = jobs.decode_job(queue.store.reader.document(job_id).body)
        self._look_at_ending(queue, job)
        for result in (str(op.result) for op in job.ops):
            if "locks" in result:
                self._world.problem(f"job {job_id} ended with {result}")
        for target, wanted in opcodes.dependencies(job.ops[0].input):
            end = queue.store.endings.of(target)
            if "canceled" in wanted or end is None or end.status is not JobStatus.CANCELED:
                continue
            if status is not JobStatus.CANCELED:
                text = f"job {job_id} depends on job {target}, which is canceled"
                self._world.problem(f"{text}, and is {status}")

    def _look_at_ending(self, queue: JobQueue, job: jobs.Job) -> None:
        """The queue's outcome is that of the file, and has a reason unless it is a success."""
        known, ending = queue.store.endings.of(job.id), outcomes.ending_of(job)
        if ending is None or known != outcomes.end_of(job.status, ending):
            self._world.problem(f"job {job.id} is {known}, its file says {ending}")
        elif bool(ending.reason) is (ending is outcomes.SUCCEEDED):
            self._world.problem(f"job {job.id} ended without a reason: {ending}")

    def _look_at_changes(self, queue: JobQueue) -> None:
        """Each opcode that changes the configuration has done so once, if it succeeded."""
        made: Counter[tuple[int, int]] = Counter()
        for line in line_files.last_lines(self._world.places.config_history):
            answer = msgspec.json.decode(line).get("answer")
            if answer is not None:
                made[answer["job_id"], answer["op_index"]] += 1
        for job_id in self._kept(queue):
            job = jobs.decode_job(queue.store.reader.document(job_id).body)
            for index, op in enumerate(job.ops):
                if not op.input["OP_ID"].startswith("OP_TAGS_"):
                    continue
                count = made[job_id, index]
                is_done = op.status is JobStatus.SUCCESS
                # Run again, a removal would find no tag.
                is_wrong = "not found" in str(op.result)
                if count > 1 or (is_done and count != 1) or is_wrong:
                    self.doubled += count > 1 or is_wrong
                    self._world.problem(
                        f"opcode {index} of job {job_id} ({op.status}, {op.result}) has changed the"
                        f" configuration {count} times"
                    )

    def _look_for_strangers(self, queue: JobQueue) -> None:
        directory = queue.store.ledger.directory
        there = {row.id for row in queue.store.table} | set(directory.archived_ids())
        strangers = sorted(there - self._world.user.acknowledged)
        if strangers:
            self._world.problem(f"at the end there are jobs without a reply: {strangers}")
