"""What ``ganger status`` says of a daemon, and with which exit code."""

from __future__ import annotations

import subprocess
from typing import Any
from unittest import mock

import msgspec
import pytest
from tests.cli import stand_in
from tests.cli.stand_in import INFO, RAPI, called

from ganger.cli import status, up
from ganger.storage import errors
from ganger.storage.disk.disk_parts import DiskUse
from ganger.transport.messages import LimitsRead, SocketState


def test_status_does_not_say_that_no_daemon_runs_when_one_does_not_answer(
    silent: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("status") == 1
    text = f"the daemon (pid {silent.pid}) in /data does not answer: it starts or ends, or hangs"
    assert text in capsys.readouterr().err


@pytest.mark.usefixtures("silent")
def test_status_shows_the_daemon_when_its_store_hangs_and_names_the_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = errors.DeadlineError("read_limits: no answer came before the deadline")
    hanging = mock.Mock(is_away=False)
    hanging.info.return_value, hanging.limits.side_effect = INFO, late
    hanging.waiting.side_effect = late
    stand_in.use(monkeypatch, hanging)
    assert called("status") == errors.DeadlineError.exit_code
    said = capsys.readouterr()
    assert "Queue:      open\n" in said.out
    assert "the component config_store in /data does not answer: it hangs, or starts" in said.err
    assert called("status", "--output", "json") == 0
    assert '"running": true' in capsys.readouterr().out


@pytest.mark.usefixtures("silent")
def test_status_names_parameters_that_are_not_in_force(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = mock.Mock(is_away=False)
    found.info.return_value = INFO
    found.waiting.return_value = {"rule": 1, "slots": 2}
    problem = "cluster.predictive_queue.ticks: expected float > 0.0"
    found.limits.return_value = LimitsRead(20, 25, not_in_force=(problem,))
    stand_in.use(monkeypatch, found)
    assert called("status") == 0
    said = capsys.readouterr().out
    assert f"NOT IN FORCE: {problem}; its default holds\n" in said
    assert "Waiting:    1 held by a rule, 2 for a run slot\n" in said


FULL = "DISK FULL: no new jobs are taken, and none start"
NO_ROOM = "NO ROOM on the disk: no new jobs are taken"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "open"),
        ({"is_drained": True}, "drained: it takes no jobs"),
        ({"is_read_only": True}, "READ-ONLY: the disk refuses writes; no changes are taken"),
        ({"is_disk_full": True}, FULL),
        ({"lacks_room": True}, NO_ROOM),
        ({"lacks_room": True, "is_drained": True}, f"{NO_ROOM}; drained: it takes no jobs"),
        ({"disk": DiskUse(free=0, total=6 * 2**20, output=0, archive=0, journal=0)}, FULL),
        (
            {"is_read_only": True, "is_disk_full": True},
            f"READ-ONLY: the disk refuses writes; no changes are taken; {FULL}",
        ),
        (
            {"is_read_only": True, "is_drained": True},
            "READ-ONLY: the disk refuses writes; no changes are taken; drained: it takes no jobs",
        ),
    ],
)
def test_status_and_queue_info_say_whether_the_queue_takes_jobs(
    changes: dict[str, bool], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    info = msgspec.structs.replace(INFO, **changes)
    assert status.queue_state(info) == expected
    status._show(info, None, "table")
    assert f"Queue:      {expected}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        # An older daemon.
        ({"counts": {"running": 1, "error": 2, "last_id": 7}}, "1 running, 2 error"),
        ({"counts": {"queued": 0, "last_id": 7}, "outcomes": {"failed": 0}}, "none"),
        (
            {
                "counts": {"queued": 3, "canceled": 2, "error": 2, "success": 5, "last_id": 12},
                "outcomes": {"success": 5, "failed": 1, "skipped": 2, "timed-out": 1},
            },
            "3 queued, 5 success, 1 failed, 2 skipped, 1 timed-out",
        ),
    ],
)
def test_jobs_that_have_ended_are_counted_by_outcome(
    changes: dict[str, Any], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status._show(msgspec.structs.replace(INFO, **changes), None, "table")
    assert f"Jobs:       {shown}\n" in capsys.readouterr().out


GIVE_SPACE = [
    "  `ganger job purge --larger-than 1M` removes ended jobs with much output,",
    "  `ganger job purge --older-than all` all that have ended (`--dry-run` shows",
    "  which jobs go); if none has ended, cancel some first: `ganger job cancel IDS`;",
    "  or free space elsewhere on the disk",
]


@pytest.mark.parametrize("changes", [{}, {"is_read_only": True}, {"is_disk_full": True}])
def test_status_says_first_that_the_disk_is_full_and_what_helps(
    changes: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    disk = DiskUse(free=0, total=6 * 2**20, output=0, archive=0, journal=0)
    status._show(msgspec.structs.replace(INFO, disk=disk, **changes), None, "table")
    lines = capsys.readouterr().out.splitlines()
    first = "DISK FULL: 0 bytes of 6.0 MiB free; no new jobs are taken, and none start"
    assert lines[:5] == [first, *GIVE_SPACE]
    assert lines[5].startswith("Daemon:")


def test_status_says_first_that_there_is_no_room_for_a_new_job_and_what_helps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = DiskUse(free=2**16, total=6 * 2**20, output=0, archive=0, journal=0)
    status._show(msgspec.structs.replace(INFO, disk=disk, lacks_room=True), None, "table")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == ["NO ROOM: 64.0 KiB of 6.0 MiB free; no new jobs are taken", *GIVE_SPACE]


def test_status_says_first_that_the_disk_refuses_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status._show(msgspec.structs.replace(INFO, is_read_only=True), None, "table")
    first, then, *_ = capsys.readouterr().out.splitlines()
    assert first == "READ-ONLY: the disk refuses writes; no changes are taken"
    assert then == "  the queue goes on by itself as soon as the disk works again"


def test_status_shows_what_takes_the_disk() -> None:
    use = DiskUse(
        free=2**30,
        total=2**31,
        jobs=3 * 2**20,
        output=2**20,
        archive=2**21,
        journal=2**22,
        log=2**12,
        other=2**13,
    )
    parts = (
        "jobs 3.0 MiB, output 1.0 MiB, archive 2.0 MiB, journal 4.0 MiB, log 4.0 KiB, other 8.0 KiB"
    )
    for reserve, shown in ((0, "no reserve"), (4096, "reserve 4.0 KiB")):
        disk = msgspec.structs.replace(use, reserve=reserve)
        said = status.disk_use(msgspec.structs.replace(INFO, disk=disk))
        assert said == f"{parts}, {shown}; 1.0 GiB of 2.0 GiB free"
    assert status.disk_use(INFO) == "not measured yet"


def test_status_shows_how_far_the_index_of_the_archive_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status._show(INFO, None, "table")
    assert "Archive:" not in capsys.readouterr().out
    status._show(msgspec.structs.replace(INFO, archive_indexed=0.349), None, "table")
    assert "Archive:    index of the archive: 34 %\n" in capsys.readouterr().out


SOCKET = SocketState(protocol="LUXI", path="/run/x/ganeti-query")
CLOSED = msgspec.structs.replace(SOCKET, problem="this file is no socket")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"is_drained": True}, 0),
        ({"is_read_only": True}, 74),
        ({"is_disk_full": True}, 74),
        ({"lacks_room": True}, 74),
        ({"rapi": RAPI}, 0),
        ({"rapi": msgspec.structs.replace(RAPI, problem="cannot start")}, 70),
        ({"sockets": [CLOSED]}, 70),
        ({"sockets": [CLOSED], "is_read_only": True}, 74),
    ],
)
def test_the_exit_code_of_status_says_whether_the_daemon_serves(
    changes: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = msgspec.structs.replace(INFO, **changes)
    limits = LimitsRead(running_jobs_max=20, tracked_jobs_max=0)
    daemon = mock.Mock(is_away=False, info=lambda **_: info, limits=lambda: limits)
    daemon.waiting.return_value = {}
    monkeypatch.setattr(up, "running_pid", lambda _: 1)
    stand_in.use(monkeypatch, daemon)
    for words in ([], ["-o", "json"]):
        assert called("status", *words) == code


def test_status_names_opcodes_that_could_not_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    problem = "package x: opcode 'y' (x:Y) cannot be loaded: ModuleNotFoundError: z"
    status._show(msgspec.structs.replace(INFO, opcode_problems=[problem]), None, "table")
    assert f"Not loaded: {problem}\n" in capsys.readouterr().out


def test_status_names_sockets_of_installed_listeners(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status._show(msgspec.structs.replace(INFO, sockets=[SOCKET]), None, "table")
    assert "LUXI:       /run/x/ganeti-query\n" in capsys.readouterr().out
