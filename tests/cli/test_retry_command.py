"""``ganger job retry``: what the editor is given, what is made of its text, and what is kept of it.

An editor is a script. The end to end is in ``tests/system/test_retry.py``.
"""

from __future__ import annotations

import json
import stat
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage import errors, opcodes
from ganger.storage.jobs.job_views import JobInfo, OpInfo
from ganger.storage.jobs.jobs import JobStatus

SUCCESS, ERROR, RUNNING = JobStatus.SUCCESS, JobStatus.ERROR, JobStatus.RUNNING
USERS = ["gnt:user", "rate-limit:3:rack 7", 5]
DONE: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
FAILED: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["false"], "comment": None}


def old_job(*ops: tuple[JobStatus, dict[str, Any]], status: JobStatus = ERROR) -> JobInfo:
    entries = [
        OpInfo(
            op_id=fields["OP_ID"],
            summary="",
            input=fields,
            status=how,
            result=None,
            log=[],
            priority=0,
            started=None,
            executed=None,
            ended=None,
        )
        for how, fields in ops
    ]
    return JobInfo(id=3, status=status, summary="", priority=0, ops=entries)


class RetryDaemon:
    """Stands for the client of a daemon; remembers what it was asked for."""

    def __init__(self) -> None:
        self.old = old_job((SUCCESS, DONE), (ERROR, FAILED))
        self.asked: list[dict[str, Any]] = []
        self.refusal: errors.GangerError | None = None

    def job(self, job_id: int) -> JobInfo:
        if job_id != self.old.id:
            raise errors.UnknownJobError(f"there is no job {job_id}")
        return self.old

    def retry(self, job_id: int, *, key: str, **asked: Any) -> int:
        assert key
        if self.refusal is not None:
            raise self.refusal
        self.asked.append({"id": job_id, **asked})
        return 17


@pytest.fixture(name="daemon")
def daemon_that_remembers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RetryDaemon:
    daemon = RetryDaemon()
    stand_in.use(monkeypatch, daemon)
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "kept"))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "/nonexistent/editor")
    return daemon


@pytest.fixture(name="kept")
def folder_of_edited_files(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture(name="editor")
def editor_that_is_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "editor"
    monkeypatch.setenv("EDITOR", str(script))
    return script


def does(script: Path, *lines: str) -> None:
    """What the editor does with the file ``$1``."""
    script.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    script.chmod(0o755)


def writes(script: Path, text: str, *lines: str) -> None:
    file = script.with_suffix(".text")
    file.write_text(text)
    does(script, f"cat {file} > $1", *lines)


def retry(*words: str) -> Result:
    return CliRunner().invoke(ganger, ["job", "retry", *words], standalone_mode=False)


def refusal(daemon: RetryDaemon, *words: str) -> str:
    """Why the new job is refused; nothing was submitted."""
    done = retry(*words)
    assert daemon.asked == []
    match done.exception:
        case errors.GangerError() as error:
            text = error.text
        case click.ClickException() as error:
            text = error.format_message()
        case error:
            pytest.fail(f"not a refusal: {error!r}")
    assert "\n" not in text
    return text


# Without an editor.


@pytest.mark.parametrize(("words", "whole"), [([], False), (["--all"], True)])
def test_the_daemon_itself_repeats_a_job_that_is_not_edited(
    daemon: RetryDaemon, words: list[str], *, whole: bool
) -> None:
    done = retry("3", *words)
    assert done.output == "17\n"
    assert daemon.asked == [{"id": 3, "whole": whole, "ops": None}]


def test_opcodes_may_come_from_a_file(daemon: RetryDaemon, tmp_path: Path) -> None:
    file = tmp_path / "ops.yaml"
    file.write_text("- {OP_ID: OP_EXEC, argv: [date, 2026-01-01]}")
    assert retry("3", "--ops", str(file)).output == "17\n"
    # A date without quotes is the text that it looks like.
    assert daemon.asked[0]["ops"] == [{"OP_ID": "OP_EXEC", "argv": ["date", "2026-01-01"]}]


@pytest.mark.parametrize("word", ["--edit", "--all"])
def test_opcodes_from_a_file_leave_nothing_to_choose(daemon: RetryDaemon, word: str) -> None:
    assert refusal(daemon, "3", "--ops", "x", word) == (
        "--ops: goes neither with --edit nor with --all"
    )


# What the editor is given.


def test_the_editor_gets_what_has_not_succeeded(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    does(editor, "touch $1", f"cp $1 {kept}/../seen")
    assert retry("3", "--edit").output == "17\n"
    assert json.loads((kept / "../seen").read_text()) == [{"OP_ID": "OP_EXEC", "argv": ["false"]}]
    assert daemon.asked == [{"id": 3, "ops": [{"OP_ID": "OP_EXEC", "argv": ["false"]}]}]
    assert list(kept.iterdir()) == []


def test_with_all_it_gets_all_opcodes(daemon: RetryDaemon, editor: Path) -> None:
    does(editor, "touch $1")
    retry("3", "--edit", "--all")
    assert [op["argv"] for op in daemon.asked[0]["ops"]] == [["true"], ["false"]]


def test_no_other_user_can_read_the_edited_file(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    does(editor, "cp -p $1 $1.seen", "touch $1")
    assert retry("3", "--edit").exception is None
    [seen] = kept.iterdir()
    assert stat.S_IMODE(seen.stat().st_mode) == 0o600
    assert daemon.asked


def test_the_reasons_that_users_gave_stay_and_those_of_the_queue_go(
    daemon: RetryDaemon, editor: Path
) -> None:
    trail = [
        USERS,
        ["gnt:daemon:x", "", 6],
        ["gnt:opcode:exec", "job=3;index=0", 7],
        ["ganger:retry", "retry of job 2", 8],
    ]
    daemon.old = old_job((ERROR, {**FAILED, "reason": trail}))
    does(editor, "touch $1")
    retry("3", "--edit")
    assert daemon.asked[0]["ops"][0]["reason"] == [USERS]


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (
            old_job((RUNNING, DONE), status=RUNNING),
            "job 3 has status running: only an ended job can be retried",
        ),
        (
            old_job((SUCCESS, DONE), status=SUCCESS),
            "every opcode of job 3 succeeded; retry all of it to repeat them",
        ),
    ],
)
def test_no_editor_opens_for_what_cannot_be_retried(
    daemon: RetryDaemon, kept: Path, old: JobInfo, expected: str
) -> None:
    # The editor does not exist: had it been opened, the error would be another one.
    daemon.old = old
    assert refusal(daemon, "3", "--edit") == expected
    assert list(kept.iterdir()) == []


def test_no_editor_opens_for_a_job_that_does_not_exist(daemon: RetryDaemon, kept: Path) -> None:
    assert refusal(daemon, "99", "--edit") == "there is no job 99"
    assert list(kept.iterdir()) == []


# What is made of its text.

KEPT = "; the edited text is kept in "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"OP_ID"', "the edited opcodes, line 1, column 10: expected"),
        ('"garbage"', "the edited opcodes: expected a list of opcodes"),
        ("[]", "the edited opcodes: expected a list of opcodes"),
        ("[7]", "the edited opcodes: expected a list of opcodes"),
        ("[[{OP_ID: A}], [{OP_ID: B}]]", "the edited opcodes: expected one list of opcodes"),
        ("{ops: [{OP_ID: A}], priority: 3}", "the edited opcodes: expected one list of opcodes"),
        ("[{OP_ID: A, n: 99999999999999999999}]", "the edited opcodes: [0].n: expected an integer"),
        (
            json.dumps([DONE, {"OP_ID": "X", "password": opcodes.REDACTED}]),
            "the edited opcodes: opcode 1: password is secret and was not stored; give it",
        ),
        (
            json.dumps([DONE, {"OP_ID": "X", "password": {"root": opcodes.REDACTED}}]),
            "the edited opcodes: opcode 1: password is secret and was not stored; give it",
        ),
    ],
)
def test_a_text_that_is_no_job_is_refused_and_kept(
    daemon: RetryDaemon, editor: Path, kept: Path, text: str, expected: str
) -> None:
    writes(editor, text)
    line = refusal(daemon, "3", "--edit")
    assert line.startswith(expected)
    [file] = kept.iterdir()
    assert line.endswith(f"{KEPT}{file}; mend it, then `ganger job retry 3 --ops {file}`")
    assert file.read_text() == text


def test_a_text_that_is_not_utf_8_is_kept_as_it_is(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    does(editor, r"printf '\377' > $1")
    assert refusal(daemon, "3", "--edit").startswith("the edited opcodes: not UTF-8 text")
    [file] = kept.iterdir()
    assert file.read_bytes() == b"\xff"


@pytest.mark.parametrize(
    "error", [errors.OpcodeError("unknown opcode 'OP_X'"), errors.DaemonUnreachableError("away")]
)
def test_a_text_that_the_daemon_does_not_take_is_kept(
    daemon: RetryDaemon, editor: Path, kept: Path, error: errors.GangerError
) -> None:
    daemon.refusal = error
    writes(editor, '[{"OP_ID": "OP_X"}]')
    done = retry("3", "--edit")
    [file] = kept.iterdir()
    assert type(done.exception) is type(error)
    assert str(done.exception).startswith(f"{error.text}{KEPT}{file};")
    assert file.read_text() == '[{"OP_ID": "OP_X"}]'


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_emptied_file_submits_nothing_and_leaves_nothing(
    daemon: RetryDaemon, editor: Path, kept: Path, text: str
) -> None:
    writes(editor, text)
    assert refusal(daemon, "3", "--edit") == "the edited file is empty: nothing is submitted"
    assert list(kept.iterdir()) == []


def test_a_file_that_was_not_saved_submits_nothing(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    does(editor, "true")
    assert refusal(daemon, "3", "--edit") == (
        "nothing was saved: nothing is submitted (as it was: `ganger job retry 3`)"
    )
    assert list(kept.iterdir()) == []


def test_a_file_that_the_editor_removed_submits_nothing(daemon: RetryDaemon, editor: Path) -> None:
    does(editor, "rm $1")
    assert "the editor has left no file" in refusal(daemon, "3", "--edit")


# Editors.


def test_an_editor_that_fails_is_named_and_what_it_wrote_is_kept(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    writes(editor, "precious", "exit 3")
    line = refusal(daemon, "3", "--edit")
    [file] = kept.iterdir()
    assert line.startswith(f"{editor}: Editing failed{KEPT}{file}")
    assert file.read_text() == "precious"


def test_an_editor_that_fails_and_wrote_nothing_leaves_nothing(
    daemon: RetryDaemon, editor: Path, kept: Path
) -> None:
    does(editor, "exit 3")
    assert refusal(daemon, "3", "--edit") == f"{editor}: Editing failed"
    assert list(kept.iterdir()) == []


def test_an_editor_that_does_not_exist_is_named(daemon: RetryDaemon, kept: Path) -> None:
    assert refusal(daemon, "3", "--edit").startswith("/nonexistent/editor: Editing failed")
    assert list(kept.iterdir()) == []


def test_visual_goes_before_editor_and_may_have_options(
    daemon: RetryDaemon, editor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(editor, 'test "$1" = --wait && touch $2')
    monkeypatch.setenv("EDITOR", "/nonexistent/editor")
    monkeypatch.setenv("VISUAL", f"{editor} --wait")
    assert retry("3", "--edit").output == "17\n"
    assert len(daemon.asked) == 1


def test_without_any_editor_the_error_names_the_variable(
    daemon: RetryDaemon, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDITOR")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(daemon, "3", "--edit").endswith("(EDITOR names the editor to use)")
    assert list(kept.iterdir()) == []


def test_without_a_choice_the_usual_editor_opens(
    daemon: RetryDaemon, editor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(editor, "touch $1")
    (tmp_path / "bin").mkdir()
    editor.rename(tmp_path / "bin" / "nano")
    monkeypatch.delenv("EDITOR")
    # The path of the shell's own commands stays behind it, so that `touch` is found.
    monkeypatch.setattr("shutil.which", lambda name: name if name == "nano" else None)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert retry("3", "--edit").output == "17\n"
    assert len(daemon.asked) == 1
