"""The configuration on disk: read unchanged, refused when it is malformed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ganger.storage import config_files, errors, settings


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
