"""What is said of a daemon that starts, ends, or does not answer."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest
from click.testing import CliRunner
from tests.cli import stand_in
from tests.cli.stand_in import INFO, RAPI, called
from tests.refusals import GONE, refuse

from ganger.cli import daemon, main, start_report, up
from ganger.storage import errors, settings
from ganger.storage.disk import descriptors, paths
from ganger.transport.messages import RapiState


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

    def interrupted(self, *_: object) -> str:
        """As `start_report.await_word`; Ctrl-C is pressed when the daemon's process is there."""
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
        up._start(paths.places(folder), [])
    (process,) = started
    return process, caught.value


def interrupted(stub: Stub, folder: Path, patch: pytest.MonkeyPatch) -> subprocess.Popen[bytes]:
    patch.setattr(start_report, "await_word", stub.interrupted)
    process, error = start(stub, folder, patch, click.exceptions.Exit)
    assert error.exit_code == 130
    return process


def test_one_start_at_a_time_looks_whether_a_daemon_runs(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    with up._alone(paths.places(tmp_path)), pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


class GoneError(Exception):
    """This process would have been replaced, or ended."""


@pytest.mark.parametrize(("count", "is_last"), [(4, False), (5, True)])
def test_a_daemon_begins_anew_so_often_within_an_hour_and_each_time_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, *, is_last: bool
) -> None:
    """It does so when its log is written; the last time it ends instead, and gives nothing up."""
    done = mock.Mock()
    done.execv.side_effect = done._exit.side_effect = GoneError
    monkeypatch.setattr(descriptors, "set_limit", done.set_limit)
    monkeypatch.setattr(daemon, "end_child_processes", done.end_child_processes)
    monkeypatch.setattr(os, "execv", done.execv)
    monkeypatch.setattr(os, "_exit", done._exit)
    now = time.monotonic()
    earlier = [now - 3601.0, *(now - number for number in range(count))]
    monkeypatch.setenv(daemon.RESTARTS_VARIABLE, " ".join(map(str, earlier)))
    host = mock.Mock(descriptors_before=512, places=paths.places(tmp_path), log=done.log)
    with pytest.raises(GoneError):
        daemon._begin_anew(host, done.writer, "a component hangs")
    names = ["log.critical", "end_child_processes", "writer.close"]
    names += ["_exit"] if is_last else ["set_limit", "execv"]
    assert [call[0] for call in done.mock_calls] == names
    if is_last:
        done._exit.assert_called_once_with(errors.RestartLimitError.exit_code)
        return
    done.set_limit.assert_called_once_with(512)
    known = [float(word) for word in os.environ[daemon.RESTARTS_VARIABLE].split()]
    assert known[:-1] == earlier[1:]
    assert known[-1] >= now


def test_a_signal_that_comes_before_there_is_a_supervisor_stops_the_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    host, watchdog = mock.Mock(), mock.Mock()
    start = mock.Mock(side_effect=lambda *_: handlers[signal.SIGTERM](signal.SIGTERM, None))
    monkeypatch.setattr(daemon, "start", start)
    for told in (2, 0):
        host.directory.tell.reset_mock()
        daemon._supervise(host, mock.Mock(), None, watchdog)
        assert host.directory.tell.call_count == told
        start.side_effect = None
    assert handlers[signal.SIGHUP] is signal.SIG_IGN


def test_the_report_of_a_start_is_given_once_and_its_descriptor_then_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv(start_report.READY_VARIABLE, str(writer))
    announce = start_report.Announcement(paths.places(tmp_path))
    with (tmp_path / "other").open("wb") as other:
        announce.ready()
        # The number is another file's now.
        os.dup2(other.fileno(), writer)
        announce.failed(errors.StorageError("the daemon failed later"))
        os.close(writer)
    with open(reader, "rb") as report:
        assert (report.read(), (tmp_path / "other").read_bytes()) == (b"ready\n", b"")


@pytest.mark.parametrize("number", GONE)
def test_down_takes_a_daemon_that_goes_at_this_moment_for_stopped(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    call = mock.Mock(places=paths.places(tmp_path))
    call.client.side_effect = errors.DaemonUnreachableError
    monkeypatch.setattr(up, "running_pid", lambda _: 4_711)
    refuse(monkeypatch, "pidfd_open", number=number)
    click.Context(up.down, obj=call).invoke(up.down, timeout=1.0)
    assert capsys.readouterr().out == "The daemon has stopped\n"


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
    monkeypatch.setattr(settings, "START_SILENCE_SECONDS", 0.01)
    process, error = start(Stub(tmp_path), tmp_path, monkeypatch, errors.DeadlineError)
    assert error.text == (
        f"the daemon (pid {process.pid}) is still starting, and has told of no progress for "
        f"0.01 s; it goes on; see `ganger --data {tmp_path} status` and {tmp_path}/daemon.log"
    )
    assert process.poll() is None
    session = os.getsid(process.pid)
    process.kill()
    process.wait()
    # No Ctrl-C and no end of a terminal would have ended it.
    assert session == process.pid


def test_a_daemon_that_dies_while_it_starts_is_named_with_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a process that it has started keeps the pipe open."""
    stub = Stub(tmp_path)
    told = "starting reading the queue: 3 of 9 jobs"
    child = f"sleep 600 <&- >&- 2>&- & echo $! > {tmp_path}/child"
    lines = f'echo "{told}" >&${{GANGER_READY_FD%% *}}\n{child}\nkill -KILL $$\n'
    stub.path.write_text(f"#!/bin/bash\n{lines}")
    _, error = start(stub, tmp_path, monkeypatch, errors.OperatorError)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert error.text.startswith(
        "the daemon did not start: it was ended by signal 9 (Killed), while reading the queue: "
        f"3 of 9 jobs; see {tmp_path}/daemon.out, "
    )


def test_a_daemon_that_has_not_opened_its_door_is_stopped_all_the_same(
    silent: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("down") == 0
    assert silent.wait(30) == -signal.SIGTERM
    assert capsys.readouterr().out == "The daemon has stopped\n"


@pytest.mark.usefixtures("silent")
def test_a_daemon_that_does_not_end_in_time_is_not_called_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "pidfd_send_signal", mock.Mock())
    assert called("down", "--timeout", "0.01") == errors.DeadlineError.exit_code
    said = capsys.readouterr()
    assert (said.out, "has not ended in 0.01 s" in said.err) == ("", True)


def test_no_signal_goes_to_a_process_that_does_not_hold_the_queue_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = mock.Mock()
    monkeypatch.setattr(signal, "pidfd_send_signal", send)
    for holder, times in ((2, 0), (None, 0), (1, 1)):
        monkeypatch.setattr(up, "running_pid", mock.Mock(return_value=holder))
        up._ask_by_signal(9, paths.places(tmp_path), 1)
        assert send.call_count == times


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (msgspec.structs.replace(RAPI, is_ready=True), 0),
        (msgspec.structs.replace(RAPI, problem="no usable key"), 70),
        (None, 0),
    ],
)
def test_up_waits_until_the_remote_api_serves_or_says_why_not(
    last: RapiState | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([RAPI, RAPI, last])
    daemon = mock.Mock(is_away=False, info=lambda: msgspec.structs.replace(INFO, rapi=next(states)))
    stand_in.use(monkeypatch, daemon)
    monkeypatch.setattr(up, "running_pid", lambda _: None)
    monkeypatch.setattr(up, "_start", lambda *_: (1, None))
    assert called("up") == code
    assert list(states) == []


@pytest.mark.parametrize("option", ["--rapi-port", "--remote"])
def test_a_port_that_is_taken_ends_the_command_before_a_daemon_starts(
    option: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        value = str(port) if option == "--rapi-port" else f"tcp://127.0.0.1:{port}"
        words = ["--data", str(tmp_path), "up", option, value]
        done = CliRunner().invoke(main.ganger, words, standalone_mode=False)
    assert isinstance(done.exception, errors.OperatorError)
    assert done.exception.text == (
        f"{option}: something else listens at 127.0.0.1, port {port} already; no daemon was started"
    )
    assert not (tmp_path / "daemon.options").exists()
