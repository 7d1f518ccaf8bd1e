"""Programs in namespaces of their own, which tell what they have found as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.checkout import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def unshare() -> list[str]:
    """The words that give a command a mount namespace of its own."""
    # What still runs when the first process ends, ends with its process namespace.
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    private = ["--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    return ["unshare", *as_user, "--mount", *private]


def problem() -> str:
    """Why no command can have one; "": it can."""
    if shutil.which("unshare") is None:
        return "needs a private mount namespace: there is no unshare"
    trial = [*unshare(), "mount", "-t", "tmpfs", "none", "/mnt"]
    tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    return f"needs a private mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


def told_by(program: str, folder: Path, *more: str, seconds: float = 110) -> dict[str, Any]:
    """What this program tells in its last line. ``more``: namespaces, as `unshare` calls them."""
    done = subprocess.run(
        [*unshare(), *more, sys.executable, "-m", program, os.fspath(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
