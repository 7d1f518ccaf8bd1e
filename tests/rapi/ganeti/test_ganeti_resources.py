"""Resources of the remote API, asked over HTTP as Ganeti's client never does."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import clusters
from tests.rapi.served import Served

from ganger.storage.filters import filters

NODE, OTHER = "node0.example.com", "node1.example.com"
INSTANCE = "instance0.example.com"
RULE = "11111111-2222-4333-8444-555555555555"
SLEEP = {"OP_ID": "OP_TEST_DELAY", "duration": 60, "on_master": False}
QUICK = {**SLEEP, "duration": 0.001}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    data = folder / "data"
    data.mkdir(mode=0o700)
    made = clusters.made_configuration(nodes=2, instances=2)
    (data / "config.data").write_text(json.dumps(made))
    (data / "config.data").chmod(0o600)
    with Served(folder) as daemon:
        yield daemon


@pytest.fixture
def paused(served: Served) -> Iterator[None]:
    """No job starts; all of them are canceled in the end."""
    served.done("PUT", f"/2/filters/{RULE}", {"action": "PAUSE"})
    yield
    for job in served.get("/2/jobs?bulk=1"):
        served.done("DELETE", f"/2/jobs/{job['id']}")
    served.done("DELETE", f"/2/filters/{RULE}")


def opcode(served: Served, job_id: int) -> dict[str, Any]:
    [op] = served.get(f"/2/jobs/{job_id}")["ops"]
    return dict(op)


# ---------------------------------------------------------------- requests that are none


@pytest.mark.parametrize("path", ["/3", "/2/frob", "/2/jobs/", "/2/jobs/1x", "/2/nodes/a%20b"])
def test_an_unknown_path_is_not_found(served: Served, path: str) -> None:
    assert served.refused(404, "GET", path) == "Not Found"
    assert served.refused(401, "GET", path, user=None) == "Unauthorized"


def test_a_wrong_method_is_not_supported(served: Served) -> None:
    text = "Method POST is unsupported for path /2/info"
    assert served.refused(501, "POST", "/2/info", {}) == text


@pytest.mark.parametrize("body", ["{", "nonsense", '{"a": 1} x', '{"a": NaN}', "[" * 100_000])
def test_a_body_that_is_no_json_is_refused(served: Served, body: str) -> None:
    assert served.refused(400, "PUT", "/2/modify", body) == "Unable to parse JSON data"


@pytest.mark.parametrize("kind", ["text/plain", "application/json; charset=utf-8", None])
def test_a_body_of_another_type_is_refused(served: Served, kind: str | None) -> None:
    message = served.refused(415, "PUT", "/2/modify", "{}", content_type=kind)
    assert message == "Unsupported Media Type"


def test_the_type_of_a_body_may_be_in_capitals(served: Served) -> None:
    served.done("PUT", "/2/query/node", {"fields": ["name"]}, content_type="Application/JSON")


def test_a_parameter_that_is_no_number_is_named(served: Served) -> None:
    text = "Invalid value for the &#x27;bulk&#x27; parameter"
    assert served.refused(400, "GET", "/2/jobs?bulk=yes") == text
    assert served.get("/2/nodes?bulk=0") == served.get("/2/nodes?bulk=")
    assert len(served.get("/2/nodes?bulk=1&bulk=0")[0]) > 2


@pytest.mark.parametrize(
    "path", [f"/2/nodes/{NODE}", "/2/nodes", f"/2/instances/{INSTANCE}", "/2/instances"]
)
def test_a_query_with_locks_is_refused(served: Served, path: str) -> None:
    text = "(&#x27;Sync queries are not allowed&#x27;, &#x27;wrong_input&#x27;)"
    assert served.refused(500, "GET", f"{path}?lock=1&bulk=1") == text


def test_many_requests_go_over_one_connection(served: Served) -> None:
    connection = served.connection()
    try:
        for _ in range(3):
            connection.request("GET", "/healthz")
            socket = connection.sock
            response = connection.getresponse()
            assert response.read()
            assert connection.sock is socket
    finally:
        connection.close()


# ---------------------------------------------------------------- jobs


def test_any_opcode_is_submitted_by_its_parameters(served: Served) -> None:
    first = served.done("POST", "/2/jobs", {"ops": [QUICK]})
    body = {
        "ops": [QUICK, {**QUICK, "comment": "own"}],
        "priority": -5,
        "reason": "because",
        "depends": [first, [first, ["success"]]],
        "comment": "common",
    }
    job = served.get(f"/2/jobs/{served.done('POST', '/2/jobs', body)}")
    assert [op["comment"] for op in job["ops"]] == ["common", "own"]
    assert {op["priority"] for op in job["ops"]} == {-5}
    assert job["ops"][0]["depends"] == [[first, ["success"]], [first, ["success"]]]
    assert job["ops"][0]["reason"][0][:2] == ["gnt:user", "because"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"ops": []},
        {"ops": QUICK},
        {"ops": [1]},
        {"ops": [{}]},
        {"ops": [{"OP_ID": "OP_FROB"}]},
        {"ops": [{"OP_ID": "OP_TEST_DELAY"}]},
        {"ops": [{**QUICK, "duration": "long"}]},
        {"ops": [{**QUICK, "frob": 1}]},
        {"ops": [QUICK], "priority": 99},
        {"ops": [QUICK], "priority": "high"},
        {"ops": [QUICK], "depends": [[1, ["fine"]]]},
        {"ops": [QUICK], "depends": [987_654]},
        {"ops": [QUICK], "depends": 7},
        {"ops": [QUICK], "frob": 1},
        {"ops": [QUICK], "comment": 5},
        {"ops": [QUICK], "reason": 5},
    ],
)
def test_a_job_that_is_none_is_refused(served: Served, body: Any) -> None:
    jobs = served.get("/2/jobs")
    assert served.refused(400, "POST", "/2/jobs", body)
    assert served.get("/2/jobs") == jobs


def test_a_job_with_an_opcode_that_nothing_can_run_is_refused(served: Served) -> None:
    op = {"OP_ID": "OP_NODE_POWERCYCLE", "node_name": NODE}
    message = served.refused(501, "POST", "/2/jobs", {"ops": [QUICK, op]})
    assert "OP_NODE_POWERCYCLE: " in message


def test_a_command_needs_its_own_right(served: Served) -> None:
    op = {"OP_ID": "OP_EXEC", "argv": ["true"]}
    for body in ({"ops": [op]}, {"ops": [QUICK, op]}):
        assert "OP_EXEC" in served.refused(403, "POST", "/2/jobs", body, user="writer")
    served.refused(400, "POST", "/2/jobs", {"ops": op}, user="writer")
    served.refused(403, "POST", "/2/jobs", {"ops": [QUICK]}, user="tagger")
    served.done("POST", "/2/jobs", {"ops": [op]})


def test_commands_of_nodes_are_not_named_in_a_job_either(served: Served) -> None:
    op = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "compression_tools": ["gzip"]}
    message = served.refused(403, "POST", "/2/jobs", {"ops": [QUICK, op]})
    assert message == "The parameter compression_tools cannot be set via RAPI"


NINES = "9" * 5_000


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/2/queue?limit={NINES}", None),
        ("GET", f"/2/queue?offset={NINES}", None),
        ("GET", f"/2/timeline?seconds={NINES}", None),
        ("GET", f"/2/events?job={NINES}", None),
        ("GET", f"/2/events?after=x.{NINES}", None),
        ("GET", f"/2/jobs?bulk={NINES}", None),
        ("POST", "/2/simulate", {"priorities": {NINES: 1}}),
        ("POST", "/2/simulate", {"ended": {NINES: "success"}}),
    ],
)
def test_a_number_with_thousands_of_digits_is_none(
    served: Served, method: str, path: str, body: Any
) -> None:
    served.refused(400, method, path, body)


@pytest.mark.usefixtures("paused")
def test_a_key_makes_a_repeated_submission_one(served: Served) -> None:
    for method, path, body in (
        ("POST", "/2/jobs", {"ops": [QUICK]}),
        ("PUT", "/2/tags?tag=a", None),
        ("DELETE", "/2/networks/n1", None),
    ):
        key = {"Idempotency-Key": f"{method} {path}"}
        first = served.done(method, path, body, headers=key)
        assert served.done(method, path, body, headers=key) == first
        assert served.done(method, path, body) > first
    long = {"Idempotency-Key": "k" * 2_000}
    assert "key: " in served.refused(400, "POST", "/2/jobs", {"ops": [QUICK]}, headers=long)


def test_a_drained_queue_is_unavailable(served: Served) -> None:
    with served.client() as client:
        client.drain()
        served.refused(503, "PUT", "/2/tags?tag=a")
        client.drain(drained=False)


def test_a_rejected_job_is_refused_with_the_rule(served: Served) -> None:
    rule = {"action": "REJECT", "reason": [["gnt:user", "closed", 1]]}
    served.done("PUT", f"/2/filters/{RULE}", rule)
    message = served.refused(400, "PUT", "/2/tags?tag=a")
    assert RULE in message
    served.done("DELETE", f"/2/filters/{RULE}")


@pytest.mark.parametrize("job_id", ["0", "987654", "9" * 18, "9" * 19, "9" * 100])
def test_an_unknown_job_has_only_its_id(served: Served, job_id: str) -> None:
    found = served.get(f"/2/jobs/{job_id}")
    assert {name for name, value in found.items() if value is not None} == {"id"}
    assert found["id"] == int(job_id)
    text = f"Job {job_id} not found in queue"
    assert served.done("DELETE", f"/2/jobs/{job_id}") == [False, text]
    message = served.refused(404, "GET", f"/2/jobs/{job_id}/wait", {"fields": ["status"]})
    assert message == "Can&#x27;t load job file"


def test_an_archived_job_is_shown_but_nobody_can_wait_for_it(served: Served) -> None:
    job_id = served.done("POST", "/2/jobs", {"ops": [QUICK]})
    with served.client() as client:
        client.wait(job_id)
        client.archive(job_id)
    assert served.get(f"/2/jobs/{job_id}")["status"] == "success"
    assert job_id not in {job["id"] for job in served.get("/2/jobs")}
    served.refused(404, "GET", f"/2/jobs/{job_id}/wait", {"fields": ["status"]})


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"fields": "status"},
        {"fields": [7]},
        {"fields": ["status"], "previous_job_info": "queued"},
        {"fields": ["status"], "previous_log_serial": "1"},
    ],
)
def test_waiting_for_nothing_is_refused(served: Served, body: Any) -> None:
    served.refused(400, "GET", "/2/jobs/1/wait", body)


def test_log_entries_end_waiting_and_come_once(served: Served) -> None:
    op = {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", "echo one; sleep 0.2; echo two"]}
    job_id = served.done("POST", "/2/jobs", {"ops": [op]})
    path = f"/2/jobs/{job_id}/wait"
    seen: list[list[Any]] = []
    serial = None
    info: list[Any] | None = None
    while info != ["success"]:
        body = {"fields": ["status"], "previous_job_info": info, "previous_log_serial": serial}
        found = served.done("GET", path, body)
        info = found["job_info"]
        seen += found["log_entries"]
        serial = max((entry[0] for entry in seen), default=None)
    assert [entry[0] for entry in seen] == list(range(1, len(seen) + 1))
    texts = [entry[3] for entry in seen]
    assert {"one", "two"} <= set(texts)


def test_a_job_tells_its_name_plan_and_submitter_alone_and_in_the_list(served: Served) -> None:
    mine = served.done("POST", "/2/jobs", {"ops": [QUICK], "name": "nightly"})
    with served.client() as client:
        [other] = client.submit_many([[QUICK]], plan="maintenance")
        [job] = client.wait(other)
    expected = {mine: ("nightly", "", "rapi:admin"), other: ("", "maintenance", job.user)}
    assert job.user
    listed = {job["id"]: job for job in served.get("/2/jobs?bulk=1")}
    for job_id, values in expected.items():
        for shown in (listed[job_id], served.get(f"/2/jobs/{job_id}")):
            assert (shown["name"], shown["plan"], shown["user"]) == values


# ---------------------------------------------------------------- bodies of opcodes


@pytest.mark.usefixtures("paused")
def test_listings_of_jobs_are_as_new_as_their_requests(served: Served) -> None:
    fields = "id,ops,status,summary,opstatus,received_ts,start_ts,end_ts"
    fields += ",outcome,reason_ended,cause,name,plan,user"

    def check() -> list[int]:
        bulk = served.get("/2/jobs?bulk=1")
        rows = served.get(f"/2/query/job?fields={fields}")["data"]
        assert [list(job.values()) for job in bulk] == [[value for _, value in row] for row in rows]
        short = served.get("/2/jobs")
        assert short == [{"id": job["id"], "uri": f"/2/jobs/{job['id']}"} for job in bulk]
        return [entry["id"] for entry in short]

    jobs = [served.done("POST", "/2/jobs", {"ops": [QUICK, QUICK]}) for _ in range(3)]
    assert check()[-3:] == jobs
    served.done("PUT", f"/2/jobs/{jobs[0]}/priority", {"priority": 7})
    check()
    served.done("DELETE", f"/2/jobs/{jobs[1]}")
    check()
    with served.client() as client:
        client.archive(jobs[1])
    assert jobs[1] not in check()
    later = {"ops": [QUICK], "depends": [[jobs[0], []]]}
    last = served.done("POST", "/2/jobs", later)
    assert check()[-1] == last


@pytest.mark.usefixtures("paused")
def test_what_the_url_says_cannot_stand_in_the_body(served: Served) -> None:
    for path, key in (
        ("/2/groups/g/rename", "dry_run"),
        ("/2/groups/g/rename", "group_name"),
        ("/2/modify", "reason"),
    ):
        body = {"new_name": "h", key: "x"}
        text = f"Can&#x27;t overwrite static parameters {{&#x27;{key}&#x27;}}"
        assert served.refused(400, "PUT", path, body) == text


@pytest.mark.usefixtures("paused")
def test_common_parameters_may_stand_in_any_body(served: Served) -> None:
    first = served.done("PUT", "/2/tags?tag=a")
    common = {"depends": [[first, ["success"]]], "priority": -10, "comment": "c", "debug_level": 1}
    op = opcode(served, served.done("PUT", "/2/groups/g/rename", {"new_name": "h", **common}))
    assert {name: op[name] for name in common} == common
    # Where the body is ignored, only dependencies count.
    op = opcode(served, served.done("DELETE", "/2/groups/g", {**common, "frob": 1}))
    assert (op["depends"], op["priority"], op["comment"]) == (common["depends"], 0, None)
    op = opcode(served, served.done("PUT", "/2/tags?tag=a", ["no object"]))
    assert op["depends"] is None


def test_wrong_parameters_of_an_opcode_are_named(served: Served) -> None:
    for body, word in (
        ({"frob": 1}, "frob"),
        ({}, "new_name"),
        ({"new_name": 5}, "new_name"),
        ({"new_name": "h", "depends": [["x"]]}, "depends"),
        ({"new_name": "h", "priority": 70}, "priority"),
    ):
        message = served.refused(400, "PUT", "/2/groups/g/rename", body)
        assert message.startswith("Invalid body parameters: OP_GROUP_RENAME: ")
        assert word in message
    message = served.refused(400, "PUT", "/2/groups/g/rename", ["h"])
    assert message == "Body contents: Type is &#x27;list&#x27;, but &#x27;dict&#x27; is expected"


@pytest.mark.usefixtures("paused")
def test_parameters_have_their_older_names_too(served: Served) -> None:
    op = opcode(served, served.done("POST", "/2/groups", {"name": "g"}))
    assert op["group_name"] == "g"
    op = opcode(served, served.done("PUT", "/2/groups/g/modify", {"custom_ndparams": {}}))
    assert op["ndparams"] == {}
    body = {"name": "n", "network": "10.0.0.0/24"}
    assert opcode(served, served.done("POST", "/2/networks", body))["network_name"] == "n"
    message = served.refused(400, "POST", "/2/groups", {"name": "g", "group_name": "h"})
    assert "was renamed to" in message


@pytest.mark.usefixtures("paused")
def test_flags_of_the_query_string_become_parameters(served: Served) -> None:
    path = f"/2/groups/g/assign-nodes?force=1&dry-run=1&reason={'x' * 10}"
    op = opcode(served, served.done("PUT", path, {"nodes": [NODE]}))
    assert (op["force"], op["dry_run"], op["reason"][0][1]) == (True, True, "x" * 10)
    op = opcode(served, served.done("PUT", "/2/groups/g/assign-nodes?force=0", {"nodes": [NODE]}))
    assert (op["force"], op["dry_run"]) == (False, False)


@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize(
    ("role", "flags"),
    [
        ("regular", (False, False, False)),
        ("master-candidate", (True, None, None)),
        ("drained", (None, True, None)),
        ("offline", (None, None, True)),
    ],
)
def test_a_role_of_a_node_becomes_its_flags(
    served: Served, role: str, flags: tuple[bool | None, ...]
) -> None:
    job = served.done("PUT", f"/2/nodes/{NODE}/role?force=1&auto-promote=1", json.dumps(role))
    op = opcode(served, job)
    found = tuple(op.get(name) for name in ("master_candidate", "drained", "offline"))
    assert (op["OP_ID"], found) == ("OP_NODE_SET_PARAMS", flags)
    assert (op["force"], op["auto_promote"]) == (True, True)


# ---------------------------------------------------------------- opcodes without an operation


@pytest.mark.parametrize(
    ("method", "path", "body", "op_id"),
    [
        ("POST", f"/2/nodes/{NODE}/migrate?live=1", None, "OP_NODE_MIGRATE"),
        ("POST", f"/2/nodes/{NODE}/migrate?mode=live", None, "OP_NODE_MIGRATE"),
        ("POST", f"/2/nodes/{NODE}/migrate", {"mode": "non-live"}, "OP_NODE_MIGRATE"),
        (
            "POST",
            "/2/instances",
            {
                "__version__": 1,
                "name": "x",
                "os": "noop",
                "mode": "create",
                "disk_template": "diskless",
                "disks": [],
                "nics": [],
                "hvparams": {"usb_devices": "a b"},
            },
            "OP_INSTANCE_CREATE",
        ),
        ("POST", f"/2/instances/{INSTANCE}/reinstall?os=x&nostartup=1", None, "OP_INSTANCE_SHUT"),
        ("POST", f"/2/instances/{INSTANCE}/reinstall", {"start": True}, "OP_INSTANCE_SHUTDOWN"),
        (
            "POST",
            f"/2/instances/{INSTANCE}/replace-disks?mode=replace_auto&disks=0,1",
            None,
            "OP_INSTANCE_REPLACE_DISKS",
        ),
        (
            "POST",
            f"/2/instances/{INSTANCE}/replace-disks",
            {"mode": "replace_auto", "disks": [1]},
            "OP_INSTANCE_REPLACE_DISKS",
        ),
        (
            "POST",
            f"/2/instances/{INSTANCE}/disk/7/grow",
            {"amount": 5},
            "OP_INSTANCE_GROW_DISK",
        ),
        ("PUT", f"/2/instances/{INSTANCE}/prepare-export?mode=local", None, "OP_BACKUP_PREPARE"),
        (
            "PUT",
            f"/2/instances/{INSTANCE}/export",
            {"destination": OTHER},
            "OP_BACKUP_EXPORT",
        ),
        ("DELETE", f"/2/instances/{INSTANCE}/export", None, "OP_BACKUP_REMOVE"),
        ("GET", "/2/os?bulk=1", None, "OP_OS_DIAGNOSE"),
        (
            "PUT",
            f"/2/nodes/{NODE}/storage/modify?storage_type=lvm-vg&name=v&allocatable=0",
            None,
            "OP_NODE_MODIFY_STORAGE",
        ),
    ],
)
def test_a_sound_request_says_that_nothing_can_run_its_opcode(
    served: Served, method: str, path: str, body: Any, op_id: str
) -> None:
    sent = json.dumps(body) if isinstance(body, str) else body
    assert served.refused(501, method, path, sent).startswith(op_id)


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("POST", f"/2/nodes/{NODE}/migrate?live=1&mode=live", None, "Only one of"),
        ("PUT", f"/2/nodes/{NODE}/role", '"king"', "Can&#x27;t set &#x27;king&#x27; role"),
        ("PUT", f"/2/nodes/{NODE}/role", None, "Body contents: "),
        ("PUT", f"/2/nodes/{NODE}/role", {"role": "offline"}, "Body contents: "),
        ("GET", f"/2/nodes/{NODE}/storage?storage_type=lvm-vg", None, "Missing the required "),
        ("GET", f"/2/nodes/{NODE}/storage?output_fields=name", None, "Missing the required "),
        ("PUT", f"/2/nodes/{NODE}/storage/repair?name=x", None, "Missing the required "),
        ("POST", f"/2/nodes/{NODE}/evacuate", {"mode": "sideways"}, "Invalid body parameters: "),
        ("POST", "/2/instances", None, "Body contents: "),
        ("POST", "/2/instances", {"__version__": "1"}, "&#x27;__version__&#x27; parameter: "),
        ("POST", "/2/instances", {"__version__": 2}, "Unsupported request data version 2"),
        ("POST", "/2/instances", {"__version__": 1, "name": "x"}, "Invalid body parameters: "),
        ("POST", "/2/instances-multi-alloc", {}, "Required parameter "),
        ("POST", "/2/instances-multi-alloc", {"instances": [1]}, "Instance: "),
        ("POST", f"/2/instances/{INSTANCE}/reboot?type=wild", None, "Invalid body parameters: "),
        ("POST", f"/2/instances/{INSTANCE}/reinstall?os=x", {"os": "y"}, "Only one of"),
        ("POST", f"/2/instances/{INSTANCE}/reinstall", {"frob": 1}, "Invalid body parameters: "),
        ("POST", f"/2/instances/{INSTANCE}/replace-disks?disks=a", None, "Invalid disk index"),
        ("POST", f"/2/instances/{INSTANCE}/replace-disks", {}, "Invalid body parameters: "),
        ("PUT", f"/2/instances/{INSTANCE}/modify", None, "Body contents: "),
        ("PUT", f"/2/instances/{INSTANCE}/modify", {"frob": 1}, "Invalid body parameters: "),
        ("DELETE", "/2/tags", None, "Cannot delete all tags"),
        ("GET", "/2/query/node", None, "Missing &#x27;fields&#x27; query argument"),
        ("PUT", "/2/query/node", None, "Missing &#x27;fields&#x27; query argument"),
        ("PUT", "/2/query/node", {"fields": [1]}, "&#x27;fields&#x27; parameter: "),
        ("POST", "/2/filters", [], "Body contents: "),
        ("POST", "/2/filters", {"priority": True}, "&#x27;priority&#x27; parameter: "),
        ("POST", "/2/filters", {"reason": "x"}, "&#x27;reason&#x27; parameter: "),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    served: Served, method: str, path: str, body: Any, text: str
) -> None:
    assert served.refused(400, method, path, body).startswith(text)


# ---------------------------------------------------------------- objects


def test_roles_are_words(served: Served) -> None:
    assert served.get(f"/2/nodes/{NODE}/role") == "master"
    assert served.get(f"/2/nodes/{OTHER}/role") in {"regular", "master-candidate"}


def test_objects_are_found_by_their_short_names_and_their_uuids(served: Served) -> None:
    node = served.get(f"/2/nodes/{NODE}")
    assert served.get("/2/nodes/node0") == served.get(f"/2/nodes/{node['uuid']}") == node
    assert type(node["ctime"]) is float
    assert type(node["serial_no"]) is int


@pytest.mark.parametrize("noun", ["nodes", "instances", "groups", "networks"])
def test_listings_lead_to_their_items(served: Served, noun: str) -> None:
    bulk = served.get(f"/2/{noun}?bulk=1")
    listed = served.get(f"/2/{noun}")
    assert [served.get(entry["uri"]) for entry in listed] == bulk
    key = "id" if noun in {"nodes", "instances"} else "name"
    assert [entry[key] for entry in listed] == [one["name"] for one in bulk]
    for entry in listed:
        assert served.get(f"{entry['uri']}/tags") == sorted(served.get(entry["uri"])["tags"])
    served.refused(404, "GET", f"/2/{noun}/nope")
    assert "unknown_entity" in served.refused(500, "GET", f"/2/{noun}/nope/tags")


def test_fields_of_a_query_may_stand_in_either_place(served: Served) -> None:
    both = [[[0, NODE]], [[0, OTHER]]]
    for method, path, body, rows in (
        ("GET", "/2/query/node?fields=name", None, both),
        ("PUT", "/2/query/node?fields=name", {}, both),
        ("PUT", "/2/query/node", {"fields": ["name"]}, both),
        (
            "PUT",
            "/2/query/node",
            {"fields": ["name"], "filter": ["=~", "name", "^node1"]},
            both[1:],
        ),
        ("PUT", "/2/query/node", {"fields": ["name"], "qfilter": ["?", "master"]}, both[:1]),
    ):
        assert served.done(method, path, body)["data"] == rows
    assert served.get("/2/query/node?fields=name,%20role")["data"][0][1] == [0, "M"]
    every = served.get("/2/query/node/fields")["fields"]
    assert len(every) > 30
    assert served.get("/2/query/node/fields?fields=frob")["fields"][0]["kind"] == "unknown"


def test_a_rule_may_have_a_time_window(served: Served) -> None:
    window = {"valid_from": 2_000_000_000, "valid_until": 2_000_000_001.5}
    uuid = served.done("POST", "/2/filters", {"action": "PAUSE", **window})
    found = served.get(f"/2/filters/{uuid}")
    assert {name: found[name] for name in window} == window
    assert served.done("DELETE", f"/2/filters/{uuid}") is None


# ---------------------------------------------------------------- doors


def raw(served: Served, *lines: str) -> str:
    """What comes back for a request as it stands here, until the connection ends."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as end:
        end.sendall("\r\n".join([*lines, "", ""]).encode())
        found = b""
        while data := end.recv(65_536):
            found += data
    return found.decode()


@pytest.mark.parametrize(
    ("accepted", "user", "expected"),
    [
        # A browser has no user before the page asks for one.
        ("text/html,*/*;q=0.8", None, "<!doctype html>"),
        # curl -u, without another header.
        ("*/*", "reader", "<!doctype html>"),
        ("*/*", None, '{"code":401'),
        # Ganeti's clients, and those that say nothing.
        ("application/json", "reader", "null\n"),
        ("application/json, */*", "reader", "null\n"),
        (None, "reader", "null\n"),
    ],
)
def test_the_address_of_the_page_is_for_people_and_for_programs(
    served: Served, accepted: str | None, user: str | None, expected: str
) -> None:
    headers = {} if accepted is None else {"Accept": accepted}
    answer = served.request("GET", "/", user=user, headers=headers)
    assert answer.text[: len(expected)].lower() == expected
    assert answer.status == (401 if "401" in expected else 200)


@pytest.mark.parametrize("path", ["/", "/page.js", "/2/jobs", "/nothing", "/healthz"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_a_request_with_two_lengths_ends_the_connection(
    served: Served, method: str, path: str
) -> None:
    lengths = ("Transfer-Encoding: chunked", "Content-Length: 4")
    smuggled = "GET /healthz HTTP/1.1\r\nHost: localhost"
    found = raw(
        served, f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: text/html", *lengths,
        "", "0", "", smuggled,
    )  # fmt: skip
    assert found.startswith("HTTP/1.1 400 ")
    assert found.count("HTTP/1.1") == 1
    assert "connection: close" in found.lower()


def test_a_page_of_another_name_gets_nothing_and_a_name_that_is_set_does(tmp_path: Path) -> None:
    with Served(tmp_path, "--rapi-host", "rapi.example.com", "--rapi-host", "b.example") as served:
        for name, status in (
            ("localhost", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("192.0.2.1:5080", 200),
            ("rapi.example.com:443", 200), ("B.example", 200), (socket.gethostname(), 200),
            ("evil.example", 421), ("rapi.example.com.evil.example", 421),
        ):  # fmt: skip
            answer = served.request("GET", "/2/info", headers={"Host": name})
            assert answer.status == status, answer
        assert "ganger up --rapi-host NAME" in answer.text
        # A program that says no name asks for the address that it has connected to.
        assert raw(served, "GET /healthz HTTP/1.0").startswith("HTTP/1.1 200 ")


def test_a_change_of_a_rule_is_repeated_under_its_users_key(served: Served) -> None:
    rule = {"action": "CONTINUE", "predicates": [["reason", ["=", "reason", "nobody"]]]}
    headers = {"Idempotency-Key": "one"}
    first = served.done("POST", "/2/filters", rule, headers=headers)
    assert served.done("POST", "/2/filters", rule, headers=headers) == first
    assert served.done("POST", "/2/filters", rule) != first
    assert "another change is stored under it" in served.refused(
        400, "POST", "/2/filters", rule | {"priority": 5}, headers=headers
    )
    gone = {"Idempotency-Key": "two"}
    for _ in range(2):
        served.done("DELETE", f"/2/filters/{first}", headers=gone)
    served.refused(500, "DELETE", f"/2/filters/{first}")


def test_a_key_is_one_users_own(served: Served, paused: None) -> None:
    assert paused is None
    job = {"ops": [SLEEP]}
    for key in ("mine", "x" * 200):
        headers = {"Idempotency-Key": key}
        found = {
            user: served.done("POST", "/2/jobs", job, user=user, headers=headers)
            for user in ("admin", "writer")
        }
        assert found["admin"] != found["writer"]
        for user, job_id in found.items():
            assert served.done("POST", "/2/jobs", job, user=user, headers=headers) == job_id
    for key, expected in (
        ("", "1 to 200 bytes, got 0"),
        ("x" * 201, "1 to 200 bytes, got 201"),
        ("a\tb", "no control characters, got &#x27;a\\tb&#x27;"),
    ):
        text = served.refused(400, "POST", "/2/jobs", job, headers={"Idempotency-Key": key})
        assert text == f"idempotency-key: expected {expected}"


@pytest.mark.parametrize("depth", [63, 64, 65, 66, 100, 101, 500, 5_000])
def test_a_filter_that_is_too_deep_is_the_clients_mistake(served: Served, depth: int) -> None:
    for inner in ('["==", "name", "x"]', "[]"):
        qfilter = '["!", ' * (depth - 1) + inner + "]" * (depth - 1)
        body = f'{{"fields": ["name"], "qfilter": {qfilter}}}'
        answer = served.request("PUT", "/2/query/node", body)
        if depth > filters.DEPTH_MAX:
            assert answer.status == 400, answer
        elif inner != "[]":
            assert answer.status == 200, answer


@pytest.mark.parametrize("depth", [64, 65, 100, 101, 400])
@pytest.mark.parametrize("pair", [("[", "]"), ('{"a": ', "}")], ids=["arrays", "objects"])
def test_what_is_too_deep_in_a_filter_or_rule_is_the_clients_mistake(
    served: Served, pair: tuple[str, str], depth: int
) -> None:
    begin, end = pair
    deep = begin * depth + "1" + end * depth
    code = 400 if depth > filters.DEPTH_MAX else 502
    for qfilter in (deep, f'["==", "name", {begin * (depth - 1)}1{end * (depth - 1)}]'):
        body = f'{{"fields": ["name"], "qfilter": {qfilter}}}'
        text = served.refused(code, "PUT", "/2/query/node", body)
        assert ("nested deeper than 64" in text) == (code == 400)
    rules = [
        f'{{"predicates": [["jobid", {deep}]]}}',
        f'{{"reason": [["x", {deep}]]}}',
        f'{{"predicates": [["jobid", ["=", "id", {begin * (depth - 1)}1{end * (depth - 1)}]]]}}',
    ]
    uuid = "01111111-2222-4333-8444-555555555555"
    for method, path in (("POST", "/2/filters"), ("PUT", f"/2/filters/{uuid}")):
        for rule in rules:
            served.refused(code, method, path, rule)
