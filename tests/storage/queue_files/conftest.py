"""A queue directory for the tests of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganger.storage.disk import paths
from ganger.storage.queue_files.job_files import QueueDirectory


@pytest.fixture
def places(tmp_path: Path) -> paths.Places:
    (tmp_path / "queue").mkdir()
    return paths.Places(tmp_path, tmp_path / "run")


@pytest.fixture
def queue(places: paths.Places) -> QueueDirectory:
    directory = QueueDirectory(places)
    directory.prepare()
    return directory
