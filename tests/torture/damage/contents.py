"""What lies in a directory, of every kind, and what of it may not change when a queue starts."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.torture.damage.damages import Damage
    from tests.torture.damage.judging import Seen

Tree = dict[str, tuple[str, bytes]]
"""Kind and content of everything below a directory, by its path from there."""

_OURS = re.compile(
    r"(queue/)?(serial|version|archive(/\d+)?|quarantine|journal"
    r"|journal/(\d{8}|[1-9]\d{8,17})\.journal|\.spare-[^/]*|\.tmp-job-[^/]*)"
)
"""What a starting queue may write, or clear away."""
_JOB = re.compile(r"(?:archive/\d+/)?job-([1-9]\d*)(/kept)?")


def read(root: Path) -> Tree:
    """Everything below ``root``."""
    found = sorted(Path(os.fspath(root)).rglob("*"))
    return {os.fspath(path.relative_to(root)): _read_one(path) for path in found}


def _read_one(path: Path) -> tuple[str, bytes]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "link", os.fsencode(path.readlink())
    if stat.S_ISREG(mode):
        try:
            return "file", path.read_bytes()
        except PermissionError:
            return "closed file", b""
    return str(stat.S_IFMT(mode)), b""


def lost(before: Tree, after: Tree, seen: Seen, damages: list[Damage]) -> str:
    """Files of others, of unreadable jobs, and of those not hit are as they were."""
    hit = frozenset[int]().union(*(damage.jobs for damage in damages))
    contents = set(after.values())
    for path, what in before.items():
        if _OURS.fullmatch(path) or after.get(path) == what:
            continue
        match = _JOB.fullmatch(path)
        if match is None or int(match[1]) not in hit or int(match[1]) not in seen.rows:
            return f"{path} is no more what it was; named: {seen.named}"
        # The journal made up for it. What had its place may have held something of its own.
        if match[2] and what not in contents:
            return f"{path} is lost"
    return ""
