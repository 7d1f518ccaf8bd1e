"""The configuration on disk and in the log: read unchanged, refused when it is malformed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clusters import made_configuration

from ganger.storage import config_files, config_log, errors, settings
from ganger.storage.disk.paths import Places
from ganger.storage.log.checked_records import RecordFormat, packed
from ganger.storage.log.records import (
    FORMAT_VERSION,
    RECORDS,
    ConfigChanged,
    ConfigWritten,
    Record,
    SegmentBegun,
    StateStored,
)


def test_there_may_be_none(tmp_path: Path) -> None:
    assert config_files.read(tmp_path / "config.data") is None


def test_a_written_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    first = config_files.first_configuration("uuid", 1_700_000_000.5)
    first["of_a_later_version"] = {"x": [1, None]}
    config_files.write(path, first)
    assert config_files.read(path) == first


def test_the_first_configuration_has_the_schema_of_ganeti() -> None:
    first = config_files.first_configuration("uuid", 5.0)
    assert first["version"] == 3_000_000
    assert first["cluster"]["uuid"] == "uuid"
    assert first["cluster"]["max_running_jobs"] == settings.RUNNING_JOBS_MAX
    assert {"nodes", "nodegroups", "instances", "networks", "disks", "filters"} < set(first)
    assert (first["ctime"], first["mtime"], first["serial_no"]) == (5.0, 5.0, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"cluster": {}, "filters": {}}',
        b'{"cluster": {"max_running_jobs": 1}, "other": null}',
    ],
)
def test_missing_keys_get_their_default_elsewhere(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.data").write_bytes(data)
    assert config_files.read(tmp_path / "config.data") == msgspec.json.decode(data)


LIMIT = "cluster.max_running_jobs: expected a positive integer, got"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a configuration: "),
        (b"{", "not a configuration: "),
        (b'{"x": "\xff"}', "not a configuration: "),
        (b"[" * 100_000, "not a configuration: "),
        (b"[]", "not a configuration: expected a JSON object"),
        (b'{"cluster": []}', "cluster: expected an object"),
        (b'{"filters": null}', "filters: expected an object"),
        (b'{"nodes": []}', "nodes: expected an object"),
        (b'{"cluster": {"max_running_jobs": 0}}', f"{LIMIT} 0"),
        (b'{"cluster": {"max_running_jobs": true}}', f"{LIMIT} True"),
        (b'{"cluster": {"max_running_jobs": "20"}}', f"{LIMIT} '20'"),
        (b'{"cluster": {"max_running_jobs": null}}', f"{LIMIT} None"),
    ],
)
def test_a_malformed_configuration_is_refused_with_its_path(
    tmp_path: Path, data: bytes, text: str
) -> None:
    path = tmp_path / "config.data"
    path.write_bytes(data)
    with pytest.raises(errors.DataDirectoryError) as caught:
        config_files.read(path)
    assert caught.value.text.startswith(f"{path}: {text}")
    assert "\n" not in caught.value.text
    assert path.read_bytes() == data


# ------------------------------------------------------------ what the log tells of the file


@pytest.fixture(params=["queue/journal", "config.journal"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """``config.data``, beside the folder of the log, or of the journal of earlier versions."""
    (tmp_path / request.param).mkdir(parents=True)
    return tmp_path / "config.data"


def _segments_of(path: Path) -> Path:
    former = config_log.former_directory(path)
    return former if former.is_dir() else Places(path.parent, path.parent).journal


def _stored(path: Path, serial: int, *changes: int, missing: int = 0) -> Path:
    """``config.data`` of this serial number, and a segment with these changes.

    ``missing``: as written by versions whose changes had so many fields fewer.
    """
    configuration = config_files.first_configuration("uuid", 5.0)
    config_files.write(path, configuration | {"serial_no": serial})
    segment = _segments_of(path) / "00000001.journal"
    cluster = configuration["cluster"]
    records = [
        ConfigChanged(number, 6.0, "", "", [("cluster", "", cluster | {"changed": number})])
        for number in changes
    ]
    fields = [msgspec.to_builtins(record) for record in records]
    written = [msgspec.msgpack.encode(some[: len(some) - missing]) for some in fields]
    segment.write_bytes(b"".join(map(packed, written)))
    return segment


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_file_within_the_journal_is_brought_up_to_it(path: Path, missing: int) -> None:
    _stored(path, 8, 7, 8, 9, 10, missing=missing)
    found = config_files.read(path)
    assert found is not None
    assert (found["serial_no"], found["cluster"]["changed"]) == (10, 10)


@pytest.mark.parametrize(("changes", "missed"), [((8, 9), 8), ((7, 9), 9)])
def test_a_file_older_than_the_journal_is_no_base_for_its_changes(
    path: Path, changes: tuple[int, ...], missed: int
) -> None:
    _stored(path, 6, *changes)
    newer = config_files.first_configuration("uuid", 5.0) | {"serial_no": missed - 1}
    copy = config_files.copy_path(path)
    copy.write_bytes(msgspec.json.encode(newer))
    with pytest.raises(errors.DataDirectoryError, match=f"goes on with {missed}; .* such as") as it:
        config_files.read(path)
    assert "away" not in it.value.text
    # What it advises works.
    copy.replace(path)
    assert config_files.read(path) is not None


def test_changes_of_a_file_that_is_gone_are_not_made_in_a_new_one(path: Path) -> None:
    segment = _stored(path, 6, 7)
    path.unlink()
    config_files.copy_path(path).unlink()
    with pytest.raises(errors.DataDirectoryError, match=r"there is none, but .* put a copy"):
        config_files.read(path)
    segment.write_bytes(b"")
    assert config_files.read(path) is None


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_changes_behind_a_torn_one_are_left_out_and_named(path: Path, missing: int) -> None:
    segment = _stored(path, 6, 7, 8, 9, missing=missing)
    whole = segment.read_bytes()
    length = len(whole) // 3
    segment.write_bytes(whole[: length + 20] + b"\xff" + whole[length + 21 :])
    found = config_files.read_stored(path)
    assert [change.serial for change in found.changes] == [7]
    assert found.damaged == [segment]
    # A torn end has nothing behind it that could be of use.
    segment.write_bytes(whole[:-1])
    found = config_files.read_stored(path)
    assert [change.serial for change in found.changes] == [7, 8]
    assert found.damaged == []


def test_changes_based_on_a_damaged_one_are_left_out_and_named(path: Path) -> None:
    segment = _stored(path, 6, 7, 8, 9)
    whole = segment.read_bytes()
    length = len(whole) // 3
    later = segment.with_name("00000002.journal")
    later.write_bytes(whole[length * 2 :])
    segment.write_bytes(whole[:length] + b"\xff" * 20 + whole[length + 20 : length * 2])
    found = config_files.read_stored(path)
    assert [change.serial for change in found.changes] == [7]
    assert found.damaged == [later]


@pytest.mark.parametrize("data", [b"", b"\0" * 900, b'{"cluster": {', b'{"nodes": {"u": 5}}', None])
def test_the_copy_of_a_damaged_file_and_the_journal_hold_everything(
    path: Path, data: bytes | None
) -> None:
    _stored(path, 6, 6, 7, 8)
    whole = config_files.read(path)
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    assert config_files.read(path) == whole
    problem = config_files.read_stored(path).problem
    assert problem.startswith(f"{path}: ")


def test_a_damaged_file_without_a_whole_copy_is_refused(path: Path) -> None:
    _stored(path, 6)
    path.write_bytes(b"{")
    config_files.copy_path(path).write_bytes(b"")
    with pytest.raises(errors.DataDirectoryError, match=r"config\.data: not a configuration"):
        config_files.read(path)


def test_a_file_that_the_daemon_writes_meanwhile_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stored(path, 8, 9)
    read, older = config_files.read_written, [6]

    def read_late(path: Path) -> dict[str, object] | None:
        found = read(path)
        assert found is not None
        return found | {"serial_no": older.pop()} if older else found

    monkeypatch.setattr(config_files, "read_written", read_late)
    found = config_files.read(path)
    assert found is not None
    assert (found["serial_no"], found["cluster"]["changed"]) == (9, 9)


# ------------------------------------------------------------ the log alone


def _log(path: Path, *segments: list[Record], serial: int = 6) -> None:
    configuration = config_files.first_configuration("uuid", 5.0)
    config_files.write(path, configuration | {"serial_no": serial})
    folder = Places(path.parent, path.parent).journal
    folder.mkdir(parents=True)
    for number, records in enumerate(segments, 1):
        data = b"".join(map(RECORDS.packed, [SegmentBegun(FORMAT_VERSION, 0), *records]))
        (folder / f"{number:08d}.journal").write_bytes(data)


def _changed(serial: int, time: float = 6.0) -> ConfigChanged:
    return ConfigChanged(serial, time, "", "", [])


def test_states_of_jobs_stand_between_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    job = StateStored(3, 1, b"x" * 100)
    _log(path, [job, _changed(7), job, job], [_changed(7), _changed(8), job])
    found = config_files.read_stored(path)
    assert [change.serial for change in found.changes] == [7, 8]
    assert (found.newest, found.damaged) == (8, [])


def test_changes_that_the_file_has_had_do_not_come_back_over_an_older_copy(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    _log(path, [_changed(7), _changed(8), ConfigWritten(8)])
    found = config_files.read_stored(path)
    assert (found.changes, found.newest) == ([], 8)


def test_changes_after_the_whole_was_written_count(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    _log(path, [_changed(7), _changed(8), ConfigWritten(7)], serial=7)
    assert [change.serial for change in config_files.read_stored(path).changes] == [8]


def test_changes_before_the_configuration_went_on_anew_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    lost, other = _changed(8, 7.0), [_changed(7, 8.0), _changed(8, 9.0)]
    _log(path, [lost, ConfigWritten(6, is_anew=True), other[0]], [*other])
    assert config_files.read_stored(path).changes == other


def test_a_segment_that_goes_meanwhile_was_repeated_by_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.data"
    _log(path, [_changed(7), _changed(8)])
    folder = Places(tmp_path, tmp_path).journal
    listed = config_log._segments

    def listed_late(path: Path) -> list[Path]:
        found = list(listed(path))
        with contextlib.suppress(FileNotFoundError):
            (folder / "00000001.journal").rename(folder / "00000002.journal")
        return found

    monkeypatch.setattr(config_log, "_segments", listed_late)
    assert [change.serial for change in config_files.read_stored(path).changes] == [7, 8]


def test_the_former_journal_keeps_earlier_versions_out(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    former = config_log.former_directory(path)
    former.mkdir()
    _stored(path, 6, 7)
    config_log.retire_former(path)
    [marker] = former.iterdir()
    # As format 1 reads it.
    kinds = SegmentBegun | ConfigChanged
    first: RecordFormat[SegmentBegun | ConfigChanged] = RecordFormat(kinds, "journal", 1)
    with pytest.raises(errors.DataDirectoryError, match=r"journal format 3, supported is 1$"):
        list(first.records_in(marker.read_bytes(), marker))
    written = marker.stat().st_mtime_ns
    config_log.retire_former(path)
    assert marker.stat().st_mtime_ns == written
    assert config_files.read_stored(path).changes == []


@pytest.mark.parametrize(
    ("nodes", "instances", "at_once"), [(4, 10, 1), (2, 3, 2), (3, 6, 3), (4, 10, 100), (2, 0, 5)]
)
def test_encoding_some_objects_at_a_time_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, nodes: int, instances: int, at_once: int
) -> None:
    monkeypatch.setattr(config_files, "_ENCODED_AT_ONCE", at_once)
    made = made_configuration(nodes, instances)
    configurations: tuple[dict[str, Any], ...] = (
        made,
        {**made, "networks": {}, "of_a_later_version": {"x": {"y": [1, None, "\u2028"]}}},
        {"nodes": made["nodes"], "disks": None},
        {"nodes": {}},
        {},
    )
    for configuration in configurations:
        assert config_files.encoded(configuration) == msgspec.json.encode(configuration)
