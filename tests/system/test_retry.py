"""``ganger job retry`` through the command line, on a running daemon, with scripts as editors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.harness import Daemon

from ganger import JobStatus

if TYPE_CHECKING:
    from ganger import Client

pytestmark = pytest.mark.passes_on

SUCCESS, ERROR = JobStatus.SUCCESS, JobStatus.ERROR
REASON = "rate-limit:3:rack 7"


@pytest.fixture(name="kept")
def folder_of_edited_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def use_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> None:
    """From now on the editor does this with the file ``$1``."""
    script = tmp_path / "editor"
    script.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    script.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(script))


def opcode(word: str, folder: Path, *, code: int = 0) -> dict[str, Any]:
    """A command that leaves a word behind and ends with this exit code."""
    command = f"echo {word} >> {folder}/notes; exit {code}"
    return {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", command]}


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().split()


def failed_job(client: Client, folder: Path) -> int:
    """A job of which the first opcode succeeded and the second did not."""
    job_id = client.submit([opcode("one", folder), opcode("two", folder, code=3)], reason=REASON)
    assert client.wait(job_id, timeout=30)[0].status is ERROR
    return job_id


def run(daemon: Daemon, *words: str) -> int:
    """The id of the job that this retry submits."""
    return int(daemon.run("job", "retry", *words).stdout)


def refusal(daemon: Daemon, client: Client, *words: str) -> tuple[int, str]:
    """Exit code and line of a retry that submits nothing."""
    before = [job.id for job in client.jobs(archived=True)]
    done = daemon.run("job", "retry", *words, check=False)
    assert [job.id for job in client.jobs(archived=True)] == before
    assert done.returncode != 0
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return done.returncode, line


def test_an_edited_job_begins_where_the_old_one_failed_and_each_names_the_other(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_job(client, tmp_path)
    use_editor(monkeypatch, tmp_path, "sed -i 's/echo two/echo edited/; s/exit 3/exit 0/' \"$1\"")
    new = run(daemon, str(old), "--edit")
    assert client.wait(new, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == ["one", "two", "edited"]
    assert f"  Retry of: {old}\n" in daemon.run("job", "info", str(new)).stdout
    assert f"  Retried by: {new}\n" in daemon.run("job", "info", str(old)).stdout
    # What holds or limits jobs by their reason does so still.
    assert client.job(new).reason == REASON
    assert list(kept.iterdir()) == []


def test_with_all_every_opcode_is_edited_and_repeated(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_job(client, tmp_path)
    use_editor(monkeypatch, tmp_path, "sed -i 's/exit 3/exit 0/' \"$1\"")
    new = run(daemon, str(old), "--edit", "--all")
    assert client.wait(new, timeout=30)[0].status is SUCCESS
    assert notes(tmp_path) == ["one", "two", "one", "two"]
    assert list(kept.iterdir()) == []


def test_what_the_daemon_refuses_is_kept_and_can_be_submitted_when_it_is_mended(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_job(client, tmp_path)
    use_editor(monkeypatch, tmp_path, "sed -i 's/OP_EXEC/OP_EXECC/; s/exit 3/exit 0/' \"$1\"")
    code, line = refusal(daemon, client, str(old), "--edit")
    [file] = kept.iterdir()
    assert code == 1
    assert line == (
        "ganger: unknown opcode 'OP_EXECC' (did you mean OP_EXEC?); the edited text is kept in "
        f"{file}; mend it, then `ganger job retry {old} --ops {file}`"
    )
    text = file.read_text()
    assert json.loads(text)[0]["OP_ID"] == "OP_EXECC"
    file.write_text(text.replace("OP_EXECC", "OP_EXEC"))
    new = run(daemon, str(old), "--ops", str(file))
    assert client.wait(new, timeout=30)[0].status is SUCCESS
    assert client.job(new).retry_of == old
    assert notes(tmp_path) == ["one", "two", "two"]


def test_what_is_no_job_submits_nothing(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = str(failed_job(client, tmp_path))
    # An editor that fails, garbage, nothing at all, and a file that was not saved.
    use_editor(monkeypatch, tmp_path, "exit 7")
    assert refusal(daemon, client, old, "--edit") == (
        1,
        f"ganger: {tmp_path}/editor: Editing failed",
    )
    use_editor(monkeypatch, tmp_path, "printf '[{\"OP_ID\"' > $1")
    assert refusal(daemon, client, old, "--edit")[1].startswith(
        "ganger: the edited opcodes, line 1, column 10: "
    )
    assert [file.read_text() for file in kept.iterdir()] == ['[{"OP_ID"']
    use_editor(monkeypatch, tmp_path, ": > $1")
    assert "the edited file is empty" in refusal(daemon, client, old, "--edit")[1]
    use_editor(monkeypatch, tmp_path, "true")
    assert "nothing was saved" in refusal(daemon, client, old, "--edit")[1]
    assert len(list(kept.iterdir())) == 1


def test_a_queue_that_takes_no_jobs_now_loses_no_text(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_job(client, tmp_path)
    client.drain()
    use_editor(monkeypatch, tmp_path, "sed -i 's/exit 3/exit 0/' $1")
    code, line = refusal(daemon, client, str(old), "--edit")
    [file] = kept.iterdir()
    assert code == 75
    assert line.startswith(
        f"ganger: Job queue is drained, refusing job; the edited text is kept in {file}; "
    )
    client.drain(drained=False)
    new = run(daemon, str(old), "--ops", str(file))
    assert client.wait(new, timeout=30)[0].status is SUCCESS


def test_only_what_has_ended_is_retried_and_what_succeeded_only_whole(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    use_editor(monkeypatch, tmp_path, "touch $1")
    job_id = client.submit({"OP_ID": "OP_EXEC", "argv": ["cat", str(gate)]})
    for words in ([str(job_id)], [str(job_id), "--edit"]):
        code, line = refusal(daemon, client, *words)
        assert code == 1
        assert line.endswith(": only an ended job can be retried")
    gate.write_text("open\n")
    assert client.wait(job_id, timeout=30)[0].status is SUCCESS
    for words in ([str(job_id)], [str(job_id), "--edit"]):
        text = f"every opcode of job {job_id} succeeded; retry all of it to repeat them"
        told = f"ganger: {text} (`ganger job retry {job_id} --all`)"
        assert refusal(daemon, client, *words) == (1, told)
    assert refusal(daemon, client, "999") == (1, "ganger: there is no job 999")
    assert refusal(daemon, client, "999", "--edit") == (1, "ganger: there is no job 999")
    gate.unlink()
    gate.write_text("a file now\n")
    new = run(daemon, str(job_id), "--all")
    assert client.wait(new, timeout=30)[0].status is SUCCESS
    assert list(kept.iterdir()) == []


def test_an_archived_job_is_retried_and_names_its_successors(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = failed_job(client, tmp_path)
    daemon.run("job", "archive", str(old))
    plain = run(daemon, str(old))
    use_editor(monkeypatch, tmp_path, "sed -i 's/exit 3/exit 0/' $1")
    edited = run(daemon, str(old), "--edit")
    ended = client.wait(plain, edited, timeout=30)
    assert [job.status for job in ended] == [ERROR, SUCCESS]
    shown = daemon.run("job", "info", str(old)).stdout
    assert "Status: error (archived)" in shown
    assert f"  Retried by: {plain}, {edited}\n" in shown
    assert list(kept.iterdir()) == []


def test_skipped_jobs_are_retried_behind_the_retry_of_the_one_that_failed(
    daemon: Daemon, client: Client, tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.write_text("3")
    first = {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", f"exit $(cat {code})"]}
    check = client.submit(first, name="check")
    upgrade = client.submit(opcode("upgrade", tmp_path), depends=[(check, ["success"])])
    tell = client.submit(opcode("tell", tmp_path), depends=[(upgrade, ["success"])])
    client.wait(check, upgrade, tell, timeout=30)
    assert client.job(tell).outcome == "skipped"
    daemon.run("job", "archive", str(check), str(upgrade))
    text = f"ganger: a retry of job {tell} would be skipped: it depends on job {upgrade}, which was"
    help_text = f"skipped; retry job {upgrade} first (`ganger job retry {upgrade}`)"
    assert refusal(daemon, client, str(tell)) == (1, f"{text} {help_text}")
    code.write_text("0")
    check_again = run(daemon, "check")
    upgrade_again = run(daemon, str(upgrade))
    # The editor shows the old dependency.
    use_editor(monkeypatch, tmp_path, "touch $1")
    tell_again = run(daemon, str(tell), "--edit")
    again = client.wait(check_again, upgrade_again, tell_again, timeout=30)
    assert [job.status for job in again] == [SUCCESS] * 3
    assert client.job(upgrade_again).depends == [(check_again, ("success",))]
    assert client.job(tell_again).depends == [(upgrade_again, ("success",))]
    assert notes(tmp_path) == ["upgrade", "tell"]
    assert list(kept.iterdir()) == []
