"""What Ganeti's part of the configuration store says to itself, or its threads to it."""

from __future__ import annotations

from typing import Any

from ...transport.messages import OpcodeRan, PartNotice


class HostMeasured(PartNotice, frozen=True):
    """The figures of this machine, by the names of a node's live fields."""

    figures: dict[str, Any]


class HostOverdue(PartNotice, frozen=True):
    """This measurement of the machine takes too long."""

    number: int


class OpcodeDecided(PartNotice, frozen=True):
    """The answer to an opcode of this job that changes nothing."""

    job_id: int
    op_index: int
    answer: OpcodeRan


class SweepReservations(PartNotice, frozen=True):
    """Look whether the owners of reservations live."""


class SsconfDue(PartNotice, frozen=True):
    """Write ssconf files that the disk refused."""


class SsconfWritten(PartNotice, frozen=True):
    """These ssconf files (None: all) are written, or why they are not.

    ``is_damaged``: because of the configuration, so that it is of no use to try again.
    """

    names: list[str] | None
    error: str | None = None
    is_damaged: bool = False
    incarnation: int = 0
