"""What rules see of a job is the same from a few parameters of its text as from all of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.storage import errors
from ganger.storage.jobs import jobs, judged_inputs
from ganger.storage.jobs.jobs import Job, OpcodeEntry

NAMES = ("OP_ID", "priority", "name", "reason", "depends", "depend", "a b", "class", "", "ä")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-30, 30) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
inputs = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), values, max_size=8)
entries = st.builds(OpcodeEntry, input=inputs, priority=st.integers(-20, 19))
made_jobs = st.builds(Job, id=st.integers(1, 10**18 - 1), ops=st.lists(entries, min_size=1))
wanted = st.frozensets(st.sampled_from(NAMES) | st.text(max_size=4), max_size=4)


@given(made_jobs, wanted, st.sampled_from([{}, {"else": 1}]))
def test_rules_see_the_same_as_in_the_whole_job(
    job: Job, fields: frozenset[str], others: dict[str, int]
) -> None:
    job.extra = dict(others)
    data = jobs.encode_job(job)
    for text in (data, data[: -jobs.CHECKSUM_BYTES] + b"}"):
        found = judged_inputs.read(text, job.id, fields)
        whole = jobs.decode_job(text).judged_inputs
        assert len(found) == len(whole)
        for mine, theirs in zip(found, whole, strict=True):
            for name in fields | {"priority"}:
                assert mine.get(name) == theirs.get(name)
        with pytest.raises(errors.StorageError, match=f"holds job {job.id}, not 0"):
            judged_inputs.read(text, 0, fields)


def test_parameters_that_no_rule_looks_at_are_left_out() -> None:
    op: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"], "env": {}}
    data = jobs.encode_job(Job(id=3, ops=[OpcodeEntry(input=op, priority=2)]))
    assert judged_inputs.read(data, 3, frozenset({"argv"})) == [{"argv": ["true"], "priority": 2}]


def test_a_damaged_text_is_no_job() -> None:
    data = jobs.encode_job(Job(id=3, ops=[OpcodeEntry(input={"OP_ID": "OP_EXEC"})]))
    for text, problem in (
        (data.replace(b"OP_EXEC", b"OP_NONE"), "its checksum is wrong"),
        (data[:40], "not a job"),
        (b"", "not a job"),
    ):
        with pytest.raises(errors.StorageError, match=re.escape(problem)):
            judged_inputs.read(text, 3, frozenset({"OP_ID"}))
