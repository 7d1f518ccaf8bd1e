"""What Ganeti 3.0 left on disk: it opens, lists and archives unchanged, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.queue import queue_stage
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.scheduling.scheduler import Scheduler
from ganger.storage import config_files
from ganger.storage.filters import rules
from ganger.storage.jobs import job_views, jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files.job_files import QueueDirectory
from ganger.transport import messages

DATA = Path(__file__).parent / "data"
STATES = sorted((DATA / "job-states").iterdir())
JOBS = {int(path.name.removeprefix("job-")): path for path in (DATA / "queue").glob("job-*")}

FAILED = {7, 8, 16}
CANCELED = {156}


@pytest.fixture
def queue(stage: Stage) -> Iterator[Staged[JobQueue]]:
    shutil.copytree(DATA / "queue", stage.places.queue, dirs_exist_ok=True)
    opened = stage.start(JobQueue)
    yield opened
    opened.close()


def status_of(path: Path) -> str:
    """The status in the name of a file of `job-states`."""
    return path.suffix[1:].partition("-")[0].replace("paused", "queued")


def states(stage: Stage, *names: str) -> None:
    """Put these files of `job-states` into the queue."""
    for name in names:
        shutil.copy(DATA / "job-states" / name, stage.places.queue / name.partition(".")[0])


def listed(queue: Staged[JobQueue], *, archived: bool = False) -> dict[int, messages.JobSummary]:
    return {row.id: row for row in queue_stage.listed(queue, archived=archived)}


def read(queue: Staged[JobQueue], job_id: int) -> jobs.Job:
    document = queue.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
    return jobs.decode_job(document.body)


# A queue directory.


def test_the_queue_opens_with_every_job_and_its_status(queue: Staged[JobQueue]) -> None:
    found = {job_id: str(row.status) for job_id, row in listed(queue).items()}
    assert found == {
        job_id: "error" if job_id in FAILED else "canceled" if job_id in CANCELED else "success"
        for job_id in JOBS
    }


def test_nothing_is_quarantined_or_lost(queue: Staged[JobQueue]) -> None:
    asker = queue.say(messages.ReadQueueState())
    report = asker.answer_as(messages.QueueReport)
    assert report.quarantined == []
    assert report.counts["last_id"] == 156
    assert sum(report.counts[str(status)] for status in JobStatus) == len(JOBS)


def test_opening_changes_no_file(stage: Stage, queue: Staged[JobQueue]) -> None:
    queue.close()
    for path in (DATA / "queue").iterdir():
        assert (stage.places.queue / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("job_id", sorted(JOBS))
def test_a_job_is_read_byte_for_byte(queue: Staged[JobQueue], job_id: int) -> None:
    document = queue.say(messages.ReadJob(id=job_id)).answer_as(messages.JobDocument)
    assert document.body == JOBS[job_id].read_bytes()


def test_listings_show_summary_times_and_priority(queue: Staged[JobQueue]) -> None:
    row = listed(queue)[20]
    assert row.summary == "INSTANCE_CREATE(inst1.example.com)"
    assert (row.received, row.started, row.ended) == (
        1_795_225_833.997789,
        1_795_225_834.172859,
        1_795_225_834.881802,
    )
    assert row.process_id == 17_826


def test_log_results_and_reasons_are_read(queue: Staged[JobQueue]) -> None:
    job = job_views.job_info(jobs.encode_job(read(queue, 20)))
    assert job.ops is not None
    [op] = job.ops
    assert [line.serial for line in op.log] == list(range(1, 8))
    assert op.log[1].text == " - INFO: Chose IP 10.77.1.1 from network net1"
    assert op.result == ["node1.example.com"]


def test_the_archive_holds_the_bytes_of_ganeti(stage: Stage, queue: Staged[JobQueue]) -> None:
    outcome = queue.ask(messages.AutoArchiveJobs(age_seconds=-1.0))
    assert outcome.answer == messages.ArchiveOutcome(archived=sorted(JOBS))
    assert listed(queue) == {}
    for job_id, path in JOBS.items():
        archived = stage.places.archive / "0" / f"job-{job_id}"
        assert archived.read_bytes() == path.read_bytes()
    assert set(listed(queue, archived=True)) == set(JOBS)
    queue.close()
    # And it is found there again.
    successor = stage.start(JobQueue)
    assert set(listed(successor, archived=True)) == set(JOBS)
    successor.close()


def test_new_jobs_follow_the_last_id_of_ganeti(stage: Stage, queue: Staged[JobQueue]) -> None:
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0}
    spec = messages.JobSpec(ops=[delay], depends=[(153, ["success"]), (16, ["error"])])
    submitted = queue.ask(messages.SubmitJobs(jobs=[spec]))
    assert submitted.answer == messages.JobsSubmitted(ids=[157])
    queue.be_quiet()
    assert (stage.places.queue / "serial").read_bytes() == b"157\n"


def test_an_archive_of_ganeti_is_found(stage: Stage) -> None:
    folder = stage.places.archive / "0"
    folder.mkdir(parents=True)
    shutil.copy(JOBS[153], folder / "job-153")
    queue = stage.start(JobQueue)
    assert {job_id: row.archived for job_id, row in listed(queue, archived=True).items()} == {
        153: True
    }
    queue.notify(messages.ReportStatuses(ids=[153]))
    reported = stage.take_one(messages.StatusesReported)
    assert reported.jobs == [(153, JobStatus.SUCCESS)]
    queue.close()


# Job files in every state.


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.name)
def test_a_job_file_decodes_with_the_right_status(path: Path) -> None:
    assert str(jobs.decode_job(path.read_bytes()).status) == status_of(path)


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.name)
def test_nothing_of_a_job_file_is_lost_in_a_rewrite(path: Path) -> None:
    given: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    given["of_a_later_version"] = {"kept": [1, None, "ä"]}
    for op in given["ops"]:
        op["of_a_later_version"] = True
    job = jobs.decode_job(msgspec.json.encode(given))
    # As LuxiD writes it, some keys may be missing; as we write it, they are null.
    written = msgspec.json.decode(jobs.encode_job(job))
    assert {name: value for name, value in written.items() if name in given} == given
    assert {name for name in written if name not in given} <= {
        "livelock",
        "process_id",
        jobs.CHECKSUM_KEY,
    }


def test_unknown_keys_survive_what_the_queue_does_to_a_job(stage: Stage) -> None:
    given = msgspec.json.decode((DATA / "job-states" / "job-156.paused-two-ops").read_bytes())
    given["of_a_later_version"] = {"kept": [1, None]}
    given["ops"][1]["of_a_later_version"] = "too"
    (stage.places.queue / "job-156").write_bytes(msgspec.json.encode(given))
    queue = stage.start(JobQueue)
    queue.ask(messages.ChangeJobPriority(id=156, priority=5))
    queue.ask(messages.CancelJob(id=156))
    written = msgspec.json.decode((stage.places.queue / "job-156").read_bytes())
    assert written["of_a_later_version"] == {"kept": [1, None]}
    assert written["ops"][1]["of_a_later_version"] == "too"
    assert [op["status"] for op in written["ops"]] == ["canceled", "canceled"]
    assert [op["input"] for op in written["ops"]] == [op["input"] for op in given["ops"]]
    queue.close()


# A daemon that takes over from Ganeti in the middle.


def test_a_job_that_ran_under_ganeti_ends_in_error(stage: Stage) -> None:
    # Its lock file went with Ganeti's run directory: its process is dead.
    states(stage, "job-153.running-holding-lock", "job-154.waiting-for-lock")
    queue = stage.start(JobQueue)
    for job_id in (153, 154):
        job = read(queue, job_id)
        assert job.status is JobStatus.ERROR
        [op] = job.ops
        assert f"detected death of job {job_id}" in op.result
        assert op.input["reason"][-1][0] == "gnt:daemon:luxid:deathdetection"
        assert op.end_timestamp == job.end_timestamp is not None
        on_disk = (stage.places.queue / f"job-{job_id}").read_bytes()
        assert jobs.decode_job(on_disk).status is JobStatus.ERROR
    queue.close()


def test_pending_jobs_of_ganeti_go_on(stage: Stage) -> None:
    states(stage, "job-153.success", "job-155.queued-on-dependency", "job-156.paused-two-ops")
    queue = stage.start(JobQueue)
    assert {job_id: str(row.status) for job_id, row in listed(queue).items()} == {
        153: "success",
        155: "waiting",
        156: "queued",
    }
    queue.notify(messages.ReportAllJobs())
    arrived = stage.take_one(messages.JobsArrived)
    assert [(one.job.id, one.job.priority, one.job.depends) for one in arrived.jobs] == [
        (155, 0, ((154, ("success",)),)),
        (156, -10, ()),
    ]
    queue.close()


def test_a_dependency_that_failed_with_ganeti_stops_its_dependants(stage: Stage) -> None:
    states(stage, "job-154.waiting-for-lock", "job-155.queued-on-dependency")
    queue, scheduler = stage.start(JobQueue), stage.start(Scheduler)
    queue.notify(messages.ReportAllJobs())
    arrived = stage.take_one(messages.JobsArrived)
    verdicts = [messages.JobVerdict(job=one.job) for one in arrived.jobs]
    scheduler.turn(messages.JobsJudged(jobs=verdicts, is_all=True))
    queue.notify(stage.take_one(messages.ReportStatuses, to="job_queue"))
    scheduler.turn(stage.take_one(messages.StatusesReported, to="scheduler"))
    queue.turn(stage.take_one(messages.JobsChosen))
    [op] = read(queue, 155).ops
    assert op.result == [
        "OpExecError",
        ["Dependency job 154 finished with status 'error', not one of 'success' as required"],
    ]
    queue.close()


# The configuration.


def test_the_configuration_opens_unchanged(stage: Stage) -> None:
    shutil.copy(DATA / "config.data", stage.places.config)
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    given = msgspec.json.decode((DATA / "config.data").read_bytes())
    limits = stage.take_one(messages.LimitsChanged)
    assert limits.running_jobs_max == given["cluster"]["max_running_jobs"]
    sent = [rules.to_raw(rule) for rule in stage.take_one(messages.RulesChanged).rules]
    assert sent == list(given["filters"].values())
    assert stage.places.config.read_bytes() == (DATA / "config.data").read_bytes()


def test_nothing_of_the_configuration_is_lost_in_a_rewrite(tmp_path: Path) -> None:
    found = config_files.read(DATA / "config.data")
    assert found is not None
    config_files.write(tmp_path / "config.data", found)
    assert config_files.read(tmp_path / "config.data") == found


def test_the_rules_of_the_configuration_are_all_understood() -> None:
    known = msgspec.json.decode((DATA / "config.data").read_bytes())["filters"]
    more = msgspec.json.decode((DATA / "filters-from-config.json").read_bytes())
    assert rules.parse_rules({**known, **more}).problems == ()


def test_the_layout_is_that_of_ganeti(stage: Stage) -> None:
    shutil.copytree(DATA / "queue", stage.places.queue, dirs_exist_ok=True)
    directory = QueueDirectory(stage.places)
    directory.prepare()
    assert directory.live_ids() == sorted(JOBS)
    assert directory.read_serial() == 156
