"""What Ganeti's opcodes make of hosts that fall silent after they were called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.actors.operations.test_on_node import NodeContext

from ganger.actors.ganeti import node_operations, query_operations
from ganger.storage import opcodes
from ganger.transport import messages


class HostContext(NodeContext):
    """A host that is there when it is asked, and silent from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.says = [messages.NodeSilent(since=5.0), None]

    def ask_hosts(self, nodes: Sequence[str]) -> dict[str, None]:
        return dict.fromkeys(nodes)


def run(context: HostContext, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> object:
    row = {"name": "web1", "offline": False, "master": False}

    def answer(asked: messages.RunQuery, *_: object) -> dict[str, Any]:
        return {"data": [[[0, row[field]] for field in asked.fields or ()]]}

    monkeypatch.setattr(query_operations, "answer", answer)
    nobody: Any = None
    return node_operations.run(opcodes.parse(fields), context, nobody, nobody)  # type: ignore[arg-type]


def test_a_restricted_command_gives_up_a_host_that_is_silent_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = HostContext()
    fields = {"OP_ID": "OP_RESTRICTED_COMMAND", "command": "c", "nodes": ["web1"]}
    lost = "web1 was silent for 3600 s: it is not known whether the command still runs on web1"
    assert run(context, fields, monkeypatch) == [
        [False, f"Command 'c' on node 'web1' failed: {lost}"]
    ]
    assert context.silent == ["node web1 is silent since 1970-01-01T00:00:05Z"]
    # Its locks are kept until the host has said that it is over.
    assert context.marks == ["web1", "kept"]


def test_a_copy_of_the_ssconf_files_is_given_up_after_a_quarter_of_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = HostContext()
    run(context, {"OP_ID": "OP_CLUSTER_REDIST_CONF"}, monkeypatch)
    [line] = [text for text in context.lines() if "ssconf" in text]
    assert "node web1 failed: web1 was silent for 900 s" in line
    assert context.marks == ["web1", "kept"]
