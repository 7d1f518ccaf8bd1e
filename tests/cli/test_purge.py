"""``ganger job purge``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.transport.client.purges import PurgedJobs


class Purger:
    """Stands for the client of a daemon."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.found = PurgedJobs({17: 4096, 18: 3 * 1024**3})
        self.error: BaseException | None = None

    def purge(self, ids: Any, progress: Callable[[PurgedJobs], None], **asked: Any) -> PurgedJobs:
        self.asked.append((ids, asked))
        progress(self.found)
        if self.error is not None:
            raise self.error
        return self.found


@pytest.fixture(name="daemon")
def daemon_behind_the_command(monkeypatch: pytest.MonkeyPatch) -> Purger:
    daemon = Purger()
    stand_in.use(monkeypatch, daemon)
    return daemon


def run(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["job", "purge", *words], standalone_mode=False)


def test_named_jobs_have_a_line_each(daemon: Purger) -> None:
    done = run("17", "18")
    assert done.stdout.splitlines() == [
        "Job 17 is purged: 4.0 KiB",
        "Job 18 is purged: 3.0 GiB",
        "2 jobs purged; 3.0 GiB freed",
    ]
    assert done.return_value == 0
    assert daemon.asked == [([17, 18], {"older_than": None, "larger_than": 0, "dry_run": False})]


def test_jobs_that_an_option_finds_are_counted(daemon: Purger) -> None:
    assert run("--older-than", "7d", "--larger-than", "1.5K").stdout == (
        "2 jobs purged; 3.0 GiB freed\n"
    )
    wanted = {"older_than": 604_800.0, "larger_than": 1536, "dry_run": False}
    assert daemon.asked == [(None, wanted)]


def test_a_dry_run_says_would(daemon: Purger) -> None:
    assert run("--older-than", "all", "--dry-run").stdout.splitlines() == [
        "Job 17 would be purged: 4.0 KiB",
        "Job 18 would be purged: 3.0 GiB",
        "2 jobs would be purged; 3.0 GiB would be freed",
    ]
    assert daemon.asked[0][1]["dry_run"]


def test_a_job_that_stays_makes_the_exit_code_and_says_why(daemon: Purger) -> None:
    daemon.found = PurgedJobs({}, {9: "there is no job 9"})
    done = run("9")
    assert (done.stderr, done.return_value) == ("ganger: there is no job 9\n", 1)
    assert done.stdout == "0 jobs purged; 0 bytes freed\n"


@pytest.mark.usefixtures("daemon")
def test_json_has_bytes() -> None:
    assert json.loads(run("17", "-o", "json").stdout) == {
        "dry_run": False,
        "freed_bytes": 3 * 1024**3 + 4096,
        "jobs": [{"id": 17, "bytes": 4096}, {"id": 18, "bytes": 3 * 1024**3}],
        "left_out": [],
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give IDS, --older-than or --larger-than"),
        (["--larger-than", "0"], "--larger-than: expected more than 0"),
        (["--larger-than", "lots"], "expected a number with K, M, G or T, such as 200M"),
        (["--larger-than", "9999999T"], "expected less than 8 million T"),
        (["--older-than", "soon"], "expected a time such as 90, 30m, 2h or 7d, or all"),
        (["1_000"], "expected the id or the name of a job"),
    ],
)
def test_a_wrong_argument_is_one_line(daemon: Purger, words: list[str], text: str) -> None:
    assert text in str(run(*words).exception)
    assert daemon.asked == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), errors.DaemonUnreachableError("gone")])
def test_a_purge_that_is_cut_short_says_what_has_gone(daemon: Purger, error: BaseException) -> None:
    daemon.error = error
    done = run("--older-than", "all")
    assert done.stderr.rstrip() == "ganger: before it ended: 2 jobs purged; 3.0 GiB freed"
    assert isinstance(done.exception, errors.DaemonUnreachableError | click.Abort)
    assert run("--older-than", "all", "--dry-run").stderr.strip() == ""
