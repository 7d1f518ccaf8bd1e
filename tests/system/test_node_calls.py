"""Calls of nodes by name: from plans, and from operations in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.system.hosts import Host, joined_host, until_there

from ganger.storage.version import version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.harness import Daemon

    from ganger import Client


@pytest.fixture(name="host")
def host_web1(daemon: Daemon, tmp_path: Path) -> Iterator[Host]:
    """A host that has joined as ``web1``."""
    with joined_host(daemon, tmp_path / "host", "web1") as host:
        yield host


def result_of(client: Client, **fields: Any) -> Any:
    """The result of a call of nodes; `JobFailedError` if it fails."""
    job_id = client.submit({"OP_ID": "OP_NODE_CALL", **fields})
    client.wait(job_id)
    [op] = client.job(job_id).ops or []
    return op.result


@pytest.mark.usefixtures("host")
def test_a_node_answers_calls_by_name(client: Client, tmp_path: Path) -> None:
    until_there(client, "web1")
    assert result_of(client, node="web1", call="version") == {"version": version(), "protocol": 1}
    both = result_of(client, nodes=["web1"], call="node_info", arguments={"paths": ["/", "/no"]})
    info = both["web1"]
    assert info["memory_total"] > info["memory_free"] > 0
    assert [one["problem"] for one in info["storage"]] == ["", "No such file or directory"]
    path = tmp_path / "uploaded"
    arguments = {"path": str(path), "content": "aGVsbG8K", "mode": 0o640}
    stored = result_of(client, node="web1", call="upload_file", arguments=arguments)
    assert (path.read_text(), stored["size"], path.stat().st_mode & 0o777) == ("hello\n", 6, 0o640)
    found = result_of(client, node="web1", call="get_file_info", arguments={"path": str(path)})
    assert (found["exists"], found["kind"], found["size"], found["mode"]) == (
        True,
        "file",
        6,
        0o640,
    )
