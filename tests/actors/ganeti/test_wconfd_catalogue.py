"""WConfD's methods about the configuration: who may change it when, and what they see."""

# ruff: noqa: FBT003 - arguments of Ganeti's methods have no names

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.actors.config.store_and_locks import StoreAndLocks
from tests.actors.ganeti.wconfd_calls import call
from tests.actors.runtime.stage import Asker
from tests.clusters import uuid_of
from tests.refusals import refusing

from ganger.actors.ganeti import notices, wconfd_catalogue
from ganger.storage.cluster.differences import MASK
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.locks.locks import CONFIG_LOCK, Owner
from ganger.transport import messages
from ganger.transport.messages import ConfigAnswered

INSTANCE, NODE = uuid_of("instances", 0), uuid_of("nodes", 0)
Whole = dict[str, Any]


def value(asker: Asker) -> Any:
    return asker.answer_as(ConfigAnswered).value


def read(both: StoreAndLocks, *, reveals: bool = True) -> Whole:
    found: Whole = value(both.ask(call("readConfig", reveals=reveals)))
    return copy.deepcopy(found)


def lock(both: StoreAndLocks, owner: Owner, *, shared: bool = False, reveals: bool = True) -> Any:
    found = value(both.ask(call("lockConfig", owner, shared, reveals=reveals)))
    return copy.deepcopy(found)


def tagged(whole: Whole, tag: str, number: int = 0) -> Whole:
    whole = copy.deepcopy(whole)
    whole["nodes"][uuid_of("nodes", number)]["tags"] = [tag]
    return whole


def tags(both: StoreAndLocks, number: int = 0) -> list[str]:
    found: list[str] = read(both)["nodes"][uuid_of("nodes", number)]["tags"]
    return found


# The lock.


def test_who_gets_the_lock_reads_the_configuration(both: StoreAndLocks) -> None:
    one, two = both.locks.owner(1), both.locks.owner(2)
    assert lock(both, one) == read(both)
    assert both.held() == {CONFIG_LOCK: [one]}
    # Held already, it is read again; somebody else gets nothing and does not wait.
    assert lock(both, one) == read(both)
    assert lock(both, two) is None
    assert lock(both, two, shared=True) is None
    assert both.ask(call("unlockConfig", one)).answer == ConfigAnswered()
    assert lock(both, one, shared=True) == lock(both, two, shared=True) == read(both)
    assert lock(both, one) is None


def test_a_dead_owner_gets_no_lock(both: StoreAndLocks) -> None:
    owner = both.locks.owner(1)
    both.locks.kill(owner)
    name, text = both.ask(call("lockConfig", owner, False)).refusal
    assert name == "LockRequestError"
    assert owner.lock_file in text


# The whole.


def test_the_holder_writes_and_others_wait(both: StoreAndLocks) -> None:
    owner = both.locks.owner(1)
    whole = lock(both, owner)
    waiting = both.ask(
        messages.SetValues(ObjectKind.NODE, "node2.example.com", [(["powered"], False)])
    )
    assert both.ask(call("writeConfig", owner, tagged(whole, "x"))).answer == ConfigAnswered()
    assert tags(both) == ["x"]
    assert waiting.answers == []
    written = call("writeConfigAndUnlock", owner, tagged(whole, "y"))
    assert value(both.ask(written)) is True
    assert isinstance(waiting.answer, messages.ObjectsChanged)
    assert (tags(both), both.held()) == (["y"], {})
    assert value(both.ask(written)) is False
    entries = both.say(messages.ReadHistory()).answer_as(messages.HistoryRead).entries
    assert [entry.who for entry in entries] == ["", "job 1", "job 1"]


@pytest.mark.parametrize("held", [None, "shared"])
def test_without_the_exclusive_lock_nothing_is_written(
    both: StoreAndLocks, held: str | None
) -> None:
    owner = both.locks.owner(1)
    if held:
        lock(both, owner, shared=True)
    whole = tagged(read(both), "x")
    name, text = both.ask(call("writeConfig", owner, whole)).refusal
    assert name == "LockRequestError"
    assert text == "Requested lock OwnExclusive on the configuration missing"
    assert value(both.ask(call("writeConfigAndUnlock", owner, whole))) is False
    assert tags(both) == []


def test_a_whole_with_one_wrong_object_changes_nothing_and_keeps_the_lock(
    both: StoreAndLocks,
) -> None:
    owner = both.locks.owner(1)
    whole = tagged(lock(both, owner), "x")
    wrong = copy.deepcopy(whole)
    wrong["nodes"][uuid_of("nodes", 1)]["group"] = "nosuch"
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    for config, error in [
        (wrong, "IntegrityError"),
        (whole | {"nodes": []}, "ModificationError"),
        (whole | {"more": deep}, "BadRequestError"),
    ]:
        for method in ("writeConfig", "writeConfigAndUnlock"):
            assert both.ask(call(method, owner, config)).refusal[0] == error
    assert (tags(both), both.held()) == ([], {CONFIG_LOCK: [owner]})
    with refusing("fdatasync"):
        both.ask(call("writeConfig", owner, whole)).answer_as(messages.Failure)
    both.retry_disk()
    assert tags(both) == []
    assert both.ask(call("writeConfig", owner, whole)).answer == ConfigAnswered()
    assert tags(both) == ["x"]


def test_a_store_that_was_replaced_knows_no_older_whole_and_writes_all_the_same(
    both: StoreAndLocks,
) -> None:
    owner = both.locks.owner(1)
    whole = lock(both, owner)
    both.restart_store()
    assert both.held() == {CONFIG_LOCK: [owner]}
    assert both.ask(call("writeConfig", owner, tagged(whole, "x"))).answer == ConfigAnswered()
    assert tags(both) == ["x"]


def test_what_was_read_under_an_earlier_lock_does_not_count(both: StoreAndLocks) -> None:
    owner = both.locks.owner(1)
    lock(both, owner)
    both.release(owner)
    both.ask(messages.SetValues(ObjectKind.NODE, NODE, [(["tags"], ["of-others"])]))
    # It takes the lock as any other one, and reads without ``lockConfig``.
    both.locks.take(owner, (CONFIG_LOCK, "exclusive"))
    whole = tagged(read(both), "x")
    assert both.ask(call("writeConfig", owner, whole)).answer == ConfigAnswered()
    assert tags(both) == ["x"]


def test_other_filter_rules_and_run_slots_are_in_force_when_it_is_answered(
    both: StoreAndLocks,
) -> None:
    owner = both.locks.owner(1)
    whole = lock(both, owner)
    uuid = "aaaaaaaa-0000-4000-8000-000000000000"
    rule = {"uuid": uuid, "watermark": 1, "priority": 0, "predicates": [], "action": "PAUSE"}
    whole["filters"][uuid] = rule | {"reason_trail": []}
    whole["cluster"]["max_running_jobs"] = 3
    both.stage.sent.clear()
    asker = both.ask(call("writeConfig", owner, whole))
    assert asker.answers == []
    changed = both.stage.take_one(messages.RulesChanged)
    assert [one.uuid for one in changed.rules] == [uuid]
    assert both.stage.take_one(messages.LimitsChanged).running_jobs_max == 3
    both.store.notify(messages.RulesApplied(serial=changed.serial))
    assert asker.answer == ConfigAnswered()


# Secrets.


def test_secrets_are_shown_where_they_may_be(both: StoreAndLocks) -> None:
    owner = both.locks.owner(1)
    for reveals, secret in ((True, "secret-0"), (False, MASK)):
        shown = read(both, reveals=reveals)["instances"][INSTANCE]["osparams_private"]
        locked = lock(both, owner, reveals=reveals)["instances"][INSTANCE]["osparams_private"]
        both.ask(call("unlockConfig", owner))
        state = call("setInstanceStatus", INSTANCE, None, None, None, reveals=reveals)
        changed = value(both.ask(state))["osparams_private"]
        assert shown == locked == changed == {"password": secret}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_masked_secrets_are_no_change_and_are_not_written(
    both: StoreAndLocks, *, is_restarted: bool
) -> None:
    owner = both.locks.owner(1)
    whole = lock(both, owner, reveals=False)
    if is_restarted:
        both.restart_store()
    assert both.ask(call("writeConfig", owner, tagged(whole, "x"))).answer == ConfigAnswered()
    assert read(both)["instances"][INSTANCE]["osparams_private"] == {"password": "secret-0"}
    whole["instances"][INSTANCE]["tags"] = ["x"]
    assert both.ask(call("writeConfig", owner, whole)).refusal[0] == "BadRequestError"
    instance = whole["instances"][INSTANCE]
    both.ask(call("unlockConfig", owner))
    assert both.ask(call("updateInstance", instance)).refusal[0] == "BadRequestError"


# Modifications without the caller's lock.

SHORT: list[tuple[Any, Any]] = [
    (call("removeInstance", INSTANCE), False),
    (call("attachInstanceDisk", INSTANCE, "x", None), False),
    (call("detachInstanceDisk", INSTANCE, "x"), False),
    (call("removeInstanceDisk", INSTANCE, "x"), False),
    (call("setInstancePrimaryNode", INSTANCE, "x"), False),
    (call("setInstanceStatus", INSTANCE, "down", None, None), None),
    (call("addInstanceDisk", INSTANCE, {"uuid": "x"}, None, False), False),
    (call("allocatePort"), None),
    (call("addTcpUdpPort", 11_001), False),
    (call("updateCluster", {"uuid": "x"}), None),
    (call("updateNode", {"uuid": "x"}), None),
    (call("updateInstance", {"uuid": "x"}), None),
    (call("updateNodeGroup", {"uuid": "x"}), None),
    (call("updateNetwork", {"uuid": "x"}), None),
    (call("updateDisk", {"uuid": "x"}), None),
]


@pytest.mark.parametrize(("message", "busy"), SHORT)
def test_a_modification_does_not_wait_for_the_holder(
    both: StoreAndLocks, message: Any, busy: Any
) -> None:
    before = read(both)
    both.hold()
    assert value(both.ask(message)) is busy
    assert read(both) == before
    assert both.table().pending == []


def test_the_holder_adds_an_instance_at_once_and_nobody_else_does(both: StoreAndLocks) -> None:
    owner, other = both.hold(1), both.locks.owner(2)
    instance = read(both)["instances"][INSTANCE] | {"os": "other"}
    added = call("addInstance", instance, other, True)
    assert value(both.ask(added)) is False
    assert value(both.ask(call("addInstance", instance, owner, True))) is True
    assert read(both)["instances"][INSTANCE]["os"] == "other"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (call("removeInstanceDisk", "x", "y"), "ModificationError"),
        (call("setInstancePrimaryNode", INSTANCE, "x"), "IntegrityError"),
        (call("setInstanceStatus", INSTANCE, "sideways", None, None), "IntegrityError"),
        (call("updateNode", {}), "ModificationError"),
        (call("updateNode", {"uuid": NODE}), "StaleSerialError"),
        (call("updateNode", {"uuid": NODE, "serial_no": 1}), "IntegrityError"),
        (call("updateNode", {"uuid": NODE, "x": MASK}), "BadRequestError"),
        (call("flushConfigGroup", "x"), "ModificationError"),
    ],
)
def test_wrong_requests_change_nothing(both: StoreAndLocks, message: Any, error: str) -> None:
    before = read(both)
    assert both.ask(message).refusal[0] == error
    assert read(both) == before
    assert both.held() == {}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (messages.CallMethod("x" * 200), "unknown method 'xxx"),
        (messages.CallMethod("unlockConfig"), "unlockConfig: an owner of locks calls it"),
        (messages.CallMethod("updateNode", []), "updateNode: expected 1 arguments, got 0"),
        (messages.CallMethod("updateNode", [5]), "updateNode: argument 1: Expected `object`"),
        (messages.CallMethod("addTcpUdpPort", [0]), "addTcpUdpPort: argument 1: Expected `int` >="),
    ],
)
def test_what_is_no_call_of_a_method_is_refused(
    both: StoreAndLocks, message: messages.CallMethod, text: str
) -> None:
    name, found = both.ask(message).refusal
    assert (name, found[: len(text)]) == ("BadRequestError", text)


def test_a_method_without_an_owner_takes_none(both: StoreAndLocks) -> None:
    asked = messages.CallMethodAsOwner("allocatePort", both.locks.owner(1))
    assert both.ask(asked).refusal == ("BadRequestError", "allocatePort: it has no owner")


def test_a_cluster_that_changes_is_in_force_when_it_is_answered(both: StoreAndLocks) -> None:
    cluster = read(both)["cluster"]
    asker = both.ask(call("updateCluster", cluster | {"max_running_jobs": 3}))
    assert asker.answers == []
    changed = both.stage.take(messages.LimitsChanged)[-1]
    assert changed.running_jobs_max == 3
    both.store.notify(messages.LimitApplied(serial=changed.serial))
    assert value(asker) == [cluster["serial_no"] + 1, both.stage.today]


# What looks at the whole configuration takes long, and is no matter of a turn.


def test_a_thread_looks_at_the_whole_and_the_store_serves_others_meanwhile(
    both: StoreAndLocks,
) -> None:
    owner = both.hold()
    whole = tagged(read(both), "x")
    asked = [call("readConfig"), call("verifyConfig"), call("writeConfig", owner, whole)]
    long = [both.say(message) for message in asked]
    port = both.ask_without_threads(call("addTcpUdpPort", 11_001))
    assert value(port) is False
    assert [one.answers for one in long] == [[], [], []]
    both.settle()
    assert value(long[0])["nodes"][uuid_of("nodes", 0)]["tags"] == []
    assert value(long[1]) == []
    assert long[2].answer == ConfigAnswered()
    assert tags(both) == ["x"]


def test_what_others_change_while_a_whole_is_compared_stays(both: StoreAndLocks) -> None:
    owner = both.locks.owner(1)
    whole = lock(both, owner)
    network, address = uuid_of("networks", 0), "10.128.0.77"
    written = both.say(call("writeConfig", owner, tagged(whole, "x")))
    both.ask_without_threads(call("reserveIp", owner, network, address, True))
    both.store.end_turn()
    both.ask_without_threads(call("commitTemporaryIps", owner))
    assert written.answers == []
    both.settle()
    assert written.answer == ConfigAnswered()
    after = read(both)
    assert after["nodes"][NODE]["tags"] == ["x"]
    assert after["networks"][network] != whole["networks"][network]


# The rest.


def test_a_valid_configuration_has_no_problems(both: StoreAndLocks) -> None:
    assert value(both.ask(call("verifyConfig"))) == []


def test_a_flush_is_answered_when_the_file_is_written(both: StoreAndLocks) -> None:
    node = read(both)["nodes"][NODE]
    both.ask(call("updateNode", node | {"powered": False}))
    first, second = both.say(call("flushConfig")), both.say(call("flushConfig"))
    assert (first.answers, second.answers) == ([], [])
    both.stage.run_timers()
    both.store.turn(*both.stage.take(messages.WholeWritten))
    assert first.answers == []
    both.store.turn(*both.stage.take(notices.SsconfWritten))
    assert first.answer == ConfigAnswered()
    assert second.answers == []
    with refusing("rename"):
        both.stage.run_timers()
    both.store.turn(*both.stage.take(messages.WholeWritten))
    assert second.refusal[0] == "StorageError"


def test_the_big_lock_of_a_cluster_that_ends_goes_to_the_store(both: StoreAndLocks) -> None:
    owner, other = both.locks.owner(1), both.locks.owner(2)
    big = ("cluster/BGL", "exclusive")
    asked = call("prepareClusterDestruction", owner)
    name, text = both.ask(asked).refusal
    assert (name, text) == (
        "LockRequestError",
        "Cluster destruction requested without owning BGL exclusively",
    )
    both.locks.take(owner, big)
    both.locks.ask(other, big, priority=-20)
    asker = both.ask(asked)
    both.store.notify(messages.LimitApplied(both.stage.take(messages.LimitsChanged)[-1].serial))
    assert asker.answer == ConfigAnswered()
    [holder] = both.held()["cluster/BGL"]
    assert holder.identifier == wconfd_catalogue.DESTROYER
    assert read(both)["cluster"]["master_node"] == ""
