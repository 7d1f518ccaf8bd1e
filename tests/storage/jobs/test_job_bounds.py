"""How large a job may become while it runs, and when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ganger.storage import settings
from ganger.storage.jobs import job_bounds, jobs
from ganger.storage.jobs.job_bounds import SizeBudget
from ganger.storage.jobs.jobs import LogEntry, OpcodeEntry
from ganger.transport import frames, messages

MEGABYTE = 1024 * 1024
STAMP = (1_700_000_000, 5)
NULS = "\0" * MEGABYTE


def job(*inputs: dict[str, Any], **fields: Any) -> jobs.Job:
    ops = [OpcodeEntry(input={"OP_ID": "OP_EXEC", **given}) for given in inputs or ({},)]
    return jobs.Job(id=7, ops=ops, **fields)


def budget(made: jobs.Job) -> SizeBudget:
    return SizeBudget(made, len(jobs.encode_job(made)))


def size(value: object) -> int:
    return len(msgspec.json.encode(value))


def test_the_parts_of_a_job_together_fit_into_a_frame() -> None:
    parts = (
        settings.JOB_SUBMITTED_BYTES_MAX
        + settings.JOB_LOG_BYTES_MAX
        + settings.JOB_LOG_RESERVE_BYTES
        + settings.JOB_END_BYTES_MAX
    )
    assert parts + MEGABYTE // 4 <= settings.JOB_BYTES_MAX
    whole = messages.JobDocument(id=10**18, body=bytes(settings.JOB_BYTES_MAX), summary="x" * 400)
    assert frames.encode(whole)


# While it runs.


def test_a_log_ends_with_one_mark_and_stays_within_its_room() -> None:
    room = budget(job())
    kept = []
    for number in range(40):
        kept += room.admit([f"{number}" + "\1" * 20_000], "stdout", is_own=False)
    *entries, (kind, mark) = kept
    assert 0 < len(entries) < 40
    assert {kind for kind, _ in entries} == {"stdout"}
    assert (kind, mark) == ("message", job_bounds.LOG_MARK.format(limit=settings.JOB_LOG_BYTES_MAX))
    assert sum(size(text) for _, text in kept) <= settings.JOB_LOG_BYTES_MAX
    assert room.admit(["small"], "stdout", is_own=False) == []


def test_a_full_log_takes_some_entries_of_the_process_itself() -> None:
    room = budget(job())
    room.admit(["x" * settings.JOB_LOG_BYTES_MAX], "stdout", is_own=False)
    said = [room.admit(["x" * 4_000], "message", is_own=True) for _ in range(100)]
    count = sum(map(len, said))
    assert 0 < count < 100
    assert count * 4_000 <= settings.JOB_LOG_RESERVE_BYTES


def test_a_full_log_is_not_marked_again_by_the_next_process() -> None:
    made = job()
    empty: list[LogEntry] = [(1, STAMP, "stdout", "")]
    for more, marks in ((0, 1), (1, 0)):
        text = "x" * (settings.JOB_LOG_BYTES_MAX - size(empty) + more)
        made.ops[0].log = [(1, STAMP, "stdout", text)]
        assert len(budget(made).admit(["x"], "stdout", is_own=False)) == marks


@pytest.mark.parametrize("is_own", [False, True])
def test_a_log_is_filled_to_the_last_byte(*, is_own: bool) -> None:
    entry = job_bounds._ENTRY_BYTES + len("message") + len('""')
    mark = job_bounds.LOG_MARK.format(limit=settings.JOB_LOG_BYTES_MAX)
    reserve = settings.JOB_LOG_RESERVE_BYTES - job_bounds._ENTRY_BYTES - len(mark)
    for more in (0, 1):
        room = budget(job())
        first = "x" * (settings.JOB_LOG_BYTES_MAX - entry)
        own = "y" * (reserve - entry + more)
        found = room.admit([first, own], "message", is_own=is_own)
        kept = [first, mark, own] if is_own and not more else [first, mark]
        assert [text for _, text in found] == kept


def test_half_of_a_character_pair_is_spelt_out() -> None:
    assert budget(job()).admit(["a\ud800b"], "message", is_own=False) == [("message", "a\\ud800b")]


def test_an_entry_that_is_nested_too_deep_is_refused() -> None:
    entry: list[Any] = []
    for _ in range(settings.STORED_DEPTH_MAX - 1):
        entry = [entry]
    room = budget(job())
    assert room.admit([entry], "message", is_own=False)
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        room.admit([[entry]], "message", is_own=False)


def test_of_entries_that_json_cannot_hold_none_is_taken() -> None:
    room = budget(job())
    with pytest.raises(TypeError):
        room.admit(["fine", object()], "message", is_own=False)


def test_results_share_the_remaining_room() -> None:
    room = budget(job())
    left = room.result_bytes
    assert left > 4 * MEGABYTE
    assert room.takes_result("x" * (left - 102))
    assert not room.takes_result("x" * 200)
    assert room.takes_result("x" * 98)
    assert room.takes_result(None)
    assert room.result_bytes == 0


def test_the_results_of_earlier_processes_count() -> None:
    made = job()
    before = budget(made).result_bytes
    made.ops[0].result = "x" * 1_000
    assert budget(made).result_bytes == before - size(made.ops[0].result) + len("null")


def test_a_job_that_was_stored_too_large_has_no_room_for_results() -> None:
    made = job({"argv": [NULS, NULS]})
    assert budget(made).result_bytes == 0
    assert budget(made).takes_result(None)


# Texts of an end.


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\0" * 1_000_000, "é" * 1_000_000])
@pytest.mark.parametrize("opcodes", [1, 3, 1_000])
def test_the_text_of_an_end_fits_twice_into_each_opcode(text: str, opcodes: int) -> None:
    short = job_bounds.end_text(text, opcodes)
    assert 2 * opcodes * size(short) <= settings.JOB_END_BYTES_MAX
    assert short.endswith(" [1000000 characters in all, the rest is cut]")
    assert text.startswith(short.partition(" [")[0])


def test_a_text_is_cut_to_the_last_byte() -> None:
    text = "é" * 1_000
    assert job_bounds.cut(text, size(text)) is text
    for plain, room in (("x" * 1_000, size(text) // 4), (text, size(text) - 1)):
        assert 0 <= room - size(job_bounds.cut(plain, room)) < len(plain[0].encode())


def test_a_short_text_is_left_alone() -> None:
    assert job_bounds.end_text("detected death of job 7", 1_000) == "detected death of job 7"


def test_the_result_of_a_failure_is_bounded() -> None:
    small = ["OpExecError", ["why", {"exit_code": 3}]]
    assert job_bounds.error_result(small) is small
    room = settings.ERROR_RESULT_BYTES_MAX - size(["OpExecError", [""]])
    for more, is_whole in ((0, True), (1, False)):
        failure = ["OpExecError", ["x" * (room + more)]]
        assert (job_bounds.error_result(failure) is failure) == is_whole
    [name, [text]] = job_bounds.error_result(["OpExecError", [NULS, {"exit_code": 3}]])
    assert name == "OpExecError"
    assert text.endswith("characters in all, the rest is cut]")
    [_, [shortened]] = job_bounds.error_result(["x" * MEGABYTE, [{"a": NULS}]])
    assert size(shortened) <= settings.ERROR_RESULT_BYTES_MAX


# Reading.


def shortened(made: jobs.Job) -> jobs.Job:
    body = job_bounds.shortened(jobs.encode_job(made), "job-7")
    assert len(body) <= settings.JOB_BYTES_MAX
    return jobs.decode_job(body)


def test_a_job_that_fits_is_read_unchanged() -> None:
    made = job({"argv": [""]})
    made.ops[0].input["argv"] = ["x" * (settings.JOB_BYTES_MAX - len(jobs.encode_job(made)))]
    body = jobs.encode_job(made)
    assert job_bounds.shortened(body, "job-7") is body
    made.ops[0].input["argv"][0] += "x"
    assert job_bounds.shortened(jobs.encode_job(made), "job-7") != jobs.encode_job(made)


@pytest.mark.parametrize("more", [0, 1])
def test_a_copy_says_that_opcodes_are_left_out_if_they_are(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(settings, "OPCODES_PER_JOB_MAX", 2)
    found = shortened(job({"stdin": "x" * 9 * MEGABYTE}, *[{}] * (1 + more)))
    assert len(found.ops) == 2
    assert ("opcodes" in found.extra[job_bounds.CUT_KEY]) == (more == 1)


def test_of_a_large_value_as_much_is_kept_as_fits() -> None:
    place = job_bounds._PLACE_BYTES
    value = {"a" * place: 1, "a" * (place + 1): 2}
    assert job_bounds._without_large(value, size(value)) is value
    assert job_bounds._without_large({**value, "large": NULS}, 4 * place + 3) == {
        "a" * place: 1,
        "large": job_bounds.cut(NULS, place + 1),
    }
    few = {"OP_ID": "x" * place, "large": NULS}
    left_out = {job_bounds.CUT_KEY: f"{size(few)} bytes are left out"}
    found = job_bounds._without_large(few, 4 * place)
    assert found == {"OP_ID": "x" * place, **left_out}


def test_as_many_entries_of_a_log_are_kept_as_fit() -> None:
    log: list[LogEntry] = [(serial, STAMP, "message", "x" * 100) for serial in (1, 2, 3)]
    room = job_bounds._PLACE_BYTES + 3 * (
        job_bounds._ENTRY_BYTES + size("message") + size("x" * 100)
    )
    assert job_bounds._last_entries(log, room) == log
    cut = [(1, STAMP, "message", "[1 earlier entries are left out]"), *log[1:]]
    assert job_bounds._last_entries(log, room - 1) == cut


@pytest.mark.slow
def test_large_parts_of_a_copy_are_cut_and_marked() -> None:
    made = job({"argv": ["cat"], "stdin": NULS * 3}, {"argv": ["true"]})
    made.ops[1].result = NULS * 3
    made.ops[1].log = [(serial, STAMP, "stdout", "x" * 1_000) for serial in range(1, 9_000)]
    found = shortened(made)
    assert found.extra[job_bounds.CUT_KEY].endswith(
        "too large to be sent: this is a shortened copy of job-7"
    )
    assert found.ops[0].input["argv"] == ["cat"]
    assert found.ops[0].input["stdin"].endswith(" [3145728 characters in all, the rest is cut]")
    assert found.ops[1].result.endswith(" characters in all, the rest is cut]")
    first, *rest = found.ops[1].log
    assert first[3] == f"[{8_999 - len(rest)} earlier entries are left out]"
    assert rest == made.ops[1].log[-len(rest) :]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: job(*({"argv": [str(number)]} for number in range(90_000))),
        lambda: job({str(number): number for number in range(900_000)}),
        lambda: job({"x" * 9_000_000: 1}),
        lambda: job({"argv": ["x"] * 3_000_000}),
        lambda: job({}, extra={"other": "x" * 9_000_000}),
        lambda: job({}, extra={f"{number}" * 100: 1 for number in range(90_000)}),
        lambda: job(*({"OP_ID": "x" * 9_000} for _ in range(1_000))),
    ],
    ids=["opcodes", "parameters", "name", "list", "extra", "extras", "ids"],
)  # fmt: skip
def test_whatever_is_large_a_copy_of_it_can_be_sent(make: Callable[[], jobs.Job]) -> None:
    made = make()
    found = shortened(made)
    assert found.id == 7
    assert job_bounds.CUT_KEY in found.extra


def test_entries_of_a_log_travel_in_parts() -> None:
    log: list[LogEntry] = [(n, STAMP, "stdout", "\0" * 50_000) for n in range(1, 60)]
    parts = list(job_bounds.log_parts(log))
    assert len(parts) > 1
    assert [entry for part in parts for entry in part] == log
    for part in parts:
        assert frames.encode(messages.JobLogged(id=1, op_index=0, entries=part))


def test_a_part_of_a_log_is_filled_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[LogEntry] = [(serial, STAMP, "stdout", "\0" * 100) for serial in (1, 2, 3, 4)]
    entry = job_bounds._ENTRY_BYTES + size("stdout") + size("\0" * 100)
    for more, lengths in ((0, [2, 2]), (-1, [1, 1, 1, 1])):
        monkeypatch.setattr(settings, "FRAME_BYTES_MAX", 4 * (2 * entry + more))
        assert [len(part) for part in job_bounds.log_parts(log)] == lengths
    for more, is_whole in ((0, True), (-1, False)):
        monkeypatch.setattr(settings, "FRAME_BYTES_MAX", 4 * (entry + more))
        parts = list(job_bounds.log_parts(log))
        assert len(parts) == 4
        assert ([one for part in parts for one in part] == log) == is_whole


@pytest.mark.slow
def test_an_entry_too_large_for_a_frame_is_cut() -> None:
    log: list[LogEntry] = [(1, STAMP, "stdout", NULS * 9), (2, STAMP, "message", [NULS])]
    [[first], [second]] = job_bounds.log_parts(log)
    assert first[3].endswith(" [9437184 characters in all, the rest is cut]")
    assert second[3].startswith("[6291460 bytes")
    assert list(job_bounds.log_parts([(3, STAMP, "message", "x")])) == [
        [(3, STAMP, "message", "x")]
    ]
