"""The ssconf files on disk, as Ganeti writes them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.storage.queries.recorded_answers import RECORDED

from ganger.storage import errors
from ganger.storage.disk import documents
from ganger.storage.ganeti import ssconf_files

ALL = 34


def test_the_recorded_cluster_has_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "ssconf"
    assert ssconf_files.write(folder, RECORDED, None) == ALL
    files = {path.name: path.read_text() for path in folder.iterdir()}
    cluster = RECORDED["cluster"]
    assert files["ssconf_cluster_name"] == f"{cluster['cluster_name']}\n"
    assert files["ssconf_master_ip"] == f"{cluster['master_ip']}\n"
    assert files["ssconf_maintain_node_health"] == "False\n"
    assert files["ssconf_hvparams_fake"] == "migration_mode=live\n"
    [node] = RECORDED["nodes"].values()
    assert files["ssconf_node_primary_ips"] == f"{node['name']} {node['primary_ip']}\n"
    assert list(ssconf_files.stale(folder, RECORDED)) == []


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    ssconf_files.write(tmp_path / "ssconf", RECORDED, None)
    assert ssconf_files.write(tmp_path / "ssconf", RECORDED, None) == 0
    assert ssconf_files.write(tmp_path / "ssconf", RECORDED, ["node_list"]) == 0


def test_a_folder_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    assert ssconf_files.write(tmp_path / "ssconf", RECORDED, ["node_list"]) == 1
    [path] = (tmp_path / "ssconf").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_reader_keeps_the_whole_of_the_old_file(tmp_path: Path) -> None:
    folder = tmp_path / "ssconf"
    ssconf_files.write(folder, RECORDED, ["cluster_name"])
    with ssconf_files.path_of(folder, "cluster_name").open() as reader:
        renamed = {**RECORDED, "cluster": {**RECORDED["cluster"], "cluster_name": "other"}}
        assert list(ssconf_files.stale(folder, renamed)) == ["ssconf_cluster_name"]
        ssconf_files.write(folder, renamed, ["cluster_name"])
        assert reader.read() == f"{RECORDED['cluster']['cluster_name']}\n"


def test_what_stands_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    path = ssconf_files.path_of(tmp_path, "cluster_name")
    path.mkdir()
    (path / "x").touch()
    with pytest.raises(errors.StorageError, match="ssconf_cluster_name"):
        ssconf_files.write(tmp_path, RECORDED, ["cluster_name", "node_list"])
    assert ssconf_files.path_of(tmp_path, "node_list").is_file()


def test_a_name_that_no_encoding_has_is_written_all_the_same(tmp_path: Path) -> None:
    odd = {**RECORDED, "cluster": {**RECORDED["cluster"], "cluster_name": "\ud800"}}
    ssconf_files.write(tmp_path, odd, ["cluster_name"])
    assert ssconf_files.path_of(tmp_path, "cluster_name").read_bytes() == b"\\ud800\n"


def test_several_files_are_flushed_and_their_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    rename = os.rename

    def renamed(*paths: str) -> None:
        done.append("rename")
        rename(*paths)

    monkeypatch.setattr(os, "fdatasync", lambda _descriptor: done.append("data"))
    monkeypatch.setattr(documents, "flush_directory", lambda _path: done.append("folder"))
    monkeypatch.setattr(os, "rename", renamed)
    documents.replace_all(tmp_path, {tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert done == ["data", "rename", "data", "rename", "folder"]
    assert (tmp_path / "b").read_bytes() == b"2"
