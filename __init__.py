"""The public names of Ganger, each loaded when it is first used.

Nothing is imported here: a process that needs one part of Ganger (the fork server above all) must
not pay for sockets and threads of another part.

>>> from ganger import UnknownJobError
>>> UnknownJobError().exit_code
1
"""

from __future__ import annotations

import importlib

# Known to type checkers by its name. `typing` takes longer to import than Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .actors.operations import node
    from .storage.errors import (
        BadRequestError,
        DaemonUnreachableError,
        DeadlineError,
        GangerError,
        JobEndedError,
        OpcodeError,
        OperatorError,
        RejectedError,
        TryAgainError,
        UnknownJobError,
    )
    from .storage.jobs.job_filters import JobFilter
    from .storage.jobs.jobs import JobStatus
    from .storage.jobs.outcomes import Outcome
    from .storage.nodes.named_calls import NodeCall
    from .storage.opcodes import (
        LevelNeeds,
        LockNeeds,
        Opcode,
        OperationContext,
        OperationError,
    )
    from .storage.opcodes.node_opcodes import NodeOpcode
    from .transport.client.async_client import AsyncClient
    from .transport.client.client import Client

__all__ = [
    "AsyncClient",
    "BadRequestError",
    "Client",
    "DaemonUnreachableError",
    "DeadlineError",
    "GangerError",
    "JobEndedError",
    "JobFilter",
    "JobStatus",
    "LevelNeeds",
    "LockNeeds",
    "NodeCall",
    "NodeOpcode",
    "Opcode",
    "OpcodeError",
    "OperationContext",
    "OperationError",
    "OperatorError",
    "Outcome",
    "RejectedError",
    "TryAgainError",
    "UnknownJobError",
    "node",
]

# The public name, the module it lives in and what it is called there. The imports above tell
# the type checker the same; a test compares the two.
_HOMES = {
    "AsyncClient": (".transport.client.async_client", "AsyncClient"),
    "BadRequestError": (".storage.errors", "BadRequestError"),
    "Client": (".transport.client.client", "Client"),
    "DaemonUnreachableError": (".storage.errors", "DaemonUnreachableError"),
    "DeadlineError": (".storage.errors", "DeadlineError"),
    "GangerError": (".storage.errors", "GangerError"),
    "JobEndedError": (".storage.errors", "JobEndedError"),
    "JobFilter": (".storage.jobs.job_filters", "JobFilter"),
    "JobStatus": (".storage.jobs.jobs", "JobStatus"),
    "LevelNeeds": (".storage.opcodes", "LevelNeeds"),
    "LockNeeds": (".storage.opcodes", "LockNeeds"),
    "NodeCall": (".storage.nodes.named_calls", "NodeCall"),
    "NodeOpcode": (".storage.opcodes.node_opcodes", "NodeOpcode"),
    "Opcode": (".storage.opcodes", "Opcode"),
    "OpcodeError": (".storage.errors", "OpcodeError"),
    "OperationContext": (".storage.opcodes", "OperationContext"),
    "OperationError": (".storage.opcodes", "OperationError"),
    "OperatorError": (".storage.errors", "OperatorError"),
    "Outcome": (".storage.jobs.outcomes", "Outcome"),
    "RejectedError": (".storage.errors", "RejectedError"),
    "TryAgainError": (".storage.errors", "TryAgainError"),
    "UnknownJobError": (".storage.errors", "UnknownJobError"),
    "node": (".actors.operations", "node"),
}

# Hidden from the type checker: seeing a module-level `__getattr__`, it would believe in any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load the public ``name`` and keep it, so that this runs once for each name."""
        if name not in _HOMES:
            text = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(text)
        module, attribute = _HOMES[name]
        value = getattr(importlib.import_module(module, __name__), attribute, None)
        if value is None:
            # A module of that package.
            value = importlib.import_module(f"{module}.{attribute}", __name__)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, also those not loaded yet."""
    return sorted({*globals(), *__all__})
