"""What those who may only read LUXI must not see, and may not ask. Pure.

Job files hold private parameters of opcodes, such as a command's environment. Ganeti's socket lets
in only users who may see them; ours may let every user read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...storage import errors
from ...storage.opcodes import without_private

OPCODES: Final = "ops"
"""The field of a job that holds the parameters of its opcodes."""


OPERATORS_MAX: Final = 1_000
"""Most operators of a filter, also of one that only names items: others wait while it is read."""


def check_filter(raw_filter: object) -> None:
    """Raise `BadRequestError` for a filter with too many operators."""
    if msgspec.json.encode(raw_filter).count(b"[") > OPERATORS_MAX:
        text = f"filter: has more than {OPERATORS_MAX} operators; who may only read may not ask it"
        raise errors.BadRequestError(text)


def masked_rows(rows: bytes, fields: Sequence[str], *, is_classic: bool) -> bytes:
    """The rows of a query for jobs, as JSON, without the values of private parameters.

    >>> rows = b'[[7,[{"OP_ID":"OP_EXEC","argv":["true"],"env":{"PASSWORD":"xyz"}}]]]'
    >>> masked_rows(rows, ["id", "ops"], is_classic=True).decode()
    '[[7,[{"OP_ID":"OP_EXEC","argv":["true"],"env":{"PASSWORD":"<redacted>"}}]]]'
    """
    places = [place for place, name in enumerate(fields) if name == OPCODES]
    if not places:
        return rows
    found: list[list[Any]] = msgspec.json.decode(rows)
    for row in found:
        for place in places:
            if is_classic:
                row[place] = _masked(row[place])
            else:
                status, value = row[place]
                row[place] = [status, _masked(value)]
    return msgspec.json.encode(found)


def without_opcodes(fields: Sequence[str], known: object) -> tuple[list[str], object]:
    """The fields of a wait, and what the caller knows of them, but for the opcodes.

    The caller does not know the whole opcodes: they would always differ.
    """
    places = [place for place, name in enumerate(fields) if name != OPCODES]
    if isinstance(known, list) and len(known) == len(fields):
        known = [known[place] for place in places]
    return [fields[place] for place in places], known


def with_nulls(values: bytes, fields: Sequence[str]) -> bytes:
    """The values of a wait, with null in place of the opcodes.

    >>> with_nulls(b'["running",7]', ["status", "ops", "id"]).decode()
    '["running",null,7]'
    """
    found = iter(msgspec.json.decode(values))
    return msgspec.json.encode([None if name == OPCODES else next(found) for name in fields])


def _masked(opcodes: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if not isinstance(opcodes, list):
        return opcodes
    return [without_private(one) if isinstance(one, dict) else one for one in opcodes]
