"""Rows of pending jobs whose files differ in nothing but numbers, times and keys.

Most jobs of a long queue come from few templates. The file of one job becomes a pattern; of a file
that matches it, only the differences are read. What matches no pattern is decoded as before.
Has no files and no clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...storage.jobs import jobs
from ...storage.jobs.jobs import JobStatus
from .job_rows import NO_RUN, Phase, Row
from .row_templates import received_of, shared_text

if TYPE_CHECKING:
    from collections.abc import Callable

PATTERNS_MAX = 4
"""Patterns that a file is compared with."""

MADE_MAX = 50
"""Patterns made in one start: each costs as much as a hundred decoded files."""

_MISSES_MAX = 1_000
_BYTES_MAX = 4_096

_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_STAMP = rb"(?:0|[1-9][0-9]{0,18})"
_WORD = rb"[0-9A-Za-z_.:-]{0,200}"
# Values that stand for what differs: (value, its text in the file, its part of the pattern).
_ID = 998_877_665_544_332_211
_TIME = 998_877_665_544_332_212
_SECONDS = 998_877_665_544_332_213
_MICROSECONDS = 998_877_665_544_332_214
_PLACE = 998_877_665_544_332_215
_KEY = "998877665544332216"
_DIGEST = "998877665544332217"
_MARK = re.compile(rb"99887766554433221[0-9]")
_PARTS: dict[bytes, bytes] = {
    b"%d" % _TIME: _STAMP,
    b"%d" % _SECONDS: b"(?P<seconds>" + _NUMBER + b")",
    b"%d" % _MICROSECONDS: b"(?P<microseconds>" + _NUMBER + b")",
    b"%d" % _PLACE: _NUMBER,
    _KEY.encode(): b"(?P<key>" + _WORD + b")",
    _DIGEST.encode(): b"(?P<digest>" + _WORD + b")",
}


class _KnownFile(NamedTuple):
    match: Callable[[bytes], re.Match[bytes] | None]
    row: Row
    has_time: bool
    has_key: bool
    has_digest: bool


class AlikeFiles:
    """The patterns of files that were decoded lately, and the rows of their jobs."""

    def __init__(self) -> None:
        self._known: list[_KnownFile] = []
        self._made = self._misses = 0

    def row(self, job_id: int, body: bytes) -> Row | None:
        """The row of the pending job in this text; None if the text has to be decoded."""
        for known in self._known:
            found = known.match(body)
            if found is not None:
                break
        else:
            self._misses += 1
            if self._misses > _MISSES_MAX:
                self._known.clear()
                self._made = MADE_MAX
            return None
        if int(found["id"]) != job_id or not jobs.has_right_sum(body):
            return None
        self._misses = 0
        received = key = digest = None
        if known.has_time:
            received = received_of((int(found["seconds"]), int(found["microseconds"])))
        if known.has_key:
            key = shared_text(found["key"].decode())
        if known.has_digest:
            digest = shared_text(found["digest"].decode())
        return msgspec.structs.replace(
            known.row, id=job_id, received=received, key=key, digest=digest
        )

    def note(self, body: bytes, row: Row | None) -> None:
        """This is the row that was decoded from this text, when no pattern matched."""
        # Without shared parameters it is the first job of its kind, or one that others must not
        # be like (`job_table`).
        if row is None or self._made >= MADE_MAX:
            return
        is_plain = row.phase is Phase.PENDING and row.shared_inputs is not None and not row.reason
        if not is_plain or row.limits or row.status is not JobStatus.QUEUED:
            return
        if row.run is not NO_RUN:
            # Each job has its own.
            return
        if len(body) > _BYTES_MAX or _MARK.search(body):
            return
        job = jobs.decode_job(body)
        if job.livelock is not None or jobs.encode_job(job) != body or not _mark(job):
            return
        self._made += 1
        self._known.insert(0, _known(job, row))
        del self._known[PATTERNS_MAX:]


def _mark(job: jobs.Job) -> bool:
    """Put the marks in the places of what differs; False if the job is not as the queue made it."""
    for index, op in enumerate(job.ops):
        match op.input.get("reason"):
            case [[str(source), str(text), int()]] if text == f"job={job.id};index={index}":
                op.input["reason"] = [[source, f"job={_ID};index={index}", _TIME]]
            case _:
                return False
    job.id = _ID
    if job.received_timestamp is not None:
        job.received_timestamp = (_SECONDS, _MICROSECONDS)
    for name, mark in ((jobs.SUBMISSION_KEY, _KEY), (jobs.DIGEST_KEY, _DIGEST)):
        if isinstance(job.extra.get(name), str):
            job.extra[name] = mark
    match job.extra.get(jobs.BATCH_KEY):
        case [int(), int()]:
            job.extra[jobs.BATCH_KEY] = [_PLACE, _PLACE]
    return True


def _known(job: jobs.Job, row: Row) -> _KnownFile:
    """The pattern of a job with marks."""
    text = jobs.encode_job(job)[: -jobs.CHECKSUM_BYTES]
    parts, end, has_id = [], 0, False
    for mark in _MARK.finditer(text):
        parts.append(re.escape(text[end : mark.start()]))
        if mark[0] == b"%d" % _ID:
            parts.append(b"(?P=id)" if has_id else b"(?P<id>" + _NUMBER + b")")
            has_id = True
        else:
            parts.append(_PARTS[mark[0]])
        end = mark.end()
    parts.append(re.escape(text[end:]))
    pattern = re.compile(b"".join(parts) + rb".{%d}" % jobs.CHECKSUM_BYTES)
    return _KnownFile(
        pattern.fullmatch,
        msgspec.structs.replace(row),
        has_time=job.received_timestamp is not None,
        has_key=job.extra.get(jobs.SUBMISSION_KEY) == _KEY,
        has_digest=job.extra.get(jobs.DIGEST_KEY) == _DIGEST,
    )
