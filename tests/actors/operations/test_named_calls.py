"""Calls that a host answers by name: replies, and each way to give none."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors
from ganger.storage.nodes import named_calls
from ganger.storage.nodes.named_calls import NodeCall
from ganger.storage.opcodes import OperationError


class Echo(NodeCall[str], kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Gives back what it is given, or does what that says."""

    call: ClassVar[str] = "echo"
    reply: ClassVar[Any] = str

    text: str

    def run(self) -> Any:
        print(f"echo: {self.text}")
        match self.text:
            case "raise":
                raise RuntimeError("no\nsuch luck")
            case "exit":
                sys.exit(3)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
            case "number":
                return 7
            case "no JSON":
                return object()
        return self.text


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the call, and others that cannot be loaded."""
    module = ModuleType("calls_of_a_test")
    module.Echo = Echo  # type: ignore[attr-defined]
    module.text = "no class"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "calls_of_a_test", module)
    from importlib import metadata  # noqa: PLC0415 - what is replaced

    entries = [
        metadata.EntryPoint(name, value, named_calls.GROUP)
        for name, value in [
            ("echo", "calls_of_a_test:Echo"),
            ("other", "calls_of_a_test:Echo"),
            ("text", "calls_of_a_test:text"),
            ("gone", "calls_of_a_test:gone"),
        ]
    ]

    def entry_points(*, group: str, name: str | None = None) -> list[metadata.EntryPoint]:
        assert group == named_calls.GROUP
        return [one for one in entries if name in {None, one.name}]

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def answer(call: str, *, timeout: float | None = None, **arguments: Any) -> Any:
    fields = {"OP_ID": "OP_NODE_CALL", "call": call, "arguments": arguments, "timeout": timeout}
    return LocalContext().run(fields)


def problem(call: str, *, timeout: float | None = None, **arguments: Any) -> str:
    with pytest.raises(OperationError) as caught:
        answer(call, timeout=timeout, **arguments)
    assert len(caught.value.details) == 1
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_call_of_a_package_is_answered_and_its_output_is_that_of_the_job() -> None:
    context = LocalContext()
    fields = {"OP_ID": "OP_NODE_CALL", "call": "echo", "arguments": {"text": "hello"}}
    assert context.run(fields) == "hello"
    assert context.written_to() == b"echo: hello\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise", "call 'echo' failed: RuntimeError: no such luck"),
        ("exit", "call 'echo' failed: SystemExit: 3"),
        ("die", "call 'echo' gave no reply: SIGKILL"),
        ("number", "call 'echo': its reply is malformed: Expected `str`, got `int`"),
    ],
)
def test_each_call_without_a_proper_reply_is_one_line(text: str, told: str) -> None:
    assert problem("echo", text=text) == told


def test_a_reply_that_json_cannot_hold_is_one_line() -> None:
    assert problem("echo", text="no JSON").startswith("call 'echo': TypeError: ")


def test_a_call_that_hangs_is_ended_at_its_time_limit() -> None:
    began = time.monotonic()
    told = problem("echo", text="hang", timeout=0.3)
    assert told == "call 'echo' has not answered within 0.3 s, and was ended"
    assert time.monotonic() - began < 60


def test_the_limit_of_a_delay_is_that_of_ganeti() -> None:
    assert named_calls.TestDelay(duration=7.0).time_limit() == 12.0
    assert answer("test_delay", duration=0.01) is None


@pytest.mark.parametrize(
    ("call", "arguments", "told"),
    [
        ("missing", {}, "there is no call 'missing'; calls of this host: echo, get_file_info, "),
        ("gone", {}, "call 'gone' of calls_of_a_test:gone cannot be loaded: AttributeError: "),
        ("text", {}, "call 'text' of calls_of_a_test:text is not a class derived from NodeCall"),
        ("other", {"text": "a"}, "call 'other' of calls_of_a_test:Echo calls itself 'echo'"),
        ("echo", {}, "call 'echo': Object missing required field `text`"),
        ("echo", {"text": "a", "more": 1}, "call 'echo': Object contains unknown field `more`"),
        ("get_file_info", {"path": "etc"}, "call 'get_file_info': Expected `str` matching regex"),
        ("upload_file", {"path": "/a", "content": "?"}, "call 'upload_file': Invalid base64"),
        ("test_delay", {"duration": 0}, "call 'test_delay': Expected `float` > 0.0"),
    ],
)
def test_a_call_that_cannot_be_made_is_one_line(
    call: str, arguments: dict[str, Any], told: str
) -> None:
    assert problem(call, **arguments).startswith(told)


def test_ssconf_files_are_written_whole(tmp_path: Path) -> None:
    context = LocalContext(data_directory=str(tmp_path))
    fields = {"OP_ID": "OP_NODE_CALL", "call": "write_ssconf_files"}
    values = {"cluster_name": "c1\n", "node_list": "web1\nweb2\n"}
    assert context.run({**fields, "arguments": {"values": values}}) == sorted(values)
    path = tmp_path / "cluster" / "ssconf_node_list"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("web1\nweb2\n", 0o444)
    with pytest.raises(OperationError, match="matching regex"):
        context.run({**fields, "arguments": {"values": {"../x": ""}}})


def test_the_reply_of_a_call_is_typed() -> None:
    found = named_calls.checked_reply(named_calls.Version, {"version": "1", "protocol": 2})
    assert (found.version, found.protocol) == ("1", 2)
    with pytest.raises(errors.BadRequestError, match="call 'version': its reply is malformed"):
        named_calls.checked_reply(named_calls.Version, {"version": 1})


def test_a_call_is_for_one_node_or_several() -> None:
    fields: Any = SimpleNamespace(OP_ID="OP_NODE_CALL", call="version", node="a", nodes=["b"])
    with pytest.raises(errors.OpcodeError, match="nodes: expected one of node and nodes"):
        LocalContext().run(vars(fields))
