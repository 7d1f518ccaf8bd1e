"""The lock journal: what both files say together, after every kind of end of their writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.refusals import refusing

from ganger.storage import errors, settings
from ganger.storage.disk import paths
from ganger.storage.locks import lock_journal
from ganger.storage.locks.lock_journal import LockJournal, StoredLocks, TurnStored
from ganger.storage.locks.locks import (
    LockChange,
    LockMode,
    LocksFile,
    Owner,
    OwnerChanged,
    OwnerLocks,
    Pending,
)
from ganger.storage.log import checked_records

ONE, TWO, THREE = (Owner(number, f"/l/{number}", number) for number in (1, 2, 3))
SHARED, EXCLUSIVE = LockMode.SHARED, LockMode.EXCLUSIVE
A, B = "node/a", "node/b"
WANT_A = ((A, LockChange.EXCLUSIVE),)
BEGUN = LocksFile((OwnerLocks(ONE, ((A, EXCLUSIVE),)),), (Pending(0, TWO, WANT_A),))


@pytest.fixture
def places(tmp_path: Path) -> paths.Places:
    return paths.Places(tmp_path, tmp_path / "run")


@pytest.fixture
def journal(places: paths.Places) -> LockJournal:
    made = LockJournal(places)
    made.begin(BEGUN, {ONE: {A: 5.0}}, {THREE: 5.0})
    return made


def test_without_files_nothing_is_held(places: paths.Places) -> None:
    assert lock_journal.read(places) == StoredLocks()


def test_a_whole_state_is_read_with_its_times_and_fences(
    places: paths.Places, journal: LockJournal
) -> None:
    assert lock_journal.read(places) == StoredLocks(BEGUN, {ONE: {A: 5.0}}, {THREE: 5.0})
    assert not journal.is_due


def test_turns_change_locks_times_lines_and_fences(
    places: paths.Places, journal: LockJournal
) -> None:
    journal.append(TurnStored(6.0, [OwnerChanged(ONE, {B: SHARED}), *in_line(THREE, behind=TWO)]))
    journal.append(TurnStored(7.0, [OwnerChanged(ONE, {A: None, B: EXCLUSIVE})], [TWO]))
    journal.append(TurnStored(8.0, [OwnerChanged(TWO, {A: EXCLUSIVE})]))
    found = lock_journal.read(places)
    held = (OwnerLocks(ONE, ((B, EXCLUSIVE),)), OwnerLocks(TWO, ((A, EXCLUSIVE),)))
    assert found.file == LocksFile(held, (Pending(0, THREE, WANT_A),))
    assert found.since == {ONE: {B: 7.0}, TWO: {A: 8.0}}
    assert found.fenced == {THREE: 5.0, TWO: 7.0}


def test_a_request_takes_its_place_in_line(places: paths.Places, journal: LockJournal) -> None:
    journal.append(TurnStored(6.0, in_line(ONE)))
    journal.append(TurnStored(6.0, in_line(THREE, behind=ONE)))
    line = [pending.owner for pending in lock_journal.read(places).file.pending]
    assert line == [ONE, THREE, TWO]


def test_a_journal_of_an_older_whole_state_is_passed_over(
    places: paths.Places, journal: LockJournal
) -> None:
    """Its writer died between the two files: the new state has the old records in it."""
    journal.append(TurnStored(6.0, [OwnerChanged(ONE, {A: None})]))
    old = places.lock_journal.read_bytes()
    journal.begin(LocksFile(), {}, {})
    places.lock_journal.write_bytes(old)
    assert lock_journal.read(places) == StoredLocks()


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_torn_turn_is_left_out(places: paths.Places, journal: LockJournal, cut: int) -> None:
    journal.append(TurnStored(6.0, [OwnerChanged(THREE, {B: SHARED})]))
    journal.append(TurnStored(7.0, [OwnerChanged(ONE, {A: None})]))
    places.lock_journal.write_bytes(places.lock_journal.read_bytes()[:-cut])
    owners = [one.owner for one in lock_journal.read(places).file.allocation]
    assert owners == [ONE, THREE]


def test_a_refused_turn_is_not_stored_and_the_next_write_is_whole(
    places: paths.Places, journal: LockJournal
) -> None:
    with refusing("pwrite"), pytest.raises(errors.StorageError):
        journal.append(TurnStored(6.0, [OwnerChanged(ONE, {A: None})]))
    assert journal.is_due
    assert lock_journal.read(places).file == BEGUN
    with refusing("write"), pytest.raises(errors.StorageError):
        journal.begin(LocksFile(), {}, {})
    assert journal.is_due
    assert lock_journal.read(places).file == BEGUN
    journal.begin(LocksFile(), {}, {})
    assert lock_journal.read(places).file == LocksFile()


def test_a_whole_state_is_due_when_the_journal_has_outgrown_it(journal: LockJournal) -> None:
    turn = TurnStored(6.0, [OwnerChanged(ONE, {f"node/{'x' * 1000}": SHARED})])
    appended = 0
    while not journal.is_due:
        journal.append(turn)
        appended += 1
    assert appended * 1000 > 0.9 * settings.LOCK_JOURNAL_BYTES


def test_a_journal_of_a_later_format_is_refused(
    places: paths.Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(lock_journal, "FORMAT_VERSION", 2)
        LockJournal(places).begin(BEGUN, {}, {})
    with pytest.raises(errors.DataDirectoryError, match="format 2, supported is 1"):
        lock_journal.read(places)


def test_a_record_of_an_unknown_kind_is_an_error(
    places: paths.Places, journal: LockJournal
) -> None:
    journal.close()
    with places.lock_journal.open("ab") as file:
        file.write(checked_records.packed(b"\x91\xa3odd"))
    with pytest.raises(errors.StorageError, match=r"locks\.journal: a record of an unknown kind"):
        lock_journal.read(places)


def in_line(owner: Owner, behind: Owner | None = None) -> list[OwnerChanged]:
    return [OwnerChanged(owner, {}, (0, WANT_A), behind)]
