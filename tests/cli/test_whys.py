"""While a job does not go on, commands print what holds it back: once for each cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.cli import stand_in

from ganger.cli import following, main, whys
from ganger.storage import errors
from ganger.storage.jobs.job_views import JobInfo, StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.messages import JobExplained, Obstacle, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ganger import Client

QUEUED, WAITING, RUNNING, SUCCESS = (
    JobStatus.QUEUED,
    JobStatus.WAITING,
    JobStatus.RUNNING,
    JobStatus.SUCCESS,
)


def lock(*holders: int) -> Obstacle:
    return Obstacle(kind="lock", held=1, text="a lock", lock="node/n1", jobs=list(holders))


def slots(*running: int) -> Obstacle:
    return Obstacle(kind="slots", held=1, text="no slot", jobs=list(running))


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(0, "no pending job has"), (1, "1 pending job has"), (2, "2 pending jobs have")],
)
def test_jobs_that_are_held_back_are_not_said_to_come_later(ahead: int, words: str) -> None:
    answer = JobExplained(id=3, status=QUEUED, text="job 3 waits", ahead=ahead)
    assert whys.shown(answer).splitlines()[1] == (
        f"  Its priority is 0; {words} a turn before it, apart from those that rules or locks hold"
        " back."
    )


def test_each_condition_that_must_be_met_has_a_line_with_its_alternatives_and_reason() -> None:
    remedy = Remedy(locks=[1], rules=["hold node/*"], until="noon", priority=-1)
    answer = JobExplained(id=3, status=QUEUED, text="job 3 waits", change="words", remedy=remedy)
    assert whys.shown(answer).splitlines()[1:] == [
        "  It would go on if: job 1 ends, or gives the lock back",
        "    and: `ganger release 'node/*'`, or it is noon",
        (
            "    and: those before it have had their turn, or it has priority -1 or better"
            " (`ganger job change-priority 3 --priority -1`)"
        ),
    ]


class ExplainingDaemon:
    """Answers with the obstacles that it is given, one after the other."""

    def __init__(self, *parts: Any, obstacles: list[list[Obstacle]]) -> None:
        self.parts = parts
        self.obstacles = obstacles
        self.asked: list[int] = []
        self.status = WAITING
        self.error: errors.GangerError | None = None

    def explain(self, job_id: int, *, timeout: float) -> JobExplained:
        assert timeout <= whys.ANSWER_SECONDS
        self.asked.append(job_id)
        if self.error is not None:
            raise self.error
        found = self.obstacles.pop(0) if len(self.obstacles) > 1 else self.obstacles[0]
        text = f"job {job_id} waits: {[(one.text, one.jobs) for one in found]}"
        return JobExplained(id=job_id, status=self.status, text=text, obstacles=found)

    def watch(self, *_: int, pause: float | None = None, **__: object) -> Iterator[Any]:
        return (part for part in self.parts if part is not None or pause is not None)


def change(status: JobStatus, job_id: int = 1) -> StatusChange:
    job = JobInfo(id=job_id, status=status, summary="", priority=0)
    return StatusChange(job_id=job_id, status=status, previous=None, job=job)


@pytest.mark.parametrize(("status", "moment"), [(RUNNING, "01"), (SUCCESS, "02")])
def test_a_watch_shows_when_a_job_began_and_when_it_ended(
    status: JobStatus, moment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = JobInfo(id=1, status=status, summary="X", priority=0, started=1.0, ended=2.0)
    following.tell(StatusChange(job_id=1, status=status, previous=None, job=job))
    assert capfd.readouterr().out == f"1970-01-01T00:00:{moment}Z job 1 is {status}: X\n"


def reasons(daemon: ExplainingDaemon, *jobs: int) -> whys.Whys:
    found = whys.Whys(cast("Client", daemon))
    for job_id in jobs:
        found.hear(change(WAITING, job_id))
    return found


def test_a_cause_is_printed_once_and_another_one_again() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)], [lock(7)], [lock(8)]])
    found = reasons(daemon, 1)
    assert list(found.lines(1)) == ["job 1 waits: [('a lock', [7])]"]
    assert list(found.lines(10)) == []
    assert list(found.lines(20)) == ["job 1 waits: [('a lock', [8])]"]


def test_the_same_cause_in_other_words_is_not_printed_again() -> None:
    """Which jobs fill the run slots changes all the time."""
    daemon = ExplainingDaemon(obstacles=[[slots(7)], [slots(8)]])
    found = reasons(daemon, 1)
    assert len(list(found.lines(1))) == 1
    assert list(found.lines(10)) == []
    assert daemon.asked == [1, 1]


def test_of_a_job_that_nothing_holds_back_no_line_is_printed() -> None:
    """On a busy machine it may take more than a moment to start."""
    daemon = ExplainingDaemon(obstacles=[[], [lock(7)], []])
    found = reasons(daemon, 1)
    assert [list(found.lines(moment)) for moment in (1, 10, 20)] == [
        [],
        ["job 1 waits: [('a lock', [7])]"],
        [],
    ]
    assert daemon.asked == [1, 1, 1]


def test_questions_get_rarer_and_begin_anew_with_news_of_the_job() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)]])
    found = reasons(daemon, 1)

    def asked(moments: range) -> list[int]:
        at = []
        for moment in moments:
            before = len(daemon.asked)
            list(found.lines(moment))
            at += [moment] * (len(daemon.asked) - before)
        return at

    assert asked(range(40)) == [0, 1, 3, 7, 15, 30]
    found.hear(change(WAITING))
    assert asked(range(40, 44)) == [40, 41, 43]


def test_of_a_job_that_has_ended_nothing_is_asked() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)]])
    found = reasons(daemon, 1)
    found.hear(change(SUCCESS))
    assert list(found.lines(1)) == []
    assert daemon.asked == []


def test_a_job_that_runs_is_held_back_by_a_silent_node_alone() -> None:
    """`ganger exec --on web1` said nothing as long as web1 was silent."""
    nodes = [Obstacle(kind="node", held=1, text=f"silent since {when}") for when in (5, 9)]
    disk = Obstacle(kind="disk", held=1, text="output is dropped")
    daemon = ExplainingDaemon(obstacles=[[], [disk], [nodes[0]], [nodes[0]], [], [nodes[1]]])
    daemon.status = RUNNING
    found = reasons(daemon)
    found.hear(change(RUNNING))
    told = [list(found.lines(moment)) for moment in range(0, 120, 20)]
    assert told == [
        [],
        [],
        ["job 1 waits: [('silent since 5', [])]"],
        [],
        [],
        ["job 1 waits: [('silent since 9', [])]"],
    ]


def test_jobs_that_do_not_run_are_asked_about_first() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)]])
    found = reasons(daemon)
    for job_id in range(1, 9):
        found.hear(change(WAITING if job_id in {5, 8} else RUNNING, job_id))
    list(found.lines(1))
    assert daemon.asked == [5, 8, 1]


def test_of_many_jobs_only_the_first_that_wait_are_asked_about() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)]])
    found = reasons(daemon, *range(1, 100))
    list(found.lines(1))
    assert daemon.asked == [1, 2, 3]


def test_nothing_is_printed_without_an_answer() -> None:
    daemon = ExplainingDaemon(obstacles=[[lock(7)]])
    daemon.error = errors.DeadlineError()
    assert list(reasons(daemon, 1).lines(1)) == []


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (["job", "watch", "1"], True),
        (["job", "watch", "-q", "1"], False),
        (["job", "watch"], False),
        (["job", "wait", "1"], True),
        (["job", "wait", "--quiet", "1"], False),
    ],
)
def test_it_goes_to_standard_error_unless_it_is_not_wanted(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    is_told: bool,
) -> None:
    stand_in.use(monkeypatch, ExplainingDaemon(change(WAITING), None, obstacles=[[lock(7)]]))
    with pytest.raises(SystemExit):
        main.main(words)
    shown = capfd.readouterr()
    assert "a lock" not in shown.out
    assert ("ganger: job 1 waits: [('a lock', [7])]\n" in shown.err) is is_told
