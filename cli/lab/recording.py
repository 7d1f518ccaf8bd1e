"""``ganger queue record``: the jobs of the queue as a trace."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from ...storage import errors, opcodes, wording
from ...storage.lab.recording import RecordedJob, RecordedOpcode, Recording
from ...storage.lab.traces import lines_of
from ...storage.opcodes import catalogue
from .. import output
from ..progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...transport.client.client import Client

_FIELDS = ("id", "received_ts", "oppriority", "ops", "opexec", "opend")
_PAGE_JOBS = 200
_BAR_JOBS_MIN = 2_000


def record(client: Client, stream: BinaryIO, *, since: float | None, until: float | None) -> None:
    """Write the trace of the jobs that came in this time, archived ones too, to the stream."""
    # Opcodes of users declare their locks themselves.
    catalogue.load_user_opcodes()
    with _without_collector():
        _record(client, stream, since=since, until=until)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Do not look for cycles: there are none, and what is kept grows to all jobs of a queue."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _record(client: Client, stream: BinaryIO, *, since: float | None, until: float | None) -> None:
    first = since if since is not None else float("-inf")
    last = until if until is not None else float("inf")
    ids = [
        job.id
        for job in client.jobs(archived=True)
        if job.received is not None and first <= job.received < last
    ]
    recording = Recording()
    with Bar("reading jobs", _BAR_JOBS_MIN) as bar:
        for done, job in enumerate(_jobs(client, ids), 1):
            recording.add(job)
            bar.show(done, len(ids))
    trace = recording.trace(client.limits().running_jobs_max)
    if not trace.jobs:
        raise errors.UsageError("there is no job in this time of which a run time is known")
    stream.writelines(lines_of(trace))
    stream.flush()
    if recording.left_out:
        jobs = wording.counted(recording.left_out, "job")
        text = f"ganger: {jobs} left out: nothing says how long they run"
        output.echo(text, err=True)


def _jobs(client: Client, ids: Sequence[int]) -> Iterator[RecordedJob]:
    for place in range(0, len(ids), _PAGE_JOBS):
        for found in _read(client, ids[place : place + _PAGE_JOBS]):
            # A job may be gone meanwhile.
            if found["ops"] is not None and found["received_ts"] is not None:
                yield _job(found)


def _read(client: Client, ids: Sequence[int]) -> Sequence[Mapping[str, Any]]:
    """These jobs. A damaged one is named and left out: a week's trace does not depend on it."""
    wanted = ["|", *(["=", "id", job_id] for job_id in ids)]
    try:
        return client.query("job", _FIELDS, wanted).items
    except errors.StorageError as error:
        if len(ids) == 1:
            output.echo(f"ganger: left out: {error.text}", err=True)
            return []
    half = len(ids) // 2
    return [*_read(client, ids[:half]), *_read(client, ids[half:])]


def _job(found: Mapping[str, Any]) -> RecordedJob:
    ops = [
        RecordedOpcode(stored, _seconds(began, ended))
        for stored, began, ended in zip(found["ops"], found["opexec"], found["opend"], strict=True)
    ]
    return RecordedJob(
        id=found["id"],
        received=_moment(found["received_ts"]),
        priority=min(found["oppriority"], default=0),
        depends=_depends(found["ops"]),
        ops=ops,
    )


def _depends(stored: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(target for target, _ in opcodes.dependencies(stored[0])))
    except (errors.DependencyError, IndexError):
        # Other programs may have stored it.
        return ()


def _moment(stamp: Sequence[int]) -> float:
    return stamp[0] + stamp[1] / 1_000_000


def _seconds(began: Sequence[int] | None, ended: Sequence[int] | None) -> float | None:
    if began is None or ended is None:
        return None
    return _moment(ended) - _moment(began)
