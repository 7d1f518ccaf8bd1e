"""OP_QUERY and OP_QUERY_FIELDS in the job's process: what they ask for, and their results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.actors.job.test_job import FakeLink

from ganger.actors.ganeti import query_operations
from ganger.actors.job.conversation import Conversation
from ganger.actors.operations.local_context import LocalContext
from ganger.storage import errors, opcodes, settings
from ganger.storage.opcodes import OperationError
from ganger.transport import messages
from ganger.transport.messages import Message, RunQuery

FIELDS = [{"name": "id", "title": "ID", "kind": "number", "doc": "Job ID"}]


def parsed(op_id: str = "OP_QUERY", **fields: Any) -> Any:
    return opcodes.parse({"OP_ID": op_id, **fields})


def run(opcode: Any, answer: Callable[[RunQuery], Message]) -> Any:
    """The result of the opcode whose requests get these answers."""
    link = FakeLink()
    daemon = Conversation(link, lambda _message: None, lambda: None)

    def wait(number: int, *, is_cancelable: bool = True) -> Message:
        assert not is_cancelable
        asked = daemon.link.open.pop(number)
        assert isinstance(asked, RunQuery)
        return answer(asked)

    return query_operations.run(opcode, LocalContext(), daemon, wait)


def page(number: int, *, is_last: bool) -> messages.QueryAnswered:
    rows = msgspec.json.encode([[[0, number]]])
    return messages.QueryAnswered(FIELDS, rows, None if is_last else str(number))


def test_an_answer_is_joined_from_its_pages() -> None:
    asked: list[RunQuery] = []

    def answer(request: RunQuery) -> Message:
        asked.append(request)
        return page(len(asked), is_last=len(asked) == 3)

    result = run(parsed(what="job", fields=["id"], qfilter=["?", "archived"]), answer)
    assert result == {"fields": FIELDS, "data": [[[0, 1]], [[0, 2]], [[0, 3]]]}
    first = RunQuery(LocalContext().job_id, "job", ["id"], ["?", "archived"])
    assert asked == [msgspec.structs.replace(first, after=after) for after in (None, "1", "2")]


def test_fields_are_defined() -> None:
    asked: list[RunQuery] = []

    def answer(request: RunQuery) -> Message:
        asked.append(request)
        return messages.QueryAnswered(FIELDS, b"[]")

    assert run(parsed("OP_QUERY_FIELDS", what="lock"), answer) == {"fields": FIELDS}
    run(parsed("OP_QUERY_FIELDS", what="lock", fields=["name"]), answer)
    assert [(one.what, one.fields, one.is_of_fields) for one in asked] == [
        ("lock", None, True),
        ("lock", ["name"], True),
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            errors.UnknownObjectError("Node name x not found"),
            ("OpPrereqError", ["Node name x not found", "unknown_entity"]),
        ),
        (errors.BadRequestError("what: no"), ("OpPrereqError", ["what: no", "wrong_input"])),
        (errors.ParameterError("no field"), ("ParameterError", ["no field"])),
    ],
)
def test_a_refusal_is_the_opcodes_error(
    error: errors.GangerError, expected: tuple[str, list[str]]
) -> None:
    def refuse(_request: RunQuery) -> Message:
        raise error

    with pytest.raises(OperationError) as failed:
        run(parsed(what="node", fields=["name"]), refuse)
    assert (failed.value.name, failed.value.details) == expected


def test_an_answer_for_which_no_job_has_room_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "JOB_BYTES_MAX", 20)
    count = itertools.count()
    with pytest.raises(OperationError, match="more than 20 bytes") as failed:
        run(parsed(what="job", fields=["id"]), lambda _: page(next(count), is_last=False))
    assert failed.value.name == "OpResultError"
    assert next(count) == 3


def test_the_store_names_the_locks_of_a_query_and_not_of_definitions() -> None:
    assert parsed(what="node", fields=["name"]).is_locked_by_store
    assert not parsed("OP_QUERY_FIELDS", what="node").is_locked_by_store
