"""The limit on the size of files is raised, or refused before anything is stored."""

from __future__ import annotations

import resource

import pytest

from ganger.storage import errors, settings
from ganger.storage.disk import file_sizes

INFINITE, NEEDED = resource.RLIM_INFINITY, settings.FILE_BYTES_NEEDED


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits in force, soft and hard; the last entry counts."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: found.append(limits))
    return found


@pytest.mark.parametrize("hard", [NEEDED, INFINITE])
@pytest.mark.parametrize("soft", [0, 8_192, NEEDED])
def test_a_daemon_may_write_files_as_large_as_the_system_permits(
    limits: list[tuple[int, int]], soft: int, hard: int
) -> None:
    limits.append((soft, hard))
    file_sizes.raise_limit()
    assert limits[-1] == (hard, hard)


def test_files_that_may_not_become_large_enough_are_refused_with_the_number_needed(
    limits: list[tuple[int, int]],
) -> None:
    limits.append((8_192, NEEDED - 1))
    text = f"{NEEDED - 1:,} bytes at most, and a daemon needs {NEEDED:,}; raise the hard limit"
    with pytest.raises(errors.OperatorError, match=text):
        file_sizes.raise_limit()


def test_a_limit_that_cannot_be_raised_is_refused_as_it_is(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    limits.append((8_192, INFINITE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(errors.OperatorError, match="8,192 bytes at most"):
        file_sizes.raise_limit()
