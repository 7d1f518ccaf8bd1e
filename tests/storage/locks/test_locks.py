"""Lock names and their order, owners, and the bytes of locks.data."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from ganger.storage import errors
from ganger.storage.locks import locks
from ganger.storage.locks.locks import (
    LockChange,
    LockLevel,
    LockMode,
    LocksFile,
    Owner,
    OwnerLocks,
    Pending,
    decode_locks,
    encode_locks,
)

RECORDED = Path(__file__).parents[2] / "compatibility" / "data" / "locks.data"

# The table of lock names, in lock order.
IN_ORDER = [
    "cluster/[lockset]",
    "cluster/BGL",
    "instance/[lockset]",
    "instance/Zed.example.com",
    "instance/alpha.example.com",
    "nodegroup/[lockset]",
    "nodegroup/0a",
    "node/[lockset]",
    "node/0a",
    "node/0b",
    "node-res/[lockset]",
    "node-res/0a",
    "network/[lockset]",
    "network/0a",
    "cluster/config",
]


def test_lock_order_is_by_level_then_lock_set_then_plain_string_order() -> None:
    for smaller, greater in itertools.pairwise(IN_ORDER):
        assert locks.sort_key(smaller) < locks.sort_key(greater)


@pytest.mark.parametrize(
    ("name", "level", "group", "shown"),
    [
        ("cluster/[lockset]", "cluster", None, "ClusterLockSet"),
        ("cluster/BGL", "cluster", "cluster/[lockset]", "BGL"),
        ("instance/[lockset]", "instance", None, "InstanceLockSet"),
        ("instance/a.b", "instance", "instance/[lockset]", 'Instance "a.b"'),
        ("nodegroup/[lockset]", "nodegroup", None, "NodeGroupLockSet"),
        ("nodegroup/u", "nodegroup", "nodegroup/[lockset]", 'NodeGroup "u"'),
        ("node/[lockset]", "node", None, "NodeLockSet"),
        ("node/u", "node", "node/[lockset]", 'Node "u"'),
        ("node-res/[lockset]", "node-res", None, "NodeResLockSet"),
        ("node-res/u", "node-res", "node-res/[lockset]", 'NodeRes "u"'),
        ("network/[lockset]", "network", None, "NetworkLockSet"),
        ("network/u", "network", "network/[lockset]", 'Network "u"'),
        ("cluster/config", "config", None, "ConfigLock"),
    ],
)
def test_each_lock_has_a_level_and_a_lock_set_and_a_notation(
    name: str, level: str, group: str | None, shown: str
) -> None:
    assert locks.level_of(name) is LockLevel(level)
    assert locks.group_of(name) == group
    assert locks.show(name) == shown


def test_any_name_after_the_slash_is_accepted() -> None:
    for name in ("node/", "node/with/slashes", "instance/\u00fc", "network/[locks"):
        locks.check_name(name)
        assert locks.group_of(name) != name


@pytest.mark.parametrize(
    "name", ["", "node", "cluster/other", "cluster/", "config/x", "Node/u", "disk/u", "[lockset]"]
)
def test_unknown_lock_names_are_refused(name: str) -> None:
    with pytest.raises(errors.LockRequestError) as caught:
        locks.check_name(name)
    assert caught.value.text == f"Unknown lock name '{name}'"


def test_quotes_in_names_are_escaped_in_error_texts() -> None:
    assert locks.show('node/a"b\\c') == r'Node "a\"b\\c"'


def test_exclusive_covers_shared_and_not_the_other_way_round() -> None:
    assert LockMode.EXCLUSIVE.covers(LockMode.SHARED)
    assert LockMode.EXCLUSIVE.covers(LockMode.EXCLUSIVE)
    assert LockMode.SHARED.covers(LockMode.SHARED)
    assert not LockMode.SHARED.covers(LockMode.EXCLUSIVE)


def test_only_a_release_leaves_no_mode() -> None:
    assert LockChange.SHARED.mode is LockMode.SHARED
    assert LockChange.EXCLUSIVE.mode is LockMode.EXCLUSIVE
    assert LockChange.RELEASE.mode is None


def test_named_owners_come_before_jobs_then_by_identifier_path_and_process() -> None:
    in_order = [
        Owner("9", "/l/z", 9),
        Owner("luxid", "/l/a", 1),
        Owner(9, "/l/a", 1),
        Owner(9, "/l/a", 2),
        Owner(9, "/l/b", 1),
        Owner(10, "/l/a", 1),
    ]
    for smaller, greater in itertools.pairwise(in_order):
        assert smaller < greater
        assert not greater < smaller


def test_a_string_that_looks_like_a_number_is_not_a_job() -> None:
    assert Owner("9", "/l/a", 1) != Owner(9, "/l/a", 1)
    assert msgspec.json.decode(b'["9","/l/a",1]', type=Owner) == Owner("9", "/l/a", 1)


def test_a_recorded_locks_file_is_read_and_written_back_byte_for_byte() -> None:
    data = RECORDED.read_bytes()
    file = decode_locks(data)
    first, second = (holding.owner for holding in file.allocation)
    node = "node/90910f02-036a-444f-8631-f25d6d53cb05"
    assert first == Owner(153, "/var/run/ganeti/livelocks/job_000153_1795226694", 7081)
    assert file.allocation[0].locks == (
        ("cluster/BGL", LockMode.SHARED),
        (node, LockMode.EXCLUSIVE),
    )
    assert file.pending == (Pending(0, second, ((node, LockChange.EXCLUSIVE),)),)
    assert encode_locks(file) == data


def test_requests_in_a_locks_file_may_release() -> None:
    owner = Owner("thread", "/l/a", 1)
    file = LocksFile(
        (OwnerLocks(owner, (("node/u", LockMode.SHARED),)),),
        (Pending(-3, owner, (("node/u", LockChange.RELEASE),)),),
    )
    assert encode_locks(file) == (
        b'[[[["thread","/l/a",1],[["node/u","shared"]]]],'
        b'[[-3,["thread","/l/a",1],[["node/u","release"]]]]]'
    )
    assert decode_locks(encode_locks(file)) == file


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[[],[]",
        b"{}",
        b'[[[[1,"/l/a",1],[["node/u","release"]]]],[]]',
        b'[[[[1.5,"/l/a",1],[]]],[]]',
        b'[[[[1,"/l/a",1],[["what/u","shared"]]]],[]]',
        b'[[],[[0,[1,"/l/a",1],[["what/u","shared"]]]]]',
    ],
)
def test_a_senseless_locks_file_is_a_storage_error(data: bytes) -> None:
    with pytest.raises(errors.StorageError, match=r"locks\.data is not readable"):
        decode_locks(data)
