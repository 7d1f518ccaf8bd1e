"""What readers do not see of jobs: a command's environment, its standard input, its output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core_alone import NEEDS_HIDDEN
from tests.rapi.served import Served
from tests.rapi.test_role_matrix import path_of

from ganger.rapi import table

pytestmark = pytest.mark.slow

ENV, STDIN, OUTPUT = "private-env-4711", "private-stdin-4712", "private-output-4713"
COMMAND = {
    "OP_ID": "OP_EXEC",
    "argv": ["sh", "-c", f"echo {OUTPUT[:8]}{OUTPUT[8:11]}''{OUTPUT[11:]}"],
    "env": {"PASSWORD": ENV},
    "stdin": STDIN,
}
"""The output does not stand in the command line, which everybody sees."""

LARGE = {**COMMAND, "stdin": STDIN + "x" * 20_000}
ALL = ["id", "ops", "opresult", "oplog", "summary", "status"]


@pytest.fixture(scope="module", name="served")
def of_readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("readers")
    with Served(folder, "--rapi-anonymous-reads") as daemon:
        for op in (COMMAND, LARGE, {**COMMAND, "ok_exit_codes": [7]}):
            daemon.done("POST", "/2/jobs", {"ops": [op]})
        with daemon.client() as client:
            for job_id in (1, 2, 3):
                client.wait(job_id)
        yield daemon


def looks(job_id: int) -> Iterator[tuple[str, str, Any]]:
    """Each resource that only looks, with its arguments; queries of all that tells anything."""
    for resource in table.RESOURCES:
        if "GET" in resource.methods and resource.path != "/2/events":
            path = (
                path_of(resource).replace("/7", f"/{job_id}").replace("/query/node", "/query/job")
            )
            yield "GET", f"{path}?bulk=1&fields={','.join(ALL)}&status=success", None
    yield "PUT", "/2/query/job", {"fields": ALL, "qfilter": ["==", "id", job_id]}


def seen(served: Served, user: str | None, job_id: int) -> str:
    """Everything that a user sees of a job."""
    found = [
        served.request(method, path, body, user=user).text
        for method, path, body in looks(job_id)
        if "/wait" not in path
    ]
    return "\n".join(found)


@NEEDS_HIDDEN
@pytest.mark.parametrize("job_id", [1, 2, 3])
def test_who_sees_what_is_private(served: Served, job_id: int) -> None:
    for _ in range(2):
        # Twice: some answers are kept, and must not be those of another user.
        expected = {
            "admin": {ENV, STDIN, OUTPUT},
            "writer": {ENV, STDIN, OUTPUT},
            "reader": {OUTPUT},
            "tagger": {OUTPUT},
            None: set(),
        }
        for user, words in expected.items():
            text = seen(served, user, job_id)
            assert {word for word in (ENV, STDIN, OUTPUT) if word in text} == words, user
            assert "sh -c" in text


@NEEDS_HIDDEN
def test_a_wait_tells_nothing_private_and_does_not_end_by_it(served: Served) -> None:
    """An operator may wait, but not see everything."""
    rule = served.done("POST", "/2/filters", {"action": "PAUSE"})
    job_id = served.done("POST", "/2/jobs", {"ops": [COMMAND]})
    try:
        body = {"fields": ["status", "ops"], "previous_job_info": None, "previous_log_serial": 0}
        path = f"/2/jobs/{job_id}/wait"
        assert served.done("GET", path, body, user="tagger")["job_info"] == ["queued", None]
        whole = served.done("GET", path, body)["job_info"][1]
        assert whole[0]["stdin"] == STDIN
    finally:
        served.done("DELETE", f"/2/jobs/{job_id}")
        served.done("DELETE", f"/2/filters/{rule}")


@pytest.mark.parametrize("name", ["env.PASSWORD", "stdin", "env"])
def test_a_rule_that_is_only_tried_is_no_way_to_guess(served: Served, name: str) -> None:
    rule: dict[str, Any] = {"action": "PAUSE"}
    rule["predicates"] = [["opcode", ["!", ["=~", name, "^private"]]]]
    for user in ("reader", "tagger"):
        text = served.refused(403, "POST", "/2/simulate", {"rule": rule}, user=user)
        assert text == f"a rule may not look at the private parameter {name.partition('.')[0]}"
    served.refused(401, "POST", "/2/simulate", {"rule": rule}, user=None)
    served.done("POST", "/2/simulate", {"rule": rule})
    rule["predicates"].append(["opcode", ["=", "OP_ID", "OP_TAGS_SET"]])
    text = served.refused(403, "POST", "/2/filters", rule, user="tagger")
    assert text.startswith("user tagger may not keep filter rules that look at")


@NEEDS_HIDDEN
@pytest.mark.parametrize("name", ["ops", "oplog", "opresult"])
def test_a_filter_is_no_way_to_guess(served: Served, name: str) -> None:
    """Also the error about a comparison that is impossible shows the value."""
    hidden_from = ["reader", "tagger"] if name == "ops" else []
    served.refused(
        401, "PUT", "/2/query/job", {"fields": ["id"], "qfilter": ["?", name]}, user=None
    )
    body = {"fields": ["id"], "qfilter": ["=~", name, "private"]}
    for user in hidden_from:
        text = served.refused(403, "PUT", "/2/query/job", body, user=user)
        assert text == f"filter: who may only read may not look at {name}"
    served.refused(500, "PUT", "/2/query/job", body)


def test_a_search_is_no_way_to_guess_what_was_printed(served: Served) -> None:
    path = f"/2/queue?search={OUTPUT}"
    known = served.get(path, user="reader")
    assert (known["count"], known["outcomes"]["failed"]) == (1, 1)
    unknown = served.get(path, user=None)
    assert unknown["count"] == sum(unknown["counts"].values()) == 0


def test_a_rule_that_looks_at_nothing_private_may_be_tried(served: Served) -> None:
    rule = {"predicates": [["opcode", ["=", "OP_ID", "OP_EXEC"]]], "action": "PAUSE"}
    for user in ("reader", None):
        served.done("POST", "/2/simulate", {"rule": rule}, user=user)


@NEEDS_HIDDEN
def test_what_is_hidden_is_marked(served: Served) -> None:
    [op] = served.get("/2/jobs/1", user="reader")["ops"]
    assert (op["stdin"], op["env"]) == ("<redacted>", {"PASSWORD": "<redacted>"})
    assert op["argv"] == COMMAND["argv"]
    [result] = served.get("/2/jobs/1", user=None)["opresult"]
    assert result["stdout_tail"] == "<redacted>"
    assert json.dumps(result).count("<redacted>") == 1
