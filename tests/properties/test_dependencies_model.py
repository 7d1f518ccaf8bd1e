"""What several dependencies decide together, in every order in which their ends can be heard.

The reference says it in one line: any that canceled the job, else any that failed it, else it
starts. Of those with the word ``any-failed`` one has to fail. Nothing is decided before that is
certain, and everything as soon as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.scheduling.scheduling import Pass, Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import (
    ALWAYS,
    ANY_FAILED,
    DEPENDENCY_WORDS,
    FAILURES,
    OF_STATUS,
    JobEnd,
)
from ganger.transport.messages import JobVerdict, PendingJob

CHAIN = 1
DEPENDANT = 100
ENDS: tuple[JobEnd | None, ...] = (
    *(JobEnd(status, outcome) for status, found in OF_STATUS.items() for outcome in found),
    None,
)
"""How a dependency may end; None: there is no such job."""

PLAIN_ENDS = (*(JobEnd(status, found[0]) for status, found in OF_STATUS.items()), None)
"""Of these, those that Ganeti knows."""

Dependency = tuple[int, tuple[str, ...]]


def single(wanted: Sequence[str], end: JobEnd | None) -> str:
    """What one dependency says of the job by itself."""
    if end is None:
        return "failed"
    if ALWAYS in wanted or {str(end.status), str(end.outcome)} & set(wanted):
        return "start"
    if end.status is JobStatus.CANCELED:
        return "canceled"
    return "failed" if wanted else "start"


def expected(
    wanted: Mapping[int, tuple[str, ...]], ends: Mapping[int, JobEnd | None], heard: Sequence[int]
) -> str:
    """What the dependencies that have ended decide, the others being open."""
    group = [job_id for job_id, words in wanted.items() if ANY_FAILED in words]
    others = [job_id for job_id in wanted if job_id not in group]
    said = [single(wanted[job_id], ends[job_id]) for job_id in others if job_id in heard]
    if "canceled" in said:
        return "canceled"
    in_group = [end for job_id in group if job_id in heard and (end := ends[job_id]) is not None]
    has_one = any(end.outcome in FAILURES for end in in_group)
    if len(said) < len(others) or (not has_one and not set(group) <= set(heard)):
        return "nothing"
    return "failed" if "failed" in said or (group and not has_one) else "start"


class Play:
    """A schedule with one dependant, which asks about jobs that it does not know."""

    def __init__(self, depends: Sequence[Dependency], order: Sequence[int]) -> None:
        self.depends = tuple(depends)
        self.ends: dict[int, JobEnd | None] = {}
        self.order = order
        self.decided = ""
        self.schedule = Schedule(1)
        self.schedule.change_chain(CHAIN)
        self.tell_everything()

    def tell_everything(self) -> None:
        """As after a restart: what was learned is forgotten, and asked for again."""
        job = PendingJob(id=DEPENDANT, priority=0, depends=self.depends)
        verdicts = [] if self.decided else [JobVerdict(job=job, chain=CHAIN)]
        self.schedule.replace_all(verdicts, [])
        self.run()

    def hear(self, job_id: int, end: JobEnd | None) -> None:
        self.ends[job_id] = end
        self.learn(job_id)
        self.run()

    def learn(self, job_id: int) -> None:
        end = self.ends.get(job_id, JobEnd(JobStatus.QUEUED))
        self.schedule.learn(job_id, *(end or (None,)))

    def run(self) -> None:
        while True:
            made = self.schedule.decide()
            self.note(made)
            if not made.unknown:
                return
            for job_id in made.unknown:
                self.learn(job_id)

    def note(self, made: Pass) -> None:
        found = [one.verdict for one in made.unsatisfiable] + ["start"] * len(made.start)
        assert len(found) <= (not self.decided)
        self.decided = "".join(found) or self.decided


def play(
    depends: Sequence[Dependency], ends: dict[int, JobEnd | None], order: Sequence[int], at: int
) -> None:
    """Learn the ends in this order; before the ``at``-th, the whole queue is reported."""
    wanted = dict(depends)
    made = Play(depends, order)
    for count, job_id in enumerate(order):
        if count == at:
            made.tell_everything()
        made.hear(job_id, ends[job_id])
        heard = order[: count + 1]
        assert (made.decided or "nothing") == expected(wanted, ends, heard), (depends, ends, order)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted", [[], ["success"], ["success", "error"], ["canceled"], ["failed"], [ANY_FAILED]]
)
def test_three_dependencies_decide_the_same_in_every_order(wanted: list[str]) -> None:
    depends = [(job_id, tuple(wanted)) for job_id in (1, 2, 3)]
    for ended in product(PLAIN_ENDS, repeat=3):
        ends = dict(zip((1, 2, 3), ended, strict=True))
        for order in permutations((1, 2, 3)):
            for at in range(4):
                play(depends, ends, order, at)


@given(data=st.data(), count=st.integers(1, 5))
def test_any_dependencies_decide_the_same_in_any_order(data: st.DataObject, count: int) -> None:
    words = [word for word in DEPENDENCY_WORDS if word != ANY_FAILED]
    some = st.lists(st.sampled_from(words), unique=True, max_size=3).map(tuple)
    some |= st.just((ANY_FAILED,))
    ids = range(1, count + 1)
    depends = [(job_id, data.draw(some)) for job_id in data.draw(st.permutations(ids))]
    ends = {job_id: data.draw(st.sampled_from(ENDS)) for job_id in ids}
    order = data.draw(st.permutations(ids))
    play(depends, ends, order, data.draw(st.integers(0, count)))
