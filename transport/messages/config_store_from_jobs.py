"""Messages of job processes to the configuration store, and their replies."""

from __future__ import annotations

from typing import Any

from .base import Done, Reply, Request
from .several import QueryAnswered

OperationProblem = tuple[str, list[Any]]
"""The error of an operation as Ganeti names it, and its details: text and kind."""

PlainLocks = dict[str, dict[str, tuple[str, ...]]]
"""Lock needs as a plain value: the names of each level, by mode."""


class OpcodePrepared(Reply, frozen=True):
    """The locks that the opcode needs, or why it cannot run.

    ``serial_no``: the serial number of the configuration that says so.
    """

    locks: PlainLocks
    serial_no: int
    error: OperationProblem | None = None


class PrepareOpcode(Request[OpcodePrepared], frozen=True):
    """Ask which locks this opcode of the job needs.

    ``new_uuid`` is for an object that the opcode makes: the same in each request about it.
    """

    job_id: int
    op_index: int
    opcode: dict[str, Any]
    new_uuid: str


class NameLocks(Request[OpcodePrepared], frozen=True):
    """Ask what Ganeti's opcodes call the locks of a user's opcode, which may have names."""

    job_id: int
    locks: PlainLocks


class OpcodeRan(Reply, frozen=True):
    """What the opcode resulted in, and the lines that it logs; or its error: nothing is changed."""

    result: Any = None
    log: list[str] = []
    error: OperationProblem | None = None


class RunOpcode(Request[OpcodeRan], frozen=True):
    """Carry the opcode out: decide on the present configuration, and make all changes or none.

    The job holds ``locks``, which the configuration of the serial number ``since`` named. The reply
    to a repeated request is that to the first one, and nothing changes twice. Nothing changes if no
    process holds the job's ``lock_file`` any more: then others may have its locks.
    """

    job_id: int
    op_index: int
    opcode: dict[str, Any]
    new_uuid: str
    locks: PlainLocks
    since: int
    lock_file: str


class CheckNode(Request[Done], frozen=True):
    """Refuse, if no command may begin on the node of this name now."""

    job_id: int
    node: str


class RunQuery(Request[QueryAnswered], frozen=True):
    """Answer an ``OP_QUERY`` of the job, a page at a time, or an ``OP_QUERY_FIELDS``.

    ``what`` is what `QueryConfiguration` takes, and ``job`` or ``lock``: then the store asks the
    component that knows. ``is_of_fields``: only define the fields (None: all).
    """

    job_id: int
    what: str
    fields: list[str] | None
    filter: Any = None
    after: str | None = None
    is_of_fields: bool = False
