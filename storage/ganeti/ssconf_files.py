"""The ssconf files on disk: ``ssconf/ssconf_<name>`` in the data directory, mode 0444.

`storage.ganeti.ssconf` says what is in them. Each is replaced as a whole, so that a script never
reads half of one, also after a loss of power.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .. import errors
from ..disk import documents
from ..version import GANETI_RELEASE
from . import ssconf

if TYPE_CHECKING:
    from pathlib import Path

    from ..disk.paths import Places

PREFIX: Final = "ssconf_"
_MODE: Final = 0o444


def write(folder: Path, configuration: Mapping[str, Any], names: Iterable[str] | None) -> int:
    """Write the files of these names (None: all) that are not as the configuration says.

    Returns how many were written. Raises `StorageError`; then some are written, and some not.
    """
    _prepare(folder)
    if names is None:
        documents.remove_temporaries(folder, lambda _name: False)
        wanted = _contents(configuration)
    else:
        wanted = {name: ssconf.content(_whole(configuration), name) for name in names}
    texts = {path_of(folder, name): _encoded(text) for name, text in wanted.items()}
    new = {path: text for path, text in texts.items() if _read(path) != text}
    # What lies in the place of one file keeps the others from nothing.
    blocked = {path: text for path, text in new.items() if path.is_dir()}
    for some in ({path: new[path] for path in new if path not in blocked}, blocked):
        if some:
            documents.replace_all(folder, some, mode=_MODE)
    return len(new)


def stale(folder: Path, configuration: Mapping[str, Any]) -> Iterator[str]:
    """The names of the files that say something else than the configuration."""
    for name, text in _contents(configuration).items():
        found = _read(path_of(folder, name))
        if found not in (None, _encoded(text)):
            yield f"{PREFIX}{name}"


def folder(places: Places) -> Path:
    """The folder of the files."""
    return places.ssconf


def path_of(folder: Path, name: str) -> Path:
    """The path of a file."""
    return folder / f"{PREFIX}{name}"


def _prepare(folder: Path) -> None:
    """Make the folder, but never the data directory: a deleted one must not come back."""
    with documents.storage_errors(folder), contextlib.suppress(FileExistsError):
        folder.mkdir(documents.DIRECTORY_MODE)


def _contents(configuration: Mapping[str, Any]) -> dict[str, str]:
    return ssconf.contents(_whole(configuration), GANETI_RELEASE)


def _whole(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration with a cluster, which a damaged one may lack."""
    return configuration if "cluster" in configuration else {**configuration, "cluster": {}}


def _read(path: Path) -> bytes | None:
    try:
        return documents.read(path)
    except errors.StorageError:
        # Something else lies in its place, or we may not read it: to replace it tells.
        return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
