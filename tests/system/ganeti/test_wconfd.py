"""WConfD's socket of a running daemon: methods, signals, errors, and what outlasts a daemon."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import Daemon
from tests.system.ganeti.wconfd import ClientId, Owners, Wconfd, call, connected, with_names

from ganger.actors.ganeti.wconfd_methods import METHODS
from ganger.actors.runtime.addresses import LOCK_MANAGER
from ganger.storage import settings
from ganger.storage.locks import lock_journal

RECORDING = Path(__file__).parents[2] / "compatibility/data/wconfd-listLocksWaitingStatus.json"
NODE = "node/90910f02-036a-444f-8631-f25d6d53cb05"
NODE_A = [["node/a", "exclusive"]]


@pytest.fixture(scope="module", name="daemon", params=settings.PLACEMENTS)
def one_daemon(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Daemon]:
    """A daemon for all of these tests; where this process owns what waits, SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Daemon(tmp_path_factory.mktemp("wconfd"), placement=request.param) as daemon:
        yield daemon
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(name="wconfd")
def connection(daemon: Daemon) -> Iterator[Wconfd]:
    with connected(daemon) as wconfd:
        yield wconfd


@pytest.fixture(name="owners")
def owners_of_locks(daemon: Daemon) -> Iterator[Owners]:
    """Owners whose locks are free again before the next test."""
    with Owners(daemon) as owners:
        yield owners
    with connected(daemon) as wconfd:
        wconfd.call("cleanupLocks")
        assert wconfd.call("listLocksWaitingStatus") == [[], []]


def test_the_daemon_tells_where_its_socket_is(daemon: Daemon) -> None:
    with daemon.client() as client:
        [found] = [one.path for one in client.info().sockets if one.protocol == "WConfD"]
    with Wconfd(Path(found)) as wconfd:
        assert wconfd.call("echo", "hello") == "hello"


# Methods.


def test_locks_and_waiting_requests_are_listed_as_in_the_recording(
    wconfd: Wconfd, owners: Owners
) -> None:
    holder, waiter = owners.own(153), owners.own(154)
    for owner in (holder, waiter):
        assert wconfd.call("updateLocksWaiting", owner, 0, [["cluster/BGL", "shared"]]) == []
    assert wconfd.call("updateLocksWaiting", holder, 0, [[NODE, "exclusive"]]) == []
    assert wconfd.call("updateLocksWaiting", waiter, 0, [[NODE, "exclusive"]]) == [holder]
    recorded = json.loads(RECORDING.read_text())
    found = wconfd.call("listLocksWaitingStatus")
    assert found == with_names(recorded, {153: holder, 154: waiter})
    assert wconfd.call("listAllLocksOwners") == found[0]
    assert wconfd.call("listAllLocks") == [lock for lock, _ in found[0]]


def steps(a: ClientId, b: ClientId) -> list[tuple[str, list[Any], Any]]:
    """Calls of every method that is about locks, with the results that Ganeti's would give."""
    x, y, z = "node/x", "node/y", "node/z"
    taken = [["node/zz", "shared"], [y, "shared"]]
    return [
        ("echo", ["hello"], "hello"),
        ("listLocks", [a], []),
        ("listAllLocks", [], []),
        ("listAllLocksOwners", [], []),
        ("listLocksWaitingStatus", [], [[], []]),
        ("hasPendingRequest", [a], False),
        ("tryUpdateLocks", [a, [[x, "exclusive"], ["instance/i", "shared"]]], []),
        ("tryUpdateLocks", [a, [[x, "exclusive"]]], []),
        ("listLocks", [a], [["instance/i", "shared"], [x, "exclusive"]]),
        ("listAllLocks", [], ["instance/[lockset]", "instance/i", "node/[lockset]", x]),
        ("tryUpdateLocks", [b, [[y, "shared"], [x, "shared"]]], [a]),
        ("hasPendingRequest", [b], False),
        ("updateLocksWaiting", [b, 0, [[x, "shared"]]], [a]),
        ("updateLocksWaiting", [b, -5, [[x, "shared"]]], [a]),
        ("hasPendingRequest", [b], True),
        ("downGradeLocksLevel", [a, "node"], None),
        ("hasPendingRequest", [b], False),
        ("listAllLocksOwners", [], [
            ["instance/[lockset]", []],
            ["instance/i", [[a, "shared"]]],
            ["node/[lockset]", []],
            [x, sorted([[a, "shared"], [b, "shared"]])],
        ]),
        ("opportunisticLockUnion", [b, [[z, "shared"], [y, "exclusive"], [x, "shared"]]], [z, y]),
        ("guardedOpportunisticLockUnion", [2, a, taken], []),
        ("guardedOpportunisticLockUnion", [1, a, taken], ["node/zz"]),
        ("freeLocksLevel", [a, "instance"], None),
        ("listLocks", [a], [[x, "shared"], ["node/zz", "shared"]]),
        ("intersectLocks", [b, [x, "node/never-held"]], None),
        ("listLocks", [b], [[x, "shared"]]),
        ("tryUpdateLocks", [b, [[x, "release"]]], []),
        ("listLocks", [b], []),
        ("freeLocks", [a], None),
        ("cleanupLocks", [], None),
        ("listLocksWaitingStatus", [], [[], []]),
    ]  # fmt: skip


def test_every_method_about_locks_has_the_result_of_the_catalogue(
    wconfd: Wconfd, owners: Owners
) -> None:
    calls = steps(owners.own("a"), owners.own("b"))
    for method, args, result in calls:
        assert wconfd.call(method, *args) == result, (method, args)
    about_locks = {name for name, method in METHODS.items() if method.to == LOCK_MANAGER}
    assert about_locks <= {method for method, _, _ in calls}


def test_documents_sent_at_once_are_answered_in_order(wconfd: Wconfd, owners: Owners) -> None:
    owner, count = owners.own(), 300
    for number in range(count):
        wconfd.send(
            call("echo", str(number)),
            call("tryUpdateLocks", owner, NODE_A),
            call("listLocks", owner),
            call("freeLocks", owner),
        )
    results = [wconfd.reply()["result"] for _ in range(4 * count)]
    for number in range(count):
        assert results[4 * number : 4 * number + 4] == [str(number), [], NODE_A, None]


# Signals.


def test_a_waiting_owner_gets_sighup_when_its_grant_is_written(
    daemon: Daemon, wconfd: Wconfd, owners: Owners
) -> None:
    holder, (waiter, program) = owners.own(), owners.program()
    assert wconfd.call("tryUpdateLocks", holder, NODE_A) == []
    assert wconfd.call("updateLocksWaiting", waiter, 0, NODE_A) == [holder]
    assert wconfd.call("freeLocks", holder) is None
    assert program.next_line() == "SIGHUP"
    held = lock_journal.read(daemon.places).file.allocation
    assert [(one.owner.pid, one.locks) for one in held] == [
        (program.pid, (("node/a", "exclusive"),))
    ]
    assert wconfd.call("listLocks", waiter) == NODE_A
    assert wconfd.call("hasPendingRequest", waiter) is False


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("updateLocksWaiting", [0, [["node/b", "shared"]]]),
        ("tryUpdateLocks", [[["node/b", "shared"]]]),
        ("intersectLocks", [["nodes/a"]]),
        ("freeLocksLevel", ["nodes"]),
    ],
)
def test_a_call_that_is_refused_leaves_its_owner_waiting_for_the_signal(
    wconfd: Wconfd, owners: Owners, method: str, args: list[Any]
) -> None:
    holder, (waiter, program) = owners.own(), owners.program()
    wconfd.call("tryUpdateLocks", holder, NODE_A)
    wconfd.call("updateLocksWaiting", waiter, 0, NODE_A)
    assert wconfd.refused(method, waiter, *args)[0] == "GenericError"
    wconfd.call("freeLocks", holder)
    assert program.next_line() == "SIGHUP"


def test_the_locks_of_an_owner_that_died_are_free_within_a_second(
    wconfd: Wconfd, owners: Owners
) -> None:
    (holder, dying), (waiter, waiting) = owners.program("dying"), owners.program("waiting")
    locks = [[f"node/{number:03d}", "exclusive"] for number in range(100)]
    assert wconfd.call("tryUpdateLocks", holder, locks) == []
    assert wconfd.call("updateLocksWaiting", waiter, 0, locks) == [holder]
    begun = time.monotonic()
    dying.end()
    assert waiting.next_line() == "SIGHUP"
    assert time.monotonic() - begun < 1.0
    assert wconfd.call("listLocks", waiter) == locks
    assert wconfd.call("listLocks", holder) == []


# What outlasts the daemon.


def test_locks_and_waiting_requests_outlast_a_killed_daemon(
    daemon: Daemon, wconfd: Wconfd, owners: Owners
) -> None:
    holder, (waiter, program) = owners.own(), owners.program()
    wconfd.call("tryUpdateLocks", holder, NODE_A)
    wconfd.call("updateLocksWaiting", waiter, 3, NODE_A)
    before = wconfd.call("listLocksWaitingStatus")
    daemon.replace_killed()
    with pytest.raises((EOFError, ConnectionResetError)):
        wconfd.reply()
    with connected(daemon) as successor:
        assert successor.call("listLocksWaitingStatus") == before
        assert successor.call("updateLocksWaiting", waiter, 3, NODE_A) == [holder]
        successor.call("freeLocks", holder)
        assert program.next_line() == "SIGHUP"
        assert successor.call("listLocks", waiter) == NODE_A


def test_a_waiting_owner_gets_sighup_although_the_lock_manager_was_restarted(
    daemon: Daemon, wconfd: Wconfd, owners: Owners
) -> None:
    holder, (waiter, program) = owners.own(), owners.program()
    wconfd.call("tryUpdateLocks", holder, NODE_A)
    wconfd.call("updateLocksWaiting", waiter, 0, NODE_A)
    daemon.crash("lock_manager")
    assert wconfd.call("hasPendingRequest", waiter) is True
    wconfd.call("freeLocks", holder)
    assert program.next_line() == "SIGHUP"


# Errors.


@pytest.mark.parametrize(
    ("held", "method", "args", "text"),
    [
        ([], "tryUpdateLocks", [[["nodes/x", "shared"]]], "Unknown lock name 'nodes/x'"),
        (
            NODE_A,
            "tryUpdateLocks",
            [[["instance/i", "shared"]]],
            'Order violation: requesting Instance "i" while holding Node "a" (',
        ),
        (
            [["node/[lockset]", "shared"]],
            "updateLocksWaiting",
            [0, NODE_A],
            'Order violation: requesting exclusively Node "a" while holding a shared lock on the',
        ),
        (
            [],
            "tryUpdateLocks",
            [[["node/a", "shared"], ["node/a", "exclusive"]]],
            'Inconsitent requests for lock Node "a" (',
        ),
        ([], "freeLocksLevel", ["nodes"], "Unknown lock level 'nodes'"),
        ([], "intersectLocks", [["x"]], "Unknown lock name 'x'"),
    ],
)
def test_an_invalid_request_is_refused_and_changes_nothing(
    wconfd: Wconfd, owners: Owners, held: list[Any], method: str, args: list[Any], text: str
) -> None:
    owner = owners.own()
    wconfd.call("tryUpdateLocks", owner, held)
    name, found = wconfd.refused(method, owner, *args)
    assert name == "GenericError"
    assert len(found) == 1
    assert found[0].startswith(text), found
    assert wconfd.call("listLocks", owner) == held


@pytest.mark.parametrize(
    "lock_file", ["/nowhere/job_1", "", "with\0zero", "/long" * 1_000, "/etc/passwd/x", "/tmp"]
)
def test_an_owner_whose_lock_file_no_process_can_hold_gets_nothing(
    wconfd: Wconfd, lock_file: str
) -> None:
    for pid in (1, -1, 2**63 - 1):
        name, [text] = wconfd.refused("tryUpdateLocks", ["x", lock_file, pid], NODE_A)
        assert name == "GenericError"
        assert "lock file" in text
    assert wconfd.call("listAllLocks") == []


MALFORMED = [
    b"",
    b"{",
    b"[]",
    b'"\\ud800"',
    b"\xff",
    b"[" * 100_000,
    b'{"args": []}',
    b'{"method": 1, "args": []}',
    b'{"method": "listAllLocks"}',
    b'{"method": "listAllLocks", "args": {}}',
    call("listLock"),
    call("__class__"),
    call("listAllLocks", 1),
    call("listLocks"),
    call("echo", 10**30),
    call("listLocks", ["a", "b"]),
    call("listLocks", [1.5, "b", 1]),
    call("listLocks", [10**30, "b", 1]),
    call("hasPendingRequest", ["a", "b", 2**63]),
    call("updateLocksWaiting", ["a", "/b", 1], 2**63, NODE_A),
    call("tryUpdateLocks", ["a", "/b", 1], [["node/a"]]),
    call("opportunisticLockUnion", ["a", "/b", 1], [["node/a", "release"]]),
]


def test_a_malformed_request_ends_its_own_connection_only(daemon: Daemon, wconfd: Wconfd) -> None:
    for document in MALFORMED:
        with connected(daemon) as other:
            other.send(document, call("echo", "not answered"))
            reply = other.reply()
            assert reply["success"] is False, document
            assert reply["result"].startswith("Failed to parse request: "), document
            with pytest.raises((EOFError, ConnectionResetError)):
                other.reply()
        assert wconfd.call("echo", "here") == "here"
