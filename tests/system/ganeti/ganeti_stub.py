"""Ganeti's own Python client of WConfD, unmodified, in a process of its own.

`make test` unpacks it from Debian's package into ``.ganeti/``. It runs on Debian's Python, for
which the modules that it imports were built.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

UNPACKED = Path(__file__).parents[3] / ".ganeti"
PACKAGES = UNPACKED / "usr/lib/python3/dist-packages"
GANETI = UNPACKED / "usr/share/ganeti/3.0"
PYTHON = Path("/usr/bin/python3")
HOST = "master.example.com"

DRIVER = """
import inspect, json, sys
import ganeti.wconfd
from ganeti.rpc.stub import wconfd as stub

def answer(method, args):
    if method == "methods":
        return sorted(name for name, _ in inspect.getmembers(stub.ClientRpcStub) if name[0] != "_")
    return getattr(client, method)(*args)

print(json.dumps("imported"), flush=True)
client = None
for line in sys.stdin:
    method, args = json.loads(line)
    try:
        client = client or ganeti.wconfd.Client()
        said = ["result", answer(method, args)]
    except Exception as error:
        said = [type(error).__name__, list(error.args)]
    # Ganeti wraps secrets, which are shown only to those who ask for them.
    print(json.dumps(said, default=lambda private: private.Get()), flush=True)
"""


class StubError(Exception):
    """What the client raised: the name of its exception, and its arguments."""


class Stub:
    """One process with one client. ``folder`` has a short path: a socket lies in it."""

    def __init__(self, folder: Path, socket: Path) -> None:
        root = folder / HOST
        at = root / "var/run/ganeti/socket/ganeti-wconfd"
        at.parent.mkdir(parents=True, exist_ok=True)
        at.unlink(missing_ok=True)
        at.symlink_to(socket)
        self._process = subprocess.Popen(
            [PYTHON, "-W", "ignore", "-c", DRIVER],
            env={
                "PYTHONPATH": f"{GANETI}{os.pathsep}{PACKAGES}",
                "GANETI_ROOTDIR": os.fspath(root),
                "GANETI_HOSTNAME": HOST,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "imported"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def call(self, method: str, *args: Any) -> Any:
        """What the method of the stub (``TryUpdateLocks`` ...) returns; `StubError`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, args]) + "\n")
        self._process.stdin.flush()
        kind, value = self._read()
        if kind != "result":
            raise StubError(kind, value)
        return value

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def problem() -> str:
    """Why the client cannot run here; empty if it can."""
    if not GANETI.is_dir():
        return (
            "needs Ganeti's Python client (make test unpacks it from Debian's package ganeti-3.0)"
        )
    if not PYTHON.exists():
        return f"Ganeti's Python client needs {PYTHON}"
    tried = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", "import ganeti.wconfd"],
        env={"PYTHONPATH": f"{GANETI}{os.pathsep}{PACKAGES}"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = tried.stderr.strip().rpartition("\n")[2]
    return f"Ganeti's Python client does not run on {PYTHON}: {last}" if tried.returncode else ""
