"""A job whose judgement takes several slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from ...transport import messages
    from . import filtering


class Judging:
    """A job whose judgement is not done at the end of its slice; it goes on in others."""

    __slots__ = ("arrived", "facts", "held", "is_running", "work")

    def __init__(
        self,
        arrived: messages.JobToJudge,
        facts: filtering.JobFacts,
        work: Generator[filtering.Verdict, None, filtering.Verdict],
        held: filtering.Verdict,
    ) -> None:
        self.arrived = arrived
        self.facts = facts
        self.is_running = False
        self.work = work
        self.held = held
        """The verdict until it is known."""

    def is_about(self, arrived: messages.JobToJudge) -> bool:
        """Whether this is the same job, unchanged in all that rules look at."""
        return arrived.job == self.arrived.job
