"""The operation of each opcode, and the encoding of its failures.

Imported by the lean fork server, so it imports only what is cheap. The operation of
``OP_EXEC`` is in `commands`; users' opcodes bring their own as their `run` method.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from ...storage import errors
from ...storage.jobs import job_bounds
from ...storage.opcodes import Opcode, OperationContext, OperationError
from ...storage.opcodes.catalogue import OpTestDelay
from ...storage.opcodes.node_opcodes import OpNodeCall, OpNodeCopy
from ...storage.wording import text_of
from . import commands, on_node

Operation = Callable[[Any, OperationContext], object]
"""Takes the opcode and its context; returns the result, or raises."""

WAIT_SECONDS_MAX = 3600.0
"""Longest single wait; a longer one is several in a row, because system calls have limits."""

_SOCKET_NAME = "sock"


def run_delay(opcode: OpTestDelay, context: OperationContext) -> None:
    """Wait for ``duration`` seconds: once silently, or ``repeat`` times, each announced.

    Nodes that have a host wait there, all at the same time; for the others this process does.
    """
    if not opcode.duration > 0:
        raise OperationError("OpPrereqError", "Duration must be greater than zero")
    if context.dry_run:
        return
    joined: set[str] = set()
    if opcode.on_nodes and not opcode.interruptible:
        joined = context.joined_nodes()  # type: ignore[attr-defined]
    there = _with_hosts(opcode.on_nodes, joined)
    is_here = opcode.on_master or len(there) < len(set(opcode.on_nodes))
    for iteration in range(opcode.repeat or 1):
        if opcode.repeat:
            context.log(f" - INFO: Test delay iteration {iteration}/{opcode.repeat - 1}")
        if opcode.interruptible:
            _interruptible_delay(opcode.duration, context)
            continue
        deadline = context.clock() + opcode.duration
        if not there:
            _wait([], deadline, context)
            continue
        # The lean fork server does without.
        from . import named_calls  # noqa: PLC0415

        here = functools.partial(_wait, [], deadline, context) if is_here else None
        named_calls.delay(there, opcode.duration, context, here)  # type: ignore[arg-type]


def _with_hosts(names: Iterable[str], joined: Collection[str]) -> list[str]:
    """Those of these nodes under whose names hosts have joined; a name may be cut at a dot."""
    found = []
    for name in dict.fromkeys(names) if joined else ():
        alike = [one for one in joined if one.startswith(f"{name}.")]
        if name in joined or len(alike) == 1:
            found.append(name if name in joined else alike[0])
    return found


def _run_call(opcode: OpNodeCall, context: OperationContext) -> object:
    # The lean fork server does without.
    from . import named_calls  # noqa: PLC0415

    return named_calls.run_call(opcode, context)  # type: ignore[arg-type]


def _run_copy(opcode: OpNodeCopy, context: OperationContext) -> object:
    # As above.
    from . import copies  # noqa: PLC0415

    return copies.run_copy(opcode, context)  # type: ignore[arg-type]


OPERATIONS: dict[str, Operation] = {
    "OP_EXEC": commands.run_command,
    "OP_NODE_CALL": _run_call,
    "OP_NODE_COPY": _run_copy,
    "OP_TEST_DELAY": run_delay,
}
"""The built-in operations by the id of their opcode."""


def operation_for(opcode: Opcode) -> Operation:
    """The operation of ``opcode``; `OperationMissingError` if it has none."""
    if opcode.op_id in OPERATIONS:
        return OPERATIONS[opcode.op_id]
    if not opcode.has_operation():
        raise errors.OperationMissingError(
            f"{opcode.op_id}: this opcode is known, but nothing on this system can run it"
        )
    return _run_declared


def encode_exception(error: BaseException) -> list[Any]:
    """The result of an opcode that failed with ``error``, as Ganeti writes it: name, arguments."""
    match error:
        case OperationError():
            return [text_of(error.name), [_plain(detail) for detail in error.details]]
        case errors.GangerError():
            return [error.luxi_name, [text_of(error.text)]]
        case _:
            return ["OpExecError", [_described(error)]]


def _run_declared(opcode: Opcode, context: OperationContext) -> object:
    if opcode.runs_on_nodes and (nodes := opcode.targets()):  # type: ignore[attr-defined]
        fields, lost_after = on_node.fields_of(opcode), opcode.lost_after  # type: ignore[attr-defined]
        found = on_node.run_all(context, nodes, fields, lost_after=lost_after)  # type: ignore[arg-type]
        return found[opcode.node] if opcode.node is not None else found  # type: ignore[attr-defined]
    # `printing` imports threads and tracebacks, which the lean fork server does without.
    from . import current, printing  # noqa: PLC0415

    process = os.getpid()
    with printing.captured(context), current.operation(context):
        try:
            try:
                result = opcode.run(context)
            finally:
                if os.getpid() != process:
                    # Two processes would speak for one job, and run what comes next.
                    printing.end_forked_child(sys.exception())
        except (OperationError, errors.GangerError):
            # The author chose this error: no traceback.
            raise
        except BaseException as error:
            context.log_lines(printing.traceback_lines(error), kind=printing.TRACEBACK)
            if isinstance(error, Exception):
                raise
            # Here it would end the job's process without a result.
            text = _described(error)
            if isinstance(error, SystemExit):
                text = f"{opcode.op_id}: the operation called exit ({text_of(error.code)})"
            raise OperationError("OpExecError", text) from error
    try:
        return _through_json(result)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise OperationError(
            "OpResultError", f"{opcode.op_id}: the result cannot be stored as JSON: {error}"
        ) from error


def _plain(detail: object) -> object:
    """The detail if JSON can hold it, else its text."""
    try:
        return _through_json(detail)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return text_of(detail)


def _described(error: BaseException) -> str:
    name, text = type(error).__name__, text_of(error)
    return f"{name}: {text}" if text else name


def _through_json(value: object) -> object:
    plain = msgspec.json.decode(msgspec.json.encode(value))
    job_bounds.check_depth(plain)
    return plain


def _wait(descriptors: list[int], deadline: float, context: OperationContext) -> bool:
    """Wait for one of ``descriptors``; False if the deadline came first."""
    while (left := deadline - context.clock()) > 0:
        if context.poll(descriptors, min(left, WAIT_SECONDS_MAX)):
            return True
    return False


def _interruptible_delay(duration: float, context: OperationContext) -> None:
    """Wait until a client connects to a Unix socket, or ``duration`` is over."""
    # The import costs more than most jobs, and only a test of Ganeti's needs it.
    import socket  # noqa: PLC0415

    start = context.clock()
    directory = f"{os.environ.get('TMPDIR', '/tmp')}/ganger-delay-{os.urandom(8).hex()}"  # noqa: S108 - the name cannot be guessed, and a directory that exists is not taken
    os.mkdir(directory, 0o700)  # noqa: PTH102 - pathlib is slow to import
    path = f"{directory}/{_SOCKET_NAME}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(1)
            context.log([path], "delay-test")
            if not _wait([listener.fileno()], start + duration, context):
                return
            peer, _ = listener.accept()
            with peer:
                left = start + duration - context.clock()
                context.log(f"Received connection, time to go is {max(0, int(left))}")
                if _wait([peer.fileno()], start + duration, context):
                    spent = int(context.clock() - start)
                    context.log(f"Interrupted, time spent waiting: {spent}")
    finally:
        # There is no socket if binding failed; the directory must go in any case.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - as above
        os.rmdir(directory)  # noqa: PTH106 - as above
