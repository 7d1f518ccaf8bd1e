"""A user of the simulated daemon, through the session of the client library.

What is asked for, and when, is chosen by the dice. What was acknowledged is remembered: the
oracle (`world_checks`) compares it with what became of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec
from tests.torture.simulation.core import Core, Program, Task
from tests.torture.simulation.network import Dealer
from tests.torture.simulation.simulated_processes import JobTask
from tests.torture.simulation.user_purges import Purger
from tests.torture.simulation.user_rules import RuleChanger

from ganger.storage import errors
from ganger.storage.jobs.job_views import LogLine, StatusChange
from ganger.transport import messages
from ganger.transport.client.in_flight import PendingCall, PendingWatch
from ganger.transport.client.session import Session
from ganger.transport.messages import JobSpec, Request
from ganger.transport.zmq.connection_event import ConnectionEvent

PATIENCE_SECONDS = 100_000.0
RETRY_SECONDS = 0.2
NODES = 3
ALIKE_KINDS = 2
"""In a world with jobs that are alike, of so many kinds."""


LARGE_INPUT = "\0" * 20_000
"""Standard input that lies beside the job."""

LARGE_ENVIRONMENT = {"LARGE": "\1" * 12_000}
"""With it a state of the job is larger than `JOURNALED_STATE_BYTES_MAX`, six times as JSON."""


class KeyedSubmission:
    """Jobs that were asked for under one key. ``ids`` when they were acknowledged."""

    def __init__(self, key: str, specs: list[JobSpec], highest_before: int) -> None:
        self.key = key
        self.specs = specs
        self.highest_before = highest_before
        self.ids: list[int] | None = None


class Follower:
    """A follower of a job, and what it got."""

    def __init__(self, job_id: int, watch: PendingWatch) -> None:
        self.job_id = job_id
        self.watch = watch
        self.log_serials: list[int] = []
        self.statuses: list[str] = []

    def hear(self, part: StatusChange | LogLine) -> None:
        if isinstance(part, LogLine):
            self.log_serials.append(part.serial)
        else:
            self.statuses.append(part.status)


class Waiter:
    """A client that waits for one change of a job after the other, and what it got."""

    FIELDS = ("status", "opstatus", "opresult", "priority", "opstart", "opexec", "opend")

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        self.values: Any = None
        self.log_serials: list[int] = []
        self.is_final = False

    def request(self, seconds: float) -> messages.AwaitJobChange:
        """The next request."""
        serial = self.log_serials[-1] if self.log_serials else None
        return messages.AwaitJobChange(self.job_id, list(self.FIELDS), self.values, serial, seconds)

    def hear(self, reply: messages.JobAwaited) -> None:
        self.values = msgspec.json.decode(reply.values)
        self.log_serials += [entry[0] for entry in msgspec.json.decode(reply.log)]
        self.is_final = reply.is_final


class User(Task):
    """A client."""

    def __init__(self, core: Core) -> None:
        super().__init__(core, "user", Program(core, "user"))
        self.session = Session("no daemon answers", PATIENCE_SECONDS)
        self.submissions: list[KeyedSubmission] = []
        self.acknowledged: set[int] = set()
        self.archived: set[int] = set()
        self.followers: list[Follower] = []
        self.waiters: list[Waiter] = []
        self._calls: list[tuple[PendingCall[Any], Callable[[Any], None]]] = []
        self._jobs_asked = 0
        self._alike: list[JobSpec] = []
        self._retries = 0
        self._tags = 0
        self.rules = RuleChanger(self, core.oracle.book)
        self.purger = Purger(self)
        core.run_as(self.program, self._connect)

    def _connect(self) -> None:
        self.dealer = Dealer()
        self.session.opened(self.core.clock.now)

    @property
    def is_idle(self) -> bool:
        return not self._calls

    def due(self) -> float:
        return self.dealer.due()

    def alarm(self) -> float:
        wait = self.session.wait_seconds(self.core.clock.now)
        return math.inf if wait is None else self.core.clock.now + wait

    def step(self) -> None:
        now = self.core.clock.now
        while (item := self.dealer.take()) is not None:
            if isinstance(item, ConnectionEvent):
                self.session.connection_changed(item, now)
            else:
                self.session.received(item, now)
        self.session.tick(now)
        self.session.flush(self.dealer.send, now)
        for call, done in list(self._calls):
            if call.is_done:
                self._calls.remove((call, done))
                self._end(call, done)
        for follower in list(self.followers):
            while (part := self.session.next_part(follower.watch, now)) is not None:
                follower.hear(part)
            error = follower.watch.error
            if isinstance(error, errors.RequestFatalError | errors.DaemonUnreachableError):
                # A component did not survive it, so that the library does not repeat it; or there
                # was no daemon when the library asked for the first time.
                self.followers.remove(follower)
                again = functools.partial(self.follow, follower.job_id)
                self.core.later(RETRY_SECONDS, again, "restart")

    def _end(self, call: PendingCall[Any], done: Callable[[Any], None]) -> None:
        if call.error is None:
            done(call.reply)
        elif isinstance(call.error, errors.TryAgainError | errors.RequestFatalError):
            # As a person does after an error that says to try again, or after one of the library.
            again = functools.partial(self.ask, call.message, done)
            self.core.later(RETRY_SECONDS, again, "restart")
        elif self.rules.is_gone(call.message, call.error):
            done(call.reply)
        elif not isinstance(call.error, errors.UnknownJobError | errors.JobStateError):
            self.core.problem(f"{type(call.message).__name__} was refused: {call.error!r}")

    def ask(self, request: Request[Any], done: Callable[[Any], None] = lambda _: None) -> None:
        """Begin a request."""
        now = self._have_line()
        call = self.session.request(request, now=now, deadline=now + PATIENCE_SECONDS)
        self._calls.append((call, done))
        self.core.run_as(self.program, self._flush)

    def follow(self, job_id: int) -> None:
        """Begin to follow a job and its log."""
        now = self._have_line()
        watch = self.session.watch([job_id], log=True, now=now, deadline=None)
        self.followers.append(Follower(job_id, watch))
        self.core.run_as(self.program, self._flush)

    def wait(self, waiter: Waiter) -> None:
        """Wait for a change of a job, then for the next one, until the job has ended."""

        def heard(reply: messages.JobAwaited) -> None:
            waiter.hear(reply)
            if not waiter.is_final:
                self.wait(waiter)

        self.ask(waiter.request(self.core.dice.choice((3.0, 1_000.0))), heard)

    def _have_line(self) -> float:
        if self.session.wants_new_socket:
            self.dealer.close()
            self.core.run_as(self.program, self._connect)
        return self.core.clock.now

    def _flush(self) -> None:
        self.session.flush(self.dealer.send, self.core.clock.now)

    # What it asks for.

    def plan(self) -> float:
        """Put everything on the agenda; when the last of it is asked for."""
        dice = self.core.dice
        moment = 2.0
        for _ in range(self.core.character.actions):
            moment += dice.expovariate(2.0)
            self.core.later(moment, self.act)
        self.purger.plan()
        return moment

    def act(self) -> None:
        """Ask for something."""
        dice = self.core.dice
        some = dice.choice(sorted(self.acknowledged)) if self.acknowledged else 0
        remaining = self.core.character.jobs - self._jobs_asked
        is_archiving = self._waits_for(messages.AutoArchiveJobs)
        if remaining > 0 and not is_archiving and dice.random() < (0.5 if some else 1.0):
            self._submit(min(remaining, dice.choice((1, 1, 2, 4))))
            return
        if not some:
            return
        choice = dice.choice(
            (
                "cancel",
                "priority",
                "archive",
                "all",
                "list",
                "read",
                "watch",
                "retry",
                "locks",
                "priority",
                "rules",
                "rules",
            )
        )
        match choice:
            case "cancel":
                self.ask(messages.CancelJob(id=some, kill=dice.random() < 0.3))
            case "priority":
                # Most of all those that wait for locks: they and their locks must learn of it.
                chosen = dice.choice([some, *self._in_line() * 2])
                self.ask(messages.ChangeJobPriority(id=chosen, priority=dice.randint(-20, 19)))
            case "rules" if not self.core.character.has_late_dependencies:
                self.rules.change()
            case "archive":
                self.ask(messages.ArchiveJob(id=some), self._note_archived)
            case "all" if not self.may_repeat_submission():
                # A key is known as long as its jobs are not archived.
                self.ask(messages.AutoArchiveJobs(age_seconds=-1), self._note_archived)
            case "list":
                self.ask(messages.ListJobs(archived=True))
            case "read":
                self.ask(messages.ReadJob(id=some))
            case "watch":
                self.follow(some)
            case "retry" if not (is_archiving or self.core.character.has_tag_jobs):
                self._retry(some)
            case _:
                self.ask(messages.ListLocks())

    def _in_line(self) -> list[int]:
        """The jobs that wait for locks."""
        tasks = [task for task in self.core.tasks if isinstance(task, JobTask)]
        return [task.job_id for task in tasks if task.actor is not None and task.actor._is_in_line]

    def _waits_for(self, kind: type[Request[Any]]) -> bool:
        return any(isinstance(call.message, kind) for call, _ in self._calls)

    def may_repeat_submission(self) -> bool:
        """Whether a submission has no answer yet: its key and its dependencies must be known."""
        is_open = any(asked.ids is None for asked in self.submissions)
        return is_open or self._waits_for(messages.RetryJob)

    def _retry(self, job_id: int) -> None:
        """Ask for the whole of a job again; it is refused unless the job has ended."""
        first = next(one for one in self.submissions if job_id in (one.ids or ()))
        assert first.ids is not None
        self._retries += 1
        key = f"retry-{self._retries}"
        spec = first.specs[first.ids.index(job_id)]
        again = KeyedSubmission(key, [spec], max(self.acknowledged))

        def done(reply: messages.JobsSubmitted) -> None:
            if again not in self.submissions:
                self.submissions.append(again)
            self._note_submitted(again, reply.ids)

        self.ask(messages.RetryJob(id=job_id, is_whole=True, key=key), done)

    def _submit(self, count: int) -> None:
        self._jobs_asked += count
        self.submit([self._spec(place) for place in range(count)])

    def submit(self, specs: list[JobSpec]) -> KeyedSubmission:
        """Submit these jobs, all or none."""
        key = f"key-{len(self.submissions)}"
        asked = KeyedSubmission(key, specs, max(self.acknowledged, default=0))
        self.submissions.append(asked)

        def done(reply: messages.JobsSubmitted) -> None:
            self._note_submitted(asked, reply.ids)

        self.ask(messages.SubmitJobs(jobs=specs, key=key), done)
        return asked

    def take_job(self) -> JobSpec | None:
        """A job that a tool may submit; None: there are enough."""
        if self._jobs_asked >= self.core.character.jobs:
            return None
        self._jobs_asked += 1
        return JobSpec(ops=[self._opcode()])

    def note_answered(self, spec: JobSpec, job_id: int) -> None:
        """A tool has submitted a job."""
        asked = KeyedSubmission(f"tool-{job_id}", [spec], 0)
        self.submissions.append(asked)
        self._note_submitted(asked, [job_id])

    def note_found(self, spec: JobSpec, job_id: int) -> None:
        """In the end there is a job of a tool that has heard no answer."""
        asked = KeyedSubmission(f"tool-{job_id}", [spec], 0)
        asked.ids = [job_id]
        self.submissions.append(asked)
        self.acknowledged.add(job_id)

    def _spec(self, place: int) -> JobSpec:
        dice = self.core.dice
        if self.core.character.has_alike_jobs and self._alike and dice.random() < 0.8:
            return dice.choice(self._alike)
        spec = self._any_spec(place)
        has_targets = spec.depends or any("depends" in op for op in spec.ops)
        is_single = has_targets or self.core.character.has_tag_jobs
        if not is_single and len(self._alike) < ALIKE_KINDS:
            self._alike.append(spec)
        return spec

    def _any_spec(self, place: int) -> JobSpec:
        dice = self.core.dice
        depends: list[tuple[int, list[str]]] = []
        if place and dice.random() < 0.5:
            depends.append((-dice.randint(1, place), dice.choice(([], ["success", "canceled"]))))
        live = sorted(self.acknowledged - self.archived - self.purger.asked)
        for _ in range(dice.choice((0, 0, 0, 0, 1, 1, 2)) if live else 0):
            wanted = dice.choice(([], ["success"], ["success", "error", "canceled"]))
            depends.append((dice.choice(live), wanted))
        ops = [self._opcode() for _ in range(dice.choice((1, 1, 1, 2, 3)))]
        if self.core.character.has_tag_jobs:
            self._tags += 1
            ops = [_tag("SET", self._tags), *ops, _tag("DEL", self._tags)]
        has_late = self.core.character.has_late_dependencies
        if has_late and len(ops) > 1 and live and dice.random() < 0.5:
            ops[1]["depends"] = [[dice.choice(live), []]]
        return JobSpec(ops=ops, depends=depends, priority=dice.choice((None, 0, -5, 10)))

    def _opcode(self) -> dict[str, Any]:
        dice = self.core.dice
        seconds = dice.choice((0.0, 0.01, 0.5, 3.0))
        argv = ["simulated", str(seconds)]
        if dice.random() < 0.1:
            argv.append("fails")
        needs: dict[str, Any] = {}
        roll = dice.random()
        if roll < 0.7:
            names = [f"n{number}" for number in range(NODES) if dice.random() < 0.5] or ["n0"]
            needs = {"node": {dice.choice(("shared", "exclusive")): names}}
        elif roll < 0.75:
            needs = {"cluster": {"exclusive": ["BGL"]}}
        elif roll < 0.8:
            needs = {"node": {dice.choice(("shared", "exclusive")): ["*"]}}
        return {"OP_ID": "OP_EXEC", "argv": argv, "locks": needs, **self._large()}

    def _large(self) -> dict[str, Any]:
        """What makes an opcode large: input beside the job, or a state of its own flush."""
        if not self.core.character.has_large_jobs:
            return {}
        return self.core.dice.choice(({}, {"stdin": LARGE_INPUT}, {"env": LARGE_ENVIRONMENT}))

    def _note_submitted(self, asked: KeyedSubmission, ids: list[int]) -> None:
        if asked.ids is not None and asked.ids != ids:
            self.core.problem(f"{asked.key} was answered with {asked.ids}, then with {ids}")
        asked.ids = ids
        if min(ids) <= asked.highest_before:
            self.core.problem(f"ids {ids} came after {asked.highest_before} was acknowledged")
        if self.acknowledged.intersection(ids):
            self.core.problem(f"ids {ids} were used before")
        if self.core.character.has_waiters:
            for job_id in set(ids) - self.acknowledged:
                self.waiters.append(Waiter(job_id))
                self.wait(self.waiters[-1])
        self.acknowledged.update(ids)

    def _note_archived(self, reply: messages.ArchiveOutcome) -> None:
        self.archived.update(reply.archived)


def _tag(verb: str, number: int) -> dict[str, Any]:
    """Set or remove a tag of the cluster that no other job has."""
    return {"OP_ID": f"OP_TAGS_{verb}", "kind": "cluster", "tags": [f"tag-{number}"]}
