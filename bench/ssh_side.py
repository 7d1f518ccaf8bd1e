"""Measures commands over ssh with a kept connection, and Ansible's, beside those on a node."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .figures import Timings, row

if TYPE_CHECKING:
    from collections.abc import Sequence

START_SECONDS = 10.0
CALL_SECONDS = 60.0
PARALLEL = 8
_LOOK_SECONDS = 0.05
_PRIVILEGE_FOLDER = Path("/run/sshd")
"""Where sshd wants to lock up the process that it lets speak to strangers, if root runs it."""


def missing() -> str | None:
    """Why there is nothing to measure; None: there is."""
    if shutil.which("ssh") is None:
        return "ssh is not installed"
    return None if _sshd() else "sshd is not installed (openssh-server)"


def _sshd() -> str | None:
    return shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


class Ssh:
    """An ssh daemon on a free port of the loopback, with keys of its own, and a connection to it.

    All that both need is in ``folder``.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._stack = contextlib.ExitStack()
        self.options = [
            *("-F", "none", "-p", str(port), "-i", str(folder / "user")),
            *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder / 'known'}"),
            *("-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-S", str(folder / "control")),
        ]
        self.host = f"{getpass.getuser()}@127.0.0.1"

    def __enter__(self) -> Self:
        """Start the daemon, and make the connection that all commands share."""
        self._folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(words, check=True, timeout=CALL_SECONDS)
        if os.geteuid() == 0:
            _PRIVILEGE_FOLDER.mkdir(exist_ok=True)
        config = self._folder / "config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self._port}\n"
            f"HostKey {self._folder / 'host'}\n"
            f"AuthorizedKeysFile {self._folder / 'user.pub'}\n"
            f"PidFile {self._folder / 'pid'}\n"
            "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "MaxSessions 100\nMaxStartups 100\n"
            # A shell that is not the outermost one reads no start file of the user.
            "SetEnv SHLVL=5\n",
            encoding="ascii",
        )
        daemon = subprocess.Popen(
            [str(_sshd()), "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL
        )
        self._stack.callback(daemon.wait)
        self._stack.callback(daemon.terminate)
        try:
            self._connect()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _connect(self) -> None:
        end = time.monotonic() + START_SECONDS
        words = ["ssh", *self.options, "-M", "-N", "-f", self.host]
        while subprocess.run(
            words, check=False, stderr=subprocess.DEVNULL, timeout=CALL_SECONDS
        ).returncode:
            if time.monotonic() > end:
                raise RuntimeError("sshd lets nobody in")
            time.sleep(_LOOK_SECONDS)
        leave = ["ssh", *self.options, "-O", "exit", self.host]
        self._stack.callback(
            subprocess.run, leave, check=False, stderr=subprocess.DEVNULL, timeout=CALL_SECONDS
        )

    def __exit__(self, *_: object) -> None:
        """End the connection and the daemon."""
        self._stack.close()

    def run(self, words: Sequence[str]) -> None:
        """Run a command there; its output is dropped."""
        subprocess.run(
            ["ssh", *self.options, self.host, *words],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=CALL_SECONDS,
        )


def measure(folder: Path, port: int, steps: int, jobs: int, output: Sequence[str]) -> None:
    """Print the figures; ``output`` is a command with `nodes_side.OUTPUT_BYTES` of output."""
    if (reason := missing()) is not None:
        row("over ssh with a kept connection", f"not measured: {reason}")
        return
    with Ssh(folder / "ssh", port) as ssh:
        timings = Timings()
        for _ in range(steps):
            with timings.one():
                ssh.run(["true"])
        row("over ssh with a kept connection, start to end", timings)
        with ThreadPoolExecutor(PARALLEL) as threads:
            begin = time.perf_counter()
            for _ in threads.map(lambda _: ssh.run(["true"]), range(jobs)):
                pass
        rate = jobs / (time.perf_counter() - begin)
        row(f"over ssh, {PARALLEL} at a time", f"{rate:8.0f} commands per s")
        timings = Timings()
        with timings.one():
            ssh.run(output)
        row("output over ssh", timings)
        _ansible(ssh, folder / "ssh")


def _ansible(ssh: Ssh, folder: Path) -> None:
    """Ansible's command for one host, over the same connection."""
    ours = Path(__file__).parent.parent / ".peers/ansible/bin"
    program = shutil.which("ansible", path=f"{ours}:{os.environ['PATH']}")
    if program is None:
        row("Ansible's ad-hoc command", "not measured: ansible is not installed")
        return
    (folder / "hosts").write_text(f"{ssh.host}\n", encoding="ascii")
    words = [program, "all", "-i", str(folder / "hosts"), "-m", "command", "-a", "true"]
    words += [f"--ssh-common-args={' '.join(ssh.options)}"]
    # It is told what it would find out, and warn of, each time.
    told = {"ANSIBLE_PYTHON_INTERPRETER": "auto_silent", "ANSIBLE_SSH_TRANSFER_METHOD": "piped"}
    timings = Timings()
    for _ in range(3):
        with timings.one():
            subprocess.run(
                words,
                check=True,
                env={**os.environ, **told},
                stdout=subprocess.DEVNULL,
                timeout=CALL_SECONDS,
            )
    row("Ansible's ad-hoc command, start to end", timings)
