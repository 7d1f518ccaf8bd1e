"""The table of listed fields agrees with itself, and its values hide what is private."""

from __future__ import annotations

from unittest import mock

import pytest

from ganger.storage.jobs import listing, origins, outcomes
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry
from ganger.storage.jobs.listing import LISTED, Listed
from ganger.storage.jobs.outcomes import Outcome


def job(**parameters: object) -> Job:
    given = {"OP_ID": "OP_EXEC", "argv": ["true"], **parameters}
    return Job(id=7, ops=[OpcodeEntry(input=given, status=JobStatus.QUEUED, priority=0)])


@pytest.mark.parametrize("name", LISTED)
def test_a_field_has_one_getter_and_the_remote_api_can_ask_for_it(name: str) -> None:
    listed = LISTED[name]
    assert (listed.of_job is None) is not (listed.of_inputs is None)
    assert "rapi" not in listed.shown or "query" in listed.shown


def test_the_table_is_the_summary() -> None:
    assert tuple(LISTED) == listing.JobSummary.__struct_fields__ == tuple(listing.TYPES)


@pytest.mark.parametrize("name", LISTED)
def test_a_damaged_job_without_opcodes_has_a_value_of_each_field(name: str) -> None:
    LISTED[name].value(listing.told_of(Job(id=7, ops=[])))


def test_a_getter_of_parameters_sees_neither_reasons_nor_private_values() -> None:
    field = Listed("Env", "", of_inputs=lambda inputs: dict(inputs[0]))
    given = job(env={"PASSWORD": "xyz"}, reason=[["me", "because", 1]], comment="c")
    found = field.value(listing.told_of(given))
    assert found["comment"] == "c"
    assert "reason" not in found
    assert "xyz" not in str(found)


def test_what_several_fields_tell_of_a_job_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = job()
    failed.ops[0].status = JobStatus.ERROR
    failed.ops[0].result = ["OpExecError", ["disk full"]]
    failed.extra[origins.NAME_KEY] = "nightly"
    ending_of = mock.Mock(wraps=outcomes.ending_of)
    origin_of = mock.Mock(wraps=origins.origin_of)
    monkeypatch.setattr(outcomes, "ending_of", ending_of)
    monkeypatch.setattr(listing, "origin_of", origin_of)
    values = listing.values_of(failed, {})
    assert (values["outcome"], values["reason_ended"]) == (Outcome.FAILED, "disk full")
    assert values["name"] == "nightly"
    assert (ending_of.call_count, origin_of.call_count) == (1, 1)


def test_shared_values_are_those_of_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "OF_INPUTS", {})
    assert listing.shared_values(job(comment="c")) == ()
    monkeypatch.setitem(listing.OF_INPUTS, "comment", lambda inputs: inputs[0]["comment"])
    assert listing.shared_values(job(comment="c")) == (("comment", "c"),)


def test_a_shared_text_is_cut_like_each_text_of_a_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    getter = {"comment": lambda inputs: inputs[0]["comment"]}
    monkeypatch.setattr(listing, "OF_INPUTS", getter)
    [(_, text)] = listing.shared_values(job(comment="c" * 100_000))
    assert text.endswith("c...")
    assert text == listing.in_listing("c" * 100_000)
