"""What all tests share: how hypothesis runs, their order, the stage; played jobs leave them alone.

It draws the same examples in each run; ``GANGER_SEED=random`` lets it draw others.
"""

from __future__ import annotations

import collections
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine
from tests import checkout, core_alone, own_children, own_folders, quick, shared_out
from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Stage
from tests.seeds import explores

# No deadline for one example, or for a draw: both say more about the machine than about the code.
# A failure prints the line that repeats it, and an example: shrinking has a bound of its own, far
# below that of a test, and is not followed by the phase that tries variants of each draw.
SHRINKING_SECONDS = 20
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
engine.MAX_SHRINKING_SECONDS = SHRINKING_SECONDS
settings.register_profile(
    "explore",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    phases=PHASES,
)
settings.register_profile("ganger", settings.get_profile("explore"), derandomize=True)
settings.load_profile("explore" if explores() else "ganger")

LONGEST_FIRST = (
    "rapi/page/", "torture/test_share", "system/test_demo", "faults/test_cut_host",
    "system/test_first_steps", "scenarios", "properties", "torture", "faults", "compatibility",
    "test_packaging", "system",
)  # fmt: skip
"""Parts of names of files: what takes long begins first where several processes share the tests."""

ONE_PROCESS = (
    "tests/claims/test_first_week.py",
    "tests/compatibility/test_ganeti_luxi",
    "tests/compatibility/test_ganeti_rapi.py",
    "tests/compatibility/test_ganeti_rapi_client.py",
    "tests/compatibility/test_ganeti_tools",
    "tests/compatibility/test_monitoring.py",
    "tests/compatibility/test_ganeti_rapi_on_hosts.py",
    "tests/faults/test_cut_host.py",
    "tests/faults/test_full_disk_of_6_mb.py",
    "tests/faults/test_full_disk_of_a_host.py",
    "tests/faults/test_hosts_of_other_versions.py",
    "tests/faults/test_rapi_process.py",
    "tests/faults/test_reused_processes.py",
    "tests/rapi/ganeti/test_ganeti_resources.py",
    "tests/rapi/test_guards.py",
    "tests/rapi/test_hold_node.py",
    "tests/rapi/page/",
    "tests/rapi/test_readers.py",
    "tests/storage/opcodes/test_user_opcodes.py",
    "tests/system/ganeti/test_luxi_door.py",
    "tests/system/ganeti/test_wconfd.py",
    "tests/system/ganeti/test_wconfd_stub.py",
    "tests/system/test_added_listing_field.py",
    "tests/system/test_logs_in_place.py",
    "tests/system/test_owner.py",
    "tests/system/test_start_order.py",
    "tests/system/test_traced_life.py",
    "tests/test_packaging.py",
    "tests/test_pages.py",
)
"""Files, or beginnings of their names, whose tests share something that takes long to make: one
process runs them all."""


DESCRIPTORS_MAX = 200
"""New descriptors of a test's process with which the collector looks for forgotten ones."""

_first_descriptors = [0]
"""The lowest free descriptor after the last look: a look takes a third of a second."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick`` is for `make quick`, which also chooses the files."""
    text = "leave out what is marked as slow, and draw few examples"
    parser.addoption("--quick", action="store_true", help=text)
    text = "share the tests among so many processes (0: run them in this one)"
    parser.addoption("--processes", type=int, default=0, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Watch over the checkout; let commands that tests start be interrupted.

    A job of a shell's background would ignore an interruption.
    """
    config.pluginmanager.register(checkout.Untouched())
    config.pluginmanager.register(own_folders.OneFolder())
    config.pluginmanager.register(own_folders)
    if count := config.getoption("--processes"):
        config.pluginmanager.register(shared_out.SharedOut(count, ONE_PROCESS))
    if config.getoption("--quick"):
        quick.configure()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what needs the folders that `make core` hides."""
    is_left_out = core_alone.is_hidden() and core_alone.needs_hidden(collection_path)
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that take long before the others; leave out, or shorten, some of them."""
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=quick.choose(items))
    elif not explores() and quick.VARIABLE not in os.environ:
        quick.draw_usual(items)
    if config.getoption("--processes"):
        items.sort(key=lambda item: _rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later collection of garbage.

    It stays to the end, and to walk through it takes a quarter of a second.
    """
    gc.collect()
    gc.freeze()


def _rank(name: str) -> int:
    ranks = (rank for rank, part in enumerate(LONGEST_FIRST) if f"tests/{part}" in name)
    return next(ranks, len(LONGEST_FIRST))


@pytest.fixture(autouse=True, scope="session")
def own_children_left_alone() -> Iterator[None]:
    """Jobs that tests play in this process end none of its children."""
    with pytest.MonkeyPatch.context() as patch:
        own_children.leave_alone(patch)
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close what simulated worlds have open, long before a test is out of descriptors.

    The components of such a world refer to each other: their descriptors are open until the
    collector comes, which may take hundreds of tests.
    """
    if _lowest_descriptor() > _first_descriptors[-1] + DESCRIPTORS_MAX:
        gc.collect()
        _first_descriptors.append(_lowest_descriptor())


def _lowest_descriptor() -> int:
    lowest = os.dup(0)
    os.close(lowest)
    return lowest


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close_log()
    made.daemon_lock.remove()


@pytest.fixture
def queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(stage, monkeypatch)
    yield made
    table = made.actor.component.store.table
    counted = collections.Counter(str(row.status) for row in table)
    assert +collections.Counter(table.counts()) == counted, "counts differ from what there is"
    ended = collections.Counter(str(row.end.outcome) for row in table if row.end.outcome)
    assert +collections.Counter(table.outcomes()) == ended, "outcomes differ from what there is"
    made.kill_all()
    made.actor.close()
