"""A mutated directory under the real daemon: started, asked, given a job, and stopped.

Jobs that had not ended run now, so of those only what was asked for is compared; ended ones are
compared whole. Modes of files are not obeyed if root runs this: then they are no damage here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from tests.faults.harness import Daemon
from tests.torture.damage import contents
from tests.torture.damage.judging import allowed_ids, named_ids

from ganger.storage import errors
from ganger.storage.jobs import job_views
from ganger.storage.jobs.job_views import JobInfo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.damage.damages import Damage
    from tests.torture.damage.healthy import KnownJob

    from ganger import Client

DEADLINE_SECONDS = 30.0


def look_at_daemon(
    place: Path, healthy: dict[int, KnownJob], damages: list[Damage], *, has_journal: bool
) -> str:
    """What is not as promised about a daemon on this directory; nothing: all is well."""
    # Ends whatever was started, also if this fails.
    daemon = Daemon(place)
    try:
        if any(damage.refuses for damage in damages) and (problem := _refused(daemon, damages)):
            return problem
        for damage in reversed(damages):
            damage.mend()
        before = contents.read(daemon.places.queue)
        ids = allowed_ids(before, damages, has_journal=has_journal)
        daemon.up()
        problem = _look(daemon, healthy, damages, has_journal=has_journal)
        with daemon.client() as client:
            new = client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0.001})
            if new not in ids:
                return problem or f"the next job got the id {new}, expected one of {ids}"
            [ended] = client.wait(new, timeout=DEADLINE_SECONDS)
        if ended.status != "success":
            return problem or f"the new job ended as {ended.status}: {ended.ops}"
        daemon.run("down")
        return problem
    finally:
        daemon.__exit__()


def _refused(daemon: Daemon, damages: list[Damage]) -> str:
    """`ganger up` fails, names the file, and nothing in the queue has changed."""
    before = contents.read(daemon.places.queue)
    ended = daemon.run("up", "--no-rapi", "--test-hooks", check=False)
    if ended.returncode == 0:
        return "the daemon has started in spite of what must be refused"
    refused = [damage.refuses for damage in damages if damage.refuses]
    if not any(path in ended.stderr for path in refused):
        return f"the daemon was not refused for {refused}, but: {ended.stderr}"
    if any(damage.component != "job_queue" for damage in damages if damage.refuses):
        # The other components may have begun their work.
        return ""
    after = contents.read(daemon.places.queue)
    made = {"version", "journal", "archive", "lock", "spool"} - before.keys()
    # The configuration store may have put its own file aside before.
    made |= {"quarantine", *(path for path in after if path.startswith("quarantine/config."))}
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    changed -= made
    return f"the daemon was refused, but has changed {sorted(changed)}" if changed else ""


def _look(
    daemon: Daemon, healthy: dict[int, KnownJob], damages: list[Damage], *, has_journal: bool
) -> str:
    hit = frozenset[int]().union(*(damage.jobs for damage in damages))
    gone = frozenset[int]().union(*(damage.gone for damage in damages))
    is_whole = has_journal and not any(damage.is_of_journal for damage in damages)
    with daemon.client() as client:
        listed = {job.id for job in client.jobs(archived=True)}
        shown = json.loads(daemon.run("status", "-o", "json").stdout)
        named = named_ids(shown["quarantined"])
        for job_id, known in healthy.items():
            found = _read(client, job_id)
            if job_id in hit and not is_whole:
                earlier = [_asked(job_views.job_info(body)) for body in known.earlier]
                if found is None and job_id not in listed and job_id in named | gone:
                    continue
                if has_journal and found is not None and _asked(found) in earlier:
                    continue
            if job_id in named or job_id not in listed or found is None:
                return f"job {job_id} is {found}; named: {shown['quarantined']}"
            if job_id in hit and (not is_whole or _is_cut(found)):
                # A whole file with another comment is believed where no journal knows better, and
                # one that has grown too large for a frame is that job all the same.
                found = _uncommented(found)
            if not _is_same(found, known):
                return f"job {job_id} is {found}, not {known}"
    if shown["is_read_only"] or not all(one["is_ready"] for one in shown["components"]):
        return f"the daemon is not well: {shown}"
    lines = map(json.loads, daemon.places.log.read_text().splitlines())
    logged = {line.get("file") for line in lines}
    silent = [line for line in shown["quarantined"] if line not in logged and "/" not in line]
    return f"not in the log: {silent}" if silent else ""


def _read(client: Client, job_id: int) -> JobInfo | None:
    try:
        found = client.job(job_id)
    except (errors.StorageError, errors.UnknownJobError):
        return None
    # An archived file is handed out as it is, also that of another job.
    return found if found.id == job_id else None


def _is_cut(job: JobInfo) -> bool:
    return any("characters in all, the rest is cut]" in str(op.input) for op in job.ops or ())


def _uncommented(job: JobInfo) -> JobInfo:
    ops = [msgspec.structs.replace(op, input={**op.input, "comment": None}) for op in job.ops or ()]
    return msgspec.structs.replace(job, ops=ops)


def _is_same(found: JobInfo, known: KnownJob) -> bool:
    before = job_views.job_info(known.body, archived=known.row.archived)
    return found == before if before.is_final else _asked(found) == _asked(before)


def _asked(job: JobInfo) -> tuple[Any, ...]:
    """What was asked for, which stays the same while a job runs.

    The queue adds to the reason, and a delay that runs names its nodes.
    """
    asked = [{**op.input, "reason": None, "on_node_uuids": None} for op in job.ops or ()]
    return job.id, asked, job.summary, job.received
