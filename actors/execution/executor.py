"""The executor: fork servers, job processes, their channels and their lock files.

It makes a process for each job in `StartJobs`, passes messages between the job and the
components, and notices the end of each process (`reaper` knows what follows). The lock file alone
says whether a process is alive (`lock_files`); a pidfd only says when to look.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, assert_never, cast

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...storage.disk import documents
from ...transport import frames, messages
from ...transport.envelopes import Address, Envelope
from ...transport.messages import RECEIVERS, JobMessage, Message
from ..processes import channels, control_groups, fork_protocol
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER, SUPERVISOR
from ..runtime.component import Component
from . import idle_processes, watching
from .children import ChannelAddress, Child, Children, unreachable
from .fork_servers import ForkServers
from .idle_processes import IdleProcesses
from .reaper import Reaper
from .watching import ChildPhase

if TYPE_CHECKING:
    from collections.abc import Iterable


class Executor(Component[messages.ExecutorMessage]):
    """Owns the fork servers and every running process."""

    name = "executor"

    def boot(self) -> None:
        """Start a fork server, and ask the queue for the jobs that run already."""
        documents.make_private_directory(self.places.run)
        documents.make_directory(self.places.lock_files, 0o700)
        self._children = Children(self.runtime)
        self._attachments: dict[str, Envelope] = {}
        self._servers = ForkServers(self.runtime)
        self._idle = IdleProcesses(self.runtime)
        self._reaper = Reaper(self.runtime, self._children, self._servers, self._idle)
        control_groups.remove_empty()
        self._start_server("lean")
        self.runtime.tell(JOB_QUEUE, messages.ReportRunning())

    def close(self) -> None:
        """Close every channel: running jobs go on, processes without a job end."""
        self._children.close()
        self._idle.close()
        self._servers.close()

    def receive(self, envelope: Envelope[messages.ExecutorMessage]) -> None:  # noqa: C901, PLR0912 - a table
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.StartJobs():
                for job_id, needs_user_opcodes in message.jobs:
                    reuses = job_id in message.reusing
                    self._start(job_id, needs_user_opcodes=needs_user_opcodes, reuses=reuses)
            case messages.HandOverConfirmed():
                self._confirm(message)
            case messages.RefuseHandOver():
                self._refuse(message)
            case messages.AdoptJobs():
                self._adopt_all(message)
            case messages.DeliverToJob():
                self._deliver(message)
            case messages.RequestDue():
                child = self._children.get(message.job_id)
                if child is not None and child.phase is ChildPhase.ASKED and child.channel is None:
                    self._request(child)
            case messages.WatchDue():
                child = self._children.get(message.job_id)
                if child is not None and child.lock_file == message.lock_file:
                    self._reaper.watch_unwatched(child)
            case messages.KillDue():
                self._kill(message)
            case messages.LeftTaskDue():
                self._reaper.end_tasks(message.lock_file)
            case messages.LeftOverEnded():
                self._reaper.note_cleared(message)
            case messages.ComponentReplaced():
                if message.component == "job_queue":
                    # Its predecessor may have died with our question.
                    self.runtime.tell(JOB_QUEUE, messages.ReportRunning())
                self._send_to_all(messages.ResendRequested())
            case messages.StartForkServer():
                self._start_server(message.template)
            case messages.ReadProcesses():
                envelope.reply(self._servers.report())
            case messages.JobHello():
                self._greet(message)
            case messages.JobLeft():
                self._reaper.note_left(message)
            case messages.IdleProcessesDue():
                self._idle.end_rested()
            case messages.AttachJob():
                self._attach(message, envelope)
            case _:
                assert_never(message)

    def _adopt_all(self, message: messages.AdoptJobs) -> None:
        for job_id, lock_file, pid in message.jobs:
            self._adopt(job_id, lock_file, pid)
        self._reaper.end_tasks_of_gone()
        self.runtime.tell(LOCK_MANAGER, messages.RecheckOwners())

    def readable(self, descriptors: Iterable[int]) -> None:
        """A fork server or a job has sent something, or has ended."""
        for descriptor in descriptors:
            child = self._children.by_descriptor.get(descriptor)
            if child is None:
                if not self._idle.take_event(descriptor):
                    self._read_server(descriptor)
            elif descriptor == child.pidfd:
                self._take_end(child)
            else:
                self._read_channel(child)

    # ------------------------------------------------------------ fork servers

    def _start_server(self, template: str) -> None:
        if template in self._servers:
            return
        try:
            self._servers.start(template)
        except OSError as error:
            self.log.error("no fork server can be started", template=template, error=str(error))
            due = messages.StartForkServer(template=template)
            self.runtime.later(settings.DISK_RETRY_SECONDS, due)
            return
        for child in self._children.values():
            if child.phase is ChildPhase.ASKED and child.template == template:
                self._request(child)

    def _read_server(self, descriptor: int) -> None:
        template = self._servers.find(descriptor)
        if template is None:
            return
        reply = self._servers.receive(template)
        if reply is None:
            self._lose_server(template)
        elif (pid := fork_protocol.asked_status(reply[0])) is not None:
            self._reaper.note_status(pid, reply[1])
        else:
            self._note_process(*reply)

    def _lose_server(self, template: str) -> None:
        status = self._servers.end(template)
        self._reaper.are_strays_likely = True
        self._idle.end_all(template)
        self.log.error("fork server ended", template=template, status=status)
        failed = messages.ComponentFailed(
            component=f"fork_server:{template}",
            incarnation=0,
            text=f"the {template} fork server ended with status {status}",
        )
        self.runtime.tell(SUPERVISOR, failed)
        for child in list(self._children.values()):
            if child.template == template and child.phase is not ChildPhase.ASKED:
                self._reaper.watch_unwatched(child)

    # ------------------------------------------------------------ starting a job

    def _start(self, job_id: int, *, needs_user_opcodes: bool, reuses: bool = False) -> None:
        child = self._children.get(job_id)
        if child is not None:
            # A new job queue asks again: continue the hand-over.
            self._ask_hand_over(child)
            return
        child = Child(job_id, ChildPhase.ASKED, needs_user_opcodes=needs_user_opcodes)
        child.reuses = reuses
        self._children[job_id] = child
        idle = self._idle.take(child.template) if reuses else None
        if idle is None:
            self._request(child)
        else:
            idle_processes.give(idle, child)
            self._children.take_over(child)

    def _request(self, child: Child) -> None:
        """Ask a fork server for a process; without a server, `_start_server` asks."""
        # An earlier process ends when its channel closes.
        self._children.forget_descriptors(child)
        if child.template not in self._servers:
            if child.template == "full":
                self._start_server(child.template)
            return
        try:
            ours, theirs = channels.pair()
        except OSError as error:
            # No descriptors are left: ask again later.
            self._idle.end_all()
            self.log.error("no process can be asked for", job=child.job_id, error=str(error))
            self.runtime.later(
                settings.DISK_RETRY_SECONDS, messages.RequestDue(job_id=child.job_id)
            )
            return
        self._children.give_channel(child, ChannelAddress(ours))
        with contextlib.closing(theirs):
            try:
                self._servers.request(child.template, child.job_id, theirs.fileno())
            except OSError as error:
                # The server has died: its successor gets the request.
                self.log.warning("fork server takes no request", error=str(error))

    def _note_process(self, job_id: int, pid: int, pidfd: int) -> None:
        child = self._children.get(job_id)
        if child is None or child.pidfd >= 0:
            if pidfd >= 0:
                os.close(pidfd)
            return
        child.pid = pid
        if pidfd >= 0:
            self._reaper.watch_process(child, pidfd)
            return
        self.log.error("no descriptor is left to watch a process with", job=job_id, job_pid=pid)
        if child.phase is not ChildPhase.ASKED:
            self._reaper.watch_unwatched(child)
            return
        # It has no lock file yet: it ends with its channel, and another process follows.
        self._children.drop_channel(child)
        self.runtime.later(settings.DISK_RETRY_SECONDS, messages.RequestDue(job_id=job_id))

    def _greet(self, message: messages.JobHello) -> None:
        child = self._children.get(message.job_id)
        if child is None:
            return
        child.phase = ChildPhase.GREETED
        child.lock_file = message.lock_file
        child.pid = message.process_id
        if child.template not in self._servers:
            self._reaper.watch_unwatched(child)
        self._ask_hand_over(child)

    def _ask_hand_over(self, child: Child) -> None:
        if child.phase is ChildPhase.GREETED and child.channel is not None:
            asked = messages.HandOverRequested(
                job_id=child.job_id, lock_file=child.lock_file, process_id=child.pid
            )
            self.runtime.forward(JOB_QUEUE, Envelope(asked, child.channel))

    def _confirm(self, message: messages.HandOverConfirmed) -> None:
        child = self._children.get(message.job_id)
        if child is not None and child.lock_file == message.lock_file:
            child.phase = ChildPhase.CONFIRMED

    def _refuse(self, message: messages.RefuseHandOver) -> None:
        child = self._children.get(message.job_id)
        if child is None or child.lock_file != message.lock_file:
            return
        if child.phase is not ChildPhase.CONFIRMED:
            self._children.drop_channel(child)

    # ------------------------------------------------------------ messages of jobs

    def _read_channel(self, child: Child) -> None:
        address = child.channel
        if address is None:
            return
        try:
            while (frame := address.channel.receive()) is not None:
                self._route(frame, address)
                if child.channel is not address:
                    # It has left its job.
                    return
        except channels.ChannelClosedError:
            self._children.drop_channel(child)
            if child.pidfd < 0 and child.phase is not ChildPhase.ASKED:
                # Nothing else reports its end.
                self._reaper.watch_unwatched(child)

    def _route(self, frame: bytes, address: ChannelAddress) -> None:
        try:
            decoded = frames.decode(frame, JobMessage)
        except errors.FrameError as error:
            self.log.error("unreadable frame from a job", error=error.text)
            return
        message = decoded.message
        envelope = Envelope(message, address, decoded.number)
        receiver = RECEIVERS[type(message)]
        # The executor's own messages skip its mailbox: a hand-over goes on at once.
        if receiver == self.name:
            self.receive(cast("Envelope[messages.ExecutorMessage]", envelope))
        else:
            self.runtime.forward(Address(receiver), envelope)

    def _attach(self, message: messages.AttachJob, envelope: Envelope) -> None:
        child = self._children.get(message.job_id)
        if child is None or child.lock_file != message.lock_file:
            # The queue still reads its files: `_adopt` answers the process.
            self._attachments[message.lock_file] = envelope
            return
        self._children.drop_channel(child)
        child.wire = envelope.reply_to
        envelope.reply(messages.Done())

    def _deliver(self, message: messages.DeliverToJob) -> None:
        child = self._children.get(message.job_id)
        asked = message.message
        is_kill = isinstance(asked, messages.CancelRequested) and asked.kill
        if child is not None and child.address is not None:
            if is_kill:
                self._kill_later(child)
            child.address.tell(Envelope(asked))
        elif isinstance(asked, messages.GateChanged):
            pass
        elif child is not None and is_kill:
            # A process with an address is one of ours; of this one it must be found out.
            is_elsewhere = lock_files.is_elsewhere(child.lock_file, self.places.lock_files)
            if not is_elsewhere:
                self._kill_later(child)
            is_sure = not is_elsewhere and child.pidfd >= 0
            answer = unreachable(message, asked, is_elsewhere=is_elsewhere, is_to_be_killed=is_sure)
            self.runtime.tell(JOB_QUEUE, answer)
        else:
            self.runtime.tell(JOB_QUEUE, unreachable(message, asked))

    def _kill_later(self, child: Child) -> None:
        child.is_to_be_killed = True
        due = messages.KillDue(job_id=child.job_id, lock_file=child.lock_file)
        self.runtime.later(settings.KILL_SECONDS, due)

    def _kill(self, message: messages.KillDue) -> None:
        """Kill a process that did not react to the request to end; `_forget` ends its commands."""
        child = self._children.get(message.job_id)
        if child is None or child.lock_file != message.lock_file or child.pidfd < 0:
            return
        child.was_killed = True
        self.log.warning("job is killed on request", job=child.job_id, job_pid=child.pid)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _send_to_all(self, message: Message) -> None:
        for child in self._children.values():
            if child.address is not None:
                child.address.tell(Envelope(message))

    # ------------------------------------------------------------ life and death

    def _adopt(self, job_id: int, lock_file: str, known_pid: int | None) -> None:
        child = self._children.get(job_id)
        if child is not None and child.lock_file == lock_file:
            self._ask_hand_over(child)
            return
        child = Child(job_id, ChildPhase.CONFIRMED)
        child.is_adopted = True
        child.lock_file = lock_file
        child.pid = known_pid or 0
        self._children[job_id] = child
        attachment = self._attachments.pop(lock_file, None)
        if not self._reaper.watch_holder(child):
            self._reaper.forget_dead(child)
        elif attachment is not None:
            child.wire = attachment.reply_to
            attachment.reply(messages.Done())

    def _take_end(self, child: Child) -> None:
        """The process has ended: read its last messages, then decide the next step."""
        self._read_channel(child)
        match watching.after_end(child.phase, child.attempts):
            case watching.NextStep.RETRY:
                child.attempts += 1
                self._request(child)
            case watching.NextStep.GIVE_UP:
                self._reaper.give_up(child)
            case watching.NextStep.REPORT:
                self._reaper.reap(child)
