"""An opcode with a secret."""

from __future__ import annotations

from ganger.storage import opcodes

PIN = "4711-very-secret"


class OpUnlock(opcodes.Opcode, kw_only=True):
    """Logs, and returns the length of its secret."""

    op_id = "OP_UNLOCK"
    secret_fields = ("pin",)
    pin: str

    def run(self, context: opcodes.OperationContext) -> int:
        context.log("unlocking")
        return len(self.pin)
