"""What the end of a task on a node says: its result, and how much it has written. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage.jobs import outcomes
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import Outcome
from ...storage.opcodes import OperationError

if TYPE_CHECKING:
    from ...storage.jobs.jobs import Job


def result_of(job: Job, node: str) -> Any:  # noqa: ANN401 - as the opcode has it
    """The result of a task that has ended, or its `OperationError`."""
    entry, ending = job.ops[0], outcomes.ending_of(job)
    if entry.status is JobStatus.SUCCESS:
        return entry.result
    if ending is not None and ending.outcome is Outcome.LOST:
        raise OperationError("OpExecError", f"the command was lost on {node}: {ending.reason}")
    match entry.result:
        case [str(name), [str(text), *details]]:
            raise OperationError(name, text, *details)
        case str(text):
            # The task's process left no result: the node's daemon has said why.
            raise OperationError("OpExecError", f"{node}: {text}")
    raise OperationError("OpExecError", f"{node}: the task was canceled there")


def written(job: Job) -> dict[str, int] | None:
    """How much a command has written, by stream; None: that, or whether all was kept, is open."""
    match job.ops[0].result:
        case dict() as result:
            pass
        case [_, [_, dict() as result]]:
            pass
        case _:
            return None
    match result:
        case {"truncated": False, "stdout_bytes": int(stdout), "stderr_bytes": int(stderr)}:
            return {"stdout": stdout, "stderr": stderr}
    return None
