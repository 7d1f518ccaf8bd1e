"""``ganger.node``: what an operation in Python calls to have something done on nodes.

    import ganger

    class OpUpgrade(Opcode, kw_only=True):
        ...
        def run(self, context):
            kernel = ganger.node.run(self.name, ["uname", "-r"]).stdout
            free = ganger.node.call(self.name, "node_info", paths=["/"])["storage"][0]["free"]

Each of these is a task of its own on the node: it is started once, whatever breaks, and it ends
with the operation. The opcode must hold the lock of the node, shared at least (`lock_needs`): these
functions take none. An error is an `OperationError` with one line that names the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ...storage import errors
from ...storage.nodes import named_calls
from ...storage.nodes.named_calls import NodeCall
from ...storage.opcodes import OperationError
from ...storage.opcodes.catalogue import OpExec
from ...storage.opcodes.node_opcodes import OpNodeCall
from . import current, on_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NodeCall", "Ran", "call", "run"]

ReplyT = TypeVar("ReplyT")


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has run on a node: its exit code, and the ends of its outputs (4 KiB).

    All of its output is output of the job.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float


def run(
    node: str,
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    user: str | None = None,
    timeout: float | None = None,
    ok_exit_codes: Sequence[int] = (0,),
    lost_after: float | None = None,
) -> Ran:
    """Run a command on a node, and wait for its end. The parameters are those of ``OP_EXEC``."""
    context = _context()
    try:
        opcode = OpExec(
            argv=list(argv),
            cwd=cwd,
            env=dict(env or {}),
            stdin=stdin,
            user=user,
            timeout=timeout,
            ok_exit_codes=list(ok_exit_codes),
            node=node,
        )
    except (TypeError, ValueError) as error:
        raise OperationError("OpPrereqError", f"ganger.node.run: {error}") from error
    fields = on_node.command_fields(opcode, context, node)
    [found] = on_node.run_all(context, [node], fields, lost_after=lost_after).values()
    return Ran(
        exit_code=found["exit_code"],
        stdout=found["stdout_tail"],
        stderr=found["stderr_tail"],
        seconds=found["duration"],
    )


@overload
def call(
    node: str,
    name: NodeCall[ReplyT],
    /,
    *,
    timeout: float | None = None,
    lost_after: float | None = None,
) -> ReplyT: ...


@overload
def call(
    node: str,
    name: str,
    /,
    *,
    timeout: float | None = None,
    lost_after: float | None = None,
    **arguments: object,
) -> Any: ...  # noqa: ANN401 - as JSON has it


def call(
    node: str,
    name: NodeCall[ReplyT] | str,
    /,
    *,
    timeout: float | None = None,
    lost_after: float | None = None,
    **arguments: object,
) -> Any:
    """Make a call of a node: the reply, as the call declares it if a structure is given.

    ``name``: a structure of `storage.nodes.named_calls` or of a package, or the name of a call with
    its ``arguments``. ``timeout``: seconds for the answer, in place of the call's own limit.
    """
    if isinstance(name, NodeCall):
        arguments = named_calls.arguments_of(name)
    opcode = OpNodeCall(
        call=name.call if isinstance(name, NodeCall) else name,
        arguments=msgspec.to_builtins(arguments),
        timeout=timeout,
    )
    fields = on_node.fields_of(opcode)
    [found] = on_node.run_all(_context(), [node], fields, lost_after=lost_after).values()
    if not isinstance(name, NodeCall):
        return found
    try:
        return named_calls.checked_reply(type(name), found)
    except errors.BadRequestError as error:
        raise OperationError("OpResultError", f"{node}: {error.text}") from error


def _context() -> on_node.NodeContext:
    found = current.context()
    if not hasattr(found, "mark_task"):
        raise OperationError("OpPrereqError", "ganger.node needs a daemon: this operation has none")
    return found  # type: ignore[return-value]
