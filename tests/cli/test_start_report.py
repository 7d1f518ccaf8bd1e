"""What a daemon that starts tells through its pipe, and how long ``ganger up`` listens."""

from __future__ import annotations

import fcntl
import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.stand_in import Terminal

from ganger.cli import start_report
from ganger.cli.start_report import Announcement, NotReady, Progress, Seldom
from ganger.storage import errors, settings
from ganger.storage.disk import paths


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Start:
    """Both ends of a daemon's pipe, and an end of its process that a test decides."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.process, self._life = os.pipe()

    def tell(self, text: str) -> None:
        os.write(self.writer, text.encode())

    def end(self) -> None:
        os.close(self._life)
        self._life = -1

    def announcement(self, patch: pytest.MonkeyPatch, clock: Clock, suffix: str) -> Announcement:
        # The announcement closes its own descriptor.
        patch.setenv(start_report.READY_VARIABLE, f"{os.dup(self.writer)}{suffix}")
        return Announcement(paths.places(Path("/data")), clock)

    def written(self) -> str:
        if not select.select([self.reader], [], [], 0)[0]:
            return ""
        return os.read(self.reader, 100_000).decode()

    def close(self) -> None:
        for descriptor in (self.reader, self.writer, self.process, self._life):
            if descriptor >= 0:
                os.close(descriptor)
        self.reader = self.writer = self.process = self._life = -1


@pytest.fixture(name="start")
def pipe() -> Iterator[Start]:
    start = Start()
    yield start
    start.close()


def test_what_happens_often_is_told_seldom() -> None:
    clock = Clock()
    seldom = Seldom(5.0, 15.0, clock)
    told = []
    for second in range(45):
        clock.now = 100.0 + second
        told += [second] if seldom.is_due() else []
    assert told == [5, 20, 35]


def test_a_start_tells_its_progress_now_and_then_and_its_last_word_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    announce = start.announcement(monkeypatch, clock, start_report.WITH_PROGRESS)
    announce.progress("reading the queue", 0, 1_000_000)
    assert start.written() == ""
    for count in (1_000, 340_000, 341_000):
        clock.now += 0.4
        announce.progress("reading the queue", count, 1_000_000)
    assert start.written() == "starting reading the queue: 340,000 of 1,000,000 jobs\n"
    clock.now += 1.0
    announce.progress("starting the scheduler")
    announce.ready()
    clock.now += 1.0
    announce.progress("too late")
    assert start.written() == "starting starting the scheduler\nready\n"


def test_no_progress_goes_to_a_program_that_waits_for_the_last_word_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    announce = start.announcement(monkeypatch, clock, "")
    clock.now += 60.0
    announce.progress("reading the queue", 1, 2)
    announce.failed(errors.StorageError("the disk is full"))
    assert start.written() == f"{errors.StorageError.exit_code} the disk is full\n"


def test_a_start_goes_on_when_nobody_reads_what_it_tells(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    announce = start.announcement(monkeypatch, clock, start_report.WITH_PROGRESS)
    start.tell("x" * fcntl.fcntl(start.writer, fcntl.F_GETPIPE_SZ))
    clock.now += 1.0
    announce.progress("reading the queue", 1, 2)
    assert "starting" not in start.written()
    os.close(start.reader)
    start.reader = -1
    clock.now += 1.0
    announce.progress("reading the queue", 2, 2)
    announce.ready()


def test_a_daemon_in_the_foreground_shows_its_progress_seldom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(start_report.READY_VARIABLE, raising=False)
    clock = Clock()
    announce = Announcement(paths.places(Path("/data")), clock)
    announce.log = mock.Mock()
    for second in range(21):
        clock.now = 100.0 + second
        announce.progress("reading the queue", second, 30)
    assert capsys.readouterr().out == (
        "Starting: reading the queue: 5 of 30 jobs\nStarting: reading the queue: 20 of 30 jobs\n"
    )
    lines = ["reading the queue: 5 of 30 jobs", "reading the queue: 20 of 30 jobs"]
    assert announce.log.info.mock_calls == [mock.call("starting", doing=line) for line in lines]


def test_the_last_word_follows_the_progress(start: Start) -> None:
    start.tell("starting reading the queue: 1 of 2 jobs\nstar")
    start.tell("ting starting the scheduler\nrea")
    start.tell('dy {"name": "admin"}\n')
    os.close(start.writer)
    start.writer = -1
    progress = Progress()
    assert start_report.await_word(start.reader, start.process, None, progress) == (
        'ready {"name": "admin"}'
    )
    assert progress.last == "starting the scheduler"


@pytest.mark.parametrize("told", ["", "starting reading the que"])
def test_a_daemon_that_has_ended_has_no_word_though_the_pipe_is_open(
    start: Start, told: str
) -> None:
    start.tell(told)
    start.end()
    assert start_report.await_word(start.reader, start.process) == ""


def test_a_limit_holds_though_there_is_progress(start: Start) -> None:
    start.tell("starting reading the queue: 1 of 2 jobs\n")
    with pytest.raises(NotReady, match=r"^was not ready within 0.01 s$"):
        start_report.await_word(start.reader, start.process, 0.01)


def test_progress_prolongs_the_wait_and_the_same_words_again_do_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that each look at the pipe sets forward by half of what a daemon may be silent."""
    clock, said = Clock(), [f"starting step {number}\n" for number in (1, 2, 3, 4, 4, 4, 4)]

    class Poll:
        def register(self, *_: object) -> None: ...

        def poll(self, _milliseconds: int) -> list[tuple[int, int]]:
            clock.now += settings.START_SILENCE_SECONDS / 2
            start.tell(said.pop(0))
            return [(start.reader, select.POLLIN)]

    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(time, "monotonic", clock)
    with pytest.raises(NotReady, match=r"^has told of no progress for 60 s$"):
        start_report.await_word(start.reader, start.process)
    # Six looks: four times something new, and twice, for all of the time, the same.
    assert len(said) == 1


def shown(patch: pytest.MonkeyPatch, stream: io.StringIO, tell: Callable[[Progress], None]) -> str:
    patch.setattr(sys, "stderr", stream)
    clock = Clock()
    progress = Progress(clock)
    for second in range(22):
        clock.now = 100.0 + second
        progress.note(f"step {second}")
        progress.show()
    tell(progress)
    return stream.getvalue()


def test_a_pipe_gets_a_line_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO(), Progress.clear) == (
        "ganger: starting: step 5\nganger: starting: step 20\n"
    )


def test_a_terminal_gets_one_line_that_is_refreshed_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = shown(monkeypatch, Terminal(), Progress.clear)
    begin = "\r\x1b[K"
    lines = [f"ganger: starting: step {second}" for second in range(2, 22)]
    assert written == "".join(begin + line for line in lines) + begin
    assert "\n" not in written


def test_a_daemon_sends_no_control_characters_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell(progress: Progress) -> None:
        progress.note("\x1b]0;title")
        progress.show()

    assert "]0;title" in (found := shown(monkeypatch, Terminal(), tell))
    assert "\x1b]" not in found
