"""A log without room, or without a reader, costs lines and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import threading

from ganger.actors.supervision.log_writer import LINES_MAX, LogWriter


class Moody(io.StringIO):
    """A stream that refuses until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True
        self.refused = threading.Semaphore(0)

    def write(self, text: str) -> int:
        if self.is_broken:
            self.refused.release()
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_are_written_in_order() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    for number in range(100):
        assert writer.write(f"{number}\n") > 0
    writer.close(10)
    assert stream.getvalue().split() == [str(number) for number in range(100)]


def test_who_waits_finds_all_lines_so_far_in_the_log() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    for number in range(100):
        writer.write(f"{number}\n")
        writer.catch_up(10)
        assert stream.getvalue().endswith(f"{number}\n")
    writer.close(10)


def test_nobody_waits_long_for_a_log_that_cannot_be_written() -> None:
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream, os.fdopen(reader, "rb") as pipe:
        writer = LogWriter(stream)
        writer.write("x" * 1_000_000)
        writer.catch_up(0.05)
        pipe.read(1_000_000)
        writer.close(10)


def test_a_full_disk_costs_lines_which_are_counted_when_it_works_again() -> None:
    stream = Moody()
    writer = LogWriter(stream)
    for _ in range(3):
        writer.write("lost\n")
        assert stream.refused.acquire(timeout=10)
    stream.is_broken = False
    writer.write("kept\n")
    writer.close(10)
    lost, kept = stream.getvalue().splitlines()
    assert lost == '{"event": "3 log lines were lost"}'
    assert kept == "kept"


def test_a_stuck_reader_blocks_no_writer() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    log = LogWriter(stream)
    for _ in range(LINES_MAX + 50):
        # More than the pipe and the queue can hold, without a reader.
        log.write("x" * 100 + "\n")
    log.close(0.01)
    # Now every line fails at once; the thread comes to the end of them.
    os.close(reader)
    log.close(10)
    with contextlib.suppress(BrokenPipeError):
        stream.close()
