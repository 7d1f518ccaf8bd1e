"""Objects of the configuration: read, changed, refused, repeated, found again; their history."""

from __future__ import annotations

import errno
from typing import Any

import msgspec
import pytest
from tests import clusters
from tests.actors.runtime.stage import Stage, Staged
from tests.core_alone import NEEDS_HIDDEN
from tests.refusals import refusing

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.config.stored_configuration import StoredConfiguration
from ganger.storage import config_files, errors
from ganger.storage.cluster.objects import ObjectKind
from ganger.transport import messages
from ganger.transport.messages import ChangeObjects, ObjectChange, ObjectsChanged, SetValues

NODE = ObjectKind.NODE
PORT = {"ssh_port": 1022}


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    config_files.write(stage.places.config, clusters.made_configuration(nodes=2, instances=2))
    return stage.start(ConfigStore)


def on_disk(stage: Stage) -> dict[str, Any]:
    found = config_files.read(stage.places.config)
    assert found is not None
    return found


def nodes(store: Staged[ConfigStore], *names: str) -> list[dict[str, Any]]:
    asked = messages.ReadObjects(NODE, list(names) or None)
    return store.ask(asked).answer_as(messages.ObjectsRead).objects


def change(
    node: dict[str, Any], serial_no: int | None = None, request: str = "", **fields: object
) -> ChangeObjects:
    changed = ObjectChange(kind=NODE, uuid=node["uuid"], object=node | fields, serial_no=serial_no)
    return ChangeObjects([changed], why="a test", sender="somebody", request=request)


def history(store: Staged[ConfigStore]) -> list[messages.HistoryLine]:
    return store.ask(messages.ReadHistory()).answer_as(messages.HistoryRead).entries


def test_objects_are_read_by_name_and_by_uuid(store: Staged[ConfigStore]) -> None:
    first, second = nodes(store)
    assert nodes(store, second["name"], first["uuid"]) == [second, first]
    name, text = store.ask(messages.ReadObjects(NODE, ["nosuch"])).refusal
    assert (name, text) == ("UnknownObjectError", "nodes/nosuch: there is no such object")


def test_a_change_is_durable_visible_and_in_the_history(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    stage.today = 1_800_000_000.0
    top = on_disk(stage)["serial_no"]
    done = store.ask(change(node, node["serial_no"], powered=False))
    assert done.answer == ObjectsChanged(top + 1, [(node["serial_no"] + 1, 1_800_000_000.0)])
    expected = node | {
        "powered": False,
        "serial_no": node["serial_no"] + 1,
        "mtime": 1_800_000_000.0,
    }
    assert nodes(store, node["uuid"]) == [expected]
    # A successor finds it, although the whole configuration was not written.
    assert on_disk(stage)["nodes"][node["uuid"]] == expected
    [entry] = history(store)
    assert (entry.serial, entry.time, entry.who, entry.why) == (
        top + 1,
        1_800_000_000.0,
        "somebody",
        "a test",
    )
    assert (f"nodes/{node['uuid']}.powered", "true", "false") in entry.changes


def test_two_writers_do_not_lose_each_others_changes(store: Staged[ConfigStore]) -> None:
    node = nodes(store)[0]
    store.ask(change(node, node["serial_no"], powered=False))
    name, text = store.ask(change(node, node["serial_no"], offline=True)).refusal
    assert name == "StaleSerialError"
    assert node["uuid"] in text
    [found] = nodes(store, node["uuid"])
    assert (found["powered"], found["offline"]) == (False, node["offline"])


def test_a_repeated_request_changes_nothing_and_is_answered_alike(
    store: Staged[ConfigStore],
) -> None:
    node = nodes(store)[0]
    asked = change(node, node["serial_no"], powered=False, request="one")
    first, second = store.ask(asked).answer, store.ask(asked).answer
    assert first == second
    assert len(history(store)) == 1


def test_a_request_is_known_again_after_a_restart(stage: Stage, store: Staged[ConfigStore]) -> None:
    node, other = nodes(store)
    asked = change(node, node["serial_no"], powered=False, request="one")
    first = store.ask(asked).answer_as(ObjectsChanged)
    store.ask(change(other, powered=False)).answer_as(ObjectsChanged)
    # A kill, which kept the history behind the journal.
    stage.places.config_history.unlink()
    again = stage.start(ConfigStore, 2)
    assert again.ask(asked).answer_as(ObjectsChanged).stamps == first.stamps
    assert len(history(again)) == 2


@pytest.mark.parametrize("request_of_the_second", ["", "two"])
def test_of_two_writers_who_want_the_same_one_is_refused(
    store: Staged[ConfigStore], request_of_the_second: str
) -> None:
    node = nodes(store)[0]
    claims = [
        change(node, node["serial_no"], claimed=True, request=name)
        for name in ("one", request_of_the_second)
    ]
    store.ask(claims[0]).answer_as(ObjectsChanged)
    name, _ = store.ask(claims[1]).refusal
    assert name == "StaleSerialError"
    assert len(history(store)) == 1


def test_what_is_so_already_needs_no_change(store: Staged[ConfigStore]) -> None:
    node = nodes(store)[0]
    same = change(node, node["serial_no"], powered=node["powered"])
    assert store.ask(same).answer_as(ObjectsChanged).stamps == [(node["serial_no"], node["mtime"])]
    assert history(store) == []


def test_a_batch_is_made_as_a_whole_or_not_at_all(stage: Stage, store: Staged[ConfigStore]) -> None:
    one, two = nodes(store)
    before = on_disk(stage)
    changes = [
        ObjectChange(kind=NODE, uuid=one["uuid"], object=one | {"powered": False}),
        ObjectChange(kind=NODE, uuid=two["uuid"], object=two | {"name": one["name"]}),
    ]
    name, text = store.ask(ChangeObjects(changes)).refusal
    assert name == "IntegrityError"
    assert one["name"] in text
    assert on_disk(stage) == before
    assert nodes(store) == [one, two]
    assert history(store) == []


def test_a_batch_that_changes_an_object_twice_is_refused(store: Staged[ConfigStore]) -> None:
    (first, _) = nodes(store)
    twice = [ObjectChange(kind=NODE, uuid=first["uuid"], object=None)] * 2
    expected = f"nodes/{first['uuid']}: a request changes an object once, not twice"
    assert store.ask(ChangeObjects(twice)).refusal == ("BadRequestError", expected)
    other = [ObjectChange(kind=ObjectKind.CLUSTER, uuid=name, object=None) for name in ("a", "b")]
    expected = "cluster: a request changes an object once, not twice"
    assert store.ask(ChangeObjects(other)).refusal == ("BadRequestError", expected)
    assert nodes(store)[0] == first


def test_a_change_that_the_disk_refuses_leaves_no_trace(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    one, two = nodes(store)
    before = on_disk(stage)
    for call in ("pwrite", "fdatasync"):
        with refusing(call):
            refused = store.ask(change(two, name="other.example.com"))
        # That of the flush: the record cannot be taken out either.
        assert refused.refusal[0] in ("ReadOnlyError", "OutcomeUnknownError")
        assert stage.log_of_changes.retry()
        assert on_disk(stage) == before
        assert nodes(store) == [one, two]
    # Nor in what is checked: the old name is still taken, and the new one free.
    assert store.ask(change(one, name=two["name"])).refusal[0] == "IntegrityError"
    assert isinstance(store.ask(change(one, name="other.example.com")).answer, ObjectsChanged)


def test_values_are_changed_and_all_others_stay(store: Staged[ConfigStore]) -> None:
    node = nodes(store)[0]
    values: list[tuple[list[str], object]] = [
        (["ndparams", "ssh_port"], 1022),
        (["powered"], False),
    ]
    store.ask(SetValues(NODE, node["name"], values))
    [found] = nodes(store, node["uuid"])
    assert found["ndparams"] == node.get("ndparams", {}) | {"ssh_port": 1022}
    assert found["powered"] is False
    store.ask(SetValues(NODE, node["name"], [(["ndparams", "ssh_port"], None)]))
    assert "ssh_port" not in nodes(store, node["uuid"])[0]["ndparams"]
    name, text = store.ask(SetValues(NODE, node["name"], [(["name", "deeper"], 1)])).refusal
    assert (name, text) == ("BadRequestError", "name is a value, and has no deeper")


def test_the_number_of_run_slots_is_in_force_when_it_is_answered(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    asker = store.ask(SetValues(ObjectKind.CLUSTER, "", [(["max_running_jobs"], 3)]))
    assert asker.answers == []
    changed = stage.take_one(messages.LimitsChanged, to="scheduler")
    assert changed.running_jobs_max == 3
    store.turn(messages.LimitApplied(serial=changed.serial))
    assert isinstance(asker.answer, ObjectsChanged)


def test_the_policy_of_the_scheduler_is_in_force_when_it_is_answered(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    values: list[tuple[list[str], Any]]
    values = [(["predictive_queue", "tick_seconds"], 10), (["enabled_predictive_queue"], False)]
    asker = store.ask(SetValues(ObjectKind.CLUSTER, "", values))
    assert asker.answers == []
    told = [message for to, message in stage.sent if to == "scheduler"]
    # The scheduler reads the policy first: its confirmation of the limits stands for both.
    policy, limits = told[-2:]
    assert isinstance(policy, messages.PolicyChanged)
    assert isinstance(limits, messages.LimitsChanged)
    assert (policy.policy.tick_seconds, policy.policy.is_predictive) == (10, False)
    assert policy.serial == limits.serial
    store.turn(messages.LimitApplied(serial=limits.serial))
    assert isinstance(asker.answer, ObjectsChanged)


@NEEDS_HIDDEN
def test_an_impossible_parameter_of_the_policy_is_refused_in_one_line(
    store: Staged[ConfigStore],
) -> None:
    values: list[tuple[list[str], Any]] = [(["predictive_queue", "tick_seconds"], 0)]
    name, text = store.ask(SetValues(ObjectKind.CLUSTER, "", values)).refusal
    assert (name, text) == (
        "IntegrityError",
        "cluster.predictive_queue.tick_seconds: expected float > 0.0",
    )


def test_a_masked_secret_is_not_stored(stage: Stage, store: Staged[ConfigStore]) -> None:
    cluster = messages.ReadObjects(ObjectKind.CLUSTER)
    secret = [(["osparams_private_cluster"], {"debian": {"password": "hidden"}})]
    store.ask(SetValues(ObjectKind.CLUSTER, "", secret))
    [read] = store.ask(cluster).answer_as(messages.ObjectsRead).objects
    assert "hidden" not in str(read)
    asked = ObjectChange(kind=ObjectKind.CLUSTER, uuid=read["uuid"], object=read | {"tags": ["x"]})
    name, text = store.ask(ChangeObjects([asked])).refusal
    assert name == "BadRequestError"
    assert "a secret is masked" in text
    store.ask(SetValues(ObjectKind.CLUSTER, "", [(["tags"], ["x"])]))
    stored = on_disk(stage)["cluster"]
    assert stored["osparams_private_cluster"] == {"debian": {"password": "hidden"}}
    assert stored["tags"] == ["x"]
    assert "hidden" not in stage.places.config_history.read_text()


def test_filter_rules_have_requests_of_their_own(store: Staged[ConfigStore]) -> None:
    asked = ChangeObjects([ObjectChange(kind=ObjectKind.FILTER, uuid="x", object={})])
    assert store.ask(asked).refusal[0] == "BadRequestError"


def test_the_whole_is_written_some_time_after_a_change(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    written = stage.places.config.read_bytes()
    store.ask(change(node, powered=False))
    assert stage.places.config.read_bytes() == written
    stage.run_timers()
    store.turn(*stage.take(messages.WholeDue))
    # The work is done in a thread; changes go on meanwhile.
    store.ask(change(node, powered=False, ndparams=PORT))
    [due, *work] = sorted(stage.timers, key=lambda timer: -timer.seconds)
    stage.timers[:] = work
    stage.run_timers()
    found = msgspec.json.decode(stage.places.config.read_bytes())
    assert found["nodes"][node["uuid"]]["powered"] is False
    assert found["nodes"][node["uuid"]]["ndparams"] == node["ndparams"] != PORT
    assert on_disk(stage)["nodes"][node["uuid"]]["ndparams"] == PORT
    store.turn(*stage.take(messages.WholeWritten))
    due.run_out()
    store.turn(*stage.take(messages.WholeDue))
    stage.run_timers()
    assert msgspec.json.decode(stage.places.config.read_bytes()) == on_disk(stage)
    store.turn(*stage.take(messages.WholeWritten))
    assert not stage.log_of_changes.ledger.segments.changes.changes


def test_a_whole_that_cannot_be_written_is_tried_again(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    store.ask(change(node, powered=False))
    stage.run_timers()
    with refusing("rename"):
        store.turn(*stage.take(messages.WholeDue))
        stage.run_timers()
    store.turn(*stage.take(messages.WholeWritten))
    assert "config.data is not written" in stage.log_stream.getvalue()
    assert on_disk(stage)["nodes"][node["uuid"]]["powered"] is False
    stage.run_timers()
    store.turn(*stage.take(messages.WholeDue))
    stage.run_timers()
    assert msgspec.json.decode(stage.places.config.read_bytes()) == on_disk(stage)


def test_a_successor_writes_the_whole_and_completes_the_history(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    store.ask(change(node, powered=False))
    store.ask(change(node, powered=False, ndparams=PORT))
    expected, entries = on_disk(stage), history(store)
    # The daemon is killed before the last entry is written.
    lines = stage.places.config_history.read_bytes().splitlines(keepends=True)
    stage.places.config_history.write_bytes(lines[0] + lines[1][:20])
    successor = stage.start(ConfigStore)
    assert history(successor) == entries
    assert msgspec.json.decode(stage.places.config.read_bytes()) == expected


def test_an_entry_that_the_disk_refused_is_written_with_the_next_one(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    with refusing("write"):
        store.ask(change(node, powered=False))
    # The change is stored, and so it is shown.
    assert [entry.serial for entry in history(store)] == [on_disk(stage)["serial_no"]]
    assert config_files.last_entered(stage.places.config_history) is None
    store.ask(change(node, powered=False, ndparams=PORT))
    assert [entry.serial for entry in history(store)] == [
        on_disk(stage)["serial_no"],
        on_disk(stage)["serial_no"] - 1,
    ]
    assert config_files.last_entered(stage.places.config_history) == on_disk(stage)["serial_no"]


def test_the_history_is_read_in_parts(store: Staged[ConfigStore]) -> None:
    node = nodes(store)[0]
    for number in range(5):
        store.ask(change(node, ndparams={"ssh_port": 1000 + number}))
    newest = store.ask(messages.ReadHistory(count=2)).answer_as(messages.HistoryRead).entries
    older = store.ask(messages.ReadHistory(count=9, before=newest[-1].serial))
    serials = [entry.serial for entry in newest + older.answer_as(messages.HistoryRead).entries]
    assert serials == sorted(serials, reverse=True)
    assert len(serials) == 5


def test_a_store_that_stops_leaves_the_whole_behind(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    store.ask(change(nodes(store)[0], powered=False))
    expected = on_disk(stage)
    store.actor.component.close()
    assert msgspec.json.decode(stage.places.config.read_bytes()) == expected
    assert on_disk(stage) == expected


def test_a_store_that_cannot_write_the_whole_stops_all_the_same(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    store.ask(change(nodes(store)[0], powered=False))
    expected = on_disk(stage)
    with refusing("rename"):
        store.actor.component.close()
    assert on_disk(stage) == expected


def test_values_nested_too_deeply_are_refused_and_the_store_goes_on(
    store: Staged[ConfigStore],
) -> None:
    node = nodes(store)[0]
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    for values in ([(["other"], deep)], [(["a"] * 3_000, 1)]):
        name, text = store.ask(SetValues(NODE, node["name"], values)).refusal
        assert (name, text) == (
            "BadRequestError",
            f"nodes/{node['uuid']}: nested deeper than 100 levels",
        )
    assert store.ask(change(node, other=deep)).refusal[0] == "BadRequestError"
    assert nodes(store, node["uuid"]) == [node]


@pytest.mark.parametrize("field", ["serial_no", "mtime", "ctime"])
def test_fields_that_each_change_sets_are_no_values_to_set(
    store: Staged[ConfigStore], field: str
) -> None:
    node = nodes(store)[0]
    name, text = store.ask(SetValues(NODE, node["name"], [([field], 5)])).refusal
    assert name == "BadRequestError"
    assert text.startswith(f"nodes/{node['uuid']}.{field}: ")
    assert nodes(store, node["uuid"]) == [node]


def test_what_a_store_that_failed_still_writes_replaces_nothing_of_its_successor(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    node = nodes(store)[0]
    store.ask(change(node, powered=False))
    late = store.component._stored.prepare_whole()
    store.component._is_writing = True
    store.component.close()
    successor = stage.start(ConfigStore)
    successor.ask(change(node, powered=False, ndparams=PORT))
    successor.component.close()
    expected = on_disk(stage)
    late()
    assert on_disk(stage) == expected
    assert expected["nodes"][node["uuid"]]["ndparams"] == PORT


def test_what_cannot_be_served_is_refused_at_the_start(stage: Stage) -> None:
    document = clusters.made_configuration(nodes=2)
    document["nodes"][clusters.uuid_of("nodes", 1)] = 5
    config_files.write(stage.places.config, document)
    place = f"{stage.places.config}: nodes/{clusters.uuid_of('nodes', 1)}"
    with pytest.raises(errors.DataDirectoryError) as caught:
        StoredConfiguration(stage.places, dict)
    assert caught.value.text == f"{place}: expected an object, got int"


def test_an_older_copy_goes_on_behind_the_history(stage: Stage, store: Staged[ConfigStore]) -> None:
    older = stage.places.config.read_bytes()
    for powered in (False, True):
        store.ask(change(nodes(store)[0], powered=powered)).answer_as(ObjectsChanged)
    newest = history(store)[0].serial
    store.close()
    stage.close_log()
    for path in stage.places.journal.iterdir():
        path.unlink()
    stage.places.config.write_bytes(older)
    stage.today = 1_800_000_000.0
    again = stage.start(ConfigStore, 2)
    assert "config.data lacks changes of its history" in stage.log_stream.getvalue()
    store_changed = change(nodes(again)[0], vm_capable=False)
    assert again.ask(store_changed).answer_as(ObjectsChanged).serial_no == newest + 2
    after, note, before = history(again)[:3]
    assert [after.serial, note.serial, before.serial] == [newest + 2, newest + 1, newest]
    serial = msgspec.json.decode(older)["serial_no"]
    assert note.time == stage.today
    assert note.why == f"config.data ends at serial number {serial}: newer changes are lost"
    assert config_files.last_entered(stage.places.config_history) == newest + 2


def test_a_configuration_that_has_gone_is_not_begun_anew(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    store.ask(change(nodes(store)[0], powered=False)).answer_as(ObjectsChanged)
    store.close()
    stage.close_log()
    for path in stage.places.journal.iterdir():
        path.unlink()
    stage.places.config.unlink()
    stage.places.config_copy.unlink()
    with pytest.raises(errors.DataDirectoryError) as caught:
        StoredConfiguration(stage.places, dict)
    assert caught.value.text == (
        f"{stage.places.config}: there is none, but config.history has changes of it; put a copy "
        "of the file back"
    )
    assert not stage.places.config.exists()


def test_an_object_that_lost_its_uuid_is_repaired_under_its_key(stage: Stage) -> None:
    document = clusters.made_configuration(nodes=2)
    uuid = clusters.uuid_of("nodes", 1)
    del document["nodes"][uuid]["uuid"]
    config_files.write(stage.places.config, document)
    store = stage.start(ConfigStore)
    change = SetValues(NODE, uuid, [(["uuid"], uuid)], why="a repair", sender="somebody")
    store.ask(change).answer_as(ObjectsChanged)
    assert on_disk(stage)["nodes"][uuid]["uuid"] == uuid


def in_file(stage: Stage) -> Any:
    """What ``config.data`` says by itself, without the changes in the log."""
    return msgspec.json.decode(stage.places.config.read_bytes())


def test_a_start_on_a_full_disk_serves_what_the_log_has_and_writes_it_later(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes(store)[0]
    unwritten = stage.places.config.read_bytes()
    store.ask(change(node, vm_capable=not node["vm_capable"])).answer_as(ObjectsChanged)
    store.component.close()
    # As if the daemon was killed before it wrote the file.
    stage.places.config.write_bytes(unwritten)
    before = in_file(stage)
    assert before["nodes"][node["uuid"]]["vm_capable"] is node["vm_capable"]

    def refuse(path: object, _: object) -> None:
        raise errors.StorageError(f"{path}: full") from OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(config_files, "write", refuse)
        again = stage.start(ConfigStore, 2)
    assert "config.data lacks changes of the log: the disk is full" in stage.log_stream.getvalue()
    assert nodes(again, node["uuid"])[0]["vm_capable"] is not node["vm_capable"]
    assert in_file(stage) == before
    again.component._stored.prepare_whole()()
    assert in_file(stage)["nodes"][node["uuid"]]["vm_capable"] is not node["vm_capable"]
