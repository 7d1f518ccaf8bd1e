"""LUXI's methods, as conversations: what each one asks, and what its caller gets. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from ganger.actors.ganeti import luxi_methods, luxi_queries
from ganger.actors.ganeti.luxi_methods import METHODS
from ganger.actors.ganeti.luxi_talks import MethodContext
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.ganeti.luxi import Call, UnreadableCallError

UUID = "6b4f0f5e-9a3b-4f7c-8e2d-0a1b2c3d4e5f"
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.5, "reason": []}


def talk(
    method: str,
    *args: Any,
    replies: Iterable[Any] = (),
    times: Iterable[float] = (),
    may_write: bool = True,
) -> tuple[list[Any], Any]:
    """What the method asks, and its result as JSON; ``replies``: of components, or errors."""
    clock = itertools.chain(times, itertools.repeat(0.0))
    surroundings = MethodContext(7, UUID, lambda: next(clock), may_write=may_write)
    _, conversation = luxi_methods.begin(Call(method, list(args)), surroundings)
    asked: list[Any] = []
    given = iter(replies)
    try:
        ask = next(conversation)
        while True:
            asked.append(ask.request)
            reply = next(given)
            if isinstance(reply, errors.GangerError):
                ask = conversation.throw(reply)
            else:
                ask = conversation.send(reply)
    except StopIteration as end:
        assert next(given, None) is None, "the method asked less than expected"
        return asked, msgspec.json.decode(msgspec.json.encode(end.value))


def asks(method: str, *args: Any, replies: Iterable[Any] = ()) -> list[Any]:
    return talk(method, *args, replies=replies)[0]


def refusal(
    method: str, *args: Any, replies: Iterable[Any] = (), may_write: bool = True
) -> errors.GangerError:
    with pytest.raises(errors.GangerError) as found:
        talk(method, *args, replies=replies, may_write=may_write)
    return found.value


def page(rows: bytes, next_after: str | None = None) -> messages.QueryAnswered:
    return messages.QueryAnswered([{"name": "id"}], rows, next_after)


# ---------------------------------------------------------------- requests that cannot be read


def test_an_unknown_method_is_unreadable() -> None:
    assert refusal("Frobnicate").text == (
        'Unable to parse LUXI request method: Invalid string value for type LuxiReq: "Frobnicate"'
    )


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("QueryClusterInfo", [1]),
        ("CancelJob", []),
        ("CancelJob", [1, False, 3]),
        ("CancelJob", [-1]),
        ("CancelJob", ["one"]),
        ("CancelJob", [True]),
        ("CancelJob", [1, "yes"]),
        ("CancelJob", [10**18]),
        ("ArchiveJob", [None]),
        ("SubmitJob", ["no list"]),
        ("SubmitManyJobs", [[{"OP_ID": "OP_TEST_DELAY"}]]),
        ("Query", ["job", "id", None]),
        ("Query", [None, ["id"], None]),
        ("QueryNodes", [None, ["name"], False]),
        ("QueryNodes", [[], ["name"]]),
        ("QueryJobs", [["x"], ["id"]]),
        ("ChangeJobPriority", [1, "high"]),
        ("ChangeJobPriority", [1, 2**70]),
        ("SetDrainFlag", [1]),
        ("SetWatcherPause", ["noon"]),
        ("SetWatcherPause", [True]),
        ("AutoArchiveJobs", ["all", 5]),
        ("ReplaceFilter", [None, 2**70, [], "PAUSE", []]),
        ("QueryTags", ["dog", "rex"]),
        ("Query", ["frob", ["name"], None]),
        ("Query", ["job", ["id"], ["=", "id", 2**70]]),
    ],
)
def test_wrong_arguments_are_unreadable_and_named(method: str, args: list[Any]) -> None:
    found = refusal(method, *args)
    assert isinstance(found, UnreadableCallError)
    assert "\n" not in found.text


def test_deeply_nested_arguments_are_unreadable() -> None:
    nested: list[Any] = []
    for _ in range(200):
        nested = [nested]
    assert isinstance(refusal("Query", "job", ["id"], nested), UnreadableCallError)


def test_every_method_reads_or_writes_as_the_catalogue_says() -> None:
    writing = {name for name, method in METHODS.items() if method.is_writing}
    reading = {name for name in METHODS if name.startswith("Query")}
    assert writing | reading | {"PickupJob", "WaitForJobChange"} >= set(METHODS)
    assert not writing & reading


# ---------------------------------------------------------------- submitting


def test_a_submission_has_a_key_so_that_its_repetition_stores_nothing() -> None:
    [asked] = asks("SubmitJob", [DELAY], replies=[messages.JobsSubmitted([17])])
    assert asked.key == UUID
    assert not asked.ignores_drain
    assert [spec.ops for spec in asked.jobs] == [[DELAY]]


def test_a_drained_queue_can_be_passed() -> None:
    [asked] = asks("SubmitJobToDrainedQueue", [DELAY], replies=[messages.JobsSubmitted([17])])
    assert asked.ignores_drain


def test_of_many_jobs_those_that_a_rule_rejects_are_named_in_their_places() -> None:
    reply = messages.JobsSubmitted([4, 5], rejected={1: "rejected by rule x"})
    _, found = talk("SubmitManyJobs", [[DELAY]] * 3, replies=[reply])
    assert found == [[True, 4], [False, "the job is rejected by rule x"], [True, 5]]


def test_a_single_rejected_job_is_an_error() -> None:
    reply = messages.JobsSubmitted([], rejected={0: "rejected by rule x"})
    found = refusal("SubmitJob", [DELAY], replies=[reply])
    assert (found.luxi_name, found.text) == ("OpPrereqError", "the job is rejected by rule x")


def test_no_jobs_need_no_question() -> None:
    assert talk("SubmitManyJobs", []) == ([], [])


# ---------------------------------------------------------------- queries


def test_pages_are_joined_into_one_answer() -> None:
    pages = [page(b"[[[0,1]],[[0,2]]]", "2"), page(b"[]", "9"), page(b"[[[0,10]]]")]
    asked, found = talk("Query", "job", ["id"], None, replies=pages)
    assert [request.after for request in asked] == [None, "2", "9"]
    assert found == {"fields": [{"name": "id"}], "data": [[[0, 1]], [[0, 2]], [[0, 10]]]}


def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(luxi_queries, "REPLY_BYTES_MAX", 20)
    pages = [page(b"[[[0,1]],[[0,2]]]", str(number)) for number in range(3)]
    assert "more than 20 bytes" in refusal("Query", "job", ["id"], None, replies=pages).text


@pytest.mark.parametrize("what", ["cluster", "os"])
def test_what_only_jobs_ask_for_is_refused_as_by_luxid(what: str) -> None:
    found = refusal("Query", what, ["name"], None)
    assert (found.luxi_name, found.text.split("'")[2]) == ("GenericError", " not supported")


def test_a_filter_that_cannot_be_read_is_unreadable() -> None:
    broken = errors.FilterRuleError("Unknown filter operand '??'")
    found = refusal("Query", "node", ["name"], ["??", "name", "x"], replies=[broken])
    assert found.text == (
        """Cannot convert value '["node", ["name"], ["??", "name", "x"]]', """
        "error: Unknown filter operand '??'"
    )


@pytest.mark.parametrize("ids", [None, []])
def test_without_ids_all_jobs_are_listed(ids: list[int] | None) -> None:
    [asked] = asks("QueryJobs", ids, ["id"], replies=[page(b"[[1]]")])
    assert (asked.filter, asked.is_classic) == (None, True)


def test_job_ids_may_be_texts() -> None:
    [asked] = asks("QueryJobs", ["3", 1], ["id"], replies=[page(b"[[3],[1]]")])
    assert asked.filter == ["|", ["==", "id", 3], ["==", "id", 1]]


OPCODES = (
    b'[{"OP_ID":"OP_EXEC","argv":["x"],"env":{"A":"secret"},"stdin":"secret"},'
    b'{"OP_ID":"OP_OF_OLD","a":1}]'
)
HIDDEN = [
    {"OP_ID": "OP_EXEC", "argv": ["x"], "env": {"A": "<redacted>"}, "stdin": "<redacted>"},
    {"OP_ID": "OP_OF_OLD", "a": "<redacted>"},
]


@pytest.mark.parametrize("may_write", [True, False])
def test_private_parameters_are_for_those_who_may_write(may_write: bool) -> None:  # noqa: FBT001
    seen = HIDDEN if not may_write else msgspec.json.decode(OPCODES)
    classic = [page(b"[[7,%b],[8,null]]" % OPCODES)]
    _, rows = talk("QueryJobs", None, ["id", "ops"], replies=classic, may_write=may_write)
    assert rows == [[7, seen], [8, None]]
    new = [page(b"[[[0,7],[0,%b]],[[0,8],[1,null]]]" % OPCODES)]
    _, answer = talk("Query", "job", ["id", "ops"], None, replies=new, may_write=may_write)
    assert answer["data"] == [[[0, 7], [0, seen]], [[0, 8], [1, None]]]


RESULTS = b'[{"exit_code":0,"stdout_tail":"secret","stderr_tail":""}]'
LOGS = b'[[[1,[0,0],"stdout","secret"],[2,[0,0],"message","x"]]]'


@pytest.mark.parametrize("may_write", [True, False])
def test_output_is_for_those_who_may_write(may_write: bool) -> None:  # noqa: FBT001
    word = "secret" if may_write else "<redacted>"
    log = [[1, [0, 0], "stdout", word], [2, [0, 0], "message", "x"]]
    result = {"exit_code": 0, "stdout_tail": word, "stderr_tail": ""}
    new = [page(b"[[[0,%b],[0,%b]],[[1,null],[1,null]]]" % (RESULTS, LOGS))]
    fields = ["opresult", "oplog"]
    _, answer = talk("Query", "job", fields, None, replies=new, may_write=may_write)
    assert answer["data"] == [[[0, [result]], [0, [log]]], [[1, None], [1, None]]]
    waited = messages.JobAwaited(values=b'["success"]', log=LOGS[1:-1], is_final=True)
    _, answer = talk(
        "WaitForJobChange", 7, ["status"], None, 0, 5, replies=[waited], may_write=may_write
    )
    assert answer == [["success"], log]


@pytest.mark.parametrize("name", ["ops", "opresult", "oplog"])
def test_who_may_only_read_asks_no_filter_that_tells_what_is_hidden(name: str) -> None:
    raw_filter = ["|", ["==", "id", 1], ["!", ["=~", name, "secret"]]]
    asked = refusal("Query", "job", ["id"], raw_filter, may_write=False)
    assert asked.text == f"filter: who may only read may not look at {name}"
    talk("Query", "job", ["id"], raw_filter, replies=[page(b"[]")], may_write=True)
    others = ["|", ["==", "id", 1], ["=", "status", "running"]]
    talk("Query", "job", ["id"], others, replies=[page(b"[]")], may_write=False)


def test_who_may_only_read_asks_no_huge_filters() -> None:
    huge = ["|", *(["==", "id", number] for number in range(1_000))]
    asked = refusal("Query", "job", ["id"], huge, may_write=False)
    assert asked.text.startswith("filter: has more than 1000 operators")
    for may_write, raw_filter in ((True, huge), (False, huge[:-1])):
        talk("Query", "job", ["id"], raw_filter, replies=[page(b"[]")], may_write=may_write)


def test_who_may_only_read_waits_for_other_changes_than_of_opcodes() -> None:
    waited = messages.JobAwaited(values=b'["success",7]', log=b"[]", is_final=True)
    fields, known = ["status", "ops", "id"], ["running", None, 7]
    [asked], answer = talk(
        "WaitForJobChange", 7, fields, known, None, 5, replies=[waited], may_write=False
    )
    assert (asked.fields, asked.values) == (["status", "id"], ["running", 7])
    assert answer == [["success", None, 7], []]


def test_very_many_jobs_are_asked_for_in_several_questions() -> None:
    ids = [*range(luxi_queries.IDS_PER_QUERY + 1), 0]
    asked, rows = talk(
        "QueryJobs", ids, ["id"], replies=[page(b"[[0],[1]]"), page(b"[[2]]", "x"), page(b"[[3]]")]
    )
    sizes = [len(one.filter) - 1 for one in asked]
    assert sizes == [luxi_queries.IDS_PER_QUERY, 1, 1]
    assert rows == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("QueryNodes", "node"),
        ("QueryInstances", "instance"),
        ("QueryGroups", "group"),
        ("QueryNetworks", "network"),
    ],
)
def test_classic_queries_take_no_locks(method: str, what: str) -> None:
    with_locks, without = True, False
    [asked] = asks(method, ["a"], ["name"], without, replies=[page(b"[]")])
    assert (asked.what, asked.filter) == (what, ["|", ["==", "name", "a"]])
    assert refusal(method, ["a"], ["name"], with_locks).text == "Sync queries are not allowed"


def test_config_values_come_in_the_order_asked_and_unknown_ones_are_null() -> None:
    cluster = page(b'[[[0,"c"],[3,null],[0,"m"],[0,true]]]')
    described = messages.ClusterDescribed({"ssh_key_bits": 2048})
    names = ["ssh_key_bits", "drain_flag", "nonsense", "cluster_name", "watcher_pause"]
    _, found = talk("QueryConfigValues", names, replies=[cluster, described])
    assert found == [2048, True, None, "c", None]


def test_config_values_ask_only_what_they_need() -> None:
    assert asks("QueryConfigValues", ["nonsense"]) == []


def test_tags_of_something_unknown_are_an_error() -> None:
    unknown = errors.UnknownObjectError("Instance name nope not found")
    found = refusal("QueryTags", "instance", "nope", replies=[unknown])
    assert (found.luxi_name, found.text) == ("OpPrereqError", unknown.text)


def test_tags_of_the_cluster_need_no_name() -> None:
    described = messages.ClusterDescribed({"tags": ["a", "b"]})
    assert talk("QueryTags", "cluster", None, replies=[described])[1] == ["a", "b"]


# ---------------------------------------------------------------- jobs


def test_waiting_names_what_the_client_knows_and_ends_with_its_connection() -> None:
    reply = messages.JobAwaited(b'["running"]', b'[[3,[1,2],"message","hi"]]', is_final=False)
    [asked], found = talk("WaitForJobChange", "5", ["status"], ["queued"], 2, 60, replies=[reply])
    assert asked == messages.AwaitJobChange(
        5, ["status"], values=["queued"], log_serial=2, seconds=60.0, ticket=7
    )
    assert found == [["running"], [[3, [1, 2], "message", "hi"]]]


@pytest.mark.parametrize(("given", "taken"), [(-1, 0.0), (0, 0.0), (89, 89.0), (3_600, 89.0)])
def test_nobody_waits_longer_than_ganetis_clients_do(given: int, taken: float) -> None:
    reply = messages.JobAwaited(b"[]", b"[]", is_final=True)
    [asked] = asks("WaitForJobChange", 5, [], None, None, given, replies=[reply])
    assert asked.seconds == taken


@pytest.mark.parametrize("error", [errors.UnknownJobError(), errors.ArchivedJobError()])
def test_a_job_that_is_not_live_is_lost(error: errors.GangerError) -> None:
    found = refusal("WaitForJobChange", 5, [], None, None, 1, replies=[error])
    assert (found.luxi_name, found.text) == ("JobLost", "Can't load job file")


def status(name: str) -> messages.JobAwaited:
    is_final = name in ("success", "error", "canceled")
    return messages.JobAwaited(b'["%b"]' % name.encode(), b"[]", is_final=is_final)


@pytest.mark.parametrize(("args", "kills"), [((5,), False), ((5, False), False), ((5, True), True)])
def test_cancel_kills_only_if_asked(args: tuple[Any, ...], *, kills: bool) -> None:
    outcome = messages.CancelOutcome(accepted=False, text="Job 5 not found in queue")
    asked, found = talk("CancelJob", *args, replies=[outcome])
    assert (asked[0].kill, found) == (kills, [False, "Job 5 not found in queue"])


def test_who_kills_does_not_wait() -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Job 5 will be killed")
    assert talk("CancelJob", *(5, True), replies=[outcome])[1] == [True, "Job 5 will be killed"]


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        (["canceled"], [True, "Job successfully cancelled"]),
        (["waiting", "canceling", "canceled"], [True, "Job successfully cancelled"]),
        (
            ["waiting", "running", "success"],
            [
                False,
                "Job exited before it could have been canceled, status JOB_STATUS_SUCCESS",
            ],
        ),
    ],
)
def test_cancel_tells_what_has_become_of_the_job(statuses: list[str], found: list[Any]) -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Job 5 will be canceled")
    replies = [outcome, *(status(name) for name in statuses)]
    asked, answer = talk("CancelJob", 5, replies=replies)
    assert answer == found
    # Each wait begins where the last one ended.
    assert [one.values for one in asked[1:]] == [None, *([name] for name in statuses[:-1])]


def test_a_job_with_a_process_that_has_ended_at_once_was_canceled() -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Job 5 will be canceled")
    found = talk("CancelJob", 5, replies=[outcome, status("canceled")])[1]
    assert found == [True, "Job successfully cancelled"]


def test_cancel_waits_no_longer_than_luxid() -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Job 5 will be canceled")
    asked, answer = talk(
        "CancelJob",
        5,
        replies=[outcome, status("waiting"), status("running")],
        times=[100.0, 100.0, 101.0, 101.0, 144.0],
    )
    assert answer == [False, "Job could not be canceled, status JOB_STATUS_RUNNING"]
    assert [one.seconds for one in asked[1:]] == [44.0, 43.0]


def test_a_canceled_job_that_is_archived_meanwhile_was_canceled() -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Job 5 will be canceled")
    replies = [outcome, errors.ArchivedJobError()]
    assert talk("CancelJob", 5, replies=replies)[1] == [True, "Job successfully cancelled"]


def test_nobody_waits_for_a_job_without_a_process() -> None:
    outcome = messages.CancelOutcome(accepted=True, text="Dequeued job 5", has_ended=True)
    asked, answer = talk("CancelJob", 5, replies=[outcome])
    assert (len(asked), answer) == (1, [True, "Dequeued job 5"])


@pytest.mark.parametrize("error", [errors.UnknownJobError(), errors.JobStateError()])
def test_what_cannot_be_archived_is_false(error: errors.GangerError) -> None:
    assert talk("ArchiveJob", 5, replies=[error])[1] is False


def test_a_disk_that_refuses_an_archival_is_an_error() -> None:
    assert refusal("ArchiveJob", 5, replies=[errors.ReadOnlyError()]).luxi_name == "GenericError"


@pytest.mark.parametrize(
    ("method", "arguments"), [("SubmitJob", [DELAY]), ("CancelJob", 5), ("ArchiveJob", 5)]
)
def test_an_outcome_that_nobody_knows_is_called_unknown(method: str, arguments: Any) -> None:
    unknown = errors.OutcomeUnknownError.of(errors.StorageError("Input/output error"))
    found = refusal(method, arguments, replies=[unknown])
    assert found.luxi_name == "GenericError"
    assert found.text == "Input/output error; whether this change took effect is unknown"


def test_autoarchive_goes_on_until_nothing_is_left() -> None:
    outcomes = [
        messages.ArchiveOutcome([1, 2], left=3),
        messages.ArchiveOutcome([3, 4], left=1),
        messages.ArchiveOutcome([5], left=0),
    ]
    assert talk("AutoArchiveJobs", -1, 60, replies=outcomes)[1] == [5, 0]


def test_autoarchive_ends_with_its_time() -> None:
    outcomes = [messages.ArchiveOutcome([1, 2], left=3), messages.ArchiveOutcome([3], left=2)]
    _, found = talk("AutoArchiveJobs", 0, 5, replies=outcomes, times=[100.0, 104.0, 105.0])
    assert found == [3, 2]


# ---------------------------------------------------------------- rules


def test_a_new_rule_is_named_by_the_door_so_that_its_repetition_is_harmless() -> None:
    [asked] = asks("ReplaceFilter", None, 1, [], "PAUSE", [], replies=[messages.FilterStored("u")])
    assert asked.uuid == UUID


def test_a_malformed_uuid_is_an_error_and_a_malformed_rule_unreadable() -> None:
    bad = errors.FilterRuleError("uuid: expected a UUID")
    assert refusal("ReplaceFilter", "x", 1, [], "PAUSE", [], replies=[bad]).text == (
        "Unable to parse UUID"
    )
    bad = errors.FilterRuleError("action: malformed")
    found = refusal("ReplaceFilter", None, 1, [], "FROB", [], replies=[bad])
    assert isinstance(found, UnreadableCallError)


@pytest.mark.parametrize("error", [errors.UnknownFilterError(), errors.FilterRuleError("uuid: u")])
def test_an_unknown_rule_is_an_error_with_ganetis_text(error: errors.GangerError) -> None:
    found = refusal("DeleteFilter", "u", replies=[error])
    assert (found.luxi_name, found.text) == (
        "GenericError",
        "Filter rule with UUID u does not exist",
    )


def test_pickup_is_for_nobody() -> None:
    assert refusal("PickupJob", 5).text == "Luxi call 'PickupJob' is for internal use only"


@pytest.mark.parametrize("until", [None, 1_795_226_369, 1_795_226_369.5])
def test_the_watcher_is_paused_until_a_time_that_is_answered(until: float | None) -> None:
    [asked], result = talk("SetWatcherPause", until, replies=[messages.Done()])
    assert asked == messages.SetWatcherPause(until)
    assert (type(result), result) == (type(until), until)
