"""``ganger queue limit``: what jobs may take of the disk."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.disk.disk_parts import DiskLimits
from ganger.transport.client import requests
from ganger.transport.messages import LimitsRead, ReadLimits, SetLimits

GIB = 1024**3


class Limited:
    """Stands for the client of a daemon."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.disk = DiskLimits()

    def limits(self, **asked: Any) -> LimitsRead:
        self.asked.append(asked)
        return LimitsRead(20, 25, disk=self.disk)


@pytest.fixture(name="daemon")
def daemon_behind_the_command(monkeypatch: pytest.MonkeyPatch) -> Limited:
    daemon = Limited()
    stand_in.use(monkeypatch, daemon)
    return daemon


def run(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["queue", "limit", *words], standalone_mode=False)


def test_the_limits_are_shown(daemon: Limited) -> None:
    assert run().stdout.splitlines() == [
        "Run slots: 20 (tracked jobs: 25)",
        "Output: 1.0 GiB of each job, no limit in all",
        "Ended jobs are kept until they are purged",
    ]
    daemon.disk = DiskLimits(output_bytes=20 * GIB, keep_seconds=86_400.0, keep_bytes=GIB)
    assert run().stdout.splitlines()[1:] == [
        "Output: 1.0 GiB of each job, 20.0 GiB in all",
        "Ended jobs are kept for 1d 0h, up to 1.0 GiB",
    ]
    assert daemon.asked == [{}, {}]


def test_those_that_are_given_are_changed(daemon: Limited) -> None:
    run("--output-per-job", "1M", "--output-in-all", "none", "--keep-for", "2h", "--key", "k")
    run("--keep-for", "none", "--keep-size", "3K", "--key", "k")
    assert [asked["disk"] for asked in daemon.asked] == [
        {"output_job_bytes": 1024**2, "output_bytes": 0, "keep_seconds": 7_200.0},
        {"keep_seconds": 0.0, "keep_bytes": 3_072},
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--output-per-job", "0"], "expected more than 0 bytes"),
        (["--output-per-job", "none"], "expected a number with K, M, G or T"),
        (["--output-in-all", "-1"], "expected a number with K, M, G or T"),
        (["--keep-for", "ever"], "expected a time such as 90, 30m, 2h or 7d or none"),
        (["--keep-size", "much"], "expected a number with K, M, G or T"),
    ],
)
def test_a_wrong_limit_is_one_line(daemon: Limited, words: list[str], text: str) -> None:
    assert text in str(run(*words).exception)
    assert daemon.asked == []


def test_the_library_checks_limits_before_it_sends_them() -> None:
    assert isinstance(requests.limits(None, None), ReadLimits)
    sent = requests.limits(None, None, "k", {"keep_seconds": 5, "output_job_bytes": 7})
    assert sent == SetLimits(keep_seconds=5.0, output_job_bytes=7, request="k")
    for disk, text in (
        ({"keep": 5}, "disk: 'keep' is no limit; these are: output_job_bytes"),
        ({"keep_seconds": -1}, "disk: Expected `float` >= 0.0 - at `$.keep_seconds`"),
        ({"output_job_bytes": 0}, "disk: Expected `int` >= 1 - at `$.output_job_bytes`"),
        ({"keep_bytes": "x"}, "disk: Expected `int | null`, got `str` - at `$.keep_bytes`"),
    ):
        with pytest.raises(errors.BadRequestError) as caught:
            requests.limits(None, None, "k", disk)  # type: ignore[arg-type]
        assert caught.value.text.startswith(text)
