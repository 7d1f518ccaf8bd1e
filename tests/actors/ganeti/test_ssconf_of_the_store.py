"""The ssconf files follow the configuration, after each change is durable and never by halves."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest
from tests.actors.ganeti.wconfd_calls import call
from tests.actors.runtime.stage import Stage, Staged
from tests.storage.queries.recorded_answers import larger

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.ganeti import notices
from ganger.storage import errors, settings
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.ganeti import ssconf_files
from ganger.transport import messages


@pytest.fixture
def store(stage: Stage) -> Staged[ConfigStore]:
    stage.places.config.write_bytes(msgspec.json.encode(larger()))
    return stage.start(ConfigStore)


def settle(stage: Stage, store: Staged[ConfigStore]) -> None:
    """Let threads finish, and the store hear of it, until nothing is left to write."""
    for _ in range(10):
        stage.run_timers()
        for kind in (messages.WholeWritten, notices.SsconfWritten, notices.SsconfDue):
            for said in stage.take(kind):
                store.turn(said)


def file_of(stage: Stage, name: str) -> str:
    return (stage.places.ssconf / f"ssconf_{name}").read_text()


def stale(stage: Stage, store: Staged[ConfigStore]) -> list[str]:
    document = store.component._stored.snapshot.document
    return list(ssconf_files.stale(stage.places.ssconf, document))


def set_value(
    store: Staged[ConfigStore], kind: ObjectKind, name: str, path: str, value: object
) -> None:
    changed = messages.SetValues(kind=kind, name=name, values=[(path.split("/"), value)])
    store.turn(changed)


def test_a_start_writes_all_files_with_their_mode(stage: Stage, store: Staged[ConfigStore]) -> None:
    settle(stage, store)
    found = {path.name: path for path in stage.places.ssconf.iterdir()}
    assert len(found) == 34
    assert {stat.S_IMODE(path.stat().st_mode) for path in found.values()} == {0o444}
    assert file_of(stage, "release_version") == "3.0.2\n"
    assert file_of(stage, "node_list").splitlines()[-1] == "node10.example.com"
    assert stale(stage, store) == []


def test_a_change_writes_the_files_that_it_concerns(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settle(stage, store)
    before = {path: path.stat().st_ino for path in stage.places.ssconf.iterdir()}
    set_value(store, ObjectKind.CLUSTER, "", "tags", ["web", "db"])
    settle(stage, store)
    assert file_of(stage, "cluster_tags") == "db\nweb\n"
    changed = [path.name for path, inode in before.items() if path.stat().st_ino != inode]
    assert changed == ["ssconf_cluster_tags"]


def test_a_change_that_concerns_no_file_starts_no_thread(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settle(stage, store)
    set_value(store, ObjectKind.NODE, "n2", "powered", value=False)
    assert [timer.seconds for timer in stage.timers if not timer.seconds] == []


def test_several_changes_while_a_thread_writes_are_written_together(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(stage, store)
    written: list[list[str]] = []
    write = ssconf_files.write

    def noted(folder: Path, document: object, names: list[str] | None) -> int:
        written.append(list(names or ()))
        return write(folder, document, names)  # type: ignore[arg-type]

    monkeypatch.setattr(ssconf_files, "write", noted)
    for number in range(3):
        set_value(store, ObjectKind.CLUSTER, "", "tags", [f"tag{number}"])
        set_value(store, ObjectKind.CLUSTER, "", "master_netdev", f"eth{number}")
    settle(stage, store)
    assert written == [["cluster_tags"], ["cluster_tags", "master_netdev"]]
    assert stale(stage, store) == []


def test_what_the_disk_refuses_is_written_later_and_holds_up_no_change(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(stage, store)
    # While the disk still takes what it needs.
    stage.renew_log()

    def refused(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refused)
        set_value(store, ObjectKind.CLUSTER, "", "tags", ["web"])
        set_value(store, ObjectKind.CLUSTER, "", "master_netdev", "eth7")
        assert store.component._stored.snapshot.cluster["master_netdev"] == "eth7"
        stage.run_timers()
        store.turn(stage.take_one(notices.SsconfWritten))
        assert file_of(stage, "cluster_tags") != "web\n"
        assert "tried again later" in stage.log_stream.getvalue()
        assert settings.DISK_RETRY_SECONDS in [timer.seconds for timer in stage.timers]
        assert [path.name for path in stage.places.ssconf.glob(".tmp-*")] == []
    settle(stage, store)
    assert file_of(stage, "cluster_tags") == "web\n"
    assert stale(stage, store) == []


def test_a_start_brings_old_files_up_to_date_and_leaves_the_others(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settle(stage, store)
    old = stage.places.ssconf / "ssconf_node_list"
    old.unlink()
    old.write_text("gone.example.com\n")
    left = stage.places.ssconf / ".tmp-ssconf_node_list.1.1"
    left.write_text("half of")
    kept = (stage.places.ssconf / "ssconf_cluster_name").stat().st_ino
    store.close()
    successor = stage.start(ConfigStore, incarnation=2)
    assert stale(stage, successor) == ["ssconf_node_list"]
    settle(stage, successor)
    assert stale(stage, successor) == []
    assert not left.exists()
    assert (stage.places.ssconf / "ssconf_cluster_name").stat().st_ino == kept


def test_an_orderly_end_writes_what_no_thread_has_begun(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    set_value(store, ObjectKind.CLUSTER, "", "tags", ["last"])
    store.close()
    assert file_of(stage, "cluster_tags") == "last\n"
    assert stale(stage, store) == []
    # The thread that comes too late writes nothing over a successor's files.
    name = stage.places.ssconf / "ssconf_cluster_tags"
    name.unlink()
    stage.run_timers()
    assert not name.exists()


def test_news_of_a_predecessors_thread_is_not_ours(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settle(stage, store)
    set_value(store, ObjectKind.CLUSTER, "", "tags", ["web"])
    called: list[str | None] = []
    store.component._parts.when_written(called.append)
    store.turn(notices.SsconfWritten(names=None, incarnation=99))
    assert called == []
    settle(stage, store)
    assert called == [None]
    store.component._parts.when_written(called.append)
    assert called == [None, None]


def test_a_flush_answers_when_the_files_are_written_or_says_why_not(
    stage: Stage, store: Staged[ConfigStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(stage, store)
    set_value(store, ObjectKind.CLUSTER, "", "tags", ["web"])
    asker = store.ask(call("flushConfig"))
    for written in (messages.WholeWritten, notices.SsconfWritten):
        assert asker.answers == []
        stage.run_timers()
        for one in stage.take(written):
            store.turn(one)
    settle(stage, store)
    assert asker.answer == messages.ConfigAnswered()
    assert file_of(stage, "cluster_tags") == "web\n"

    def refused(*_arguments: object) -> None:
        raise errors.StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(ssconf_files, "write", refused)
        set_value(store, ObjectKind.CLUSTER, "", "tags", ["db"])
        failed = store.ask(call("flushConfig"))
        settle(stage, store)
        assert failed.refusal == ("StorageError", "the disk is full")
    again = store.ask(call("flushConfig"))
    settle(stage, store)
    assert again.answer == messages.ConfigAnswered()
    assert file_of(stage, "cluster_tags") == "db\n"


def test_a_directory_that_took_the_place_of_ours_is_left_alone(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    settle(stage, store)
    set_value(store, ObjectKind.CLUSTER, "", "tags", ["web"])
    data = stage.places.data
    data.rename(data.with_name("elsewhere"))
    stage.run_timers()
    store.turn(stage.take_one(notices.SsconfWritten))
    assert not data.exists()
    data.mkdir()
    settle(stage, store)
    store.close()
    assert list(data.iterdir()) == []


def test_a_damaged_configuration_leaves_the_files_until_it_is_repaired(stage: Stage) -> None:
    document = larger()
    document["cluster"]["uid_pool"] = 5
    stage.places.config.write_bytes(msgspec.json.encode(document))
    store = stage.start(ConfigStore)
    settle(stage, store)
    assert "the configuration is damaged" in stage.log_stream.getvalue()
    assert list(stage.places.ssconf.iterdir()) == []
    assert [timer for timer in stage.timers if timer.seconds == settings.DISK_RETRY_SECONDS] == []
    set_value(store, ObjectKind.CLUSTER, "", "uid_pool", [[1, 2]])
    settle(stage, store)
    assert file_of(stage, "uid_pool") == "1-2\n"
    assert stale(stage, store) == []


@pytest.mark.parametrize("data", [b"{}", b'{"cluster": {}}'])
def test_a_configuration_without_a_cluster_has_files(stage: Stage, data: bytes) -> None:
    stage.places.config.write_bytes(data)
    store = stage.start(ConfigStore)
    settle(stage, store)
    assert file_of(stage, "cluster_name") == ""
    assert file_of(stage, "master_node") == "NO MASTER\n"


def test_an_opcode_that_distributes_ends_when_all_files_are_written_anew(
    stage: Stage, store: Staged[ConfigStore]
) -> None:
    for uuid, _ in list(store.component._stored.snapshot.objects(ObjectKind.NODE)):
        for flag, value in (("master_candidate", False), ("drained", False), ("offline", True)):
            set_value(store, ObjectKind.NODE, uuid, flag, value=value)
    settle(stage, store)
    lost = stage.places.ssconf / "ssconf_cluster_name"
    lost.unlink()
    stage.places.config.unlink()
    asked = messages.RunOpcode(
        job_id=7,
        op_index=0,
        opcode={"OP_ID": "OP_CLUSTER_REDIST_CONF"},
        new_uuid="u",
        locks={"node": {"shared": ("*",)}},
        since=0,
        lock_file="",
    )
    asker = store.ask(asked)
    assert asker.answers == []
    settle(stage, store)
    assert asker.answer == messages.OpcodeRan()
    assert lost.exists()
    assert stage.places.config.exists()
