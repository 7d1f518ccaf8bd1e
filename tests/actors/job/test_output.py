from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.refusals import OneRefusal, refusing

from ganger.actors.job.output import JobOutput
from ganger.storage import errors, settings
from ganger.storage.disk import reserve
from ganger.storage.queue_files import output_blocks
from ganger.storage.queue_files.output_blocks import (
    LIMIT_REACHED,
    NOT_STORED,
    STDERR,
    STDOUT,
    Segment,
)
from ganger.storage.queue_files.output_files import OutputFile

PAUSE = settings.OUTPUT_WRITE_SECONDS


class RefusingFile(OutputFile):
    """A file whose disk refuses when the test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.fspath(path))
        self.refuses = False
        self.appended = self.tried = 0

    def append(self, op_index: int, segments: list[Segment]) -> None:  # type: ignore[override]
        self.tried += 1
        if self.refuses:
            raise errors.StorageError("disk full")
        self.appended += 1
        super().append(op_index, segments)

    def append_mark(self, op_index: int, missing: int) -> None:
        if self.refuses:
            raise errors.StorageError("disk full")
        super().append_mark(op_index, missing)


class OutputStage:
    """A job's output with a clock of its own."""

    def __init__(self, directory: Path, limit: int = 10**9) -> None:
        self.now = 100.0
        self.sent: list[int] = []
        self.logged: list[str] = []
        self.kinds: list[str] = []
        self.path = directory / "job-1-output"
        self.disk = RefusingFile(self.path)
        self.told: list[str] = []
        self.output = JobOutput(
            self.disk, self.sent.append, self._log, lambda: self.now, self.told.append
        )
        self.output.begin(0, limit)

    def _log(self, text: str, kind: str) -> None:
        self.logged.append(text)
        self.kinds.append(kind)

    def wait(self) -> None:
        """Let time pass until something is due, and have it done."""
        self.now = max(self.now, self.output.due())
        self.output.write_if_due()

    def segments(self) -> list[Segment]:
        data = self.path.read_bytes() if self.path.exists() else b""
        found = output_blocks.find_blocks(data, 0)
        return [segment for block in found.blocks for segment in block.segments()]

    def text(self) -> bytes:
        return b"".join(segment.data for segment in self.segments())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[OutputStage]:
    made = OutputStage(tmp_path)
    yield made
    made.output.close()


def test_a_job_without_output_does_nothing(stage: OutputStage) -> None:
    stage.output.write_if_due()
    stage.output.send_size()
    stage.output.end()
    assert not stage.path.exists()
    assert (stage.sent, stage.logged, stage.output.due()) == ([], [], float("inf"))


def test_output_after_a_pause_is_written_and_announced_at_once(stage: OutputStage) -> None:
    stage.output.add(b"one\n", "stdout")
    assert stage.segments() == [Segment(STDOUT, b"one\n")]
    assert stage.output.due() == float("inf")
    stage.now += PAUSE
    stage.output.write_if_due()
    assert stage.sent == [stage.path.stat().st_size]


def test_what_follows_at_once_is_collected_in_the_order_in_which_it_came(
    stage: OutputStage,
) -> None:
    for text, stream in [(b"1", "stdout"), (b"2", "stderr"), (b"3", "stderr"), (b"4", "stdout")]:
        stage.output.add(text, stream)
    assert stage.text() == b"1"
    assert stage.output.due() == pytest.approx(100 + PAUSE)
    stage.wait()
    assert stage.segments()[1:] == [
        Segment(STDERR, b"23"), Segment(STDOUT, b"4"),
    ]  # fmt: skip
    assert (stage.disk.appended, len(stage.sent)) == (2, 2)


def test_a_flood_makes_large_blocks_and_few_words(stage: OutputStage) -> None:
    chunk = os.urandom(64 * 1024)
    for _ in range(64):
        stage.output.add(chunk, "stdout")
        stage.now += PAUSE / 100
    stage.output.end()
    assert stage.text() == chunk * 64
    assert stage.disk.appended <= 2 + 64 * len(chunk) // output_blocks.BLOCK_BYTES
    assert len(stage.sent) <= 2


def test_a_piece_may_be_larger_than_a_block(stage: OutputStage) -> None:
    data = os.urandom(3 * output_blocks.BLOCK_BYTES + 17)
    assert stage.output.add(data, "stderr") == len(data)
    stage.output.end()
    assert stage.text() == data


def test_the_end_writes_the_rest_and_flushes(stage: OutputStage) -> None:
    stage.output.add(b"1", "stdout")
    stage.output.add(b"2", "stdout")
    assert stage.disk.has_unflushed
    stage.output.end()
    assert stage.text() == b"12"
    assert not stage.disk.has_unflushed


def test_above_the_limit_output_is_dropped_and_counted(stage: OutputStage) -> None:
    stage.output.begin(0, 5)
    assert stage.output.add(b"1234", "stdout") == 4
    assert stage.output.add(b"5678", "stderr") == 1
    assert stage.output.add(b"9", "stdout") == 0
    stage.output.end()
    assert stage.segments() == [
        Segment(STDOUT, b"1234"),
        Segment(STDERR, b"5"),
        Segment(LIMIT_REACHED),
        Segment(LIMIT_REACHED, missing=4),
    ]
    assert stage.logged == [
        "Output limit of 5 bytes reached: what follows is dropped",
        "Output limit of 5 bytes: 4 bytes were dropped",
    ]
    assert stage.kinds == ["output", "output"]


@pytest.mark.parametrize("room", [0, 5, 18])
@pytest.mark.parametrize("is_after_a_gap", [False, True])
def test_a_full_block_has_room_for_the_marks_too(
    stage: OutputStage, room: int, *, is_after_a_gap: bool
) -> None:
    stage.output.add(b".", "stdout")
    if is_after_a_gap:
        stage.disk.refuses = True
        stage.output.add(b"lost", "stdout")
        stage.output.end()
        stage.disk.refuses = False
    # As many pieces as a block has segments, or a few less, and together as many bytes.
    count = output_blocks.SEGMENTS_MAX - room
    stage.output.begin(0, output_blocks.BLOCK_BYTES)
    stage.output.add(b"#" * (output_blocks.BLOCK_BYTES - count + 1), "stderr")
    for place in range(count - 1):
        stage.output.add(b"-", ("stdout", "stderr")[place % 2])
    stage.output.add(b"dropped", "stdout")
    stage.output.end()
    segments = stage.segments()
    marked = sum(segment.missing for segment in segments if segment.kind == NOT_STORED)
    lost = 4 * is_after_a_gap
    assert len(stage.text()) + marked == 1 + output_blocks.BLOCK_BYTES + lost
    # Without that room, what was read last goes into a block of its own, or is not kept.
    assert (stage.disk.appended, marked == lost) == ((2, True) if room == 18 else (3, lost == 0))
    assert [one for one in segments if one.kind == LIMIT_REACHED] == [
        Segment(LIMIT_REACHED), Segment(LIMIT_REACHED, missing=7),
    ]  # fmt: skip


def test_the_limit_is_one_of_each_opcode(stage: OutputStage) -> None:
    stage.output.begin(0, 1)
    stage.output.add(b"ab", "stdout")
    stage.output.end()
    stage.output.begin(1, 2)
    stage.output.add(b"cd", "stdout")
    stage.output.end()
    found = output_blocks.find_blocks(stage.path.read_bytes(), 0)
    assert [block.op_index for block in found.blocks] == [0, 0, 1]
    assert stage.text() == b"acd"


def test_the_limit_of_a_job_counts_what_its_earlier_processes_have_stored(tmp_path: Path) -> None:
    for written, kept in ((b"0" * 400, 400), (b"1" * 400, 400), (b"2" * 400, 200), (b"3", 0)):
        process = OutputStage(tmp_path)
        process.output.limit_job(1_000)
        assert process.output.add(written, "stdout") == kept
        process.output.end()
        process.output.close()
    assert process.text() == b"0" * 400 + b"1" * 400 + b"2" * 200
    assert process.logged == [
        "Output limit of 1000 bytes of the whole job reached: what follows is dropped",
        "Output limit of 1000 bytes of the whole job: 1 bytes were dropped",
    ]


def test_another_limit_of_the_job_holds_for_the_opcode_that_runs(stage: OutputStage) -> None:
    stage.output.limit_job(3)
    assert stage.output.add(b"1234", "stdout") == 3
    assert stage.told == [
        "its output is dropped: it has reached the limit of 3 bytes of the whole job"
    ]
    stage.output.limit_job(6)
    assert stage.output.add(b"56", "stdout") == 2
    assert stage.told[1:] == [""]
    stage.output.limit_job(4)
    assert stage.output.add(b"78", "stdout") == 0
    stage.output.end()
    assert stage.segments() == [
        Segment(STDOUT, b"123"),
        Segment(LIMIT_REACHED),
        Segment(LIMIT_REACHED, missing=1),
        Segment(STDOUT, b"56"),
        Segment(LIMIT_REACHED),
        Segment(LIMIT_REACHED, missing=2),
    ]


def test_a_limit_that_changes_often_while_the_disk_refuses_makes_no_block_too_large(
    stage: OutputStage,
) -> None:
    stage.disk.refuses = True
    stage.output.add(b".", "stdout")
    for number in range(output_blocks.SEGMENTS_MAX):
        stage.output.limit_job(number + 1)
        stage.output.add(b"..", "stdout" if number % 2 else "stderr")
    stage.disk.refuses = False
    stage.now += settings.DISK_RETRY_SECONDS
    stage.output.end()
    kept = sum(len(each.data) for each in stage.segments())
    missing = sum(each.missing for each in stage.segments())
    assert kept + missing == 1 + 2 * output_blocks.SEGMENTS_MAX


def test_a_disk_that_refuses_is_asked_again_and_the_gap_is_marked(stage: OutputStage) -> None:
    stage.output.add(b"before", "stdout")
    stage.disk.refuses = True
    stage.now += 1
    kept, lost = b"k" * (output_blocks.BLOCK_BYTES - 10), b"l" * 1_000
    for data in (kept, lost, b"m"):
        assert stage.output.add(data, "stdout") == len(data)
    assert stage.logged == ["Output cannot be stored, which is tried again: disk full"]
    tried_at = stage.now
    for passed, tries in ((settings.DISK_RETRY_SECONDS - 0.25, 0), (0.25, 1)):
        assert stage.output.due() == tried_at + settings.DISK_RETRY_SECONDS
        stage.now = stage.now + passed
        before = stage.disk.tried
        stage.output.add(b"m", "stdout")
        assert stage.disk.tried == before + tries
    stage.disk.refuses = False
    stage.wait()
    stage.output.add(b"after", "stderr")
    stage.output.end()
    assert stage.segments() == [
        Segment(STDOUT, b"before"),
        Segment(STDOUT, kept),
        Segment(NOT_STORED, missing=1_003),
        Segment(STDERR, b"after"),
    ]
    assert len(stage.logged) == 1


def test_a_nearly_full_disk_keeps_the_commands_output_and_takes_the_mark(
    stage: OutputStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.output.add(b"before", "stdout")
    stage.wait()
    monkeypatch.setattr(reserve, "space_at", lambda _: reserve.Space(4 * reserve.BYTES_MIN, 2**22))
    stage.output.add(b"x" * 1_000, "stdout")
    stage.output.end()
    assert stage.segments() == [Segment(STDOUT, b"before"), Segment(NOT_STORED, missing=1_000)]
    assert "the disk is nearly full: the 1024 KiB that are free are kept" in stage.logged[0]
    assert stage.logged[1:] == ["1000 bytes of output could not be stored"]


def test_the_daemon_hears_again_and_again_why_output_is_dropped_and_when_it_is_not(
    stage: OutputStage,
) -> None:
    stage.output.begin(0, 3)
    for seconds in (0.0, 1.0, settings.OUTPUT_DROPPED_SECONDS):
        stage.now += seconds
        stage.output.add(b"more", "stdout")
    limit = "its output is dropped: it has reached the limit of 3 bytes"
    assert stage.told == [limit, limit]
    stage.output.begin(1, 100)
    assert stage.told == [limit, limit, ""]
    stage.disk.refuses = True
    stage.output.add(b"more", "stdout")
    stage.now += settings.DISK_RETRY_SECONDS
    stage.output.write_if_due()
    stage.disk.refuses = False
    stage.now += settings.DISK_RETRY_SECONDS
    stage.output.write_if_due()
    assert stage.told[3:] == ["its output is dropped: disk full", ""]


def test_what_could_never_be_stored_is_counted_in_the_log(stage: OutputStage) -> None:
    stage.disk.refuses = True
    for _ in range(3):
        stage.output.add(b"x" * output_blocks.BLOCK_BYTES, "stdout")
    stage.output.end()
    assert stage.logged[1:] == [
        f"{3 * output_blocks.BLOCK_BYTES} bytes of output could not be stored"
    ]
    # The next opcode's output says what is missing before it.
    stage.disk.refuses = False
    stage.output.begin(1, 100)
    stage.now += 2
    stage.output.add(b"y", "stdout")
    stage.output.end()
    assert stage.segments() == [
        Segment(NOT_STORED, missing=3 * output_blocks.BLOCK_BYTES),
        Segment(STDOUT, b"y"),
    ]


def test_a_refused_flush_is_logged(stage: OutputStage) -> None:
    with refusing("fdatasync", number=errno.EIO):
        stage.output.add(b"x", "stdout")
        stage.output.end()
    [logged] = stage.logged
    assert logged.startswith("Output may not survive a loss of power: ")


def test_each_change_that_the_disk_refuses_once_is_made_later(tmp_path: Path) -> None:
    for place in itertools.count():
        (tmp_path / str(place)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            stage = OutputStage(tmp_path / str(place))
            refusal = OneRefusal(patch, place)
            for op_index in range(3):
                stage.output.begin(op_index, 10**9)
                with refusal.watching():
                    for line in (b"one", b"two", b"three"):
                        stage.output.add(line, "stdout")
                        stage.wait()
                    stage.output.add(b"four", "stderr")
                    stage.output.end()
            # What the last opcode could not flush is flushed with the next one.
            stage.output.end()
            assert (stage.text(), stage.disk.has_unflushed) == (b"onetwothreefour" * 3, False)
            assert refusal.unflushed is None
            stage.wait()
            assert stage.sent[-1] == stage.path.stat().st_size
            assert len(stage.logged) == (refusal.has_come and place > 0)
            stage.output.close()
        if place and not refusal.has_come:
            break
    assert place > 3 * 5


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 200_000)),
        st.sampled_from(["pause", "refuse", "take", "next"]),
    ),
    max_size=30,
)


@hypothesis_settings(max_examples=60)
@given(STEPS, st.integers(0, 600_000))
def test_nothing_is_lost_doubled_or_out_of_order_but_what_is_marked(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | tuple[str, int]], limit: int
) -> None:
    stage = OutputStage(tmp_path_factory.mktemp("output"), limit)
    given_bytes = kept = count = 0
    stream_of = []
    for step in steps:
        if isinstance(step, tuple):
            stream, size = step
            piece = bytes((count + place) % 251 for place in range(min(size, 50))) * (
                size // 50 + 1
            )
            piece = piece[:size]
            taken = stage.output.add(piece, stream)
            kept += taken
            given_bytes += size
            stream_of.append((output_blocks.KINDS[stream], piece[:taken]))
            count += 1
        elif step == "pause":
            if stage.output.due() < float("inf"):
                stage.wait()
        elif step == "next":
            stage.output.end()
            stage.output.begin(1, limit)
        else:
            stage.disk.refuses = step == "refuse"
        stage.now += PAUSE / 3
    stage.disk.refuses = False
    stage.now += 2
    stage.output.end()
    stage.output.close()
    segments = stage.segments()
    stored = sum(len(segment.data) for segment in segments)
    missing = sum(segment.missing for segment in segments if segment.kind == NOT_STORED)
    dropped = sum(segment.missing for segment in segments if segment.kind == LIMIT_REACHED)
    assert stored + missing + stage.output._missing == kept
    # A mark that the disk refused to the end is in the log alone.
    assert dropped == given_bytes - kept or "refuse" in steps
    if not missing and not stage.output._missing:
        for kind in (STDOUT, STDERR):
            wanted = b"".join(data for stream_kind, data in stream_of if stream_kind == kind)
            assert b"".join(s.data for s in segments if s.kind == kind) == wanted
