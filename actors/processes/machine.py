"""What this machine says of its processes and its memory. The home of psutil."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import psutil


def processors() -> int | None:
    """How many processors it has; None if nothing says so."""
    return psutil.cpu_count()


def memory() -> tuple[int, int]:
    """The bytes that it has, and those that are available. Raises `OSError`."""
    found = psutil.virtual_memory()
    return found.total, found.available


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


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def addresses() -> list[str]:
    """Its addresses that other machines may reach, IPv4 first."""
    wanted = {socket.AF_INET: ("127.",), socket.AF_INET6: ("::1", "fe80:")}
    found = [one for each in psutil.net_if_addrs().values() for one in each]
    return [
        one.address
        for family, local in wanted.items()
        for one in found
        if one.family == family and not one.address.startswith(local)
    ]


def boot_time() -> float:
    """When it booted, in epoch seconds on its own clock."""
    return float(psutil.boot_time())


def boot_id() -> str:
    """The identity of this boot of the system; "" if it does not tell."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
