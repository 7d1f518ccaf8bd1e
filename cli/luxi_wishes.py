"""Whether a daemon that runs already serves LUXI as the options of `ganger up` say."""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..transport.messages import LuxiState


class LuxiWishes(NamedTuple):
    """The options: where, which group (its id) may do everything, who may read, and if at all."""

    path: str | None = None
    group: int | None = None
    everybody_reads: bool = False
    is_off: bool = False


def without_effect(luxi: LuxiState | None, wishes: LuxiWishes) -> Iterator[str]:
    """The options that a daemon with this state of LUXI (None: not served) does not follow."""
    if wishes.is_off:
        if luxi is not None:
            yield "--no-luxi"
        return
    if wishes.path is not None and (luxi is None or luxi.path != wishes.path):
        yield f"--luxi-socket {wishes.path}"
    status = None if luxi is None else _status(luxi.path)
    if wishes.group is not None and (status is None or status.st_gid != wishes.group):
        yield f"--luxi-group {_name(wishes.group)}"
    if wishes.everybody_reads and (status is None or not status.st_mode & stat.S_IROTH):
        yield "--luxi-anonymous-reads"


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None


def _name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
