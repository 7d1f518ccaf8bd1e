"""Shares the tests among processes, which are forked when the tests are collected.

Each has then the tests and all that they import, without having collected them. A process is given
tests before it needs them, and tells how each went. If one dies, its test has failed, and another
process goes on with what it had left.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import select
import signal
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from ganger.storage.alive import process_identity

if TYPE_CHECKING:
    import warnings
    from collections.abc import Iterable

AHEAD_MIN = 2
"""Groups of tests that a process has at least: a test's end depends on which comes next."""

AHEAD_MAX = 10
END_SECONDS = 60.0
"""What a process gets to take away what its tests share, when the run is broken off."""

Group = list[int]
"""Places of tests in the session that one process runs, one behind the other."""


def groups_of(names: Iterable[str], beginnings: tuple[str, ...]) -> list[Group]:
    """Put tests together whose names share one of ``beginnings``; each other one is alone."""
    found: dict[str, Group] = {}
    for place, name in enumerate(names):
        key = next((begin for begin in beginnings if name.startswith(begin)), name)
        found.setdefault(key, []).append(place)
    return list(found.values())


def counted(reports: Iterable[pytest.TestReport]) -> list[pytest.TestReport]:
    """The call itself, and what went wrong or was skipped before and after it."""
    return [report for report in reports if report.when == "call" or not report.passed]


class Teller:
    """The plugin of a process that runs tests: it tells how they went, and no more."""

    def __init__(self, session: pytest.Session, link: Connection) -> None:
        self._session = session
        self._link = link

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run the test, and tell of what is counted."""
        reports = counted(runtestprotocol(item, log=False, nextitem=nextitem))
        write = item.config.hook.pytest_report_to_serializable
        self._link.send(("ran", [write(config=item.config, report=each) for each in reports]))
        return True

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Tell of a warning, without the object that it came from."""
        warning_message.source = None
        self._link.send(("warned", (warning_message, when, nodeid, location)))

    def run(self) -> None:
        """Run the tests that come, each when the one behind it is known; None is the end."""
        items = self._session.items
        ahead: collections.deque[int | None] = collections.deque()
        while True:
            while len(ahead) < AHEAD_MIN and None not in ahead:
                ahead.extend(self._link.recv())
            if (place := ahead.popleft()) is None:
                return
            following = None if ahead[0] is None else items[ahead[0]]
            item = items[place]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class Process:
    """A process that runs tests, seen from the one that counts them."""

    def __init__(self, pid: int, link: Connection) -> None:
        self.pid = pid
        self.link = link
        self.groups: collections.deque[Group] = collections.deque()
        self.takes_more = True

    def give(self, group: Group) -> None:
        """Let it run the tests of ``group`` when it has run those that it has."""
        self.groups.append(list(group))
        self._send(group)

    def end(self) -> None:
        """Tell it that no test comes any more."""
        self.takes_more = False
        self._send([None])

    def has_run(self) -> int:
        """The place of the test that it has run."""
        place = self.groups[0].pop(0)
        if not self.groups[0]:
            self.groups.popleft()
        return place

    def _send(self, places: list[Any]) -> None:
        # One that has died is found by what it says last.
        with contextlib.suppress(ConnectionError):
            self.link.send(places)


class SharedOut:
    """The plugin that shares the tests of a session among ``count`` processes.

    ``beginnings`` are of names of tests that belong together.
    """

    def __init__(self, count: int, beginnings: tuple[str, ...]) -> None:
        self._count = count
        self._beginnings = beginnings
        self._waiting: collections.deque[Group] = collections.deque()
        self._processes: list[Process] = []
        self._forked = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Take the place of pytest's loop, which says what is wrong with the collection."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        names = (item.nodeid for item in session.items)
        self._waiting.extend(groups_of(names, self._beginnings))
        try:
            for _ in range(min(self._count, len(self._waiting))):
                self._fork(session)
            # In turns: the first takes from no other what it runs only later.
            for ahead in (1, AHEAD_MIN):
                for process in self._processes:
                    self._feed(process, ahead)
            while self._processes:
                self._hear(session)
        finally:
            for process in self._processes:
                process.link.close()
            for process in self._processes:
                _await(process.pid)
        return True

    def _fork(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        self._forked += 1
        folder = f"process-{self._forked}"
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        base = factory.getbasetemp()
        if (pid := os.fork()) == 0:
            for link in (ours, *(process.link for process in self._processes)):
                link.close()
            factory._basetemp = base / folder
            factory._basetemp.mkdir(mode=0o700)
            _be_a_process(session, theirs)
        theirs.close()
        self._processes.append(Process(pid, ours))

    def _ahead(self) -> int:
        """How many groups a process has: many while many wait, so that it never waits for us."""
        return min(AHEAD_MAX, max(AHEAD_MIN, len(self._waiting) // (4 * self._count)))

    def _feed(self, process: Process, ahead: int) -> None:
        """Give it tests, until it has so many groups of them."""
        while self._waiting and process.takes_more and len(process.groups) < ahead:
            process.give(self._waiting.popleft())
        for each in self._processes if not self._waiting else []:
            if each.takes_more:
                each.end()

    def _hear(self, session: pytest.Session) -> None:
        for link in wait([process.link for process in self._processes]):
            process = next(each for each in self._processes if each.link is link)
            try:
                kind, told = process.link.recv()
            except (EOFError, ConnectionResetError):
                self._is_over(session, process)
                continue
            if kind == "broke":
                raise RuntimeError(told)
            if kind == "warned":
                names = ("warning_message", "when", "nodeid", "location")
                recorded = session.config.hook.pytest_warning_recorded
                recorded.call_historic(kwargs=dict(zip(names, told, strict=True)))
                continue
            read = session.config.hook.pytest_report_from_serializable
            reports = [read(config=session.config, data=data) for data in told]
            self._count_test(session, session.items[process.has_run()], reports)
            self._feed(process, self._ahead())

    def _is_over(self, session: pytest.Session, process: Process) -> None:
        self._processes.remove(process)
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        process.link.close()
        if not process.groups:
            if status:
                raise RuntimeError(f"A process ended after its last test ({status}).")
            return
        item = session.items[process.has_run()]
        text = f"The process that ran this test ended ({status})."
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._count_test(session, item, [report])
        self._waiting.extendleft(reversed(process.groups))
        if self._waiting:
            self._fork(session)
            self._feed(self._processes[-1], self._ahead())

    def _count_test(
        self, session: pytest.Session, item: pytest.Item, reports: list[pytest.TestReport]
    ) -> None:
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def _be_a_process(session: pytest.Session, link: Connection) -> NoReturn:
    """Run tests in this new process, and end it; what ends with the other one stays."""
    atexit._clear()
    status = 1
    try:
        manager = session.config.pluginmanager
        capturing = manager.getplugin("capturemanager")
        capturing.stop_global_capturing()
        capturing.start_global_capturing()
        manager.register(teller := Teller(session, link))
        teller.run()
        status = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass
    except BaseException:  # noqa: BLE001 - the other process ends the run with it
        link.send(("broke", traceback.format_exc()))
    finally:
        _leave(session, status)


def _leave(session: pytest.Session, status: int) -> NoReturn:
    try:
        # Where the run was broken off, the fixtures that tests share are still there.
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _await(pid: int) -> None:
    """Wait for the end of a process that knows of its own, and kill it if it takes too long."""
    ended = process_identity.open_pidfd(pid)
    if not select.select([ended], [], [], END_SECONDS)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)
    os.waitpid(pid, 0)
