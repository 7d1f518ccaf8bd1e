"""The queue of Ganeti: each file in it, and each process that still works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.storage.ganeti.importing import ganeti
from tests.storage.ganeti.importing.ganeti import add_job, archive, opcode

from ganger.storage import errors
from ganger.storage.ganeti.importing import queues
from ganger.storage.ganeti.importing.import_decision import Outcome
from ganger.storage.ganeti.importing.queues import FoundQueue, Living


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return ganeti.state_directory(tmp_path)


def read(directory: Path) -> FoundQueue:
    return queues.read_queue(str(directory / "queue"), lambda _done, _total: None)


def damaged(found: FoundQueue) -> dict[str, str]:
    return {os.path.basename(one.path): one.text for one in found.damage}


def test_a_recorded_queue(directory: Path) -> None:
    found = read(directory)
    assert [found.count(outcome) for outcome in Outcome] == [17, 0, 0, 0]
    assert (found.last_id, found.is_drained, found.is_lock_left) == (156, False, False)
    assert (found.damage, found.notes, found.living, found.ended) == ([], [], [], [])


def test_the_room_that_the_files_take_is_known(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    for job_id, text in ((1, ""), (2, "x" * 5_000)):
        content = ganeti.job(job_id, opcode(status="success", result=text))
        (tmp_path / "queue" / f"job-{job_id}").write_bytes(content)
    assert read(tmp_path).bytes_needed == 4_096 + 8_192


def test_an_empty_queue(tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "serial").write_text("0\n")
    found = read(tmp_path)
    assert (found.jobs, found.last_id, found.damage) == ([], 0, [])


def test_jobs_that_will_not_run_are_named_with_the_reason(directory: Path) -> None:
    add_job(directory, 157, opcode(status="running"), opcode())
    add_job(directory, 158, opcode(input={"odd": 1}))
    found = read(directory)
    assert [(one.id, one.status, one.outcome) for one in found.ended] == [
        (157, "running", Outcome.ENDED),
        (158, "queued", Outcome.ENDED),
    ]
    assert found.ended[0].summary == "TEST_DELAY(10000000 ns), TEST_DELAY(10000000 ns)"
    assert "unknown parameter 'odd'" in found.ended[1].why


def test_the_progress_ends_with_all(directory: Path) -> None:
    archive(directory, 20_001)
    steps: list[tuple[int, int]] = []
    queues.read_queue(str(directory / "queue"), lambda *step: steps.append(step))
    # 17 jobs, one in the archive, and three other names.
    assert steps == [(done, 21) for done in range(22)]


def test_archived_jobs_are_found_in_each_folder(directory: Path) -> None:
    for job_id in (157, 10_000, 19_999, 20_000):
        archive(directory, job_id)
    found = read(directory)
    assert found.count(Outcome.FINAL, is_archived=True) == 4
    assert found.last_id == 20_000
    (note,) = found.notes
    assert "/serial: says 156, but there is a job 20000; ids go on behind that" in note


# Damage.


def test_files_that_are_no_jobs_are_damage_and_their_ids_are_not_given_again(
    directory: Path,
) -> None:
    queue = directory / "queue"
    (queue / "job-160").write_bytes((queue / "job-8").read_bytes()[:900])
    (queue / "job-161").write_bytes((queue / "job-8").read_bytes())
    (queue / "job-162").symlink_to(queue / "job-8")
    (queue / "job-163").mkdir()
    os.mkfifo(queue / "job-164")
    (queue / "job-165").touch()
    (queue / "job-007").write_bytes(ganeti.job(7))
    (queue / f"job-{10**30}").write_bytes(ganeti.job(7))
    found = read(directory)
    texts = damaged(found)
    assert texts["job-160"].startswith("not a job: ")
    assert texts["job-161"] == "holds job 8, not 161"
    assert texts["job-162"] == texts["job-163"] == texts["job-164"] == "not a plain file"
    assert texts["job-165"].startswith("not a job: ")
    assert texts["job-007"] == texts[f"job-{10**30}"] == "no job has such a number"
    assert len(found.damage) == 8
    assert found.last_id == 165


def test_an_archive_that_is_no_directory_is_damage(directory: Path) -> None:
    (directory / "queue" / "archive").touch()
    assert damaged(read(directory)) == {"archive": "not a directory"}


def test_a_huge_file_is_not_read(directory: Path) -> None:
    with (directory / "queue" / "job-160").open("wb") as file:
        file.truncate(10**12)
    assert damaged(read(directory))["job-160"] == f"larger than {256 * 1024 * 1024} bytes"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is none"),
        (b"", "not a number"),
        (b"-3\n", "not a number"),
        (b"9" * 17, "is no number that a queue has come to"),
    ],
)
def test_without_a_serial_ids_go_on_behind_the_jobs(
    directory: Path, content: bytes | None, words: str
) -> None:
    serial = directory / "queue" / "serial"
    serial.unlink() if content is None else serial.write_bytes(content)
    found = read(directory)
    assert words in damaged(found)["serial"]
    assert found.last_id == 156


def test_another_version_is_refused(directory: Path) -> None:
    (directory / "queue" / "version").write_text("2\n")
    with pytest.raises(errors.DataDirectoryError, match="queue version '2', expected 1"):
        read(directory)


def test_a_queue_without_a_version_is_taken(directory: Path) -> None:
    (directory / "queue" / "version").unlink()
    assert read(directory).damage == []


def test_the_same_job_twice(directory: Path) -> None:
    archive(directory, 8, (directory / "queue" / "job-8").read_bytes())
    archive(directory, 7)
    found = read(directory)
    assert damaged(found) == {
        "job-7": f"another file of this job lies in {directory}/queue/archive/0"
    }
    assert "job 8 lies twice there, with the same content" in found.notes
    assert [job.id for job in found.jobs].count(8) == 1


def test_other_files_stay_and_are_counted(directory: Path) -> None:
    archive(directory, 1_000)
    (directory / "queue" / "archive" / "0" / "notes").touch()
    (directory / "queue" / "archive" / "old").touch()
    (directory / "queue" / "job-9.new").touch()
    found = read(directory)
    assert found.damage == []
    assert any(note.startswith("3 other files in the queue, such as /") for note in found.notes)


def test_pending_jobs_with_a_strange_priority_or_a_lost_dependency_have_notes(
    directory: Path,
) -> None:
    add_job(directory, 160, opcode(priority=-100))
    add_job(directory, 161, opcode(input={"depends": [[3, ["success"]], [160, []]]}))
    found = read(directory)
    assert found.count(Outcome.PENDING) == 2
    assert found.notes == [
        "job 161 depends on job 3, which is not there: it will fail",
        "the priority of 1 pending job is outside -20 to 19, and becomes the nearest one",
    ]


# Who works there.


def test_a_running_luxid_is_found(directory: Path) -> None:
    with ganeti.held(directory / "queue" / "lock") as pid:
        found = read(directory)
    assert found.living == [Living("LuxiD", pid)]
    found = read(directory)
    assert found.is_lock_left
    assert found.living == []


def test_a_job_whose_process_lives_is_found(directory: Path, tmp_path: Path) -> None:
    livelocks = [str(tmp_path / name) for name in ("job_1", "job_2", "luxi-daemon_3")]
    for number, livelock in enumerate(livelocks):
        add_job(directory, 160 + number, livelock=livelock)
    with ganeti.held(Path(livelocks[0])) as first, ganeti.held(Path(livelocks[2])) as third:
        (tmp_path / "job_2").touch()
        assert read(directory).living == [Living("job 160", first), Living("LuxiD", third)]


def test_the_lock_file_of_an_ended_job_does_not_matter(directory: Path, tmp_path: Path) -> None:
    add_job(directory, 160, opcode(status="success"), livelock=str(tmp_path / "job_1"))
    with ganeti.held(tmp_path / "job_1"):
        assert read(directory).living == []


def test_strange_names_of_lock_files_are_those_of_dead_processes(directory: Path) -> None:
    for number, name in enumerate(
        ["", "relative", "/" + "x" * 5000, "/nowhere/at/all", "/etc/passwd/x", "/a\0b"]
    ):
        add_job(directory, 160 + number, livelock=name)
    assert read(directory).living == []
