"""What the options of a user permit, and which opcodes he may submit."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ganger.cli import main
from ganger.rapi import roles
from ganger.rapi.declarations import Right
from ganger.storage.access import rapi_users

if TYPE_CHECKING:
    from pathlib import Path

ALL = frozenset(Right)
LOOKS = {Right.NOTHING, Right.READ}
OPERATES = LOOKS | {Right.WAIT, Right.SUBMIT, Right.CANCEL, Right.FILTERS}


def user(options: str) -> rapi_users.User:
    [found] = rapi_users.parse(f"joe {{MD5}}x {options}").values()
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", LOOKS),
        ("read", LOOKS),
        ("exec", LOOKS),
        ("opcode:OP_A", LOOKS),
        ("operate", OPERATES),
        ("operate,opcode:OP_A", OPERATES),
        ("write", ALL),
        ("read,write", ALL),
        ("admin", ALL),
        ("admin,operate", ALL),
    ],
)
def test_the_rights_of_options(options: str, expected: frozenset[Right]) -> None:
    assert roles.rights(user(options)) == expected
    for right in Right:
        refused = roles.refusal(user(options), right)
        assert (refused is None) == (right in expected)
        assert refused is None or f"needs the right to {right.value}; " in refused


def test_nobody_may_look_where_that_needs_no_user_and_do_nothing_else() -> None:
    assert roles.rights(rapi_users.NOBODY) == LOOKS


@pytest.mark.parametrize(
    ("options", "submitted", "may"),
    [
        ("write", "OP_A OP_B", True),
        ("write", "OP_A OP_EXEC", False),
        ("admin", "OP_EXEC", False),
        ("admin,exec", "OP_EXEC OP_A", True),
        ("write,exec", "OP_EXEC", True),
        ("operate", "OP_A", False),
        ("operate,opcode:OP_A", "OP_A", True),
        ("operate,opcode:OP_A", "OP_A OP_B", False),
        ("operate,opcode:OP_A", "op_a", False),
        ("operate,opcode:OP_EXEC", "OP_EXEC", False),
        ("operate,exec", "OP_EXEC", True),
        ("operate,exec,opcode:OP_A", "OP_EXEC OP_A", True),
        ("operate,exec", "OP_A", False),
        ("read,exec", "OP_EXEC", False),
        ("exec", "OP_EXEC", False),
    ],
)
def test_opcodes_that_may_be_submitted(options: str, submitted: str, may: bool) -> None:  # noqa: FBT001
    refused = roles.refusal(user(options), Right.SUBMIT, submitted.split())
    assert (refused is None) == may
    assert refused is None or refused.startswith("user joe may not ")


@pytest.mark.parametrize(
    ("options", "right", "submitted"),
    [
        ("read", Right.SUBMIT, "OP_EXEC"),
        ("", Right.SUBMIT, "OP_EXEC"),
        ("admin", Right.SUBMIT, "OP_EXEC"),
        ("operate,exec", Right.SUBMIT, "OP_TEST_DELAY"),
        ("operate,exec", Right.ADMIN, ""),
    ],
)
def test_a_refusal_names_the_command_that_grants_what_was_refused(
    options: str, right: Right, submitted: str, tmp_path: Path
) -> None:
    users = tmp_path / "rapi" / "users"
    rapi_users.add(users, user(options))
    for _ in range(3):
        [joe] = rapi_users.read(users).values()
        refused = roles.refusal(joe, right, submitted.split())
        if refused is None:
            break
        command = refused.partition("grants it: ")[2]
        words = shlex.split(command)
        assert words[:4] == ["ganger", "rapi", "user", "change"]
        done = CliRunner().invoke(main.ganger, ["--data", str(tmp_path), *words[1:]])
        assert done.exit_code == 0, done.output
    assert roles.refusal(joe, right, submitted.split()) is None


def test_commands_need_the_option_exec_and_no_other_has_it() -> None:
    for option in sorted(rapi_users.OPTIONS - {"exec"}):
        assert roles.refusal(user(f"{option},opcode:OP_EXEC"), Right.SUBMIT, ["OP_EXEC"])
