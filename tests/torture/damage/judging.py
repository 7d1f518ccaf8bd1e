"""Whether what a queue shows of its jobs is what it must show after a damage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from tests.torture.damage.damages import Damage
from tests.torture.damage.healthy import JOBS, KnownJob

from ganger.storage import errors
from ganger.storage.jobs import job_bounds, jobs
from ganger.transport import messages

if TYPE_CHECKING:
    from tests.torture.damage.contents import Tree

_NAMED = re.compile(r"(?:.*/)?job-([1-9][0-9]*)(?: in the archive)?: .*", re.DOTALL)
_COUNTED = re.compile(
    r"job-(?P<live>[1-9]\d{0,17})|archive/(?P<folder>\d+)/job-(?P<archived>[1-9]\d{0,17})"
    r"|quarantine/job-(?P<aside>\d{1,18})(\..*)?"
)
_BELIEVED_MAX = 10**12


class Seen(msgspec.Struct, kw_only=True):
    """What a queue shows: rows and bodies (or a refusal's error and text) of jobs, and findings."""

    rows: dict[int, messages.JobSummary]
    bodies: dict[int, bytes | tuple[str, str]]
    named: list[str]
    logged: list[str]

    @property
    def named_ids(self) -> set[int]:
        """The jobs that are named as unreadable, by their exact numbers."""
        return named_ids(self.named)


def named_ids(lines: list[str]) -> set[int]:
    """The jobs that findings name."""
    return {int(match[1]) for line in lines if (match := _NAMED.fullmatch(line))}


def judge(
    healthy: dict[int, KnownJob], damages: list[Damage], seen: Seen, *, has_journal: bool
) -> str:
    """What is not as promised; nothing: all is well."""
    hit = frozenset[int]().union(*(damage.jobs for damage in damages))
    gone = frozenset[int]().union(*(damage.gone for damage in damages))
    is_whole = has_journal and not any(damage.is_of_journal for damage in damages)
    for job_id, known in healthy.items():
        if job_id not in hit:
            problem = _untouched(job_id, known, seen)
        elif job_id not in seen.rows and not is_whole and job_id in gone:
            problem = ""
        else:
            earlier = known.earlier if has_journal and not is_whole else frozenset()
            if _state(seen.bodies[job_id]) in map(_state, earlier):
                # The file and the record that would make up for it are both gone: an older
                # record cannot be distinguished from the last one (after a power loss it is that).
                continue
            problem = _healed_or_named(job_id, known, seen, must_be_healed=is_whole)
        if problem:
            return problem
    if strangers := seen.rows.keys() - healthy.keys():
        return f"jobs without a submission: {sorted(strangers)}"
    return _names(damages, seen)


def _untouched(job_id: int, known: KnownJob, seen: Seen) -> str:
    if seen.rows.get(job_id) != known.row:
        return f"job {job_id} was not hit, and is {seen.rows.get(job_id)}, not {known.row}"
    if seen.bodies[job_id] != known.body:
        return f"job {job_id} was not hit, and reads {seen.bodies[job_id]!r}, not {known.body!r}"
    if job_id in seen.named_ids:
        return f"job {job_id} was not hit, and is named: {seen.named}"
    return ""


def _healed_or_named(job_id: int, known: KnownJob, seen: Seen, *, must_be_healed: bool) -> str:
    row, body = seen.rows.get(job_id), seen.bodies[job_id]
    is_named = job_id in seen.named_ids
    # A listing shows of an archived job what the index has; who reads the job learns the rest.
    if (row is None or row.archived) and is_named and not must_be_healed:
        if isinstance(body, bytes):
            return f"job {job_id} is named, and can be read"
        return "" if body[0] in _REFUSALS else f"job {job_id} is named, and refused with {body}"
    if row is None or isinstance(body, tuple):
        how = "made up for by the journal" if must_be_healed else "named or healed"
        return f"job {job_id} was hit and not {how}: {row}, {body!r}; named: {seen.named}"
    if is_named:
        return f"job {job_id} is there, and named: {seen.named}"
    # A job may come back from the archive: if the journal has lost that it is there.
    row = row if must_be_healed else msgspec.structs.replace(row, archived=known.row.archived)
    if row != known.row:
        return f"job {job_id} was hit, and is {row}, not {known.row}"
    if meaning(body) != meaning(known.body):
        return f"job {job_id} was hit, and reads {body!r}, not {known.body!r}"
    return ""


_REFUSALS = {errors.StorageError.__name__, errors.UnknownJobError.__name__}


def meaning(body: bytes) -> tuple[Any, ...] | None:
    """All that matters of a job: a damaged checksum alone changes nothing. None: unreadable.

    A copy of one that has grown too large for a frame is that job all the same.
    """
    try:
        job = jobs.decode_job(body)
    except errors.StorageError:
        return None
    if job_bounds.CUT_KEY in job.extra:
        for op in job.ops:
            assert "characters in all, the rest is cut]" in op.input["comment"]
            op.input["comment"] = None
    times = (job.received_timestamp, job.start_timestamp, job.end_timestamp)
    key = job.extra.get(jobs.SUBMISSION_KEY)
    return job.id, job.ops, job.op_extras, times, job.livelock, job.process_id, job.serial, key


def _state(body: bytes | tuple[str, str]) -> tuple[Any, ...] | None:
    """Which state of a job this is. One that waits for another job is shown as waiting."""
    if isinstance(body, tuple) or (found := meaning(body)) is None:
        return None
    job = jobs.decode_job(body)
    return found[0], job.serial, [op.input for op in job.ops]


def _names(damages: list[Damage], seen: Seen) -> str:
    for damage in damages:
        if damage.named and not any(line.startswith(damage.named) for line in seen.named):
            return f"{damage.named} is not named: {seen.named}"
    for line in seen.named:
        if line not in seen.logged:
            return f"{line} is not in the log: {seen.logged}"
    return ""


def allowed_ids(before: Tree, damages: list[Damage], *, has_journal: bool) -> range:
    """Which ids the next job may get: the one that follows the last, as far as that is known."""
    said = [damage.serial for damage in damages if damage.serial is not None]
    lowest = max([said[-1] if said else JOBS, *_counted(before)])
    is_whole = has_journal and not any(damage.is_of_journal for damage in damages)
    highest = max(lowest, JOBS)
    return range(highest + 1 if is_whole else lowest + 1, highest + 2)


def _counted(before: Tree) -> list[int]:
    """The numbers in names of jobs, without those that no daemon can have given."""
    found = []
    for path in before:
        if match := _COUNTED.fullmatch(path):
            number = int(match["live"] or match["archived"] or match["aside"])
            is_in_place = match["folder"] is None or int(match["folder"]) == number // 10_000
            if number <= _BELIEVED_MAX and is_in_place:
                found.append(number)
    return found
