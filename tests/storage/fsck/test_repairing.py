"""A damaged data directory: its findings, a check that changes nothing, and its repair."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.core_alone import NEEDS_HIDDEN
from tests.refusals import full_disk, refusing_flushes

from ganger.storage import config_files, errors
from ganger.storage.alive import lock_files
from ganger.storage.disk import ownership, paths
from ganger.storage.fsck import checking, repairing, survey
from ganger.storage.fsck.findings import KINDS, FindingKind, FindingRemedy
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log import records
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import (
    ConfigChanged,
    JobArchived,
    JobsPurged,
    JobsStored,
    Record,
    SegmentBegun,
    StateStored,
)
from ganger.storage.queue_files import job_files, output_blocks

QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus
OUTPUT = output_blocks.Packer().pack(
    0, [output_blocks.Segment(output_blocks.STDOUT, b"of a job")], 0
)


def body(job_id: int, serial: int, *statuses: JobStatus, livelock: str | None = None) -> bytes:
    ops = [jobs.OpcodeEntry(input={"OP_ID": "OP_TEST_DELAY"}, status=status) for status in statuses]
    extra = {jobs.STATE_SERIAL_KEY: serial}
    return jobs.encode_job(jobs.Job(id=job_id, ops=ops, livelock=livelock, extra=extra))


def _configured(serial: int) -> ConfigChanged:
    cluster = {"uuid": "uuid", "cluster_name": f"number {serial}"}
    return ConfigChanged(serial, 6.0, "", "", [("cluster", "uuid", cluster)])


class Damaged:
    """A data directory with jobs 1 to 3 in it, 4 in the archive, and a journal of all four."""

    def __init__(self, root: Path) -> None:
        self.places = paths.Places(root / "data", root / "run")
        self.queue = self.places.queue
        for folder in (self.queue, self.places.archive / "0", self.places.lock_files):
            folder.mkdir(parents=True)
        (self.queue / "lock").touch()
        (self.queue / "version").write_bytes(b"1\n")
        (self.queue / "serial").write_bytes(b"4\n")
        for job_id, status in ((1, SUCCESS), (2, ERROR), (3, QUEUED)):
            self.file(job_id).write_bytes(body(job_id, 2, status))
        (self.places.archive / "0/job-4").write_bytes(body(4, 3, SUCCESS))
        self.journal(
            JobsStored([(job_id, 1, body(job_id, 1, QUEUED)) for job_id in (1, 2, 3, 4)]),
            StateStored(1, 2, body(1, 2, SUCCESS)),
            StateStored(4, 3, body(4, 3, SUCCESS)),
            JobArchived(4),
        )
        self.held: list[lock_files.LockFile] = []

    def file(self, job_id: int) -> Path:
        return self.queue / f"job-{job_id}"

    def journal(self, *records: Record) -> Path:
        """A new segment with these records; its path."""
        kept = Journal(self.places.journal)
        for record in records:
            kept.append(record)
        kept.write(4)
        kept.close()
        return kept.segments()[-1]

    def configure(self) -> None:
        """A first configuration."""
        first = config_files.first_configuration("uuid", 5.0)
        config_files.write(self.places.config, first)

    def change_configuration(self, *serials: int) -> Path:
        """A new segment with these changes; its path."""
        return self.journal(*map(_configured, serials))

    def live(self, job_id: int) -> str:
        """A lock file of a process that lives: this one."""
        held = lock_files.create(self.places.lock_files, f"job_{job_id:06d}_1")
        self.held.append(held)
        return held.path

    def kinds(self) -> list[FindingKind]:
        return [finding.kind for finding in checking.check(survey.survey(self.places))]

    def repair(self) -> tuple[list[repairing.RepairStep], list[FindingKind]]:
        """What was done, and what is found then."""
        outcomes: list[repairing.RepairStep] = []
        result = repairing.repair(self.places, outcomes.append, lambda _done, _total: None)
        return outcomes, [finding.kind for finding in result.findings]

    def content(self) -> dict[str, tuple[int, bytes]]:
        """Every file with its mode and its bytes."""
        roots = (self.places.data, self.places.run)
        paths = [path for root in roots for path in sorted(root.rglob("*"))]
        return {
            str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in paths
        }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Damaged]:
    made = Damaged(tmp_path)
    yield made
    for held in made.held:
        held.remove()


# Damage of each kind that can be repaired.


def lose_version(disk: Damaged) -> None:
    (disk.queue / "version").unlink()


def tear_version(disk: Damaged) -> None:
    (disk.queue / "version").write_bytes(b"")


def close_job(disk: Damaged) -> None:
    disk.file(1).chmod(0o040)


def lose_serial(disk: Damaged) -> None:
    (disk.queue / "serial").unlink()


def write_an_endless_serial(disk: Damaged) -> None:
    (disk.queue / "serial").write_bytes(b"9" * 5_000)


def scribble_serial(disk: Damaged) -> None:
    (disk.queue / "serial").write_bytes(b"four\n")


def forget_a_state(disk: Damaged) -> None:
    disk.file(1).write_bytes(body(1, 1, RUNNING))


def lose_a_journaled_job(disk: Damaged) -> None:
    disk.file(1).unlink()


def tear_a_journaled_job(disk: Damaged) -> None:
    disk.file(1).write_bytes(body(1, 2, SUCCESS)[:20])


def move_back(disk: Damaged) -> None:
    shutil.move(disk.places.archive / "0/job-4", disk.file(4))


def tear_what_was_moved_back(disk: Damaged) -> None:
    move_back(disk)
    disk.file(4).write_bytes(b"{")


def lose_from_the_archive(disk: Damaged) -> None:
    (disk.places.archive / "0/job-4").unlink()


def purge_and_leave_everything(disk: Damaged) -> None:
    (disk.queue / "serial").write_bytes(b"5\n")
    for folder in (disk.queue, disk.places.archive / "0"):
        (folder / "job-5").write_bytes(body(5, 2, SUCCESS))
        (folder / "spool").mkdir()
        (folder / "spool/job-5-output").write_bytes(OUTPUT)
    new = JobsStored([(5, 1, body(5, 1, QUEUED))])
    disk.journal(new, StateStored(5, 2, body(5, 2, SUCCESS)), JobArchived(5), JobsPurged([5]))


def damage_the_journal(disk: Damaged) -> None:
    path = disk.journal(StateStored(2, 2, body(2, 2, ERROR)), StateStored(3, 1, body(3, 1, QUEUED)))
    data = bytearray(path.read_bytes())
    data[data.index(b"OP_TEST_DELAY")] ^= 1
    path.write_bytes(data)


def damage_the_journal_of_the_configuration(disk: Damaged) -> None:
    disk.configure()
    path = disk.change_configuration(2, 3, 4)
    data = bytearray(path.read_bytes())
    data[data.index(b"number 3")] ^= 1
    path.write_bytes(data)


def tear_the_configuration(disk: Damaged) -> None:
    disk.configure()
    disk.places.config.write_bytes(disk.places.config.read_bytes()[:40])


def lose_the_configuration(disk: Damaged) -> None:
    disk.configure()
    disk.change_configuration(2)
    disk.places.config.unlink()


def rename_a_job(disk: Damaged) -> None:
    disk.file(2).rename(disk.queue / "job-0002")


def copy_under_another_name(disk: Damaged) -> None:
    shutil.copy(disk.file(2), disk.queue / "job-0002")


def archive_elsewhere(disk: Damaged) -> None:
    (disk.places.archive / "7").mkdir()
    (disk.places.archive / "7/job-5").write_bytes(body(5, 1, SUCCESS))
    (disk.queue / "serial").write_bytes(b"5\n")


def add_torn_job(disk: Damaged) -> None:
    disk.file(9).write_bytes(b'{"id": 9')


def add_folder_as_job(disk: Damaged) -> None:
    disk.file(9).mkdir()


def add_pipe_as_job(disk: Damaged) -> None:
    os.mkfifo(disk.file(9))


def add_link_to_nowhere(disk: Damaged) -> None:
    disk.file(9).symlink_to("nowhere")


def add_foreign_job(disk: Damaged) -> None:
    shutil.copy(disk.file(2), disk.file(9))


def add_job_of_an_impossible_id(disk: Damaged) -> None:
    disk.file(10**20).write_bytes(body(10**20, 1, SUCCESS))


def bring_an_older_state_back(disk: Damaged) -> None:
    disk.file(4).write_bytes(body(4, 2, RUNNING))


def copy_into_the_archive(disk: Damaged) -> None:
    shutil.copy(disk.file(2), disk.places.archive / "0/job-2")


def tear_an_archived_job(disk: Damaged) -> None:
    (disk.places.archive / "0/job-3").write_bytes(b"\xff\xfe")


def tear_a_journaled_archived_job(disk: Damaged) -> None:
    (disk.places.archive / "0/job-4").write_bytes(b"")


def leave_input_without_a_job(disk: Damaged) -> None:
    disk.places.spool.mkdir()
    (disk.places.spool / "job-5-input-0").write_bytes(b"never answered")
    (disk.places.spool / "job-3-input-0").write_bytes(b"of job 3")


def leave_output_behind_in_the_queue(disk: Damaged) -> None:
    disk.places.spool.mkdir()
    (disk.places.spool / "job-4-output").write_bytes(OUTPUT)


def archive_output_too_early(disk: Damaged) -> None:
    (disk.places.archive / "0/spool").mkdir()
    (disk.places.archive / "0/spool/job-2-output").write_bytes(OUTPUT)
    (disk.places.archive / "0/spool/job-4-input-1").write_bytes(b"of job 4")


def leave_a_lock_file(disk: Damaged) -> None:
    (disk.places.lock_files / "job_000001_1").touch()
    (disk.places.lock_files / "ganger-daemon_1").touch()


def tear_locks(disk: Damaged) -> None:
    disk.places.locks.write_bytes(b"[[")


def leave_temporary_files(disk: Damaged) -> None:
    (disk.queue / ".tmp-job-1.7.0").write_bytes(b"half")
    (disk.places.data / ".tmp-locks.data.7.0").write_bytes(b"half")


DAMAGES: dict[Callable[[Damaged], None], set[FindingKind]] = {
    lose_version: {FindingKind.VERSION_MISSING},
    tear_version: {FindingKind.VERSION_TORN},
    close_job: {FindingKind.MODE},
    lose_serial: {FindingKind.SERIAL},
    write_an_endless_serial: {FindingKind.SERIAL},
    scribble_serial: {FindingKind.SERIAL},
    forget_a_state: {FindingKind.JOURNAL_AHEAD},
    lose_a_journaled_job: {FindingKind.JOURNAL_AHEAD},
    tear_a_journaled_job: {FindingKind.JOURNAL_AHEAD},
    move_back: {FindingKind.NOT_ARCHIVED},
    tear_what_was_moved_back: {FindingKind.NOT_ARCHIVED},
    lose_from_the_archive: {FindingKind.NOT_ARCHIVED},
    purge_and_leave_everything: {FindingKind.PURGED_LEFT},
    damage_the_journal: {FindingKind.JOURNAL_DAMAGED},
    damage_the_journal_of_the_configuration: {FindingKind.JOURNAL_DAMAGED},
    tear_the_configuration: {FindingKind.CONFIG_TORN},
    lose_the_configuration: {FindingKind.CONFIG_TORN},
    rename_a_job: {FindingKind.MISPLACED},
    copy_under_another_name: {FindingKind.MISPLACED},
    archive_elsewhere: {FindingKind.MISPLACED},
    add_torn_job: {FindingKind.SERIAL, FindingKind.JOB_UNREADABLE},
    add_folder_as_job: {FindingKind.SERIAL, FindingKind.JOB_UNREADABLE},
    add_pipe_as_job: {FindingKind.SERIAL, FindingKind.JOB_UNREADABLE},
    add_link_to_nowhere: {FindingKind.SERIAL, FindingKind.JOB_UNREADABLE},
    add_foreign_job: {FindingKind.SERIAL, FindingKind.JOB_UNREADABLE},
    add_job_of_an_impossible_id: {FindingKind.JOB_UNREADABLE},
    copy_into_the_archive: {FindingKind.DOUBLE},
    bring_an_older_state_back: {FindingKind.DOUBLE_OLDER},
    tear_an_archived_job: {FindingKind.ARCHIVED_UNREADABLE},
    tear_a_journaled_archived_job: {FindingKind.ARCHIVED_UNREADABLE},
    leave_input_without_a_job: {FindingKind.SPOOL_ORPHAN},
    leave_output_behind_in_the_queue: {FindingKind.SPOOL_MISPLACED},
    archive_output_too_early: {FindingKind.SPOOL_MISPLACED},
    leave_a_lock_file: {FindingKind.LOCK_DEAD},
    tear_locks: {FindingKind.LOCKS_UNREADABLE},
    leave_temporary_files: {FindingKind.TEMPORARY},
}

damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def test_a_directory_in_order_is_clean(disk: Damaged) -> None:
    before = disk.content()
    assert disk.kinds() == []
    assert disk.repair() == ([], [])
    assert disk.content() == before


def test_everything_that_can_be_repaired_is_damaged_here_and_has_its_action() -> None:
    repairable = {kind for kind, info in KINDS.items() if info.remedy is FindingRemedy.REPAIR}
    assert set(repairing.ACTIONS) == repairable
    assert set().union(*DAMAGES.values()) == repairable


@damages
def test_damage_is_found_and_looking_changes_nothing(
    disk: Damaged, damage: Callable[[Damaged], None]
) -> None:
    damage(disk)
    before = disk.content()
    assert set(disk.kinds()) == DAMAGES[damage]
    assert disk.content() == before


@damages
def test_damage_is_repaired_and_a_second_repair_does_nothing(
    disk: Damaged, damage: Callable[[Damaged], None]
) -> None:
    damage(disk)
    outcomes, left = disk.repair()
    assert all(outcome.error is None and outcome.action for outcome in outcomes)
    assert {outcome.finding.kind for outcome in outcomes} >= DAMAGES[damage]
    assert {KINDS[kind].remedy for kind in left} <= {FindingRemedy.NONE}
    repaired = disk.content()
    assert disk.repair() == ([], left)
    assert disk.content() == repaired


def test_the_repair_of_a_mode_lets_in_the_owner_alone(disk: Damaged) -> None:
    close_job(disk)
    disk.repair()
    assert stat.S_IMODE(disk.file(1).stat().st_mode) == 0o640


@damages
def test_after_a_repair_the_jobs_are_all_there(
    disk: Damaged, damage: Callable[[Damaged], None]
) -> None:
    damage(disk)
    disk.repair()
    directory = job_files.QueueDirectory(disk.places)
    assert directory.has_version()
    assert directory.read_serial() >= 4
    found = {job_id: directory.read(job_id) for job_id in directory.live_ids()}
    expected = {1: body(1, 2, SUCCESS), 2: body(2, 2, ERROR), 3: body(3, 2, QUEUED)}
    if damage is copy_into_the_archive:
        del expected[2]
    assert found == expected
    assert directory.read_archived(4) == body(4, 3, SUCCESS)


@damages
def test_a_repair_deletes_only_files_without_meaning(
    disk: Damaged, damage: Callable[[Damaged], None]
) -> None:
    damage(disk)
    before = disk.content()
    disk.repair()
    kept = [data for path, (_, data) in disk.content().items() if ".spare-" not in path]
    gone = {Path(path).name for path, (_, data) in before.items() if data not in kept}
    meaningless = {".tmp-job-1.7.0", ".tmp-locks.data.7.0"}
    if (disk.queue / "serial").read_bytes() > b"4\n":
        meaningless.add("serial")
    if damage is purge_and_leave_everything:
        meaningless |= {"job-5", "job-5-output"}
    if damage is forget_a_state:
        # An older state, whole, of which the journal has the newer one.
        meaningless.add("job-1")
    assert gone <= meaningless


# Particular repairs.


def test_a_quarantined_file_keeps_its_name_and_gives_way_to_none(disk: Damaged) -> None:
    for text in (b"one", b"two", b"three"):
        disk.file(9).write_bytes(text)
        disk.repair()
    kept = {path.name: path.read_bytes() for path in disk.places.quarantine.iterdir()}
    assert kept == {"job-9": b"one", "job-9.2": b"two", "job-9.3": b"three"}
    assert job_files.QueueDirectory(disk.places).highest_quarantined_id() == 9


def test_an_id_in_quarantine_is_not_given_again_though_all_else_is_lost(
    disk: Damaged,
) -> None:
    add_torn_job(disk)
    disk.repair()
    (disk.queue / "serial").unlink()
    assert disk.kinds()[0] is FindingKind.SERIAL
    disk.repair()
    assert (disk.queue / "serial").read_bytes() == b"9\n"


def test_a_misplaced_file_does_not_take_the_place_of_another_one(disk: Damaged) -> None:
    other = body(2, 7, SUCCESS)
    (disk.queue / "job-0002").write_bytes(other)
    disk.repair()
    assert disk.file(2).read_bytes() == body(2, 2, ERROR)
    assert (disk.places.quarantine / "job-0002").read_bytes() == other


def test_a_damaged_segment_is_copied_once_and_left_in_place(disk: Damaged) -> None:
    damage_the_journal(disk)
    segment = max(disk.places.journal.iterdir())
    before = segment.read_bytes()
    [outcome], left = disk.repair()
    assert outcome.finding.path == str(segment)
    assert segment.read_bytes() == before
    assert (disk.places.quarantine / f"journal-{segment.name}").read_bytes() == before
    assert left == [FindingKind.JOURNAL_TORN, FindingKind.QUARANTINED]


def test_what_counts_of_a_damaged_journal_of_the_configuration_is_kept(disk: Damaged) -> None:
    damage_the_journal_of_the_configuration(disk)
    segment = max(disk.places.journal.iterdir())
    before = segment.read_bytes()
    _, left = disk.repair()
    assert {FindingKind.JOURNAL_TORN, FindingKind.QUARANTINED} <= set(left)
    assert FindingKind.JOURNAL_DAMAGED not in left
    assert (disk.places.quarantine / f"journal-{segment.name}").read_bytes() == before
    found = config_files.read(disk.places.config)
    assert found is not None
    assert found["cluster"]["cluster_name"] == "number 2"


@pytest.mark.parametrize("damage", [tear_the_configuration, lose_the_configuration])
def test_a_repaired_configuration_has_every_change(
    disk: Damaged, damage: Callable[[Damaged], None]
) -> None:
    damage(disk)
    disk.change_configuration(2, 3)
    before = config_files.read(disk.places.config)
    _, left = disk.repair()
    assert not {FindingKind.CONFIG_TORN, FindingKind.CONFIG_UNREADABLE} & set(left)
    disk.places.config_copy.unlink()
    assert config_files.read(disk.places.config) == before
    assert before is not None
    assert before["cluster"]["cluster_name"] == "number 3"


def test_the_file_of_a_living_process_is_not_touched(disk: Damaged) -> None:
    lock_file = disk.live(1)
    older = body(1, 1, RUNNING, livelock=lock_file)
    disk.file(1).write_bytes(older)
    (disk.queue / ".tmp-job-1.7.0").write_bytes(b"being written")
    before = disk.content()
    assert disk.repair() == ([], [])
    assert disk.content() == before


def test_a_torn_file_of_a_living_process_is_not_touched(disk: Damaged) -> None:
    disk.live(9)
    disk.file(9).write_bytes(b"torn")
    outcomes, left = disk.repair()
    assert [outcome.finding.kind for outcome in outcomes] == [FindingKind.SERIAL]
    assert left == [FindingKind.JOB_UNREADABLE_ALIVE]
    assert disk.file(9).read_bytes() == b"torn"


def test_locks_that_are_unreadable_stay_while_a_job_lives(disk: Damaged) -> None:
    disk.file(1).write_bytes(body(1, 3, RUNNING, livelock=disk.live(1)))
    tear_locks(disk)
    assert disk.repair() == ([], [FindingKind.LOCKS_UNREADABLE_ALIVE])
    assert disk.places.locks.read_bytes() == b"[["


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("config.data", b"{", FindingKind.CONFIG_UNREADABLE),
        ("config.data", b'{"filters": {"x": {"uuid": 1}}}', FindingKind.RULE_UNREADABLE),
        ("keys/server.key", b"secret\n", FindingKind.KEY_UNREADABLE),
        ("keys/clients/me.pub", b"", FindingKind.KEY_UNREADABLE),
        ("queue/archive/0/job-3", body(3, 1, RUNNING), FindingKind.DOUBLE_DIFFERS),
        ("queue/archive/0/job-4", body(4, 9, RUNNING), FindingKind.NOT_ARCHIVED),
        ("queue/archive/0/job-2", body(2, 1, ERROR), FindingKind.DOUBLE_DIFFERS),
    ],
)
def test_findings_for_the_operator_are_left_alone(
    disk: Damaged, name: str, data: bytes, kind: FindingKind
) -> None:
    path = disk.places.data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    assert kind in disk.kinds()
    _, left = disk.repair()
    if KINDS[kind].remedy is FindingRemedy.OPERATOR:
        assert kind in left
        assert path.read_bytes() == data


@NEEDS_HIDDEN
def test_old_ssconf_files_are_named_and_missing_ones_are_not(disk: Damaged) -> None:
    disk.places.config.write_bytes(b'{"cluster": {"cluster_name": "new"}, "serial_no": 1}')
    disk.places.ssconf.mkdir()
    assert disk.kinds() == []
    (disk.places.ssconf / "ssconf_cluster_name").write_text("old\n")
    (disk.places.ssconf / ".tmp-ssconf_node_list.1.1").write_text("")
    (disk.places.ssconf / "notes").write_text("")
    assert disk.kinds() == [FindingKind.SSCONF_STALE, FindingKind.TEMPORARY, FindingKind.FOREIGN]
    done, left = disk.repair()
    assert [step.finding.kind for step in done] == [FindingKind.TEMPORARY]
    assert FindingKind.TEMPORARY not in left


def test_an_archived_job_that_has_not_ended_is_reported(disk: Damaged) -> None:
    (disk.places.archive / "0/job-5").write_bytes(body(5, 1, RUNNING))
    _, left = disk.repair()
    assert left == [FindingKind.ARCHIVED_UNFINISHED]


def test_an_archived_job_is_not_brought_back_by_a_state_from_before_its_end(disk: Damaged) -> None:
    for segment in disk.places.journal.iterdir():
        segment.unlink()
    disk.journal(JobsStored([(4, 1, body(4, 1, QUEUED))]))
    (disk.places.archive / "0/job-4").write_bytes(b"torn")
    before = disk.content()
    assert disk.repair() == ([], [FindingKind.ARCHIVED_LOST])
    assert disk.content() == before


def test_a_segment_that_cannot_be_read_stops_repairs_of_job_files(disk: Damaged) -> None:
    (disk.places.journal / "00000009.journal").mkdir()
    add_torn_job(disk)
    outcomes, left = disk.repair()
    assert outcomes == []
    assert left == [FindingKind.JOURNAL_UNREADABLE]
    assert disk.file(9).read_bytes() == b'{"id": 9'


def test_foreign_files_are_reported_kept_ones_ignored_and_both_left(disk: Damaged) -> None:
    for name in ("notes", "job-1.bak", "archive/readme", "archive/0/job-x", "journal/old"):
        (disk.queue / name).write_bytes(b"mine")
    for name in (".spare-1-1-1", "drain"):
        (disk.queue / name).write_bytes(b"")
    before = disk.content()
    assert disk.repair() == ([], [FindingKind.FOREIGN] * 5)
    assert disk.content() == before


def test_a_repair_that_the_disk_refuses_is_reported_and_tried_once(
    disk: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_torn_job(disk)

    def refuse(_: job_files.QueueDirectory, file: str) -> str:
        raise errors.StorageError(f"{file}: No space left on device")

    monkeypatch.setattr(job_files.QueueDirectory, "quarantine", refuse)
    outcomes, left = disk.repair()
    assert [outcome.error for outcome in outcomes] == [
        None,
        f"{disk.file(9)}: No space left on device",
    ]
    assert left == [FindingKind.JOB_UNREADABLE]


def test_repairs_that_cannot_be_flushed_are_written_again_by_the_next_daemon(disk: Damaged) -> None:
    forget_a_state(disk)
    with refusing_flushes(), pytest.raises(errors.StorageError, match=": no"):
        disk.repair()
    assert Journal(disk.places.journal).has_older


# What is refused.


def test_a_directory_without_a_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.DataDirectoryError) as caught:
        survey.survey(paths.Places(tmp_path, tmp_path / "run"))
    assert caught.value.text == f"{tmp_path}/queue: there is no queue directory"


def test_a_queue_of_another_version_is_refused(disk: Damaged) -> None:
    (disk.queue / "version").write_bytes(b"2\n")
    with pytest.raises(errors.DataDirectoryError) as caught:
        disk.repair()
    assert caught.value.text == f"{disk.queue}/version: queue version '2', expected 1"


def test_a_journal_of_another_version_is_refused_before_anything_changes(
    disk: Damaged,
) -> None:
    later = records.RECORDS.packed(SegmentBegun(records.FORMAT_VERSION + 1, 4))
    path = disk.places.journal / "00000009.journal"
    path.write_bytes(later)
    add_torn_job(disk)
    before = disk.content()
    with pytest.raises(errors.DataDirectoryError) as caught:
        disk.repair()
    assert caught.value.text == f"{path}: journal format 4, supported is 3"
    assert disk.content() == before


def test_a_living_daemon_is_seen_also_when_its_hold_on_the_directory_is_lost(
    disk: Damaged,
) -> None:
    held = lock_files.create(disk.places.lock_files, "ganger-daemon_1")
    disk.held.append(held)
    with pytest.raises(errors.DirectoryLockedError) as caught:
        disk.kinds()
    text = f"{held.path}: a daemon lives (pid {os.getpid()}); stop it first"
    assert caught.value.text == text


def test_only_the_owner_may_repair(disk: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    ownership.require_own(disk.places, "fsck --repair")
    monkeypatch.setattr(os, "geteuid", lambda: disk.queue.stat().st_uid + 1)
    with pytest.raises(errors.DataDirectoryError, match="run it as its owner"):
        ownership.require_own(disk.places, "fsck --repair")


def test_a_survey_reports_its_progress(disk: Damaged) -> None:
    progress: list[tuple[int, int]] = []
    survey.survey(disk.places, lambda done, total: progress.append((done, total)))
    assert progress == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_damaged_output_is_found_and_left_as_it_is(disk: Damaged) -> None:
    kinds = disk.kinds()
    disk.places.spool.mkdir()
    (disk.places.spool / "job-3-output").write_bytes(OUTPUT + b"torn")
    (disk.places.archive / "0/spool").mkdir()
    (disk.places.archive / "0/spool/job-4-output").write_bytes(OUTPUT)
    assert sorted(disk.kinds()) == sorted([*kinds, FindingKind.OUTPUT_DAMAGED])
    outcomes, left = disk.repair()
    assert FindingKind.OUTPUT_DAMAGED not in [outcome.finding.kind for outcome in outcomes]
    assert FindingKind.OUTPUT_DAMAGED in left
    assert (disk.places.spool / "job-3-output").read_bytes() == OUTPUT + b"torn"


def test_a_full_disk_is_named_once_with_what_helps_and_space_is_given_back_nevertheless(
    disk: Damaged,
) -> None:
    lose_version(disk)
    lose_serial(disk)
    leave_temporary_files(disk)
    with full_disk():
        outcomes, left = disk.repair()
    [refused] = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert "No space left on device; what needs space is not tried any more: free " in refused
    assert FindingKind.TEMPORARY in [outcome.finding.kind for outcome in outcomes]
    assert FindingKind.TEMPORARY not in left
    assert {FindingKind.VERSION_MISSING, FindingKind.SERIAL} <= set(left)
    outcomes, left = disk.repair()
    assert left == []
