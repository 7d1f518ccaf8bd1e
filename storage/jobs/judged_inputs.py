"""What filter rules see of a job, read from the text of its file: pure.

A rule looks at few parameters. To decode these alone takes an eighth of the time of a whole job.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from .. import errors
from . import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FIELDS_MAX = 32
"""With more, the decoder would compare each key with many."""

_KNOWN_MAX = 64


def read(data: bytes, job_id: int, fields: frozenset[str]) -> Sequence[dict[str, Any]]:
    """The inputs of the job's opcodes as filter rules see them, with at least these parameters.

    `StorageError` unless the text is that of this job.
    """
    # Only a text with the right checksum is as we wrote it: then nothing else needs a check.
    decode = _decoder(fields) if jobs.has_right_sum(data) else None
    if decode is not None:
        try:
            return _inputs(decode(data), job_id)
        except (msgspec.DecodeError, ValueError, RecursionError):
            # The slower reader names the mistake.
            pass
    job = jobs.decode_job(data)
    return _checked(job.judged_inputs, job.id, job_id)


def _inputs(job: Any, job_id: int) -> list[dict[str, Any]]:  # noqa: ANN401 - of a type made below
    found: list[dict[str, Any]] = [op.input for op in job.ops]
    for place, op in enumerate(job.ops):
        if (found[place].get("priority") or 0) != op.priority:
            found[place] = {**found[place], "priority": op.priority}
    return _checked(found, job.id, job_id)


def _checked(found: list[dict[str, Any]], its_id: int, job_id: int) -> list[dict[str, Any]]:
    if its_id != job_id:
        raise errors.StorageError(f"holds job {its_id}, not {job_id}")
    return found


@functools.lru_cache(maxsize=_KNOWN_MAX)
def _decoder(fields: frozenset[str]) -> Callable[[bytes], Any] | None:
    """Decodes these parameters of each opcode, and its priority; None: the slower way is wanted.

    msgspec takes an empty key for a name that is not ASCII. No opcode has parameters of such names.
    """
    if len(fields) > _FIELDS_MAX or not all(one.isascii() and one.isidentifier() for one in fields):
        return None
    wanted = dict.fromkeys(sorted(fields | {"priority"}), Any)
    given = TypedDict("given", wanted, total=False)  # type: ignore[misc]
    op = msgspec.defstruct("op", [("input", given), ("priority", int, 0)], gc=False)
    job = msgspec.defstruct("job", [("id", int), ("ops", list[op])], gc=False)  # type: ignore[valid-type]
    return msgspec.json.Decoder(job).decode
