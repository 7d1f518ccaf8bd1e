"""Tells the data directory with which the master has spoken last from an older or second copy.

How it works. A node's directory has a seal, a random word, and the master knows it. Each daemon of
the node first stores a new seal, then shows both. The master goes on with a directory whose seal it
knows, stores the new one, and answers; then the node forgets the old one. So a copy that was made
before the node's last daemon shows a seal of the past. A later copy has forgotten the tasks since
then: the node also tells the highest id that its queue has given, and the master knows the highest
that it has heard of. A task that the master has not heard of is known outside of the directory
(`begun_tasks`): a directory that is behind that loses its seal.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from pathlib import Path

    from .host_table import HostRecord

_BYTES = 16


class Seal(msgspec.Struct, frozen=True):
    """The seal that the master knows, and the one with which it is replaced; "": none."""

    present: str = ""
    following: str = ""


def refusal(host: HostRecord, seal: Seal, last_id: int, seen_id: int) -> str:
    """Why a node with this seal is not the one that the master knows; empty: it is.

    ``last_id``: the highest id that its queue has given; ``seen_id``: the highest that was seen.
    """
    again = f"`ganger node invite {host.name}` lets it join anew"
    if host.seal and host.seal not in {seal.present, seal.following}:
        return f"node {host.name} has an older or second copy of its data directory; {again}"
    if last_id < seen_id:
        text = f"node {host.name} has an older copy of its data directory: it has forgotten tasks"
        return f"{text}; {again}"
    return ""


def path_of(data: Path) -> Path:
    """Where a node has its seal."""
    return data / "seal.json"


def begin(data: Path) -> Seal:
    """The seal of a new daemon, stored; the same one until `settle`.

    On a disk that refuses it there is no new one: the daemon must call all the same.
    """
    path = path_of(data)
    text = documents.read(path)
    try:
        seal = Seal() if text is None else msgspec.json.decode(text, type=Seal)
    except msgspec.MsgspecError as error:
        raise errors.StorageError(f"{path}: {error}") from error
    if not seal.following:
        following = Seal(seal.present, secrets.token_hex(_BYTES))
        try:
            _write(path, following)
        except errors.StorageError:
            return Seal(seal.present, seal.present)
        return following
    return seal


def discard(data: Path) -> Seal:
    """The directory is an older copy: from now on the master knows no seal of it.

    `StorageError` if the disk refuses.
    """
    _write(path_of(data), Seal())
    return Seal()


def settle(data: Path, seal: Seal) -> Seal:
    """The master knows the following seal now: what further connections show."""
    if seal.present != seal.following:
        # If the disk refuses, the next daemon shows both again.
        with contextlib.suppress(errors.StorageError):
            _write(path_of(data), Seal(seal.following))
    return Seal(seal.following, seal.following)


def _write(path: Path, seal: Seal) -> None:
    with documents.storage_errors(path):
        documents.replace(path, msgspec.json.encode(seal), flush=True, mode=documents.SECRET_MODE)
