"""The version of this distribution."""

from __future__ import annotations


def version() -> str:
    """The installed version, such as ``0.1.0``."""
    # Imported here: most commands never show the version, and the import is slow.
    from importlib import metadata  # noqa: PLC0415

    return metadata.version("ganger")
