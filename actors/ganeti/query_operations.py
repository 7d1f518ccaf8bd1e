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
    return answer(_request(opcode, context.job_id), context, daemon, wait)


def answer(
    asked: messages.RunQuery, context: OperationContext, daemon: Conversation, wait: Await
) -> dict[str, Any]:
    """As `run`: all pages of the answer to this request."""
    rows: list[Any] = []
    size = 0
    try:
        while True:
            page = wait(daemon.send(asked), is_cancelable=False)
            assert isinstance(page, messages.QueryAnswered)
            rows += msgspec.json.decode(page.rows)
            size += len(page.rows)
            if asked.is_of_fields:
                return {"fields": page.fields}
            if page.next_after is None:
                return {"fields": page.fields, "data": rows}
            if size > settings.JOB_BYTES_MAX:
                text = (
                    f"query for {asked.what}: the answer has more than {settings.JOB_BYTES_MAX} "
                    "bytes as JSON, and no job has room for it; ask for fewer fields, or filter"
                )
                raise OperationError("OpResultError", text)
            context.poll([], 0)
            asked = msgspec.structs.replace(asked, after=page.next_after)
    except errors.BadRequestError as error:
        kind = [error.error_code] if error.luxi_name == "OpPrereqError" else []
        raise OperationError(error.luxi_name, error.text, *kind) from error


def _request(opcode: Any, job_id: int) -> messages.RunQuery:  # noqa: ANN401 - a type that is made
    if opcode.op_id == "OP_QUERY_FIELDS":
        return messages.RunQuery(job_id, opcode.what, opcode.fields, is_of_fields=True)
    return messages.RunQuery(job_id, opcode.what, opcode.fields, opcode.qfilter)
