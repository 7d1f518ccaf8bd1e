"""A change that is repeated under its key gets its first reply, whatever has happened since."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.runtime.stage import Asker, Stage
from tests.refusals import refusing

from ganger.actors.config import change_keys
from ganger.storage import config_files, errors, settings
from ganger.storage.cluster.objects import ObjectKind
from ganger.transport import messages
from ganger.transport.messages import ChangeObjects, ObjectChange, SetValues

UUID = "bbbbbbbb-0000-4000-8000-000000000000"
NAME = "node0.example.com"


def node(both: StoreAndLocks) -> dict[str, Any]:
    found = both.say(messages.ReadObjects(ObjectKind.NODE, [NAME])).answer_as(messages.ObjectsRead)
    return found.objects[0]


def values(request: str, sender: str = "ann, pid 5", **given: Any) -> SetValues:
    changes = [([field], value) for field, value in given.items()]
    return SetValues(ObjectKind.NODE, NAME, changes, "a test", sender, request)


def ask(both: StoreAndLocks, message: messages.Message) -> Asker:
    """What the store hears, until its changes are in force."""
    asker = both.ask(message)
    for request in both.stage.take_requests(messages.ReadLastId):
        request.reply(messages.LastId(last_id=7))
        both.store.handle_mail()
        both.settle()
    sent = both.stage.take(messages.RulesChanged) + both.stage.take(messages.LimitsChanged)
    for told in sent:
        kind = (
            messages.RulesApplied
            if isinstance(told, messages.RulesChanged)
            else messages.LimitApplied
        )
        both.store.notify(kind(told.serial))
    return asker


def serial(both: StoreAndLocks) -> int:
    return both.say(messages.CountObjects()).answer_as(messages.ObjectsCounted).serial_no


def restart(both: StoreAndLocks) -> None:
    both.store.component._stored.close()
    both.restart_store()


def requests(both: StoreAndLocks) -> dict[str, messages.Message]:
    """A change of each kind, with a key."""
    found = node(both)
    rule = messages.ReplaceFilter(uuid=UUID, action="PAUSE", sender="ann, pid 5", request="r")
    changed = ObjectChange(
        kind=ObjectKind.NODE,
        uuid=found["uuid"],
        object=found | {"powered": False},
        serial_no=found["serial_no"],
    )
    return {
        "objects": ChangeObjects([changed], "a test", "ann, pid 5", "o"),
        "values": values("v", powered=False),
        "rule": rule,
        "new rule": msgspec.structs.replace(rule, uuid=None, request="n"),
        "limits": messages.SetLimits(running_jobs_max=3, sender="ann, pid 5", request="l"),
    }


@pytest.mark.parametrize("kind", ["objects", "values", "rule", "new rule", "limits"])
@pytest.mark.parametrize("meanwhile", ["", "killed", "killed and written", "history lost"])
def test_a_repeated_change_gets_its_own_reply(
    both: StoreAndLocks, kind: str, meanwhile: str
) -> None:
    asked = requests(both)[kind]
    first = ask(both, asked).answer
    assert not isinstance(first, messages.Failure)
    # Others change the same objects, and one more.
    for other in (
        values("", "bob, pid 6", powered=True),
        messages.ReplaceFilter(uuid=UUID, action="ACCEPT", sender="bob, pid 6"),
        messages.SetLimits(running_jobs_max=9, sender="bob, pid 6"),
    ):
        assert not isinstance(ask(both, other).answer, messages.Failure)
    if meanwhile == "killed and written":
        both.store.component._stored.prepare_whole()()
    if meanwhile == "history lost":
        both.stage.places.config_history.unlink()
    if meanwhile:
        restart(both)
    before = serial(both)
    # The client has another connection now; its process is the same.
    assert ask(both, asked).answer == first
    assert serial(both) == before


def test_a_repeated_deletion_is_answered_alike(both: StoreAndLocks) -> None:
    ask(both, messages.ReplaceFilter(uuid=UUID, action="PAUSE", sender="ann, pid 5"))
    gone = messages.DeleteFilter(UUID, "ann, pid 5", "d")
    assert ask(both, gone).answer == messages.Done()
    restart(both)
    assert ask(both, gone).answer == messages.Done()
    name, _ = ask(both, msgspec.structs.replace(gone, request="e")).refusal
    assert name == "UnknownFilterError"


def test_copies_that_wait_together_are_made_once(both: StoreAndLocks) -> None:
    holder = both.hold()
    askers = [both.ask(values("v", powered=False)) for _ in range(3)]
    before = serial(both)
    both.release(holder)
    assert askers[0].answer == askers[1].answer == askers[2].answer
    assert serial(both) == before + 1


def test_a_copy_of_a_change_that_the_disk_refused_is_made(both: StoreAndLocks) -> None:
    with refusing("fdatasync"):
        both.ask(values("v", powered=False)).answer_as(messages.Failure)
    both.retry_disk()
    both.ask(values("v", powered=False)).answer_as(messages.ObjectsChanged)
    assert node(both)["powered"] is False


def test_a_change_that_may_come_back_is_unknown_until_the_disk_has_taken_it_out(
    both: StoreAndLocks,
) -> None:
    before = both.ask(values("", powered=False)).answer_as(messages.ObjectsChanged)
    # The disk takes the record, refuses its flush, and does not take it out again.
    with refusing("fdatasync", "ftruncate"):
        first = both.ask(values("v", powered=True)).refusal
        again = both.ask(values("v", powered=True)).refusal
        locked = both.hold()
        waiting = both.ask(values("v", powered=True), deadline=both.stage.now + 60)
        other = both.ask(values("w", powered=True), deadline=both.stage.now + 60)
        both.release(locked)
    assert first[0] == "OutcomeUnknownError"
    assert first[1].endswith(errors.SAFE_UNDER_KEY)
    # No repetition is told that nothing was done.
    assert first == again == waiting.refusal
    assert other.refusal[0] == "ReadOnlyError"
    both.retry_disk()
    after = both.ask(values("v", powered=True)).answer_as(messages.ObjectsChanged)
    assert after.serial_no == before.serial_no + 1
    assert both.ask(values("v", powered=True)).answer == after


def test_without_a_key_nothing_is_said_of_a_repetition(both: StoreAndLocks) -> None:
    both.ask(values("", powered=False)).answer_as(messages.ObjectsChanged)
    with refusing("fdatasync", "ftruncate"):
        name, text = both.ask(values("", powered=True)).refusal
    assert name == "OutcomeUnknownError"
    assert text.endswith("is unknown")


def test_another_change_under_the_same_key_is_refused(both: StoreAndLocks) -> None:
    first = both.ask(values("v", powered=False)).answer_as(messages.ObjectsChanged)
    name, text = both.ask(values("v", powered=True)).refusal
    assert name == "BadRequestError"
    assert text.endswith(f"stored under it, with serial number {first.serial_no}")
    for unfit in ("v" * 201, "v\n"):
        assert both.ask(values(unfit, powered=True)).refusal[0] == "BadRequestError"
    assert node(both)["powered"] is False


@pytest.mark.parametrize("key", [None, True])
def test_an_object_with_a_key_that_is_no_text_is_refused(both: StoreAndLocks, key: object) -> None:
    asked = both.ask(values("v", ndparams={key: 1}))
    assert asked.refusal == ("BadRequestError", "a key of an object: expected text")


def test_numbers_as_keys_are_text_also_under_a_request_key(both: StoreAndLocks) -> None:
    first = both.ask(values("v", other={7: 1})).answer_as(messages.ObjectsChanged)
    assert both.ask(values("v", other={7: 1})).answer == first


def test_a_key_is_one_for_each_user(both: StoreAndLocks) -> None:
    first = both.ask(values("v", "ann, pid 5", powered=False))
    again = both.ask(values("v", "ann, pid 99", powered=False))
    others = both.ask(values("v", "bob, pid 5", powered=True))
    assert first.answer == again.answer != others.answer
    assert node(both)["powered"] is True


def test_the_replies_that_are_kept_are_bounded(
    both: StoreAndLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CHANGE_REPLIES_MAX", 2)
    for number in range(3):
        both.ask(values(f"v{number}", ndparams={"ssh_port": 1000 + number}))
    for _ in range(2):
        stored = both.store.component._stored
        known = [stored.reply_to("ann", f"v{number}") is not None for number in range(3)]
        assert known == [False, True, True]
        restart(both)


def test_the_history_that_a_start_reads_is_bounded(stage: Stage) -> None:
    history = stage.places.config_history
    lines = [{"serial": n, "who": "a", "request": str(n), "digest": "d"} for n in range(9)]
    history.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    size = len(msgspec.json.encode(lines[0]))
    found = config_files.last_replies(history, 5, size * 3)
    assert [reply.serial for reply in found] == [6, 7, 8]
    assert [reply.serial for reply in config_files.last_replies(history, 2, 10**6)] == [7, 8]


def test_a_digest_does_not_tell_a_secret() -> None:
    given = [
        SetValues(ObjectKind.CLUSTER, "", [(["osparams_private_cluster", "os", "key"], value)], "")
        for value in ("one", "two")
    ]
    assert change_keys.digest(given[0]) == change_keys.digest(given[1])
    other = SetValues(ObjectKind.CLUSTER, "", [(["tags"], ["x"])], "")
    assert change_keys.digest(other) != change_keys.digest(given[0])


def test_a_wrong_key_behind_a_new_rule_is_refused_and_both_are_answered(
    both: StoreAndLocks,
) -> None:
    first = both.say(messages.ReplaceFilter(uuid=UUID, action="PAUSE", sender="ann, pid 5"))
    wrong = both.say(messages.DeleteFilter(UUID, "ann, pid 5", "x" * 201))
    last = both.say(messages.DeleteFilter(UUID, "ann, pid 5", "d"))
    for request in both.stage.take_requests(messages.ReadLastId):
        request.reply(messages.LastId(last_id=7))
    both.store.handle_mail()
    both.settle()
    for told in both.stage.take(messages.RulesChanged):
        both.store.notify(messages.RulesApplied(told.serial))
    assert wrong.refusal[0] == "BadRequestError"
    assert isinstance(first.answer, messages.FilterStored)
    assert last.answer == messages.Done()
