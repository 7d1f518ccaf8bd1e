"""Opcodes that run on nodes: their base class, and Ganger's own: calls by name, and copies."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from .declarations import NO_LOCKS, LockNeeds, NonEmptyStr, Opcode
from .fields import check_targets, from_base64, locks_on_nodes

FileMode = Annotated[str, msgspec.Meta(pattern="^[0-7]{3,4}$")]

_MODE_MAX = 0o777


class NodeOpcode(Opcode, kw_only=True):
    """An opcode whose operation runs on other hosts if it has a node, and here without one.

    Packages derive from it, too: they must be installed on the host then, which runs the operation
    as a task. A subclass with ``__post_init__`` or `lock_needs` calls those of this class.
    """

    runs_on_nodes: ClassVar[bool] = True

    node: NonEmptyStr | None = None
    """The node where it runs; this machine if neither this nor ``nodes`` is set."""

    nodes: list[NonEmptyStr] | None = None
    """The nodes where it runs, at the same time: its result is that of each by its name."""

    lost_after: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """As in ``OP_EXEC``."""

    def __post_init__(self) -> None:
        check_targets(self.node, self.nodes)

    def targets(self) -> list[str]:
        """The nodes where it runs; empty: this machine."""
        return [self.node] if self.node is not None else self.nodes or []

    def lock_needs(self) -> LockNeeds:
        """These nodes, shared."""
        return LockNeeds().with_nodes(self.targets())


class OwnNodeOpcode(NodeOpcode, kw_only=True):
    """One of Ganger's own: the queue looks up what its locks name."""

    built_in: ClassVar[bool] = True

    lock_uuids: dict[NonEmptyStr, NonEmptyStr] | None = None
    """As in ``OP_EXEC``."""

    def lock_needs(self) -> LockNeeds:
        """These nodes, shared."""
        return locks_on_nodes(NO_LOCKS, self.targets(), self.lock_uuids or {})


class OpNodeCall(OwnNodeOpcode, kw_only=True):
    """Make a call of a host, by its name: `storage.nodes.named_calls` has those of Ganger."""

    op_id: ClassVar[str] = "OP_NODE_CALL"
    summary_field: ClassVar[str | None] = "call"

    call: NonEmptyStr
    """The call's name, such as ``node_info``."""

    arguments: dict[str, Any] = {}
    """Its arguments by name. The host checks them."""

    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds that the answer may take; that of the call itself if unset."""


class OpNodeCopy(OwnNodeOpcode, kw_only=True):
    """Put a file on nodes: entirely or not at all, with its checksum, mode and owner."""

    op_id: ClassVar[str] = "OP_NODE_COPY"
    summary_field: ClassVar[str | None] = "path"
    private_fields: ClassVar[tuple[str, ...]] = ("content", "content_base64")

    path: NonEmptyStr
    """Where to put it, absolute: a file, or a directory that is there, for the name of the source.
    With a slash at its end it must be a directory."""

    source: NonEmptyStr | None = None
    """The file to copy, an absolute path of this machine; it is read when the opcode runs."""

    content: str | None = None
    """The content instead, as text."""

    content_base64: str | None = None
    """The content instead, in Base64, if it is no text."""

    stdin_file: NonEmptyStr | None = None
    """The file beside the job that holds a large ``content`` instead. The queue sets it."""

    file_name: NonEmptyStr | None = None
    """Its name if ``path`` is a directory; that of ``source`` if unset."""

    mode: FileMode | int | None = None
    """Permission bits such as ``"0640"``; those of ``source`` if unset, or of the file replaced."""

    owner: NonEmptyStr | None = None
    """Name or number of its user; as the file that it replaces, or the daemon's own, if unset."""

    group: NonEmptyStr | None = None
    """Name or number of its group; that of the owner if unset."""

    sha256: NonEmptyStr | None = None
    """The checksum that the content must have, in hexadecimal, if it is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("path", "source"):
            value = getattr(self, field)
            if value is not None and (not value.startswith("/") or "\0" in value):
                raise ValueError(f"{field}: expected an absolute path, got {value!r}")
        given = (self.source, self.content, self.content_base64, self.stdin_file)
        if len(given) - given.count(None) != 1:
            raise ValueError("source: expected one of source, content and content_base64")
        if self.content_base64 is not None:
            self.content_bytes()
        if self.file_name is not None and "/" in self.file_name:
            raise ValueError(f"file_name: expected a name without a slash, got {self.file_name!r}")
        if self.mode is not None and not 0 <= self.permissions() <= _MODE_MAX:
            raise ValueError(f'mode: expected permission bits such as "0640", got {self.mode!r}')

    def permissions(self) -> int:
        """The mode as a number, if it is set."""
        return int(self.mode, 8) if isinstance(self.mode, str) else self.mode or 0

    def content_bytes(self) -> bytes:
        """The content, if it is neither in a file nor a source."""
        if self.content_base64 is None:
            return (self.content or "").encode()
        return from_base64(self.content_base64, "content_base64")
