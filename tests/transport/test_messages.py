"""Messages: their senders, their names, and that they stay as they are."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, get_args, get_origin

import msgpack
import msgspec
import pytest

from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.locks.locks import Owner
from ganger.transport import frames, messages
from ganger.transport.messages import (
    JOB_MESSAGES,
    RECEIVERS,
    InterimReply,
    Message,
    Notice,
    Reply,
    Request,
)

ABSTRACT = {Message, Request, Reply, InterimReply, Notice}
ALL: list[type[Message]] = [
    found
    for _, found in inspect.getmembers(messages, inspect.isclass)
    if issubclass(found, Message) and found not in ABSTRACT
]
FILES = {
    "job_queue": [
        f"job_queue_{part}"
        for part in ("from_clients", "why_and_what_if", "from_jobs", "from_components")
    ],
    "config_store": ["config_store", "config_store_from_jobs"],
}
CLIENT_REQUESTS = set(get_args(messages.ClientRequest))
SPEC = messages.JobSpec(ops=[{"OP_ID": "OP_X", "a": 1}], priority=-5, depends=[(-1, ["error"])])
OWNER = Owner(7, "/l/job_000007_1", 815)
OWNER_BODY = (7, "/l/job_000007_1", 815)


@pytest.mark.parametrize("kind", ALL)
def test_a_message_is_a_request_a_reply_or_a_notice(kind: type[Message]) -> None:
    assert sum(issubclass(kind, branch) for branch in (Request, Reply, Notice)) == 1


@pytest.mark.parametrize("kind", ALL)
def test_a_message_is_frozen_and_has_a_docstring_of_its_own(kind: type[Message]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__doc__
    assert kind.__doc__ != kind.__bases__[0].__doc__


def test_each_message_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in ALL]
    assert len(set(tags)) == len(tags)
    assert messages.SubmitJobs.__struct_config__.tag == "submit_jobs"
    assert {kind.__struct_config__.tag_field for kind in ALL} == {"type"}


@pytest.mark.parametrize("kind", [kind for kind in ALL if issubclass(kind, Request)])
def test_a_request_names_its_replies(kind: type[Message]) -> None:
    [base] = [base for base in kind.__orig_bases__ if get_origin(base) is Request]  # type: ignore[attr-defined]
    [named] = get_args(base)
    replies = get_args(named) or (named,)
    assert all(issubclass(reply, Reply) for reply in replies)


def _declared(file: str) -> set[type[Message]]:
    """The requests and notices in one file of the package."""
    name = f"{messages.__name__}.{file}"
    return {kind for kind in ALL if kind.__module__ == name and not issubclass(kind, Reply)}


@pytest.mark.parametrize("component", messages.ACCEPTED)
def test_a_component_accepts_what_is_declared_for_it(component: str) -> None:
    files = FILES.get(component, [component])
    accepted = set(get_args(messages.ACCEPTED[component]))
    assert set().union(*map(_declared, files)) == accepted - _declared("several")


def test_what_is_declared_for_several_components_has_several_receivers() -> None:
    accepted = Counter(each for union in messages.ACCEPTED.values() for each in get_args(union))
    of_several = {kind for kind, receivers in accepted.items() if receivers > 1}
    assert of_several | {messages.Boot} == _declared("several")


def test_every_message_has_a_receiver() -> None:
    replies = messages.ToJob | messages.ClientReply | messages.ComponentReply
    between_hosts = messages.FromNode | messages.ToNode | messages.TaskRequest
    named = {messages.Boot, *get_args(replies), *get_args(between_hosts)}
    assert named.union(*map(get_args, messages.ACCEPTED.values())) == set(ALL)


def test_what_comes_from_outside_has_one_receiver() -> None:
    assert set(RECEIVERS) == CLIENT_REQUESTS | set(JOB_MESSAGES)
    assert not set(RECEIVERS) & _declared("several")


def test_clients_and_jobs_say_different_things() -> None:
    assert not CLIENT_REQUESTS & set(JOB_MESSAGES)
    assert _declared("job_queue_from_clients") <= CLIENT_REQUESTS
    assert _declared("job_queue_why_and_what_if") <= CLIENT_REQUESTS
    assert set(JOB_MESSAGES) >= _declared("job_queue_from_jobs")
    assert not _declared("job_queue_from_components") & set(RECEIVERS)


def test_a_misspelt_field_of_a_request_is_refused() -> None:
    # With ``dryrun`` left out, jobs would be stored that were only to be checked.
    with pytest.raises(msgspec.ValidationError, match="dryrun"):
        msgspec.convert({"type": "submit_jobs", "jobs": [], "dryrun": True}, messages.ClientRequest)
    with pytest.raises(msgspec.ValidationError, match="reasons"):
        msgspec.convert(
            {"type": "submit_jobs", "jobs": [{"ops": [], "reasons": []}]}, messages.ClientRequest
        )


def test_a_reply_of_a_later_version_is_read_all_the_same() -> None:
    body = {"type": "jobs_submitted", "ids": [1], "of_a_later_version": 5}
    assert msgspec.convert(body, messages.ClientReply) == messages.JobsSubmitted(ids=[1])


GOLDEN: list[tuple[Message, dict[str, Any]]] = [
    (messages.ReadPlan(), {"type": "read_plan"}),
    (
        messages.OutputDropped(job_id=7, text="why"),
        {"type": "output_dropped", "job_id": 7, "text": "why"},
    ),
    (
        messages.StateHeldUp(job_id=7, is_end=True, text="the disk is full"),
        {"type": "state_held_up", "job_id": 7, "is_end": True, "text": "the disk is full"},
    ),
    (
        messages.PurgeJobs(ids=[7], age_seconds=60.0, bytes_min=4096, after=3, is_dry_run=True),
        {
            "type": "purge_jobs",
            "ids": [7],
            "age_seconds": 60.0,
            "bytes_min": 4096,
            "after": 3,
            "is_dry_run": True,
        },
    ),
    (messages.NextJob(job_id=7), {"type": "next_job", "job_id": 7}),
    (
        messages.JobLeft(job_id=7, has_locks=False, has_group=True, is_free=True, unclean="umask"),
        {
            "type": "job_left",
            "job_id": 7,
            "has_locks": False,
            "has_group": True,
            "is_free": True,
            "unclean": "umask",
        },
    ),
    (
        messages.SubmitJobs(jobs=[SPEC], key="k"),
        {
            "type": "submit_jobs",
            "jobs": [
                {
                    "ops": [{"OP_ID": "OP_X", "a": 1}],
                    "reason": [],
                    "priority": -5,
                    "depends": [[-1, ["error"]]],
                }
            ],
            "key": "k",
        },
    ),
    (
        messages.RecordState(
            job_id=7, serial=3, status=JobStatus.RUNNING, priority=0, log_serial=2, body=b"{}"
        ),
        {
            "type": "record_state",
            "job_id": 7,
            "serial": 3,
            "status": "running",
            "priority": 0,
            "log_serial": 2,
            "body": b"{}",
        },
    ),
    (
        messages.RequestLocks(owner=OWNER, priority=-1, changes=[("node/a", "shared")]),
        {
            "type": "request_locks",
            "owner": [7, "/l/job_000007_1", 815],
            "priority": -1,
            "changes": [["node/a", "shared"]],
        },
    ),
    (
        messages.WatchJobs(ids=[7], log=True, log_after={7: 2}),
        {"type": "watch_jobs", "ids": [7], "log": True, "log_after": {7: 2}},
    ),
    (
        messages.WatchJobs(is_final_only=True),
        {"type": "watch_jobs", "is_of_ends": True},
    ),
    (
        messages.WatchJobs(is_gathered=True),
        {"type": "watch_jobs", "is_gathered": True},
    ),
    (
        messages.JobLogAppended(job_id=7, op_index=1, entries=[(3, (5, 6), "stdout", "x")]),
        {
            "type": "job_told",
            "job_id": 7,
            "op_index": 1,
            "entries": [[3, [5, 6], "stdout", "x"]],
        },
    ),
    (
        messages.ReadOutput(id=7, offset=5, wait_seconds=2.5, known=6),
        {"type": "read_output", "id": 7, "offset": 5, "wait_seconds": 2.5, "known": 6},
    ),
    (
        messages.OutputGrew(job_id=7, size=4711),
        {"type": "output_grew", "job_id": 7, "size": 4711},
    ),
    (
        messages.ReplaceFilter(uuid="u", predicates=[["jobid", None]], action=["RATE_LIMIT", 2]),
        {
            "type": "replace_filter",
            "uuid": "u",
            "predicates": [["jobid", None]],
            "action": ["RATE_LIMIT", 2],
        },
    ),
    (messages.DeleteFilter(uuid="u"), {"type": "delete_filter", "uuid": "u"}),
    (messages.ListFilters(uuids=["u"]), {"type": "list_filters", "uuids": ["u"]}),
    (messages.StateRecorded(serial=3), {"type": "state_recorded", "serial": 3}),
    (
        messages.PrepareOpcode(job_id=7, op_index=1, opcode={"OP_ID": "OP_X"}, new_uuid="u"),
        {
            "type": "prepare_opcode",
            "job_id": 7,
            "op_index": 1,
            "opcode": {"OP_ID": "OP_X"},
            "new_uuid": "u",
        },
    ),
    (
        messages.OpcodePrepared(locks={"node": {"shared": ("u",)}}, serial_no=3),
        {
            "type": "opcode_prepared",
            "locks": {"node": {"shared": ["u"]}},
            "serial_no": 3,
            "error": None,
        },
    ),
    (
        messages.RunOpcode(
            job_id=7,
            op_index=1,
            opcode={"OP_ID": "OP_X"},
            new_uuid="u",
            locks={"node": {"shared": ("u",)}},
            since=3,
            lock_file="/l/job_000007_1",
        ),
        {
            "type": "run_opcode",
            "job_id": 7,
            "op_index": 1,
            "opcode": {"OP_ID": "OP_X"},
            "new_uuid": "u",
            "locks": {"node": {"shared": ["u"]}},
            "since": 3,
            "lock_file": "/l/job_000007_1",
        },
    ),
    (
        messages.OpcodeRan(error=("OpPrereqError", ["no", "wrong_state"])),
        {
            "type": "opcode_ran",
            "result": None,
            "log": [],
            "error": ["OpPrereqError", ["no", "wrong_state"]],
        },
    ),
    (
        messages.QueryJobs(["id"], ["==", "id", 5], "4"),
        {"type": "query_jobs", "fields": ["id"], "filter": ["==", "id", 5], "after": "4"},
    ),
    (
        messages.AwaitJobChange(5, ["status"], ["queued"], 3, 60.0),
        {
            "type": "await_job_change",
            "id": 5,
            "fields": ["status"],
            "values": ["queued"],
            "log_serial": 3,
            "seconds": 60.0,
        },
    ),
    (messages.QueryLocks(["name"]), {"type": "query_locks", "fields": ["name"]}),
    (
        messages.QueryConfiguration("node", ["name"]),
        {"type": "query_configuration", "what": "node", "fields": ["name"]},
    ),
    (
        messages.QueryConfiguration("node", ["name"], is_classic=True),
        {"type": "query_configuration", "what": "node", "fields": ["name"], "is_classic": True},
    ),
    (
        messages.SetWatcherPause(1_795_226_369.0),
        {"type": "set_watcher_pause", "until": 1_795_226_369.0},
    ),
    (messages.SetWatcherPause(None), {"type": "set_watcher_pause", "until": None}),
    (messages.QueryFields("job"), {"type": "query_fields", "what": "job"}),
    (messages.DescribeCluster(), {"type": "describe_cluster"}),
    (
        messages.CallMethod("updateNode", [{"uuid": "n"}], reveals=True),
        {
            "type": "call_method",
            "method": "updateNode",
            "args": [{"uuid": "n"}],
            "reveals": True,
        },
    ),
    (
        messages.CallMethodAsOwner("generateMAC", OWNER, [None]),
        {
            "type": "call_method_as_owner",
            "method": "generateMAC",
            "owner": [*OWNER_BODY],
            "args": [None],
        },
    ),
    (messages.ConfigAnswered(value=[1]), {"type": "config_answered", "value": [1]}),
    (
        messages.Failure("BusyError", "later"),
        {"type": "failure", "error": "BusyError", "text": "later"},
    ),
]


@pytest.mark.parametrize(("message", "body"), GOLDEN)
def test_the_form_of_a_message_does_not_change(message: Message, body: dict[str, Any]) -> None:
    # Job processes of an earlier daemon, and clients, speak so: a change that breaks this
    # list needs a new protocol version.
    allowed = messages.ClientRequest | messages.JobMessage | messages.ToJob
    packed = frames.encode(message, 1)
    assert msgpack.unpackb(packed, strict_map_key=False) == [1, 1, None, body]
    assert frames.decode(packed, allowed).message == message
