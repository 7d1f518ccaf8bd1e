"""Lock names, levels, modes and their order; the owners of locks; the coding of ``locks.data``.

Holds values only. ``actors/locks/locking`` decides which request gets a lock.

A lock is named by a plain string, ``node/<uuid>`` or ``cluster/BGL``. The lock set of a level
(``node/[lockset]``) stands for all locks of that level, whatever their names.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

from .. import errors

NAMES_REMEMBERED_MAX = 65_536
"""Lock names whose level, group and place in the order are cached."""


class LockMode(enum.StrEnum):
    """How a lock is held. Compare with `covers`: the strings are in the wrong order."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"

    def covers(self, wanted: LockMode) -> bool:
        """Whether an owner in this mode has everything that ``wanted`` gives."""
        return self is LockMode.EXCLUSIVE or wanted is LockMode.SHARED


class LockChange(enum.StrEnum):
    """What a request asks for one lock."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    RELEASE = "release"

    @property
    def mode(self) -> LockMode | None:
        """The mode in which the owner holds the lock afterwards; None: it does not."""
        return _MODES[self]


_MODES = {
    LockChange.SHARED: LockMode.SHARED,
    LockChange.EXCLUSIVE: LockMode.EXCLUSIVE,
    LockChange.RELEASE: None,
}


class LockLevel(enum.StrEnum):
    """The levels, in the order in which they must be acquired (`rank`, not the strings)."""

    CLUSTER = "cluster"
    INSTANCE = "instance"
    NODEGROUP = "nodegroup"
    NODE = "node"
    NODE_RES = "node-res"
    NETWORK = "network"
    CONFIG = "config"

    @property
    def rank(self) -> int:
        """Place among the levels; lower ones are acquired first."""
        return _RANKS[self]


_RANKS = {level: rank for rank, level in enumerate(LockLevel)}

SortKey = tuple[int, bool, str]
"""Level, whether it is a single lock (the lock set comes first), name."""


class _Name(NamedTuple):
    level: LockLevel
    group: str | None
    key: SortKey
    shown: str


# The levels whose members may have any name, as error texts write them.
_SHOWN = {
    LockLevel.INSTANCE: "Instance",
    LockLevel.NODEGROUP: "NodeGroup",
    LockLevel.NODE: "Node",
    LockLevel.NODE_RES: "NodeRes",
    LockLevel.NETWORK: "Network",
}
_LEVELS = {level.value: level for level in _SHOWN}
_LOCK_SET = "[lockset]"
CLUSTER_LOCK_SET, BGL, CONFIG_LOCK = "cluster/[lockset]", "cluster/BGL", "cluster/config"


def _fixed(level: LockLevel, group: str | None, name: str, shown: str) -> _Name:
    return _Name(level, group, (level.rank, name != CLUSTER_LOCK_SET, name), shown)


_FIXED = {
    CLUSTER_LOCK_SET: _fixed(LockLevel.CLUSTER, None, CLUSTER_LOCK_SET, "ClusterLockSet"),
    BGL: _fixed(LockLevel.CLUSTER, CLUSTER_LOCK_SET, BGL, "BGL"),
    CONFIG_LOCK: _fixed(LockLevel.CONFIG, None, CONFIG_LOCK, "ConfigLock"),
}


@lru_cache(maxsize=NAMES_REMEMBERED_MAX)
def _parse(name: str) -> _Name:
    if name in _FIXED:
        return _FIXED[name]
    prefix, slash, member = name.partition("/")
    level = _LEVELS.get(prefix)
    if level is None or not slash:
        raise errors.LockRequestError(f"Unknown lock name '{name}'")
    if member == _LOCK_SET:
        return _Name(level, None, (level.rank, False, name), f"{_SHOWN[level]}LockSet")
    quoted = member.replace("\\", "\\\\").replace('"', '\\"')
    shown = f'{_SHOWN[level]} "{quoted}"'
    return _Name(level, f"{prefix}/{_LOCK_SET}", (level.rank, True, name), shown)


def check_name(name: str) -> None:
    """Raise `LockRequestError` unless ``name`` has the form of a lock's name."""
    _parse(name)


def sort_key(name: str) -> SortKey:
    """Place in the lock order: by level, the lock set first, then in plain string order."""
    return _parse(name).key


def level_of(name: str) -> LockLevel:
    """The level to which the lock belongs.

    >>> level_of("node-res/fd53").value, level_of("cluster/config").value
    ('node-res', 'config')
    """
    return _parse(name).level


def group_of(name: str) -> str | None:
    """The lock set that stands for this lock among others; None for lock sets themselves.

    >>> group_of("node/fd53")
    'node/[lockset]'
    """
    return _parse(name).group


def typed(name: str) -> str:
    """The lock as users type and read it: a level has ``*`` where Ganeti has ``[lockset]``.

    >>> typed("node/fd53"), typed("node/[lockset]")
    ('node/fd53', 'node/*')
    """
    return f"{name.removesuffix(_LOCK_SET)}*" if name.endswith(f"/{_LOCK_SET}") else name


def show(name: str) -> str:
    """The lock as error texts write it.

    >>> print(show("node/fd53"), show("node/[lockset]"), show("cluster/BGL"))
    Node "fd53" NodeLockSet BGL
    """
    return _parse(name).shown


Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that the files and frames can hold; JSON knows larger ones."""


class Owner(msgspec.Struct, frozen=True, array_like=True, cache_hash=True):
    """The owner of locks: a job id (or the name of a thread), its lock file, its process id.

    All three together identify it. A string that looks like a number is not a job.
    """

    identifier: Integer | str
    lock_file: str
    pid: Integer

    @property
    def order(self) -> tuple[bool, int | str, str, int]:
        """The key that sorts owners: named ones first, then jobs by id."""
        return (isinstance(self.identifier, int), self.identifier, self.lock_file, self.pid)

    def __lt__(self, other: Owner) -> bool:
        return self.order < other.order


Changes = tuple[tuple[str, LockChange], ...]
"""A request: a change for each of these locks; all of them or none."""


class OwnerLocks(msgspec.Struct, frozen=True, array_like=True):
    """One owner with all its locks, in lock order."""

    owner: Owner
    locks: tuple[tuple[str, LockMode], ...]


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits. Smaller priorities are more urgent."""

    priority: int
    owner: Owner
    changes: Changes


class OwnerChanged(msgspec.Struct, frozen=True, array_like=True):
    """What became of one owner in a turn.

    ``locks``: the mode of each lock that changed; None: released. ``pending``: its waiting request;
    ``behind``: the owner directly before it among the requests of the same priority.
    """

    owner: Owner
    locks: dict[str, LockMode | None]
    pending: tuple[int, Changes] | None = None
    behind: Owner | None = None


class LocksFile(msgspec.Struct, frozen=True, array_like=True):
    """The content of ``locks.data``: the locks of each owner, and the waiting requests in order."""

    allocation: tuple[OwnerLocks, ...] = ()
    pending: tuple[Pending, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LocksFile)


def encode_locks(file: LocksFile) -> bytes:
    """The bytes of ``locks.data``.

    >>> encode_locks(LocksFile())
    b'[[],[]]'
    """
    return _encoder.encode(file)


def decode_locks(data: bytes) -> LocksFile:
    """The content of ``locks.data``; `StorageError` if the bytes are malformed."""
    try:
        file = _decoder.decode(data)
        for holding in file.allocation:
            for name, _mode in holding.locks:
                check_name(name)
        for pending in file.pending:
            for name, _change in pending.changes:
                check_name(name)
    except (
        msgspec.DecodeError,
        errors.LockRequestError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise errors.StorageError(f"locks.data is not readable: {error}") from error
    return file
