"""Which jobs may share a process with others, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core_alone import NEEDS_HIDDEN

from ganger.actors.queue.reusing import reuses_process
from ganger.storage.alive import process_identity
from ganger.storage.jobs import jobs
from ganger.storage.opcodes import Opcode, catalogue

DELAY = {"OP_ID": "OP_TEST_DELAY"}


class OpTidy(Opcode, kw_only=True):
    op_id = "OP_TIDY"
    reuses_process = True

    def run(self, _: object) -> None:
        """Nothing."""


class OpUndeclared(Opcode, kw_only=True):
    op_id = "OP_UNDECLARED"

    def run(self, _: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two opcodes of users."""
    monkeypatch.setitem(catalogue._from_users, "OP_TIDY", OpTidy)
    monkeypatch.setitem(catalogue._from_users, "OP_UNDECLARED", OpUndeclared)


@NEEDS_HIDDEN
@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([DELAY], True),
        ([{"OP_ID": "OP_EXEC", "argv": ["true"]}], True),
        ([{"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": False}], True),
        ([{"OP_ID": "OP_EXEC", "argv": ["true"], "leave_running": True}], False),
        ([{"OP_ID": "OP_TAGS_GET"}], True),
        ([{"OP_ID": "OP_QUERY"}], True),
        ([{"OP_ID": "OP_TIDY"}], True),
        ([{"OP_ID": "OP_UNDECLARED"}], False),
        ([DELAY, {"OP_ID": "OP_TIDY"}, DELAY], True),
        ([DELAY, {"OP_ID": "OP_UNDECLARED"}], False),
        ([{"OP_ID": "OP_INSTANCE_CREATE"}], False),
        ([{"OP_ID": "OP_UNKNOWN"}], False),
        ([{}], False),
    ],
)
def test_all_opcodes_of_a_job_must_leave_the_process_clean(
    ops: list[dict[str, Any]], *, expected: bool
) -> None:
    entries = [jobs.OpcodeEntry(input=dict(fields)) for fields in ops]
    assert reuses_process(jobs.Job(id=7, ops=entries)) is expected


def test_a_number_that_no_process_can_show_has_a_process_of_its_own() -> None:
    entries = [jobs.OpcodeEntry(input=dict(DELAY))]
    last = process_identity.SHOWN_JOB_MAX
    assert len(process_identity.shown_name(last)) == 15
    assert reuses_process(jobs.Job(id=last, ops=entries))
    assert not reuses_process(jobs.Job(id=last + 1, ops=entries))
