"""``ganger job``: what it prints of a partly rejected submission, and of refused requests.

The answers are made by the daemon's and the client's own functions; the end to end is in
``tests/system/test_queue_control.py``.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli import following, progress
from ganger.cli.job import job as job_group
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.jobs.job_views import JobInfo
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.client import requests
from ganger.transport.messages import CancelOutcome, JobsSubmitted, PriorityOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RULE = "0f0a9e0c-5d5f-4a39-9d52-3d7a3f1c7b11"
BY_RULE = f"rejected by filter rule {RULE} (priority 4, reason: no delays)"
TRUE = {"OP_ID": "OP_EXEC", "argv": ["true"]}
PLAN = {
    "jobs": [
        {"name": "d", "after": ["a"], "ops": [TRUE]},
        {"name": "a", "ops": [TRUE]},
        {"name": "b", "ops": [TRUE]},
        {"name": "c", "after": ["b"], "ops": [TRUE]},
    ]
}
"""It is submitted as a, d, b, c."""

PARTLY = {
    2: BY_RULE,
    3: "not stored, because it depends on job 2 of the submission, which is rejected",
}
PRINTED = (
    f"ganger: job 'b' is {BY_RULE}\n"
    "ganger: job 'c' is not stored, because it depends on job 'b', which is rejected\n"
)


class JobDaemon:
    """Stands for the client of a daemon."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.rejected: dict[int, str] = {}
        self.refusal: errors.GangerError | None = None
        self.asked: list[dict[str, Any]] = []
        self.known: dict[int, JobInfo] = {}
        self.lost: set[int] = set()

    def submit_many(self, jobs: list[Any], **asked: Any) -> list[int]:
        self.asked.append(asked)
        if self.refusal is not None:
            raise self.refusal
        ids = [] if asked["dry_run"] else self.ids
        return requests.submitted(JobsSubmitted(ids=ids, rejected=self.rejected), len(jobs))

    def job(self, job_id: int) -> JobInfo:
        [found] = self.jobs([job_id])
        return found

    def jobs(self, ids: Iterable[int], **_asked: object) -> Iterator[JobInfo]:
        for job_id in ids:
            if job_id not in self.known:
                raise errors.UnknownJobError(f"there is no job {job_id}")
            yield self.known[job_id]

    def _is_pending(self, job_id: int) -> bool:
        if job_id in self.lost:
            raise errors.DaemonUnreachableError
        info = self.known.get(job_id)
        return info is not None and info.status is JobStatus.QUEUED

    def cancel(self, job_id: int, *, kill: bool) -> CancelOutcome:
        del kill
        if self._is_pending(job_id):
            return CancelOutcome(accepted=True, text=f"Dequeued job {job_id}")
        return CancelOutcome(accepted=False, text=f"Job {job_id} not found in queue")

    def set_priority(self, job_id: int, priority: int) -> PriorityOutcome:
        if self._is_pending(job_id):
            return PriorityOutcome(accepted=True, text=f"Job {job_id} has priority {priority}")
        return PriorityOutcome(accepted=False, text=f"Job {job_id} not found in queue")

    def archive(self, job_id: int) -> None:
        info = self.known.get(job_id)
        if info is None or info.archived:
            raise errors.UnknownJobError(f"there is no live job {job_id}")
        if not info.is_final:
            raise errors.JobStateError(f"job {job_id} has status {info.status}")


@pytest.fixture(name="daemon")
def daemon_behind_the_commands(monkeypatch: pytest.MonkeyPatch) -> JobDaemon:
    daemon = JobDaemon()
    stand_in.use(monkeypatch, daemon)
    return daemon


def run(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["job", *words], standalone_mode=False)


class SlowDaemon(JobDaemon):
    """Answers a submission when the terminal has shown something."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = threading.Event()

    def submit_many(self, jobs: list[Any], **asked: Any) -> list[int]:
        assert self.shown.wait(30)
        return super().submit_many(jobs, **asked)


class SeenTerminal(stand_in.Terminal):
    """Standard error that says when something was written to it."""

    def __init__(self, shown: threading.Event) -> None:
        super().__init__()
        self._shown = shown

    def write(self, text: str) -> int:
        written = super().write(text)
        if "submitting 2 jobs" in self.getvalue():
            self._shown.set()
        return written


def test_a_submission_that_takes_long_says_so_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([[TRUE], [TRUE]]))
    daemon = SlowDaemon()
    daemon.ids = [1, 2]
    stand_in.use(monkeypatch, daemon)
    terminal = SeenTerminal(daemon.shown)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_SHOWN_AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    assert ganger.main(["job", "submit", str(plan)], standalone_mode=False) == 0
    assert capsys.readouterr().out == "1\n2\n"
    # It is gone when the work is done.
    assert terminal.getvalue().endswith("\x1b[2K")


def test_jobs_that_exist_are_shown_beside_ids_that_no_job_has(
    daemon: JobDaemon,
) -> None:
    daemon.known = {job_id: info(job_id, "success") for job_id in (81, 82)}
    for words in (("list",), ("list", "-o", "json"), ("info",), ("info", "-o", "json")):
        done = run(*words, "81", "86", "82")
        assert done.return_value == 1
        shown = done.stdout.replace("Job ID: ", "")
        assert re.findall(r"\b8[126]\b", shown) == ["81", "82"], done.stdout
        assert done.stderr == "ganger: there is no job 86\n"
        alone = run(*words, "86")
        assert (alone.return_value, alone.stdout) == (1, "")
        assert run(*words, "81").return_value == 0


def submit(folder: Path, document: object, *words: str) -> Result:
    (folder / "plan.json").write_text(json.dumps(document))
    return run("submit", str(folder / "plan.json"), *words)


def refusal(done: Result) -> str:
    assert isinstance(done.exception, errors.GangerError), done
    return done.exception.text


# A submission of which a part is rejected.


def test_the_stored_jobs_are_printed_and_each_rejected_one_is_named(
    daemon: JobDaemon, tmp_path: Path
) -> None:
    daemon.ids, daemon.rejected = [11, 12], PARTLY
    done = submit(tmp_path, PLAN)
    assert (done.stdout, done.stderr) == ("11\ta\n12\td\n", PRINTED)
    assert done.return_value == 1


def test_json_names_the_stored_and_the_rejected_jobs(daemon: JobDaemon, tmp_path: Path) -> None:
    daemon.ids, daemon.rejected = [11, 12], PARTLY
    done = submit(tmp_path, PLAN, "-o", "json")
    assert json.loads(done.stdout) == [
        {"id": 11, "name": "a"},
        {"id": 12, "name": "d"},
        {"id": None, "name": "b", "rejected": BY_RULE},
        {
            "id": None,
            "name": "c",
            "rejected": "not stored, because it depends on job 'b', which is rejected",
        },
    ]
    assert (done.stderr, done.return_value) == (PRINTED, 1)


@pytest.mark.parametrize(("ending", "code"), [(0, 1), (1, 1), (130, 130)])
def test_wait_waits_for_what_is_stored_and_fails_all_the_same(
    daemon: JobDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: int, code: int
) -> None:
    waited: list[tuple[object, ...]] = []

    def wait(*asked: object, quiet: bool) -> int:
        assert not quiet
        waited.append(asked[1:])
        return ending

    monkeypatch.setattr(following, "wait", wait)
    daemon.ids, daemon.rejected = [11, 12], PARTLY
    done = submit(tmp_path, PLAN, "--wait", "--timeout", "9")
    assert waited == [([11, 12], 9.0, {11: "a", 12: "d"})]
    assert (done.return_value, done.stderr) == (code, PRINTED)


def test_jobs_without_names_are_named_by_their_places_in_the_file(
    daemon: JobDaemon, tmp_path: Path
) -> None:
    # The first one waits for the second one, so that it is submitted behind it.
    document = {"jobs": [{"after": ["x"], "ops": [TRUE]}, {"name": "x", "ops": [TRUE]}]}
    daemon.ids, daemon.rejected = [7], {1: BY_RULE}
    done = submit(tmp_path, document)
    assert done.stdout == "7\tx\n"
    assert done.stderr == f"ganger: job 0 of the submission is {BY_RULE}\n"


@pytest.mark.parametrize(
    "reason",
    [
        "stop; job 3 is rejected by me",
        f"see; job 1 is {BY_RULE}",
        f"see; job 9 is {BY_RULE}",
        "full; the others have the ids 1, 2",
        "two\nlines",
        "",
    ],
)
def test_each_rejected_job_has_its_line_whatever_the_reason_of_the_rule_contains(
    daemon: JobDaemon, tmp_path: Path, reason: str
) -> None:
    text = f"rejected by filter rule {RULE} (priority 4, reason: {reason})"
    daemon.ids, daemon.rejected = [11, 12], {**PARTLY, 2: text}
    done = submit(tmp_path, PLAN, "-o", "json")
    assert [one.get("rejected") for one in json.loads(done.stdout)][:3] == [None, None, text]
    assert done.stderr == PRINTED.replace(BY_RULE, " ".join(text.split()))


def test_many_stored_ids_hide_no_rejected_job(daemon: JobDaemon, tmp_path: Path) -> None:
    daemon.ids, daemon.rejected = list(range(1, 25)), {3: BY_RULE}
    done = submit(tmp_path, [[TRUE]] * 25)
    assert done.stdout.split() == [str(job_id) for job_id in daemon.ids]
    assert done.stderr == f"ganger: job 3 of the submission is {BY_RULE}\n"


def test_of_a_plan_that_is_rejected_as_a_whole_each_job_is_printed(
    daemon: JobDaemon, tmp_path: Path
) -> None:
    daemon.rejected = {0: BY_RULE, 1: PARTLY[3].replace("2", "0"), 2: BY_RULE, 3: BY_RULE}
    done = submit(tmp_path, PLAN, "--wait")
    assert (done.stdout, done.return_value) == ("", 1)
    assert [line.split()[2] for line in done.stderr.splitlines()] == ["'a'", "'d'", "'b'", "'c'"]
    assert "depends on job 'a', which" in done.stderr


def test_a_single_job_that_is_rejected_needs_no_number(daemon: JobDaemon, tmp_path: Path) -> None:
    daemon.rejected = {0: BY_RULE}
    done = submit(tmp_path, TRUE, "-o", "json")
    assert done.stderr == f"ganger: the job is {BY_RULE}\n"
    assert json.loads(done.stdout) == [{"id": None, "name": None, "rejected": BY_RULE}]
    assert done.return_value == 1


def test_a_dry_run_counts_the_accepted_jobs_and_names_the_others(
    daemon: JobDaemon, tmp_path: Path
) -> None:
    daemon.rejected = PARTLY
    done = submit(tmp_path, PLAN, "--dry-run")
    assert (done.stdout, done.stderr) == ("2 of 4 jobs would be accepted.\n", PRINTED)
    assert done.return_value == 1
    entries = json.loads(submit(tmp_path, PLAN, "--dry-run", "-o", "json").stdout)
    assert [(one["id"], "rejected" in one) for one in entries] == [
        (None, False),
        (None, False),
        (None, True),
        (None, True),
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [(TRUE, "1 job would be accepted.\n"), (PLAN, "4 jobs would be accepted.\n")],
)
def test_a_dry_run_counts_jobs(
    daemon: JobDaemon, tmp_path: Path, document: object, expected: str
) -> None:
    done = submit(tmp_path, document, "--dry-run")
    assert (done.stdout, done.return_value) == (expected, 0)
    assert daemon.asked[0]["dry_run"] is True


# What is refused as a whole.


def test_a_mistake_is_printed_with_the_name_of_its_job(daemon: JobDaemon, tmp_path: Path) -> None:
    daemon.refusal = errors.OpcodeError("job 3 of the submission: unknown opcode 'OP_X'")
    done = submit(tmp_path, PLAN)
    assert refusal(done) == "job 'c': unknown opcode 'OP_X'"
    assert isinstance(done.exception, errors.OpcodeError)


@pytest.mark.parametrize(
    "error",
    [
        errors.OutcomeUnknownError(),
        errors.DeadlineError(),
        errors.RequestFatalError(),
        errors.ComponentRestartedError(),
        errors.ConnectionLostError(),
    ],
)
@pytest.mark.parametrize("options", [(), ("--key", "mine")])
def test_an_unknown_outcome_names_the_key_that_makes_a_repetition_safe(
    daemon: JobDaemon, tmp_path: Path, error: errors.GangerError, options: tuple[str, ...]
) -> None:
    daemon.refusal = error
    done = submit(tmp_path, PLAN, *options, "--dry-run")
    # It leaves nothing behind that a repetition could double.
    assert refusal(done) == error.text
    daemon.asked.clear()
    done = submit(tmp_path, PLAN, *options)
    key = daemon.asked[0]["key"]
    assert refusal(done) == f"{error.text} (to repeat it safely: --key {key})"
    assert type(done.exception) is type(error)
    assert len(key) == 32 if not options else key == "mine"
    daemon.refusal = None
    daemon.ids = [4, 5, 6, 7]
    assert submit(tmp_path, PLAN, "--key", key).return_value == 0
    assert daemon.asked[1]["key"] == key


@pytest.mark.parametrize(
    ("ids", "rejected", "count"),
    [([4, 5], {}, 1), ([4], {}, 3), ([4, 5], {2: BY_RULE}, 1), ([4, 5], {2: BY_RULE}, 2)],
)
def test_the_key_of_another_submission_is_refused(
    daemon: JobDaemon, tmp_path: Path, ids: list[int], rejected: dict[int, str], count: int
) -> None:
    daemon.ids, daemon.rejected = ids, rejected
    line = refusal(submit(tmp_path, [[TRUE]] * count, "--key", "once"))
    shown = ", ".join(map(str, ids))
    assert line == f"key: another submission is stored under it (ids {shown})"


# Requests for jobs.


def info(job_id: int, status: str, *, archived: bool = False) -> JobInfo:
    return JobInfo(id=job_id, status=JobStatus(status), summary="", priority=0, archived=archived)


@pytest.fixture(name="queue")
def daemon_with_jobs(daemon: JobDaemon) -> JobDaemon:
    jobs = [
        info(1, "success"),
        info(2, "error", archived=True),
        info(3, "running"),
        info(4, "queued"),
        info(6, "canceled"),
    ]
    daemon.known = {job.id: job for job in jobs}
    return daemon


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("words", [["cancel"], ["change-priority", "--priority", "3"]])
def test_each_refused_job_has_a_line_with_the_reason(words: list[str]) -> None:
    done = run(*words, "1", "2", "3", "5", "4", "6")
    hint = "; --kill ends it" if words == ["cancel"] else ""
    assert done.stderr.splitlines() == [
        "ganger: Job 1 has ended (success)",
        "ganger: Job 2 has ended (failed) and is archived",
        f"ganger: Job 3 not found in queue: it is running{hint}",
        "ganger: there is no job 5",
        "ganger: Job 6 has ended (canceled)",
    ]
    # What stands behind a refused one is done all the same.
    assert done.stdout in {"Dequeued job 4\n", "Job 4 has priority 3\n"}
    assert done.return_value == 1


@pytest.mark.usefixtures("queue")
def test_accepted_jobs_are_printed_and_no_failure() -> None:
    done = run("cancel", "4")
    assert (done.stdout, done.stderr, done.return_value) == ("Dequeued job 4\n", "", 0)


def test_finished_archivals_are_printed_although_the_daemon_then_goes_away(
    queue: JobDaemon,
) -> None:
    queue.lost = {6}
    done = run("cancel", "4", "6")
    assert done.stdout == "Dequeued job 4\n"
    assert isinstance(done.exception, errors.DaemonUnreachableError)


@pytest.mark.usefixtures("queue")
def test_each_job_that_is_not_archived_has_a_line_and_the_others_are() -> None:
    done = run("archive", "2", "3", "5", "1")
    assert done.stderr.splitlines() == [
        "ganger: Job 2 is in the archive already",
        "ganger: job 3 has status running",
        "ganger: there is no job 5",
    ]
    assert (done.stdout, done.return_value) == ("Job 1 is archived\n", 1)


# The help.


def test_the_list_of_commands_is_cut_nowhere() -> None:
    context = click.Context(job_group, info_name="ganger job", terminal_width=80)
    listing = job_group.get_help(context)
    assert set(job_group.commands) <= set(listing.split())
    assert "..." not in listing.split("Commands:")[1]


def test_the_help_explains_a_batch_of_which_a_part_is_rejected() -> None:
    text = " ".join(run("submit", "--help").stdout.split())
    assert "a filter rule may reject some" in text
    assert "the exit code is 1 even if all others succeed" in text


def test_of_many_canceled_jobs_the_first_have_lines_and_the_rest_a_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = mock.Mock(is_away=False)
    daemon.cancel = lambda job_id, kill: CancelOutcome(  # noqa: ARG005
        accepted=job_id != 7, text=f"Dequeued job {job_id}"
    )
    daemon.job = lambda job_id: info(job_id, "canceled")
    stand_in.use(monkeypatch, daemon)
    ids = [str(one) for one in range(1, 61)]

    def run(*words: str) -> Result:
        return CliRunner().invoke(ganger, ["job", "cancel", *words, *ids], standalone_mode=False)

    done = run()
    lines = done.stdout.splitlines()
    assert len(lines) == 51
    assert lines[-2:] == ["Dequeued job 51", "... and so for 9 more jobs, up to job 60"]
    assert (done.stderr, done.return_value) == ("ganger: Job 7 has ended (canceled)\n", 1)
    assert run("-v").stdout.splitlines()[-1] == "Dequeued job 60"
