"""Attacks on a real daemon, one at a time: floods, peers that stop, forged words of jobs.

After each the same daemon must be there, with every component that it had, it must not have
grown beyond the limit at any time, and an ordinary client must have been served meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from tests.faults.harness import Daemon, process_of, until
from tests.torture.fuzz.through_sockets import DELAY, PATIENCE_SECONDS, Look
from tests.torture.tally import Tally

from ganger import Client, JobStatus
from ganger.storage import errors, settings
from ganger.storage.filters.rules import SEARCHES_MAX
from ganger.storage.locks.locks import Owner
from ganger.transport import frames, messages
from ganger.transport.messages import JobSpec, Message

NO_PROCESS = 2**22 + 1
"""The number of a process that no kernel gives out."""

CROWD_SECONDS = 0.7
CROWD_MIN = 50
"""How many of a crowd must have come in for it to be one."""

REMOTE_CROWD = 3_000
LARGE_BYTES = settings.FRAME_BYTES_MAX - 64 * 1_024
SEVERAL = 30
"""Of large ones, enough to be over the limit if each is kept."""


class Attacked:
    """A daemon, an ordinary client of it, and everything that attacks it."""

    def __init__(self, stack: ExitStack, daemon: Daemon, dice: random.Random) -> None:
        self.daemon = daemon
        self.dice = dice
        self.client: Client = stack.enter_context(daemon.client())
        self._stack = stack
        self._context = stack.enter_context(zmq.Context())
        self._endpoint = f"ipc://{daemon.places.socket}"

    def dealer(self, *, is_paused: bool = False) -> Any:
        """A socket that takes as much as it is given; a deaf one never reads."""
        dealer = self._stack.enter_context(self._context.socket(zmq.DEALER))
        dealer.linger = 0
        dealer.sndhwm = 0
        dealer.rcvhwm = 1 if is_paused else 0
        dealer.connect(self._endpoint)
        return dealer

    def renewed_client(self) -> Client:
        """Another ordinary client, closed with the scene."""
        return self._stack.enter_context(self.daemon.client())

    def say(self, dealer: Any, said: Message, number: int = 1) -> None:
        """Send one frame."""
        dealer.send(frames.encode(said, number))

    def connect(self, *, is_polite: bool = True) -> socket.socket:
        """A raw connection, after the greetings of the protocol if it is polite."""
        raw = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        raw.settimeout(PATIENCE_SECONDS)
        raw.connect(str(self.daemon.places.socket))
        if is_polite:
            raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31))
            kind = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
            body = b"\x05READY" + kind + b"\x08Identity" + bytes(4)
            raw.sendall(b"\x04" + bytes([len(body)]) + body)
            # Its own greeting and its READY, of which the size is not looked at.
            missing = 64
            while missing:
                greeted = raw.recv(missing)
                assert greeted, "the daemon does not greet"
                missing -= len(greeted)
            raw.recv(1_000)
        return raw

    def serve(self) -> None:
        """An ordinary client asks, submits and waits, as always."""
        for _ in range(2):
            self.client.info(timeout=PATIENCE_SECONDS)
            self.client.jobs(timeout=PATIENCE_SECONDS)
            job_id = self.client.submit(DELAY, timeout=PATIENCE_SECONDS)
            [job] = self.client.wait(job_id, timeout=PATIENCE_SECONDS)
            assert job.status is JobStatus.SUCCESS, job

    def final_job(self, **fields: Any) -> int:
        """A job that has ended well."""
        job_id = self.client.submit({"OP_ID": "OP_EXEC", "argv": ["true"], **fields})
        self.client.wait(job_id, timeout=PATIENCE_SECONDS)
        return job_id


class Attack(NamedTuple):
    """``is_long``: it is left out where time is short."""

    run: Callable[[Attacked], None]
    is_long: bool = False
    is_remote: bool = False
    """Whether the daemon has a remote listener."""
    files_max: int | None = None
    """How many files the daemon may open."""

    @property
    def name(self) -> str:
        """What it does, in words."""
        return self.run.__name__.strip("_").replace("_", " ")


def run_floods(seed: int, folder: Path, tally: Tally, *, has_long: bool) -> None:
    """Try every attack on a daemon of its own."""
    for attack in ATTACKS:
        if attack.is_long and not has_long:
            continue
        place = folder / attack.run.__name__.strip("_")
        problem, grown = _try(attack, place, random.Random(f"{seed}-{attack.name}"))
        tally.figures[attack.name] = f"{grown / 2**20:+.0f} MiB"
        if problem:
            tally.failed(f"seed {seed} attack '{attack.name}': {problem}")
        else:
            tally.passed()


def _try(attack: Attack, place: Path, dice: random.Random) -> tuple[str, int]:
    place.mkdir()
    options = ("--remote", "tcp://127.0.0.1:*") if attack.is_remote else ()
    with Daemon(place, *options, files_max=attack.files_max) as daemon, ExitStack() as stack:
        scene = Attacked(stack, daemon, dice)
        scene.serve()
        before = Look(scene.client)
        try:
            attack.run(scene)
            scene.serve()
            problem = before.compare(scene.client)
        except (errors.GangerError, AssertionError, OSError) as error:
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        grown = before.grown() if _lives(before.pid) else 0
    return problem, grown


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/status").exists()


# ---------------------------------------------------------------- peers that do not speak


def _silent_peers(scene: Attacked) -> None:
    """Some never greet, some greet and say nothing more."""
    for _ in range(100):
        scene.connect(is_polite=False)
        scene.connect()


def _a_crowd_of_silent_connections(scene: Attacked) -> None:
    """More connections than the listener has places; each that finds none tries again."""
    silent = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
    end = time.monotonic() + CROWD_SECONDS
    came: list[socket.socket] = []
    with ExitStack() as stack:
        while time.monotonic() < end:
            raw = socket.socket(socket.AF_UNIX, silent)
            if raw.connect_ex(str(scene.daemon.places.socket)) == 0:
                came.append(stack.enter_context(raw))
            else:
                raw.close()
        assert len(came) > CROWD_MIN, f"only {len(came)} came"
        scene.client.close()
        scene.client = scene.renewed_client()
        scene.serve()


def _a_remote_crowd_without_a_key(scene: Attacked) -> None:
    """What the remote listener suffers the local one does not notice."""
    [port] = [
        int(endpoint.rpartition(":")[2])
        for endpoint in scene.client.info().endpoints
        if endpoint.startswith("tcp://")
    ]
    with ExitStack() as stack:
        for _ in range(REMOTE_CROWD):
            raw = stack.enter_context(socket.socket())
            raw.setblocking(False)  # noqa: FBT003
            raw.connect_ex(("127.0.0.1", port))
        for _ in range(5):
            with scene.daemon.client() as other:
                other.info(timeout=PATIENCE_SECONDS)
        scene.serve()


def _other_protocols(scene: Attacked) -> None:
    said = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 5_000, b"\xff" * 64)
    for number in range(100):
        raw = scene.connect(is_polite=number % 2 == 0)
        with contextlib.suppress(OSError):
            raw.sendall(scene.dice.choice((*said, scene.dice.randbytes(300))))


def _frames_that_claim_to_be_huge(scene: Attacked) -> None:
    """The connection is ended at once, without waiting for what was announced."""
    for size in (settings.FRAME_BYTES_MAX + 1, 2**31, 2**32, 2**63 - 1, 2**64 - 1):
        for flags in (b"\x02", b"\x03"):
            raw = scene.connect()
            raw.sendall(flags + struct.pack(">Q", size) + b"x" * 100)
            with contextlib.suppress(ConnectionError):
                assert raw.recv(1) == b"", "the daemon answered"


def _peers_that_stop_within_a_frame(scene: Attacked) -> None:
    """Each within one of its own; those that are ended for it are followed by others."""
    begun = b"\x02" + struct.pack(">Q", LARGE_BYTES + 1) + b"x" * LARGE_BYTES
    for _ in range(3 * SEVERAL):
        with contextlib.suppress(ConnectionError):
            scene.connect().sendall(begun)


def _a_message_without_end(scene: Attacked) -> None:
    _go_on_without_end(scene, LARGE_BYTES, SEVERAL)


def _a_message_of_small_parts_without_end(scene: Attacked) -> None:
    _go_on_without_end(scene, 1_000, SEVERAL * LARGE_BYTES // 1_000)


def _go_on_without_end(scene: Attacked, size: int, count: int) -> None:
    """Parts of one message on a connection, and on the next one when that is ended."""
    part = b"\x03" + struct.pack(">Q", size) + b"x" * size
    some = part * max(1, 1_000_000 // len(part))
    raw, ended = scene.connect(), 0
    for _ in range(count * len(part) // len(some)):
        try:
            raw.sendall(some)
        except ConnectionError:
            raw, ended = scene.connect(), ended + 1
    assert ended, "the daemon takes in a message without end"


def _messages_of_many_parts(scene: Attacked) -> None:
    dealer = scene.dealer()
    for parts in (2, 1_000, 100_000):
        dealer.send_multipart([b"x"] * parts)
    scene.say(dealer, messages.ReadInfo(), 7)
    assert dealer.poll(PATIENCE_SECONDS * 1_000), "no answer to a good request"
    assert frames.decode(dealer.recv(), messages.ClientReply).number == 7


# ---------------------------------------------------------------- floods


def _answers_that_are_never_read(scene: Attacked) -> None:
    job_id = scene.final_job(stdin="y" * (LARGE_BYTES // 2))
    dealer = scene.dealer(is_paused=True)
    for number in range(3 * SEVERAL):
        scene.say(dealer, messages.ReadJob(id=job_id), number)


def _watches_that_are_never_read(scene: Attacked) -> None:
    job_id = scene.final_job()
    dealer = scene.dealer(is_paused=True)
    for number in range(5_000):
        scene.say(dealer, messages.WatchJobs(ids=None if number % 2 else [job_id]), number)


def _submissions_that_come_faster_than_they_are_stored(scene: Attacked) -> None:
    spec = JobSpec(ops=[DELAY])
    specs = [spec] * settings.JOBS_PER_SUBMIT_MAX
    data = frames.encode(messages.SubmitJobs(jobs=specs, dry_run=True), 1)
    dealer = scene.dealer()
    for _ in range(SEVERAL):
        dealer.send(data)


def _garbage_of_the_largest_size(scene: Attacked) -> None:
    head = b"\x94\x01\x07\xc0\xc6" + struct.pack(">I", LARGE_BYTES)
    dealer = scene.dealer(is_paused=True)
    for _ in range(SEVERAL):
        dealer.send(head + bytes(LARGE_BYTES))


def _a_watch_of_one_job_a_million_times(scene: Attacked) -> None:
    job_id = scene.final_job()
    scene.say(scene.dealer(), messages.WatchJobs(ids=[job_id] * 1_000_000))


def _a_million_dependencies(scene: Attacked) -> None:
    job_id = scene.final_job()
    scene.client.archive(job_id)
    spec = JobSpec(ops=[DELAY], depends=[(job_id, [])] * 1_000_000)
    scene.say(scene.dealer(), messages.SubmitJobs(jobs=[spec], dry_run=True))


def _a_million_dependencies_asked_for(scene: Attacked) -> None:
    job_id = scene.final_job()
    scene.client.archive(job_id)
    asked = messages.AskDependencies(job_id=job_id, depends=[(job_id, [])] * 1_000_000)
    scene.say(scene.dealer(), asked)


def _large_attachments(scene: Attacked) -> None:
    dealer = scene.dealer()
    for number in range(SEVERAL):
        name = f"{number}" + "x" * LARGE_BYTES
        attach = messages.AttachJob(job_id=1, lock_file=name, process_id=NO_PROCESS)
        scene.say(dealer, attach, number)


def _names_with_a_null_byte(scene: Attacked) -> None:
    owner = Owner(1, "a\0b", NO_PROCESS)
    changes = [("node/n\0", "shared")]
    dealer = scene.dealer()
    for number in range(10):
        scene.say(dealer, messages.RequestLocks(owner=owner, priority=0, changes=changes), number)
        scene.say(dealer, messages.ReadJob(id=1), number)


def _requests_without_readers_of_the_replies(scene: Attacked) -> None:
    """One peer must not use up what all have."""
    job_id = scene.client.submit({"OP_ID": "OP_EXEC", "argv": ["sleep", "600"]})
    until(scene.client, [job_id], JobStatus.RUNNING, seconds=PATIENCE_SECONDS)
    process_id = process_of(scene.client, job_id)
    os.kill(process_id, signal.SIGSTOP)
    # They are passed on to the job's process, which does not answer.
    dealer = scene.dealer()
    count = settings.REQUESTS_OPEN_PER_PEER_MAX
    for number in range(count + 1_000):
        scene.say(dealer, messages.ChangeJobPriority(id=job_id, priority=number % 20), number)
    # The limit was reached: the listener itself refuses.
    assert dealer.poll(PATIENCE_SECONDS * 1_000), "all requests were taken"
    refusal = frames.decode(dealer.recv(), messages.ClientReply).message
    if isinstance(refusal, messages.PriorityOutcome):
        # Its channel was full for so long that it was given up: nothing waits for the process.
        assert "cannot be reached" in refusal.text, f"one was answered with {refusal}"
    else:
        assert isinstance(refusal, messages.Failure), f"one was answered with {refusal}"
        assert "too many requests of this connection" in refusal.text, refusal.text
    scene.serve()
    os.kill(process_id, signal.SIGKILL)
    scene.client.wait(job_id, timeout=PATIENCE_SECONDS)


# ---------------------------------------------------------------- filter rules


def _a_thousand_expressions_on_megabytes(scene: Attacked) -> None:
    """Rules that search megabytes a thousand times, in jobs and in what is only tried."""
    expressions = [["=~", "comment", f"(x|y)*z{number}"] for number in range(SEARCHES_MAX)]
    rule: dict[str, Any] = {
        "predicates": [["opcode", ["|", *expressions]]],
        "action": "PAUSE",
    }
    large = {**DELAY, "comment": "x" * (settings.JOB_SUBMITTED_BYTES_MAX - 2_000)}
    uuid = scene.client.add_filter(**rule, timeout=PATIENCE_SECONDS)
    ids = [scene.client.submit(large, timeout=PATIENCE_SECONDS) for _ in range(3)]
    tried = []
    for _ in range(3):
        with contextlib.suppress(errors.TryAgainError, errors.BadRequestError):
            scene.client.simulate(rule=rule, timeout=1.0)
        with contextlib.suppress(errors.TryAgainError):
            tried += scene.client.test_filters(rule=rule, timeout=1.0)
        scene.serve()
    scene.client.delete_filter(uuid, timeout=PATIENCE_SECONDS)
    for job in scene.client.wait(*ids, timeout=PATIENCE_SECONDS):
        assert job.status is JobStatus.SUCCESS, f"the job is {job.status}"


# ---------------------------------------------------------------- words of jobs


def _forged_words_of_jobs(scene: Attacked) -> None:
    """Only the process of a job may speak for it."""
    fifo = scene.daemon.folder / "gate"
    os.mkfifo(fifo)
    locks = {"node": {"exclusive": ["n1"]}}
    opcode = {"OP_ID": "OP_EXEC", "argv": ["sh", "-c", f"read -r line < {fifo}"], "locks": locks}
    job_id = scene.client.submit(opcode)
    until(scene.client, [job_id], JobStatus.RUNNING, seconds=PATIENCE_SECONDS)
    dealer = scene.dealer()
    [lock_file] = scene.daemon.places.lock_files.glob(f"job_{job_id:06d}_*")
    for number, said in enumerate(
        _forged(job_id, lock_file, scene.client.job(job_id).process_id or 0)
    ):
        scene.say(dealer, said, number)
        scene.client.info(timeout=PATIENCE_SECONDS)
    held = [row.name for row in scene.client.locks() if row.owners]
    status = scene.client.job(job_id).status
    # Opened for both and kept open: the command may not have come to reading yet.
    descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, b"through\n")
    assert status is JobStatus.RUNNING, f"the job is {status}"
    assert "node/n1" in held, f"the running job's locks are {held}"
    [job] = scene.client.wait(job_id, timeout=PATIENCE_SECONDS)
    os.close(descriptor)
    assert job.status is JobStatus.SUCCESS, f"the job is {job.status}"


def _jobs_about_as_large_as_they_may_be(scene: Attacked) -> None:
    """What is accepted runs and can be read; what is not is refused in one line, at once."""
    empty = {"OP_ID": "OP_EXEC", "argv": ["true"]}
    limit = settings.JOB_SUBMITTED_BYTES_MAX
    accepted = []
    for sign, bytes_each in (("x", 1), ("\0", 6), ("\u00e9", 2)):
        for over in (-5_000, -1_000, 0, 1_000):
            text = sign * ((limit + over) // bytes_each)
            parts = scene.dice.choice((1, 2, 900))
            size = len(text) // parts
            ops = [{**empty, "comment": text[:size]} for _ in range(parts)]
            with contextlib.suppress(errors.BadRequestError):
                accepted.append(scene.client.submit(ops, timeout=PATIENCE_SECONDS))
    inputs = [sign * scene.dice.randint(2_000_000, 8_300_000) for sign in "x\0"]
    inputs = [text[: settings.FRAME_BYTES_MAX - 2_000] for text in inputs]
    ops_each = [[{**empty, "argv": ["wc", "-c"], "stdin": text}] for text in inputs]
    accepted += [scene.client.submit(ops, timeout=PATIENCE_SECONDS) for ops in ops_each]
    assert len(accepted) > len(inputs), "nothing below the limit was accepted"
    for job in scene.client.wait(*accepted, timeout=10 * PATIENCE_SECONDS):
        assert job.status is JobStatus.SUCCESS, job.id
    for job_id in accepted:
        assert scene.client.job(job_id, timeout=PATIENCE_SECONDS).ops
    scene.client.autoarchive(-1, timeout=PATIENCE_SECONDS)
    for job_id in accepted:
        assert scene.client.job(job_id, timeout=PATIENCE_SECONDS).ops


def _forged(job_id: int, lock_file: Path, pid: int) -> Iterator[Message]:
    owner = Owner(job_id, str(lock_file), pid)
    yield messages.RequestLocks(owner=owner, priority=0, changes=[("node/n1", "release")])
    yield messages.ReleaseLocks(owner=owner)
    yield messages.JobLogAppended(job_id=job_id, op_index=99, entries=[(1, (1, 1), "message", "x")])
    yield messages.JobWaits(job_id=job_id, serial=2**40, body=b"not a job")
    yield messages.CancelAnswered(job_id=job_id, token=1, accepted=True, text="forged")
    state = messages.RecordState(
        job_id=job_id,
        serial=2**62,
        status=JobStatus.ERROR,
        priority=0,
        log_serial=0,
        body=b"not a job",
    )
    yield state
    yield messages.JobReturns(job_id=job_id, serial=2**62 + 1, body=b"not a job")
    yield messages.JobLeft(job_id=job_id)


ATTACKS = (
    Attack(_silent_peers),
    Attack(_a_crowd_of_silent_connections, is_long=True, files_max=256),
    Attack(_a_remote_crowd_without_a_key, is_remote=True),
    Attack(_other_protocols),
    Attack(_frames_that_claim_to_be_huge),
    Attack(_peers_that_stop_within_a_frame),
    Attack(_a_message_without_end),
    Attack(_a_message_of_small_parts_without_end),
    Attack(_messages_of_many_parts),
    Attack(_answers_that_are_never_read),
    Attack(_watches_that_are_never_read),
    Attack(_submissions_that_come_faster_than_they_are_stored, is_long=True),
    Attack(_garbage_of_the_largest_size),
    Attack(_a_watch_of_one_job_a_million_times),
    Attack(_a_million_dependencies),
    Attack(_a_million_dependencies_asked_for),
    Attack(_large_attachments),
    Attack(_names_with_a_null_byte),
    Attack(_a_thousand_expressions_on_megabytes, is_long=True),
    Attack(_jobs_about_as_large_as_they_may_be, is_long=True),
    Attack(_forged_words_of_jobs),
    Attack(_requests_without_readers_of_the_replies, is_long=True),
)
