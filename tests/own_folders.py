"""A run of the tests leaves nothing in the temporary folder but what pytest keeps.

All of its processes make their temporary folders in one, which goes at the end of the run, or at
the beginning of the next one if the run was killed. A daemon's run directory lies in memory, named
by its data directory; it is for the next daemon there, so it stays when the daemon has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from ganger.storage.disk import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFIX = "ganger-tests-"
DEPTH = 2
"""How far below a test's folder data directories lie."""

_VARIABLES = ("TMPDIR", "PYTEST_DEBUG_TEMPROOT")


class OneFolder:
    """The temporary folder of a run; pytest's own folders stay where they would be without it."""

    def __init__(self) -> None:
        self._before = {name: os.environ.get(name) for name in _VARIABLES}
        self._place = tempfile.gettempdir()
        remove_left_over(self._place)
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        # Tests that act as other users pass through it.
        os.chmod(self.path, 0o711)
        self._lock = _locked(self.path)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", self._place)
        os.environ["TMPDIR"] = tempfile.tempdir = self.path

    def pytest_unconfigure(self) -> None:
        """Remove it, whatever is in it."""
        tempfile.tempdir = None
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def remove_left_over(place: str) -> None:
    """Remove the folders of runs that were killed: nobody has them locked."""
    for entry in os.scandir(place):
        if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            if (lock := _locked(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(path: str) -> int | None:
    """A descriptor that has the folder locked; None if another process has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def remove_run_directories(folder: Path, depth: int = DEPTH) -> None:
    """Remove the run directories of all data directories in ``folder``, so deep below it."""
    for directory in (folder, *_below(folder, depth)):
        run = paths.memory_run(directory)
        if run is not None and os.path.lexists(run):
            shutil.rmtree(run, ignore_errors=True)


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        yield folder / name
        if depth > 1:
            yield from _below(folder / name, depth - 1)


@pytest.fixture(autouse=True)
def no_run_directory_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test with a folder of its own, the daemons of which have ended."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None:
        remove_run_directories(folder)


@pytest.fixture(autouse=True, scope="session")
def no_run_directory_of_shared_daemons_left(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """After all tests: the folders of fixtures that tests share."""
    yield
    remove_run_directories(tmp_path_factory.getbasetemp(), DEPTH + 1)
