"""A life on a disk of 6 MB, in a mount namespace of its own: told step by step as JSON.

`test_full_disk_of_6_mb` runs this as a program, and looks at what it tells. The disk is a memory
file system. Only commands act on the queue, as a user would type them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from tests.faults.harness import Daemon, wait_until_true

SIZE_KIB = 6 * 1024
PATIENCE_SECONDS = 60.0
LEFT_KIB = 68
"""A quarter of the reserve, above which the disk is not full, and a block."""

LARGE = "x" * 25_000
VERBOSE = "while :; do head -c 100000 /dev/urandom | base64; sleep 0.02; done"


class Life:
    """The daemon on the small disk, and what was told so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon = Daemon(folder, "--no-rapi")
        self.told: dict[str, Any] = {}

    def run(self, *words: str) -> tuple[int, str]:
        """One command: its exit code, and all that it prints."""
        done = self.daemon.run(*words, check=False)
        return done.returncode, done.stdout + done.stderr

    def until(self, text: str, *words: str) -> str:
        """What a command prints as soon as ``text`` is in it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in (said := self.run(*words)[1]):
            if time.monotonic() > end:
                raise AssertionError(f"{words} never said {text!r}, but: {said}")
            time.sleep(0.2)
        return said

    def submit(self, *argv: str) -> int:
        """As ``exec -d``: the id of the job. To begin a command each time takes long."""
        with self.daemon.client() as client:
            return client.submit([{"OP_ID": "OP_EXEC", "argv": list(argv)}])

    def status(self) -> dict[str, Any]:
        """What ``ganger status`` says as JSON."""
        found: dict[str, Any] = json.loads(self.run("status", "-o", "json")[1])
        return found

    def note(self, name: str, *words: str) -> None:
        """Run a command, and tell its exit code and what it prints."""
        self.told[name] = self.run(*words)

    def play(self) -> None:
        """Fill the disk twice, and empty it by commands."""
        self.told["open"] = self.status()
        self._fill_with_output()
        self._fill_with_small_jobs()
        self._fill_with_held_jobs()
        self._configure_much()
        self._fill_from_outside()
        self.told["end"] = self.status()
        self.note("last job", "exec", "echo", "well")
        self.note("down", "down")
        self.note("fsck", "fsck")
        self.told["log"] = self.daemon.places.log.read_text()

    def _fill_with_output(self) -> None:
        self.note("verbose", "exec", "-d", "--", "sh", "-c", VERBOSE)
        self.told["why"] = self.until("its output is dropped", "job", "why", "1")
        self.told["full of output"] = self.status()
        self.note("check", "status", "--check")
        self.note("meanwhile", "exec", "true")
        self.note("kill", "job", "cancel", "--kill", "1")
        self.until(" killed ", "job", "list", "1")
        self.note("dry purge", "job", "purge", "--larger-than", "1M", "--dry-run")
        self.note("archive", "job", "archive", "1")
        self.note("purge", "job", "purge", "1")
        self.told["emptied"] = self.status()

    def _fill_with_small_jobs(self) -> None:
        """Small jobs are all that can be purged, and there is no room for one more."""
        for _ in range(5):
            self.run("exec", "true")
        other = self.folder / "other"
        with other.open("wb", buffering=0) as file:
            # Spares go meanwhile, and then there may be room all the same.
            for _ in range(40):
                self._leave(file, LEFT_KIB * 1024)
                said = self.run("exec", "true")[1]
                self.told["no room"] = status = self.status()
                if status["lacks_room"] and "the disk has no room for 1 more job" in said:
                    break
            self.note("status without room", "status")
            self.note("queue without room", "queue", "info")
            self.note("check without room", "status", "--check")
            self.note("purge of large jobs", "job", "purge", "--larger-than", "1M")
            self.note("purge of all", "job", "purge", "--older-than", "all", "-o", "json")
            self.told["free again"] = self.status()["disk"]["free"]
            self.note("room again", "exec", "true")
        other.unlink()

    def _configure_much(self) -> None:
        """The configuration is larger than what is kept for a start."""
        with self.daemon.client() as client:
            for number in range(100):
                other = ["opcode", ["=", "OP_ID", f"OP_NONE_{number}"]]
                client.add_filter(predicates=[other], reason="x" * 1_000)
        self.note("down with much", "down")
        self.note("up with much", "up")
        self.told["configured bytes"] = self.daemon.places.config.stat().st_size

    def _leave(self, other: IO[bytes], left: int) -> None:
        """Give another program so much that ``left`` bytes are free."""
        found = os.statvfs(self.folder)
        size = os.fstat(other.fileno()).st_size + found.f_bavail * found.f_frsize - left
        os.ftruncate(other.fileno(), size)
        os.posix_fallocate(other.fileno(), 0, size)

    def _fill_from_outside(self) -> None:
        self.note("quiet", "exec", "-q", "sh", "-c", "head -c 1500000 /dev/urandom | base64")
        queue = self.daemon.places.queue
        self.note("held", "filter", "add", "--name", "held", "--action", "PAUSE")
        # The zeros behind the log's records have no room for so large states.
        waiting = [int(self.run("exec", "-d", "true", LARGE)[1]) for _ in range(20)]
        # A file that is still to be written would be the write that fails.
        files = [queue / f"job-{job_id}" for job_id in waiting]
        wait_until_true(
            lambda: all(file.exists() and file.stat().st_size > 0 for file in files),
            "the files of the jobs are written",
        )
        with (self.folder / "other").open("ab", buffering=0) as other:
            fill(other)
            # Nothing is free, and the queue has written nothing since.
            self.note("status when nothing is free", "status")
            self.told["status as JSON"] = self.status()
            self.until("takes no new jobs: the disk is full", "exec", "-d", "true")
            self.note("queue when nothing is free", "queue", "info")
            self.told["reserve when nothing is free"] = (queue / "reserve").exists()
            while (queue / "reserve").exists():
                fill(other)
                # The queue wants to write something, and notices.
                self.run("job", "cancel", str(waiting.pop()))
            fill(other)
        self.told["full"] = self.status()
        self.note("refused", "exec", "true")
        self.note("check when full", "status", "--check")
        self._start_when_full()
        self.note("purge when full", "job", "purge", "--larger-than", "1M")
        self.until("Queue:      open", "status")
        self.note("let go", "filter", "delete", "held")
        self.note("at work again", "exec", "true")
        os.unlink(self.folder / "other")

    def _fill_with_held_jobs(self) -> None:
        """Nothing has ended, and others have the last byte: jobs that wait are all there is."""
        self.note("purge all", "job", "purge", "--older-than", "all")
        self.note("pause", "filter", "add", "--name", "waits", "--action", "PAUSE")
        held = [str(self.submit("true")) for _ in range(12)]
        held.append(str(self.submit("true", LARGE)))
        for job_id in held:
            self.run("hold", job_id)
        # Each one is held by a rule of its own.
        self.note("go on", "filter", "delete", "waits")
        self.told["held jobs"] = self.run("job", "list")[1].count(" queued ")
        reserve = self.daemon.places.queue / "reserve"
        other = self.folder / "other"
        with other.open("ab", buffering=0) as file:
            fill(file)
            self.until("the disk is full", "exec", "-d", "true")
            self.note("first priority", "job", "change-priority", "--priority", "-5", held[0])
            # The log has zeros for some of the large states only.
            # What the reserve gave up may have let the queue write again before others took it.
            full = self.status()
            for priority in range(-20, 20):
                if full["is_read_only"] and not reserve.exists():
                    break
                self.run("job", "change-priority", "--priority", str(priority), held[-1])
                fill(file)
                full = self.status()
            self.told["held when full"] = full
            self.note("last priority", "job", "change-priority", "--priority", "-6", held[0])
            self.note("cancel held", "job", "cancel", *held[1:-1])
            fill(file)
            self.note("purge held", "job", "purge", *held[1:-1])
        self.told["held and left"] = self.run("job", "list")[1].count(" queued ")
        other.unlink()
        self.until("Queue:      open", "status")
        self.note("held at the end", "job", "why", held[0])
        self.note("release", "release", held[0])
        self.note("released", "job", "wait", held[0])
        self.run("job", "cancel", held[-1])

    def _start_when_full(self) -> None:
        """Kill the daemon, let others take what that has freed, and start another one."""
        self.daemon.kill()
        with (self.folder / "other").open("ab", buffering=0) as other:
            fill(other)
        self.note("start when full", "up")
        self.told["started when full"] = self.status()


def mount(folder: Path) -> None:
    """Mount the disk at the folder, in this program's own mount namespace."""
    size = f"size={SIZE_KIB}k,mode=700"
    words = ["mount", "-t", "tmpfs", "-o", size, "none", os.fspath(folder)]
    subprocess.run(words, check=True)


def fill(other: IO[bytes]) -> None:
    """Give another program all that is free."""
    with contextlib.suppress(OSError):
        while True:
            other.write(bytes(4096))


def main() -> None:
    """Mount the disk at the folder that was given, and live there."""
    folder = Path(sys.argv[1])
    mount(folder)
    life = Life(folder)
    with life.daemon:
        life.play()
    print(json.dumps(life.told))


if __name__ == "__main__":
    main()
