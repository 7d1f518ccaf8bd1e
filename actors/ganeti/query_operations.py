"""Opcodes that ask for what queries answer: the job's process asks, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, settings
from ...storage.opcodes import OperationError
from ...transport import messages

if TYPE_CHECKING:
    from ...storage.opcodes import Opcode, OperationContext
    from ..job.conversation import Conversation
    from ..job.store_operations import Await


def run(
    opcode: Opcode, context: OperationContext, daemon: Conversation, wait: Await
) -> dict[str, Any]:
    """The answer, in the form of Ganeti's queries. Raises `OperationError`.

    A cancellation that may interrupt the opcode does so between two pages.
    """
    asked = _request(opcode, context.job_id)
    rows: list[Any] = []
    size = 0
    try:
        while True:
            answer = wait(daemon.send(asked), is_cancelable=False)
            assert isinstance(answer, messages.QueryAnswered)
            rows += msgspec.json.decode(answer.rows)
            size += len(answer.rows)
            if asked.is_of_fields:
                return {"fields": answer.fields}
            if answer.next_after is None:
                return {"fields": answer.fields, "data": rows}
            if size > settings.JOB_BYTES_MAX:
                text = (
                    f"{opcode.op_id}: the answer has more than {settings.JOB_BYTES_MAX} bytes as "
                    "JSON, and no job has room for it; ask for fewer fields, or filter"
                )
                raise OperationError("OpResultError", text)
            context.poll([], 0)
            asked = msgspec.structs.replace(asked, after=answer.next_after)
    except errors.BadRequestError as error:
        kind = [error.error_code] if error.luxi_name == "OpPrereqError" else []
        raise OperationError(error.luxi_name, error.text, *kind) from error


def _request(opcode: Any, job_id: int) -> messages.RunQuery:  # noqa: ANN401 - a type that is made
    if opcode.op_id == "OP_QUERY_FIELDS":
        return messages.RunQuery(job_id, opcode.what, opcode.fields, is_of_fields=True)
    return messages.RunQuery(job_id, opcode.what, opcode.fields, opcode.qfilter)
