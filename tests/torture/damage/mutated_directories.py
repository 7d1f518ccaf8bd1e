"""D8: damaged, foreign and missing files in a queue directory; the queue starts all the same.

Each case damages a copy of a healthy directory, with or without its journal, in one to three
places, and starts the real queue on it. Then every job that was not hit is what it was, byte for
byte; one that was hit is named, in the log and among the findings, or is what it was; with a
whole journal always the latter. No unreadable file is changed, and the next job gets
the id that follows. A file of another version, or one that is indispensable, is
refused by its name, and nothing changed. Every `DAEMON_EVERY` th case starts the real daemon.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from tests.actors.queue.queue_stage import listed
from tests.actors.runtime.stage import Stage, Staged
from tests.torture.damage import contents
from tests.torture.damage.damages import JOB_MUTATIONS, OTHER_MUTATIONS, Damage
from tests.torture.damage.healthy import DELAY, KnownJob, make_healthy
from tests.torture.damage.judging import Seen, allowed_ids, judge
from tests.torture.damage.ordinary_user import modes_obeyed
from tests.torture.damage.with_daemon import look_at_daemon
from tests.torture.tally import Tally

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.runtime.component import Component
from ganger.storage import settings
from ganger.storage.disk import paths
from ganger.storage.disk.paths import Places
from ganger.transport import frames, messages
from ganger.transport.messages import JobSpec, SubmitJobs

if TYPE_CHECKING:
    from pathlib import Path

DAEMON_EVERY = 50
_STORE = ConfigStore.name
ComponentT = TypeVar("ComponentT", bound=Component)
_OTHERS: dict[str, type[Component]] = {ConfigStore.name: ConfigStore, LockManager.name: LockManager}


def run_mutated_directories(count: int, seed: int, folder: Path) -> Tally:
    """Start a queue on ``count`` damaged directories."""
    tally = Tally()
    # What was replaced is written over at once, so that it shows whether it may be.
    with mock.patch.object(settings, "TEMPORARY_REST_SECONDS", 0.0):
        healthy = make_healthy(folder / "healthy")
        for case in range(count):
            _run_case(tally, seed, case, folder, healthy)
    return tally


def _run_case(
    tally: Tally, seed: int, case: int, folder: Path, healthy: dict[int, KnownJob]
) -> None:
    chance = random.Random(f"{seed}-{case}")
    has_journal = chance.random() < 0.5
    is_daemon = case % DAEMON_EVERY == DAEMON_EVERY - 1
    place = folder / f"case-{case}"
    damages: list[Damage] = []
    try:
        source = folder / ("healthy" if has_journal else "healthy-cut")
        shutil.copytree(source, place, symlinks=True)
        places = paths.places(place / "data") if is_daemon else _places(place)
        with contextlib.nullcontext() if is_daemon else modes_obeyed():
            do_damage(places, damages, chance)
        look = look_at_daemon if is_daemon else _look
        problem = look(place, healthy, damages, has_journal=has_journal)
    except Exception as error:  # noqa: BLE001 - whatever it is, the case has failed
        problem = f"{type(error).__name__}: {error!s:.2000}"
    if problem:
        description = "; ".join(damage.description for damage in damages)
        where = "with a journal" if has_journal else "without a journal"
        tally.failed(f"seed {seed} case {case}, {where}: {description}: {problem}")
    else:
        tally.passed()
    shutil.rmtree(place, ignore_errors=True)


def _places(place: Path) -> Places:
    """As `Stage` has them."""
    return Places(place / "data", place / "run")


def do_damage(places: Places, damages: list[Damage], chance: random.Random) -> None:
    """Damage the directory in one to three places."""
    wanted = chance.randint(1, 3)
    # Half of the first ones hit jobs: there are more of the others, and what was in the place of
    # one file is written into for the next.
    first = chance.choice([JOB_MUTATIONS, OTHER_MUTATIONS])
    every = [*JOB_MUTATIONS, *OTHER_MUTATIONS]
    for mutation in [*chance.choices(first, k=2), *chance.sample(every, len(every))]:
        if len(damages) < wanted and (damage := mutation(places, chance)) is not None:
            damages.append(damage)


def _look(
    place: Path,
    healthy: dict[int, KnownJob],
    damages: list[Damage],
    *,
    has_journal: bool,
) -> str:
    """What is not as promised about the queue on this directory; nothing: all is well."""
    places = _places(place)
    of_queue = [damage for damage in damages if damage.component == JobQueue.name]
    if problem := _look_at_refusals(place, of_queue, damages):
        return problem
    for damage in reversed(of_queue):
        damage.mend()
    of_others = [damage for damage in damages if damage.component in _OTHERS]
    for component in {damage.component for damage in of_others}:
        if problem := _look_at_other(place, component, of_others):
            return problem
    for damage in reversed(of_others):
        damage.mend()
    before = contents.read(places.queue)
    ids = allowed_ids(before, damages, has_journal=has_journal)
    seen, new = _start(place, healthy)
    if new not in ids:
        return f"the next job got the id {new}, expected one of {ids}"
    after = contents.read(places.queue)
    if problem := judge(healthy, damages, seen, has_journal=has_journal):
        return problem
    if problem := contents.lost(before, after, seen, damages):
        return problem
    return _look_again(place, healthy, seen, new)


def _start(place: Path, healthy: dict[int, KnownJob]) -> tuple[Seen, int]:
    """What a queue on this directory shows, and the id of a job that it takes."""
    with modes_obeyed():
        opened = Opened(place)
        try:
            seen = opened.look(healthy)
            asked = opened.actor.ask(SubmitJobs(jobs=[JobSpec(ops=[dict(DELAY)])]))
            [new] = asked.answer_as(messages.JobsSubmitted).ids
            # Written twice, so that replaced files are used again.
            opened.actor.ask(messages.CancelJob(id=new)).answer_as(messages.CancelOutcome)
            assert not opened.report().is_read_only
            return seen, new
        finally:
            opened.close()


def _look_again(place: Path, healthy: dict[int, KnownJob], first: Seen, new: int) -> str:
    """The next start finds the same, and the new job."""
    second, _ = _start(place, {**healthy, new: next(iter(healthy.values()))})
    if new not in second.rows:
        return f"the new job {new} is not there at the next start"
    del second.rows[new], second.bodies[new]
    # Where the last job and the serial were both lost, the new job has its id: it was looked for
    # at the first start too, and not found.
    bodies = {job_id: body for job_id, body in first.bodies.items() if job_id != new}
    if second.rows != first.rows or second.bodies != bodies:
        return f"the next start finds {sorted(second.rows)}, or others' bodies; not as the first"
    gone = [line for line in first.named if line.startswith("job-") and line not in second.named]
    return f"the next start does not name {gone}" if gone else ""


class Opened:
    """The real queue on a directory."""

    def __init__(self, root: Path) -> None:
        self.stage = Stage(root)
        self.actor, refusal = _boot(self.stage, JobQueue)
        if refusal is not None:
            self.close()
            raise AssertionError(f"the queue did not start: {refusal}")
        # It takes no submission before it has the filter rules: there are none.
        none = messages.RuleChainChanged(chain=1, serial=1, reads_opcodes=False)
        self.actor.ask(none)
        self.stage.sent.clear()

    def look(self, healthy: dict[int, KnownJob]) -> Seen:
        """Everything that can be seen of the jobs."""
        rows = {row.id: row for row in listed(self.actor, archived=True)}
        bodies: dict[int, bytes | tuple[str, str]] = {}
        for job_id in healthy:
            [answer] = self.actor.ask(messages.ReadJob(id=job_id)).answers
            if isinstance(answer, messages.Failure):
                bodies[job_id] = (answer.error, answer.text)
            else:
                assert isinstance(answer, messages.JobDocument), answer
                frames.encode(answer)
                bodies[job_id] = answer.body
        report = self.report()
        lines = map(json.loads, self.stage.log_stream.getvalue().splitlines())
        logged = [line.get("file", "") for line in lines if "quarantined" in line["event"]]
        return Seen(rows=rows, bodies=bodies, named=report.quarantined, logged=logged)

    def report(self) -> messages.QueueReport:
        """What `ganger status` shows."""
        return self.actor.ask(messages.ReadQueueState()).answer_as(messages.QueueReport)

    def close(self) -> None:
        """Stop it in order."""
        self.actor.close()
        self.stage.daemon_lock.remove()


def _boot(
    stage: Stage, component: type[ComponentT]
) -> tuple[Staged[ComponentT], messages.Failure | None]:
    """A component on the stage, and why it does not start, if so."""
    actor = stage.make(component, incarnation=1)
    answers = actor.say(messages.Boot()).answers
    if not answers:
        actor.end_turn()
        return actor, None
    [refusal] = answers
    assert isinstance(refusal, messages.Failure)
    return actor, refusal


def _look_at_refusals(place: Path, of_queue: list[Damage], damages: list[Damage]) -> str:
    """The queue does not start, nor the configuration store if the log cannot be read."""
    refusing = [damage for damage in of_queue if damage.refuses]
    if not refusing:
        return ""
    if problem := _look_at_refusal(place, JobQueue, refusing):
        return problem
    # The store reads its own file first.
    of_log = [damage for damage in damages if damage.is_of_log or damage.component == _STORE]
    is_log_closed = any(damage.is_of_log for damage in refusing)
    return _look_at_refusal(place, ConfigStore, of_log) if is_log_closed else ""


def _look_at_refusal(place: Path, component: type[Any], damages: list[Damage]) -> str:
    """A component that must not start says so with the file's name, and changes nothing."""
    refused = [damage.refuses for damage in damages if damage.refuses]
    places = _places(place)
    before = contents.read(places.data)
    stage = Stage(place)
    try:
        with modes_obeyed():
            actor, refusal = _boot(stage, component)
            actor.close()
    finally:
        stage.daemon_lock.remove()
    if refusal is None:
        return f"{component.name} has started in spite of {refused}"
    if not any(path and refusal.text.startswith(f"{path}: ") for path in refused):
        return f"{component.name} was not refused for {refused}, but: {refusal}"
    after = contents.read(places.data)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    # A version that is missing is written before the journal is read.
    changed -= {"queue/version"} if "queue/version" not in before else set()
    return f"{component.name} was refused, but has changed {sorted(changed)}" if changed else ""


def _look_at_other(place: Path, name: str, damages: list[Damage]) -> str:
    """The configuration store takes the copy of its file; the lock manager starts afresh."""
    component = _OTHERS[name]
    own = [damage for damage in damages if damage.component == name]
    if any(damage.refuses for damage in own):
        return _look_at_refusal(place, component, own)
    stage = Stage(place)
    try:
        with modes_obeyed():
            actor, refusal = _boot(stage, component)
            if refusal is not None:
                return f"{name} did not start: {refusal}"
            if component is LockManager:
                asker = actor.ask(messages.ListLocks())
                # A thread beside answers.
                stage.run_timers()
                assert asker.answer_as(messages.LocksListed).rows == []
            actor.close()
    finally:
        stage.daemon_lock.remove()
    path = stage.places.locks if component is LockManager else stage.places.config
    return "" if json.loads(path.read_bytes()) else f"{path.name} was not made anew"
