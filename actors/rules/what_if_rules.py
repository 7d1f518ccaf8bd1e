"""What would the filter rules do with the jobs if they were others? Tests of rules, simulations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.filters.metering import Meter
from ...transport import messages
from . import filtering, rule_requests, verdicts
from .shared_verdicts import SharedVerdicts

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ...storage.filters.metering import Slice
    from ...storage.filters.rules import FilterRule
    from ...transport.messages import JobVerdict
    from ..runtime.component import Runtime
    from ..runtime.works import Work
    from .known_facts import KnownFacts


class WhatIf:
    """Judges jobs under proposed rules, in slices, and changes nothing."""

    def __init__(self, runtime: Runtime, facts: KnownFacts, slice_: Slice) -> None:
        self._runtime = runtime
        self._facts = facts
        self._slice = slice_

    def take_rules(self, rules: Sequence[FilterRule], shared: SharedVerdicts) -> None:
        """These rules are in force now, and these verdicts hold under them."""
        self._rules = rules
        self._shared = shared
        self._proposed: tuple[object, SharedVerdicts] | None = None

    def test(self, message: messages.JudgeTest) -> Work:
        """Judge a page of jobs under the rules in force, and under those of the test."""
        both = (self._shared, self._proposal(message.test, message.last_id))
        fields = verdicts.fields_of(*(one.chain for one in both))
        rows: list[messages.RuleTest] = []
        next_after = message.next_after
        work_left = settings.JUDGE_STEPS_MAX
        for arrived, status in zip(message.jobs, message.statuses, strict=True):
            if work_left <= 0:
                # The next page begins here.
                next_after = rows[-1].id
                break
            found = [one.find(arrived.job) for one in both]
            if None in found:
                try:
                    facts = self._facts.of(arrived, fields)
                except errors.StorageError as error:
                    # Nothing is known of what the rules would do: the page leaves the job out.
                    self._facts.note_unreadable(arrived, error)
                    continue
                for place, one in enumerate(both):
                    if found[place] is None:
                        verdict, steps = yield from self._judged_in_slices(one.chain, facts)
                        one.note(arrived.job, verdict)
                        found[place] = verdict
                        work_left -= steps
            now, would = map(verdicts.named, found)
            rows.append(messages.RuleTest(id=arrived.job.id, status=status, now=now, then=would))
        return messages.FiltersTested(rows=rows, next_after=next_after)

    def simulate(self, message: messages.JudgeSimulation) -> Work:
        """Judge a page of jobs under the rules of the simulation."""
        known = self._proposal(message.simulation, message.last_id)
        fields = verdicts.fields_of(known.chain)
        found: list[JobVerdict] = []
        work_left = settings.JUDGE_STEPS_MAX
        for arrived in (*message.jobs, *message.running):
            if work_left <= 0:
                text = "simulate: the filter rules would take too much work to be tried on all jobs"
                raise errors.BadRequestError(text)
            priority = message.simulation.priorities.get(arrived.job.id)
            verdict = known.find(arrived.job) if priority is None else None
            if verdict is None:
                try:
                    facts = self._facts.of(arrived, fields, priority=priority)
                except errors.StorageError as error:
                    self._facts.note_unreadable(arrived, error)
                    found.append(verdicts.verdict_of(arrived, verdicts.HELD, 1))
                    continue
                verdict, steps = yield from self._judged_in_slices(known.chain, facts)
                work_left -= steps
                if priority is None:
                    known.note(arrived.job, verdict)
            found.append(verdicts.verdict_of(arrived, verdict, 1))
        pending = len(message.jobs)
        return messages.SimulationJudged(jobs=found[:pending], running=found[pending:])

    def _proposal(
        self, asked: messages.TestFilters | messages.Simulate, last_id: int
    ) -> SharedVerdicts:
        """The chain with the proposed rule, and without the rule that the request leaves out."""
        wanted = (asked.rule, asked.without, last_id)
        if self._proposed is not None and self._proposed[0] == wanted:
            found = self._proposed[1]
            changes_at = found.chain.changes_at
            if changes_at is None or self._runtime.wall_clock() < changes_at:
                return found
        known = [
            rule
            for rule in self._rules
            if asked.without is None or asked.without not in (rule.uuid, rule.name)
        ]
        if asked.rule is not None:
            # As if it were stored now: behind all other rules of its priority.
            named = rule_requests.addressed(asked.rule, rule_requests.known_names(self._rules))
            proposed = rule_requests.build_rule(
                named, watermark=last_id, now_nanoseconds=time.time_ns()
            )
            known = [*(rule for rule in known if rule.uuid != proposed.uuid), proposed]
        found = SharedVerdicts(filtering.compile_chain(known, self._runtime.wall_clock()))
        # The next page most likely wants the same.
        self._proposed = (wanted, found)
        return found

    def _judged_in_slices(
        self, chain: filtering.RuleChain, facts: filtering.JobFacts
    ) -> Generator[object, None, tuple[filtering.Verdict, int]]:
        """The verdict, and what it cost; yields at the end of each slice."""
        meter = Meter(settings.JUDGE_STEPS_MAX, self._slice)
        verdict = yield from filtering.judging(chain, facts, meter)
        return verdict, settings.JUDGE_STEPS_MAX - meter.left
