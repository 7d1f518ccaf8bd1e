"""What several dependencies decide together, in every order in which their ends can be heard.

The reference says it in one line: any that canceled the job, else any that failed it, else it
starts. Nothing is decided before that is certain, and everything as soon as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.scheduling.scheduling import Pass, Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import JobVerdict, PendingJob

CANCELED, SUCCESS, ERROR = JobStatus.CANCELED, JobStatus.SUCCESS, JobStatus.ERROR
CHAIN = 1
DEPENDANT = 100
ENDS: tuple[JobStatus | None, ...] = (CANCELED, SUCCESS, ERROR, None)
"""How a dependency may end; None: there is no such job."""

Dependency = tuple[int, tuple[str, ...]]


def single(wanted: Sequence[str], end: JobStatus | None) -> str:
    """What one dependency says of the job."""
    if end is CANCELED:
        return "start" if "canceled" in wanted else "canceled"
    return "start" if end is not None and (not wanted or end in wanted) else "failed"


def expected(said: Sequence[str], count: int) -> str:
    """What so many of the dependencies decide, the others being open."""
    known = said[:count]
    if "canceled" in known:
        return "canceled"
    if count < len(said):
        return "nothing"
    return "failed" if "failed" in known else "start"


class Play:
    """A schedule with one dependant, which asks about jobs that it does not know."""

    def __init__(self, depends: Sequence[Dependency], order: Sequence[int]) -> None:
        self.depends = tuple(depends)
        self.ends: dict[int, JobStatus | None] = {}
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

    def hear(self, job_id: int, end: JobStatus | None) -> None:
        self.ends[job_id] = end
        self.schedule.learn(job_id, end)
        self.run()

    def run(self) -> None:
        while True:
            made = self.schedule.decide()
            self.note(made)
            if not made.unknown:
                return
            for job_id in made.unknown:
                self.schedule.learn(job_id, self.ends.get(job_id, JobStatus.QUEUED))

    def note(self, made: Pass) -> None:
        found = [one.verdict for one in made.unsatisfiable] + ["start"] * len(made.start)
        assert len(found) <= (not self.decided)
        self.decided = "".join(found) or self.decided


def play(
    depends: Sequence[Dependency], ends: dict[int, JobStatus | None], order: Sequence[int], at: int
) -> None:
    """Learn the ends in this order; before the ``at``-th, the whole queue is reported."""
    wanted = dict(depends)
    said = [single(wanted[job_id], ends[job_id]) for job_id in order]
    made = Play(depends, order)
    for count, job_id in enumerate(order):
        if count == at:
            made.tell_everything()
        made.hear(job_id, ends[job_id])
        assert (made.decided or "nothing") == expected(said, count + 1), (depends, ends, order)


@pytest.mark.parametrize("wanted", [[], ["success"], ["success", "error"], ["canceled"]])
def test_three_dependencies_decide_the_same_in_every_order(wanted: list[str]) -> None:
    depends = [(job_id, tuple(wanted)) for job_id in (1, 2, 3)]
    for ended in product(ENDS, repeat=3):
        ends = dict(zip((1, 2, 3), ended, strict=True))
        for order in permutations((1, 2, 3)):
            for at in range(4):
                play(depends, ends, order, at)


@given(data=st.data(), count=st.integers(1, 5))
def test_any_dependencies_decide_the_same_in_any_order(data: st.DataObject, count: int) -> None:
    finals = [str(end) for end in ENDS if end is not None]
    some = st.lists(st.sampled_from(finals), unique=True, max_size=3).map(tuple)
    ids = range(1, count + 1)
    depends = [(job_id, data.draw(some)) for job_id in data.draw(st.permutations(ids))]
    ends = {job_id: data.draw(st.sampled_from(ENDS)) for job_id in ids}
    order = data.draw(st.permutations(ids))
    play(depends, ends, order, data.draw(st.integers(0, count)))
