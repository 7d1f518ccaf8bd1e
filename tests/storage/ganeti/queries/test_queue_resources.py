"""The resources that are not objects of the cluster: jobs, locks and filter rules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.queries.recorded_answers import (
    DATA,
    RECORDED,
    larger,
    recorded,
    recorded_request,
)

from ganger.storage import errors
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.filters.filters import parse_filter
from ganger.storage.ganeti.queries.answering import query, query_fields, requested_names, values
from ganger.storage.ganeti.queries.filters import FILTERS
from ganger.storage.ganeti.queries.jobs import ARCHIVE_FIELD, JOBS, OURS, JobRow, Rows, job_id
from ganger.storage.ganeti.queries.locks import LOCKS, AwaitedJob, ordered
from ganger.storage.ganeti.queries.locks import Rows as LockRows
from ganger.storage.jobs.jobs import Job, JobStatus, OpcodeEntry, decode_job
from ganger.storage.locks.lock_rows import lock_rows
from ganger.storage.locks.locks import LockChange, LockMode, Owner, Pending

# ---------------------------------------------------------------- jobs


def queue() -> Rows:
    """The jobs of the recorded queue."""
    files = (DATA / "queue").glob("job-*")
    jobs = sorted((decode_job(file.read_bytes()) for file in files), key=lambda job: job.id)
    return {job.id: JobRow(job.id, job) for job in jobs}


def ids(raw_filter: object) -> list[int]:
    return [row[0][1] for row in query(JOBS, queue(), ["id"], raw_filter)["data"]]


def test_the_fields_of_jobs_are_defined_as_recorded() -> None:
    ganetis = [name for name in JOBS.fields if name not in OURS]
    assert query_fields(JOBS, ganetis) == recorded("022-QueryFields-job")
    assert ARCHIVE_FIELD in JOBS.fields


def test_a_job_is_answered_as_recorded() -> None:
    _ids, fields = recorded_request("080-QueryJobs-all-fields")
    (expected,) = recorded("080-QueryJobs-all-fields")
    found = dict(zip(fields, expected, strict=True))
    op = OpcodeEntry(
        input=found["ops"][0],
        status=JobStatus.SUCCESS,
        start_timestamp=tuple(found["opstart"][0]),
        exec_timestamp=tuple(found["opexec"][0]),
        end_timestamp=tuple(found["opend"][0]),
    )
    job = Job(
        id=88,
        ops=[op],
        received_timestamp=tuple(found["received_ts"]),
        start_timestamp=tuple(found["start_ts"]),
        end_timestamp=tuple(found["end_ts"]),
    )
    rows: Rows = {88: JobRow(88, job)}
    (row,) = values(JOBS, rows, fields, ["==", "id", 88])
    answer = {name: plain(value) for name, value in zip(fields, row, strict=True)}
    # Later versions of Ganeti count the duration in nanoseconds.
    assert answer.pop("summary") == ["TEST_DELAY(3000000000 ns)"]
    assert found.pop("summary") == ["TEST_DELAY(3.0)"]
    assert answer == found


def plain(value: Any) -> Any:
    """Time stamps are tuples here and arrays in JSON."""
    match value:
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return value


def test_jobs_come_in_the_order_of_their_ids() -> None:
    found = ids(None)
    assert found == sorted(found)
    assert {1, 16, 155} <= set(found)


def test_a_filter_chooses_jobs_as_recorded() -> None:
    kind, fields, raw_filter = recorded_request("041-Query-job-filter")
    assert kind == "job"
    answer = query(JOBS, queue(), fields, raw_filter)
    expected = recorded("041-Query-job-filter")
    assert answer["fields"] == expected["fields"]
    # Few of the jobs of that day are in the recorded queue.
    assert answer["data"] == [row for row in expected["data"] if row[0][1] in queue()]
    assert [row[0] for row in answer["data"]] == [[0, 7], [0, 8], [0, 16]]


def test_an_unknown_job_has_nothing_but_an_id() -> None:
    answer = query(JOBS, queue(), list(JOBS.fields), ["|", ["==", "id", 99_999]])
    (row,) = answer["data"]
    cells = dict(zip(JOBS.fields, row, strict=True))
    assert cells.pop("id") == [0, 99_999]
    assert set(map(tuple, cells.values())) == {(3, None)}


def test_jobs_are_named_by_numbers_or_digits_in_any_order() -> None:
    wanted = ["|", ["==", "id", 155], ["==", "id", "16"], ["==", "id", 4]]
    assert ids(wanted) == [155, 16, 4]
    assert ids(["|", wanted, ["==", "id", "155"]]) == [155, 16, 4]
    assert requested_names(JOBS, parse_filter(wanted)) == [155, "16", 4]
    assert requested_names(JOBS, parse_filter([">", "id", 4])) is None


def test_a_classic_listing_of_jobs_has_a_row_for_each_id() -> None:
    wanted, fields = recorded_request("077-QueryJobs-unknown-id")

    def found(fields: list[str], *ids: object) -> list[list[Any]]:
        return values(JOBS, queue(), fields, ["|", *(["==", "id", one] for one in ids)])

    assert found(fields, *wanted) == recorded("077-QueryJobs-unknown-id")
    assert found(["id"], 155, 9_999, "4", 9_999, 155) == [[155], [9_999], [4]]


@pytest.mark.parametrize("wanted", ["", "abc", "-1", -1, "1.5", "²", "9" * 20])
def test_what_is_no_job_id_is_refused(wanted: str | int) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^Invalid job ID "):
        job_id(wanted)


def test_times_are_filtered_by_their_seconds() -> None:
    job = next(row.job for row in queue().values() if row.id == 16)
    assert job is not None
    assert job.end_timestamp is not None
    end = job.end_timestamp[0]
    assert 16 in ids(["&", ["==", "end_ts", end]])
    assert 16 not in ids([">", "end_ts", end])
    pending = Job(id=1, ops=[OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"})])
    rows: Rows = {1: JobRow(1, pending)}
    answer = query(JOBS, rows, ["end_ts", "status"], [">", "end_ts", end])
    assert answer["data"] == [[[3, None], [0, "queued"]]]


def test_an_archived_job_says_so() -> None:
    job = Job(id=1, ops=[])
    rows: Rows = {1: JobRow(1, job, is_archived=True), 2: JobRow(2, job)}
    assert query(JOBS, rows, ["archived"])["data"] == [[[0, True]], [[0, False]]]


# ---------------------------------------------------------------- locks

NODE = "node/90910f02-036a-444f-8631-f25d6d53cb05"
HOLDER, WAITER = Owner(123, "/job_123", 1), Owner(124, "/job_124", 2)
HELD = [
    ("cluster/[lockset]", []),
    ("cluster/BGL", [(HOLDER, LockMode.SHARED), (WAITER, LockMode.SHARED)]),
    ("node/[lockset]", []),
    (NODE, [(HOLDER, LockMode.EXCLUSIVE)]),
]
WAITING = [Pending(0, WAITER, ((NODE, LockChange.EXCLUSIVE),))]
LOCK_FIELDS = ["name", "mode", "owner", "pending"]


def locks(held: list[Any], line: list[Pending]) -> LockRows:
    """What queries ask about, without jobs that others depend on."""
    return ordered(lock_rows(held, line), [])


def test_locks_are_answered_as_recorded() -> None:
    answer = query(LOCKS, locks(HELD, WAITING), LOCK_FIELDS)
    assert answer == recorded("160-Query-lock-held")


def test_no_locks_are_answered_as_recorded() -> None:
    answer = query(LOCKS, locks([], []), LOCK_FIELDS)
    expected = recorded("035-Query-lock")
    assert answer["fields"] == expected["fields"]
    assert answer["data"] == []


def test_a_lock_that_is_only_waited_for_has_a_row() -> None:
    named = Owner("luxid-ThreadId 17", "/luxid", 3)
    changes = (("node/n2", LockChange.SHARED), ("node/n1", LockChange.RELEASE))
    rows = locks([], [Pending(0, named, changes)])
    assert query(LOCKS, rows, LOCK_FIELDS)["data"] == [
        [[0, "node/n1"], [0, None], [0, []], [0, [["release", ['"luxid-ThreadId 17"']]]]],
        [[0, "node/n2"], [0, None], [0, []], [0, [["shared", ['"luxid-ThreadId 17"']]]]],
    ]


def test_a_name_filters_locks_and_an_unknown_one_finds_none() -> None:
    rows = locks(HELD, WAITING)
    found = query(LOCKS, rows, ["name"], ["==", "name", NODE])["data"]
    assert found == [[[0, NODE]]]
    assert query(LOCKS, rows, ["name"], ["==", "name", "node"])["data"] == []
    assert query(LOCKS, rows, ["name"], ["=[]", "owner", "124"])["data"] == [[[0, "cluster/BGL"]]]


def test_jobs_that_others_depend_on_stand_among_the_locks() -> None:
    awaited = [AwaitedJob("job/9", [("success,error", ["job/12"])]), AwaitedJob("job/10", [])]
    held = [(name, [(HOLDER, LockMode.SHARED)]) for name in ("cluster/BGL", "instance/z", NODE)]
    rows = ordered(lock_rows(held, []), awaited)
    answer = query(LOCKS, rows, LOCK_FIELDS)["data"]
    names = ["cluster/BGL", "instance/z", "job/9", "job/10", NODE]
    assert [row[0][1] for row in answer] == names
    assert answer[2][1:] == [[0, None], [0, []], [0, [["success,error", ["job/12"]]]]]


# ---------------------------------------------------------------- filter rules


def test_the_fields_of_filters_are_defined_as_recorded() -> None:
    assert query_fields(FILTERS, None) == recorded("023-QueryFields-filter")
    empty = query(FILTERS, Configuration.load({}), ["uuid", "action"])
    assert empty == recorded("034-Query-filter")


def test_filter_rules_are_answered_as_they_are_stored() -> None:
    stored = Configuration.load(RECORDED)
    fields = list(FILTERS.fields)
    rows = query(FILTERS, stored, fields)["data"]
    assert [dict(zip(fields, (cell[1] for cell in row), strict=True)) for row in rows] == [
        {name: rule[name] for name in fields} for _, rule in sorted(RECORDED["filters"].items())
    ]
    assert query(FILTERS, stored, ["priority"], ["==", "uuid", min(RECORDED["filters"])])[
        "data"
    ] == [[[0, 9]]]


@pytest.mark.parametrize("value", [None, ...], ids=["null", "missing"])
def test_a_rule_without_a_value_stops_no_answer(value: object) -> None:
    document = larger()
    for rule in document["filters"].values():
        for name in [name for name in rule if name != "uuid"]:
            rule[name] = None
            if value is ...:
                del rule[name]
    fields = list(FILTERS.fields)
    for row in query(FILTERS, Configuration.load(document), fields)["data"]:
        assert {name: status for name, (status, _) in zip(fields, row, strict=True)} == {
            name: 0 if name == "uuid" else 2 for name in fields
        }


def test_an_unknown_filter_rule_is_an_error() -> None:
    with pytest.raises(errors.UnknownObjectError, match=r"^Filter uuid nope not found$"):
        query(FILTERS, Configuration.load(RECORDED), ["uuid"], ["==", "uuid", "nope"])


def test_rules_are_in_the_natural_order_of_their_uuids() -> None:
    document = larger()
    uuids = [f"{text}-0000-4000-8000-000000000000" for text in ("0010", "000a", "9b", "10b")]
    rule = next(iter(document["filters"].values()))
    document["filters"] = {uuid: rule | {"uuid": uuid} for uuid in uuids}
    found = query(FILTERS, Configuration.load(document), ["uuid"])["data"]
    assert [row[0][1] for row in found] == [uuids[1], uuids[2], uuids[0], uuids[3]]


def test_parameters_that_are_null_are_left_out_as_luxid_does() -> None:
    shown: dict[str, Any] = {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 1,
        "depends": None,
        "comment": None,
    }
    unknown: dict[str, Any] = {"OP_ID": "OP_OF_LATER", "what": None}
    given = [{**shown, "dry_run": None, "on_node_uuids": None}, unknown]
    job = Job(id=9, ops=[OpcodeEntry(input=one) for one in given])
    rows: Rows = {9: JobRow(9, job)}
    assert values(JOBS, rows, ["ops"]) == [[[shown, unknown]]]
    assert "dry_run" in job.ops[0].input
