"""``OP_NODE_COPY``: a file of this machine, or a text, is put on nodes, or here.

How it works. The job's process sends the content to the node in pieces, as a large standard input
is sent; the node has it on its disk, flushed, before the task is submitted. The task puts it at its
place (`host_files`), if the checksum is that of what was sent.

Imported when there is such an opcode.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...storage import wording
from ...storage.disk import documents
from ...storage.opcodes import KilledError, OperationError
from . import host_files, on_node, task_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...storage.nodes.named_calls import FileStored
    from ...storage.opcodes.node_opcodes import OpNodeCopy
    from .named_calls import HostContext
    from .on_node import NodeContext, Task

    class CopyContext(HostContext, NodeContext, Protocol):
        """The context of a job."""


_MIB = 1024 * 1024
_PAGE_BYTES = _MIB
_TELL_SECONDS = 5.0
"""How often the log tells how much of a large file was sent."""


def run_copy(opcode: OpNodeCopy, context: CopyContext) -> object:
    """Put the file there: where it is, its size and checksum; by node, if there are ``nodes``."""
    with _opened(opcode, context) as source:
        if context.dry_run:
            return None
        if not (nodes := opcode.targets()):
            stored = _put_here(opcode, context, source)
            return msgspec.to_builtins(stored)
        found = _put_on_nodes(opcode, context, nodes, source)
    for node, stored in found.items():
        size = wording.counted(stored["size"], "byte")
        context.output(f"{node}:{stored['path']}: {size}\n".encode())
    return found if opcode.node is None else found[opcode.node]


@contextlib.contextmanager
def _opened(opcode: OpNodeCopy, context: CopyContext) -> Iterator[int]:
    """The content, as a file."""
    try:
        descriptor = _open(opcode, context)
    except OSError as error:
        name = f"source {opcode.source}" if opcode.source else "the content"
        raise OperationError("OpExecError", f"{name}: {os.strerror(error.errno or 0)}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OperationError("OpExecError", f"source {opcode.source}: is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open(opcode: OpNodeCopy, context: CopyContext) -> int:
    if opcode.source is not None:
        return os.open(opcode.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if opcode.stdin_file is not None:
        return context.open_input(opcode.stdin_file)
    descriptor = os.memfd_create("content")
    documents.write_all(descriptor, opcode.content_bytes())
    return descriptor


def _put_on_nodes(
    opcode: OpNodeCopy, context: CopyContext, nodes: Sequence[str], source: int
) -> dict[str, Any]:
    fields = on_node.fields_of(opcode)
    for name in ("source", "content", "content_base64"):
        fields.pop(name, None)
    if opcode.source is not None:
        fields.setdefault("file_name", Path(opcode.source).name)
        fields.setdefault("mode", stat.S_IMODE(os.fstat(source).st_mode) & 0o777)
    tasks = {
        node: on_node.Task(context, node, fields, lost_after=opcode.lost_after) for node in nodes
    }
    for node, task in tasks.items():
        task.when_sent = _Sent(node, task, context).note
    return task_results.results_of(*on_node.run_tasks(context, tasks, source))


class _Sent:
    """Follows how much of a file was sent to a node, and makes its checksum."""

    def __init__(self, node: str, task: Task, context: CopyContext) -> None:
        self._node = node
        self._task = task
        self._context = context
        self._digest = hashlib.sha256()
        self._sent = 0
        self._told_at = context.clock()

    def note(self, place: int, data: bytes, size: int) -> None:
        """This piece is sent; the whole has ``size`` bytes."""
        if place == 0:
            self._digest, self._sent = hashlib.sha256(), 0
        self._digest.update(data)
        self._sent += len(data)
        # What is submitted after the last piece.
        self._task.fields["sha256"] = self._digest.hexdigest()
        now = self._context.clock()
        if now - self._told_at >= _TELL_SECONDS and self._sent < size:
            self._told_at = now
            part = f"{self._sent // _MIB} of {size // _MIB} MiB ({100 * self._sent // size} %)"
            self._context.log(f"{self._node}: {part} are sent")


def _put_here(opcode: OpNodeCopy, context: CopyContext, source: int) -> FileStored:
    target = _target_of(opcode)
    mode = None if opcode.mode is None else opcode.permissions()
    if mode is None and opcode.source is not None:
        mode = stat.S_IMODE(os.fstat(source).st_mode) & 0o777
    kept = host_files.Kept(mode=mode, owner=opcode.owner, group=opcode.group, sha256=opcode.sha256)
    try:
        pages = _pages(source, context)
        return host_files.put(pages, target, kept, Path(context.data_directory))
    except KilledError:
        raise OperationError(
            "OpExecError", f"{target}: killed on request, and left as it was"
        ) from None


def _target_of(opcode: OpNodeCopy) -> str:
    """The file that the path means: itself, or one in the directory that it is."""
    target = opcode.path
    try:
        is_directory = Path(target).is_dir()
    except OSError as error:
        raise host_files.refused(target, error) from error
    if is_directory:
        name = opcode.file_name or (Path(opcode.source).name if opcode.source else None)
        if name is None:
            text = f"{target}: is a directory, and file_name is not set"
            raise OperationError("OpExecError", text)
        return f"{target.rstrip('/')}/{name}"
    if target.endswith("/"):
        there = "is no directory" if Path(target.rstrip("/")).exists() else "there is none"
        raise OperationError("OpExecError", f"{target}: {there}")
    return target


def _pages(source: int, context: CopyContext) -> Iterator[bytes]:
    place = 0
    while data := os.pread(source, _PAGE_BYTES, place):
        place += len(data)
        yield data
        # Here it hears of a kill.
        context.poll([], 0.0)
