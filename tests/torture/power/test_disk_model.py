"""The disk that loses power, and the recorder that feeds it: they lose what they may, no more."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.torture.power.disk import (
    BLOCK,
    EVERYTHING,
    NOTHING,
    ROOT,
    Change,
    Disk,
    Evicted,
    Flushed,
    FlushFailed,
    Image,
    Loss,
    Named,
    Resized,
    Written,
)
from tests.torture.power.machine import Machine, opcode
from tests.torture.power.power_loss import lose_power_everywhere, repeat
from tests.torture.power.recorder import Recorder

from ganger.storage.disk import documents
from ganger.storage.log import cut
from ganger.transport.messages import JobSpec

FILE, OTHER, FOLDER = 1, 2, 3


def trees(
    *changes: Change, image: Image | None = None, names_in_order: bool = False
) -> list[dict[str, bytes | None]]:
    """Everything that may be left, as far as many losses show it; the extremes first."""
    disk = Disk(image, names_in_order=names_in_order)
    for change in changes:
        disk.take(change)
    dice = random.Random(1)
    chosen = [Loss.chosen(dice, names_in_order=names_in_order) for _ in range(300)]
    return [disk.crash(dice, loss).tree() for loss in (NOTHING, EVERYTHING, *chosen)]


def create(inode: int, name: str, directory: int = ROOT) -> Named:
    return Named(((directory, name, inode),))


def test_without_a_flush_any_subset_of_the_names_survives() -> None:
    found = trees(create(FILE, "a"), create(OTHER, "b"))
    assert {frozenset(tree) for tree in found} == {
        frozenset(), frozenset("a"), frozenset("b"), frozenset("ab"),
    }  # fmt: skip


def test_a_flushed_file_keeps_its_data_and_may_lose_its_name() -> None:
    found = trees(create(FILE, "a"), Written(FILE, 0, b"data"), Flushed(FILE))
    assert found[0] == {}
    assert {tree["a"] for tree in found if tree} == {b"data"}


def test_a_flushed_directory_keeps_its_names_and_may_lose_the_data_and_its_own_name() -> None:
    folder = Named(((ROOT, "d", FOLDER),), FOLDER)
    found = trees(folder, create(FILE, "a", FOLDER), Written(FILE, 0, b"data"), Flushed(FOLDER))
    assert found[0] == {}
    assert {frozenset(tree) for tree in found} == {frozenset(), frozenset({"d", "d/a"})}
    assert {b"", b"data"} <= {tree["d/a"] for tree in found if tree}


def test_a_flush_of_the_file_system_keeps_everything() -> None:
    found = trees(create(FILE, "a"), Written(FILE, 0, b"data"), Flushed(None))
    assert all(tree == {"a": b"data"} for tree in found)


@pytest.mark.parametrize("flushed", [FILE, None])
def test_after_a_failed_flush_the_next_one_succeeds_and_the_data_may_be_gone(
    flushed: int | None,
) -> None:
    changes = (create(FILE, "a"), Written(FILE, 0, b"data"), FlushFailed(flushed), Flushed(None))
    found = {tree["a"] for tree in trees(*changes)}
    assert {b"", b"data"} <= found
    # Written again into the same block, it may be gone all the same.
    for more in (Written(FILE, 0, b"data"), Written(FILE, 4, b"!")):
        found = {tree["a"] for tree in trees(*changes, more, Flushed(flushed), Flushed(None))}
        assert b"" in found
        assert len(found) > 1
    # Another block is not in doubt, nor another file, nor this block when it is another one now.
    behind = trees(*changes, Written(FILE, BLOCK, b"!"), Flushed(flushed), Flushed(None))
    assert all((tree["a"] or b"").endswith(b"!") for tree in behind)
    for between in (Evicted(FILE), Resized(FILE, 0)):
        again = trees(*changes, between, Written(FILE, 0, b"data"), Flushed(flushed), Flushed(None))
        assert all(tree == {"a": b"data"} for tree in again)
    other = trees(*changes, create(OTHER, "a"), Written(OTHER, 0, b"data"), Flushed(None))
    assert all(tree == {"a": b"data"} for tree in other)


def test_pages_that_leave_the_memory_are_read_from_the_disk(tmp_path: Path) -> None:
    (root := tmp_path / "root").mkdir()
    recorder = Recorder(root)
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        documents.replace(f"{root}/a", b"old", flush=True)
        documents.replace(f"{root}/b", b"new", flush=False)
        recorder.refuse_writing_back()
        assert documents.read(f"{root}/b") == b"new"
        for name in "ab":
            documents.drop_pages(f"{root}/{name}")
        cut.flush_file_system(root)
        assert documents.read(f"{root}/a") == b"old"
        assert documents.read(f"{root}/b") == b"\0\0\0"
        documents.replace(f"{root}/c", b"dirty", flush=False)
        recorder.evict_all()
        assert documents.read(f"{root}/c") == b"dirty"
    recorder.check()


@pytest.mark.parametrize(
    "change",
    [
        Named(((ROOT, "new", None), (ROOT, "a", OTHER))),
        Named(((ROOT, "new", FILE), (ROOT, "a", OTHER))),
    ],
)
def test_a_rename_or_an_exchange_happens_entirely_or_not_at_all(change: Named) -> None:
    image = Image({ROOT: {"a": FILE, "new": OTHER}}, {FILE: b"old", OTHER: b"new"})
    before = image.tree()
    [_, after, *_] = found = trees(change, image=image)
    assert before != after
    assert all(tree in (before, after) for tree in found)
    assert before in found


def test_a_torn_write_leaves_each_sector_old_or_new() -> None:
    image = Image({ROOT: {"a": FILE}}, {FILE: b"o" * 2048})
    found = {tree["a"] for tree in trees(Written(FILE, 256, b"n" * 1500), image=image)}
    new = b"o" * 256 + b"n" * 1500 + b"o" * 292
    assert len(found) > 4
    for data in found:
        assert data is not None
        assert len(data) == 2048
        for start in range(0, 2048, 512):
            assert data[start : start + 512] in (b"o" * 512, new[start : start + 512])


def test_a_file_may_have_grown_without_its_data() -> None:
    found = {tree["a"] for tree in trees(create(FILE, "a"), Written(FILE, 0, b"data")) if tree}
    assert found == {b"", b"data", bytes(4)}


def test_cutting_a_file_may_be_lost_too() -> None:
    image = Image({ROOT: {"a": FILE}}, {FILE: b"data"})
    assert {tree["a"] for tree in trees(Resized(FILE, 1), image=image)} == {b"d", b"data"}


def test_what_is_flushed_again_in_another_directory_takes_the_name_along() -> None:
    moved = Named(((ROOT, "a", None), (FOLDER, "a", FILE)))
    image = Image({ROOT: {"d": FOLDER}, FOLDER: {}}, {})
    found = trees(create(FILE, "a"), moved, Flushed(FOLDER), image=image)
    assert all(set(tree) == {"d", "d/a"} for tree in found)


def test_names_in_order_survive_as_the_first_ones_and_follow_any_flush() -> None:
    changes = (create(FILE, "a"), create(OTHER, "b"))
    found = {frozenset(tree) for tree in trees(*changes, names_in_order=True)}
    assert found == {frozenset(), frozenset("a"), frozenset("ab")}
    flushed = trees(create(FILE, "a"), Flushed(OTHER), names_in_order=True)
    assert all(set(tree) == {"a"} for tree in flushed)


def test_an_image_lies_in_a_folder_as_it_is(tmp_path: Path) -> None:
    image = Image({ROOT: {"a": FILE, "b": FILE, "d": FOLDER}, FOLDER: {}}, {FILE: b"data"})
    image.materialise(tmp_path / "made")
    assert (tmp_path / "made" / "a").read_bytes() == b"data"
    assert (tmp_path / "made" / "a").samefile(tmp_path / "made" / "b")
    assert list((tmp_path / "made" / "d").iterdir()) == []


# ------------------------------------------------------------ the recorder


def test_the_recorder_sees_every_way_in_which_storage_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    recorder = Recorder(root)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        documents.make_directory(root / "d" / "e")
        documents.replace(root / "d" / "a", b"one", flush=True)
        assert not documents.exchange(f"{root}/d/b", b"two", f"{root}/d/spare")
        assert documents.exchange(f"{root}/d/b", b"three", f"{root}/d/spare")
        os.link(root / "d" / "a", root / "linked")
        os.unlink(root / "d" / "a")
        cut.flush_file_system(root)
    recorder.check()
    kinds = [type(entry).__name__ for entry in recorder.entries]
    assert kinds.count("Flushed") == 3
    (root / "unseen").write_bytes(b"")
    with pytest.raises(AssertionError, match="unseen"):
        recorder.check()


# ------------------------------------------------------------ the campaign


def test_a_product_that_forgets_a_flush_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(machine: Machine) -> None:
        machine.submit(JobSpec(ops=[opcode("work")]))
        machine.end_turn()

    for flush in ("disk.documents.flush_directory", "log.cut.flush_file_system"):
        monkeypatch.setattr(f"ganger.storage.{flush}", lambda *_: None)
    faults = lose_power_everywhere(submit, tmp_path, losses=6)
    assert any("gone without a word" in fault for fault in faults)
    assert any("given out again" in fault for fault in faults)


def test_a_product_that_only_repeats_a_failed_flush_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_flush(machine: Machine) -> None:
        machine.submit(JobSpec(ops=[opcode("work")]))
        machine.end_turn()
        machine.fails_next_sync = True
        # The compactor writes the file, and its flush fails; the next attempt goes well.
        machine.rest()
        for _ in range(2):
            machine.run_timers()
            machine.end_turn()
        assert not machine.fails_next_sync

    assert lose_power_everywhere(fail_to_flush, tmp_path, losses=3) == []
    for call in ("replay.write_anew", "read_back.check_content"):
        monkeypatch.setattr(f"ganger.storage.queue_files.{call}", lambda *_: None)
    faults = lose_power_everywhere(fail_to_flush, tmp_path, losses=3)
    assert any("quarantined" in fault for fault in faults)


def test_a_case_is_repeated_by_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganger.storage.log.cut.flush_file_system", lambda *_: None)
    cases = range(24, 32)
    first = [repeat(5, case, tmp_path) for case in cases]
    assert any(first)
    assert [repeat(5, case, tmp_path) for case in cases] == first


def test_what_a_second_loss_brought_back_of_an_archived_job_is_repaired(tmp_path: Path) -> None:
    """A whole campaign has found it: the queue has state 4 again, and the archive has state 5."""
    assert repeat(3279728223, 80, tmp_path) == []
