from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ganger.storage import errors
from ganger.storage.nodes import seals
from ganger.storage.nodes.host_table import HostRecord
from ganger.storage.nodes.seals import Seal

if TYPE_CHECKING:
    from pathlib import Path


def host(seal: str) -> HostRecord:
    return HostRecord(name="web1", key="k", seal=seal)


def test_each_daemon_of_a_directory_has_a_seal_that_follows_the_one_before(tmp_path: Path) -> None:
    first = seals.begin(tmp_path)
    assert seals.refusal(host(""), first, 0, 0) == ""
    # The answer may be lost: the next daemon shows the same.
    assert seals.begin(tmp_path) == first
    assert seals.settle(tmp_path, first) == Seal(first.following, first.following)
    second = seals.begin(tmp_path)
    assert second.present == first.following
    assert second.following not in {first.following, ""}
    for known in (first.following, second.following):
        assert seals.refusal(host(known), second, 0, 0) == ""


def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    first = seals.settle(tmp_path, seals.begin(tmp_path))
    second = seals.settle(tmp_path, seals.begin(tmp_path))
    problem = seals.refusal(host(second.present), first, 9, 0)
    assert "has an older or second copy of its data directory; `ganger node invite web1`" in problem


def test_a_copy_that_has_forgotten_tasks_is_refused() -> None:
    seal = Seal("a", "a")
    assert seals.refusal(host("a"), seal, 9, 9) == ""
    assert "it has forgotten tasks" in seals.refusal(host("a"), seal, 8, 9)


def test_a_damaged_seal_is_named(tmp_path: Path) -> None:
    seals.path_of(tmp_path).write_text("{")
    with pytest.raises(errors.StorageError, match=r"seal\.json"):
        seals.begin(tmp_path)


def test_a_directory_without_its_seal_stays_refused_until_the_host_joins_anew(
    tmp_path: Path,
) -> None:
    known = seals.settle(tmp_path, seals.begin(tmp_path)).present
    for seal in (seals.discard(tmp_path), seals.begin(tmp_path), seals.begin(tmp_path)):
        assert "an older or second copy" in seals.refusal(host(known), seal, 9, 9)
        assert seals.refusal(host(""), seal, 9, 9) == ""
