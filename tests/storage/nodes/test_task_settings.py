from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganger.storage import errors
from ganger.storage.nodes import task_settings
from ganger.storage.nodes.task_settings import TaskSettings


def settings(folder: Path, text: str) -> TaskSettings:
    path = folder / "node.toml"
    path.write_text(text)
    return task_settings.read(path)


def test_without_a_file_commands_run_as_the_daemons_own_user(tmp_path: Path) -> None:
    found = task_settings.read(tmp_path / "node.toml")
    found.check({"argv": ["true"], "cwd": "/anywhere"})
    with pytest.raises(errors.NotAllowedError) as caught:
        found.check({"argv": ["true"], "user": "root"})
    assert caught.value.text == (
        "no command may run as user 'root': the host's node.toml does not allow it (users)"
    )


@pytest.mark.parametrize(
    ("opcode", "refusal"),
    [
        ({"argv": ["sh"], "user": "deploy"}, None),
        ({"argv": ["/bin/sh"]}, None),
        ({"argv": ["sh"], "cwd": "/srv/site"}, None),
        ({"argv": ["sh"], "cwd": "/etc"}, "no command may begin in /etc"),
        ({"argv": ["/tmp/sh"]}, "/tmp/sh may not run"),
        ({"argv": ["sh"], "env": {"PATH": "/tmp"}}, "sh may not run"),
        ({"argv": ["no-such-program"]}, "no-such-program may not run"),
        ({"argv": ["sh"], "user": "root"}, "no command may run as user 'root'"),
    ],
)
def test_users_commands_and_directories_are_those_of_the_file(
    tmp_path: Path, opcode: dict[str, Any], refusal: str | None
) -> None:
    text = '[tasks]\nusers = ["deploy"]\ncommands = ["/bin/*", "/usr/bin/*"]\n'
    found = settings(tmp_path, text + 'directories = ["/", "/srv/*"]\n')
    if refusal is None:
        found.check(opcode)
        return
    with pytest.raises(errors.NotAllowedError) as caught:
        found.check(opcode)
    assert caught.value.text.startswith(refusal)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tasks", "Expected"),
        ("[task]\n", "unknown field `task`"),
        ("[tasks]\nusers = 3\n", "$.tasks.users"),
        ('[tasks]\ncommands = ["ls"]\n', "commands: expected absolute paths, got 'ls'"),
    ],
)
def test_a_wrong_file_is_named_with_its_problem(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(errors.DataDirectoryError) as caught:
        settings(tmp_path, text)
    assert caught.value.text.startswith(f"{tmp_path}/node.toml: ")
    assert problem in caught.value.text
