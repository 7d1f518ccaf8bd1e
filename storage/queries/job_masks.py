"""What those who may only read must not see of jobs: private parameters, and output. Pure.

Job files hold private parameters of opcodes, such as a command's environment and standard input,
and the end of a command's output. Ganeti's doors let in only users who may see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from .. import errors
from ..filters import filters
from ..jobs.outcomes import without_output
from ..opcodes import REDACTED, without_private

Masks: TypeAlias = dict[str, Callable[[Any], Any]]
"""Makes of a field's value, by the field's name, what a reader may see of it."""

OUTPUT_FIELDS: Final = ("stdout_tail", "stderr_tail")
"""The parts of a command's result that are output."""

OUTPUT_KINDS: Final = ("stdout", "stderr")
"""The kinds of entries in a log that are output."""


def opcodes(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """The opcodes of a job without the values of private parameters."""
    if not isinstance(value, list):
        return value
    return [without_private(one) if isinstance(one, dict) else one for one in value]


def results(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """Results of opcodes without the output of commands: also those within an error.

    >>> results([["OpExecError", ["command exited with code 1", {"stdout_tail": "xyz"}]]])
    [['OpExecError', ['command exited with code 1', {'stdout_tail': '<redacted>'}]]]
    """
    if isinstance(value, list):
        return [results(part) for part in value]
    if isinstance(value, dict):
        return {
            name: REDACTED if name in OUTPUT_FIELDS and part else results(part)
            for name, part in value.items()
        }
    return value


def log(entries: list[list[Any]]) -> list[list[Any]]:
    """Entries of a log without the output among them: serial, time, kind, text.

    >>> log([[1, [0, 0], "stdout", "xyz"], [2, [0, 0], "message", "abc"]])
    [[1, [0, 0], 'stdout', '<redacted>'], [2, [0, 0], 'message', 'abc']]
    """
    return [
        [*entry[:3], REDACTED if entry[2] in OUTPUT_KINDS else entry[3], *entry[4:]]
        for entry in entries
    ]


def _logs(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return [log(entries) for entries in value] if isinstance(value, list) else value


PARAMETERS: Final[Masks] = {"ops": opcodes}
"""For readers whom the operator knows."""

PARAMETERS_AND_OUTPUT: Final[Masks] = {
    **PARAMETERS,
    "opresult": results,
    "oplog": _logs,
    "reason_ended": without_output,
}
"""For readers who have not said who they are."""


def check_filter(raw_filter: object, masks: Masks) -> None:
    """Raise `NotAllowedError` for a filter that looks at a field with a mask.

    What passes, and the error about a comparison that is impossible, would tell the value.

    >>> check_filter(["=~", "oplog", "x"], PARAMETERS_AND_OUTPUT)
    Traceback (most recent call last):
      ...
    ganger.storage.errors.NotAllowedError: filter: who may only read may not look at oplog
    """
    try:
        looked_at = filters.roots(filters.parse_filter(raw_filter, where="filter"))
    except errors.FilterRuleError:
        # Whoever answers the query says what is wrong.
        return
    if hidden := sorted(looked_at & masks.keys()):
        text = f"filter: who may only read may not look at {hidden[0]}"
        raise errors.NotAllowedError(text)


def masked_rows(rows: bytes, fields: Sequence[str], masks: Masks, *, is_classic: bool) -> bytes:
    """The rows of a query for jobs, as JSON, with these masks.

    >>> rows = b'[[7,[{"OP_ID":"OP_EXEC","argv":["true"],"env":{"PASSWORD":"xyz"}}]]]'
    >>> masked_rows(rows, ["id", "ops"], PARAMETERS, is_classic=True).decode()
    '[[7,[{"OP_ID":"OP_EXEC","argv":["true"],"env":{"PASSWORD":"<redacted>"}}]]]'
    """
    places = [(place, masks[name]) for place, name in enumerate(fields) if name in masks]
    if not places:
        return rows
    found: list[list[Any]] = msgspec.json.decode(rows)
    for row in found:
        for place, mask in places:
            if is_classic:
                row[place] = mask(row[place])
            else:
                status, value = row[place]
                row[place] = [status, mask(value)]
    return msgspec.json.encode(found)


def without_masked(
    fields: Sequence[str], known: list[Any] | None, masks: Masks
) -> tuple[list[str], list[Any] | None]:
    """The fields of a wait that have no mask, and what the caller knows of them.

    The caller does not know the whole of the others: they would always differ.
    """
    places = [place for place, name in enumerate(fields) if name not in masks]
    if isinstance(known, list) and len(known) == len(fields):
        known = [known[place] for place in places]
    return [fields[place] for place in places], known


def with_nulls(values: Sequence[Any], fields: Sequence[str], masks: Masks) -> list[Any]:
    """The values of a wait, with null in place of the fields that have a mask.

    >>> with_nulls(["running", 7], ["status", "ops", "id"], PARAMETERS)
    ['running', None, 7]
    """
    found = iter(values)
    return [None if name in masks else next(found) for name in fields]
