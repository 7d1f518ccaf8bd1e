"""Job processes on threads that take turns, in a time that is a number.

A job process is the real `JobActor`. Only one thread runs at a time: it hands the
baton on by himself, so that a seed gives the same order every time.
"""

from __future__ import annotations

import random
import threading
from typing import Protocol

import pytest
from tests import own_children
from tests.torture.power import promises
from tests.torture.power.promises import Event

from ganger.actors.job import job
from ganger.actors.job.daemon_link import DaemonLink
from ganger.actors.job.state_recorder import StateRecorder
from ganger.actors.operations import registry
from ganger.storage import settings
from ganger.storage.alive import lock_files
from ganger.storage.ganeti import ssconf_files
from ganger.storage.jobs import jobs
from ganger.storage.locks.locks import Owner
from ganger.storage.opcodes import OperationContext
from ganger.storage.opcodes.catalogue import OpExec
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.links.link import Link, Received
from ganger.transport.messages import Message

BATON_SECONDS = 60
JOURNAL_SEGMENT_BYTES = 60_000
JOURNAL_RESERVE_BYTES = 8_192
STATE_BYTES_MAX = 12_000
INPUT_BYTES_MAX = 2_000


class ThreadWorld(Protocol):
    """What processes know of the machine that they run on."""

    clock: MachineClock
    dice: random.Random

    def note(self, event: Event, /) -> None:
        """Write down an event."""


class MachineClock:
    """The machine's time; grows a little whenever it is read."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def read(self) -> float:
        self.now += 0.000_137
        return self.now

    def nanoseconds(self) -> int:
        return int(self.read() * 1_000_000_000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let all code read this clock until ``patch`` is undone."""
        patch.setattr("time.time", self.read)
        patch.setattr("time.monotonic", self.read)
        patch.setattr("time.time_ns", self.nanoseconds)


class KilledError(BaseException):
    """The process ends here, without a word."""


class ThreadLink(DaemonLink):
    """A job process's end of its link; the machine is the other end."""

    def __init__(self, process: JobThread) -> None:
        Link.__init__(self)
        self._process = process
        self.inbox: list[Received] = []

    def tell(self, envelope: Envelope) -> None:
        """The daemon's end: an answer for the process."""
        if isinstance(envelope.message, messages.JobGo):
            self._process.go(envelope.message)
        else:
            self.inbox.append(Received(envelope.message, envelope.number))

    def send(self, message: Message, number: int) -> bool:
        if self.is_up:
            self._process.sent.append((message, number))
        return self.is_up

    def receive(self) -> list[Received]:
        received, self.inbox = self.inbox, []
        return received

    def wait(self, descriptors: dict[int, int], timeout_seconds: float | None) -> list[int]:
        assert not descriptors
        self._process.rest(0.05 if timeout_seconds is None else min(timeout_seconds, 0.3))
        return []


class Witnessing(StateRecorder):
    """Tells the record when a state of the job is durable."""

    def record(self, *, begins: bool = False) -> None:
        super().record(begins=begins)
        given = self._running.job
        statuses = tuple(op.status for op in given.ops)
        _current.process.world.note(promises.Recorded(given.id, statuses))


class _Current(threading.local):
    """The process whose thread runs."""

    process: JobThread


_current = _Current()


class JobThread:
    """A job process: a thread that runs only while the machine waits for it."""

    def __init__(self, world: ThreadWorld, job_id: int, lock: lock_files.LockFile) -> None:
        self.world = world
        self.job_id = job_id
        self.lock = lock
        self.line = ThreadLink(self)
        self.sent: list[tuple[Message, int]] = []
        self.is_started = self.is_over = self.is_killed = False
        self.error: BaseException | None = None
        self._body: messages.JobGo | None = None
        self._turn, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def go(self, message: messages.JobGo) -> None:
        """The hand-over: the process may run from now on."""
        if self._body is None:
            self._body = message
            self.is_started = True

    def step(self) -> None:
        """Let it run until it waits, or has ended."""
        if self._thread.ident is None:
            self._thread.start()
        self._turn.release()
        assert self._rest.acquire(timeout=BATON_SECONDS), "the process did not give the baton back"
        if self.error is not None:
            raise self.error

    def rest(self, seconds: float) -> None:
        """In the process: hand the baton back, and take it up when it comes again."""
        if self.is_killed:
            # It was killed within a write, whose cleaning up would write again.
            raise KilledError
        self._rest.release()
        assert self._turn.acquire(timeout=BATON_SECONDS)
        if self.is_killed:
            raise KilledError
        self.world.clock.now += seconds

    @property
    def is_running_now(self) -> bool:
        """Whether this is asked in the process itself."""
        return threading.current_thread() is self._thread

    def kill(self) -> None:
        """End it wherever it is, without a word."""
        self.is_killed = True
        if self._thread.ident is not None and not self.is_over:
            self.step()
            self._thread.join()
        self.is_over = True

    def _run(self) -> None:
        assert self._turn.acquire(timeout=BATON_SECONDS)
        try:
            assert self._body is not None
            given = jobs.decode_job(self._body.body)
            given.process_id = self.job_id
            owner = Owner(self.job_id, self.lock.path, self.job_id)
            _current.process = self
            job.JobActor(given, self.line, owner, self._body).run()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the thread that steps the process
            self.error = error
        finally:
            self.is_over = True
            self._rest.release()


def small_limits(patch: pytest.MonkeyPatch) -> None:
    """Limits that a short script reaches, and operations that only bear witness.

    The ssconf files are left out: each start writes them anew from the configuration, and their
    changes would be most of those after which the power is lost.
    """
    patch.setattr(ssconf_files, "write", lambda *_: 0)
    patch.setattr(settings, "JOURNAL_SEGMENT_BYTES", JOURNAL_SEGMENT_BYTES)
    patch.setattr(settings, "JOURNAL_RESERVE_BYTES", JOURNAL_RESERVE_BYTES)
    patch.setattr(settings, "JOURNALED_STATE_BYTES_MAX", STATE_BYTES_MAX)
    patch.setattr(settings, "INPUT_INLINE_BYTES_MAX", INPUT_BYTES_MAX)
    patch.setitem(registry.OPERATIONS, "OP_EXEC", _work)
    patch.setattr(job, "StateRecorder", Witnessing)
    own_children.leave_alone(patch)


def _work(opcode: OpExec, context: OperationContext) -> str:
    """Bear witness, then say as many words as the second argument tells, one now and then."""
    _current.process.world.note(promises.Began(context.job_id, context.op_index))
    for word in range(int(opcode.argv[1])):
        context.log(f"word {word}")
        context.output(promises.word(word))
        context.poll([], 0.3)
    return "done"
