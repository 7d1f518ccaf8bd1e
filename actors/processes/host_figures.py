"""What this machine says of itself as a node of the cluster.

`figures` reads files of the kernel and asks file systems: a thread calls it, never a turn.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from . import machine

_MIB: Final = 1024 * 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_HARDWARE: Final = Path("/sys/devices/system")


def name() -> str:
    """The name of this machine."""
    return os.uname().nodename


def figures(storage: Sequence[str | os.PathLike[str]]) -> dict[str, Any]:
    """The live fields of a node, by their names in queries; without those that nothing here tells.

    ``storage``: the first of these folders that exists has the disk. Sizes are in MiB.
    """
    cpus = machine.processors()
    sockets = _HARDWARE.glob("cpu/cpu[0-9]*/topology/physical_package_id")
    return {
        **_memory(),
        "ctotal": cpus,
        "cnos": cpus,
        "cnodes": len([*_HARDWARE.glob("node/node[0-9]*")]) or 1,
        "csockets": len({_text(path) for path in sockets} - {None}) or 1,
        "bootid": _text(_BOOT_ID),
        **_disk(storage),
    }


def _memory() -> dict[str, int]:
    try:
        total, available = machine.memory()
    except OSError:
        return {}
    # Together they make up the whole: htools take a difference for memory that is missing.
    sizes = {"mtotal": total, "mnode": total - available, "mfree": available}
    return {name: size // _MIB for name, size in sizes.items()}


def _disk(storage: Sequence[str | os.PathLike[str]]) -> dict[str, int]:
    for folder in storage:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        return {"dfree": free // _MIB, "dtotal": total // _MIB}
    return {}


def _text(path: Path) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def digests(folder: Path) -> dict[str, str]:
    """The SHA-1 of each ssconf file in this folder, by its name; none if there is no folder."""
    found = {}
    for path in sorted(folder.glob("ssconf_*")):
        with contextlib.suppress(OSError):
            found[path.name] = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
    return found
