"""How many files of Ganger a submission and a read pass through: ``python -m bench.paths``.

A daemon runs with a profile function in each of its threads, and so does the client in this
process. A file counts if a function of it is called on the way: in the client between the call of
the verb and its return, in the daemon until the reply leaves, by the thread that sends it.

What other threads do meanwhile, and what follows from the reply, is not on the way. What the daemon
does by its clock, or still for the call before, may fall into any round: a file counts if each
round enters it.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TextIO

from bench.lines import ROOT
from bench.path_recorder import Recorder

from ganger import Client

SUBMISSION_MAX = 35
READ_MAX = 20
_ROUNDS = 15
_WARM_UP = 3
_START_SECONDS = 60.0
NO_OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0.000001, "on_master": False}
"""As in `bench.ganger_side`: a job that ends well."""


class Passed(NamedTuple):
    """The files of the client's process and of the daemon's that one call has passed through."""

    client: set[str]
    daemon: set[str]

    @property
    def files(self) -> set[str]:
        """Of both."""
        return self.client | self.daemon


class Probe:
    """The recorders of both processes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._own = Recorder()
        self._own.install()

    def _tell(self, line: str) -> list[str]:
        self._stream.write(f"{line}\n")
        self._stream.flush()
        return self._stream.readline().split()

    def in_each_round(self, call: Callable[[], object], settle: Callable[[], object]) -> Passed:
        """What ``call`` passes through each time; ``settle`` waits for what follows from it."""
        rounds = []
        for _ in range(_WARM_UP + _ROUNDS):
            self._tell("begin")
            self._own.begin()
            call()
            until = time.monotonic()
            own = self._own.files(until)
            rounds.append(Passed(own, {*self._tell(f"end {until}")}))
            settle()
        return Passed(*map(set.intersection, *rounds[_WARM_UP:]))


def _connected(path: Path) -> socket.socket:
    """A connection to the daemon's recorder, which listens soon."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(str(path))
        except OSError:
            end.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return end


def _show(name: str, passed: Passed, most: int, *, is_listed: bool) -> None:
    counts = f"client {len(passed.client)}, daemon {len(passed.daemon)}"
    print(f"{name:<12}{len(passed.files):>4} files (at most {most}): {counts}")
    for file in sorted(passed.files) if is_listed else ():
        places = [
            place for place, files in zip(Passed._fields, passed, strict=True) if file in files
        ]
        print(f"    {file}  {' '.join(places)}")


def _may_change(client: Client, job_id: int) -> bool:
    found = client._streams.job_versions(None)  # noqa: SLF001 - no verb gives the versions
    return not dict(zip(*found, strict=True))[job_id]


def _measure(client: Client, probe: Probe, *, is_listed: bool) -> None:
    ids: list[int] = []

    def submit() -> None:
        ids.append(client.submit(NO_OP))

    def wait_for_rest() -> None:
        """Until the queue has the job's last word: then its file alone has the job."""
        client.wait(ids[-1])
        deadline = time.monotonic() + _START_SECONDS
        while _may_change(client, ids[-1]):
            assert time.monotonic() < deadline, "the job's process is there for ever"

    passed = probe.in_each_round(submit, wait_for_rest)
    _show("submission", passed, SUBMISSION_MAX, is_listed=is_listed)
    passed = probe.in_each_round(lambda: client.job(ids[-1]), lambda: None)
    _show("read", passed, READ_MAX, is_listed=is_listed)


def main() -> None:
    """Start a daemon, measure and print."""
    parser = argparse.ArgumentParser(description="Count the files that one call passes through.")
    parser.add_argument("--list", action="store_true", help="name the files")
    is_listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        data, path = Path(folder, "data"), Path(folder, "recorder")
        words = [sys.executable, "-m", "bench.path_recorder", str(path), str(data)]
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as daemon:
            assert daemon.stdout is not None
            try:
                # It prints a line when it is ready.
                daemon.stdout.readline()
                with _connected(path) as end, end.makefile("rw") as stream:
                    probe = Probe(stream)
                    with Client(data) as client:
                        _measure(client, probe, is_listed=is_listed)
            finally:
                daemon.terminate()


if __name__ == "__main__":
    main()
