"""What a process sees of itself: each change is seen, and none is imagined."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import io
import locale
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ganger.actors.processes import own_state
from ganger.storage import settings

HERE = Path(__file__).parent

PATIENCE_SECONDS = 10.0

ADDR_NO_RANDOMIZE = 0x0040000
SYS_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
IDLE_CLASS = 3 << 13


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """The kernel ends a thread a moment after it was joined, and the next test would see it."""
    before = threads()
    yield
    end = time.monotonic() + PATIENCE_SECONDS
    while threads() > before:
        assert time.monotonic() < end, "a thread of this test is left"
        time.sleep(0.001)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@contextlib.contextmanager
def directory() -> Iterator[None]:
    with contextlib.chdir(HERE):
        yield


@contextlib.contextmanager
def umask() -> Iterator[None]:
    before = os.umask(0o007)
    yield
    os.umask(before)


@contextlib.contextmanager
def environment() -> Iterator[None]:
    os.environ["LEFT_BEHIND"] = "1"
    yield
    del os.environ["LEFT_BEHIND"]


@contextlib.contextmanager
def descriptors() -> Iterator[None]:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    yield
    os.close(descriptor)


@contextlib.contextmanager
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextlib.contextmanager
def mask() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])


@contextlib.contextmanager
def limits() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def timers() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, 3600)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextlib.contextmanager
def thread() -> Iterator[None]:
    end = threading.Event()
    running = threading.Thread(target=end.wait)
    running.start()
    yield
    end.set()
    running.join()


@contextlib.contextmanager
def processors() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(before)])
    yield
    os.sched_setaffinity(0, before)


@contextlib.contextmanager
def path() -> Iterator[None]:
    sys.path.insert(0, "/left/behind")
    yield
    sys.path.remove("/left/behind")


@contextlib.contextmanager
def hooks() -> Iterator[None]:
    before = list(sys.meta_path)
    sys.meta_path.reverse()
    yield
    sys.meta_path[:] = before


@contextlib.contextmanager
def profile() -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    yield
    sys.setprofile(before)


@contextlib.contextmanager
def stream() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 1)
    yield
    sys.setrecursionlimit(before)


@contextlib.contextmanager
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(before * 2)
    yield
    sys.setswitchinterval(before)


@contextlib.contextmanager
def numbers() -> Iterator[None]:
    before = locale.setlocale(locale.LC_NUMERIC)
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    yield
    locale.setlocale(locale.LC_NUMERIC, before)


@contextlib.contextmanager
def policy() -> Iterator[None]:
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    yield
    os.sched_setscheduler(0, before, os.sched_param(0))


@contextlib.contextmanager
def kind_of_process() -> Iterator[None]:
    personality = ctypes.CDLL(None).personality
    before = personality(0xFFFFFFFF)
    personality(before ^ ADDR_NO_RANDOMIZE)
    yield
    personality(before)


CHANGES: list[tuple[Callable[[], Any], str]] = [
    (directory, "directory"),
    (umask, "umask"),
    (environment, "environment"),
    (descriptors, "descriptors"),
    (handler, "signals with a handler"),
    (ignored, "ignored signals"),
    (mask, "blocked signals"),
    (limits, "limits"),
    (timers, "timers"),
    (path, "sys.path"),
    (hooks, "import hooks"),
    (profile, "trace functions"),
    (stream, "standard streams"),
    (recursion, "recursion limit"),
    (interval, "switch interval"),
    (numbers, "locale"),
    (policy, "scheduling policy"),
    (kind_of_process, "personality"),
]


@pytest.mark.parametrize(("change", "part"), CHANGES)
def test_each_change_is_seen(change: Callable[[], Any], part: str) -> None:
    # What earlier tests have forgotten to close goes now, and not in the middle.
    gc.collect()
    before = own_state.take()
    with change():
        assert own_state.difference(before, own_state.take()) == part
    assert own_state.difference(before, own_state.take()) is None


class _TimerEvent(ctypes.Structure):
    """What a timer does: see timer_create(2)."""

    _fields_: ClassVar = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


@pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the kernel does not tell")
def test_a_timer_of_the_kernel_is_seen() -> None:
    library, timer = ctypes.CDLL(None), ctypes.c_void_p()
    before = own_state.take()
    event = _TimerEvent(None, signal.SIGUSR2, 0, b"")
    assert library.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    assert own_state.difference(before, own_state.take()) == "further timers"
    library.timer_delete(timer)
    assert own_state.difference(before, own_state.take()) is None


def test_a_standard_stream_that_was_closed_is_seen() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as text:
        before = own_state.take()
        text.close()
        assert own_state.difference(before, own_state.take()) == "standard streams"


def test_shared_memory_counts_as_memory_of_its_own() -> None:
    size = settings.REUSED_GROWTH_BYTES_MAX + mmap.PAGESIZE
    before = own_state.take()
    with mmap.mmap(-1, size) as shared:
        shared.write(bytes(size))
        grown = own_state.take()
    assert grown[own_state.MEMORY] - before[own_state.MEMORY] >= size
    assert own_state.difference(before, grown) == own_state.MEMORY


def test_another_name_space_of_time_for_children_is_compared() -> None:
    found = own_state.take()["name spaces"]
    assert len(found) >= len(own_state._NAMESPACES) > 0
    is_known = Path("/proc/self/ns/time_for_children").exists()
    assert ("/proc/self/ns/time_for_children" in own_state._NAMESPACES) is is_known


def test_a_thread_is_seen() -> None:
    before = own_state.take()
    with thread():
        assert own_state.difference(before, own_state.take()) == "number of threads"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is but one processor")
def test_fewer_processors_are_seen() -> None:
    before = own_state.take()
    with processors():
        assert own_state.difference(before, own_state.take()) == "processors"


def test_another_handler_of_the_same_signal_is_seen() -> None:
    with handler():
        before = own_state.take()
        with handler():
            assert own_state.difference(before, own_state.take()) == "handlers"


@pytest.mark.skipif(SYS_IOPRIO_SET is None, reason="the number of the system call is not known")
def test_another_priority_of_input_and_output_is_seen() -> None:
    found: list[str | None] = []

    def change() -> None:
        # In a thread, which takes its priority along when it ends.
        before = own_state.take()
        assert ctypes.CDLL(None).syscall(SYS_IOPRIO_SET, 1, 0, IDLE_CLASS) == 0
        found.append(own_state.difference(before, own_state.take()))

    changing = threading.Thread(target=change)
    changing.start()
    changing.join()
    assert found == ["priority of input and output"]


@pytest.mark.parametrize(
    ("get", "put", "flag"),
    [
        (fcntl.F_GETFL, fcntl.F_SETFL, os.O_APPEND),
        (fcntl.F_GETFL, fcntl.F_SETFL, os.O_NONBLOCK),
        (fcntl.F_GETFD, fcntl.F_SETFD, fcntl.FD_CLOEXEC),
    ],
)
def test_other_flags_of_a_descriptor_are_seen(get: int, put: int, flag: int) -> None:
    descriptor = os.open("/dev/null", os.O_WRONLY)
    before = own_state.take()
    flags = fcntl.fcntl(descriptor, get)
    fcntl.fcntl(descriptor, put, flags ^ flag)
    assert own_state.difference(before, own_state.take()) == "descriptors"
    fcntl.fcntl(descriptor, put, flags)
    assert own_state.difference(before, own_state.take()) is None
    os.close(descriptor)


def test_another_file_behind_the_same_descriptor_is_seen() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    other = os.open("/dev/zero", os.O_RDONLY)
    before = own_state.take(without=other)
    os.dup2(other, descriptor)
    assert own_state.difference(before, own_state.take(without=other)) == "descriptors"
    os.close(descriptor)
    os.close(other)


def test_the_given_descriptor_does_not_count() -> None:
    before = own_state.take()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert own_state.difference(before, own_state.take(without=descriptor)) is None
    os.close(descriptor)


@pytest.mark.parametrize("growth", [0, settings.REUSED_GROWTH_BYTES_MAX])
def test_memory_may_grow_within_a_limit(growth: int) -> None:
    before = {own_state.MEMORY: 1_000}
    assert own_state.difference(before, {own_state.MEMORY: 1_000 + growth}) is None
    assert own_state.difference(before, {own_state.MEMORY: 500}) is None
    beyond = {own_state.MEMORY: 1_001 + settings.REUSED_GROWTH_BYTES_MAX}
    assert own_state.difference(before, beyond) == own_state.MEMORY


def test_a_part_that_is_gone_is_a_difference() -> None:
    assert own_state.difference({own_state.MEMORY: 0, "umask": 1}, {own_state.MEMORY: 0}) == "umask"
    assert own_state.difference({own_state.MEMORY: 0}, {own_state.MEMORY: 0, "new": 1}) == "new"


def test_what_is_compared_is_there() -> None:
    found = own_state.take()
    assert found[own_state.MEMORY] > 0
    assert {*own_state._STATUS_PARTS.values()} - {*own_state._MEMORY_PARTS} <= {*found}
    assert found["session"] == os.getsid(0)
