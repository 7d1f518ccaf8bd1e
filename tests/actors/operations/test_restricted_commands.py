"""Which restricted commands a host runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ganger.actors.operations import restricted_commands
from ganger.actors.operations.restricted_commands import checked
from ganger.storage.opcodes import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(name="folder")
def folder_of_commands(tmp_path: Path) -> Path:
    folder = tmp_path / "commands"
    folder.mkdir()
    folder.chmod(0o755)
    program = folder / "look"
    program.write_text("#!/bin/sh\necho seen; echo told >&2\n")
    program.chmod(0o755)
    return folder


def test_a_command_that_only_its_owner_can_change_may_run(folder: Path) -> None:
    assert checked("look", str(folder)) == str(folder / "look")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (" ", "Missing command name"),
        ("../look", "Invalid command name"),
        ("look\n", "forbidden characters"),
        ("look;ls", "forbidden characters"),
        (".", "forbidden characters"),
        ("nothing", r"Can't stat\(2\)"),
    ],
)
def test_a_name_is_that_of_a_program_there(folder: Path, name: str, text: str) -> None:
    with pytest.raises(Exception, match=text):
        checked(name, str(folder))


def open_folder(folder: Path) -> None:
    folder.chmod(0o775)


def open_program(folder: Path) -> None:
    (folder / "look").chmod(0o757)


def no_program(folder: Path) -> None:
    (folder / "look").chmod(0o644)


def no_folder(folder: Path) -> None:
    (folder / "look").rename(folder.with_name("other"))
    folder.rmdir()
    folder.with_name("other").rename(folder)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (open_folder, "commands' are too permissive"),
        (open_program, "look' are too permissive"),
        (no_program, "can't be executed"),
        (no_folder, "is not a directory"),
    ],
)
def test_what_others_could_change_does_not_run(
    folder: Path, change: Callable[[Path], None], text: str
) -> None:
    change(folder)
    with pytest.raises(Exception, match=text):
        checked("look", str(folder))


def test_a_refusal_takes_its_time_and_tells_the_host_alone(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(OperationError, match="disabled at configure time"):
        restricted_commands.run("look", tmp_path)
    assert slept == []
    (tmp_path / "node.toml").write_text(f'[tasks]\nrestricted_commands = "{folder}"\n')
    assert restricted_commands.run("look", tmp_path) == "seen\ntold\n"
    with pytest.raises(OperationError, match="Executing command 'other' failed") as caught:
        restricted_commands.run("other", tmp_path)
    assert caught.value.details == ["Executing command 'other' failed"]
    assert slept == [restricted_commands.REFUSED_SECONDS]
    assert "Can't stat(2)" in (tmp_path / "daemon.log").read_text()
