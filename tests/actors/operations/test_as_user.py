"""Commands that run as another user. They need root, as the daemon of such a host does."""

from __future__ import annotations

import os

import pytest

from ganger.actors.operations.commands import run_command
from ganger.actors.operations.local_context import LocalContext
from ganger.storage.opcodes import OperationError
from ganger.storage.opcodes.catalogue import OpExec

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run(*argv: str, user: str) -> str:
    result = run_command(OpExec(argv=list(argv), user=user), LocalContext())
    assert result is not None
    text: str = result["stdout_tail"]
    return text


@needs_root
def test_a_command_has_user_groups_and_environment_of_its_user() -> None:
    script = "id -un; id -gn; echo $HOME $USER; cat /proc/self/status | grep ^Groups"
    name, group, home, groups = run("sh", "-c", script, user="nobody").splitlines()
    assert (name, group, home.split()[1]) == ("nobody", "nogroup", "nobody")
    assert "\t0" not in groups


@needs_root
def test_a_command_of_a_user_has_only_the_standard_descriptors_and_a_group_of_its_own() -> None:
    script = "ls /proc/self/fd; ps -o pgid= -p $$; echo $$"
    *descriptors, group, pid = run("sh", "-c", script, user="nobody").split()
    # The listing has one of its own.
    assert descriptors == ["0", "1", "2", "3"]
    assert group == pid


@needs_root
@pytest.mark.parametrize(
    ("argv", "user", "problem"),
    [
        (["true"], "nobody-there", "this machine has no user 'nobody-there'"),
        (["/etc/passwd"], "nobody", "'/etc/passwd' is not executable"),
        (["no-such"], "nobody", "'no-such' not found"),
    ],
)
def test_what_cannot_be_is_one_clear_line(argv: list[str], user: str, problem: str) -> None:
    with pytest.raises(OperationError) as caught:
        run(*argv, user=user)
    assert str(caught.value.details[0]) == f"command cannot be started: {problem}"


def test_a_user_who_is_not_root_can_only_be_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(OperationError) as caught:
        run("true", user="root")
    text = "the daemon is not root, and cannot run it as user 'root'"
    assert str(caught.value.details[0]) == f"command cannot be started: {text}"
