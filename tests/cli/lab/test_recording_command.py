"""``ganger queue record``: what it asks a daemon for, and what it writes."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli import stand_in

from ganger.cli import output
from ganger.cli.lab import recording
from ganger.cli.main import ganger, main
from ganger.storage import errors
from ganger.storage.jobs.job_views import JobInfo
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.lab import traces

SECRET = "very-secret"
MAKE = {"OP_ID": "OP_EXEC", "argv": ["make", SECRET], "comment": SECRET}


def stored(job_id: int, **more: Any) -> dict[str, Any]:
    fields = {
        "id": job_id,
        "received_ts": [1_000 + job_id, 500_000],
        "oppriority": [0],
        "ops": [MAKE],
        "opexec": [[1_010, 0]],
        "opend": [[1_012, 250_000]],
    }
    return fields | more


class RecordedDaemon:
    """Stands for the client of a daemon with these jobs."""

    def __init__(self) -> None:
        self.found = {
            1: stored(1),
            2: stored(2, opexec=[None], opend=[None], oppriority=[-4]),
            3: stored(3, ops=[{**MAKE, "depends": [[1, ["success"]]]}]),
            # It is gone meanwhile.
            4: dict.fromkeys(stored(4)) | {"id": 4},
            5: stored(5, ops=[{"OP_ID": "OP_X"}], opexec=[None], opend=[None]),
        }
        self.asked: list[list[Any]] = []
        self.damaged: set[int] = set()

    def jobs(self, *, archived: bool) -> Iterator[JobInfo]:
        assert archived
        for job_id in self.found:
            received = 1_000.0 + job_id
            yield JobInfo(
                id=job_id, status=JobStatus.SUCCESS, summary=SECRET, priority=0, received=received
            )

    def query(self, what: str, fields: tuple[str, ...], wanted: list[Any]) -> Any:
        assert what == "job"
        # All jobs of a long queue are kept: to look at them again and again takes a third longer.
        assert not gc.isenabled()
        ids = [one[2] for one in wanted[1:]]
        self.asked.append(ids)
        for job_id in ids:
            if job_id in self.damaged:
                raise errors.StorageError(f"job-{job_id}: not a job")
        return SimpleNamespace(
            items=[{name: self.found[job_id][name] for name in fields} for job_id in ids]
        )

    def limits(self) -> Any:
        return SimpleNamespace(running_jobs_max=7)


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> RecordedDaemon:
    found = RecordedDaemon()
    stand_in.use(monkeypatch, found)
    monkeypatch.setattr(recording, "_PAGE_JOBS", 2)
    return found


def recorded(*words: str) -> tuple[traces.Trace, str]:
    done = CliRunner().invoke(ganger, ["queue", "record", *words], catch_exceptions=False)
    assert SECRET not in done.stdout
    return traces.read(done.stdout_bytes.splitlines(), "it"), done.stderr


def test_the_jobs_of_the_queue_become_a_trace(daemon: RecordedDaemon) -> None:
    trace, said = recorded()
    assert [(job.id, job.at, job.seconds) for job in trace.jobs] == [
        (1, 0.0, 2.25), (2, 1.0, 2.25), (3, 2.0, 2.25),
    ]  # fmt: skip
    assert [job.priority for job in trace.jobs] == [0, -4, 0]
    assert trace.jobs[2].depends == (1,)
    assert trace.slots == 7
    assert said == "ganger: 1 job left out: nothing says how long they run\n"
    assert daemon.asked == [[1, 2], [3, 4], [5]]
    assert gc.isenabled()


def test_a_recorded_trace_can_be_played() -> None:
    text = CliRunner().invoke(ganger, ["queue", "record"]).stdout
    words = ["queue", "simulate", "--trace", "-", "--policy", "fifo", "-o", "json"]
    shown = CliRunner().invoke(ganger, words, input=text, catch_exceptions=False).stdout
    assert json.loads(shown)["jobs"] == 3


def test_only_jobs_of_the_time_are_recorded(daemon: RecordedDaemon) -> None:
    trace, _ = recorded("--since", "1001", "--until", "1003")
    assert [job.id for job in trace.jobs] == [1, 2]
    assert daemon.asked == [[1, 2]]


@pytest.mark.parametrize("since", [("--since", "-2m"), ("--since=-2m",), ("--since", "2.0m")])
def test_a_span_goes_into_the_past(monkeypatch: pytest.MonkeyPatch, since: tuple[str, ...]) -> None:
    monkeypatch.setattr("time.time", lambda: 1_123.0)
    trace, _ = recorded(*since, "--until", "-119s")
    assert [job.id for job in trace.jobs] == [3]


def test_without_a_standard_output_nothing_is_recorded(
    daemon: RecordedDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "missing", [sys.stdout])
    with pytest.raises(SystemExit) as ended:
        main(["queue", "record"])
    assert ended.value.code == errors.UsageError.exit_code != 0
    assert capsys.readouterr().err == "ganger: standard output: it is closed\n"
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--since", "9", "--until", "8"), "--since: is not before --until"),
        (("--since", "5000"), "there is no job in this time of which a run time is known"),
        (("--since", "tomorrow"), "Invalid value for '--since': 'tomorrow': expected now, -30m"),
        (("--since", "+7d"), "Invalid value for '--since': '+7d': expected now, -30m, -2h, -7d"),
        (("--since", "-1h", "--until", "-2h"), "--since: is not before --until"),
        (("--since", f"-{'9' * 30}d"), "Invalid value for '--since'"),
    ],
)
def test_a_wrong_time_gets_one_line(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["queue", "record", *words])
    shown = capsys.readouterr().err
    assert shown.startswith(f"ganger: {line}")
    assert shown.count("\n") == 1


def test_a_damaged_job_is_named_and_costs_the_trace_nothing_else(daemon: RecordedDaemon) -> None:
    daemon.damaged = {1, 5}
    trace, said = recorded()
    assert [job.id for job in trace.jobs] == [2, 3]
    assert "ganger: left out: job-1: not a job\nganger: left out: job-5: not a job\n" in said
