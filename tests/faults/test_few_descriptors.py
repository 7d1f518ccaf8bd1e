"""A daemon that may open few files, with crowds of clients: it serves, or says what it needs."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.faults.harness import Daemon

from ganger import JobStatus
from ganger.storage import errors, settings

if TYPE_CHECKING:
    from pathlib import Path

CROWD_SECONDS = 1.0
TRUE = {"OP_ID": "OP_EXEC", "argv": ["true"]}


@pytest.mark.parametrize(
    ("count", "options", "needed"),
    [(64, (), 128), (1_024, ("--remote", "tcp://127.0.0.1:*"), 4_096)],
)
def test_a_daemon_that_may_open_too_few_files_does_not_start(
    tmp_path: Path, count: int, options: tuple[str, ...], needed: int
) -> None:
    daemon = Daemon(tmp_path, *options, files_max=count)
    refused = daemon.run("up", "--no-rapi", *options, check=False)
    assert refused.returncode == errors.OperatorError.exit_code
    assert f"only {count} files may be open" in refused.stderr
    assert str(needed) in refused.stderr


@pytest.mark.parametrize(
    ("count", "door"), [(128, "socket"), (256, "socket"), (128, "wconfd_socket")]
)
def test_a_local_crowd_does_not_end_a_daemon_that_may_open_few_files(
    tmp_path: Path, count: int, door: str
) -> None:
    with Daemon(tmp_path, files_max=count) as daemon, ExitStack() as stack:
        pid = daemon.pid()
        end = time.monotonic() + CROWD_SECONDS
        came = 0
        while time.monotonic() < end:
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            if raw.connect_ex(str(getattr(daemon.places, door))) == 0:
                stack.enter_context(raw)
                came += 1
            else:
                raw.close()
        assert came > 10, "there was no crowd"
        with daemon.client() as client:
            job_id = client.submit(TRUE, timeout=60)
            [job] = client.wait(job_id, timeout=60)
            info = client.info()
        assert job.status is JobStatus.SUCCESS
        assert info.pid == pid
        assert not info.is_read_only
        assert {part.restarts for part in info.components} == {0}


def test_run_slots_for_which_there_are_too_few_files_are_refused(tmp_path: Path) -> None:
    with Daemon(tmp_path, files_max=256) as daemon, daemon.client() as client:
        with pytest.raises(errors.BadRequestError, match=r"200 run slots: .* 256 files"):
            client.limits(running=200)
        assert client.limits().running_jobs_max == settings.RUNNING_JOBS_MAX


def test_run_slots_configured_for_more_files_are_fewer_and_shown_in_the_status(
    tmp_path: Path,
) -> None:
    with Daemon(tmp_path) as daemon, daemon.client() as client:
        client.limits(running=200)
        daemon.run("down")
    with Daemon(tmp_path, files_max=256) as daemon, daemon.client() as client:
        limits = client.limits()
        assert limits.running_jobs_max == 200
        assert limits.running_jobs_possible is not None
        assert limits.running_jobs_possible < 80
        status = daemon.run("status")
        expected = f"FEWER RUN SLOTS: {limits.running_jobs_possible} instead of 200"
        assert expected in status.stdout
        wait = {"OP_ID": "OP_TEST_DELAY", "duration": 600}
        ids = client.submit_many([[wait]] * 100)
        text = f"all {limits.running_jobs_possible} run slots are taken"
        assert text in str(client.explain(ids[-1]))


def test_commands_of_jobs_get_the_limit_that_the_daemon_was_started_with(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Other tests of this process may have left some open.
    few = min(soft, 300 + max(map(int, os.listdir("/proc/self/fd"))))
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        with Daemon(tmp_path) as daemon, daemon.client() as client:
            job_id = client.submit(
                {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", f"ulimit -n > {tmp_path}/limit"]}
            )
            [job] = client.wait(job_id, timeout=60)
            with contextlib.suppress(PermissionError):
                raised, _ = resource.prlimit(daemon.pid(), resource.RLIMIT_NOFILE)
                assert raised == min(hard, settings.DESCRIPTORS_MAX)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert job.status is JobStatus.SUCCESS
    assert (tmp_path / "limit").read_text().strip() == str(few)
