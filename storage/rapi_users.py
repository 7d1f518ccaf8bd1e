"""The users of the remote API: the file with their names, secrets and rights. Pure.

One line for each user, as in Ganeti's file: ``NAME SECRET [OPTION,...]``. Source: Ganeti 3.0, RAPI.
"""

from __future__ import annotations

import msgspec


class User(msgspec.Struct, frozen=True):
    """One user: a name, and what the options of the line permit."""

    name: str
    secret: str = ""
    """The password, or its hash behind the name of a scheme in braces."""
    options: frozenset[str] = frozenset()
    """``read``, ``write``, ``operate``, ``admin``, ``exec``."""
    opcodes: frozenset[str] = frozenset()
    """The opcodes that an operator may submit."""


NOBODY = User("")
"""Somebody who has not said who he is."""
