"""Words of Ganeti's LuxiD in its answers, which clients of LUXI and of the remote API see. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ...storage.wording import shortened
from .luxi import UnreadableCallError

RESOURCES: Final = ("node", "instance", "group", "network", "job", "lock", "filter", "export")
"""What queries can ask for."""

IN_JOBS_ONLY: Final = {"cluster": "Cluster", "os": "Os"}
"""What only opcodes ask for, with LuxiD's word for it."""


_SHOWN_CHARACTERS_MAX: Final = 400


def not_supported(method: str, what: str) -> str:
    """What refuses a query for something of `IN_JOBS_ONLY`.

    >>> not_supported("Query", "os")
    "Query 'ItemTypeOpCode QROs' not supported"
    """
    return f"{method} 'ItemTypeOpCode QR{IN_JOBS_ONLY[what]}' not supported"


def unknown_resource(what: str) -> str:
    """Why a query for something unknown cannot be read; Ganeti's text lacks a blank, too."""
    return f"Can't parse value '{shortened(what)}' as neitherQueryTypeLuxi nor QueryTypeOp"


def cannot_convert(args: Sequence[object], why: str) -> UnreadableCallError:
    """The refusal of a request whose arguments cannot be read.

    >>> print(cannot_convert(["frob"], "no such resource").text)
    Cannot convert value '["frob"]', error: no such resource
    """
    return UnreadableCallError(f"Cannot convert value '{_beginning(args)}', error: {why}")


def _beginning(args: Sequence[object]) -> str:
    """The arguments in JSON, with blanks as LuxiD writes it, up to some length."""
    shown = ""
    # Piece by piece: there may be millions.
    for piece in json.JSONEncoder().iterencode(args):
        shown += piece[: _SHOWN_CHARACTERS_MAX + 1]
        if len(shown) > _SHOWN_CHARACTERS_MAX:
            return f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
    return shown
