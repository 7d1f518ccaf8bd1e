"""The configuration on disk: ``config.data``, JSON in Ganeti's schema. Holds no decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from . import documents, errors, settings

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 3_000_000
"""Ganeti's configuration version: major * 1,000,000 + minor * 10,000."""


def read(path: Path) -> dict[str, Any] | None:
    """The configuration; None if there is no file; `DataDirectoryError` if it is malformed."""
    data = documents.read(path)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.DataDirectoryError(f"{path}: not a configuration: {error}") from error
    _check(found, path)
    assert isinstance(found, dict)
    return found


def write(path: Path, configuration: dict[str, Any]) -> None:
    """Replace the configuration, durably."""
    documents.replace(path, msgspec.json.encode(configuration), flush=True)


def first_configuration(uuid: str, now: float) -> dict[str, Any]:
    """The configuration of a new data directory: no nodes, no rules, the default limits."""
    stamps = {"ctime": now, "mtime": now, "serial_no": 1}
    cluster = {
        "cluster_name": "ganger",
        "uuid": uuid,
        "max_running_jobs": settings.RUNNING_JOBS_MAX,
        "max_tracked_jobs": settings.TRACKED_JOBS_MAX,
        "tags": [],
        **stamps,
    }
    containers: dict[str, dict[str, Any]] = {
        name: {} for name in ("nodes", "nodegroups", "instances", "networks", "disks", "filters")
    }
    return {"version": VERSION, "cluster": cluster, **containers, **stamps}


def _check(found: object, path: Path) -> None:
    if not isinstance(found, dict):
        raise errors.DataDirectoryError(f"{path}: not a configuration: expected a JSON object")
    for key in ("cluster", "filters"):
        if not isinstance(found.get(key, {}), dict):
            raise errors.DataDirectoryError(f"{path}: {key}: expected an object")
    limit = found.get("cluster", {}).get("max_running_jobs", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"{path}: cluster.max_running_jobs: expected a positive integer, got {limit!r}"
        raise errors.DataDirectoryError(message)
