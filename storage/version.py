"""The version of this distribution."""

from __future__ import annotations


def version() -> str:
    """The installed version, such as ``0.1.0``."""
    # Imported here: it costs more than most commands that never show the version.
    from importlib import metadata  # noqa: PLC0415

    return metadata.version("ganger")
