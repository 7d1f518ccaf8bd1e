"""Ganeti's own `luxi.Client`, unmodified, makes every call that it offers.

It runs in a process of its own, on Debian's Python, where it finds the socket at its usual path.
"""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compatibility.ganeti_tools import Tool, Tools

NODE, INSTANCE, GROUP, NETWORK = "node1.example.com", "inst1.example.com", "default", "net1"
NODE_UUID = "90910f02-036a-444f-8631-f25d6d53cb05"

DRIVER = """
import json, sys
from ganeti import luxi, opcodes

OPCODES = {"SubmitJob": 1, "SubmitJobToDrainedQueue": 1, "SubmitManyJobs": 2}

def loaded(value, depth):
    if depth == 0:
        return opcodes.OpCode.LoadOpCode(value)
    return [loaded(one, depth - 1) for one in value]

def plain(value):
    return value.ToDict() if hasattr(value, "ToDict") else value

client = None
for line in sys.stdin:
    method, args = json.loads(line)
    try:
        client = client or luxi.Client()
        if method == "offered":
            said = [None, [name for name in dir(luxi.Client) if name[0].isupper()]]
        else:
            if method in OPCODES:
                args = [loaded(args[0], OPCODES[method])]
            said = [None, plain(getattr(client, method)(*args))]
    except Exception as error:
        said = [type(error).__name__, list(error.args)]
    print(json.dumps(said), flush=True)
"""

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False, "reason": []}
LONG = {**DELAY, "duration": 600.0}


class LuxiError(Exception):
    """What the client raised: the name of its exception, and its arguments."""


class Luxi:
    """The client in its process: its calls are methods."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._seen = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._call(name, args)

    def begin(self, method: str, *args: Any) -> None:
        """Send a call; `result` waits for what it returns."""
        self._tool.stdin.write(json.dumps([method, args]).encode() + b"\n")

    def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        self.begin(method, *args)
        return self.result()

    def result(self) -> Any:
        """What the call that was begun returns; `LuxiError`."""
        self._seen += 1
        self._tool.until(lambda tool: tool.stdout.count("\n") >= self._seen)
        assert self._tool.stdout.count("\n") == self._seen, self._tool.finished()
        name, value = json.loads(self._tool.stdout.splitlines()[-1])
        if name is not None:
            raise LuxiError(name, value)
        return value


@pytest.fixture(scope="module")
def luxi(tools: Tools) -> Iterator[Luxi]:
    with connected(tools) as luxi:
        yield luxi


@pytest.fixture
def other(tools: Tools) -> Iterator[Luxi]:
    """A second client, which can wait while the first one acts."""
    with connected(tools) as luxi:
        yield luxi


@contextlib.contextmanager
def connected(tools: Tools) -> Iterator[Luxi]:
    script = tools.root / "driver.py"
    script.write_text(DRIVER)
    tool = tools.start(str(script))
    yield Luxi(tool)
    # Its input ends, and so does it.
    assert tool.finished().code == 0


@pytest.fixture
def paused(luxi: Luxi) -> Iterator[None]:
    """No job starts; all of them are canceled in the end."""
    rule = luxi.ReplaceFilter(None, 0, [], "PAUSE", [])
    yield
    for job_id in pending(luxi):
        luxi.CancelJob(job_id)
    luxi.DeleteFilter(rule)


def pending(luxi: Luxi) -> list[int]:
    rows = luxi.Query("job", ["id"], ["|", *(["==", "status", one] for one in PENDING)])["data"]
    return [job_id for ((_, job_id),) in rows]


PENDING = ("queued", "waiting")


def ended(luxi: Luxi, job_id: int) -> str:
    """The final status of a job."""
    before: list[Any] | None = None
    while before is None or before[0] not in ("success", "error", "canceled"):
        before, _ = luxi.WaitForJobChange(job_id, ["status"], before, None)
    return str(before[0])


def test_every_call_of_the_client_is_made_here(luxi: Luxi) -> None:
    called = re.compile(r'\bluxi\.([A-Z]\w+)\(|refusal\(luxi, "(\w+)"')
    made = {"".join(names) for names in called.findall(Path(__file__).read_text())}
    assert made - {"Client"} == set(luxi.offered())


def refusal(luxi: Luxi, name: str, *call: Any) -> tuple[str, list[Any]]:
    """How a call must fail: the name of the exception, and its arguments."""
    with pytest.raises(LuxiError) as caught:
        getattr(luxi, name)(*call)
    return caught.value.args[0], caught.value.args[1]


# ---------------------------------------------------------------- submitting


def test_a_job_runs(luxi: Luxi) -> None:
    job_id = luxi.SubmitJob([DELAY, {**DELAY, "comment": "second"}])
    assert ended(luxi, job_id) == "success"
    fields = ["id", "status", "opstatus", "opresult", "ops", "received_ts"]
    [row] = luxi.QueryJobs([job_id], fields)
    assert row[:4] == [job_id, "success", ["success"] * 2, [None, None]]
    assert [op["comment"] for op in row[4]] == [None, "second"]
    assert [type(part) for part in row[5]] == [int, int]


@pytest.mark.usefixtures("paused")
def test_many_jobs_are_submitted_with_dependencies(luxi: Luxi) -> None:
    after = {**DELAY, "depends": [[-1, ["success"]]]}
    [[is_first, first], [is_second, second]] = luxi.SubmitManyJobs([[DELAY], [after]])
    assert (is_first, is_second, second) == (True, True, first + 1)
    [[ops]] = luxi.QueryJobs([second], ["ops"])
    assert ops[0]["depends"] == [[first, ["success"]]]
    assert luxi.SubmitManyJobs([]) == []


def test_a_drained_queue_takes_only_what_ignores_that(luxi: Luxi) -> None:
    assert luxi.SetQueueDrainFlag(True) is True
    try:
        assert luxi.QueryConfigValues(["drain_flag"]) == [True]
        name, _ = refusal(luxi, "SubmitJob", [DELAY])
        assert name == "JobQueueDrainError"
        job_id = luxi.SubmitJobToDrainedQueue([DELAY])
        assert ended(luxi, job_id) == "success"
    finally:
        assert luxi.SetQueueDrainFlag(False) is True
    assert luxi.SetQueueDrainFlag(False) is True


def test_what_nothing_here_can_run_is_refused(luxi: Luxi) -> None:
    reboot = {"OP_ID": "OP_INSTANCE_REBOOT", "instance_name": INSTANCE, "reboot_type": "hard"}
    for call in (
        ("SubmitJob", [{**reboot, "reason": []}]),
        ("SubmitManyJobs", [[DELAY], [{**reboot, "reason": []}]]),
    ):
        name, [text, code] = refusal(luxi, *call)
        assert (name, code) == ("OpPrereqError", "wrong_input")
        assert text.startswith("OP_INSTANCE_REBOOT: ")
    assert refusal(luxi, "PickupJob", 1)[0] == "GenericError"


def test_a_request_that_nobody_can_read_costs_the_connection_only(luxi: Luxi) -> None:
    name, [text] = refusal(luxi, "CallMethod", "SubmitJob", [[{**DELAY, "frob": 1}]])
    assert name == "RequestError"
    assert text.startswith("Failed to parse request: ")
    # The client connects again by itself.
    assert luxi.CallMethod("QueryConfigValues", [["cluster_name"]]) == ["cluster.example.com"]
    assert luxi.Close() is None
    assert luxi.QueryConfigValues(["master_node"]) == [NODE]


# ---------------------------------------------------------------- following and changing jobs


def test_a_change_is_heard_at_once(luxi: Luxi, other: Luxi) -> None:
    rule = luxi.ReplaceFilter(None, 0, [], "PAUSE", [["gnt:user", "later", 1]])
    job_id = luxi.SubmitJob([{**DELAY, "repeat": 2}])
    now = luxi.WaitForJobChangeOnce(job_id, ["status", "priority"], None, None)
    assert now == [["queued", 0], []]
    other.begin("WaitForJobChangeOnce", job_id, ["status", "priority"], *now[:1], None)
    assert luxi.ChangeJobPriority(job_id, -10)[0] is True
    assert other.result() == [["queued", -10], []]
    other.begin("WaitForJobChange", job_id, ["status"], ["queued"], None)
    luxi.DeleteFilter(rule)
    [[status], _] = other.result()
    assert status != "queued"
    ended(luxi, job_id)
    values, log = luxi.WaitForJobChange(job_id, ["status"], ["success"], None)
    assert values == ["success"]
    assert [(serial, kind, text) for serial, _, kind, text in log] == [
        (number + 1, "message", f" - INFO: Test delay iteration {number}/1") for number in (0, 1)
    ]
    assert luxi.WaitForJobChange(job_id, ["status"], None, 1)[1] == log[1:]
    assert luxi.WaitForJobChange(job_id, ["status", "bogus"], None, 2) == [[None, None], []]


@pytest.mark.usefixtures("paused")
def test_without_a_change_the_answer_comes_after_the_timeout(luxi: Luxi) -> None:
    job_id = luxi.SubmitJob([DELAY])
    before = time.monotonic()
    assert luxi.WaitForJobChangeOnce(job_id, ["status"], ["queued"], None, 1) == [["queued"], []]
    assert 1.0 <= time.monotonic() - before < 30
    for lost in (job_id + 1, 999_999):
        name, _ = refusal(luxi, "WaitForJobChangeOnce", lost, ["status"], None, None)
        assert name == "JobLost"


@pytest.mark.usefixtures("paused")
def test_pending_jobs_are_canceled_and_archived(luxi: Luxi) -> None:
    job_id = luxi.SubmitJob([LONG])
    assert luxi.ArchiveJob(job_id) is False, "it has not ended"
    assert luxi.ChangeJobPriority(str(job_id), 10)[0] is True
    assert luxi.QueryJobs([job_id], ["priority"]) == [[10]]
    is_done, text = luxi.CancelJob(job_id)
    assert (is_done, text) == (True, f"Dequeued job {job_id}")
    assert luxi.CancelJob(job_id) == [False, f"Job {job_id} not found in queue"]
    assert luxi.ChangeJobPriority(job_id, 0) == [False, f"Job {job_id} not found in queue"]
    assert luxi.ArchiveJob(job_id) is True
    assert luxi.ArchiveJob(job_id) is False
    assert luxi.CancelJob(999_999, True)[0] is False
    assert luxi.AutoArchiveJobs(1e9) == [0, 0]


# ---------------------------------------------------------------- questions


def test_questions_are_answered_in_both_forms(luxi: Luxi) -> None:
    found = luxi.Query("node", ["name", "role", "mfree", "frob"], None)
    assert found["data"] == [[[0, NODE], [0, "M"], [2, None], [1, None]]]
    assert [field["kind"] for field in found["fields"]] == ["text", "text", "unit", "unknown"]
    names = [field["name"] for field in luxi.QueryFields("lock", None)["fields"]]
    assert names == ["mode", "name", "owner", "pending"]
    assert luxi.QueryNodes([NODE, "nope"], ["name", "mfree"], False) == [[NODE, None]]
    assert luxi.QueryInstances([INSTANCE], ["name", "pnode"], False) == [[INSTANCE, NODE]]
    assert [GROUP] in luxi.QueryGroups([], ["name"], False)
    assert luxi.QueryNetworks([NETWORK], ["gateway", "gateway6"], False) == [["10.77.1.254", None]]
    assert luxi.QueryExports([], False) == [[NODE, None]]
    assert luxi.QueryTags("instance", INSTANCE) == ["prod", "web"]
    assert "bench" in luxi.QueryTags("cluster", "")
    name, args = refusal(luxi, "QueryNodes", [], ["name"], True)
    assert (name, args) == ("OpPrereqError", ["Sync queries are not allowed", "wrong_input"])
    _, args = refusal(luxi, "QueryGroups", [], ["a", "name", "b"], False)
    assert args == ["Unknown output fields selected: a, b", "wrong_input"]
    name, args = refusal(luxi, "Query", "node", ["name"], ["==", "name", "nope"])
    assert (name, args[1]) == ("OpPrereqError", "unknown_entity")
    assert refusal(luxi, "Query", "cluster", ["name"], None)[0] == "GenericError"
    assert refusal(luxi, "QueryTags", "node", "nope")[0] == "OpPrereqError"


def test_the_cluster_is_described(luxi: Luxi) -> None:
    info = luxi.QueryClusterInfo()
    assert (info["name"], info["master"]) == ("cluster.example.com", NODE)
    assert (info["software_version"], info["protocol_version"]) == ("3.0.2", 3_000_000)
    assert [type(info[key]) for key in ("ctime", "tags", "ipolicy")] == [float, list, dict]
    assert luxi.QueryConfigValues(["cluster_name", "nope", "ssh_key_type"]) == [
        "cluster.example.com",
        None,
        "rsa",
    ]


def test_rules_are_kept(luxi: Luxi) -> None:
    predicates = [["jobid", ["=", "id", 17]]]
    rule = luxi.ReplaceFilter(None, 3, predicates, "REJECT", [["gnt:user", "no", 1]])
    assert str(uuid.UUID(rule)) == rule
    fields = ["uuid", "priority", "predicates", "action"]
    expected = [rule, 3, [["jobid", ["==", "id", 17]]], "REJECT"]
    assert luxi.QueryFilters([rule], fields) == [expected]
    assert luxi.ReplaceFilter(rule, 1, [], ["RATE_LIMIT", 7], []) == rule
    assert [rule, 1, [], ["RATE_LIMIT", 7]] in luxi.QueryFilters(None, fields)
    assert luxi.DeleteFilter(rule) is None
    name, [text] = refusal(luxi, "DeleteFilter", rule)
    assert (name, text) == ("GenericError", f"Filter rule with UUID {rule} does not exist")
    for action in ("FROB", ["RATE_LIMIT", -1]):
        name, [text] = refusal(luxi, "ReplaceFilter", None, 1, [], action, [])
        assert text.startswith("Failed to parse request: ")


def test_the_watcher_is_paused(luxi: Luxi) -> None:
    until = float(int(time.time()) + 600)
    assert luxi.SetWatcherPause(until) == until
    assert luxi.QueryConfigValues(["watcher_pause"]) == [until]
    assert luxi.SetWatcherPause(None) is None
    assert luxi.QueryConfigValues(["watcher_pause"]) == [None]


# ---------------------------------------------------------------- what differs


def test_what_cannot_work_is_refused_at_once(luxi: Luxi) -> None:
    name, [text, code] = refusal(luxi, "SubmitJob", [])
    assert (name, text, code) == ("OpPrereqError", "a job needs at least one opcode", "wrong_input")
    name, [text, code] = refusal(luxi, "SubmitJob", [{**DELAY, "depends": [[999_999, []]]}])
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert "there is no job 999999" in text


@pytest.mark.usefixtures("paused")
def test_a_job_whose_dependency_has_not_ended_is_waiting(luxi: Luxi) -> None:
    first = luxi.SubmitJob([DELAY])
    second = luxi.SubmitJob([{**DELAY, "depends": [[first, ["success"]]]}])
    assert luxi.QueryJobs([first, second], ["status"]) == [["queued"], ["waiting"]]
    name, [text, code] = refusal(luxi, "ChangeJobPriority", first, 77)
    assert (name, text) == ("OpPrereqError", "priority: expected -20 to 19, got 77")
    assert code == "wrong_input"
    # Both are canceled, in whatever order.
    assert luxi.CancelJob(first)[0] is True
    assert ended(luxi, second) == "canceled"


def test_a_reason_is_found_by_a_regular_expression(luxi: Luxi) -> None:
    rule = luxi.ReplaceFilter(None, 0, [["reason", ["=~", "reason", "^urg"]]], "REJECT", [])
    try:
        urgent = {**DELAY, "reason": [["gnt:user", "urgent", 1]]}
        rows = luxi.SubmitManyJobs([[urgent], [DELAY]])
        assert [is_taken for is_taken, _ in rows] == [False, True]
        assert rule in rows[0][1]
        assert ended(luxi, rows[1][1]) == "success"
    finally:
        luxi.DeleteFilter(rule)
