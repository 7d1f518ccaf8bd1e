"""The lock manager on a stage: nothing is announced before it is on disk."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from unittest import mock

import pytest
from tests.actors.locks.lock_stage import NODE_A, NODE_B, Locks
from tests.actors.runtime.stage import Stage
from tests.refusals import OneRefusal, refusing

from ganger.actors.locks.lock_manager import LockManager
from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.locks.locks import Owner
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import LocksGranted, LocksPending


def test_a_grant_is_on_disk_before_it_is_announced(locks: Locks) -> None:
    one = locks.owner(1)
    asker = locks.request(one, (NODE_A, "exclusive"))
    assert asker.answers == []
    locks.actor.end_turn()
    assert asker.answer == LocksGranted()
    assert locks.on_disk() == {1: [NODE_A]}


def test_a_waiting_request_gets_its_blockers_and_then_its_locks(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    asker = locks.ask(two, (NODE_A, "shared"))
    assert asker.answer == LocksPending(blockers=[one])
    done = locks.actor.ask(messages.ReleaseLocks(owner=one))
    assert done.answer == messages.Done()
    assert asker.answers[1:] == [LocksGranted()]
    assert [envelope.number for envelope in asker.envelopes] == [2, 2]
    assert locks.on_disk() == {2: [NODE_A]}


def test_a_waiting_owner_sees_since_when_others_hold_what_it_wants(locks: Locks) -> None:
    one, two, three = (locks.owner(number) for number in (1, 2, 3))
    begun = locks.stage.today = 1_800_000_000.0
    locks.take(one, (NODE_A, "exclusive"))
    for waiting in (two, three):
        locks.request(waiting, (NODE_A, "exclusive"))
    for holder in (one, two):
        asked = locks.question(messages.ExplainOwner(lock_file=three.lock_file))
        [want] = asked.answer_as(messages.OwnerExplained).locks
        [(job_id, mode, since)] = want.holders
        assert (job_id, mode) == (holder.identifier, "exclusive")
        assert since == begun
        begun = locks.stage.today = begun + 60.0
        locks.actor.ask(messages.ReleaseLocks(owner=holder))


@pytest.mark.parametrize("change", ["shared", "release"])
def test_a_request_that_releases_a_lock_wakes_the_next_owner(locks: Locks, change: str) -> None:
    one, two = locks.holder_and_other()
    waiting = locks.ask(two, (NODE_A, "shared"))
    asker = locks.ask(one, (NODE_A, change), (NODE_B, "exclusive"))
    assert asker.answer == LocksGranted()
    assert waiting.answers[1:] == [LocksGranted()]


def test_a_request_that_is_repeated_is_answered_again(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.take(one, (NODE_A, "exclusive"))
    first, again = (locks.request(two, (NODE_A, "exclusive")) for _ in range(2))
    locks.actor.end_turn()
    assert again.answer == LocksPending(blockers=[one])
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    assert again.answers[1:] == [LocksGranted()]
    # The word of the grant goes to where the owner is reached now.
    assert LocksGranted() not in first.answers


def test_the_locks_of_the_dead_are_free_and_the_line_is_empty(locks: Locks) -> None:
    one, two, three = (locks.owner(number) for number in (1, 2, 3))
    locks.take(one, (NODE_A, "exclusive"))
    waiting = [locks.request(owner, (NODE_A, "exclusive")) for owner in (two, three)]
    locks.actor.end_turn()
    for dead in (two, one):
        locks.kill(dead)
        locks.actor.notify(messages.OwnerEnded(lock_file=dead.lock_file))
    locks.actor.end_turn()
    assert LocksGranted() not in waiting[0].answers
    assert waiting[1].answers[-1] == LocksGranted()
    assert locks.on_disk() == {3: [NODE_A]}
    # The requests of the dead take no more room.
    assert locks.actor.component._waiting == {}


def test_owners_that_died_unseen_are_found_when_there_is_doubt(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    asker = locks.request(two, (NODE_A, "shared"))
    locks.kill(one)
    locks.actor.turn(messages.RecheckOwners())
    assert asker.answers[-1] == LocksGranted()


def test_a_dead_owner_keeps_its_locks_until_it_can_be_seen_what_it_left_running(
    locks: Locks,
) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    one, two = locks.holder_and_other()
    asker = locks.request(two, (NODE_A, "shared"))
    locks.kill(one)
    with mock.patch("ganger.actors.locks.lock_manager.sessions.end_left_over", refuse):
        locks.actor.turn(messages.RecheckOwners())
    assert LocksGranted() not in asker.answers
    [timer] = locks.stage.timers
    timer.run_out()
    locks.actor.turn(locks.stage.take_one(messages.RecheckOwners))
    assert asker.answers[-1] == LocksGranted()


def test_a_dead_owner_gets_nothing(locks: Locks) -> None:
    one = locks.owner(1)
    locks.kill(one)
    refusal = locks.request(one, (NODE_A, "shared")).refusal
    assert refusal == ("LockRequestError", f"the owner's lock file {one.lock_file} is dead")
    locks.actor.end_turn()
    assert locks.on_disk() == {}


@pytest.mark.parametrize(
    "changes",
    [[("planet/mars", "shared")], [(NODE_A, "borrow")], [(NODE_A, "shared"), (NODE_A, "release")]],
)
def test_an_invalid_request_is_refused_and_changes_nothing(
    locks: Locks, changes: list[tuple[str, str]]
) -> None:
    one = locks.owner(1)
    locks.take(one, (NODE_B, "shared"))
    assert locks.request(one, *changes).refusal[0].startswith("Lock")
    locks.actor.end_turn()
    assert locks.on_disk() == {1: [NODE_B]}


def test_a_more_urgent_request_is_served_first(locks: Locks) -> None:
    one, two, three = (locks.owner(number) for number in (1, 2, 3))
    locks.take(one, (NODE_A, "exclusive"))
    waiting = [locks.request(owner, (NODE_A, "exclusive")) for owner in (two, three)]
    # It repeats its request, as a job does whose priority was changed.
    repeated = messages.RequestLocks(owner=three, priority=-5, changes=[(NODE_A, "exclusive")])
    waiting[1] = locks.actor.say(repeated)
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    assert waiting[1].answers[-1] == LocksGranted()
    assert LocksGranted() not in waiting[0].answers


def test_releasing_nothing_is_answered(locks: Locks) -> None:
    one = locks.owner(1)
    assert locks.actor.ask(messages.ReleaseLocks(owner=one)).answer == messages.Done()


def test_locks_are_listed_with_holders_and_waiting_owners(locks: Locks) -> None:
    one, two = locks.owner(1), locks.owner(2)
    locks.take(one, (NODE_A, "exclusive"), (NODE_B, "shared"))
    locks.request(two, (NODE_A, "shared"))
    assert locks.listed() == [
        messages.LockRow(name="node/[lockset]", mode=None, owners=[], pending=[]),
        messages.LockRow(name=NODE_A, mode="exclusive", owners=["1"], pending=[("shared", ["2"])]),
        messages.LockRow(name=NODE_B, mode="shared", owners=["1"], pending=[]),
    ]


# Restart.


def test_a_successor_has_holders_and_waiting_owners(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.ask(two, (NODE_A, "exclusive"))
    locks.actor = locks.stage.start(LockManager)
    # The waiting job is asked to repeat its request, and goes on where it stood.
    again = locks.ask(two, (NODE_A, "exclusive"))
    assert again.answer == LocksPending(blockers=[one])
    locks.actor.ask(messages.ReleaseLocks(owner=one))
    assert again.answers[1:] == [LocksGranted()]


def test_a_successor_frees_what_belongs_to_the_dead(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    locks.take(two, (NODE_B, "exclusive"))
    locks.kill(one)
    locks.actor = locks.stage.start(LockManager)
    assert [row.name for row in locks.listed() if row.owners] == [NODE_B]
    assert locks.on_disk() == {2: [NODE_B]}


def test_a_torn_file_is_started_afresh_when_no_owner_lives(locks: Locks) -> None:
    locks.stage.places.locks.write_bytes(b"torn")
    locks.actor = locks.stage.start(LockManager)
    assert locks.listed() == []
    assert "locks.data is started afresh" in locks.stage.log_stream.getvalue()


@pytest.mark.parametrize("folder", ["lock_files", "former_lock_files"])
def test_a_torn_file_is_not_passed_over_while_a_job_lives(locks: Locks, folder: str) -> None:
    directory = getattr(locks.stage.places, folder)
    directory.mkdir(parents=True, exist_ok=True)
    held = lock_files.create(directory, "job_000001_1")
    locks.held[Owner(1, held.path, os.getpid())] = held
    locks.stage.places.locks.write_bytes(b"torn")
    locks.stage.make(LockManager, incarnation=2).actor.handle(Envelope(messages.Boot()))
    failed = locks.stage.take_one(messages.ComponentFailed, to="supervisor")
    assert failed.text.startswith("locks.data is not readable: ")
    assert locks.stage.places.locks.read_bytes() == b"torn"


@pytest.mark.parametrize("name", ["locks", "lock_journal"])
def test_a_file_that_cannot_be_read_is_not_started_afresh(locks: Locks, name: str) -> None:
    path = getattr(locks.stage.places, name)
    path.unlink()
    path.symlink_to("nowhere")
    locks.stage.make(LockManager, incarnation=2).actor.handle(Envelope(messages.Boot()))
    failed = locks.stage.take_one(messages.ComponentFailed, to="supervisor")
    assert failed.text.startswith(f"{path}: ")
    assert path.is_symlink()


def test_the_file_is_for_this_user_alone(locks: Locks) -> None:
    locks.take(locks.owner(1), (NODE_A, "shared"))
    for path in (locks.stage.places.locks, locks.stage.places.lock_journal):
        assert path.stat().st_mode & 0o777 == 0o600


# A disk that refuses.


def test_what_is_not_on_disk_is_not_announced_until_it_is(locks: Locks) -> None:
    one, two = locks.holder_and_other()
    asker = locks.request(two, (NODE_A, "shared"))
    with refusing("write"), refusing("pwrite"):
        done = locks.actor.ask(messages.ReleaseLocks(owner=one))
        locks.actor.end_turn()
        assert done.answers == asker.answers == []
        assert locks.on_disk() == {1: [NODE_A]}
        # It tries again by itself, and once at a time.
        [timer] = locks.stage.timers
        timer.run_out()
        locks.actor.turn(*locks.stage.take(messages.DiskRetried, to="lock_manager"))
        assert len(locks.stage.timers) == 2
    locks.stage.timers[1].run_out()
    locks.actor.turn(*locks.stage.take(messages.DiskRetried))
    assert done.answer == messages.Done()
    assert asker.answers[-1] == LocksGranted()
    assert locks.on_disk() == {2: [NODE_A]}
    assert len(locks.stage.timers) == 2


def play_with_one_refusal(root: Path, place: int) -> tuple[bool, object]:
    """A short story in which the disk refuses one change: whether it did, and what came of it."""
    with pytest.MonkeyPatch.context() as patch:
        locks = Locks(Stage(root))
        refusal = OneRefusal(patch, place)
        one, two, three = (locks.owner(number) for number in (1, 2, 3))
        asked = [
            (one, [(NODE_A, "exclusive")]),
            (two, [(NODE_A, "shared")]),
            (three, [(NODE_A, "shared"), (NODE_B, "exclusive")]),
            (one, [(NODE_A, "shared")]),
            (one, []),
            (two, [(NODE_B, "shared")]),
        ]
        askers = []
        for owner, changes in asked:
            with refusal.watching():
                if changes:
                    askers.append(locks.ask(owner, *changes))
                else:
                    askers.append(locks.actor.ask(messages.ReleaseLocks(owner=owner)))
            if locks.stage.timers:
                # Not written yet: nothing is announced. The alarm lets it try again.
                assert askers[-1].answers == []
                locks.stage.run_timers()
                locks.actor.turn(*locks.stage.take(messages.DiskRetried))
        locks.kill(three)
        with refusal.watching():
            locks.actor.turn(messages.OwnerEnded(lock_file=three.lock_file))
        locks.stage.run_timers()
        locks.actor.turn(*locks.stage.take(messages.DiskRetried))
        assert (locks.stage.timers, locks.actor.component._is_disk_awaited) == ([], False)
        kinds = [[type(answer) for answer in asker.answers] for asker in askers]
        seen = kinds, locks.on_disk(), locks.listed()
        for held in (*locks.held.values(), locks.stage.daemon_lock):
            held.remove()
        return refusal.has_come, seen


@pytest.mark.parametrize(("journal_bytes", "least"), [(256 * 1024, 6), (-10_000, 36)])
def test_each_change_that_the_disk_refuses_once_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, journal_bytes: int, least: int
) -> None:
    """Most turns append to the journal, or each writes the whole state."""
    monkeypatch.setattr(settings, "LOCK_JOURNAL_BYTES", journal_bytes)
    _, expected = play_with_one_refusal(tmp_path / "0", 0)
    for place in itertools.count(1):
        has_come, seen = play_with_one_refusal(tmp_path / str(place), place)
        if not has_come:
            break
        assert seen == expected, place
    assert place > least


def test_what_changes_nothing_is_not_written(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    locks.take(locks.owner(1), (NODE_A, "shared"))
    monkeypatch.setattr("ganger.storage.locks.lock_journal.LockJournal.append", None)
    locks.listed()
    locks.actor.end_turn()
