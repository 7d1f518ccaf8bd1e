"""``ganger import-ganeti`` as it is typed: what it prints, and its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.storage.ganeti.importing import ganeti

from ganger.cli import main

RUNNING = "the job was running in Ganeti and may have begun, so it does not start again"
URGENT = (
    "filter rule a2bfa70f-2af7-4c89-9dc7-8e7f625d55a5: a regular expression (=~) on reason never "
    "matches in Ganeti; here it does"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = ganeti.state_directory(
        tmp_path, "job-153.running-holding-lock", "job-156.paused-two-ops"
    )
    ganeti.archive(path, 10_001)
    (path / "queue" / "serial").write_text("10001\n")
    (path / "locks.data").write_text("[[],[]]")
    return path


def run(directory: Path, *words: str) -> int:
    data = str(directory.parent / "new")
    with pytest.raises(SystemExit) as ended:
        main.main(["--data", data, "import-ganeti", str(directory), *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def report(directory: Path) -> list[str]:
    return [
        f"{directory}: cluster cluster.example.com",
        "  jobs           17: 15 have ended, 1 will run, 1 ends in an error",
        "  archive        1 job",
        "  last id        10001",
        "  configuration  3 groups, 1 node, 4 instances, 1 network",
        "  filter rules   6",
        "  remote users   no users file",
        f"will not run: job 153 TEST_DELAY(6000000000 ns) (running -> error): {RUNNING}",
        f"note: {URGENT}",
        "note: stays there: locks.data",
    ]


def test_a_dry_run_tells_everything_and_writes_nothing(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ganeti.unchanged(directory):
        assert run(directory, "--dry-run") == 0
    new = directory.parent / "new"
    last = f"Nothing was written (--dry-run); {new} is free"
    assert capsys.readouterr().out.splitlines() == [*report(directory), last]
    assert not new.exists()


def test_the_same_words_and_then_it_is_there(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ganeti.unchanged(directory):
        assert run(directory) == 0
    new = directory.parent / "new"
    last = [f"Taken over into {new}", f"Start the daemon: ganger --data {new} up"]
    assert capsys.readouterr() == ("\n".join([*report(directory), *last, ""]), "")
    assert run(directory) == 1
    assert f"ganger: {new}: is not empty; " in capsys.readouterr().err


def test_everything_for_programs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(directory, "-o", "json") == 0
    found: dict[str, Any] = msgspec.json.decode(capsys.readouterr().out)
    assert found["jobs"] == {"final": 15, "pending": 1, "error": 1, "canceled": 0}
    assert (found["archived"], found["last_id"], found["taken_over"]) == (1, 10_001, True)
    assert [job["id"] for job in found["will_not_run"]] == [153]
    assert found["will_not_run"][0]["why"] == RUNNING
    assert found["stays"] == ["locks.data"]


@pytest.mark.parametrize(
    ("until", "words"),
    [(253_000_000_000, "  watcher        paused until 9987-04-02T17:46:40Z"), (5, None)],
)
def test_a_pause_of_the_watcher_is_told_while_it_lasts(
    directory: Path, until: int, words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "watcher.pause").write_text(f"{until}\n")
    assert run(directory) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  watcher")]
    assert shown == ([] if words is None else [words])
    assert (directory.parent / "new" / "watcher.pause").read_text() == f"{until}\n"


def test_damage_is_named_and_refused_and_can_be_left_out(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = directory / "queue" / "job-8"
    torn.write_bytes(torn.read_bytes()[:100])
    (directory / "rapi").mkdir()
    (directory / "rapi" / "users").write_text("jack abc\njoe\n")
    assert run(directory) == 1
    shown = capsys.readouterr()
    damaged = [line for line in shown.out.splitlines() if line.startswith("damaged: ")]
    assert [line.partition(": ")[2].partition(": ")[0] for line in damaged] == [
        str(torn),
        str(directory / "rapi" / "users"),
    ]
    assert shown.err == (
        f"ganger: {directory}: 2 things cannot be taken over; --skip-damaged leaves out what is "
        "damaged\n"
    )
    assert not (directory.parent / "new").exists()
    assert run(directory, "-o", "json") == 1
    assert msgspec.json.decode(capsys.readouterr().out)["taken_over"] is False
    with ganeti.unchanged(directory):
        assert run(directory, "--skip-damaged") == 0
    new = directory.parent / "new"
    assert not (new / "queue" / "job-8").exists()
    assert (new / "rapi" / "users").read_text() == "jack abc\n"


def test_a_running_ganeti_is_refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ganeti.held(directory / "queue" / "lock") as pid:
        assert run(directory) == 70
    assert f"ganger: Ganeti still works: LuxiD (pid {pid}); " in capsys.readouterr().err


def test_a_copy_of_a_running_ganeti_needs_a_word(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "queue" / "lock").touch()
    for words in ([], ["--dry-run"]):
        assert run(directory, *words) == 70
        assert "then add --stopped" in capsys.readouterr().err
    assert run(directory, "--stopped") == 0


def test_long_lists_are_cut(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for job_id in range(10_002, 10_032):
        ganeti.add_job(directory, job_id, ganeti.opcode(status="waiting"))
        (directory / "queue" / f"job-{job_id + 100}").touch()
    assert run(directory, "--dry-run") == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("will not run: job") for line in lines) == 20
    assert "will not run: 11 more jobs; -o json names all" in lines
    assert sum(line.startswith("damaged: /") for line in lines) == 20
    assert "damaged: 10 more; -o json names all" in lines


def test_control_characters_of_a_source_are_shown_and_not_sent(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "\x1b]0;title\x07").touch()
    ganeti.add_job(directory, 10_002, ganeti.opcode(input={"OP_ID": "OP_\x1b[2J"}))
    assert run(directory, "--dry-run") == 0
    assert "\x1b" not in capsys.readouterr().out
