"""Runs Ganeti's tools inside `ganeti_tools`: imports them once, and forks for each run.

Started with the folder of the tools, and a socket as standard input. A request is a JSON object,
with four descriptors: standard input, output and errors of the tool, and where its exit code goes.
It runs on Debian's Python, for which Ganeti's modules were built, and imports nothing of ours.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 100_000


def main() -> None:
    """Serve one request after the other, until nobody can ask any more."""
    tools = Path(sys.argv[1])
    sys.path.insert(0, str(tools))
    for path in sorted(tools.glob("gnt-*")):
        importlib.import_module(f"ganeti.client.{path.name.replace('-', '_')}")
    # Objects that no collection looks at stay shared with the forks.
    gc.freeze()
    asking = socket.socket(fileno=os.dup(0))
    asking.send(b"imported")
    # Nobody waits for the children that wait for a tool.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 4)
        if not asked:
            return
        if os.fork() == 0:
            asking.close()
            tell_exit_code(json.loads(asked), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def tell_exit_code(request: dict[str, Any], descriptors: list[int]) -> None:
    """Fork for the tool, wait for its end, and tell its exit code. Returns in the tool alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.fork() == 0:
        run(request, descriptors)
    for descriptor in descriptors[:3]:
        os.close(descriptor)
    _, status = os.wait()
    os.write(descriptors[3], b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def run(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be the tool: its script is executed as Python executes a program, and ends this process."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, max(descriptors) + 1)
    script, *arguments = request["words"]
    code = compile(Path(script).read_bytes(), script, "exec")
    sys.argv = [script, *arguments]
    if request["user"] is not None:
        user, group = request["user"]
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    exit_code: object = 0
    try:
        exec(code, {"__name__": "__main__", "__file__": script})
    except SystemExit as end:
        exit_code = end.code
    except BaseException:  # noqa: BLE001 - shown as Python shows it
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    # Without taking the interpreter apart, which takes longer than most tools.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code if isinstance(exit_code, int) else int(exit_code is not None))


if __name__ == "__main__":
    main()
