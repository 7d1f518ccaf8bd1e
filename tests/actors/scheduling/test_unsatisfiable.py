"""Many jobs that can never start: how many end together, and that their turns come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.actors.scheduling.schedules import CHAIN, verdict

from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import JobVerdict

AT_ONCE = 3
CANCELED, ERROR = JobStatus.CANCELED, JobStatus.ERROR


def schedule(*verdicts: JobVerdict, slots: int = 20) -> Schedule:
    made = Schedule(slots, ends_max=AT_ONCE)
    made.change_chain(CHAIN)
    for one in verdicts:
        made.add(one)
    return made


def ended(of: Schedule) -> list[tuple[int, str]]:
    return [(one.id, one.verdict) for one in of.decide().unsatisfiable]


def test_a_chain_ends_some_at_a_time_and_in_order() -> None:
    chain = schedule(*[verdict(number, (number - 1, "success")) for number in range(2, 10)])
    chain.learn(1, CANCELED)
    assert ended(chain) == [(2, "canceled"), (3, "canceled"), (4, "canceled")]
    # Without news from the queue: another pass is due at once.
    decided = chain.decide(7.0)
    assert [one.id for one in decided.unsatisfiable] == [5, 6, 7]
    assert decided.due_at == 7.0
    for job_id in range(2, 8):
        # It changes nothing.
        chain.learn(job_id, CANCELED)
    assert ended(chain) == [(8, "canceled"), (9, "canceled")]
    assert chain.decide(8.0).due_at is None


def test_many_that_depend_on_one_end_some_at_a_time() -> None:
    fan = schedule(*[verdict(number, (1, "success")) for number in range(2, 10)])
    fan.learn(1, ERROR)
    counts = [len(ended(fan)) for _ in range(4)]
    assert counts == [3, 3, 2, 0]


def test_a_job_that_accepts_the_end_waits_until_it_is_known() -> None:
    both = schedule(
        verdict(2, (1, "success")), verdict(3, (2, "canceled")), verdict(4, (2, "success,error"))
    )
    both.learn(1, CANCELED)
    decided = both.decide()
    assert decided.start == []
    assert [one.id for one in decided.unsatisfiable] == [2, 4]
    both.learn(2, CANCELED)
    assert both.decide().start == [3]


def test_what_a_rule_rejects_ends_under_that_rule() -> None:
    rejecting = schedule(
        *[verdict(number, action="REJECT", rule="r") for number in range(1, 11)],
    )
    assert ended(rejecting) == [(number, "rejected") for number in range(1, 11)]


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(1, 30), st.sampled_from(["success", "canceled", "error"])),
            max_size=3,
        ),
        max_size=30,
    )
)
def test_the_same_jobs_end_as_without_a_limit(depends: list[list[tuple[int, str]]]) -> None:
    """Each job depends on older ones; the first is canceled, and every end is told."""
    verdicts = [
        verdict(number, *[(target % number or 1, text) for target, text in wanted])
        for number, wanted in enumerate(depends, start=2)
    ]
    plain = Schedule(0)
    plain.change_chain(CHAIN)
    for one in verdicts:
        plain.add(one)
    limited = schedule(*verdicts, slots=0)
    found = []
    for made in (plain, limited):
        made.learn(1, CANCELED)
        ends: dict[int, str] = {}
        while (decided := made.decide()).unsatisfiable:
            assert not ends.keys() & {each.id for each in decided.unsatisfiable}
            for each in decided.unsatisfiable:
                ends[each.id] = each.verdict
                is_canceled = each.verdict == "canceled"
                made.learn(each.id, CANCELED if is_canceled else ERROR)
        found.append(ends)
    assert found[0] == found[1]
