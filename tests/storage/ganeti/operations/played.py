"""Plays one opcode on a configuration, as the store does for a job: locks, then the decision."""

from __future__ import annotations

from typing import Any

import pytest
from tests import clusters

from ganger.storage import errors, opcodes
from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import problems
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Circumstances, Outcome
from ganger.storage.opcodes import OperationError

NEW_UUID = "99999999-0000-4000-8000-000000000000"
NOW = 1_800_000_000.0
GIVEN = Circumstances(NEW_UUID, NOW)


def snapshot_of(**sizes: int) -> Configuration:
    """The snapshot of a made configuration (`clusters.made_configuration`)."""
    return Configuration.load(clusters.made_configuration(**sizes))


def with_disks() -> Configuration:
    """A snapshot of four nodes, and ten instances with DRBD or plain disks."""
    made = clusters.made_configuration()
    made["cluster"] |= {
        "drbd_usermode_helper": "/bin/true",
        "data_collectors": {"lv": {"active": True, "interval": 5_000_000}},
        "hidden_os": ["hurd"],
        "osparams": {"debian": {"a": 1, "b": 2}},
    }
    return Configuration.load(made)


def locks(snapshot: Configuration, op_id: str, **parameters: Any) -> list[tuple[str, str]]:
    """The locks that the opcode needs, without the big lock that all share."""
    opcode = opcodes.parse({"OP_ID": op_id, **parameters})
    needs = deciding.locks_of(opcode, snapshot, GIVEN).to_changes()
    return [pair for pair in needs if pair != ("cluster/BGL", "shared")]


def play(snapshot: Configuration, op_id: str, **parameters: Any) -> Outcome:
    """What the opcode does."""
    opcode = opcodes.parse({"OP_ID": op_id, **parameters})
    held = deciding.locks_of(opcode, snapshot, GIVEN)
    return deciding.decided(opcode, snapshot, GIVEN._replace(held=held))


def after(snapshot: Configuration, op_id: str, **parameters: Any) -> Configuration:
    """The configuration after the opcode, which adds no problem to it."""
    outcome = play(snapshot, op_id, **parameters)
    found = snapshot.changed(outcome.changes, NOW) if outcome.changes else snapshot
    assert problems(found) == problems(snapshot)
    return found


def refusal(snapshot: Configuration, op_id: str, **parameters: Any) -> list[Any]:
    """The error of the opcode: its name and its details."""
    with pytest.raises((OperationError, errors.GangerError)) as caught:
        play(snapshot, op_id, **parameters)
    error = caught.value
    if isinstance(error, OperationError):
        return [error.name, *error.details]
    assert isinstance(error, errors.GangerError)
    kind = getattr(error, "error_code", None) if error.luxi_name == "OpPrereqError" else None
    return [error.luxi_name, error.text] + ([] if kind is None else [kind])
