"""The findings about a data directory, from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from ganger.storage.fsck import checking
from ganger.storage.fsck.checking import Archival, Facts, FoundJob, JournalSegment, SpoolFile
from ganger.storage.fsck.findings import KINDS, Finding, FindingKind, FindingRemedy
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.checked_records import Tail

QUEUE = "/q"
LOCK = "/run/job_000003_1"
QUEUED, WAITING, CANCELING, RUNNING, CANCELED, SUCCESS, ERROR = JobStatus


def job(job_id: int = 3, status: JobStatus | None = SUCCESS, **said: Any) -> FoundJob:
    said.setdefault("path", f"{QUEUE}/job-{job_id}")
    return FoundJob(job_id=job_id, status=status, **said)


def archived(job_id: int = 3, status: JobStatus | None = SUCCESS, **said: Any) -> FoundJob:
    return job(job_id, status, path=f"{QUEUE}/archive/0/job-{job_id}", **said)


def torn(job_id: int = 3, **said: Any) -> FoundJob:
    return job(job_id, None, problem="not a job", **said)


def state(serial: int, job_id: int = 3, **said: Any) -> dict[int, FoundJob]:
    return {job_id: job(job_id, path=f"{QUEUE}/journal", serial=serial, **said)}


def facts(**said: Any) -> Facts:
    said.setdefault("version", b"1\n")
    said.setdefault("serial", b"99\n")
    return Facts(queue=QUEUE, **said)


def found(**said: Any) -> list[tuple[str, str]]:
    """The kinds that are found, and where."""
    return [(str(one.kind), one.path) for one in checking.check(facts(**said))]


def at(kind: str, place: str) -> list[tuple[str, str]]:
    return [(kind, f"{QUEUE}/{place}")]


def segment(**said: Any) -> JournalSegment:
    return JournalSegment(path=f"{QUEUE}/journal/00000001.journal", **said)


LOST = Archival(is_journaled=False, is_archived=False)
JOURNALED = Archival(is_journaled=True, is_archived=False)
MOVED = Archival(is_journaled=True, is_archived=True)
ARCHIVED_TORN = job(3, None, path=f"{QUEUE}/archive/0/job-3", problem="not a job")

CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({}, []),
    "a version that is missing": ({"version": None}, at("version-missing", "version")),
    "an empty version": ({"version": b""}, at("version-torn", "version")),
    "a version of zeros": ({"version": b"\0\0"}, at("version-torn", "version")),
    "a mode": ({"closed": ["/q/job-3"]}, at("mode", "job-3")),
    "what may not be read is not judged": (
        {"closed": ["/q/job-3"], "jobs": [torn()]},
        at("mode", "job-3"),
    ),
    # Users.
    "a queue of another user": ({"other_user": "al (uid 7)"}, [("other-user", "/q")]),
    "a job file of another user": (
        {"misowned": [("/q/job-3", "al (uid 7)")], "jobs": [torn()]},
        at("owner", "job-3"),
    ),
    "many files of another user": (
        {"misowned": [(f"/q/job-{number}", "al (uid 7)") for number in range(9)]},
        at("owner", "job-0"),
    ),
    "files of two other users": (
        {"misowned": [("/q/job-1", "al (uid 7)"), ("/q/job-2", "bo (uid 8)")]},
        [*at("owner", "job-1"), *at("owner", "job-2")],
    ),
    "a file into which every user may write": (
        {"world_writable": ["/q/job-3"]},
        at("open-to-all", "job-3"),
    ),
    # Ids.
    "no serial and no job": ({"serial": None}, []),
    "no serial": ({"serial": None, "jobs": [job()]}, at("serial", "serial")),
    "a serial that is no number": ({"serial": b"x"}, at("serial", "serial")),
    "an endless serial": ({"serial": b"9" * 5_000}, at("serial", "serial")),
    "a serial below a job": ({"serial": b"2\n", "jobs": [job()]}, at("serial", "serial")),
    "a serial that fits": ({"serial": b"3\n", "jobs": [job()]}, []),
    "a serial below a torn job": (
        {"serial": b"2", "jobs": [torn()]},
        [*at("serial", "serial"), *at("job-unreadable", "job-3")],
    ),
    "a serial below the archive": (
        {"serial": b"2", "archived": [archived()]},
        at("serial", "serial"),
    ),
    "a serial below the journal": ({"serial": b"2", "journaled_id": 3}, at("serial", "serial")),
    "a serial below the quarantine": (
        {"serial": b"2", "quarantined_id": 3},
        at("serial", "serial"),
    ),
    "a serial below an archived job of the journal": (
        {"serial": b"2", "archivals": {3: LOST}},
        at("serial", "serial"),
    ),
    # The journal.
    "a journal behind": ({"jobs": [job(serial=5)], "states": state(4)}, []),
    "a journal as new": ({"jobs": [job(serial=5)], "states": state(5)}, []),
    "a journal ahead": (
        {"jobs": [job(serial=5)], "states": state(6)},
        at("journal-ahead", "job-3"),
    ),
    "a journal ahead of a torn file": (
        {"jobs": [torn()], "states": state(1)},
        at("journal-ahead", "job-3"),
    ),
    "a job that the journal alone has": ({"states": state(1)}, at("journal-ahead", "job-3")),
    "a state of a job in the archive": ({"states": state(1), "archived": [archived()]}, []),
    "a state that is no job": (
        {"jobs": [job(serial=1)], "states": state(2, problem="not a job")},
        at("state-unreadable", "job-3"),
    ),
    "a torn tail": (
        {"segments": [segment(tail=Tail(7, has_records=False))]},
        at("journal-torn", "journal/00000001.journal"),
    ),
    "records behind a damaged one": (
        {"segments": [segment(tail=Tail(7, has_records=True))]},
        at("journal-damaged", "journal/00000001.journal"),
    ),
    "records behind a damaged one, copied": (
        {"segments": [segment(tail=Tail(7, has_records=True), is_kept=True)]},
        at("journal-torn", "journal/00000001.journal"),
    ),
    "a segment that cannot be read keeps job files from being judged": (
        {"segments": [segment(problem="I/O error")], "jobs": [torn()], "serial": b"1"},
        at("journal-unreadable", "journal/00000001.journal"),
    ),
    "a misnamed job is not judged by an older state of it": (
        {"jobs": [job(path="/q/job-03", is_in_place=False, serial=2)], "states": state(1)},
        at("misplaced", "job-03"),
    ),
    "a misplaced archived job is not judged by an older state of it": (
        {
            "archived": [job(3, path="/q/archive/7/job-3", is_in_place=False)],
            "states": state(1),
        },
        at("misplaced", "archive/7/job-3"),
    ),
    "a misnamed job of a living process": (
        {
            "jobs": [job(3, RUNNING, path="/q/job-03", is_in_place=False, lock_file=LOCK)],
            "alive": {LOCK},
        },
        [],
    ),
    # Jobs.
    "a torn job": ({"jobs": [torn()]}, at("job-unreadable", "job-3")),
    "a misnamed job": (
        {"jobs": [job(path="/q/job-03", is_in_place=False)]},
        at("misplaced", "job-03"),
    ),
    "a job that runs": ({"jobs": [job(3, RUNNING, lock_file=LOCK)], "alive": {LOCK}}, []),
    "a job that ran": (
        {"jobs": [job(3, RUNNING, lock_file=LOCK)]},
        at("process-gone", "job-3"),
    ),
    "a job that ran without a process": ({"jobs": [job(3, RUNNING)]}, at("process-gone", "job-3")),
    "a job that had got a process": (
        {"jobs": [job(3, QUEUED, lock_file=LOCK)]},
        at("process-gone", "job-3"),
    ),
    "a pending job": ({"jobs": [job(3, QUEUED), job(4, WAITING)]}, []),
    "a final job of a dead process": ({"jobs": [job(3, SUCCESS, lock_file=LOCK)]}, []),
    "a dependency in the queue, the archive and the journal": (
        {
            "jobs": [job(6, QUEUED, depends=(3, 4, 5)), job(3)],
            "archived": [archived(4)],
            "archivals": {5: LOST},
        },
        [],
    ),
    "a dependency that does not exist": (
        {"jobs": [job(6, QUEUED, depends=(3,))]},
        at("dependency-missing", "job-6"),
    ),
    # The file of a living process.
    "a file of the living behind the journal": (
        {"jobs": [job(3, RUNNING, lock_file=LOCK, serial=1)], "states": state(2), "alive": {LOCK}},
        [],
    ),
    "a torn file of the living": (
        {"jobs": [torn()], "alive": {LOCK}, "locks": {LOCK: 7}},
        at("job-unreadable-alive", "job-3"),
    ),
    "a torn file of the living, by the journal": (
        {"jobs": [torn()], "states": state(2, lock_file="/x"), "alive": {"/x"}},
        at("job-unreadable-alive", "job-3"),
    ),
    "an archived file of the living": (
        {
            "jobs": [job(3, SUCCESS, lock_file=LOCK)],
            "archivals": {3: JOURNALED},
            "alive": {LOCK},
        },
        [],
    ),
    # The archive.
    "an archived job": ({"archived": [archived()]}, []),
    "an archived job that the journal has archived": (
        {"archived": [archived()], "archivals": {3: MOVED}},
        [],
    ),
    "a job that was not moved": (
        {"jobs": [job()], "archivals": {3: LOST}},
        at("not-archived", "job-3"),
    ),
    "a file of a job that was purged": (
        {"purged_files": [("/q/archive/0/job-3", 3)]},
        at("purged-left", "archive/0/job-3"),
    ),
    "an archived job that was lost": (
        {"archivals": {3: JOURNALED}},
        at("not-archived", "job-3"),
    ),
    "an archived job that is older than the journal": (
        {"archived": [archived(3, RUNNING)], "archivals": {3: JOURNALED}},
        at("not-archived", "job-3"),
    ),
    "a torn archived job is put aside before it is made up for": (
        {"archived": [ARCHIVED_TORN], "archivals": {3: JOURNALED}},
        at("archived-unreadable", "archive/0/job-3"),
    ),
    "a job that was removed from the archive": (
        {"archivals": {3: LOST}},
        [],
    ),
    "a torn archived job": (
        {"archived": [ARCHIVED_TORN]},
        at("archived-unreadable", "archive/0/job-3"),
    ),
    "a torn archived job of which the journal has only an older state": (
        {"archived": [ARCHIVED_TORN], "states": state(1, status=QUEUED)},
        at("archived-lost", "archive/0/job-3"),
    ),
    "a torn archived job of which the journal has the end": (
        {"archived": [ARCHIVED_TORN], "states": state(2)},
        at("archived-unreadable", "archive/0/job-3"),
    ),
    "a torn archived job beside a pending one": (
        {
            "archived": [ARCHIVED_TORN],
            "jobs": [job(3, QUEUED, serial=1)],
            "states": state(1, status=QUEUED),
        },
        at("archived-unreadable", "archive/0/job-3"),
    ),
    "a torn archived job beside a whole one in the queue": (
        {"archived": [ARCHIVED_TORN], "jobs": [job()]},
        at("archived-unreadable", "archive/0/job-3"),
    ),
    "an archived job that has not ended": (
        {"archived": [archived(3, RUNNING)]},
        at("archived-unfinished", "archive/0/job-3"),
    ),
    "a misplaced archived job": (
        {"archived": [job(3, path="/q/archive/7/job-3", is_in_place=False)]},
        at("misplaced", "archive/7/job-3"),
    ),
    "a job in both places": (
        {"jobs": [job()], "archived": [archived()], "duplicates": {3: True}},
        at("double", "job-3"),
    ),
    "a different job in both places": (
        {"jobs": [job()], "archived": [archived()], "duplicates": {3: False}},
        at("double-differs", "job-3"),
    ),
    "an older state of an archived job in the queue": (
        {
            "jobs": [job(3, RUNNING, serial=4)],
            "archived": [archived(serial=5)],
            "archivals": {3: MOVED},
            "duplicates": {3: False},
        },
        at("double-older", "job-3"),
    ),
    "a newer state of an archived job in the queue": (
        {
            "jobs": [job(serial=6)],
            "archived": [archived(serial=5)],
            "duplicates": {3: False},
        },
        at("double-differs", "job-3"),
    ),
    "a newer state in the archive that is not the end": (
        {
            "jobs": [job(3, RUNNING, serial=4)],
            "archived": [archived(3, RUNNING, serial=5)],
            "duplicates": {3: False},
        },
        at("double-differs", "job-3") + at("archived-unfinished", "archive/0/job-3"),
    ),
    "a job is not moved over another one": (
        {
            "jobs": [job()],
            "archived": [archived()],
            "archivals": {3: MOVED},
            "duplicates": {3: False},
        },
        at("double-differs", "job-3"),
    ),
    "a torn job beside a whole one in the archive": (
        {"jobs": [torn()], "archived": [archived()], "duplicates": {3: False}},
        at("job-unreadable", "job-3"),
    ),
    # Files beside jobs.
    "input and output of live and archived jobs": (
        {
            "jobs": [job()],
            "archived": [archived(4)],
            "spool_files": [
                SpoolFile("/q/spool/job-3-input-0", 3),
                SpoolFile("/q/spool/job-3-output", 3),
                SpoolFile("/q/archive/0/spool/job-4-output", 4, is_archived=True),
            ],
        },
        [],
    ),
    "output of which a part is damaged": (
        {
            "jobs": [job()],
            "spool_files": [SpoolFile("/q/spool/job-3-output", 3, damage=[(5, 9), (20, 21)])],
        },
        at("output-damaged", "spool/job-3-output"),
    ),
    "output that is no file": (
        {
            "jobs": [job()],
            "spool_files": [SpoolFile("/q/spool/job-3-output", 3, problem="Is a directory")],
        },
        at("output-damaged", "spool/job-3-output"),
    ),
    "input of a job that does not exist": (
        {"spool_files": [SpoolFile("/q/spool/job-3-input-0", 3)]},
        at("spool-orphan", "spool/job-3-input-0"),
    ),
    "output beside live jobs of one that is archived": (
        {"archived": [archived()], "spool_files": [SpoolFile("/q/spool/job-3-output", 3)]},
        at("spool-misplaced", "spool/job-3-output"),
    ),
    "output in the archive of a job that is live": (
        {
            "jobs": [job()],
            "spool_files": [SpoolFile("/q/archive/0/spool/job-3-output", 3, is_archived=True)],
        },
        at("spool-misplaced", "archive/0/spool/job-3-output"),
    ),
    "input of a job that only the journal knows": (
        {"states": state(1), "spool_files": [SpoolFile("/q/spool/job-3-input-0", 3)]},
        at("journal-ahead", "job-3"),
    ),
    "output of a job that was put into the wrong place": (
        {
            "jobs": [job(3, path="/q/job-03", is_in_place=False)],
            "spool_files": [SpoolFile("/q/spool/job-3-output", 3)],
        },
        at("misplaced", "job-03"),
    ),
    "output of a job whose process lives": (
        {
            "alive": {LOCK},
            "locks": {LOCK: 7},
            "spool_files": [SpoolFile("/q/spool/job-3-output", 3)],
        },
        [("lock-unknown", LOCK)],
    ),
    # Lock files and the rest.
    "a dead lock file": ({"locks": {LOCK: None}}, [("lock-dead", LOCK)]),
    "a lock file of a job": (
        {"locks": {LOCK: 7}, "alive": {LOCK}, "jobs": [job(3, RUNNING, lock_file=LOCK)]},
        [],
    ),
    "a lock file that the journal alone knows": (
        {"locks": {LOCK: 7}, "alive": {LOCK}, "states": state(1, lock_file=LOCK)},
        [],
    ),
    "a lock file that no job names": (
        {"locks": {LOCK: 7}, "alive": {LOCK}, "jobs": [job(3, SUCCESS, lock_file="/other")]},
        [("lock-unknown", LOCK)],
    ),
    "unreadable locks": (
        {"locks_problem": ("/d/locks.data", "x")},
        [("locks-unreadable", "/d/locks.data")],
    ),
    "unreadable locks of the living": (
        {
            "locks_problem": ("/d/locks.data", "x"),
            "jobs": [job(3, RUNNING, lock_file=LOCK)],
            "alive": {LOCK},
        },
        [("locks-unreadable-alive", "/d/locks.data")],
    ),
    "damage to the journal of the configuration": (
        {"config_segments": [segment(tail=Tail(7, has_records=True))]},
        [("journal-damaged", f"{QUEUE}/journal/00000001.journal")],
    ),
    "a torn configuration with a whole copy": (
        {"config_torn": ("/d/config.data", "x")},
        [("config-torn", "/d/config.data")],
    ),
    "an unreadable configuration": (
        {"config_problem": ("/d/config.data", "x")},
        [("config-unreadable", "/d/config.data")],
    ),
    "a configuration that lacks changes": (
        {"config_behind": ("/d/config.data", "x")},
        [("config-behind", "/d/config.data")],
    ),
    "a configuration with a wrong value": (
        {"config_damage": ("/d/config.data", "x")},
        [("config-damaged", "/d/config.data")],
    ),
    "an unreadable rule": (
        {"rule_problems": [("/d/config.data", "x")]},
        [("rule-unreadable", "/d/config.data")],
    ),
    "ssconf files of an older configuration": (
        {"ssconf_problem": ("/d/ssconf", "ssconf_node_list")},
        [("ssconf-stale", "/d/ssconf")],
    ),
    "an unreadable key": (
        {"key_problems": [("/d/server.key", "x")]},
        [("key-unreadable", "/d/server.key")],
    ),
    "temporary files": (
        {"temporaries": [("/q/.tmp-job-3.1.1", 3), ("/d/.tmp-x", None)]},
        [("temporary", "/q/.tmp-job-3.1.1"), ("temporary", "/d/.tmp-x")],
    ),
    "a temporary file of the living": (
        {
            "temporaries": [("/q/.tmp-job-3.1.1", 3)],
            "jobs": [job(3, RUNNING, lock_file=LOCK)],
            "alive": {LOCK},
        },
        [],
    ),
    "quarantined files": ({"quarantined": ["/q/quarantine/x"]}, at("quarantined", "quarantine/x")),
    "a foreign file": ({"foreign": ["/q/x"]}, at("foreign", "x")),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_found(case: str) -> None:
    said, expected = CASES[case]
    assert found(**said) == expected


def test_every_kind_is_found_by_some_case_and_none_is_without_a_line() -> None:
    covered = {kind for _, expected in CASES.values() for kind, _ in expected}
    assert covered == {str(kind) for kind in FindingKind}
    assert list(KINDS) == list(FindingKind)


def test_findings_come_in_the_order_in_which_they_are_repaired() -> None:
    kinds = [kind for kind, _ in found(serial=b"1", version=None, jobs=[torn()], foreign=["/q/x"])]
    assert kinds == ["version-missing", "serial", "job-unreadable", "foreign"]


def test_damaged_output_is_counted_in_bytes_unless_a_job_is_writing_it() -> None:
    output = SpoolFile("/q/spool/job-3-output", 3, damage=[(5, 9), (20, 21)])
    [finding] = checking.check(facts(jobs=[job()], spool_files=[output]))
    assert finding.what == "5 bytes of it cannot be read, the first at byte 5"
    running = job(3, RUNNING, lock_file=LOCK)
    assert found(jobs=[running], spool_files=[output], locks={LOCK: 7}, alive={LOCK}) == []


def test_a_finding_names_the_job_and_what_is_wrong() -> None:
    [finding] = checking.check(facts(jobs=[torn()], states=state(4)))
    assert finding == Finding(
        FindingKind.JOURNAL_AHEAD, "/q/job-3", "not a job; the journal has state 4", 3
    )
    assert finding.remedy is FindingRemedy.REPAIR
    assert finding.how.startswith("writes the file")


def test_the_highest_id_is_the_highest_that_anything_names() -> None:
    assert checking.highest_id(facts()) == 0
    assert checking.highest_id(facts(jobs=[torn(8)], archived=[archived(7)])) == 8
    assert checking.highest_id(facts(archivals={9: LOST}, journaled_id=8)) == 9
    assert checking.highest_id(facts(journaled_id=10, quarantined_id=11)) == 11


@pytest.mark.parametrize(
    ("path", "job_id"),
    [
        ("/run/job_000017_1795224833", 17),
        ("/run/job_1234567_1-2", 1_234_567),
        ("/run/ganger-daemon_1", None),
        ("/run/job_x_1", None),
    ],
)
def test_a_lock_file_is_named_after_its_job(path: str, job_id: int | None) -> None:
    assert checking.job_of_lock(path) == job_id


def test_a_word_in_the_version_file_is_not_taken_for_a_torn_one() -> None:
    assert not checking.is_torn_version(b"two")
    assert not checking.is_torn_version(b"\0\x001")
