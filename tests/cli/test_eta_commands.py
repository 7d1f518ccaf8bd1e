"""``ganger job eta``, and what ``job why`` and ``job list`` say of the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli import etas
from ganger.cli.main import ganger, main
from ganger.storage.jobs.job_views import JobInfo
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.prediction.estimates import Accuracy
from ganger.transport.client.etas import Etas, JobEta
from ganger.transport.messages import JobExplained

PLAN = Etas(
    {
        2: JobEta(id=2, end=1_700_000_100.0, run_seconds=10.0, count=4),
        3: JobEta(id=3, start=1_700_000_100.0, unknown="history"),
        4: JobEta(
            id=4, start=1_700_000_200.0, end=1_700_000_210.0, run_seconds=10.0, count=4, guesses=1
        ),
        5: JobEta(id=5, unknown="held"),
    },
    Accuracy(40, 0.25, 1.5),
)
STATUSES = {1: "success", 2: "running", 3: "queued", 4: "queued", 5: "queued", 6: "queued"}


class PlanningDaemon:
    """Stands for the client of a daemon with five jobs."""

    def jobs(self, ids: list[int] | None, **_: object) -> Iterator[JobInfo]:
        for job_id in ids or STATUSES:
            status = JobStatus(STATUSES[job_id])
            yield JobInfo(id=job_id, status=status, summary="EXEC(make)", priority=0)

    def eta(self) -> Etas:
        return PLAN

    def explain(self, job_id: int) -> JobExplained:
        status = JobStatus(STATUSES[job_id])
        return JobExplained(id=job_id, status=status, text=f"job {job_id} is {status}")


@pytest.fixture(autouse=True)
def client_of_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.use(monkeypatch, PlanningDaemon())


def said(*words: str) -> list[str]:
    done = CliRunner().invoke(ganger, ["job", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_the_plan_shows_starts_ends_and_how_wrong_estimates_were() -> None:
    headings, *rows, accuracy = said("eta", "--all")
    assert headings.split() == ["id", "start", "end", "run_time", "earlier_runs", "guesses"]
    assert rows[0].split() == ["2", "-", "2023-11-14T22:15:00Z", "10s", "4", "0"]
    assert "unknown: no earlier run" in rows[1]
    assert rows[2].split()[-1] == "1"
    assert "unknown: held" in rows[3]
    assert accuracy == (
        "Error of the estimates of the last 40 run times: median 25%, nine of ten within 150%"
    )


def test_the_error_of_one_estimate_is_told_in_the_singular() -> None:
    assert etas._accuracy(Accuracy(count=1, median=0.5, high=0.5)).startswith(
        "Error of the estimate of the last run time: median 50%"
    )


OVERDUE = JobEta(
    id=2,
    run_seconds=420.0,
    usual_seconds=0.3,
    elapsed=420.0,
    is_overdue=True,
    unknown="overdue",
    count=9,
)


def test_a_job_that_runs_longer_than_before_is_said_to_be_overdue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PlanningDaemon, "eta", lambda _: Etas({2: OVERDUE}, Accuracy(9, 0.1, 0.2)))
    row, text = said("eta", "2")[1:3]
    assert row.split()[1:7] == ["-", "overdue,", "end", "unknown", "7m", "0s"]
    assert text == (
        "Job 2 has run for 7m 0s, longer than nine of ten of its 9 earlier runs (half took at most "
        "0.3s): its end is unknown"
    )
    assert said("why", "2")[1] == (
        "  It has run for 7m 0s, longer than nine of ten of its 9 earlier runs (half took at most "
        "0.3s); its end is unknown."
    )
    assert "overdue, end unknown" in said("list", "--fields", "id,eta")[2]


def test_a_single_earlier_run_is_told_in_the_singular() -> None:
    one = msgspec.structs.replace(OVERDUE, count=1)
    assert etas._overdue(one) == "has run for 7m 0s, longer than its earlier run (0.3s)"


def test_a_job_that_has_ended_has_no_eta() -> None:
    rows = said("eta", "1", "2")[1:-1]
    assert rows[0].split() == ["1", "-", "-", "-", "0", "0"]
    assert rows[1].startswith("2 ")


def test_programs_get_the_plan_as_json() -> None:
    found = json.loads("\n".join(said("eta", "4", "-o", "json")))
    assert found["jobs"][0]["end"] == 1_700_000_210.0
    assert found["accuracy"] == {"count": 40, "median": 0.25, "high": 1.5}


def test_why_tells_when_the_job_should_start_and_end() -> None:
    assert said("why", "4")[1] == (
        "  It should start about 2023-11-14T22:16:40Z; it should end about 2023-11-14T22:16:50Z if"
        " 1 job without earlier runs before it takes the usual time"
        " (half of the last run times were estimated within 25%)."
    )
    assert said("why", "3")[1] == (
        "  It should start about 2023-11-14T22:15:00Z; its end is unknown: no earlier run."
    )
    assert said("why", "5")[1] == "  Its end is unknown: held."
    assert len(said("why", "1")) == 1
    [found] = json.loads("\n".join(said("why", "4", "-o", "json")))
    assert found["eta"]["guesses"] == 1


def test_why_tells_that_a_start_is_guessed_though_the_end_is_unknown() -> None:
    one = JobEta(id=7, start=1_700_000_100.0, unknown="history", guesses=2)
    (line,) = etas.lines(Etas({7: one}, None), 7)
    assert line == (
        "  It should start about 2023-11-14T22:15:00Z if 2 jobs without earlier runs before it take"
        " the usual time; its end is unknown: no earlier run."
    )


def test_a_list_shows_the_end_if_it_is_asked_for() -> None:
    rows = said("list", "--fields", "id,eta")
    assert [row.split(maxsplit=1)[1] for row in rows] == [
        "eta", "-", "2023-11-14T22:15:00Z", "unknown: no earlier run", "2023-11-14T22:16:50Z",
        "unknown: held", "-",
    ]  # fmt: skip
    [found] = json.loads("\n".join(said("list", "4", "--fields", "id,eta", "-o", "json")))
    assert found == {"id": 4, "eta": "2023-11-14T22:16:50Z"}
    assert "eta" not in json.loads("\n".join(said("list", "4", "-o", "json")))[0]


@pytest.mark.parametrize("words", [(), ("--all", "3")])
def test_either_ids_or_all(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["job", "eta", *words])
    assert capsys.readouterr().err == "ganger: give either IDS or --all\n"
