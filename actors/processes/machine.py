"""What this machine says of itself and of its processes. The home of psutil.

`figures` reads files of the kernel and asks file systems: a thread calls it, never a turn.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    cpus = psutil.cpu_count()
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
        found = psutil.virtual_memory()
    except OSError:
        return {}
    # Together they make up the whole: htools take a difference for memory that is missing.
    used = found.total - found.available
    sizes = {"mtotal": found.total, "mnode": used, "mfree": found.available}
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


def resident_bytes(pid: int) -> int | None:
    """The memory of a process; 0 if unknown now, None if there is no such process."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
    except OSError:
        return 0


def end_child_processes() -> None:
    """End the children of this process: fork servers and the like; running jobs go on.

    The threads that watch over them go on meanwhile, so any of them may be reaped at any moment.
    """
    children = psutil.Process().children()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    for child in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, 0)
