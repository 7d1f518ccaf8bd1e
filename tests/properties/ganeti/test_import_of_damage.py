"""Damaged state directories of Ganeti: each is refused with a reason, or gives a sound result.

And whatever a job's file says: a job that Ganeti may have begun never runs here.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.seeds import seed
from tests.storage.ganeti.importing import ganeti

from ganger.actors.store.reconciling import Fate, Life, fate
from ganger.storage import errors
from ganger.storage.disk import paths
from ganger.storage.fsck import checking, survey
from ganger.storage.fsck.findings import FindingKind, FindingRemedy
from ganger.storage.ganeti.importing import building, import_decision, source
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus

ROUNDS = 60
TOLERATED = {FindingKind.CONFIG_DAMAGED, FindingKind.RULE_UNREADABLE}
"""The user was told, and said that damage may be there."""


def quiet(_done: int, _total: int) -> None:
    pass


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def flipped(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


def glued(data: bytes, chance: random.Random) -> bytes:
    return cut(data, chance) + cut(data, chance)


def with_another_value(data: bytes, chance: random.Random) -> bytes:
    """A value somewhere in the document becomes something else; the rest stays JSON."""
    try:
        document = msgspec.json.decode(data)
    except ValueError:
        # An earlier damage.
        return data
    place = document
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = chance.choice(list(keys))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.2:
            values: list[object] = [
                None,
                "",
                "x",
                -1,
                5,
                2**70,
                1.5,
                True,
                [],
                {},
                [[1, 2]],
                "running",
                "queued",
            ]
            place[key] = chance.choice(values)
            break
        place = place[key]
    return msgspec.json.encode(document)


def mutate(path: Path, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        file = chance.choice(sorted(one for one in path.rglob("*") if one.is_file()))
        data = file.read_bytes()
        if data:
            how = chance.choice([cut, flipped, glued, *[with_another_value] * 3])
            file.write_bytes(how(data, chance))


def test_damaged_directories_are_refused_or_give_a_sound_one(tmp_path: Path) -> None:
    chance = random.Random(seed())
    names = sorted(path.name for path in (ganeti.DATA / "job-states").iterdir())
    outcomes = {True: 0, False: 0}
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        directory = ganeti.state_directory(folder, *chance.sample(names, 6))
        ganeti.archive(directory, 5000)
        ganeti.add_job(directory, 160)
        (directory / "rapi").mkdir()
        (directory / "rapi" / "users").write_text("jack abc123 write\n# none\njill x read\n")
        shutil.copy(ganeti.DATA / "locks.data", directory)
        mutate(directory, chance)
        places = paths.Places(folder / "new", folder / "run")
        before = ganeti.content(directory)
        try:
            found = source.survey(source.find(str(directory)), quiet)
            building.build(found, places, quiet, (1, 0))
        except errors.GangerError:
            assert not places.data.exists()
        findings = checking.check(survey.survey(places)) if places.data.exists() else []
        left = [one for one in findings if one.remedy is not FindingRemedy.NONE]
        assert [one for one in left if one.kind not in TOLERATED] == [], number
        assert ganeti.content(directory) == before
        outcomes[places.data.exists()] += 1
    # Both happen.
    assert min(outcomes.values()) > 0, outcomes


def histories() -> Iterator[tuple[JobStatus, ...]]:
    for length in (1, 2, 3):
        yield from itertools.product(JobStatus, repeat=length)


LIVELOCKS = (
    None,
    "/var/run/ganeti/livelocks/job_000007_1795226694",
    "/var/run/ganeti/livelocks/luxi-daemon_1795226694",
)


@pytest.mark.parametrize("livelock", LIVELOCKS)
def test_no_job_that_may_have_begun_starts_whatever_its_file_says(livelock: str | None) -> None:
    begun = set(JobStatus) - {JobStatus.QUEUED}
    for statuses in histories():
        for process_id, is_archived in itertools.product((None, 12), (False, True)):
            ops = [ganeti.opcode(status=status) for status in statuses]
            job = jobs.decode_job(ganeti.job(7, *ops, livelock=livelock, process_id=process_id))
            may_have_begun = (
                bool(begun & set(statuses)) or process_id is not None or livelock == LIVELOCKS[1]
            )
            found = import_decision.fate(job, is_archived=is_archived)
            import_decision.settle(job, found, (1, 0))
            after = [op.status for op in job.ops]
            # What the daemon makes of it at its start, which finds no process.
            starts = fate(after, Life.NONE) is Fate.ENQUEUE
            assert starts == (not may_have_begun and not is_archived), (statuses, found)
            assert job.livelock is None
            if not starts:
                assert fate(after, Life.NONE) is Fate.KEEP
            # What had succeeded before anything else still has.
            succeeded = list(
                itertools.takewhile(lambda status: status is JobStatus.SUCCESS, statuses)
            )
            assert after[: len(succeeded)] == succeeded
