"""How is an opcode declared, found and checked?

All other code imports these names from here. An opcode travels and is stored as a plain dictionary
with its ``OP_ID``; inside an operation it is a typed value.

- `declarations`: the base class, lock needs, and what an operation may call.
- `catalogue`: finds the class of an opcode (Ganger's own, those of packages, those of families such
  as `storage.ganeti.opcodes`), and says in a line what one does.
- `node_opcodes`: Ganger's opcodes about nodes. `fields`: what fields of several opcodes share.
- `checks`: checks submitted ones, reads stored ones. `explanations`: what is wrong, in words.
- `interrupts`: tells Ctrl-C from an error of a user's code.

A secret parameter (``secret_fields``) travels in frames from the client to the daemon and from
there to the job's process, and lies in the memory of these three. It is in no file, log, error
text, command line or environment, unless the operation itself puts it there. The environment and
the standard input of an ``OP_EXEC`` are no secrets: they are in the job's file, in the journal and
in the spool. They are private (``private_fields``): who may only look (`rapi.views`, LUXI's
anonymous reads) does not see them.
"""

from .catalogue import INVALID_SUMMARY, summary
from .checks import (
    REDACTED,
    check_opcode,
    dependencies,
    lost_secret,
    parse,
    redacted,
    secret_fields,
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
    targets,
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
    "targets",
    "without_private",
]
