"""Data directories of every format that was ever written open, list and archive, and check clean.

`make_format_data` has written them. What a later version wrote is refused, and not touched.
"""

from __future__ import annotations

import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.queue import queue_stage
from tests.actors.queue.queue_stage import DELAY
from tests.actors.runtime.stage import Stage, Staged
from tests.compatibility.make_format_data import EXEC
from tests.faults.harness import Daemon

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.rules.filter_evaluator import FilterEvaluator
from ganger.storage.fsck import checking, repairing, survey
from ganger.storage.fsck.findings import KINDS, FindingRemedy
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log import checked_records, journal, records
from ganger.storage.queue_files import job_files
from ganger.transport import messages

DATA = Path(__file__).parent / "data"
FORMATS = sorted(DATA.glob("ganger-*"))
GANETI: dict[str, Any] = {
    "jobs": {
        str(job_id): {7: "error", 8: "error", 16: "error", 156: "canceled"}.get(job_id, "success")
        for job_id in (1, 2, 4, 5, 6, 7, 8, 16, 17, 18, 20, 24, 27, 29, 153, 155, 156)
    },
    "archived": [],
    "last_id": 156,
}

every_format = pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)


def expected(folder: Path) -> dict[str, Any]:
    """What a daemon must find in it."""
    wanted: dict[str, Any] = msgspec.json.decode((folder / "expected.json").read_bytes())
    return wanted


def opened(stage: Stage, folder: Path) -> Staged[JobQueue]:
    shutil.copytree(folder, stage.places.data, dirs_exist_ok=True)
    return stage.start(JobQueue)


def listed(queue: Staged[JobQueue], *, archived: bool = False) -> dict[str, str]:
    rows = queue_stage.listed(queue, archived=archived)
    return {str(row.id): str(row.status) for row in rows if row.archived is archived}


# Which formats there are.


def test_the_present_format_is_among_those_that_are_kept() -> None:
    formats = [(expected(folder)["queue"], expected(folder)["journal"]) for folder in FORMATS]
    assert (job_files.VERSION, records.FORMAT_VERSION) in formats
    assert len(set(formats)) == len(FORMATS)


@every_format
def test_a_directory_names_its_format(folder: Path) -> None:
    wanted = expected(folder)
    assert folder.name == f"ganger-{wanted['queue']}.{wanted['journal']}"
    assert (folder / "queue/version").read_bytes() == b"%d\n" % wanted["queue"]
    for path in (folder / "queue/journal").iterdir():
        first = next(journal.Journal(path.parent).replay())
        assert isinstance(first, records.SegmentBegun)
        assert (first.version, first.last_id) == (wanted["journal"], 8)


# What earlier versions wrote opens.


@every_format
def test_every_job_is_found_with_its_status(stage: Stage, folder: Path) -> None:
    queue = opened(stage, folder)
    wanted = expected(folder)
    assert listed(queue) == wanted["jobs"]
    assert sorted(map(int, listed(queue, archived=True))) == wanted["archived"]
    asker = queue.say(messages.ReadQueueState())
    report = asker.answer_as(messages.QueueReport)
    assert report.quarantined == []
    assert report.counts["last_id"] == wanted["last_id"]
    queue.close()


@every_format
def test_a_job_that_had_begun_ends_with_the_death_of_its_process(
    stage: Stage, folder: Path
) -> None:
    queue = opened(stage, folder)
    for job_id in expected(folder)["died"]:
        document = queue.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
        for op in jobs.decode_job(document.body).ops:
            assert f"detected death of job {job_id}" in op.result
    queue.close()


@every_format
def test_what_had_not_begun_goes_on(stage: Stage, folder: Path) -> None:
    queue = opened(stage, folder)
    queue.notify(messages.ReportAllJobs())
    arrived = stage.take_one(messages.JobsArrived)
    pending = {
        job_id
        for job_id, status in expected(folder)["jobs"].items()
        if not JobStatus(status).is_final
    }
    assert {str(one.job.id) for one in arrived.jobs} == pending
    # The same submission again, and another one under its key.
    given = messages.JobSpec(ops=[EXEC, DELAY], priority=-3, reason=[("gnt:user", "why", 7)])
    again = queue.ask(messages.SubmitJobs(jobs=[given], key="once"))
    assert again.answer == messages.JobsSubmitted(ids=[9], is_repeat=True)
    other = msgspec.structs.replace(given, ops=[DELAY, EXEC])
    refused = queue.ask(messages.SubmitJobs(jobs=[other], key="once")).answer
    assert isinstance(refused, messages.Failure)
    assert "job 9" in refused.text
    queue.close()


@every_format
def test_every_final_job_goes_into_the_archive(stage: Stage, folder: Path) -> None:
    queue = opened(stage, folder)
    wanted = expected(folder)
    final = [int(job_id) for job_id, status in wanted["jobs"].items() if JobStatus(status).is_final]
    outcome = queue.ask(messages.AutoArchiveJobs(age_seconds=-1.0))
    assert outcome.answer == messages.ArchiveOutcome(archived=sorted(final))
    queue.close()
    successor = stage.start(JobQueue)
    assert sorted(map(int, listed(successor, archived=True))) == sorted(
        [*final, *wanted["archived"]]
    )
    successor.close()


@every_format
def test_configuration_rules_and_locks_are_understood(stage: Stage, folder: Path) -> None:
    opened(stage, folder).close()
    store, evaluator = stage.start(ConfigStore), stage.start(FilterEvaluator)
    store.notify(messages.ReportConfiguration())
    wanted = expected(folder)
    limits = stage.take_one(messages.LimitsChanged)
    assert limits.running_jobs_max == wanted["running_jobs_max"]
    rules = stage.take_one(messages.RulesChanged)
    assert len(rules.rules) == len(wanted["rules"])
    evaluator.notify(rules)
    manager = stage.start(LockManager)
    asker = manager.ask(messages.ListLocks())
    [work] = [timer for timer in stage.timers if timer.component == LockManager.name]
    work.run_out()
    rows = asker.answer_as(messages.LocksListed).rows
    assert rows == [], "the owners are dead"
    for told_wrong in ("left out", "started afresh"):
        assert told_wrong not in stage.log_stream.getvalue()


@every_format
def test_records_and_jobs_are_written_as_they_were(folder: Path) -> None:
    # A change of the form of one without a new version fails here.
    wanted = expected(folder)
    if (wanted["queue"], wanted["journal"]) != (job_files.VERSION, records.FORMAT_VERSION):
        pytest.skip("an earlier format, which is no longer written")
    for path in (folder / "queue/journal").iterdir():
        found = journal.Journal(path.parent).replay()
        written = b"".join(map(records.RECORDS.packed, found))
        assert path.read_bytes().rstrip(b"\0") == written.rstrip(b"\0")
    for path in (folder / "queue").rglob("job-*"):
        assert jobs.encode_job(jobs.decode_job(path.read_bytes())) == path.read_bytes()


# It can be checked offline.


@every_format
def test_a_check_reports_what_the_next_start_will_do_and_a_repair_does_it(
    stage: Stage, folder: Path
) -> None:
    shutil.copytree(folder, stage.places.data, dirs_exist_ok=True)
    stage.daemon_lock.remove()
    wanted = expected(folder)
    findings = checking.check(survey.survey(stage.places))
    assert sorted({str(finding.kind) for finding in findings}) == wanted["findings"]
    result = repairing.repair(stage.places, lambda _: None, lambda _done, _total: None)
    assert {KINDS[finding.kind].remedy for finding in result.findings} == {FindingRemedy.NONE}
    queue = stage.start(JobQueue)
    assert listed(queue) == wanted["jobs"]
    assert sorted(map(int, listed(queue, archived=True))) == wanted["archived"]
    queue.close()


# With a whole daemon.


@pytest.mark.parametrize("folder", [DATA, *FORMATS], ids=lambda folder: folder.name)
def test_a_daemon_opens_lists_and_archives_it(tmp_path: Path, folder: Path) -> None:
    daemon = Daemon(tmp_path)
    shutil.copytree(folder / "queue", daemon.places.queue)
    for name in ("config.data", "locks.data"):
        shutil.copy(folder / name, daemon.data)
    wanted = GANETI if folder == DATA else expected(folder)
    with daemon, daemon.client() as client:
        # What was pending runs now, if a rule of the time does not keep it.
        known = {job.id for job in client.jobs(archived=True)}
        assert known == {*map(int, wanted["jobs"]), *wanted["archived"]}
        final = [job_id for job_id, status in wanted["jobs"].items() if JobStatus(status).is_final]
        for job_id in final:
            assert str(client.job(int(job_id)).status) == wanted["jobs"][job_id]
            client.archive(int(job_id))
        new = client.submit({"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "on_master": False})
        assert new == wanted["last_id"] + 1
    assert job_files.QueueDirectory(daemon.places).archived_ids() == sorted(
        [*map(int, final), *wanted["archived"]]
    )


# What a later version wrote.


def later_queue(queue: Path) -> str:
    (queue / "version").write_bytes(b"2\n")
    return f"{queue}/version: queue version '2', expected 1"


def later_journal(queue: Path) -> str:
    path = queue / "journal/00000009.journal"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(records.RECORDS.packed(records.SegmentBegun(records.FORMAT_VERSION + 1, 900)))
    return f"{path}: journal format 4, supported is 3"


def unknown_record(queue: Path) -> str:
    [path] = (queue / "journal").iterdir()
    payload = msgspec.msgpack.encode(["renamed", 3, 900])
    packed = checked_records.HEAD.pack(len(payload), zlib.crc32(payload)) + payload
    path.write_bytes(path.read_bytes().rstrip(b"\0") + packed)
    return f"{path}: a record of an unknown kind; supported is format 3"


@pytest.mark.parametrize("make_later", [later_queue, later_journal, unknown_record])
@pytest.mark.parametrize("command", ["up --no-rapi", "fsck", "fsck --repair"])
def test_what_a_later_version_wrote_is_refused_by_name_and_left_as_it_is(
    tmp_path: Path, make_later: Callable[[Path], str], command: str
) -> None:
    daemon = Daemon(tmp_path)
    shutil.copytree(FORMATS[-1] / "queue", daemon.places.queue)
    text = make_later(daemon.places.queue)
    before = content(daemon.places.queue)
    try:
        done: subprocess.CompletedProcess[str] = daemon.run(*command.split(), check=False)
    finally:
        daemon.__exit__()
    is_start = command.startswith("up")
    hint = f"; check the directory: ganger --data {daemon.data} fsck" if is_start else ""
    code = 1 if is_start else 70
    assert (done.returncode, done.stderr) == (code, f"ganger: {text}{hint}\n")
    assert content(daemon.places.queue) == before


def content(queue: Path) -> dict[str, bytes]:
    """Every file of the queue but its lock file, which the first process makes."""
    paths = [path for path in queue.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): path.read_bytes() for path in paths}
