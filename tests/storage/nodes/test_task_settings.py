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
    found.check({"OP_ID": "OP_EXEC", "argv": ["true"], "cwd": "/anywhere"})
    with pytest.raises(errors.NotAllowedError) as caught:
        found.check({"OP_ID": "OP_EXEC", "argv": ["true"], "user": "root"})
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
    opcode = {"OP_ID": "OP_EXEC"} | opcode
    if refusal is None:
        found.check(opcode)
        return
    with pytest.raises(errors.NotAllowedError) as caught:
        found.check(opcode)
    assert caught.value.text.startswith(refusal)


def test_calls_and_opcodes_of_packages_are_those_of_the_file(tmp_path: Path) -> None:
    call, greet = {"OP_ID": "OP_NODE_CALL", "call": "node_info"}, {"OP_ID": "OP_GREET"}
    settings(tmp_path, "").check(call)
    settings(tmp_path, "").check(greet)
    found = settings(tmp_path, '[tasks]\ncalls = ["version"]\nopcodes = ["OP_WASH"]\n')
    found.check(call | {"call": "version"})
    with pytest.raises(errors.NotAllowedError, match=r"^call 'node_info' may not be made: .*calls"):
        found.check(call)
    with pytest.raises(errors.NotAllowedError, match=r"^OP_GREET may not run: .*\(opcodes\)"):
        found.check(greet)


@pytest.mark.parametrize(
    ("text", "path", "is_allowed"),
    [
        ("", "/etc/passwd", True),
        ('commands = ["/usr/bin/*"]\n', "/etc/passwd", False),
        ('commands = ["/usr/bin/*"]\npaths = ["/srv/*"]\n', "/srv/site/index.html", True),
        ('paths = ["/srv/*"]\n', "/etc/passwd", False),
        ("paths = []\n", "/srv/x", False),
    ],
)
def test_files_are_those_of_the_file_and_none_if_not_every_command_may_run(
    tmp_path: Path, text: str, path: str, *, is_allowed: bool
) -> None:
    found = settings(tmp_path, f"[tasks]\n{text}")
    if is_allowed:
        found.check_path(path)
        return
    with pytest.raises(errors.NotAllowedError) as caught:
        found.check_path(path)
    assert caught.value.text == (
        f"{path} may not be written or looked at: the host's node.toml does not allow it (paths)"
    )


def test_files_belong_to_users_who_may_have_commands(tmp_path: Path) -> None:
    found = settings(tmp_path, '[tasks]\nusers = ["deploy"]\n')
    found.check_owner("1001", "deploy")
    with pytest.raises(errors.NotAllowedError, match=r"no file may belong to user 'root'.*users"):
        found.check_owner("root")


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
