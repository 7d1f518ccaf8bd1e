"""How listings, watches and the details of a job say how it ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli import following
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.jobs import outcomes
from ganger.storage.jobs.job_views import JobInfo, ListingProgress, StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ganger.transport.messages import DaemonInfo


def ended(job_id: int, outcome: Outcome, reason: str = "", cause: int | None = None) -> JobInfo:
    status = next(one for one, found in outcomes.OF_STATUS.items() if outcome in found)
    return JobInfo(
        id=job_id,
        status=status,
        summary=f"EXEC({job_id})",
        priority=0,
        received=1.0,
        outcome=outcome,
        reason_ended=reason,
        cause=cause,
        ops=[],
    )


RUNNING = JobInfo(id=1, status=JobStatus.RUNNING, summary="EXEC(1)", priority=0, ops=[])
FAILED = ended(2, Outcome.FAILED, "exit code 7; last line: boom")
SKIPPED = ended(3, Outcome.SKIPPED, "EXEC(2) failed: job 2", 2)
SUCCESS = ended(4, Outcome.SUCCESS)
UNNEEDED = ended(5, Outcome.SKIPPED, "not needed, as EXEC(4) succeeded: job 4", 4)
OF_MANY = ended(6, Outcome.SKIPPED, "not needed, as none of the jobs 4, 5 failed")
OF_NO_JOB = ended(7, Outcome.SKIPPED, "job 99 does not exist", 99)


class EndedJobs:
    """Stands for the client of a daemon with these jobs."""

    def __init__(self) -> None:
        everything = (RUNNING, FAILED, SKIPPED, SUCCESS, UNNEEDED, OF_MANY, OF_NO_JOB)
        self.known = {job.id: job for job in everything}
        self.indexed: float | None = None

    def jobs(
        self,
        ids: Iterable[int] | None = None,
        progress: Callable[[ListingProgress], None] = lambda _: None,
        **_asked: object,
    ) -> Iterator[JobInfo]:
        progress(ListingProgress(looked_at=5, indexed=0.1))
        progress(ListingProgress(indexed=self.indexed))
        for job_id in self.known if ids is None else ids:
            if job_id not in self.known:
                raise errors.UnknownJobError
            yield self.known[job_id]

    def find(self, *names: str) -> list[list[int]]:
        return [[] for _ in names]

    def info(self) -> DaemonInfo:
        return msgspec.structs.replace(stand_in.INFO, archive_indexed=self.indexed)

    def job(self, job_id: int) -> JobInfo:
        return self.known[job_id]

    def watch(self, *ids: int, **_asked: object) -> Iterator[StatusChange]:
        for job_id in ids:
            job = self.known[job_id]
            yield StatusChange(job_id=job_id, status=job.status, previous=None, job=job)


@pytest.fixture(name="daemon", autouse=True)
def daemon_behind_the_commands(monkeypatch: pytest.MonkeyPatch) -> EndedJobs:
    daemon = EndedJobs()
    stand_in.use(monkeypatch, daemon)
    return daemon


def run(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["job", *words], standalone_mode=False)


def test_a_listing_says_in_one_word_how_a_job_ended_and_why() -> None:
    _, *rows = run("list", "1", "2", "3", "4").output.splitlines()
    assert [row.split()[1] for row in rows] == ["running", "failed", "skipped", "success"]
    assert [row.split("  ")[-1].strip() for row in rows] == [
        "-",
        "exit code 7; last line: boom",
        "EXEC(2) failed: job 2",
        "-",
    ]
    assert run("list", "--fields", "id,status,cause", "--no-headers", "3").output.split() == [
        "3",
        "error",
        "2",
    ]


def test_lists_and_names_say_that_the_index_of_the_archive_is_built(daemon: EndedJobs) -> None:
    daemon.indexed = 0.349
    said = "ganger: archived jobs are left out that are not found yet (index of the archive: 34 %)"
    for words in (("list", "--archived"), ("list", "--last", "2", "-o", "json")):
        shown = run(*words)
        assert shown.stderr.splitlines() == [said]
        assert shown.exit_code == 0
    assert run("list", "nightly").stderr.splitlines() == [
        said,
        "ganger: there is no job called 'nightly'",
    ]
    daemon.indexed = None
    assert run("list", "--archived").stderr == ""
    assert run("list", "nightly").stderr == "ganger: there is no job called 'nightly'\n"


def test_programs_get_status_state_outcome_reason_and_cause() -> None:
    names = ("status", "state", "outcome", "reason_ended", "cause")
    found = json.loads(run("list", "-o", "json", "1", "3").output)
    assert [[job[name] for name in names] for job in found] == [
        ["running", "running", None, "", None],
        ["error", "skipped", "skipped", "EXEC(2) failed: job 2", 2],
    ]


def test_the_details_of_a_job_say_how_it_ended() -> None:
    lines = run("info", "3").output.splitlines()
    assert lines[1:5] == [
        "  Status: error",
        "  Outcome: skipped",
        "  Ended because: EXEC(2) failed: job 2",
        "  Cause: job 2",
    ]
    assert "Outcome" not in run("info", "1").output


def test_a_watch_says_how_a_job_ended() -> None:
    [line] = run("watch", "--quiet", "2").output.splitlines()
    assert line.endswith(" job 2 is failed (exit code 7; last line: boom): EXEC(2)")


@pytest.mark.parametrize(
    ("job", "code"),
    [(SUCCESS, 0), (UNNEEDED, 0), (OF_MANY, 0), (FAILED, 1), (SKIPPED, 1), (OF_NO_JOB, 1)],
)
def test_a_job_that_is_skipped_counts_as_the_job_that_is_the_cause(job: JobInfo, code: int) -> None:
    done = run("wait", "--quiet", str(job.id))
    assert done.return_value == code
    assert done.output == ("" if job is SUCCESS else f"Job {job.id} {following.ending(job)}\n")


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.SKIPPED])
def test_only_success_ends_well(daemon: EndedJobs, outcome: Outcome) -> None:
    daemon.known[8] = ended(8, outcome, "r")
    assert run("wait", "--quiet", "8").return_value == (0 if outcome is Outcome.SUCCESS else 1)


@pytest.mark.parametrize("outcome", Outcome)
def test_the_error_of_a_job_is_of_the_kind_of_its_outcome(outcome: Outcome) -> None:
    error = ended(8, outcome, "r", 3).error
    if outcome is Outcome.SUCCESS:
        assert error is None
        return
    assert error is not None
    assert (error.job_id, error.reason, error.cause) == (8, "r", 3)
    assert error.text == f"job 8 {outcomes.VERBS[outcome]}: r"
    assert isinstance(error, errors.JobFailedError) is (outcome in outcomes.FAILURES)


def test_each_outcome_has_an_error_of_its_own() -> None:
    kinds: list[Any] = [type(ended(8, one, "r").error) for one in Outcome]
    assert len(set(kinds)) == len(kinds)
    assert RUNNING.error is None


def test_of_a_daemon_that_tells_no_outcomes_the_status_says_what_it_can() -> None:
    old = JobInfo(id=9, status=JobStatus.ERROR, summary="", priority=0)
    assert following.outcome(old) is Outcome.FAILED
    assert following.state(old) == "failed"


@pytest.mark.parametrize("command", ["watch", "wait"])
def test_who_stops_following_is_told_which_jobs_go_on(
    daemon: EndedJobs, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    watch = daemon.watch

    def interrupted(*ids: int, **asked: object) -> Iterator[StatusChange]:
        yield from watch(*ids, **asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(daemon, "watch", interrupted)
    done = run(command, "1", "2")
    again = f"follow it again with `ganger job {command} 1`"
    assert done.stderr == f"\nganger: 1 job goes on; {again}\n"
    assert done.return_value == 130


def test_who_stops_reading_output_is_told_that_the_job_goes_on(
    daemon: EndedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "logs", mock.Mock(side_effect=KeyboardInterrupt), raising=False)
    done = run("logs", "-f", "1")
    assert done.stderr == ("\nganger: 1 job goes on; follow it again with `ganger job logs -f 1`\n")
    assert done.return_value == 130
    # One that has ended does not go on.
    assert (run("logs", "2").stderr, run("logs", "2").return_value) == ("", 130)


def test_the_priority_of_an_ended_job_is_left_out() -> None:
    assert "  Priority: " in run("info", "1").output
    assert "Priority: " not in run("info", "2").output


def test_the_details_of_a_job_say_that_its_output_was_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for is_removed in (True, False):
        job = msgspec.structs.replace(SUCCESS, output_removed=is_removed)
        following.show([job], "table")
        shown = "  Output: removed, to make room on a full disk\n" in capsys.readouterr().out
        assert shown is is_removed
