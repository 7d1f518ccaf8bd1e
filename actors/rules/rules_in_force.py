"""The filter rules that the queue itself enforces: at admission, and before each opcode.

The queue refuses a submission that a rule rejects, and does not start an opcode that the rules in
force forbid (`gating`). The scheduler enforces everything else.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from ...storage import settings
from ...storage.filters import rules
from ...storage.filters.metering import Meter, TooMuchWorkError
from ...storage.filters.rules import ActionName
from ...transport.messages import GateAnswered
from . import filtering, gating, rule_requests

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from ...storage.jobs import jobs
    from ...transport.messages import ChosenUnder

_STOPPING = frozenset({ActionName.PAUSE, ActionName.REJECT, ActionName.RATE_LIMIT})


class RulesInForce:
    """The rules in force. ``wall_clock`` decides their windows: that of the filter evaluator.

    ``chain_number`` names them; 0 when a window has opened or closed since they arrived.
    """

    def __init__(
        self, known: Iterable[rules.FilterRule], chain: int = 0, *, wall_clock: Callable[[], float]
    ) -> None:
        self._rules = tuple(known)
        self.may_reject = any(rule.action.name is ActionName.REJECT for rule in self._rules)
        """Whether a rule rejects jobs, at whatever time."""
        self._wall_clock = wall_clock
        self._compile()
        self.chain_number = chain

    def lets_all_start(self, chosen: ChosenUnder) -> bool:
        """Whether nothing can have changed for jobs that were chosen under these rules."""
        self._look_at_windows()
        return self._actions.isdisjoint(_STOPPING) or 0 != chosen.chain == self.chain_number

    def gate(self, job: jobs.Job, chosen: ChosenUnder, *, has_begun: bool) -> GateAnswered:
        """Whether the job's next opcode may start; ``chosen`` are the rules at its choice.

        ``has_begun``: earlier opcodes of the job have run.
        """
        if self.lets_all_start(chosen):
            return GateAnswered(is_open=True, chain=self.chain_number)
        facts = filtering.JobFacts.of(job.id, job.judged_inputs)
        try:
            verdict = filtering.judge(self._chain, facts, Meter(settings.ADMISSION_STEPS_MAX))
        except TooMuchWorkError:
            # The filter evaluator judges it in slices; here all other jobs would wait.
            text = "it takes too long to judge it here by the filter rules that have changed"
            return GateAnswered(is_open=False, text=text)
        decided = gating.decide(verdict, has_executed=has_begun, limit=chosen.limit)
        other = filtering.judged_otherwise(self._chain, facts, verdict)
        if other is not None and decided != gating.decide(
            other, has_executed=has_begun, limit=chosen.limit
        ):
            # The filter evaluator asks the configuration store; here all other jobs would wait.
            text = "the rules have changed, and the configuration has to say which locks it takes"
            return GateAnswered(is_open=False, text=text)
        if decided.is_open:
            return GateAnswered(is_open=True, chain=self.chain_number)
        return GateAnswered(
            is_open=False,
            text=filtering.describe(self._rules, verdict),
            is_rejected=decided.outcome == "rejected",
        )

    def rejections(self, submitted: Sequence[jobs.Job]) -> dict[int, str]:
        """As `rejecting`, in one slice."""
        work = self.rejecting(submitted, len(submitted))
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: dict[int, str] = done.value
                return found

    def rejecting(
        self, submitted: Sequence[jobs.Job], at_once: int, hits: Counter[str] | None = None
    ) -> Generator[None, None, dict[int, str]]:
        """Why jobs of a submission are not stored, by their places in it.

        Jobs that depend on a rejected job are rejected too. The work has a limit, because the queue
        does nothing else meanwhile: the remaining jobs are admitted, and the filter evaluator
        judges them before they may start. Yields between ``at_once`` jobs and the next ones.
        ``hits`` takes in how many jobs each rule rejects.
        """
        rejected: dict[int, str] = {}
        if not self._has(ActionName.REJECT):
            return rejected
        places = {job.id: place for place, job in enumerate(submitted)}
        per_job = settings.ADMISSION_STEPS_PER_JOB
        meter = Meter(settings.ADMISSION_STEPS_MAX + per_job * len(submitted))
        is_spent = False
        for place, job in enumerate(submitted):
            if place and place % at_once == 0:
                yield
            inputs = job.judged_inputs
            text = None
            try:
                if not is_spent:
                    text = self._rejects(job.id, inputs, meter, hits)
            except TooMuchWorkError:
                is_spent = True
            text = text or _depends_on(inputs, rejected, places)
            if text is not None:
                rejected[place] = text
        return rejected

    def knows(self, wanted: str) -> bool:
        """Whether a rule has this UUID or name."""
        return any(wanted in (rule.uuid, rule.name) for rule in self._rules)

    @property
    def names(self) -> dict[str, str]:
        """The UUIDs of the rules that have a name."""
        return rule_requests.known_names(self._rules)

    def stopping(self, job: jobs.Job) -> list[str]:
        """The rules that keep the next opcode of a chosen job from starting, in order."""
        facts = filtering.JobFacts.of(job.id, job.judged_inputs)
        found, _ = filtering.holding(self._chain, facts, Meter(settings.ADMISSION_STEPS_MAX))
        if not job.has_begun:
            return found
        pauses = {rule.uuid for rule in self._rules if rule.action.name is ActionName.PAUSE}
        # A rule that rejects does not affect running jobs.
        return list(itertools.takewhile(pauses.__contains__, found))

    def refuses(self, job: jobs.Job, priority: int) -> bool:
        """Whether other rules would hold or limit the job if it had this priority."""
        facts = filtering.JobFacts.of(job.id, job.judged_inputs)
        return priority in filtering.refused_priorities(self._chain, facts, [priority])

    def name(self, uuid: str) -> str:
        """The name of the rule ``uuid``; "" if it has none."""
        return next((rule.name for rule in self._rules if rule.uuid == uuid), "")

    def called(self, uuid: str) -> str:
        """What texts call the rule ``uuid``: by its name, if it has one."""
        return filtering.called(uuid, self.name(uuid))

    def priority(self, uuid: str) -> int:
        """The priority of the rule ``uuid``; 0 if it does not exist any more."""
        return next((rule.priority for rule in self._rules if rule.uuid == uuid), 0)

    def ends_at(self, uuid: str) -> str:
        """When the window of the rule ``uuid`` ends, in words; "" if it does not end."""
        until = next((rule.valid_until for rule in self._rules if rule.uuid == uuid), None)
        if until is None or not rules.TIME_MIN <= until <= rules.TIME_MAX:
            return ""
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(until))

    def describe(self, uuid: str, otherwise: ActionName = ActionName.ACCEPT) -> str:
        """The text about a job to which the rule ``uuid``, or one that has gone, applies."""
        action = next((rule.action.name for rule in self._rules if rule.uuid == uuid), otherwise)
        return filtering.describe(self._rules, filtering.Verdict(uuid, action))

    def because(self, uuid: str, job: jobs.Job) -> str:
        """Which lock of the job makes the rule ``uuid`` apply to it, in words; "" if none does."""
        found = next((rule for rule in self._rules if rule.uuid == uuid), None)
        facts = filtering.JobFacts.of(job.id, job.judged_inputs)
        return "" if found is None else filtering.touched(found, facts)

    def _has(self, action: ActionName) -> bool:
        self._look_at_windows()
        return action in self._actions

    def _look_at_windows(self) -> None:
        if self._chain.changes_at is not None and self._wall_clock() >= self._chain.changes_at:
            self._compile()

    def _rejects(
        self,
        job_id: int,
        inputs: Sequence[Mapping[str, Any]],
        meter: Meter,
        hits: Counter[str] | None,
    ) -> str | None:
        facts = filtering.JobFacts.of(job_id, inputs)
        verdict = filtering.judge(self._chain, facts, meter)
        if verdict.action is not ActionName.REJECT:
            return None
        if filtering.judged_otherwise(self._chain, facts, verdict) is not None:
            # The evaluator judges it when the configuration store has said which locks it takes.
            return None
        if hits is not None and verdict.rule is not None:
            hits[verdict.rule] += 1
        return filtering.describe(self._rules, verdict)

    def _compile(self) -> None:
        self._chain = filtering.compile_chain(self._rules, self._wall_clock())
        self._actions = {link.verdict.action for link in self._chain.links}
        self.chain_number = 0


def _depends_on(
    inputs: Sequence[Mapping[str, Any]], rejected: dict[int, str], places: dict[int, int]
) -> str | None:
    for opcode in inputs:
        for target, _ in opcode.get("depends") or ():
            if places.get(target) in rejected:
                return (
                    f"not stored, because it depends on job {places[target]} of the submission, "
                    "which is rejected"
                )
    return None
