"""An opcode of your own: ``OP_FILE_CHECKSUM`` computes the checksum of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from ganger.storage.opcodes import LevelNeeds, LockNeeds, Opcode, OperationContext, OperationError

_BLOCK_BYTES = 1024 * 1024


class OpFileChecksum(Opcode, kw_only=True):
    """Compute the checksum of a file.

    The fields are the parameters, and their types are checked when a job is submitted.
    """

    op_id: ClassVar[str] = "OP_FILE_CHECKSUM"
    summary_field: ClassVar[str | None] = "path"

    path: Annotated[str, msgspec.Meta(min_length=1)]
    """The file, as an absolute path."""

    algorithm: Literal["blake2b", "sha256", "sha512"] = "sha256"
    """How the checksum is computed."""

    node: str | None = None
    """The node that no other job may change meanwhile, if any."""

    def __post_init__(self) -> None:
        """Refuse, at submission, what types cannot express; begin with the parameter's name."""
        if not self.path.startswith("/"):
            raise ValueError("path: expected an absolute path")

    def lock_needs(self) -> LockNeeds:
        """Share the node, so that a job that needs it alone waits for us, and we for that job."""
        if self.node is None:
            return LockNeeds()
        return LockNeeds(node=LevelNeeds(shared=(self.node,)))

    def run(self, context: OperationContext) -> dict[str, Any] | None:
        """Read the file block by block; the result is the checksum and the file's size."""
        try:
            with Path(self.path).open("rb") as file:
                if context.dry_run:
                    return None
                checksum = hashlib.new(self.algorithm)
                size = 0
                while block := file.read(_BLOCK_BYTES):
                    checksum.update(block)
                    size += len(block)
                    # Lets the job take its messages during long work.
                    context.poll([], 0)
        except OSError as error:
            reason = f"{self.path}: {error.strerror}"
            raise OperationError("OpExecError", reason) from error
        context.log(f"Read {size} bytes of {self.path}")
        return {"algorithm": self.algorithm, "checksum": checksum.hexdigest(), "bytes": size}
