"""The version of this distribution."""

from __future__ import annotations

from typing import Final

GANETI_RELEASE: Final = "3.0.2"
"""The release of Ganeti whose formats Ganger reads and writes, and which programs of it expect."""


def version() -> str:
    """The installed version, such as ``0.1.0``."""
    # Imported here: most commands never show the version, and the import is slow.
    from importlib import metadata  # noqa: PLC0415

    return metadata.version("ganger")
