"""``ganger status --check``: what is OK, a warning and critical, in one line."""

from __future__ import annotations

from typing import Any
from unittest import mock

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli import monitoring, up
from ganger.cli.main import ganger
from ganger.cli.monitoring import CRITICAL, OK, WARNING, Least, Thresholds
from ganger.storage import errors
from ganger.storage.disk.disk_parts import DiskUse
from ganger.transport.messages import ComponentState, DaemonInfo, RapiState, SocketState

GIB = 1024**3
DISK = DiskUse(free=20 * GIB, total=100 * GIB, output=0, archive=0, journal=0)
INFO = DaemonInfo(
    pid=1,
    version="1",
    protocol=1,
    data="/d",
    started=0.0,
    endpoints=[],
    components=[ComponentState(name="job_queue", is_ready=True, restarts=0)],
    counts={"running": 3, "queued": 2, "waiting": 1},
    quarantined=[],
    flushes=0,
    memory={},
    disk=DISK,
)
RAPI = RapiState(address="::", port=1, url="https://x/", is_ready=False, problem="no port")
LUXI = SocketState(protocol="LUXI", path="/l", problem="taken")


def free(number: int) -> dict[str, Any]:
    return {"disk": msgspec.structs.replace(DISK, free=number)}


CASES: list[tuple[dict[str, Any], int, list[str]]] = [
    ({}, OK, []),
    ({"is_read_only": True}, CRITICAL, ["the queue is read-only: the disk refuses writes"]),
    ({"is_disk_full": True}, CRITICAL, ["the disk is full: the queue takes no new jobs"]),
    (
        {"lacks_room": True},
        CRITICAL,
        ["the disk has no room for a new job: the queue takes none"],
    ),
    (
        {"is_disk_full": True, "is_read_only": True},
        CRITICAL,
        ["the queue is read-only: the disk refuses writes"],
    ),
    (
        {"disk": msgspec.structs.replace(DISK, free=928 * 1024, total=6 * 1024**2)},
        WARNING,
        ["there is no room for output of commands: it is dropped"],
    ),
    (
        {"components": [ComponentState(name="scheduler", is_ready=False, restarts=1)]},
        CRITICAL,
        ["not ready: scheduler"],
    ),
    ({"rapi": RAPI}, CRITICAL, ["the remote API is not served: no port"]),
    ({"sockets": [LUXI]}, CRITICAL, ["LUXI is not served: taken"]),
    (free(5 * GIB), OK, []),
    (free(5 * GIB - 1), WARNING, ["5.0 GiB (4%) free, less than 5%"]),
    (free(1 * GIB), WARNING, ["1.0 GiB (1%) free, less than 5%"]),
    (free(1 * GIB - 1), CRITICAL, ["1024.0 MiB (0%) free, less than 1%"]),
    ({"disk": None}, WARNING, ["how much of the disk is free is not known"]),
    ({"is_drained": True}, WARNING, ["the queue is drained: it takes no jobs"]),
    (
        {"output_dropped": dict.fromkeys(range(7, 12), "why")},
        WARNING,
        ["output is dropped: job 7, job 8, job 9 and 2 more"],
    ),
    ({"quarantined": ["job-3: torn"]}, WARNING, ["files that cannot be read: job-3: torn"]),
    (
        {"is_drained": True, "is_read_only": True},
        CRITICAL,
        [
            "the queue is read-only: the disk refuses writes",
            "the queue is drained: it takes no jobs",
        ],
    ),
]


@pytest.mark.parametrize(("changes", "level", "found"), CASES)
def test_the_worst_counts_and_comes_first(
    changes: dict[str, Any], level: int, found: list[str]
) -> None:
    info = msgspec.structs.replace(INFO, **changes)
    assert monitoring.judged(info, Thresholds()) == (level, found)


def test_a_job_that_is_queued_too_long_is_a_warning_if_it_is_asked_for() -> None:
    asked = Thresholds(wait_warn=60.0)
    assert monitoring.judged(INFO, asked, (7, 60.0)) == (OK, [])
    assert monitoring.judged(INFO, asked, None) == (OK, [])
    assert monitoring.judged(INFO, asked, (7, 90.0)) == (
        WARNING,
        ["job 7 has been queued for 1m 30s"],
    )


def test_a_threshold_may_be_a_size() -> None:
    asked = Thresholds(Least(30 * GIB, is_percent=False), Least(10 * GIB, is_percent=False))
    assert monitoring.judged(INFO, asked) == (WARNING, ["20.0 GiB (20%) free, less than 30.0 GiB"])


def run(patch: pytest.MonkeyPatch, daemon: Any, *words: str, pid: int | None = 1) -> Result:
    patch.setattr(up, "running_pid", lambda _: pid)
    stand_in.use(patch, daemon)
    arguments = ["--data", "/nowhere", "status", "--check", *words]
    return CliRunner().invoke(ganger, arguments, standalone_mode=False)


def test_the_command_prints_one_line_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, mock.Mock(is_away=False, info=lambda **_: INFO))
    assert done.stdout == (
        "GANGER OK: 3 running, 3 pending, 20.0 GiB (20%) free | running=3 queued=2 "
        f"free={20 * GIB}B;;;0;{100 * GIB}\n"
    )
    assert done.return_value == OK
    done = run(
        monkeypatch, mock.Mock(is_away=False, info=lambda **_: INFO), "--disk-free-warn", "25%"
    )
    assert done.stdout.startswith("GANGER WARNING: 20.0 GiB (20%) free, less than 25% | ")
    assert done.return_value == WARNING


def test_without_a_daemon_or_an_answer_it_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, mock.Mock(), pid=None)
    assert (done.stdout, done.return_value) == (
        "GANGER CRITICAL: no daemon runs in /nowhere\n",
        CRITICAL,
    )
    done = run(monkeypatch, mock.Mock(is_away=True))
    assert done.stdout.startswith("GANGER CRITICAL: the daemon (pid 1) in /nowhere does not answer")
    assert done.return_value == CRITICAL


def test_what_cannot_be_found_out_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = mock.Mock(is_away=False, info=mock.Mock(side_effect=errors.NotAllowedError("no")))
    done = run(monkeypatch, refusing)
    assert (done.stdout, done.return_value) == ("GANGER UNKNOWN: no\n", monitoring.UNKNOWN)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--disk-free-warn", "101%"], "expected at most 100%, got '101%'"),
        (["--disk-free-critical", "some"], "expected a number with K, M, G or T"),
        (["--wait-warn", "long"], "expected a time such as"),
        (["--nonsense"], "No such option"),
        (
            ["--disk-free-warn", "2%", "--disk-free-critical", "5%"],
            "--disk-free-warn: 2% is less than what is critical, 5%",
        ),
        (
            ["--disk-free-warn", "1M", "--disk-free-critical", "1G"],
            "--disk-free-warn: 1.0 MiB is less than what is critical, 1.0 GiB",
        ),
    ],
)
def test_a_wrong_threshold_is_one_line_and_no_alarm(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(monkeypatch, mock.Mock(), *words)
    assert done.stdout.startswith("GANGER UNKNOWN: ")
    assert text in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.return_value == monitoring.UNKNOWN


def test_without_check_a_wrong_threshold_is_an_error_of_usage() -> None:
    words = ["status", "--disk-free-warn", "x"]
    done = CliRunner().invoke(ganger, words, standalone_mode=False)
    assert isinstance(done.exception, click.UsageError)
