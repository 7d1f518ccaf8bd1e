"""How a daemon serves LUXI, the protocol of Ganeti's own tools."""

from __future__ import annotations

import msgspec


class LuxiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon serves LUXI.

    ``path`` None: the socket is in the run directory. ``group``: the id of a group whose members
    may do everything, as the daemon's user and root may. ``everybody_reads``: all other users may
    read; otherwise the socket does not let them in.
    """

    path: str | None = None
    group: int | None = None
    everybody_reads: bool = False

    @property
    def mode(self) -> int:
        """The mode of the socket's file."""
        if self.everybody_reads:
            return 0o666
        return 0o600 if self.group is None else 0o660
