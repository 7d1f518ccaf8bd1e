"""Changes wait for the configuration lock, and are made together when the store has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.runtime.stage import Asker
from tests.refusals import refusing

from ganger.actors.config import change_line
from ganger.actors.config.change_line import Made
from ganger.actors.config.stored_configuration import Edit
from ganger.storage import settings
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.locks.locks import CONFIG_LOCK, Owner
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import ObjectsChanged, SetValues


def named(number: int, **values: Any) -> SetValues:
    """Values of one node."""
    changes = [([field], value) for field, value in values.items()]
    return SetValues(ObjectKind.NODE, f"node{number}.example.com", changes, "a test", "somebody")


def node(both: StoreAndLocks, number: int) -> dict[str, Any]:
    asked = messages.ReadObjects(ObjectKind.NODE, [f"node{number}.example.com"])
    [found] = both.say(asked).answer_as(messages.ObjectsRead).objects
    return found


def overdue_alarms(both: StoreAndLocks) -> list[float]:
    """In how many seconds the store looks for changes that are overdue."""
    return [
        timer.seconds
        for timer in both.stage.timers
        if timer.alarm is not None
        and isinstance(timer.alarm.item, Envelope)
        and isinstance(timer.alarm.item.message, messages.ChangesOverdue)
    ]


def flushes(both: StoreAndLocks) -> int:
    return both.stage.log_of_changes.ledger.flushes


def test_a_change_is_made_under_the_lock_which_is_free_again_afterwards(
    both: StoreAndLocks,
) -> None:
    asker = both.say(named(0, powered=False))
    assert asker.answers == []
    both.locks.actor.handle(both.stage.take_requests(messages.RequestLocks)[0])
    held = {CONFIG_LOCK: [both.store.component._changes.owner]}
    assert both.held() == held
    both.store.handle_mail()
    # Nor does the lock go before the log has the change.
    assert (both.held(), asker.answers) == (held, [])
    [appended] = both.stage.take_requests(messages.StoreChanges)
    both.stage.log_of_changes.take(appended)
    both.store.handle_mail()
    assert isinstance(asker.answer, ObjectsChanged)
    both.settle()
    assert both.held() == {}


def test_whoever_makes_a_change_need_not_wait_for_its_entry(
    both: StoreAndLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = both.store.component._stored
    enter, answers = stored.enter, []

    def note_and_enter() -> None:
        answers.append(list(asker.answers))
        enter()

    monkeypatch.setattr(stored, "enter", note_and_enter)
    asker = both.say(named(0, powered=False))
    both.settle()
    assert answers == [asker.answers]
    assert isinstance(asker.answer, ObjectsChanged)
    lines = both.stage.places.config_history.read_bytes().splitlines()
    assert len(lines) == 1


def test_changes_that_wait_are_made_with_one_flush(both: StoreAndLocks) -> None:
    holder = both.hold()
    askers = [both.ask(named(number, powered=False)) for number in range(3)]
    assert [asker.answers for asker in askers] == [[], [], []]
    before = flushes(both)
    both.release(holder)
    serials = [asker.answer_as(ObjectsChanged).serial_no for asker in askers]
    assert serials == sorted(set(serials))
    assert flushes(both) - before == 1
    assert [node(both, number)["powered"] for number in range(3)] == [False] * 3


def test_a_refused_change_does_not_hurt_those_beside_it(both: StoreAndLocks) -> None:
    holder = both.hold()
    first = both.ask(named(0, powered=False))
    wrong = both.ask(named(1, name="node0.example.com"))
    unknown = both.ask(named(17, powered=False))
    last = both.ask(named(2, powered=False))
    both.release(holder)
    assert wrong.refusal[0] == "IntegrityError"
    assert unknown.refusal[0] == "UnknownObjectError"
    assert isinstance(first.answer, ObjectsChanged)
    assert isinstance(last.answer, ObjectsChanged)
    entries = both.say(messages.ReadHistory()).answer_as(messages.HistoryRead).entries
    assert len(entries) == 2


def test_each_change_is_decided_on_those_before_it(both: StoreAndLocks) -> None:
    holder = both.hold()
    both.ask(named(0, name="moved.example.com"))
    again = both.ask(named(0, powered=False))
    taken = both.ask(named(1, name="node0.example.com"))
    both.release(holder)
    assert again.refusal[0] == "UnknownObjectError"
    assert isinstance(taken.answer, ObjectsChanged)


def test_a_refused_batch_is_taken_back_from_its_end(both: StoreAndLocks) -> None:
    uuid = node(both, 0)["uuid"]
    before = node(both, 0)["name"]
    holder = both.hold()
    askers = [
        both.ask(SetValues(ObjectKind.NODE, uuid, [(["name"], name)], "a test", "somebody"))
        for name in ("once.example.com", "twice.example.com")
    ]
    with refusing("fdatasync"):
        both.release(holder)
    assert [asker.refusal[0] for asker in askers] == ["OutcomeUnknownError"] * 2
    both.retry_disk()
    # The store knows which names are taken: that of the node, and neither of the others.
    taken = both.ask(named(1, name=before))
    assert taken.refusal[0] == "IntegrityError"
    for number, name in ((1, "once.example.com"), (2, "twice.example.com")):
        both.ask(named(number, name=name)).answer_as(ObjectsChanged)
    renamed = SetValues(
        ObjectKind.NODE, uuid, [(["name"], "other.example.com")], "a test", "somebody"
    )
    both.ask(renamed).answer_as(ObjectsChanged)


def test_a_change_hears_why_the_disk_gives_no_lock(both: StoreAndLocks) -> None:
    with refusing("write"), refusing("pwrite"):
        first = both.ask(named(0, powered=False), deadline=both.stage.now + 60)
        of_a_job = both.ask(named(1, powered=False))
        assert first.answers == []
        both.store.notify(*both.stage.take(messages.LocksNotWritten, to="config_store"))
        name, text = first.refusal
        assert name == "StorageError"
        assert "No space left on device" in text
        # While the disk is being tried, the next one hears it at once.
        second = both.say(named(0, powered=False), deadline=both.stage.now + 60)
        assert second.refusal == (name, text)
        assert of_a_job.answers == []
    both.stage.run_timers()
    both.locks.actor.turn(*both.stage.take(messages.DiskRetried, to="lock_manager"))
    both.store.handle_mail()
    both.settle()
    assert isinstance(of_a_job.answer, ObjectsChanged)
    both.ask(named(0, powered=False)).answer_as(ObjectsChanged)


def test_when_the_disk_refuses_none_of_the_waiting_changes_is_made(both: StoreAndLocks) -> None:
    before = [node(both, number) for number in range(2)]
    holder = both.hold()
    askers = [both.ask(named(number, powered=False)) for number in (0, 1, 0)]
    with refusing("fdatasync"):
        both.release(holder)
    # The third one wants what the first one would have done.
    assert [asker.refusal[0] for asker in askers] == ["OutcomeUnknownError"] * 3
    assert [node(both, number) for number in range(2)] == before
    assert both.held() == {}
    both.retry_disk()
    assert isinstance(both.ask(named(0, powered=False)).answer, ObjectsChanged)


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_while_somebody_has_the_lock_changes_wait_and_reads_do_not(
    both: StoreAndLocks, mode: str
) -> None:
    holder = both.hold(mode=mode)
    asker = both.ask(named(0, powered=False))
    assert asker.answers == []
    assert node(both, 0)["powered"] is True
    both.release(holder)
    assert isinstance(asker.answer, ObjectsChanged)
    assert node(both, 0)["powered"] is False


def test_a_change_whose_deadline_comes_says_who_has_the_lock_and_since_when(
    both: StoreAndLocks,
) -> None:
    both.stage.today = 1_800_000_000.0
    holder = both.hold(7)
    now = both.stage.now
    early = both.ask(named(0, powered=False), deadline=now + 10.0)
    late = both.ask(named(1, powered=False), deadline=now + 20.0)
    both.stage.now = now + 10.0 - settings.CONFIG_REFUSAL_SECONDS
    both.store.notify(messages.ChangesOverdue())
    both.settle()
    name, text = early.refusal
    assert name == "DeadlineError"
    assert text == (
        "the configuration lock was not free before the deadline: "
        "job 7 holds cluster/config (exclusive, since 2027-01-15 08:00:00 UTC)"
    )
    assert late.answers == []
    both.release(holder)
    assert node(both, 0)["powered"] is True
    assert isinstance(late.answer, ObjectsChanged)


def test_a_change_is_refused_in_time_if_the_lock_manager_does_not_answer(
    both: StoreAndLocks,
) -> None:
    now = both.stage.now
    early = both.say(named(0, powered=False), deadline=now + 10.0)
    late = both.say(named(1, powered=False), deadline=now + 20.0)
    for asker, at, alarm in ((early, now + 10.0, 9.5), (late, now + 20.0, 10.0)):
        assert asker.answers == []
        both.stage.now = at - settings.CONFIG_REFUSAL_SECONDS
        assert overdue_alarms(both)[-1] == pytest.approx(alarm)
        both.store.notify(messages.ChangesOverdue())
        assert asker.refusal[0] == "DeadlineError"
        assert "the lock manager did not give the configuration lock" in asker.refusal[1]
    both.settle()
    assert both.held() == {}
    assert [node(both, number)["powered"] for number in (0, 1)] == [True, True]
    assert isinstance(both.ask(named(0, powered=False)).answer, ObjectsChanged)


def test_alarms_ring_before_the_deadlines_of_changes_that_wait(both: StoreAndLocks) -> None:
    both.hold()
    now = both.stage.now
    both.ask(named(0, powered=False), deadline=now + 10.0)
    both.ask(named(0, powered=False), deadline=now + 0.4)
    both.ask(named(0, powered=False))
    due = overdue_alarms(both)
    assert due == [10.0 - settings.CONFIG_REFUSAL_SECONDS, pytest.approx(0.2)]


def test_when_nobody_waits_any_more_the_store_does_not_stand_in_line(both: StoreAndLocks) -> None:
    holder = both.hold()
    both.ask(named(0, powered=False), deadline=both.stage.now + 1.0)
    both.stage.now += 1.0
    both.store.notify(messages.ChangesOverdue())
    both.settle()
    assert both.table().pending == []
    both.release(holder)
    assert both.held() == {}
    assert isinstance(both.ask(named(0, powered=False)).answer, ObjectsChanged)


def test_a_change_that_got_its_lock_after_its_deadline_is_not_made(both: StoreAndLocks) -> None:
    holder = both.hold()
    asker = both.ask(named(0, powered=False), deadline=both.stage.now + 5.0)
    both.stage.now += 6.0
    both.release(holder)
    assert asker.refusal[0] == "DeadlineError"
    assert node(both, 0)["powered"] is True


@pytest.mark.parametrize("pid", [0, 1])
def test_a_store_that_begins_gives_back_what_its_predecessor_had(
    both: StoreAndLocks, pid: int
) -> None:
    own = both.store.component._changes.owner
    # One of the same daemon, or one of another daemon whose lock file had the same name.
    predecessor = Owner(own.identifier, own.lock_file, own.pid + pid)
    both.locks.take(predecessor, (CONFIG_LOCK, "exclusive"))
    both.restart_store()
    assert both.held() == {}
    assert isinstance(both.ask(named(0, powered=False)).answer, ObjectsChanged)


def test_a_store_that_begins_takes_a_dead_one_out_of_the_line(both: StoreAndLocks) -> None:
    holder, own = both.hold(), both.store.component._changes.owner
    predecessor = Owner(own.identifier, own.lock_file, own.pid + 1)
    both.locks.ask(predecessor, (CONFIG_LOCK, "exclusive"))
    both.restart_store()
    both.release(holder)
    assert both.held() == {}


def test_an_owner_that_has_the_name_of_the_store_keeps_its_locks(both: StoreAndLocks) -> None:
    named_alike = Owner(change_line.IDENTIFIER, both.locks.owner(5).lock_file, 5)
    both.locks.take(named_alike, (CONFIG_LOCK, "exclusive"))
    both.restart_store()
    assert both.held() == {CONFIG_LOCK: [named_alike]}


def test_the_store_asks_again_when_the_lock_manager_was_replaced(both: StoreAndLocks) -> None:
    asker = both.say(named(0, powered=False))
    # The lock manager fails over everything that it was asked.
    both.stage.requests.clear()
    both.store.hear_of_restart("lock_manager")
    both.settle()
    assert isinstance(asker.answer, ObjectsChanged)


# For those who bring decisions of their own.


def made(envelope: Envelope) -> Any:
    def make(snapshot: Configuration) -> Made:
        [(uuid, first), *_] = snapshot.objects(ObjectKind.NODE)
        change = Change(ObjectKind.NODE, uuid, {**first, "powered": False})
        return Made(Edit([change], "who", "why"), lambda _: envelope.reply(messages.Done()))

    return make


def test_a_holder_of_the_lock_changes_at_once(both: StoreAndLocks) -> None:
    holder = both.hold()
    envelope = Envelope(messages.ReadLimits(), asker := both.say(messages.ReadLimits()))
    asker.envelopes.clear()
    line = both.store.component._changes
    line.add_of_holder(envelope, made(envelope), holder, lambda: pytest.fail("holds it"))
    both.settle()
    assert asker.answer == messages.Done()
    assert both.held() == {CONFIG_LOCK: [holder]}


@pytest.mark.parametrize("mode", ["shared", None])
def test_who_does_not_hold_the_lock_exclusively_is_told_so(
    both: StoreAndLocks, mode: str | None
) -> None:
    owner = both.locks.owner(3) if mode is None else both.hold(3, mode)
    envelope = Envelope(messages.ReadLimits())
    told: list[Owner] = []
    line = both.store.component._changes
    line.add_of_holder(envelope, made(envelope), owner, lambda: told.append(owner))
    both.settle()
    assert told == [owner]
    assert not both.stage.log_of_changes.ledger.segments.changes.changes


def test_who_cannot_wait_hears_that_the_lock_is_not_free(both: StoreAndLocks) -> None:
    holder = both.hold()
    envelope = Envelope(messages.ReadLimits())
    line = both.store.component._changes
    told: list[str] = []
    line.add(envelope, made(envelope), lambda: told.append("first"))
    both.settle()
    assert told == ["first"]
    # Nobody waits here: the store is not in line.
    both.ask(named(0, powered=False))
    line.add(envelope, made(envelope), lambda: told.append("second"))
    assert told == ["first", "second"]
    both.release(holder)
    assert told == ["first", "second"]
    assert change_line.IDENTIFIER not in {
        owner.identifier for owners in both.held().values() for owner in owners
    }


# While a batch is on its way to the log.


def tagged(envelope: Envelope, tag: str) -> Any:
    """Adds a tag to the cluster, behind those that are there."""

    def make(snapshot: Configuration) -> Made:
        cluster = snapshot.cluster
        more = {**cluster, "tags": [*cluster["tags"], tag]}
        change = Change(ObjectKind.CLUSTER, snapshot.cluster_uuid, more)
        return Made(Edit([change], "who", "why"), lambda _: envelope.reply(messages.Done()))

    return make


def under_way(both: StoreAndLocks) -> tuple[list[Asker], Envelope]:
    """Three changes, one of them on its way; who asks, and the request to the log."""
    askers = [Asker(), Asker(), Asker()]
    for number, asker in enumerate(askers):
        envelope = Envelope(messages.ReadLimits(), asker)
        both.store.component._changes.add_unlocked(envelope, tagged(envelope, f"tag{number}"))
    [appended] = both.stage.take_requests(messages.StoreChanges)
    return askers, appended


def tags(both: StoreAndLocks) -> list[str]:
    found: list[str] = both.store.component._stored.snapshot.cluster["tags"]
    return found


def test_changes_that_come_meanwhile_are_the_next_batch(both: StoreAndLocks) -> None:
    askers, appended = under_way(both)
    assert isinstance(appended.message, messages.StoreChanges)
    assert len(appended.message.changes) == 1
    before = tags(both)
    both.stage.log_of_changes.take(appended)
    both.store.handle_mail()
    # The others are decided on the first, and neither visible nor told before they are stored.
    assert [len(asker.answers) for asker in askers] == [1, 0, 0]
    assert tags(both) == [*before, "tag0"]
    [following] = both.stage.take_requests(messages.StoreChanges)
    assert isinstance(following.message, messages.StoreChanges)
    assert len(following.message.changes) == 2
    both.stage.log_of_changes.take(following)
    both.store.handle_mail()
    assert [asker.answer for asker in askers] == [messages.Done()] * 3
    assert tags(both) == [*before, "tag0", "tag1", "tag2"]


def test_what_builds_on_a_refused_batch_is_refused_with_it(both: StoreAndLocks) -> None:
    before = tags(both)
    askers, appended = under_way(both)
    with refusing("pwrite"):
        both.stage.log_of_changes.take(appended)
    both.store.handle_mail()
    assert [asker.refusal[0] for asker in askers] == ["ReadOnlyError"] * 3
    assert tags(both) == before
    both.retry_disk()
    askers, _ = under_way(both)
    assert [asker.answers for asker in askers] == [[], [], []]


def test_a_queue_that_was_replaced_is_asked_again(both: StoreAndLocks) -> None:
    askers, appended = under_way(both)
    # The log has it, but the reply is lost with the queue.
    both.stage.log_of_changes.take(Envelope(appended.message, Asker()))
    both.stage.renew_log()
    both.store.hear_of_restart("job_queue")
    both.settle()
    assert [asker.answer for asker in askers] == [messages.Done()] * 3
    assert tags(both)[-3:] == ["tag0", "tag1", "tag2"]


def test_a_store_that_does_not_know_what_the_log_has_begins_anew(both: StoreAndLocks) -> None:
    _, late = under_way(both)
    # Its successor reads the log before the change of its predecessor comes there.
    both.restart_store()
    asker = both.say(named(0, powered=False))
    both.stage.log_of_changes.take(Envelope(late.message, Asker()))
    both.settle()
    failed = both.stage.take_one(messages.ComponentFailed)
    assert "does not know" in failed.text
    assert asker.answers == []
    both.restart_store()
    assert tags(both)[-1:] == ["tag0"]
    both.ask(named(0, powered=False)).answer_as(ObjectsChanged)
