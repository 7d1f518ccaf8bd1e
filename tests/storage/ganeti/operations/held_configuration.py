"""A configuration on which operations run one after the other, as the store runs them for jobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.clusters import made_configuration

from ganger.storage.cluster.configuration import Configuration
from ganger.storage.cluster.integrity import Index, problems
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti.operations import deciding
from ganger.storage.ganeti.operations.base import Circumstances, Outcome
from ganger.storage.opcodes import LockNeeds, OperationError, parse

NEW = "fd53ffff-0000-4000-8000-000000000001"
"""The UUID that a new object gets."""

NOW = 1_795_226_000.5


class HeldConfiguration:
    """A configuration with its index; an opcode takes the locks that it names, and then runs."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        made = copy.deepcopy(document) if document else made_configuration(networks=2)
        self.configuration = Configuration.load(made)
        self.index = Index(self.configuration)

    def locks(self, op_id: str, new_uuid: str = NEW, **fields: Any) -> LockNeeds:
        """The locks that the opcode needs now."""
        opcode = parse({"OP_ID": op_id, **fields})
        return deciding.locks_of(opcode, self.configuration, Circumstances(new_uuid, NOW))

    def decide(self, op_id: str, held: LockNeeds, new_uuid: str = NEW, **fields: Any) -> Outcome:
        """What the opcode does under these locks. Changes nothing."""
        opcode = parse({"OP_ID": op_id, **fields})
        return deciding.decided(opcode, self.configuration, Circumstances(new_uuid, NOW, held))

    def run(self, op_id: str, new_uuid: str = NEW, **fields: Any) -> Outcome:
        """Take the locks, decide, and make the changes, which must fit everything else."""
        held = self.locks(op_id, new_uuid, **fields)
        outcome = self.decide(op_id, held, new_uuid, **fields)
        self.make(outcome)
        return outcome

    def make(self, outcome: Outcome) -> None:
        before, changes = self.configuration, outcome.changes
        if changes:
            after = before.changed(changes, NOW)
            self.index.accept(before, after, changes)
            self.configuration = after

    def refused(self, op_id: str, **fields: Any) -> tuple[list[Any], tuple[str, ...]]:
        """The name and the details of the error that the opcode ends with, and its log."""
        with pytest.raises(OperationError) as raised:
            self.run(op_id, **fields)
        return [raised.value.name, *raised.value.details], getattr(raised.value, "log", ())

    def group(self, name: str) -> Any:
        return self.configuration.find_by_name(ObjectKind.NODE_GROUP, name)

    def network(self, name: str) -> Any:
        return self.configuration.find_by_name(ObjectKind.NETWORK, name)

    def node(self, name: str) -> Any:
        return self.configuration.find_by_name(ObjectKind.NODE, name)

    def problems(self) -> list[str]:
        """What is wrong with the whole configuration."""
        return problems(self.configuration)
