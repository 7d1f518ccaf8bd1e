"""What a job has logged comes where the marks in its output say, each entry once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganger.storage.jobs.job_views import JobInfo, LogLine, OpInfo, OutputChunk
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport.client.placed_log import PlacedLog


def line(serial: int, op_index: int = 0, kind: str = "message") -> LogLine:
    text = f"{kind} {serial}"
    return LogLine(job_id=1, op_index=op_index, serial=serial, time=0.0, kind=kind, text=text)


def job(*lines: LogLine) -> JobInfo:
    count = max((one.op_index for one in lines), default=0) + 1
    ops = [
        OpInfo(
            op_id="OP_X",
            summary="X",
            input={},
            status=JobStatus.SUCCESS,
            result=None,
            log=[one for one in lines if one.op_index == place],
            priority=0,
            started=None,
            executed=None,
            ended=None,
        )
        for place in range(count)
    ]
    return JobInfo(id=1, status=JobStatus.SUCCESS, summary="X", priority=0, ops=ops)


def output(data: bytes, op_index: int = 0) -> OutputChunk:
    return OutputChunk(job_id=1, op_index=op_index, stream="stdout", data=data)


def mark(serial: int, op_index: int = 0) -> OutputChunk:
    return OutputChunk(job_id=1, op_index=op_index, stream="", data=b"", missing=serial)


def placed(found: PlacedLog, *chunks: OutputChunk) -> list[int | bytes]:
    parts = [*found.parts(chunks), *found.rest()]
    return [one.serial if isinstance(one, LogLine) else one.data for one in parts]


def test_an_entry_comes_where_its_mark_is() -> None:
    known = job(line(1), line(2, kind="stdout"), line(3), line(4))
    assert placed(PlacedLog(known), mark(1), output(b"a"), mark(3)) == [1, b"a", 3, 4]


def test_a_mark_stands_for_all_entries_before_it() -> None:
    assert placed(PlacedLog(job(line(1), line(2))), output(b"a"), mark(2), output(b"b")) == [
        b"a",
        1,
        2,
        b"b",
    ]


def test_without_marks_the_entries_of_an_opcode_follow_its_output() -> None:
    """As in files of older versions."""
    known = job(line(1), line(2, op_index=1))
    assert placed(PlacedLog(known), output(b"a"), output(b"b", 1)) == [b"a", 1, b"b", 2]


def test_a_gap_is_no_mark() -> None:
    gap = OutputChunk(job_id=1, op_index=0, stream="", data=b"", gap="limit")
    assert not gap.is_mark
    assert placed(PlacedLog(job(line(1))), gap) == [b"", 1]


def test_of_one_opcode_come_its_own_entries() -> None:
    known = job(line(1), line(2, op_index=1))
    assert placed(PlacedLog(known, op_index=1), mark(2, 1), output(b"b", 1)) == [2, b"b"]


def test_of_the_tail_come_the_entries_within_it() -> None:
    known = job(line(1), line(2, kind="stdout"), line(3), line(4), line(5, kind="stdout"))
    assert placed(PlacedLog(known, tail=1), mark(1), output(b"a"), mark(4)) == [b"a", 3, 4]
    assert placed(PlacedLog(known, tail=2)) == [3, 4]


LINES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["message", "stdout"])), max_size=6)


@given(lines=LINES, marks=st.lists(st.integers(0, 8) | st.none(), max_size=6))
def test_each_entry_comes_once_in_order_whatever_the_marks_say(
    lines: list[tuple[int, str]], marks: list[int | None]
) -> None:
    ordered = sorted(op_index for op_index, _ in lines)
    known = job(*(line(place + 1, ordered[place], kind) for place, (_, kind) in enumerate(lines)))
    chunks = [output(b"x") if serial is None else mark(serial) for serial in marks]
    found = [one for one in placed(PlacedLog(known), *chunks) if isinstance(one, int)]
    assert found == [place + 1 for place, (_, kind) in enumerate(lines) if kind == "message"]
