"""Opcodes: how they are declared, the catalogue of all, and the checks of submitted ones.

All other code imports these names from here. An opcode travels and is stored as a plain
dictionary with its ``OP_ID``; inside an operation it is a typed value.
"""

from .checks import (
    INVALID_SUMMARY,
    REDACTED,
    check_opcode,
    dependencies,
    lost_secret,
    parse,
    redacted,
    secret_fields,
    summary,
    without_private,
)
from .declarations import (
    KilledError,
    LevelNeeds,
    LockMode,
    LockNeeds,
    NonEmptyStr,
    Opcode,
    OperationContext,
    OperationError,
)

__all__ = [
    "INVALID_SUMMARY",
    "REDACTED",
    "KilledError",
    "LevelNeeds",
    "LockMode",
    "LockNeeds",
    "NonEmptyStr",
    "Opcode",
    "OperationContext",
    "OperationError",
    "check_opcode",
    "dependencies",
    "lost_secret",
    "parse",
    "redacted",
    "secret_fields",
    "summary",
    "without_private",
]
