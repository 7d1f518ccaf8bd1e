"""A daemon in the foreground says what a person wants to know, and a failed start what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.faults.harness import GANGER, Daemon


def test_it_prints_that_it_is_ready_and_that_it_has_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [*GANGER, "--data", str(data), "daemon", "--no-rapi"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == (
            f"The daemon is ready (pid {process.pid}) in {data}; Ctrl-C or `ganger down` ends it\n"
        )
        assert (data / "daemon.json").exists()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "The daemon has stopped; jobs that run go on\n"
        assert not (data / "daemon.json").exists()
    assert process.returncode == 0


def test_no_password_is_made_where_a_file_or_the_journal_would_keep_it(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    kept = tmp_path / "kept"
    foreground = [*GANGER, "--data", str(daemon.data), "daemon"]
    with subprocess.Popen(foreground, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        kept.write_text("".join([*shown, process.stdout.read()]))
    assert "The daemon is ready" in shown[1]
    no_user = "the remote API has no user, because nobody would see the password here"
    assert no_user in kept.read_text()
    assert "Password" not in kept.read_text()
    assert not daemon.places.rapi_users.exists()
    background = [*GANGER, "--data", str(daemon.data), "up"]
    with kept.open("wb") as out:
        done = subprocess.run(background, stdout=out, stderr=subprocess.PIPE, text=True, check=True)
    assert no_user in done.stderr
    assert "Password" not in kept.read_text()
    daemon.run("down")
    # The journal gives each service a socket, and names it.
    ours, theirs = socket.socketpair()
    with ours, theirs:
        status = os.fstat(theirs.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        done = subprocess.run(
            background,
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            env=environment,
        )
        assert no_user in done.stderr
        assert b"Password" not in ours.recv(100_000)
    daemon.run("down")
    # Where somebody may read it, the password is shown, once.
    assert b"Password:   " in subprocess.run(background, capture_output=True, check=True).stdout
    daemon.run("down")
    assert b"Password" not in subprocess.run(background, capture_output=True, check=True).stdout
    daemon.__exit__()


@pytest.mark.parametrize("command", ["daemon", "up"])
@pytest.mark.parametrize("file", ["queue/version", "config.data"])
def test_a_start_that_fails_on_the_directory_names_fsck(
    tmp_path: Path, command: str, file: str
) -> None:
    daemon = Daemon(tmp_path)
    daemon.places.queue.mkdir(parents=True)
    (daemon.data / file).write_text("{")
    done = daemon.run(command, "--no-rapi", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ganger: {daemon.data / file}: ")
    assert done.stderr.endswith(f"; check the directory: ganger --data {daemon.data} fsck\n")


def test_a_start_beside_another_daemon_does_not_name_it(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        done = daemon.run("daemon", "--no-rapi", check=False)
        assert "another daemon uses" in done.stderr
        assert "fsck" not in done.stderr


def test_a_log_that_cannot_be_written_is_the_reason_of_a_failed_start(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.places.log.mkdir(parents=True)
    done = daemon.run("up", "--no-rapi", check=False)
    assert done.returncode == 74
    assert done.stderr.startswith(f"ganger: {daemon.places.log}: Is a directory")
