"""What follows the end of a job, or of its process, until the queue hears of it.

A process that has left its job in order waits for another one, or ends. Of a process that died in
the middle of its job, the reaper learns the exit status, ends what it left running, and only then
frees its locks and reports its end. The lock file alone says whether a process is alive.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.alive import lock_files, process_identity
from ...storage.nodes import task_marks
from ...transport import messages
from ..processes import control_groups, fork_protocol, lock_file_owners
from ..runtime.addresses import JOB_QUEUE, LOCK_MANAGER, NODE_HUB
from . import idle_processes, left_over, watching

if TYPE_CHECKING:
    from ...storage.nodes.task_marks import MarkedTask
    from ..runtime.component import Runtime
    from .children import Child, Children
    from .fork_servers import ForkServers
    from .idle_processes import IdleProcesses


class Reaper:
    """Follows the processes of jobs to their ends."""

    def __init__(
        self, runtime: Runtime, children: Children, servers: ForkServers, idle: IdleProcesses
    ) -> None:
        self._runtime = runtime
        self._log = runtime.log
        self._children = children
        self._servers = servers
        self._idle = idle
        self._ending: dict[str, dict[str, str | None]] = {}
        """By the lock file of a dead process its tasks that the hub was asked to end: None, or what
        it said of the end."""
        self.are_strays_likely = True
        """Processes that died before their `JobHello` may have left lock files."""

    # ------------------------------------------------------------ processes to be watched

    def watch_process(self, child: Child, pidfd: int) -> None:
        """Be told by this descriptor when the process ends."""
        self._children.give_pidfd(child, pidfd)
        if child.lock_file and lock_files.identity_of(child.lock_file) is None:
            # While the pidfd is open, no other process gets the pid.
            child.seen_identity = process_identity.of(child.pid)
        if child.is_free:
            self._keep_or_end(child)

    def watch_unwatched(self, child: Child) -> None:
        """Watch a process without a pidfd from its server: its lock file leads to it."""
        if child.pidfd < 0 and not self.watch_holder(child):
            self.forget_dead(child)

    def watch_holder(self, child: Child) -> bool:
        """Watch the process that holds the child's lock file; False if it is dead."""
        try:
            found = lock_file_owners.find(child.lock_file)
        except lock_file_owners.UnknownHolderError as error:
            self._watch_later(child, str(error))
            return True
        if found is None:
            return False
        child.pid = found.pid
        self.watch_process(child, found.pidfd)
        return True

    def _watch_later(self, child: Child, reason: str) -> None:
        self._log.error("no process can be watched", job=child.job_id, error=reason)
        due = messages.WatchDue(job_id=child.job_id, lock_file=child.lock_file)
        self._runtime.later(settings.DISK_RETRY_SECONDS, due)

    # ------------------------------------------------------------ the end of a job

    def note_left(self, message: messages.JobLeft) -> None:
        """The process has left its job. If it is free, keep it for another one, or let it end."""
        child = self._children.get(message.job_id)
        if child is None:
            return
        child.has_left = True
        child.has_locks = message.has_locks
        child.has_group = message.has_group
        if message.unclean:
            text = "a process takes no other job: its job has changed it"
            self._log.warning(text, job=child.job_id, job_pid=child.pid, changed=message.unclean)
        if not message.is_free:
            return
        child.is_free = True
        if child.pidfd >= 0 or child.template not in self._servers:
            self._keep_or_end(child)
        # Else its fork server has not reported it yet: a job may be shorter than the report's way.

    def _keep_or_end(self, child: Child) -> None:
        """Keep a process that has left its job for another one, or let it end."""
        address = child.channel
        has_room = self._idle.has_room_beside(len(self._children))
        if (
            address is None
            or child.template not in self._servers
            or not watching.may_serve_another(
                child, settings.REUSED_PROCESS_JOBS_MAX, has_room=has_room
            )
            or not lock_files.is_dead(child.lock_file)
        ):
            # It ends with its channel.
            self._children.drop_channel(child)
            return
        self._children.hand_on(child)
        self._idle.add(idle_processes.left(child, address, self._runtime.clock()))
        self._report_end(child)

    # ------------------------------------------------------------ the end of a process

    def give_up(self, child: Child) -> None:
        """Report that the job's processes ended, one after the other, before they took it over."""
        self._children.forget_descriptors(child)
        del self._children[child.job_id]
        lock_files.remove_dead(child.lock_file)
        self._remove_strays(child)
        text = "its process ended before it could take the job over, several times"
        self._runtime.tell(JOB_QUEUE, messages.StartFailed(job_id=child.job_id, text=text))

    def reap(self, child: Child) -> None:
        """The process has ended: report that, with its exit status if that can be known."""
        if child.has_left or not self._ask_status(child):
            self._forget(child)

    def _ask_status(self, child: Child) -> bool:
        """Ask for the exit status of a process that sent no `JobLeft`; False without a server.

        Only the server, its parent, can know the status. `note_status` goes on, or `WatchDue` if
        the server does not answer.
        """
        if not self._servers.ask_status(child.template, child.pid):
            return False
        self._children.forget_descriptors(child)
        due = messages.WatchDue(job_id=child.job_id, lock_file=child.lock_file)
        self._runtime.later(settings.STATUS_SECONDS, due)
        return True

    def note_status(self, pid: int, status: int) -> None:
        """A fork server reports how a process of its has ended."""
        for child in list(self._children.values()):
            if child.pid == pid and child.pidfd < 0 and child.lock_file:
                if status != fork_protocol.UNKNOWN:
                    child.exit_code = os.waitstatus_to_exitcode(status)
                self.watch_unwatched(child)

    def _forget(self, child: Child) -> None:
        """The process is gone: free its locks, and report its end to the queue.

        A process that died may have left others running: they end before its locks are free.
        """
        self._children.forget_descriptors(child)
        if self.watch_holder(child):
            self._log.error("a process may live that was thought to have ended", job=child.job_id)
        else:
            self.forget_dead(child)

    def forget_dead(self, child: Child) -> None:
        """Free the locks and report the end, right after `watch_holder` has found no process."""
        self._children.forget_descriptors(child)
        if child.has_left or child.identity is None or child.is_cleared:
            if not child.has_left and task_marks.is_marked(child.lock_file):
                self.end_tasks(child.lock_file)
            else:
                self._report_end(child)
        elif not child.is_being_cleared:
            child.is_being_cleared = True
            self._runtime.in_thread(functools.partial(left_over.end, child, child.identity))

    def note_cleared(self, message: messages.LeftOverEnded) -> None:
        """What a dead process left running has ended, or could not be ended."""
        child = self._children.get(message.job_id)
        if child is None or child.lock_file != message.lock_file:
            return
        for pid in message.ended:
            self._log.warning("ended a left-over process", pid=pid, job=child.job_id)
        child.is_being_cleared = False
        if message.error is not None:
            # The left-over processes still use its locks: try again later.
            self._watch_later(child, message.error)
            return
        child.is_cleared = True
        self._forget(child)

    def _report_end(self, child: Child) -> None:
        if not child.has_left and child.identity is None:
            self._log.warning("left-over processes cannot be found", job=child.job_id)
        del self._children[child.job_id]
        if child.has_group and child.identity is not None:
            control_groups.remove(child.identity)
        # `watch_holder` has proved that no process holds it.
        lock_files.remove_known_dead(child.lock_file)
        self._remove_strays(child)
        if task_marks.is_marked(child.lock_file):
            # The job has ended, and a node has not said that its task has.
            self.end_tasks(child.lock_file)
        elif child.has_locks:
            self._runtime.tell(LOCK_MANAGER, messages.OwnerEnded(lock_file=child.lock_file))
        exited = messages.JobExited(
            job_id=child.job_id,
            lock_file=child.lock_file,
            has_left=child.has_left,
            was_killed=child.was_killed,
            exit_code=child.exit_code,
            on_node=child.on_node,
        )
        self._runtime.tell(JOB_QUEUE, exited)

    # ------------------------------------------------------------ tasks on nodes

    def end_tasks_of_gone(self) -> None:
        """Have the tasks ended that processes have left on nodes which no job names any more."""
        known = {child.lock_file for child in self._children.values()}
        for lock_file in task_marks.lock_files_in(self._runtime.host.places.lock_files):
            if lock_file not in known and lock_files.is_dead(lock_file):
                self.end_tasks(lock_file)

    def end_tasks(self, lock_file: str) -> None:
        """Have the tasks ended that this dead process has left on nodes; its locks stay till then.

        However long it takes: a node that is silent is asked when it is back.
        """
        try:
            tasks = task_marks.read(lock_file)
        except errors.StorageError as error:
            self._log.error("a task on a node cannot be ended", error=error.text)
            if self._is_before_boot(lock_file) and self._child_of(lock_file) is None:
                # A loss of power has damaged it. It was not flushed: its job knew the task's end.
                self._tasks_ended(lock_file, "its job had ended")
            else:
                self._end_tasks_later(lock_file)
            return
        ending = self._ending.setdefault(lock_file, {})
        for task in tasks:
            if task.key not in ending:
                self._end_task(lock_file, task, ending)
        if not tasks:
            self._tasks_ended(lock_file, "")

    def _end_task(self, lock_file: str, task: MarkedTask, ending: dict[str, str | None]) -> None:
        ending[task.key] = None
        self._tell_waiting(lock_file, f"node {task.node} has ended its command")
        asked = messages.EndLeftTask(lock_file, task.node, task.key, task.began)

        def answered(reply: messages.TasksEnded | messages.TaskEndAwaited) -> None:
            if isinstance(reply, messages.TaskEndAwaited):
                self._tell_waiting(lock_file, reply.text)
                return
            ending[task.key] = reply.text
            if None not in ending.values():
                self._tasks_ended(lock_file, "; ".join(filter(None, ending.values())))

        def refused(error: errors.GangerError) -> None:
            ending.pop(task.key, None)
            self._log.warning("a task on a node is not ended yet", error=error.text)
            self._end_tasks_later(lock_file)

        deadline = self._runtime.clock() + settings.LEFT_TASK_SECONDS
        self._runtime.ask(NODE_HUB, asked, answered, refused, deadline)

    def _end_tasks_later(self, lock_file: str) -> None:
        due = messages.LeftTaskDue(lock_file=lock_file)
        self._runtime.later(settings.DISK_RETRY_SECONDS, due)

    def _tasks_ended(self, lock_file: str, text: str) -> None:
        self._ending.pop(lock_file, None)
        try:
            task_marks.remove(lock_file)
        except errors.StorageError as error:
            self._log.error("a mark cannot be removed", error=error.text)
            self._end_tasks_later(lock_file)
            return
        self._log.info("a dead process has no task any more", lock_file=lock_file, why=text)
        child = self._child_of(lock_file)
        if child is None:
            self._runtime.tell(LOCK_MANAGER, messages.OwnerEnded(lock_file=lock_file))
            return
        child.on_node = text
        self._forget(child)

    @staticmethod
    def _is_before_boot(lock_file: str) -> bool:
        """Whether the machine was restarted since the process with this lock file lived."""
        identity = lock_files.identity_of(lock_file)
        return identity is not None and identity.boot != process_identity.boot()

    def _tell_waiting(self, lock_file: str, what: str) -> None:
        child = self._child_of(lock_file)
        if child is not None:
            text = f"its process is lost; waiting until {what}"
            self._runtime.tell(JOB_QUEUE, messages.NodeAwaited(job_id=child.job_id, text=text))

    def _child_of(self, lock_file: str) -> Child | None:
        found = (child for child in self._children.values() if child.lock_file == lock_file)
        return next(found, None)

    def _remove_strays(self, child: Child) -> None:
        """Delete stray lock files, if any process did not end in order, once no job runs."""
        self.are_strays_likely |= not child.has_left or child.attempts > 1
        if self.are_strays_likely and not self._children:
            self.are_strays_likely = False
            places = self._runtime.host.places
            for folder in (places.lock_files, places.former_lock_files):
                lock_files.remove_dead_jobs(folder)
