"""The processes of jobs as the executor knows them, and the addresses at which they are reached."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ...storage import errors, settings
from ...storage.alive import lock_files
from ...transport import frames, messages
from ..processes import channels

if TYPE_CHECKING:
    from ...storage.alive.process_identity import ProcessIdentity
    from ...transport.envelopes import Envelope, ReplyAddress
    from ..runtime.component import Runtime
    from .watching import ChildPhase


class ChannelAddress:
    """The address of a job process at the end of its channel; any thread may use it."""

    def __init__(self, end: channels.End) -> None:
        self.channel = channels.Channel(end)
        self._lock = threading.Lock()

    def tell(self, envelope: Envelope) -> None:
        """Send; the message is lost if the process is gone.

        A message that fits into no frame ends the channel: the process must not wait for it.
        """
        with self._lock:
            try:
                self.channel.send(frames.encode(envelope.message, envelope.number))
            except errors.FrameError:
                self.channel.give_up()
            except channels.ChannelClosedError:
                return


class Child:
    """A job's process as the executor knows it."""

    def __init__(self, job_id: int, phase: ChildPhase, *, needs_user_opcodes: bool = False) -> None:
        self.job_id = job_id
        self.phase = phase
        self.needs_user_opcodes = needs_user_opcodes
        self.attempts = 1
        self.reuses = False
        """Whether it may have a process that has served other jobs."""
        self.place = 1
        """Its place among the jobs of its process, from 1."""
        self.is_to_be_killed = False
        self.channel: ChannelAddress | None = None
        self.wire: ReplyAddress | None = None
        self.pid = 0
        self.pidfd = -1
        self.lock_file = ""
        self.seen_identity: ProcessIdentity | None = None
        """The identity of the process, for a lock file whose name has none."""
        self.was_watched = self.is_adopted = False
        self.has_left = False
        self.is_free = False
        """Whether it has left its job in order, and could take another one."""
        self.has_locks = self.has_group = True
        self.is_being_cleared = self.is_cleared = False
        """Whether its left-over processes are being ended, or have ended."""
        self.was_killed = False
        self.on_node = ""
        """What became of the task that the dead process has left on a node."""
        self.exit_code: int | None = None

    @property
    def identity(self) -> ProcessIdentity | None:
        """Which process it is; None if unknown."""
        return lock_files.identity_of(self.lock_file) or self.seen_identity

    @property
    def template(self) -> str:
        """The fork server that makes its process."""
        return "full" if self.needs_user_opcodes else "lean"

    @property
    def address(self) -> ReplyAddress | None:
        """The address that reaches the process now, if there is one."""
        return self.channel or self.wire


class Children(dict[int, Child]):
    """The processes of jobs, by job, and the descriptors by which the executor hears of them."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._runtime = runtime
        self.by_descriptor: dict[int, Child] = {}

    def give_channel(self, child: Child, address: ChannelAddress) -> None:
        """The process is reached here, and heard, from now on."""
        child.channel = address
        self._watch(child, address.channel.fileno())

    def give_pidfd(self, child: Child, pidfd: int) -> None:
        """This descriptor reports the end of the process from now on."""
        child.pidfd = pidfd
        child.was_watched = True
        self._watch(child, pidfd)

    def _watch(self, child: Child, descriptor: int) -> None:
        self.by_descriptor[descriptor] = child
        self._runtime.watch(descriptor)

    def take_over(self, child: Child) -> None:
        """The child has the descriptors of an idle process, which are watched already."""
        assert child.channel is not None
        self.by_descriptor[child.pidfd] = child
        self.by_descriptor[child.channel.channel.fileno()] = child

    def hand_on(self, child: Child) -> None:
        """The descriptors of the child are those of an idle process from now on."""
        assert child.channel is not None
        del self.by_descriptor[child.pidfd], self.by_descriptor[child.channel.channel.fileno()]

    def drop_channel(self, child: Child) -> None:
        """Close the channel, if there is one: a process that waits at it ends."""
        address, child.channel = child.channel, None
        if address is None:
            return
        descriptor = address.channel.fileno()
        self._runtime.forget(descriptor)
        del self.by_descriptor[descriptor]
        address.channel.close()

    def forget_descriptors(self, child: Child) -> None:
        """Close the channel and the pidfd, if there are any."""
        self.drop_channel(child)
        if child.pidfd >= 0:
            self._runtime.forget(child.pidfd)
            del self.by_descriptor[child.pidfd]
            os.close(child.pidfd)
            child.pidfd = -1

    def close(self) -> None:
        """Close every descriptor: running jobs go on."""
        for child in self.values():
            if child.channel is not None:
                child.channel.channel.close()
            if child.pidfd >= 0:
                os.close(child.pidfd)


def unreachable(
    message: messages.DeliverToJob,
    asked: messages.CancelRequested | messages.PriorityRequested,
    *,
    is_elsewhere: bool = False,
    is_to_be_killed: bool = False,
) -> messages.CancelAnswered | messages.PriorityAnswered:
    """The answer for a job whose process has no address now.

    ``is_elsewhere``: it is the process of another data directory, of which this one is a copy;
    ``is_to_be_killed``: the request will be carried out all the same.
    """
    job_id = message.job_id
    text = f"Job {job_id} cannot be reached now; try again"
    if is_to_be_killed:
        text = f"Job {job_id} cannot be reached, and is ended {settings.KILL_SECONDS:g} s from now"
    elif is_elsewhere:
        where = "another data directory, of which this one is a copy"
        text = f"The process of job {job_id} works in {where}"
    match asked:
        case messages.CancelRequested():
            return messages.CancelAnswered(
                job_id=job_id, token=asked.token, accepted=is_to_be_killed, text=text
            )
        case messages.PriorityRequested():
            return messages.PriorityAnswered(
                job_id=job_id,
                token=asked.token,
                priority=asked.priority,
                accepted=False,
                text=text,
            )
