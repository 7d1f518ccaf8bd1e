"""Messages that call methods of WConfD, as its listener sends them."""

from __future__ import annotations

import msgspec

from ganger.actors.ganeti.wconfd_table import METHODS, CallMessage


def call(method: str, *values: object, reveals: bool = False) -> CallMessage:
    """The message with these arguments, the owner among them."""
    made = METHODS[method].message(method, values)
    return msgspec.structs.replace(made, reveals=reveals)
