"""Players of the queue: what a restart makes of the files, and the hand-over on a stage."""

from __future__ import annotations

import shutil

from tests.actors.queue.leftovers import Leftovers
from tests.actors.queue.queue_stage import Queue, spec
from tests.actors.runtime.stage import Stage
from tests.refusals import refuse
from tests.transcripts.player import Command, Player, listed

from ganger.actors.durable.ledger import Ledger
from ganger.actors.store import reconciling
from ganger.actors.store.reconciling import Life
from ganger.storage.alive import lock_files
from ganger.storage.jobs import jobs
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import JobArchived, StateStored
from ganger.transport import messages


def statuses(text: str) -> list[JobStatus]:
    return [JobStatus(word) for word in text.split(",") if word != "none"]


class Recovery(Player):
    """A queue directory in the making; ``start`` says what the next daemon finds in it."""

    disk: Leftovers | None = None

    def new(self, _: Command | None = None) -> str:
        self.__exit__()
        self.disk = Leftovers(self.root / "queue")
        return ""

    def __exit__(self, *_: object) -> None:
        if self.disk is not None:
            self.disk.close()
            shutil.rmtree(self.root / "queue")
            self.disk = None

    def _body(self, command: Command) -> tuple[int, bytes]:
        assert self.disk is not None
        owners = {
            "alive": self.disk.living.path,
            "dead": self.disk.dead,
            "this-daemon": self.disk.own.path,
            "dead-daemon": f"{self.disk.places.lock_files}/{lock_files.DAEMON_STEM}0",
            "": None,
        }
        serial = command.number("serial", 1)
        found = statuses(command.words[1])
        livelock = owners[command.get("process")]
        return serial, self.disk.body(command.id, serial, *found, livelock=livelock)

    def file(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.write(command.id, self._body(command)[1])
        return ""

    def torn(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.write(command.id, command.get("bytes").encode())
        return ""

    def journal(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.journal(StateStored(command.id, *self._body(command)))
        return ""

    def journal_archived(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.journal(JobArchived(command.id))
        return ""

    def archive(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.directory.archive(command.id)
        return ""

    def serial(self, command: Command) -> str:
        assert self.disk is not None
        self.disk.directory.write_serial(command.id)
        return ""

    def start(self, _: Command) -> str:
        assert self.disk is not None
        found = self.disk.load()
        # Few jobs: it writes their files at once.
        kept = Journal(self.disk.places.journal)
        Ledger(self.disk.directory, kept).begin(found)
        kept.close()
        died = {job.id for job in found.died}
        lines = [
            f"job {row.id}: {row.phase.name.lower().replace('_', ' ')}, {row.status},"
            f" serial {row.serial}"
            + (", its process lives" if row.id in found.living else "")
            + (", its process died" if row.id in died else "")
            + (", its end is not flushed" if row.id in found.unflushed_finals else "")
            for row in found.table
        ]
        lines += [f"archived: {one}" for one in self.disk.directory.archived_ids()]
        lines += [f"unreadable: {text}" for text in found.quarantined]
        return "\n".join([*lines, f"last id: {found.last_id}"])

    def on_disk(self, command: Command) -> str:
        assert self.disk is not None
        body = self.disk.directory.read(command.id)
        where = "file"
        if body is None:
            body, where = self.disk.directory.read_archived(command.id), "archive"
        assert body is not None
        job = jobs.decode_job(body)
        return f"{where} of job {command.id}: {job.status}, serial {job.serial}"

    def fates(self, command: Command) -> str:
        """Each line: the statuses of a job's opcodes, and what its lock file tells."""
        found = []
        for line in command.data:
            ops, life = line.split(maxsplit=1)
            fate = reconciling.fate(statuses(ops), Life(life))
            found.append(f"{fate.value:<7}  {line}")
        return "\n".join(found)


class HandOver(Player):
    """A job queue on a stage, and what it tells the executor and the processes of jobs."""

    stage: Stage | None = None

    def __exit__(self, *_: object) -> None:
        if self.stage is not None:
            self.queue.kill_all()
            self.queue.actor.close()
            self.stage.daemon_lock.remove()
            shutil.rmtree(self.root / "stage")
            self.stage = None

    def new(self, _: Command | None = None) -> str:
        self.__exit__()
        self.stage = Stage(self.root / "stage")
        self.queue = Queue(self.stage, self.patch)
        return ""

    def _sent(self) -> str:
        """What was said since the last command."""
        assert self.stage is not None
        lines = []
        for name, message in self.stage.sent:
            if name == "executor":
                jobs_of = [one[0] for one in getattr(message, "jobs", [])]
                which = getattr(message, "job_id", listed(jobs_of) or "nothing")
                lines.append(f"to the executor: {type(message).__name__} {which}")
            elif isinstance(message, messages.JobsArrived):
                arrived = listed(one.job.id for one in message.jobs)
                lines.append(f"to the scheduler: {arrived} pending")
            elif isinstance(message, messages.JobsFinished):
                ended = listed(f"{job_id} {status}" for job_id, status in message.jobs)
                lines.append(f"to the scheduler: {ended}")
        self.stage.sent.clear()
        for job_id, channel in self.queue.channels.items():
            names = [type(answer).__name__ for answer in channel.answers]
            lines += [f"to the process of {job_id}: {name}" for name in names]
            channel.envelopes.clear()
        return "\n".join(lines)

    def submit(self, command: Command) -> str:
        self.queue.submitted(*[spec(ops=command.number("ops", 1)) for _ in command.words])
        return self._sent()

    def choose(self, command: Command) -> str:
        self.queue.choose(*command.ids)
        return self._sent()

    def fork(self, command: Command) -> str:
        """A process for the job has its lock file, and asks to go on."""
        self.queue.greet(command.id)
        self.queue.actor.end_turn()
        return self._sent()

    def fork_full_disk(self, command: Command) -> str:
        with self.patch.context() as patch:
            refuse(patch, "ftruncate")
            return self.fork(command)

    def ask_again(self, command: Command) -> str:
        self.queue.ask_hand_over(command.id, self.queue.processes[command.id].path)
        self.queue.actor.end_turn()
        return self._sent()

    def records(self, command: Command) -> str:
        """The process writes its state, and sends it; the queue's turn ends."""
        found, serial = statuses(command.words[1]), command.number("serial", 10)
        body = self.queue.body_of_process(command.id, serial, *found)
        asked = self.queue.record(command.id, serial, *found)
        self.queue.write_as_process(command.id, body)
        self.queue.actor.end_turn()
        said = [f"to the process of {command.id}: {type(one).__name__}" for one in asked.answers]
        return "\n".join(filter(None, [*said, self._sent()]))

    def process_ends(self, command: Command) -> str:
        """The process leaves, having said so, or dies."""
        self.queue.end_process(command.id, has_left="left" in command.words)
        self.queue.actor.end_turn()
        return self._sent()

    def cancel(self, command: Command) -> str:
        asker = self.queue.actor.ask(messages.CancelJob(id=command.id))
        said = [f"to the client: {type(one).__name__}" for one in asker.answers]
        return "\n".join(filter(None, [*said, self._sent()]))

    def daemon_dies(self, command: Command) -> str:
        """The next daemon takes over; processes of jobs die only if they are named."""
        for job_id in command.ids:
            self.queue.processes.pop(job_id).remove()
        self.queue.restart()
        return self._sent()

    def power_fails(self, _: Command) -> str:
        self.queue.crash_machine()
        return self._sent()

    def executor_starts(self, _: Command) -> str:
        self.queue.actor.turn(messages.ReportRunning())
        return self._sent()

    def show(self, _: Command) -> str:
        """Status in listings, phase, and whose lock file the job's file names."""
        assert self.stage is not None
        lines = []
        for row in self.queue.actor.component.store.table:
            named = "there is no file yet"
            if self.stage.places.queue.joinpath(f"job-{row.id}").exists():
                daemon = self.stage.daemon_lock.path
                owners = {None: "nobody", daemon: "the daemon"}
                owner = owners.get(self.queue.file(row.id)["livelock"], "a process")
                named = f"its file names {owner}"
            ops = ",".join(op.status for op in self.queue.job(row.id).ops)
            lines.append(f"job {row.id}: {ops}; {row.phase.value}; {named}")
        return "\n".join(lines)
