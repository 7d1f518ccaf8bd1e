"""What the ends of tasks on nodes say: results, failures, and how much was written. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage import errors, wording
from ...storage.jobs import outcomes
from ...storage.jobs.jobs import JobStatus
from ...storage.jobs.outcomes import Outcome
from ...storage.opcodes import OperationError

if TYPE_CHECKING:
    from ...storage.jobs.jobs import Job


Failures = dict[str, OperationError | errors.GangerError]
"""Why there is no result, by node."""


def result_of(job: Job, node: str) -> Any:  # noqa: ANN401 - as the opcode has it
    """The result of a task that has ended, or its `OperationError`."""
    entry, ending = job.ops[0], outcomes.ending_of(job)
    if entry.status is JobStatus.SUCCESS:
        return entry.result
    if ending is not None and ending.outcome is Outcome.LOST:
        raise OperationError("OpExecError", f"the command was lost on {node}: {ending.reason}")
    match entry.result:
        case [str(name), [str(text), *details]]:
            if text.startswith(wording.NOT_STARTED):
                # It may well begin on another host.
                text = f"{node}: {text}"
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


def results_of(results: dict[str, Any], failures: Failures) -> dict[str, Any]:
    """The results; `OperationError` tells each failure if there are some, and has the results."""
    if not failures:
        return results
    if len(results) + len(failures) == 1:
        [(node, failure)] = failures.items()
        if isinstance(failure, errors.GangerError):
            raise type(failure)(named(node, failure.text)) from failure
        text, *details = failure.details or [failure.name]
        raise OperationError(failure.name, named(node, str(text)), *details) from failure
    told = "; ".join(named(node, str(error)) for node, error in failures.items())
    raise OperationError("OpExecError", told, {"results": results})


def named(node: str, text: str) -> str:
    """The text with the name of its node before it, if it does not name it already."""
    return text if node in text.partition(": ")[0].split() else f"{node}: {text}"
