"""Opcodes that run on nodes: what their parameters may be, and their locks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ganger.storage import errors, opcodes
from ganger.storage.opcodes import LockNeeds
from ganger.storage.opcodes.node_opcodes import NodeOpcode, OpNodeCopy


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"source": "/a", "path": "b"}, "path: expected an absolute path, got 'b'"),
        ({"source": "a", "path": "/b"}, "source: expected an absolute path, got 'a'"),
        ({"path": "/b"}, "source: expected one of source, content and content_base64"),
        ({"path": "/b", "source": "/a", "content": ""}, "source: expected one of source, content"),
        ({"path": "/b", "content_base64": "?"}, "content_base64: not Base64"),
        ({"path": "/b", "content": "", "file_name": "a/b"}, "file_name: expected a name without a"),
        ({"path": "/b", "content": "", "mode": "9"}, "mode"),
        (
            {"path": "/b", "content": "", "mode": 644},
            "mode: expected permission bits such as",
        ),
        ({"path": "/b", "content": "", "mode": "4755"}, "mode: expected permission bits"),
        ({"path": "/b", "content": "", "node": "a", "nodes": ["b"]}, "nodes: expected one of node"),
    ],
)
def test_a_copy_that_cannot_be_names_the_parameter(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.OpcodeError, match=f"^OP_NODE_COPY: {re.escape(told)}"):
        opcodes.check_opcode({"OP_ID": "OP_NODE_COPY", **fields})


def test_the_mode_of_a_copy_is_octal_or_a_number() -> None:
    copies = [
        {"OP_ID": "OP_NODE_COPY", "path": "/b", "content": "", "mode": m} for m in ("640", 416)
    ]
    for one in copies:
        opcode = opcodes.parse(opcodes.check_opcode(one))
        assert isinstance(opcode, OpNodeCopy)
        assert opcode.permissions() == 0o640


def test_an_opcode_that_runs_on_nodes_shares_them() -> None:
    class OpWhere(NodeOpcode, kw_only=True):
        op_id = "OP_WHERE"

    assert OpWhere(nodes=["b", "a"]).lock_needs() == LockNeeds.of({"node": {"shared": ["b", "a"]}})
    assert OpWhere().lock_needs() == LockNeeds()
    with pytest.raises(ValueError, match="nodes: expected one of node and nodes"):
        OpWhere(node="a", nodes=["b"])
    # Not on this machine, as without the parameter.
    with pytest.raises(ValueError, match="nodes: expected at least one"):
        OpWhere(nodes=[])
    with pytest.raises(errors.OpcodeError, match="nodes: expected at least one"):
        opcodes.check_opcode({"OP_ID": "OP_EXEC", "argv": ["true"], "nodes": []})
