"""Who may do what over the remote API. Pure.

A user has Ganeti's options ``read`` and ``write``, or a role: ``operate`` for named opcodes, or
``admin``. ``exec`` is the right to run commands (OP_EXEC), which no other option includes.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..storage import wording
from .declarations import Right

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..storage.access.rapi_users import User

COMMAND_OPCODE = "OP_EXEC"

_ANY_USER = frozenset({Right.NOTHING, Right.READ})
_OPERATE = _ANY_USER | {Right.WAIT, Right.SUBMIT, Right.CANCEL, Right.FILTERS}
_ALL = frozenset(Right)


def rights(user: User) -> frozenset[Right]:
    """What the user may do at all."""
    if {"write", "admin"} & user.options:
        return _ALL
    if "operate" in user.options:
        return _OPERATE
    return _ANY_USER


def refusal(user: User, right: Right, opcodes_given: Collection[str] = ()) -> str | None:
    """Why the user may not do this; None if he may. The opcodes are those he would submit.

    Which jobs and rules a limited user may change: `scopes`.
    """
    if right not in rights(user):
        text = f"user {user.name} may not do this: it needs the right to {right.value}"
        return f"{text}; {granted(user, _GRANTS.get(right, _TO_OPERATE))}"
    for opcode in opcodes_given:
        if opcode == COMMAND_OPCODE and "exec" not in user.options:
            text = f"user {user.name} may not submit {opcode}: it needs the option exec"
            return f"{text}; {granted_for(user, opcode)}"
        if is_limited(user) and opcode not in opcodes(user):
            shown = wording.shortened(opcode)
            return f"user {user.name} may not submit {shown}; {granted_for(user, opcode)}"
    return None


_TO_OPERATE = "--role operate --opcode OP_..."
_GRANTS = {Right.SUBMIT: "--role operate --exec", Right.ADMIN: "--role admin"}
"""The options of the command line that give a right to a user who has no more than `read`."""


def granted_for(user: User, opcode: str) -> str:
    """The command that lets the user submit the opcode, and change jobs that have it."""
    is_command = opcode == COMMAND_OPCODE
    return granted(user, "--exec" if is_command else f"--opcode {wording.shortened(opcode)}")


def granted(user: User, options: str = "--role admin") -> str:
    """The command that gives the user what these options stand for."""
    name = shlex.quote(user.name)
    return f"who administers the server grants it: ganger rapi user change {name} {options}"


def is_limited(user: User) -> bool:
    """Whether the user may submit named opcodes only."""
    return not {"write", "admin"} & user.options


def opcodes(user: User) -> frozenset[str]:
    """The opcodes that a limited user may submit."""
    if "exec" in user.options:
        return user.opcodes | {COMMAND_OPCODE}
    return user.opcodes - {COMMAND_OPCODE}
