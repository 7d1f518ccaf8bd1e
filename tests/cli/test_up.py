"""What is said of a daemon that starts, ends, or does not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest
from tests.cli import stand_in

from ganger.cli import daemon, main, up
from ganger.storage import descriptors, errors, settings
from ganger.transport.messages import DaemonInfo

INFO = DaemonInfo(
    pid=1,
    version="1",
    protocol=1,
    data="/data",
    started=0.0,
    endpoints=[],
    components=[],
    counts={"running": 1},
    quarantined=[],
    flushes=0,
    memory={},
)


class Stub:
    """Stands for the program of a daemon: it waits for its end, and says nothing before."""

    def __init__(self, folder: Path, trap: str = "") -> None:
        os.mkfifo(folder / "never")
        os.mkfifo(folder / "began")
        self.path = folder / "python"
        text = f"#!/bin/sh\n{trap}\necho > {folder}/began\nread line < {folder}/never\n"
        self.path.write_text(text)
        self.path.chmod(0o755)
        self._began = folder / "began"

    def interrupted(self, _reader: int) -> str:
        """As `up._word`, when the user presses Ctrl-C as soon as the daemon's process is there."""
        self._began.read_text()
        raise KeyboardInterrupt


def start(
    stub: Stub, folder: Path, patch: pytest.MonkeyPatch, expected: type[Exception]
) -> tuple[subprocess.Popen[bytes], Any]:
    """Start the stub as a daemon, which fails; its process and the error."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    patch.setattr(sys, "executable", str(stub.path))
    patch.setattr(subprocess, "Popen", Noted)
    with pytest.raises(expected) as caught:
        up._start(settings.places(folder), [])
    (process,) = started
    return process, caught.value


def interrupted(stub: Stub, folder: Path, patch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    patch.setattr(up, "_word", stub.interrupted)
    process, error = start(stub, folder, patch, click.exceptions.Exit)
    assert error.exit_code == 130
    return process


def test_a_daemon_that_begins_anew_has_the_limit_of_descriptors_of_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[int] = []
    monkeypatch.setattr(descriptors, "set_limit", limits.append)
    monkeypatch.setattr(daemon, "end_fork_servers", lambda: None)
    monkeypatch.setattr(os, "execv", lambda *_: limits.append(-1))
    monkeypatch.setenv(daemon.RESTARTS_VARIABLE, "")
    daemon._begin_anew(mock.Mock(), "a component hangs", 512)
    assert limits == [512, -1]


def test_an_interrupted_start_leaves_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = interrupted(Stub(tmp_path), tmp_path, monkeypatch)
    assert process.returncode == -signal.SIGTERM
    assert capsys.readouterr().err == f"\nganger: interrupted; no daemon runs in {tmp_path}\n"


def test_a_daemon_that_is_left_by_an_interrupted_start_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "STOP_SECONDS", 0.01)
    process = interrupted(Stub(tmp_path, trap="trap '' TERM"), tmp_path, monkeypatch)
    assert capsys.readouterr().err == (
        f"\nganger: interrupted; the daemon (pid {process.pid}) still starts; "
        f"end it with `ganger --data {tmp_path} down`\n"
    )
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_start_that_takes_too_long_is_reported_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "START_SECONDS", 0.01)
    process, error = start(Stub(tmp_path), tmp_path, monkeypatch, errors.DeadlineError)
    assert f"the daemon (pid {process.pid}) is still starting" in error.text
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.fixture(name="silent")
def process_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the queue while no daemon answers."""

    class Away:
        is_away = True

    with subprocess.Popen(["sleep", "600"]) as process:
        stand_in.use(monkeypatch, Away())
        monkeypatch.setattr(up, "_running_pid", lambda _: process.pid)
        yield process
        process.kill()


def called(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["--data", "/data", *words])
    return int(caught.value.code or 0)


def test_status_does_not_say_that_no_daemon_runs_when_one_does_not_answer(
    silent: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("status") == 1
    text = f"the daemon (pid {silent.pid}) in /data does not answer: it starts or ends, or hangs"
    assert text in capsys.readouterr().err


def test_a_daemon_that_has_not_opened_its_door_is_stopped_all_the_same(
    silent: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("down") == 0
    assert silent.wait(30) == -signal.SIGTERM
    assert capsys.readouterr().out == "The daemon has stopped\n"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "open"),
        ({"is_drained": True}, "drained: it takes no jobs"),
        ({"is_read_only": True}, "READ-ONLY: the disk refuses writes; no changes are taken"),
        (
            {"is_read_only": True, "is_drained": True},
            "READ-ONLY: the disk refuses writes; no changes are taken; drained: it takes no jobs",
        ),
    ],
)
def test_status_and_queue_info_say_whether_the_queue_takes_jobs(
    changes: dict[str, bool], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    info = msgspec.structs.replace(INFO, **changes)
    assert up.queue_state(info) == expected
    up._show(info, "table")
    assert f"Queue:      {expected}\n" in capsys.readouterr().out


def test_status_names_opcodes_that_could_not_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "package x: opcode 'y' (x:Y) cannot be loaded: ModuleNotFoundError: z"
    up._show(msgspec.structs.replace(INFO, opcode_problems=[problem]), "table")
    assert f"Not loaded: {problem}\n" in capsys.readouterr().out
