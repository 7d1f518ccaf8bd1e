"""Where a job comes from: kept in its file, shared in memory; names look like nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.storage import errors, settings
from ganger.storage.jobs import job_headers, origins
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry, decode_job, encode_job
from ganger.storage.jobs.origins import Origin, Submitter, check_name, is_name, origin_of

ALICE = Submitter(user="alice", uid=1000, via="socket")
LAPTOP = Submitter(user="laptop", via="key")


def stored(extra: dict[str, Any]) -> bytes:
    op = OpcodeEntry(input={"OP_ID": "OP_X"}, status=JobStatus.QUEUED, priority=0)
    return encode_job(Job(id=7, ops=[op], extra={"ganger_serial": 1, **extra}))


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {origins.NAME_KEY: "backup"},
        {origins.SUBMITTER_KEY: ALICE},
        {origins.NAME_KEY: "a", origins.PLAN_KEY: "p", origins.SUBMITTER_KEY: LAPTOP},
    ],
)
def test_a_file_and_its_head_say_the_same_as_the_submission(extra: dict[str, Any]) -> None:
    data = stored(extra)
    head = job_headers.head_of(data)
    assert head is not None, "a start reads it without its opcodes"
    assert head.origin == origin_of(decode_job(data).extra) == origin_of(extra)


def test_the_submitter_is_stored_in_plain_words() -> None:
    assert b'"ganger_submitter":{"user":"alice","uid":1000,"via":"socket"}' in stored(
        {origins.SUBMITTER_KEY: ALICE}
    )
    assert b'"ganger_submitter":{"user":"laptop","via":"key"}' in stored(
        {origins.SUBMITTER_KEY: LAPTOP}
    )


def test_jobs_of_one_submitter_share_one_object() -> None:
    extra = decode_job(stored({origins.SUBMITTER_KEY: ALICE})).extra
    assert origin_of(extra) is origin_of({origins.SUBMITTER_KEY: ALICE})


@pytest.mark.parametrize("raw", [5, "alice", {"user": 5, "via": "key"}, {"user": "a", "via": "x"}])
def test_a_malformed_submitter_counts_as_unknown(raw: object) -> None:
    assert origin_of({origins.SUBMITTER_KEY: raw, origins.NAME_KEY: 5}) == Origin()


@pytest.mark.parametrize("name", ["backup", "node01: restore", "1a", "ä", "a" * 200, "a@b", "1.5"])
def test_what_is_like_no_id_is_a_name(name: str) -> None:
    assert check_name(name, "name") == name
    assert is_name(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "name: expected a name of 1 to 200 bytes, got 0"),
        ("ä" * (settings.NAME_BYTES_MAX // 2 + 1), "got 202"),
        ("17", "'17' looks like an id"),
        ("+1_000", "looks like an id"),
        ("\u0661\u0667", "looks like an id"),
        ("@last", "begins with @"),
        ("-x", "begins with -"),
        (" a", "without blanks at its ends"),
        ("a\nb", "without control characters"),
    ],
)
def test_what_may_be_taken_for_something_else_is_no_name(name: str, expected: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        check_name(name, "name")
    assert expected in caught.value.text


def test_remote_users_are_not_taken_for_local_ones() -> None:
    bob = Submitter(user="bob", uid=7, via="luxi")
    assert bob.is_same_user(Submitter(user="bob", uid=7, via="socket"))
    remote = Submitter(user="bob", via="rapi")
    assert not bob.is_same_user(remote)
    assert not remote.is_same_user(Submitter(user="bob", via="key"))
    assert not remote.is_same_user(None)
    assert [bob.shown, remote.shown] == ["bob", "rapi:bob"]
