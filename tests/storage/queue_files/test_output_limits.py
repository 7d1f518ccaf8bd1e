"""The limits of output as the processes of jobs see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.queue_files import output_limits
from ganger.storage.queue_files.output_blocks import STDOUT, Segment
from ganger.storage.queue_files.output_files import OutputFile
from ganger.storage.queue_files.output_limits import LimitsInForce, OutputLimits

USUAL = OutputLimits(settings.OUTPUT_JOB_BYTES_MAX)
TIGHT = OutputLimits(1_000, "enough")


def test_without_a_file_the_usual_limits_hold_and_a_change_is_seen_at_once(tmp_path: Path) -> None:
    queue = str(tmp_path)
    limits = LimitsInForce(queue)
    assert limits.now() == USUAL
    for wanted in (TIGHT, OutputLimits(2_000), USUAL, TIGHT):
        output_limits.write(queue, wanted)
        assert limits.now() == wanted
        assert (tmp_path / output_limits.NAME).exists() is (wanted != USUAL)


@pytest.mark.parametrize("text", [b"", b"{", b'{"job_bytes": "x"}', b"\0"])
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / output_limits.NAME).write_bytes(text)
    assert LimitsInForce(str(tmp_path)).now() == USUAL


def test_what_is_in_force_is_not_written_again(tmp_path: Path) -> None:
    output_limits.write(str(tmp_path), TIGHT)
    with refusing("open", "rename", "unlink"):
        assert LimitsInForce(str(tmp_path)).now() == USUAL, "it cannot be read"
    with refusing("rename"):
        output_limits.write(str(tmp_path), TIGHT)
        with pytest.raises(errors.StorageError):
            output_limits.write(str(tmp_path), OutputLimits(5))


def test_a_refusal_stops_output_and_lets_a_mark_through(tmp_path: Path) -> None:
    reasons = ["", "enough"]
    file = OutputFile(str(tmp_path / "job-1-output"), lambda: reasons[-1])
    with pytest.raises(errors.DiskFullError, match="enough"):
        file.append(0, [Segment(STDOUT, b"x")])
    assert file.end == 0
    file.append_mark(0, 1)
    marked = file.end
    reasons.pop()
    file.append(0, [Segment(STDOUT, b"x")])
    assert os.stat(tmp_path / "job-1-output").st_size == file.end > marked > 0
    file.close()
