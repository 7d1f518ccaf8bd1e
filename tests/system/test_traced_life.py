"""Two traced lives of a daemon: what was done, by whom, in which order, and what was never done.

The first daemon runs a rich scenario without a umask, and begins anew in the middle of it. The
second one is started by ``ganger up`` under the strictest umask.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.faults.harness import Daemon, process_of, until, wait_for_end
from tests.system import traced
from tests.system.ganeti.wconfd import Owners, connected
from tests.system.gates import Gate, delay, end, shell

from ganger import Client, JobStatus
from ganger.storage import errors
from ganger.storage.access import keys
from ganger.storage.alive import process_identity
from ganger.storage.jobs.job_views import LogLine

if TYPE_CHECKING:
    from subprocess import Popen

    from tests.system.traced import Event

    from ganger.storage.jobs.job_views import JobInfo

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

TEXT, NUMBER, PART = "4711-very-secret", 815_4711_0815, "a-part-that-is-secret"
SECRETS = (TEXT, str(NUMBER), PART)
ENVIRONMENT = "only-for-the-command"

OPCODE = """
from typing import Annotated, Literal
import msgspec
from ganger.storage.opcodes import Opcode, OperationError

class OpUnlock(Opcode, kw_only=True):
    op_id = "OP_UNLOCK"
    secret_fields = ("pin", "number", "parts", "color")
    pin: str = ""
    number: Annotated[int, msgspec.Meta(lt=10**12)] = 0
    parts: dict[str, list[str]] = {}
    color: Literal["red", "green"] = "red"
    how: str = "end"

    def run(self, context):
        pin, number, parts = self.pin, self.number, self.parts
        if self.how == "break":
            raise ValueError("it is broken")
        if self.how == "fail":
            raise OperationError("OpExecError", "the door is stuck")
        if self.how == "wait":
            context.poll([], None)
        return len(pin) + len(parts)
"""


class Place(NamedTuple):
    """Paths of the same kind: their mode without a umask, and the roles that may change them."""

    path: str
    mode: int
    writers: str


PLACES = (
    Place("data", 0o750, "daemon client"),
    Place(r"data/archive\.index", 0o750, "core"),
    Place(r"data/archive\.index/0(\.names)?", 0o640, "core"),
    Place(r"data/config\.data(\.copy)?", 0o640, "config_store thread"),
    Place(r"data/config\.history", 0o640, "config_store"),
    Place(r"data/config\.journal", 0o750, "config_store"),
    Place(r"data/config\.journal/\d+\.journal", 0o640, "config_store thread"),
    Place(r"data/(ages|estimates)\.json", 0o640, "core"),
    Place(r"data/locks\.(data|journal)", 0o600, "core"),
    Place(r"data/ssconf", 0o750, "thread"),
    Place(r"data/ssconf/ssconf_[a-z_-]+", 0o444, "thread config_store"),
    Place(r"data/tempres\.data", 0o600, "config_store"),
    Place(r"data/watcher\.pause", 0o640, "config_store"),
    Place(r"data/daemon\.json", 0o640, "supervision daemon"),
    Place(r"data/daemon\.log", 0o640, "daemon"),
    Place(r"data/daemon\.options", 0o640, "supervision"),
    Place(r"data/daemon\.out", 0o640, "client"),
    Place(r"data/keys(/clients)?", 0o700, "client"),
    Place(r"data/keys/(server\.key|clients/one\.pub)", 0o600, "client"),
    Place(r"data/livelocks", 0o700, "daemon"),
    Place(r"data/livelocks/ganger-daemon_\d+(-\d)?", 0o600, "daemon"),
    Place(r"data/livelocks/(job_|spare_).*", 0o600, "job daemon core fork_server client"),
    Place(r"data/queue", 0o750, "daemon"),
    Place(r"data/queue/lock", 0o640, "daemon client"),
    Place(r"data/queue/(version|drain|reserve)", 0o640, "core"),
    Place(r"data/queue/reserve\.start", 0o640, "supervision"),
    Place(r"data/queue/output-limits", 0o640, "output_reader"),
    Place(r"data/queue/serial", 0o640, "core client"),
    Place(r"data/queue/(journal|spool|archive(/0(/spool)?)?)", 0o750, "core daemon"),
    Place(r"data/queue/quarantine", 0o750, "client"),
    Place(r"data/queue/quarantine/job-99", 0o640, "client"),
    Place(r"data/queue/job-\d+", 0o640, "core job client"),
    Place(r"data/queue/\.spare-.*", 0o640, "core job client"),
    Place(r"data/queue/journal/\d+\.journal", 0o640, "core thread"),
    Place(r"data/queue/(archive/0/)?spool/job-\d+-input-0", 0o640, "core"),
    Place(r"data/queue/(archive/0/)?spool/job-\d+-output", 0o640, "job core"),
    Place(r"data/queue/archive/0/job-\d+", 0o640, "core"),
    Place("run", 0o700, "daemon core"),
    Place("run/socket", 0o600, "core daemon"),
    Place("run/ganeti-wconfd", 0o600, "wconfd_listener daemon"),
    Place("run/ganeti-query", 0o600, "luxi_listener daemon"),
    Place("run/livelocks", 0o700, "daemon"),
    Place("run/rehearsals", 0o700, "fork_server daemon"),
    Place("temporary/ganger-delay-[0-9a-f]+", 0o700, "job"),
    Place("temporary/ganger-delay-[0-9a-f]+/sock", 0o777, "job"),
    Place(r"temporary/one\.key", 0o600, "client"),
)
"""Everything that lies in the directories of a daemon, and who may write it."""

PASSING = (
    Place(r"data/\.lock-trial-\d+", 0o600, "daemon"),
    Place(r"data/left-by-a-predecessor", 0o640, "daemon"),
    Place(r"run/\.new", 0o600, "core"),
    Place("run/livelocks/job_000008_1", 0o600, "daemon"),
    Place(r"run/rehearsals/\d+(/.*)?", 0o700, "fork_server job daemon"),
)
"""What is there for a moment."""

ELSEWHERE = re.compile(r"/dev/(null|tty)|/proc/.*/comm|/sys/fs/cgroup/.*")
"""What else may be opened for writing."""

_TEMPORARY = re.compile(r"/(?:\.tmp-)+(.+?)(\.\d+)+$")


class Life(NamedTuple):
    """What was left of one life."""

    events: list[Event]
    modes: dict[str, int]
    """The mode of each path that was seen in its directories, as `PLACES` names it."""
    said: str
    """Everything that clients and commands got to see."""
    keys: list[str]
    """The secret keys that were made."""
    outlived: list[JobInfo]
    """The jobs that ran, and were submitted, while a component hung."""
    folder: Path
    run: str


class Scenario(Daemon):
    """A daemon in a folder of its own; temporary files would lie there too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.said: list[str] = []
        self.modes: dict[str, int] = {}
        self.keys: list[str] = []
        self.outlived: list[JobInfo] = []
        for name in ("temporary", "home", "installed"):
            (folder / name).mkdir(parents=True)
        package = folder / "installed" / "guard-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: guard\nVersion: 1\n")
        (package / "entry_points.txt").write_text("[ganger.opcodes]\nunlock = guard:OpUnlock\n")
        (folder / "installed" / "guard.py").write_text(OPCODE)
        self.variables = {
            "PYTHONPATH": f"{folder}/installed",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": f"{folder}/temporary",
            "HOME": f"{folder}/home",
            "GANGER_TEST_FOLDER": str(folder),
        }

    def begin_traced(self, *words: str) -> Popen[str]:
        """Begin a command of the command line under strace."""
        return traced.begin(self.folder / "trace", self.data, *words, **self.variables)

    def traced(self, *words: str) -> None:
        """Run a command of the command line under strace, and note what it says."""
        self.said.append(self.begin_traced(*words).communicate(timeout=60)[0])

    def look(self) -> None:
        """Note what lies in the directories now."""
        for top in (self.data, self.places.run, self.folder / "temporary"):
            for path in (top, *top.rglob("*")):
                name = self.named(str(path))
                if name == "temporary" or any(re.fullmatch(one.path, name) for one in PASSING):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    self.modes[name] = stat.S_IMODE(path.lstat().st_mode)

    def named(self, path: str) -> str:
        """The path as `PLACES` has it; a temporary file counts as the one that it becomes."""
        path = _TEMPORARY.sub(r"/\1", path)
        for top, name in ((self.places.run, "run"), (self.folder, "")):
            if path == str(top) or path.startswith(f"{top}/"):
                return f"{name}{path.removeprefix(str(top))}".removeprefix("/")
        return path

    def life(self) -> Life:
        """What is left."""
        found = [
            event._replace(paths=tuple(map(self.named, event.paths)))
            for event in traced.events(self.folder / "trace")
        ]
        said = "".join(self.said)
        run = str(self.places.run)
        return Life(found, self.modes, said, self.keys, self.outlived, self.folder, run)


def unlock(**fields: Any) -> dict[str, Any]:
    given = {"OP_ID": "OP_UNLOCK", "pin": TEXT, "number": NUMBER, "parts": {"of": [PART]}}
    return {**given, **fields}


BAD = (
    unlock(pin=[TEXT]),
    unlock(number=NUMBER * 1000),
    unlock(number=TEXT),
    unlock(parts={"of": PART}),
    unlock(parts=[PART]),
    unlock(color=TEXT),
    unlock(unknown=1),
    unlock(how=1),
    {"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": [TEXT]},
    {"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": "web", "osparams_secret": {"a": TEXT}},
)
"""Refused: each for another reason, and not one for a secret that the refusal may quote."""


def ready(process: Popen[str]) -> None:
    """Wait until a daemon says that it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "is ready" in line, line + process.stdout.read()


def play_secrets(scene: Scenario, client: Client) -> None:
    """Jobs with secrets: refused, held, run, failed, canceled, killed, retried, shown."""
    for bad in BAD:
        with pytest.raises(errors.BadRequestError) as caught:
            client.submit(bad)
        scene.said.append(str(caught.value))
    # A rule sees no secret: it would be in the log why the rule applies.
    seen = [["opcode", ["=~", "pin", "^4711"]]]
    rule = client.add_filter(action="REJECT", predicates=seen)
    ends = {how: client.submit(unlock(how=how)) for how in ("end", "fail", "break")}
    waits = client.submit(unlock(how="wait"))
    until(client, waits, JobStatus.RUNNING)
    client.cancel(waits, kill=True)
    found = end(client, *ends.values(), waits)
    assert [str(status) for status in found.values()] == ["success", "error", "error", "error"]
    client.delete_filter(rule)
    client.add_filter(action="PAUSE", predicates=[["reason", ["=", "reason", "later"]]])
    held = client.submit(unlock(), reason="later")
    with pytest.raises(errors.BadRequestError) as caught:
        client.retry(ends["fail"])
    again = client.retry(ends["fail"], ops=[unlock()])
    assert end(client, again) == {again: JobStatus.SUCCESS}
    scene.said += [str(caught.value), repr([*client.jobs()]), repr(client.explain(held))]
    for job_id in (*ends.values(), waits, again, held):
        scene.said += [repr(client.job(job_id)), repr(client.logs(job_id))]
    scene.said.append(scene.run("job", "info", *map(str, ends.values())).stdout)
    client.cancel(held)


def first_logged(client: Client, job_id: int) -> str:
    """The first entry of a job's log: where the socket is, for an opcode that is interruptible."""
    found = (part.text for part in client.watch(job_id, timeout=60) if isinstance(part, LogLine))
    match = re.search(r"/[^'\"]*/sock", next(found))
    assert match is not None
    return match[0]


def play_files(scene: Scenario, client: Client) -> None:
    """Jobs with input and output, the archive, a drain: every kind of file."""
    talks = shell("cat >/dev/null; echo output") | {
        "stdin": "x" * 100_000,
        "env": {"ONLY": ENVIRONMENT},
        "locks": {"node": {"shared": ["n1"]}},
    }
    first, second = client.submit_many([[talks], [talks]])
    delays = {"OP_ID": "OP_TEST_DELAY", "duration": 60.0, "interruptible": True}
    waiting = client.submit(delays)
    assert set(end(client, first, second).values()) == {JobStatus.SUCCESS}
    client.drain()
    client.pause_watcher(2e9)
    client.limits(disk={"output_job_bytes": 10_000_000})
    with Owners(scene) as owners, connected(scene) as wconfd:
        wconfd.call("reserveMAC", owners.own(), "aa:00:00:00:00:01")
    scene.look()
    client.drain(drained=False)
    client.pause_watcher(None)
    assert client.archive(first).archived == [first]
    place = first_logged(client, waiting)
    scene.look()
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(place)
    client.cancel(waiting, kill=True)
    end(client, waiting)
    scene.look()


def leave_behind(scene: Scenario) -> None:
    """What a killed predecessor may have left."""
    scene.places.lock_files.mkdir(0o700)
    for dead in ("ganger-daemon_1", "job_000009_1"):
        (scene.places.lock_files / dead).touch(0o600)
    (scene.data / ".tmp-left-by-a-predecessor.1.1").touch(0o640)
    # Ganger 1.1 had its lock files there.
    scene.places.former_lock_files.mkdir(0o700, parents=True)
    (scene.places.former_lock_files / "job_000008_1").touch(0o600)


def play_hang(scene: Scenario, client: Client) -> None:
    """A component hangs while a job runs; the next daemon answers a submission."""
    with Gate(scene.folder) as gate:
        running = client.submit(gate.job())
        until(client, running, JobStatus.RUNNING)
        before, process_id = client.info(), client.job(running).process_id
        scene.crash("job_queue", "hang")
        second = client.submit(delay(), timeout=60)
        assert client.info().started > before.started
        gate.let_through()
        scene.outlived = client.wait(running, second, timeout=30)
    assert scene.outlived[0].process_id == process_id


def play_without_umask(scene: Scenario) -> None:
    """All of it: secrets, files, a daemon that begins anew and is stopped twice, a repair."""
    key = scene.folder / "temporary" / "one.key"
    scene.traced("key", "create", str(key))
    scene.traced("key", "authorise", "one", str(key))
    scene.look()
    scene.keys = [keys.read_key(path).secret for path in (key, scene.places.keys / "server.key")]
    key.unlink()
    leave_behind(scene)
    process = scene.begin_traced("daemon", "--no-rapi", "--test-hooks", "--hung-after", "2")
    ready(process)
    with scene.client() as client:
        play_secrets(scene, client)
        play_files(scene, client)
        lost = client.submit(unlock(), reason="later")
        pid = client.info().pid
        play_hang(scene, client)
        ready(process)
        assert client.info(timeout=30).pid == pid
        for rule in client.filters():
            client.delete_filter(rule.uuid)
        running = client.submit(unlock(how="wait"))
        until(client, running, JobStatus.RUNNING)
        assert end(client, lost) == {lost: JobStatus.ERROR}
        job = process_identity.open_pidfd(process_of(client, running))
        scene.look()
    daemon = process_identity.open_pidfd(pid)
    for _ in range(2):
        signal.pidfd_send_signal(daemon, signal.SIGTERM)
    wait_for_end(daemon)
    signal.pidfd_send_signal(job, signal.SIGKILL)
    wait_for_end(job)
    said = process.communicate(timeout=60)[0]
    assert (said, process.returncode) == ("The daemon has stopped; jobs that run go on\n", 0)
    scene.said.append(said)
    scene.look()
    (scene.places.queue / "job-99").write_text("{torn")
    (scene.places.queue / "job-99").chmod(0o640)
    scene.traced("fsck", "--repair")
    scene.look()


def play_with_umask(scene: Scenario) -> None:
    """A daemon of ``ganger up``, and a job."""
    process = scene.begin_traced("up", "--no-rapi")
    ready(process)
    with scene.client() as client:
        talks = shell("cat >/dev/null; echo output") | {"stdin": "x" * 100_000}
        job_id = client.submit(talks)
        assert end(client, job_id) == {job_id: JobStatus.SUCCESS}
        scene.look()
        client.archive(job_id)
        client.stop()
    assert process.communicate(timeout=60)[0] == ""
    scene.look()


@pytest.fixture(scope="module", name="lives")
def two_lives(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Life]:
    """Both lives, by their umasks."""
    plays = {0: play_without_umask, 0o077: play_with_umask}
    lives = {}
    for umask, play in plays.items():
        scene = Scenario(tmp_path_factory.mktemp("life") / "it")
        before = os.umask(umask)
        try:
            play(scene)
            lives[umask] = scene.life()
        finally:
            os.umask(before)
            scene.__exit__()
    return lives


# ---------------------------------------------------------------- secrets


def test_a_secret_is_written_nowhere_and_shown_to_nobody(lives: dict[int, Life]) -> None:
    life = lives[0]
    assert len(life.keys) == 2
    assert [secret for secret in (*SECRETS, *life.keys) if secret in life.said] == []
    calls = ("write", "pwrite64", "execve")
    written = [event for event in life.events if event.call in calls]
    assert sum("<redacted>" in event.arguments for event in written) > len(BAD)
    for event in written:
        is_of_key = event.paths and event.paths[0].endswith(".key")
        hidden = SECRETS if is_of_key else (*SECRETS, *life.keys)
        assert not any(secret in event.arguments for secret in hidden), str(event)[:1_000]
    for path in life.folder.rglob("*"):
        if path.is_file() and path.parent.name != "trace":
            assert not any(secret.encode() in path.read_bytes() for secret in SECRETS), path


def test_the_environment_of_a_command_is_in_its_job_alone(lives: dict[int, Life]) -> None:
    """So is the word by which a daemon reports to ``ganger up``: only the daemon has it."""
    stored = re.compile(r"data/queue/(journal/.*|job-.*|\.spare-.*)")
    for event in lives[0].events:
        if ENVIRONMENT in event.arguments and event.call in ("write", "pwrite64"):
            assert stored.fullmatch(event.paths[0]), str(event)[:1_000]
    for life in lives.values():
        programs = [event for event in life.events if event.call == "execve"]
        for word, roles in ((ENVIRONMENT, {"command"}), ("GANGER_READY_FD", {"daemon"})):
            assert {event.role for event in programs if word in event.arguments} <= roles


# ---------------------------------------------------------------- modes and writers


def test_each_path_of_a_daemon_has_the_mode_of_the_table(lives: dict[int, Life]) -> None:
    seen = set()
    for umask, life in lives.items():
        for path, mode in life.modes.items():
            place = next((place for place in PLACES if re.fullmatch(place.path, path)), None)
            assert place is not None, path
            assert (path, oct(mode)) == (path, oct(place.mode & ~umask))
            seen.add(place)
    assert [place.path for place in PLACES if place not in seen] == []


def test_each_path_is_written_by_its_writers_alone_and_none_lies_elsewhere(
    lives: dict[int, Life],
) -> None:
    for life in lives.values():
        for event in life.events:
            for path in event.changed:
                if event.role == "command" or ELSEWHERE.fullmatch(path):
                    continue
                found = [place for place in (*PLACES, *PASSING) if re.fullmatch(place.path, path)]
                writers = {word for place in found for word in place.writers.split()}
                assert event.role in writers, str(event)[:1_000]
        left = {path.name for path in life.folder.iterdir() if [*path.glob("*")]}
        assert left == {"data", "installed", "trace"}
        assert not Path(life.run).exists()


def test_no_other_process_writes_the_file_of_a_job_whose_process_does(
    lives: dict[int, Life],
) -> None:
    life = lives[0]
    # From the first write of its process until that gives its lock file up, with its end or before.
    ends = {event.thread: event.when for event in life.events if event.call == "exit"}
    own: dict[str, tuple[float, float]] = {}
    for event in life.events:
        for path in event.changed:
            if event.role == "job" and re.fullmatch(r"data/queue/job-\d+", path):
                own.setdefault(path, (event.when, ends[event.thread]))
            elif event.role == "job" and (left := re.match(r"data/livelocks/job_0*(\d+)_", path)):
                file = f"data/queue/job-{left[1]}"
                if file in own and event.when > own[file][0]:
                    own[file] = (own[file][0], min(own[file][1], event.when))
    assert len(own) > len(BAD) / 2
    for event in life.events:
        for path in event.changed:
            first, last = own.get(path, (0.0, 0.0))
            assert event.role == "job" or not first < event.when < last, str(event)[:1_000]


# ---------------------------------------------------------------- order

LOCK = r"daemon fcntl data/queue/lock .*F_SETLK"
OF_PREDECESSOR = (
    "daemon unlink data/left-by-a-predecessor ",
    "daemon unlink data/livelocks/job_000009_1 ",
    "daemon unlink data/livelocks/ganger-daemon_1 ",
    "daemon unlink run/livelocks/job_000008_1 ",
)
READ = "(daemon.log|config.(data|history|journal/.)|locks|queue/(job|serial|journal/.|version))"
START = (
    ("daemon flock data/queue .*LOCK_EX", LOCK),
    (LOCK, rf"\w+ openat data/{READ}"),
    *((LOCK, unlinked) for unlinked in OF_PREDECESSOR),
    (r"daemon fcntl data/livelocks/ganger-daemon_\d{5,} .*F_SETLK", "core openat data/locks.data"),
    ("core openat data/locks.data", "config_store openat data/config.data"),
    ("config_store openat data/config.data", "filter_evaluator write"),
    ("filter_evaluator write", "core openat data/queue"),
    ("core openat data/queue/journal/", "output_reader write"),
    ("output_reader write", "fork_server execve"),
    ("fork_server execve", "core bind run/"),
    ("core bind run/", "core chmod run/.*0600"),
    ("core chmod run/.*0600", "core listen"),
    ("core listen", "core rename run/.* run/socket "),
    ("core rename run/.* run/socket ", "supervision rename data/daemon.json"),
    ("supervision rename data/daemon.json", 'supervision write .*(is ready|"ready.n")'),
)
"""What happens for the first time before the other thing does."""

ANEW = (
    ("daemon kill .*SIGKILL", "daemon execve"),
    ("thread of daemon write data/daemon.log .*begins anew", "daemon execve"),
)
STOP = (
    ("daemon unlink data/daemon.json", r"daemon unlink data/livelocks/ganger-daemon_\d{5,}"),
    (r"daemon unlink data/livelocks/ganger-daemon_\d{5,}", "daemon unlink run/socket"),
    ("daemon unlink run/socket", 'thread of daemon write data/daemon.log .*"stopped'),
    ("thread of daemon write data/daemon.log .*stopped", "daemon close data/queue/lock"),
    ("daemon close data/queue/lock", "daemon exit +exited with 0"),
)
STOP_WITHOUT_JOBS = (
    ("daemon unlink run/socket", "daemon rmdir run "),
    ("daemon rmdir run ", 'thread of daemon write data/daemon.log .*"stopped'),
)


def told(events: list[Event]) -> list[str]:
    """Each event on a line, as the tables of order have it."""
    return [
        f"{event.role} {event.call} {' '.join(event.paths)} {event.arguments}" for event in events
    ]


def first(lines: list[str], pattern: str) -> int:
    found = re.compile(pattern)
    return next((place for place, line in enumerate(lines) if found.match(line)), -1)


def misplaced(lines: list[str], facts: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The facts that are not so; both things must have happened."""
    return [
        (before, after)
        for before, after in facts
        if not -1 < first(lines, before) < first(lines, after)
    ]


def stretches(life: Life) -> tuple[list[Event], list[Event]]:
    """What happened before a daemon began anew, and after it; the first one may be empty."""
    begun = [
        place for place, event in enumerate(life.events)
        if event.call == "execve" and event.role == "daemon"
    ]  # fmt: skip
    return life.events[begun[0] + 1 : begun[-1] + 1], life.events[begun[-1] + 1 :]


def test_a_daemon_starts_in_order(lives: dict[int, Life]) -> None:
    for life in (lives[0], lives[0o077]):
        for events in filter(None, stretches(life)):
            lines = told(events)
            is_second = first(lines, "daemon unlink data/left-by") < 0
            facts = tuple(fact for fact in START if not (is_second and fact[1] in OF_PREDECESSOR))
            assert misplaced(lines, facts) == []
            early = {path for event in events[: first(lines, LOCK)] for path in event.changed}
            known = "data|data/queue(/archive|/lock)?|data/livelocks|run|data/.lock-trial-.*"
            assert [path for path in early if not re.fullmatch(known, path)] == []


def test_a_daemon_that_begins_anew_leaves_all_that_its_successor_takes_over(
    lives: dict[int, Life],
) -> None:
    before, after = stretches(lives[0])
    lines = told(before)
    assert misplaced(lines, ANEW) == []
    removed = r"\w+ unlink (data/daemon.json|run/socket|data/livelocks/ganger-daemon_\d{5})"
    assert first(lines, removed) < 0
    assert before[-1].arguments.count("GANGER_BEGUN_ANEW=") == 1
    lines = told(after)
    assert misplaced(lines, ((LOCK, r"daemon unlink data/livelocks/ganger-daemon_\d{5}"),)) == []


def test_a_running_job_outlives_a_daemon_that_begins_anew(lives: dict[int, Life]) -> None:
    assert [job.status for job in lives[0].outlived] == [JobStatus.SUCCESS] * 2


def test_a_daemon_stops_in_order_also_when_it_is_told_so_twice(lives: dict[int, Life]) -> None:
    for umask, life in lives.items():
        _, events = stretches(life)
        events = events[first(told(events), "daemon unlink data/daemon.json") :]
        lines = told(events)
        # While a job goes on, the name of the run directory must not become free for everybody.
        has_job = umask == 0
        assert misplaced(lines, STOP if has_job else (*STOP, *STOP_WITHOUT_JOBS)) == []
        assert (first(lines, "daemon rmdir run ") < 0) == has_job
        assert {event.role for event in events if event.changed} <= {"daemon", "job", "client"}
        let_go = first(lines, "daemon close data/queue/lock")
        assert not [event for event in events[let_go:] if event.changed and event.role == "daemon"]
