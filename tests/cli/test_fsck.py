"""``ganger fsck`` as it is typed: what it prints, and its exit codes."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cli import stand_in
from tests.core_alone import NEEDS_HIDDEN

from ganger.cli import fsck, main
from ganger.storage.alive import directory_locks
from ganger.storage.disk import documents
from ganger.storage.fsck import survey
from ganger.storage.fsck.findings import Finding, FindingKind
from ganger.storage.fsck.repairing import RepairStep

GANETI = Path(__file__).parents[1] / "compatibility" / "data"
SERIAL = "says 156, but ids up to 200 were given"
TORN = "not a job: Input data was truncated"
CONFIG = "not a configuration: Input data was truncated; repair one of them by hand"
UNFINISHED = "the write was not finished"
NOTE = "Ganger does not use it; delete it when you are done"


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A queue as Ganeti left it; the data directory is above it."""
    shutil.copytree(GANETI / "queue", tmp_path / "queue")
    return tmp_path / "queue"


def run(queue: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(["--data", str(queue.parent), "fsck", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def content(queue: Path) -> dict[str, Any]:
    paths = sorted(queue.parent.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def damage(queue: Path) -> None:
    (queue / "job-200").write_bytes(b'{"id": 200')
    (queue / ".tmp-job-3.1.1").touch()
    (queue.parent / "config.data").write_bytes(b"{")


def test_a_queue_of_ganeti_is_clean(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.data", "locks.data"):
        shutil.copy(GANETI / name, queue.parent)
    before = content(queue)
    assert run(queue) == 0
    assert capsys.readouterr() == ("17 jobs, 0 archived: clean\n", "")
    assert content(queue) == before


def test_a_check_says_that_it_waits_for_what_a_killed_daemon_has_left(
    queue: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = os.open(queue, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    pause = SimpleNamespace(select=lambda *_: os.close(held))
    monkeypatch.setattr(directory_locks, "select", pause)
    run(queue)
    assert "A killed daemon has left a process; waiting" in capsys.readouterr().err


def test_a_configuration_of_a_wrong_shape_is_found(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = queue.parent / "config.data"
    place.write_bytes(b'{"nodes": {"u": 5}}')
    assert run(queue) == 1
    said = f"{place}: nodes/u: expected an object, got int; repair one of them by hand"
    assert said in capsys.readouterr().out.splitlines()


def test_a_configuration_older_than_its_history_is_found(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = queue.parent
    (data / "config.data").write_bytes(b'{"serial_no": 7}')
    (data / "config.history").write_bytes(b'{"serial": 8}\n{"serial": 9}\n{"ser')
    assert run(queue) == 1
    out = capsys.readouterr().out
    assert f"{data}/config.data: it ends at serial number 7, and config.history at 9; " in out


@pytest.mark.parametrize(
    "name", ["config.history", "config.journal", pytest.param("ssconf", marks=NEEDS_HIDDEN)]
)
def test_what_stands_in_the_place_of_another_thing_is_found(
    queue: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = queue.parent / name
    (queue.parent / "config.data").write_bytes(b"{}")
    if name == "config.history":
        place.mkdir()
    else:
        place.touch()
    code = run(queue)
    assert str(place) in capsys.readouterr().out
    assert code == (0 if name == "ssconf" else 1)


@pytest.mark.parametrize("path", sorted((GANETI / "job-states").iterdir()), ids=lambda p: p.name)
def test_a_job_of_ganeti_in_any_state_is_no_damage(
    queue: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One whose process was lost with Ganeti, or whose dependency is elsewhere, is only reported.
    shutil.copy(path, queue / path.name.partition(".")[0])
    assert run(queue) == 0, capsys.readouterr().out


def test_a_check_prints_each_finding_in_a_line_and_changes_nothing(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(queue)
    before = content(queue)
    assert run(queue) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{queue}/serial: {SERIAL}; --repair writes the highest id found anywhere",
        f"{queue}/job-200: {TORN}; --repair moves it into quarantine",
        f"{queue.parent}/config.data: {CONFIG}",
        f"{queue}/.tmp-job-3.1.1: {UNFINISHED}; --repair removes it, as a daemon's start does",
        "18 jobs, 0 archived: 4 found, 3 of them `ganger fsck --repair` can repair",
    ]
    assert content(queue) == before


def test_a_repair_prints_each_action_and_what_is_left(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(queue)
    assert run(queue, "--repair") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"repaired: {queue}/serial: {SERIAL}; written: 200",
        f"repaired: {queue}/job-200: {TORN}; moved to {queue}/quarantine/job-200",
        f"repaired: {queue}/.tmp-job-3.1.1: {UNFINISHED}; removed",
        f"{queue.parent}/config.data: {CONFIG}",
        f"note: {queue}/quarantine/job-200: put aside by an earlier repair; {NOTE}",
        "17 jobs, 0 archived: 3 repaired, 1 left",
    ]
    (queue.parent / "config.data").unlink()
    assert run(queue, "--repair") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "17 jobs, 0 archived: clean"
    assert (queue / "lock").exists()


def test_json_has_the_same_findings(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(queue)
    assert run(queue, "-o", "json") == 1
    document = msgspec.json.decode(capsys.readouterr().out)
    assert {name: document[name] for name in ("data", "jobs", "archived", "repaired")} == {
        "data": str(queue.parent),
        "jobs": 18,
        "archived": 0,
        "repaired": [],
    }
    assert document["findings"][1] == {
        "kind": "job-unreadable",
        "path": f"{queue}/job-200",
        "what": TORN,
        "job_id": 200,
        "remedy": "repair",
        "how": "moves it into quarantine",
    }
    assert run(queue, "--repair", "-o", "json") == 1
    document = msgspec.json.decode(capsys.readouterr().out)
    assert [(one["kind"], one["action"], one["error"]) for one in document["repaired"]] == [
        ("serial", "written: 200", None),
        ("job-unreadable", f"moved to {queue}/quarantine/job-200", None),
        ("temporary", "removed", None),
    ]
    assert [one["remedy"] for one in document["findings"]] == ["operator", "none"]


def test_json_escapes_what_is_not_utf_8_in_the_name_of_a_file(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (queue / "job-\udcff").touch()
    assert run(queue, "-o", "json") == 0
    document = msgspec.json.decode(capsys.readouterr().out)
    assert f"{queue}/job-\\udcff" in [one["path"] for one in document["findings"]]


def test_a_repair_that_failed_prints_the_reason() -> None:
    finding = Finding(FindingKind.TEMPORARY, "/q/.tmp-x", "the write was not finished")
    line = fsck._step_line(RepairStep(finding, error="/q/.tmp-x: Is a directory"))
    assert line == "not repaired: /q/.tmp-x: /q/.tmp-x: Is a directory"


@pytest.mark.parametrize("option", [(), ("--repair",)])
def test_the_command_refuses_a_directory_without_a_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    assert run(tmp_path / "queue", *option) == 70
    error = f"ganger: {tmp_path}/queue: there is no queue directory\n"
    assert capsys.readouterr() == ("", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [(), ("--repair",)])
def test_another_version_is_refused_and_nothing_is_judged(
    queue: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    damage(queue)
    (queue / "version").write_bytes(b"2\n")
    before = content(queue)
    assert run(queue, *option) == 70
    error = f"ganger: {queue}/version: queue version '2', expected 1\n"
    assert capsys.readouterr() == ("", error)
    assert {path: data for path, data in content(queue).items() if "lock" not in path} == before


def test_a_daemon_that_comes_meanwhile_makes_the_findings_void(
    queue: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = survey.survey

    def survey_while_a_daemon_comes(*given: Any) -> Any:
        documents.replace(queue / "lock", b"", flush=False)
        return look(*given)

    # Without a lock file there is nothing by which a daemon could be kept out.
    monkeypatch.setattr(survey, "survey", survey_while_a_daemon_comes)
    assert run(queue) == 70
    assert "works on this queue directory; fsck works offline" in capsys.readouterr().err


def test_the_directory_is_free_again_afterwards(queue: Path) -> None:
    assert run(queue, "--repair") == 0
    assert run(queue) == 0
    directory_locks.DirectoryLock(queue / "lock").release()


def test_many_jobs_are_read_behind_a_bar_on_a_terminal_alone(
    queue: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "_BAR_JOBS_MIN", 17)
    assert run(queue) == 0
    assert capsys.readouterr().err == ""
    terminal = stand_in.Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(queue) == 0
    assert "reading jobs" in terminal.getvalue()
    assert "17/17" in terminal.getvalue()
    monkeypatch.setattr(fsck, "_BAR_JOBS_MIN", 18)
    monkeypatch.setattr(sys, "stderr", terminal := stand_in.Terminal())
    assert run(queue) == 0
    assert terminal.getvalue() == ""
