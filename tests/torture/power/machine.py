"""A whole machine on one thread: the queue, the locks, the configuration, and job processes.

The components are the real ones, on a stage that hands their messages about. What is asked of
them and what they answer is noted, to be compared later with what is left of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.actors.config.appending import append_drafts
from tests.actors.runtime.stage import Stage, Staged
from tests.torture.power import promises
from tests.torture.power.job_threads import JobThread, KilledError, MachineClock
from tests.torture.power.promises import Event, Found

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.config.stored_configuration import Edit
from ganger.actors.locks.lock_manager import LockManager
from ganger.actors.queue.job_queue import JobQueue
from ganger.actors.store.job_rows import Phase
from ganger.storage import config_files, errors, settings
from ganger.storage.access import keys
from ganger.storage.alive import lock_files
from ganger.storage.alive.process_identity import ProcessIdentity
from ganger.storage.cluster.configuration import Change
from ganger.storage.cluster.objects import ObjectKind
from ganger.storage.disk import documents
from ganger.storage.disk.paths import Places
from ganger.storage.jobs import jobs
from ganger.storage.locks.locks import Owner
from ganger.storage.queue_files import job_files, output_files, removal, spool
from ganger.transport import messages
from ganger.transport.client.output_reading import OutputReading
from ganger.transport.envelopes import Envelope
from ganger.transport.links.link import Received
from ganger.transport.messages import JobSpec, Message

_REFUSED = os.strerror(errno.EIO)

LOCKS = ("a", "b", "c")
"""The nodes that jobs lock."""

SERIAL_MARK = "serial_of_the_change"
"""The field of the cluster in which each change leaves the serial number that it makes."""

CHANGES_AT_ONCE = 4
WHOLE_CHANCE = 0.3
_FILLING = "x" * 1_500
"""With it, changes that share a flush lie in several sectors."""


def opcode(text: str, *, words: int = 0, node: str | None = None) -> dict[str, Any]:
    """An opcode that bears witness and says so many words; ``text`` is its work.

    A large one reads its work, too: that lies in a file beside the job.
    """
    locks = {} if node is None else {"node": {"exclusive": [node]}}
    fields = {"OP_ID": "OP_EXEC", "argv": ["work", str(words)], "comment": text, "locks": locks}
    is_large = len(text) > settings.INPUT_INLINE_BYTES_MAX
    return {**fields, "stdin": text} if is_large else fields


class _Notified(Stage):
    """The stage of a machine, which notes the ends that its components announce."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self._note = machine.note
        super().__init__(root, f"ganger-daemon_{int(machine.clock.read())}")
        # The log is that of the machine's queue.
        self.grants_config_lock = False

    def make_folders(self) -> None:
        """Make them as the daemon does, so that the record has it."""
        for folder in (self.places.data, self.places.queue, self.places.archive):
            documents.make_directory(folder)
        for folder in (self.places.run, self.places.lock_files):
            documents.make_directory(folder, 0o700)

    def tell(self, name: str, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, messages.JobsFinished):
            for job_id, status in message.jobs:
                self._note(promises.Ended(job_id, status))
        super().tell(name, envelope)


class _User:
    """The sender of a request; the answer is noted when it comes."""

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take

    def tell(self, envelope: Envelope) -> None:
        self._take(envelope.message)


class Machine:
    """The machine. ``note`` gets every event; ``dice`` decide what is left open."""

    def __init__(
        self, root: Path, dice: random.Random, clock: MachineClock, note: Callable[[Event], None]
    ) -> None:
        self.note = note
        self.clock = clock
        self.dice = dice
        self.processes: dict[int, JobThread] = {}
        self.killed: list[JobThread] = []
        self.is_up = False
        self._was_booted = False
        self._root = root
        self._stage: _Notified
        self.queue: Staged[JobQueue]
        self.locks: Staged[LockManager]
        self.config: Staged[ConfigStore]
        self._wishes = 0
        self._marks = 0
        self.interruption = 0.0
        """How likely it is that a process has to rest before it changes something on disk."""
        self.refusal = 0.0
        """How likely it is that a flush fails."""
        self.disk_dice = dice
        self.next_flushes_fail: list[bool] = []
        """Whether each of the next flushes fails."""
        self._unauthorised: list[tuple[str, str]] = []
        self.refuse_writing_back: Callable[[], None] = lambda: None
        """The disk refuses what the kernel brings it, and nobody here hears of it."""
        self.evict_all: Callable[[], None] = lambda: None
        """The kernel wants the memory: what a file shows from now on is what the disk has."""

    @property
    def places(self) -> Places:
        """Where its files lie."""
        return Places(self._root / "data", self._root / "run")

    # ------------------------------------------------------------ the daemon

    def boot(self) -> None:
        """Start a daemon, as `ganger daemon` does."""
        self._stage = _Notified(self._root, self)
        self._was_booted = True
        self.config = self._stage.make(ConfigStore, incarnation=1)
        self.config.notify(messages.Boot())
        for failed in self._stage.take(messages.ComponentFailed):
            raise AssertionError(failed.text)
        self.locks = self._stage.start(LockManager)
        self.queue = self._stage.start(JobQueue)
        self.is_up = True
        for process in list(self.processes.values()):
            if process.is_started:
                process.line.is_up = process.line.has_changed = True
            else:
                self.end(process)
        self._deliver_notices()

    def crash_daemon(self) -> None:
        """The daemon dies without a word; what it had not yet handled goes with it."""
        self._forget_daemon()
        self._stage.daemon_lock.remove()
        self._stage.sent.clear()
        for process in self.processes.values():
            process.line.is_up = False
            process.line.inbox.clear()
            process.sent.clear()

    def _forget_daemon(self) -> None:
        self.is_up = False
        self._stage.timers.clear()
        self._stage.beside.clear()
        ledger = self.queue.component.store.ledger
        ledger._journal.close()
        ledger.directory.close()
        self.locks.component.close()
        self.config.component._stored.close()

    def boot_in_vain(self) -> None:
        """As `boot`; if the disk refuses what a start needs, there is no daemon afterwards."""
        try:
            self.boot()
        except (AssertionError, errors.GangerError) as error:
            if not self.was_refused or _REFUSED not in str(error):
                raise
            self.is_up = False
            self._stage.daemon_lock.remove()
            self._stage.sent.clear()

    def refuses_flush(self, inode: int | None) -> bool:
        """Whether this flush, of one inode or of the file system, fails."""
        is_refused = self.refusal > 0 and self.disk_dice.random() < self.refusal
        if inode is None and self.fails_next_sync:
            self.fails_next_sync, is_refused = False, True
        if self.next_flushes_fail:
            is_refused = self.next_flushes_fail.pop(0)
        self.was_refused |= is_refused
        return is_refused

    was_refused = False
    fails_next_sync = False
    """Whether the next flush of the file system fails."""

    def run_timers(self) -> None:
        """The time has come for everything that waits for it: the disk is tried again."""
        self._stage.run_timers()
        self._deliver_notices()

    def step_aside(self, count: int) -> None:
        """Let the compactor take up to ``count`` steps, if it is at work."""
        for work in self._stage.beside:
            work.take(count)
        self._deliver_notices()

    def power_off(self) -> None:
        """Everything ends; closes what a real loss of power would not leave open either."""
        for process in [*self.processes.values(), *self.killed]:
            process.kill()
            process.lock.remove()
        self.processes.clear()
        if self.is_up:
            self._forget_daemon()
        if self._was_booted:
            self._stage.daemon_lock.remove()

    def interrupt(self) -> None:
        """Called before each change on the disk: a process may have to rest in the middle."""
        for process in self.processes.values():
            if process.is_running_now:
                if process.is_killed:
                    raise KilledError
                if self.dice.random() < self.interruption:
                    process.rest(0.0)
                return

    def end_turn(self) -> None:
        """End the turn of every component, and note it."""
        self.locks.end_turn()
        self.queue.end_turn()
        self.queue.work_off()
        self._deliver_notices()

    def step(self, process: JobThread) -> None:
        """Let the process run until it waits, and hear what it says."""
        process.step()
        if self.is_up:
            self._deliver_sent(process)
        if process.is_over:
            self.end(process)

    def end(self, process: JobThread) -> None:
        """The process is gone, and the executor says so, if there is one."""
        has_left = any(isinstance(message, messages.JobLeft) for message, _ in process.sent)
        del self.processes[process.job_id]
        process.kill()
        process.lock.remove()
        if self.is_up:
            self.locks.notify(messages.OwnerEnded(lock_file=process.lock.path))
            exited = messages.JobExited(
                job_id=process.job_id, lock_file=process.lock.path, has_left=has_left
            )
            self.queue.notify(exited)

    # ------------------------------------------------------------ messages between components

    def _deliver_sent(self, process: JobThread) -> None:
        for message, number in process.sent:
            envelope = Envelope(message, process.line, number)
            match message:
                case messages.RequestLocks() | messages.ReleaseLocks():
                    self.locks.handle(envelope)
                case messages.JobLeft() | messages.OutputGrew():
                    # The latter is for followers, and there are none.
                    pass
                case _:
                    self.queue.handle(envelope)
        process.sent = [sent for sent in process.sent if isinstance(sent[0], messages.JobLeft)]

    def _deliver_notices(self) -> None:
        while self._stage.sent:
            sent, self._stage.sent = self._stage.sent, []
            for name, message in sent:
                match message:
                    case messages.StartJobs():
                        for job_id, _ in message.jobs:
                            self._fork(job_id)
                    case messages.DeliverToJob() if message.job_id in self.processes:
                        line = self.processes[message.job_id].line
                        line.inbox.append(Received(message.message, 0))
                    case messages.RefuseHandOver() if message.job_id in self.processes:
                        self.end(self.processes[message.job_id])
                    case messages.DiskRetried() | messages.Compacted():
                        (self.queue if name == "job_queue" else self.locks).notify(message)
                    case messages.OwnerEnded():
                        assert name == "lock_manager"
                        self.locks.notify(message)
                    case _:
                        pass
        self.locks.end_turn()

    def new_mark(self) -> ProcessIdentity:
        """The mark of a process that the system knows nothing of: the lock alone says it lives."""
        self._marks += 1
        return ProcessIdentity(self._marks, self._marks, "simulated")

    def _fork(self, job_id: int) -> None:
        stem = lock_files.job_stem(job_id, self.clock.read(), self.new_mark())
        process = JobThread(self, job_id, lock_files.create(self.places.lock_files, stem))
        self.processes[job_id] = process
        asked = messages.HandOverRequested(
            job_id=job_id, lock_file=process.lock.path, process_id=job_id
        )
        self.queue.handle(Envelope(asked, process.line))

    # ------------------------------------------------------------ what users do

    def submit(self, *specs: JobSpec, key: str | None = None) -> None:
        """Submit jobs made of `opcode`."""
        self._wishes += 1
        number = int(self.clock.now * 1000) * 1000 + self._wishes
        work = tuple(tuple(str(op["comment"]) for op in spec.ops) for spec in specs)
        self.note(promises.Offered(number, key, work))

        def take(answer: Any) -> None:
            if isinstance(answer, messages.Failure) and self.was_refused:
                if not _may_be_done(answer):
                    self.note(promises.Withdrawn(number))
                return
            assert isinstance(answer, messages.JobsSubmitted), answer
            self.note(promises.Submitted(number, tuple(answer.ids)))

        self._ask(messages.SubmitJobs(jobs=list(specs), key=key), take)

    def choose(self, *ids: int) -> None:
        """The scheduler starts jobs."""
        report = self.queue.component.store.announcements.report
        self.queue.notify(messages.JobsChosen(start=list(ids), report=report))

    def rest(self) -> None:
        """Nothing comes for a while: new jobs get their files."""
        if self.queue.component.runtime.patience_seconds is not None:
            self.queue.be_quiet()

    def cancel(self, job_id: int) -> None:
        """Cancel a job that is not final."""
        row = self.queue.component.store.table.find(job_id)
        assert row is not None
        is_final = row.phase is not Phase.HANDED_OVER

        def take(answer: Any) -> None:
            if isinstance(answer, messages.CancelOutcome) and answer.accepted:
                self.note(promises.Canceled(job_id, is_final=is_final))
            elif not _may_be_done(answer):
                self.note(promises.CancelAsked(job_id, is_refused=True))

        self.note(promises.CancelAsked(job_id))
        self._ask(messages.CancelJob(id=job_id), take)

    def reprioritise(self, job_id: int, priority: int) -> None:
        """Give a job another priority."""

        def take(answer: Any) -> None:
            if isinstance(answer, messages.PriorityOutcome) and answer.accepted:
                self.note(promises.Prioritised(job_id, priority, is_sure=True))
            elif not _may_be_done(answer):
                self.note(promises.PriorityRefused(job_id, priority))

        self.note(promises.Prioritised(job_id, priority, is_sure=False))
        self._ask(messages.ChangeJobPriority(id=job_id, priority=priority), take)

    def archive(self, job_id: int) -> None:
        """Archive a final job."""
        self.note(promises.ArchiveAsked((job_id,)))
        self._ask(messages.ArchiveJob(id=job_id), self._archived)

    def autoarchive(self) -> None:
        """Archive all final jobs."""
        self.note(promises.ArchiveAsked())
        self._ask(messages.AutoArchiveJobs(age_seconds=-1.0), self._archived)

    def purge(self, *ids: int) -> None:
        """Purge jobs that have ended, archived or not."""
        self.note(promises.PurgeAsked(ids))
        self._ask(messages.PurgeJobs(ids=list(ids)), self._purged)

    def _purged(self, answer: Any) -> None:
        if isinstance(answer, messages.PurgeOutcome) and answer.jobs:
            self.note(promises.Purged(tuple(job_id for job_id, _ in answer.jobs)))

    def _archived(self, answer: Any) -> None:
        if isinstance(answer, messages.ArchiveOutcome) and answer.archived:
            self.note(promises.Archived(tuple(answer.archived)))

    def configure(self, count: int = 0) -> None:
        """Store changes of the configuration with one flush; sometimes, then write the whole."""
        stored = self.config.component._stored
        for _ in range(count or self.dice.randint(1, CHANGES_AT_ONCE)):
            drafted = stored.drafted
            marked = {**drafted.cluster, SERIAL_MARK: drafted.serial_no + 1, "filling": _FILLING}
            change = Change(ObjectKind.CLUSTER, drafted.cluster_uuid, marked)
            edit = Edit(
                [change],
                "a user",
                "a change",
                request=f"key-{drafted.serial_no + 1}",
                digest="of the request",
                reply_of=lambda after: after.serial_no,
            )
            stored.draft(edit, self.clock.now)
        serial = stored.drafted.serial_no
        self.note(promises.Configured(serial, is_sure=False))
        is_whole_due = self.dice.random() < WHOLE_CHANCE
        with contextlib.suppress(errors.StorageError):
            store = self.queue.component.store
            append_drafts(stored, store.change_log, store.ledger)
            self.note(promises.Configured(serial, is_sure=True))
            if is_whole_due:
                self._write_whole()

    def write_whole(self) -> None:
        """Write the whole configuration, after which the log repeats no change of it."""
        with contextlib.suppress(errors.StorageError):
            self._write_whole()

    def _write_whole(self) -> None:
        serial = self.config.component._stored.prepare_whole()()
        self.queue.notify(messages.ConfigFilesWritten(serial=serial))

    def authorise(self) -> None:
        """Make the key of a client known."""
        number = len(keys.known_keys(self.places.keys)) + 1
        self._unauthorised.append((f"{number:05d}" * 8, f"client-{number}"))
        key, name = self._unauthorised[0]
        with contextlib.suppress(errors.StorageError):
            keys.authorise(self.places.keys, key, name)
            self.note(promises.Authorised(key))
            self._unauthorised.clear()

    def _ask(self, message: Message, take: Callable[[Any], None]) -> None:
        self.queue.handle(Envelope(message, _User(take)))

    # ------------------------------------------------------------ what can be seen

    def look(self, kept_keys: dict[str, list[int]], ids: set[int]) -> Found:
        """What there is; ``ids`` are asked for also if no listing has them."""
        component, queue = self.queue.component, self.places.queue
        found: dict[int, tuple[jobs.Job, bool]] = {}
        for job_id in {*ids, *(row.id for row in component.store.table)}:
            with contextlib.suppress(errors.StorageError, errors.UnknownJobError):
                document = component.store.reader.document(job_id)
                found[job_id] = (jobs.decode_job(document.body), document.archived)
        by_key = {key: self._ids_of(key) for key in kept_keys}
        configuration = config_files.read(self.places.config)
        assert configuration is not None
        return Found(
            jobs=found,
            pending={row.id for row in component.store.table.in_phase(Phase.PENDING)},
            quarantined=list(component.store.quarantined),
            ids_by_key=by_key,
            next_id=component.store.ledger.last_id + 1,
            outputs={job_id: kept_output(self.places, job_id) for job_id in found},
            lost_inputs=[
                name
                for job, is_archived in found.values()
                for name in _lost_inputs(self.places, job, is_archived=is_archived)
            ],
            files=set(component.store.ledger.directory.live_ids()),
            left={job_id for job_id, _ in removal.left_of(self.places, ids, os.listdir(queue))},
            configuration=configuration["serial_no"],
            marked=configuration["cluster"].get(SERIAL_MARK, 1),
            unanswered=[
                serial
                for serial in range(2, configuration["serial_no"] + 1)
                if not self._is_answered(serial)
            ],
            clients=set(keys.known_keys(self.places.keys)),
        )

    def _is_answered(self, serial: int) -> bool:
        """Whether a repetition of this change of the configuration gets the first reply."""
        known = self.config.component._stored.reply_to("a user", f"key-{serial}")
        return known is not None and known.reply == serial

    def _ids_of(self, key: str) -> list[int]:
        """The jobs in the reply to a repeated submission under this key."""
        return sorted(self.queue.component.store.table.ids_of_key(key) or ())

    def refused_locks(self) -> list[str]:
        """Locks that a new owner cannot have at once, though no living owner could hold them."""
        stem = lock_files.job_stem(0, self.clock.read(), self.new_mark())
        held = lock_files.create(self.places.lock_files, stem)
        refused = []
        for number, name in enumerate(LOCKS):
            owner = Owner(f"thread-{number}", held.path, 0)
            answers: list[Any] = []
            request = messages.RequestLocks(
                owner=owner, priority=0, changes=[(f"node/{name}", "exclusive")]
            )
            self.locks.handle(Envelope(request, _User(answers.append)))
            self.locks.end_turn()
            if not isinstance(answers[0], messages.LocksGranted):
                refused.append(name)
        self.locks.turn(messages.OwnerEnded(lock_file=held.path))
        held.remove()
        return refused


def _lost_inputs(places: Places, job: jobs.Job, *, is_archived: bool) -> Iterator[str]:
    """The files beside the job that its opcodes name, and that are not as they were submitted."""
    archive = Path(job_files.archive_folder(places.archive, job.id))
    folder = archive if is_archived else places.queue
    for op in job.ops:
        name = op.input.get("stdin_file")
        if name is None:
            continue
        path = folder / spool.FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != op.input["comment"]:
            yield name


def kept_output(places: Places, job_id: int) -> dict[int, bytes]:
    """What is kept of a job's output, by opcode, up to a place where something is missing."""
    reading = OutputReading(job_id)
    outputs: dict[int, bytes] = {}
    while not reading.is_at_end:
        asked = reading.request()
        data, size = output_files.read_page(
            places, job_id, asked.offset, settings.OUTPUT_PAGE_BYTES
        )
        for chunk in reading.take(messages.OutputPage(data=data, size=size)):
            if chunk.gap:
                # What comes behind it was not covered by a flush, and is not compared.
                return outputs
            outputs[chunk.op_index] = outputs.get(chunk.op_index, b"") + chunk.data
    return outputs


def _may_be_done(answer: Message) -> bool:
    """Whether this answer leaves open if the request was carried out."""
    unknown = errors.OutcomeUnknownError().name
    return isinstance(answer, messages.Failure) and answer.error == unknown
