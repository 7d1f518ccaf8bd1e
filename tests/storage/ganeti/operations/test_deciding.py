"""Operations are carried out under the locks that they need now; in dry runs not at all."""

from __future__ import annotations

import pytest
from tests.clusters import uuid_of
from tests.storage.ganeti.operations.played import GIVEN, after, play, refusal, snapshot_of

from ganger.storage import opcodes
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Outcome
from ganger.storage.opcodes import LockNeeds, OperationError


@pytest.mark.parametrize(
    "held",
    [
        {"node": {"exclusive": [uuid_of("nodes", 0)]}},
        {"node": {"exclusive": ["*"]}},
    ],
)
def test_an_opcode_runs_under_the_locks_that_it_needs(held: dict[str, object]) -> None:
    opcode = opcodes.parse({"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node0", "tags": ["a"]})
    assert deciding.decided(opcode, snapshot_of(), GIVEN._replace(held=LockNeeds.of(held))).changes


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"node": {"shared": [uuid_of("nodes", 0)]}},
        {"node": {"shared": ["*"]}},
        {"node": {"exclusive": [uuid_of("nodes", 1)]}},
        {"instance": {"exclusive": ["*"]}},
    ],
)
def test_an_opcode_under_other_locks_than_it_needs_by_now_is_refused(
    held: dict[str, object],
) -> None:
    opcode = opcodes.parse({"OP_ID": "OP_TAGS_SET", "kind": "node", "name": "node0", "tags": ["a"]})
    with pytest.raises(OperationError) as caught:
        deciding.decided(opcode, snapshot_of(), GIVEN._replace(held=LockNeeds.of(held)))
    assert caught.value.name == "OpPrereqError"
    assert caught.value.details == [
        "the configuration has changed since the locks were taken; retry the operation",
        "wrong_state",
    ]


def test_a_dry_run_changes_nothing_and_says_so() -> None:
    snapshot = snapshot_of()
    done = play(snapshot, "OP_TAGS_SET", kind="cluster", tags=["a"], dry_run=True)
    text = " - INFO: dry-run mode requested, not actually executing the operation"
    assert done == Outcome(log=(text,))


def test_a_dry_run_is_refused_as_the_operation_is() -> None:
    tagged = after(snapshot_of(), "OP_TAGS_SET", kind="cluster", tags=["a"])
    error = refusal(tagged, "OP_TAGS_DEL", kind="cluster", tags=["b"], dry_run=True)
    assert error == ["OpPrereqError", "Tag(s) 'b' not found", "unknown_entity"]
