"""The process of the remote API may fail in every way: the daemon goes on, and says why."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
from tests.faults.harness import GANGER
from tests.rapi.served import Served, password

from ganger.storage import settings
from ganger.transport.messages import RapiState

SECONDS = 60.0


def state(daemon: Served) -> RapiState:
    with daemon.client() as client:
        found = client.info().rapi
    assert found is not None
    return found


def until(daemon: Served, holds: Callable[[RapiState], bool]) -> RapiState:
    """The state as soon as this holds."""
    deadline = time.monotonic() + SECONDS
    while not holds(found := state(daemon)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def process(daemon: Served) -> psutil.Process:
    """The process of the remote API."""
    found = [
        child
        for child in psutil.Process(daemon.pid()).children()
        if "ganger.rapi.process" in child.cmdline()
    ]
    assert len(found) == 1
    return found[0]


def runs_a_job(daemon: Served) -> bool:
    with daemon.client() as client:
        job_id = client.submit([{"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_master": False}])
        [job] = client.wait(job_id, timeout=SECONDS)
    return str(job.status) == "success"


class InForeground(Served):
    """Begins with `ganger daemon`: `ganger up` starts none on a port that is taken."""

    has_begun = False

    def up(self) -> None:
        if self.has_begun:
            super().up()
            return
        self.has_begun = True
        self.make_users()
        limited = ["sh", "-c", f'ulimit -n {settings.DESCRIPTORS_MIN}; exec "$@"', "sh"]
        command = [
            *limited,
            *GANGER,
            "--data",
            str(self.data),
            "daemon",
            "--test-hooks",
            *self.options,
        ]
        environment = {**os.environ, "GANGER_TEST_FOLDER": str(self.folder)}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("The daemon is ready"):
                return
        pytest.fail("the daemon has not become ready")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.process.communicate(timeout=SECONDS)


@pytest.fixture(name="occupied", scope="module")
def started_on_an_occupied_port(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Served, RapiState]]:
    """A daemon whose port another program had first, and what it said of that."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        folder = tmp_path_factory.mktemp("rapi")
        daemon = InForeground(folder, "--rapi-port", str(port), "--hung-after", "2", has_tls=True)
        with daemon:
            found = until(daemon, lambda now: now.restarts > 0)
            assert runs_a_job(daemon)
            assert daemon.run("status", check=False).returncode == 70
            again = daemon.run("up", "--rapi-port", str(port), "--rapi-no-tls", check=False)
            other.close()
            text = f"ganger: the remote API is not served at {found.url}: {found.problem}; "
            assert text in again.stderr
            assert "ganger: --rapi-no-tls has no effect on it; for that: " in again.stderr
            assert again.returncode == 70
            yield daemon, found


@pytest.fixture(name="daemon")
def ready_daemon(occupied: tuple[Served, RapiState]) -> Served:
    daemon, _ = occupied
    until(daemon, lambda now: now.is_ready)
    return daemon


def test_a_port_that_is_in_use_is_named_and_taken_when_it_is_free(
    occupied: tuple[Served, RapiState],
) -> None:
    daemon, found = occupied
    assert not found.is_ready
    assert found.problem == "cannot start: Address already in use"
    ready = until(daemon, lambda now: now.is_ready)
    assert (ready.port, ready.problem) == (found.port, "")
    assert daemon.get("/2/jobs")[0] == {"id": 1, "uri": "/2/jobs/1"}
    assert f"Remote API: {ready.url} (restarted " in daemon.run("status").stdout


def test_more_connections_than_files_leave_some_for_other_addresses(daemon: Served) -> None:
    with ExitStack() as stack:
        for _ in range(2 * settings.DESCRIPTORS_MIN):
            stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port), SECONDS))
        context = ssl.create_default_context(cafile=daemon.places.rapi_certificate)
        link = http.client.HTTPSConnection(
            "127.0.0.1",
            daemon.port,
            timeout=SECONDS,
            source_address=("127.0.0.2", 0),
            context=context,
        )
        with closing(link):
            link.request("GET", "/healthz")
            assert link.getresponse().status == 200
        assert runs_a_job(daemon)
    assert daemon.get("/version") == 2


def test_a_killed_process_is_replaced_and_clients_wait_meanwhile(daemon: Served) -> None:
    pid, restarts = daemon.pid(), state(daemon).restarts
    process(daemon).kill()
    # The listening socket is the daemon's: it takes the connection before there is a process.
    assert daemon.get("/version") == 2
    assert daemon.pid() == pid
    found = until(daemon, lambda now: now.is_ready)
    assert found.restarts == restarts + 1
    assert runs_a_job(daemon)


def test_a_hung_process_is_replaced(daemon: Served) -> None:
    restarts = state(daemon).restarts
    hung = process(daemon)
    hung.suspend()
    try:
        assert runs_a_job(daemon)
        found = until(daemon, lambda now: now.restarts > restarts)
        assert found.is_ready or found.problem == "its process gives no sign of life, exit code -9"
        assert not psutil.pid_exists(hung.pid)
        assert daemon.get("/version") == 2
    finally:
        if psutil.pid_exists(hung.pid):
            os.kill(hung.pid, signal.SIGCONT)


def test_a_broken_certificate_changes_nothing_until_the_next_start_and_is_then_named(
    daemon: Served,
) -> None:
    path = daemon.places.rapi_certificate
    good = path.read_bytes()
    context = ssl.create_default_context(
        cadata=good.decode().partition("KEY-----\n")[2].partition("KEY-----\n")[2]
    )
    path.write_text("nothing")
    link = http.client.HTTPSConnection("127.0.0.1", daemon.port, timeout=SECONDS, context=context)
    with closing(link):
        link.request("GET", "/healthz")
        assert link.getresponse().status == 200
    process(daemon).kill()
    found = until(daemon, lambda now: "no usable key and certificate" in now.problem)
    assert found.problem.startswith(f"{path}: ")
    assert not found.is_ready
    status = daemon.run("status", check=False)
    assert (status.returncode, "NOT READY" in status.stdout) == (70, True)
    assert runs_a_job(daemon)
    path.write_bytes(good)
    until(daemon, lambda now: now.is_ready)
    assert daemon.get("/version") == 2


def test_a_start_says_that_the_remote_api_cannot_serve(tmp_path: Path) -> None:
    """Its process finds that out when the daemon takes requests already."""
    with Served(tmp_path, has_tls=True) as daemon:
        daemon.run("down")
        path = daemon.places.rapi_certificate
        path.write_text("nothing")
        done = daemon.run("up", "--test-hooks", *daemon.options, check=False)
        assert done.returncode == 70
        assert f": {path}: no usable key and certificate: " in done.stderr
        assert runs_a_job(daemon)


def test_a_new_certificate_is_in_force_without_a_restart(daemon: Served) -> None:
    before = state(daemon).restarts
    daemon.run("rapi", "cert", "--force")
    # The client trusts the new certificate only.
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            assert daemon.get("/version") == 2
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert state(daemon).restarts == before


def test_a_user_is_known_at_once_and_refused_at_once_after_removal(daemon: Served) -> None:
    words = ("--role", "read", "--password", password("new"))
    assert daemon.request("GET", "/version", user="new").status == 401
    daemon.run("rapi", "user", "add", "new", *words)
    assert daemon.get("/version", user="new") == 2
    daemon.run("rapi", "user", "remove", "new")
    assert daemon.request("GET", "/version", user="new").status == 401
    log = daemon.places.log.read_text()
    assert "login refused" in log
    assert password("new") not in log


def test_the_process_ends_with_its_daemon_and_the_port_is_free(daemon: Served) -> None:
    port, child = state(daemon).port, process(daemon)
    daemon.kill()
    child.wait(SECONDS)
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
    daemon.up()
    until(daemon, lambda now: now.is_ready)
    assert daemon.get("/version") == 2
