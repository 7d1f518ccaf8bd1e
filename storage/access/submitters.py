"""Makes submitters of credentials: the name of a local user, or that of a remote client's key."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Literal

from ..disk import ownership
from ..jobs.origins import Submitter
from . import keys

if TYPE_CHECKING:
    from pathlib import Path


@functools.lru_cache(maxsize=1_024)
def local_user(uid: int, via: Literal["socket", "luxi"]) -> Submitter:
    """The user of the system with this number. To look the name up may take long."""
    return Submitter(user=ownership.user_name(uid) or str(uid), uid=uid, via=via)


user_text = functools.lru_cache(maxsize=1_024)(ownership.user)
"""As `ownership.user`, for each request of a connection: to look a name up reads files."""


def key_owner(keys_directory: Path, public_key: str) -> Submitter | None:
    """The client with this key, by the name under which it was authorised; None: it is not now."""
    return _key_owner(keys_directory, _changed_at(keys_directory), public_key)


@functools.lru_cache(maxsize=1_024)
def _key_owner(keys_directory: Path, _changed: int, public_key: str) -> Submitter | None:
    name = keys.name_of(keys_directory, public_key)
    return None if name is None else Submitter(user=name, via="key")


def _changed_at(keys_directory: Path) -> int:
    """When a key was last authorised or revoked, in nanoseconds."""
    try:
        return os.stat(keys_directory / "clients").st_mtime_ns
    except OSError:
        return 0
