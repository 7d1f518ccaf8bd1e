"""What the executor believes about processes, with real ones that do nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from ganger.actors import executor
from ganger.actors.watching import Phase
from ganger.transport import messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = 22
HOLD = (
    "import sys, time; from ganger.storage import lock_files; "
    "print(lock_files.create(sys.argv[1], 'job_B').path, flush=True); sys.stdin.read()"
)


class Address:
    def __init__(self, name: str, told: list[tuple[str, Any]]) -> None:
        self._name = name
        self._told = told

    def notify(self, message: Any) -> None:
        self._told.append((self._name, message))

    def tell(self, envelope: Any) -> None:
        self._told.append((self._name, envelope.message))


class Subject(executor.Executor):
    """An executor whose mailbox and fork servers are not there."""

    mailbox = mock.Mock()
    log = mock.Mock()

    def __init__(self, folder: Path) -> None:
        self.told: list[tuple[str, Any]] = []
        self._children = {}
        self._by_descriptor = {}
        self._attachments = {}
        self._servers = {}
        self._places = types.SimpleNamespace(lock_files=folder)

    @property
    def places(self) -> Any:
        return self._places

    def address(self, name: str) -> Any:
        return Address(name, self.told)


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    subject = Subject(tmp_path)
    with mock.patch("ganger.actors.executor.subprocess.Popen"):
        yield subject
    for child in list(subject._children.values()):
        subject._forget_descriptors(child)
    for _, end in subject._servers.values():
        end.close()


class Process:
    """A process that holds a lock file until it is ended."""

    def __init__(self, folder: Path) -> None:
        self._process = REAL_POPEN(
            [sys.executable, "-c", HOLD, os.fspath(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.lock_file = self._process.stdout.readline().strip()
        self.pid = self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


REAL_POPEN = subprocess.Popen


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.end()


def hello(process: Process) -> messages.JobHello:
    return messages.JobHello(job_id=JOB, lock_file=process.lock_file, process_id=process.pid)


def kill_server(subject: Subject) -> None:
    [(server, end)] = subject._servers.values()
    subject._lose_server("lean", server, end)


def watched_pid(subject: Subject) -> int:
    with open(f"/proc/self/fdinfo/{subject._children[JOB].pidfd}", encoding="utf-8") as file:
        return int(file.read().split("Pid:")[1].split()[0])


def test_after_the_death_of_a_fork_server_the_second_process_is_watched_not_the_first(
    subject: Subject, process: Process
) -> None:
    first = REAL_POPEN(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)
    subject._note_process(JOB, first.pid, os.pidfd_open(first.pid))
    kill_server(subject)
    subject._start_server("lean")
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
    subject._greet(hello(process))
    first.communicate()
    assert watched_pid(subject) == process.pid


def test_a_process_of_which_the_dead_server_never_told_is_found_by_its_lock_file(
    subject: Subject, process: Process
) -> None:
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)
    subject._greet(hello(process))
    assert subject._children[JOB].pidfd == -1
    kill_server(subject)
    assert watched_pid(subject) == process.pid


def test_a_greeting_after_the_death_of_the_server_is_watched_too(
    subject: Subject, process: Process
) -> None:
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)
    kill_server(subject)
    subject._greet(hello(process))
    assert watched_pid(subject) == process.pid


def test_an_end_is_not_believed_while_the_lock_file_is_held(
    subject: Subject, process: Process
) -> None:
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)
    subject._greet(hello(process))
    stranger = REAL_POPEN(["true"])
    subject._note_process(JOB, stranger.pid, os.pidfd_open(stranger.pid))
    stranger.wait()
    subject.told.clear()
    subject._take_end(subject._children[JOB])
    assert subject.told == []
    assert os.path.exists(process.lock_file)
    assert watched_pid(subject) == process.pid


def test_a_real_end_is_told_to_the_lock_manager_and_the_queue(
    subject: Subject, process: Process
) -> None:
    subject._start_server("lean")
    subject._start(JOB, needs_user_opcodes=False)
    subject._greet(hello(process))
    subject._note_process(JOB, process.pid, os.pidfd_open(process.pid))
    subject._children[JOB].phase = Phase.CONFIRMED
    process.end()
    subject.told.clear()
    subject._take_end(subject._children[JOB])
    assert subject.told == [
        ("lock_manager", messages.OwnerEnded(lock_file=process.lock_file)),
        (
            "job_queue",
            messages.JobExited(job_id=JOB, lock_file=process.lock_file, has_left=False),
        ),
    ]
    assert not os.path.exists(process.lock_file)
    assert JOB not in subject._children
