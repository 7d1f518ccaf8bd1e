"""Recorded exchanges of Ganeti 3.0's remote API, replayed against a daemon.

It serves the recorded configuration and a part of the recorded queue. The same status, shape and
types: where they differ, a test says so.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rapi.served import JSON, Answer, Served

DATA = Path(__file__).parent / "data"
RECORDED = {path.stem: json.loads(path.read_text()) for path in (DATA / "rapi").glob("*.json")}

EXACT = (
    "001-version", "002-root", "007-no-auth", "008-bad-auth", "010-bad-method", "011-bad-method2",
    "016-job-bad-id", "017-nodes", "019-instances", "023-networks", "026-node-unknown",
    "028-instance-unknown", "029-group", "031-node-role", "032-instance-tags", "035-query-lock",
    "037-query-bad-kind", "038-query-nofields", "047-create-bad-json", "049-create-no-version",
    "050-create-wrong-ctype", "064-filter-post-bad-pred", "065-filter-post-unknown-key",
    "079-job-cancel-again", "080-job-cancel-unknown",
)  # fmt: skip
"""Status and body are those of the recording."""

NO_OPERATION = {
    "043-reboot": "OP_INSTANCE_REBOOT",
    "044-reboot-unknown": "OP_INSTANCE_REBOOT",
    "046-startup": "OP_INSTANCE_STARTUP",
}
"""Ganeti has submitted a job with an opcode that nothing here can run."""

TOLD_APART = (
    "004-info", "005-features", "013-jobs-bulk", "014-job", "020-instances-bulk",
    "022-groups-bulk", "025-node", "034-query-job", "052-job-wait", "053-job-done",
    "083-redistribute",
)  # fmt: skip
"""Each of these has a test of its own."""

STORY = (
    "055-filters-empty", "056-filter-post", "058-filters-bulk", "059-filter-get",
    "061-filter-post-empty", "062-filter-post-bad-action", "040-put-tags", "041-put-tags-dry",
    "067-job-paused", "068-filter-put", "070-filter-put-no-uuid-existing", "071-filters2",
    "073-filter-delete", "074-filter-delete", "076-filter-pause-all", "077-put-tags-held",
    "082-filter-delete2",
)  # fmt: skip
"""One test plays these in order: each changes what the next one sees."""

MORE_HEADERS = {"cache-control", "x-content-type-options"}
"""They keep answers out of caches, and browsers from guessing what an answer is."""

OF_NODES = ("dtotal", "dfree", "mtotal", "mnode", "mfree", "ctotal", "cnos", "cnodes", "csockets")
OF_HYPERVISORS = ("oper_state", "oper_ram", "oper_vcpus", "status")
"""What only the nodes know is shown as for a node that does not answer."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    data = folder / "data"
    data.mkdir(mode=0o700)
    shutil.copytree(DATA / "queue", data / "queue")
    config = json.loads((DATA / "config.data").read_text())
    # The rules of the recording came after the exchanges.
    config["filters"] = {}
    (data / "config.data").write_text(json.dumps(config))
    (data / "config.data").chmod(0o600)
    with Served(folder) as daemon:
        yield daemon


def play(served: Served, name: str, path: str | None = None) -> Answer:
    """The answer to a recorded request, which may be for another path."""
    request = RECORDED[name]["request"]
    user = {True: "admin", False: None}[request["auth"]]
    wrong = {"Authorization": "Basic YWRtaW46d3Jvbmc="}
    is_wrong = "bad-auth" in name
    return served.request(
        request["method"],
        path or request["path"],
        request["body"],
        user=None if is_wrong else user,
        headers=wrong if is_wrong else None,
        content_type="text/plain" if "wrong-ctype" in name else JSON,
    )


def recorded(name: str) -> Any:
    return RECORDED[name]["response"]


def shape(value: object) -> Any:
    """The keys and types of a value."""
    match value:
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(item) for item in value]
    return type(value)


def test_every_recorded_exchange_is_replayed() -> None:
    assert {*EXACT, *NO_OPERATION, *TOLD_APART, *STORY} == RECORDED.keys()


@pytest.mark.parametrize("name", EXACT)
def test_the_answer_is_the_recorded_one(served: Served, name: str) -> None:
    answer = play(served, name)
    assert (answer.status, answer.body) == (RECORDED[name]["status"], recorded(name))
    headers = RECORDED[name]["headers"]
    ours = answer.headers.keys() - MORE_HEADERS
    assert ours | {"connection"} == {key.lower() for key in headers}
    assert answer.headers["content-type"] == headers["Content-Type"]
    assert answer.headers["server"].startswith(headers["Server"])
    assert answer.headers.get("www-authenticate") == headers.get("WWW-Authenticate")
    assert answer.text.endswith("\n")


@pytest.mark.parametrize("name", NO_OPERATION)
def test_an_opcode_that_nothing_can_run_is_refused(served: Served, name: str) -> None:
    answer = play(served, name)
    assert answer.status == answer.body["code"] == 501
    assert answer.body["message"].startswith(f"{NO_OPERATION[name]}: this opcode is known, but ")
    assert answer.body["explain"] == "Server does not support this operation"


def test_the_cluster_is_described_as_recorded(served: Served) -> None:
    expected = recorded("004-info")
    answer = play(served, "004-info").body
    assert list(answer) == list(expected)
    # The recorded configuration is younger than the exchange.
    others = {"vcs_version", "mtime", "tags", "max_running_jobs"}
    assert {name for name in expected if answer[name] != expected[name]} <= others
    assert shape(answer) | {"tags": None} == shape(expected) | {"tags": None}


def test_the_features_are_those_of_ganeti(served: Served) -> None:
    assert sorted(play(served, "005-features").body) == sorted(recorded("005-features"))


def test_jobs_have_the_recorded_values(served: Served) -> None:
    found = {job["id"]: job for job in play(served, "013-jobs-bulk").body}
    expected = {job["id"]: job for job in recorded("013-jobs-bulk")}
    both = found.keys() & expected.keys()
    assert len(both) > 10
    for job_id in both:
        assert_same_job(found[job_id], expected[job_id])


def test_one_job_has_the_recorded_values(served: Served) -> None:
    assert_same_job(play(served, "014-job").body, recorded("014-job"))


OURS = ("outcome", "reason_ended", "cause", "name", "plan", "user")
"""What a job has beside Ganeti's fields, behind them."""

_NUMBER = re.compile(r"(?<=TEST_DELAY)\(.*\)")


def assert_same_job(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == [*expected, *OURS]
    for name, value in expected.items():
        if name == "summary":
            # Ganeti 3.1 has another form for durations.
            assert [_NUMBER.sub("", text) for text in found[name]] == [
                _NUMBER.sub("", text) for text in value
            ]
        else:
            assert found[name] == value


def test_an_ended_job_has_the_recorded_shape(served: Served) -> None:
    # The recorded queue has kept another job of this kind.
    expected = recorded("053-job-done")
    found = play(served, "053-job-done", "/2/jobs/20").body
    assert list(found) == [*expected, *OURS]
    for name in expected:
        assert type(found[name]) is type(expected[name])
    for name in ("received_ts", "start_ts", "end_ts", "opstatus", "summary"):
        assert shape(found[name]) == shape(expected[name])


def test_an_unknown_job_has_no_values(served: Served) -> None:
    found = served.get("/2/jobs/136")
    assert list(found) == [*recorded("053-job-done"), *OURS]
    assert [name for name, value in found.items() if value is not None] == ["id"]


def test_instances_have_the_recorded_values(served: Served) -> None:
    found = play(served, "020-instances-bulk").body
    for one, expected in zip(found, recorded("020-instances-bulk"), strict=True):
        # Ganeti 3.1 has added the parameters of the operating system.
        assert set(one) - set(expected) == {"custom_osparams"}
        assert shape({name: one[name] for name in expected if name not in OF_HYPERVISORS}) == shape(
            {name: expected[name] for name in expected if name not in OF_HYPERVISORS}
        )
        assert [one[name] for name in OF_HYPERVISORS] == [None, None, None, "ERROR_nodedown"]
    # The recorded configuration is younger: two of the instances were changed.
    unchanged = [1, 3]
    for place in unchanged:
        for name, value in recorded("020-instances-bulk")[place].items():
            if name not in OF_HYPERVISORS:
                assert found[place][name] == value, name


def test_groups_have_the_recorded_values(served: Served) -> None:
    found = play(served, "022-groups-bulk").body
    expected = recorded("022-groups-bulk")
    # The third group was added after the exchange.
    assert found[: len(expected)] == expected
    assert {tuple(group) for group in found} == {tuple(expected[0])}


def test_a_node_has_the_recorded_values(served: Served) -> None:
    found = play(served, "025-node").body
    expected = recorded("025-node")
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == (None if name in OF_NODES else value), name


def test_a_query_for_jobs_has_the_recorded_rows(served: Served) -> None:
    found = play(served, "034-query-job").body
    expected = recorded("034-query-job")
    assert found["fields"] == expected["fields"]
    rows = [row for row in expected["data"] if row in found["data"]]
    assert len(rows) > 10
    assert [row for row in found["data"] if row[0][1] <= rows[-1][0][1]] == rows


def test_waiting_tells_the_state_of_a_job_that_runs(served: Served) -> None:
    op = {"OP_ID": "OP_TEST_DELAY", "duration": 60, "on_master": False}
    job_id = served.done("POST", "/2/jobs", {"ops": [op]})
    path = f"/2/jobs/{job_id}/wait"
    while (answer := play(served, "052-job-wait", path).body)["job_info"][0] != "running":
        assert answer["job_info"][0] in {"queued", "waiting"}
        body = RECORDED["052-job-wait"]["request"]["body"]
        served.done("GET", path, body | {"previous_job_info": answer["job_info"]})
    assert answer == recorded("052-job-wait")
    with served.client() as client:
        client.cancel(job_id, kill=True)


def test_the_configuration_is_distributed_by_a_job(served: Served) -> None:
    answer = play(served, "083-redistribute")
    assert shape(answer.body) == shape(recorded("083-redistribute"))
    [op] = served.get(f"/2/jobs/{answer.body}")["ops"]
    assert op["reason"][0][:2] == ["gnt:library:rlib2:redist_config", ""]


def test_filter_rules_have_their_recorded_life(served: Served) -> None:
    assert play(served, "055-filters-empty").body == recorded("055-filters-empty")
    added = play(served, "056-filter-post")
    assert (added.status, shape(added.body)) == (200, str)
    bulk = play(served, "058-filters-bulk").body
    assert_same_rules(bulk, recorded("058-filters-bulk"))
    assert play(served, "059-filter-get", f"/2/filters/{added.body}").body == bulk[0]
    listed = served.get("/2/filters")
    assert listed == [{"uuid": added.body, "uri": f"/2/filters/{added.body}"}]

    empty = play(served, "061-filter-post-empty").body
    wrong = play(served, "062-filter-post-bad-action")
    expected = recorded("062-filter-post-bad-action")
    assert (wrong.status, wrong.body["explain"]) == (502, expected["explain"])
    assert wrong.body["message"].startswith("Failed to parse request: ")
    assert "malformed FilterAction JSON: &#x27;FROB&#x27;" in wrong.body["message"]

    tags = [play(served, name).body for name in ("040-put-tags", "041-put-tags-dry")]
    assert tags == [tags[0], tags[0] + 1]
    paused = play(served, "067-job-paused", f"/2/jobs/{tags[0]}").body
    expected = recorded("067-job-paused")
    of_ours = dict.fromkeys((*OURS, "ops"))
    assert shape(paused) | of_ours == shape(expected) | of_ours
    assert shape(paused["ops"][0] | {"tags": []}) == shape(expected["ops"][0] | {"tags": []})
    assert paused["ops"][0]["tags"] == ["alpha", "beta"]
    assert [entry[0] for entry in paused["ops"][0]["reason"]] == [
        entry[0] for entry in expected["ops"][0]["reason"]
    ]

    path = f"/2/filters/{added.body}"
    assert play(served, "068-filter-put", path).body == added.body
    unknown = "070-filter-put-no-uuid-existing"
    assert play(served, unknown).body == recorded(unknown)
    rules = play(served, "071-filters2").body
    # The last two are alike but for the UUID, and one of these was chosen by chance.
    rules.sort(key=lambda rule: [empty, recorded(unknown), added.body].index(rule["uuid"]))
    assert_same_rules(rules, recorded("071-filters2"))
    for name, which in (("073-filter-delete", None), ("074-filter-delete", path)):
        assert play(served, name, which).text == recorded(name)

    paused_all = play(served, "076-filter-pause-all").body
    held = play(served, "077-put-tags-held").body
    assert served.get(f"/2/jobs/{held}")["status"] == "queued"
    text = [True, f"Dequeued job {held}"]
    assert served.done("DELETE", f"/2/jobs/{held}") == text
    again = served.done("DELETE", f"/2/jobs/{held}")
    assert again == [False, f"Job {held} not found in queue"]
    path = f"/2/filters/{paused_all}"
    deleted = play(served, "082-filter-delete2", path)
    assert (deleted.status, deleted.text) == (200, recorded("082-filter-delete2"))
    served.done("DELETE", f"/2/filters/{empty}")


def assert_same_rules(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """All but the UUIDs that were chosen, the times, and the last job of the queue."""
    for rule, one in zip(found, expected, strict=True):
        assert list(rule) == list(one)
        assert shape(rule) == shape(one)
        for name in ("priority", "predicates", "action"):
            assert rule[name] == one[name]
        assert [entry[:2] for entry in rule["reason_trail"]] == [
            entry[:2] for entry in one["reason_trail"]
        ]
