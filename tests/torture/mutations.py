"""D8: damaged, foreign and missing files in a queue directory; the queue starts all the same.

A healthy directory is made once through the real queue. Each case damages a copy of it in one to
three places and starts the real queue on it: what was not hit is there unchanged, what was hit is
named or made up for by the journal, nothing is deleted, and the next job gets an id that no name
in the directory has.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.actors.stage import Stage, Staged, Timer
from tests.torture.tally import Tally

from ganger.actors.job_queue import JobQueue
from ganger.storage.settings import Places
from ganger.transport import messages
from ganger.transport.messages import JobSpec, SubmitJobs

JOBS = 12
ARCHIVED = (1, 2, 3)
DELAY: dict[str, Any] = {"OP_ID": "OP_TEST_DELAY", "duration": 1.5}
_ID = re.compile(r"job-([0-9]{1,18})(?:\..*)?")

Mutation = Callable[[Places, random.Random], str]
"""Damages the directory; says what it did, beginning with the name of the file that it hit."""


def run_mutated_directories(count: int, seed: int, folder: Path) -> Tally:
    """Start a queue on ``count`` damaged directories."""
    tally = Tally()
    with mock.patch("threading.Timer", Timer):
        Timer.made = []
        healthy = _healthy(folder / "healthy")
        for case in range(count):
            chance = random.Random(f"{seed}-{case}")
            place = folder / f"case-{case}"
            shutil.copytree(folder / "healthy", place, symlinks=True)
            told = [
                mutation(Places(place / "data", place / "run"), chance)
                for mutation in chance.sample(MUTATIONS, chance.randint(1, 3))
            ]
            try:
                problem = _look(place, healthy, told)
            except Exception as error:  # noqa: BLE001 - whatever it is, the case has failed
                problem = f"the queue did not start: {error!r:.300}"
            if problem:
                tally.failed(f"seed {seed} case {case}: {'; '.join(told)}: {problem}")
            else:
                tally.passed()
            shutil.rmtree(place)
    return tally


def _healthy(root: Path) -> dict[int, str]:
    """A directory with pending, final and archived jobs; the status of each."""
    queue = _Opened(root)
    for number in range(JOBS):
        depends = [(number, ["success"])] if number % 3 == 2 and number else []
        spec = JobSpec(ops=[dict(DELAY)], depends=depends)
        queue.actor.ask(SubmitJobs(jobs=[spec], key=f"key-{number}"))
    for job_id in (*ARCHIVED, 5, 8):
        queue.actor.ask(messages.CancelJob(id=job_id))
    for job_id in ARCHIVED:
        queue.actor.ask(messages.ArchiveJob(id=job_id))
    statuses = queue.statuses()
    queue.close()
    return statuses


class _Opened:
    """The real queue on a directory."""

    def __init__(self, root: Path) -> None:
        self.stage = Stage(root)
        self.actor: Staged[JobQueue] = self.stage.start(JobQueue)

    def statuses(self) -> dict[int, str]:
        asked = self.actor.ask(messages.ListJobs(archived=True, limit=1_000))
        return {row.id: str(row.status) for row in asked.answer_as(messages.JobRows).rows}

    def quarantined(self) -> list[str]:
        self.actor.ask(messages.ReportCounts(token=1))
        return self.stage.take_one(messages.QueueReport, to="supervisor").quarantined

    def close(self) -> None:
        self.actor.close()
        self.stage.daemon_lock.remove()


def _look(place: Path, healthy: dict[int, str], told: list[str]) -> str:
    """What is not as promised about the queue on this directory; nothing: all is well."""
    hit = {match[1] for text in told if (match := re.match(r"job-(\d+)", text))}
    before = _contents(place)
    queue = _Opened(place)
    try:
        named = queue.quarantined()
        statuses = queue.statuses()
        named += [name for name in queue.quarantined() if name not in named]
        for job_id, status in healthy.items():
            if str(job_id) in hit or any(f"job-{job_id}" in name for name in named):
                continue
            if statuses.get(job_id) != status:
                return f"job {job_id} is {statuses.get(job_id)}, not {status}; named: {named}"
        found = [_ID.fullmatch(Path(name).name) for name in before]
        highest = max((int(match[1]) for match in found if match), default=0)
        asked = queue.actor.ask(SubmitJobs(jobs=[JobSpec(ops=[dict(DELAY)])]))
        new = asked.answer_as(messages.JobsSubmitted).ids[0]
        if new <= max(highest, *healthy):
            return f"the next job got the id {new}, and there are names up to {highest}"
        return _nothing_lost(place, before, named)
    finally:
        queue.close()


def _contents(place: Path) -> dict[str, bytes]:
    files = (path for path in (place / "data" / "queue").rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def _nothing_lost(place: Path, before: dict[str, bytes], named: list[str]) -> str:
    """Job files are still there: under their names, in the archive, or put aside."""
    after = _contents(place)
    kept = set(after.values())
    for name, data in before.items():
        base = Path(name).name
        if not base.startswith("job-") or name in after or data in kept:
            continue
        if not any(Path(other).name == base for other in after):
            return f"{name} is gone; named: {named}"
    return ""


# ---------------------------------------------------------------- what is done to files


def _job_file(places: Places, chance: random.Random) -> Path:
    found = sorted(path for path in places.queue.glob("job-*") if path.is_file())
    found += sorted(path for path in places.archive.glob("*/job-*") if path.is_file())
    return chance.choice(found)


def _rewritten(how: str, change: Callable[[bytes, random.Random], bytes]) -> Mutation:
    def mutation(places: Places, chance: random.Random) -> str:
        path = _job_file(places, chance)
        path.write_bytes(change(path.read_bytes(), chance))
        return f"{path.name} {how}"

    return mutation


def _replaced(how: str, put: Callable[[Path], object]) -> Mutation:
    def mutation(places: Places, chance: random.Random) -> str:
        path = _job_file(places, chance)
        path.unlink()
        put(path)
        return f"{path.name} {how}"

    return mutation


def _flipped(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"x"
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _segment(places: Places, chance: random.Random) -> Path:
    return chance.choice(sorted(places.journal.iterdir()))


def _tail_of_journal(places: Places, chance: random.Random) -> str:
    path = _segment(places, chance)
    data = path.read_bytes().rstrip(b"\0")
    # Behind the last whole record, as a write that the power cut through.
    path.write_bytes(data + chance.randbytes(chance.randint(1, 200)))
    return "journal: a torn record at its end"


def _beside(name: str, data: bytes) -> Mutation:
    def mutation(places: Places, _: random.Random) -> str:
        (places.queue / name).write_bytes(data)
        return f"{name} beside the others"

    return mutation


def _serial(data: bytes | None) -> Mutation:
    def mutation(places: Places, _: random.Random) -> str:
        path = places.queue / "serial"
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        return f"serial {data!r:.40}"

    return mutation


def _stray_lock_file(places: Places, chance: random.Random) -> str:
    (places.lock_files / f"job_{chance.randrange(99):06d}_1").write_bytes(chance.randbytes(30))
    os.mkfifo(places.lock_files / "job_999999_1")
    return "garbage among the lock files"


MUTATIONS: list[Mutation] = [
    _rewritten("is empty", lambda _data, _chance: b""),
    _rewritten("is cut off", lambda data, chance: data[: chance.randrange(len(data) or 1)]),
    _rewritten("has a bit flipped", _flipped),
    _rewritten("is not UTF-8", lambda _data, chance: b"\xff\xfe" + chance.randbytes(50)),
    _rewritten("is another JSON", lambda _data, _chance: b'[1, {"ops": null}]'),
    _rewritten("has another id", lambda data, _: data.replace(b'"id":', b'"id":77', 1)),
    _rewritten(
        "has absurd values", lambda data, _: data.replace(b'"priority":0', b'"priority":[]')
    ),
    _rewritten("nests deeply", lambda _data, _chance: b"[" * 100_000),
    _replaced("is a directory", lambda path: path.mkdir()),
    _replaced("is a FIFO", os.mkfifo),
    _replaced("points to itself", lambda path: path.symlink_to(path.name)),
    _replaced("points nowhere", lambda path: path.symlink_to("gone")),
    _beside("job-", b"{}"),
    _beside("job-abc", b"{}"),
    _beside("job-7.bak", b"{}"),
    _beside("job-" + "9" * 25, b"{}"),
    _beside("job-0100", b"{}"),
    _beside("job-50", b"{torn"),
    _beside(".tmp-job-4.1.2", b"half"),
    _serial(None),
    _serial(b""),
    _serial(b"many"),
    _serial(b"9" * 5_000),
    _serial(b"-4"),
    _tail_of_journal,
    _stray_lock_file,
]
