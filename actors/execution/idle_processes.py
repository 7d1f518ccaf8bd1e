"""Processes that have left a job in order, and wait for another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from ...storage import settings
from ...storage.alive.process_identity import ProcessIdentity
from ...transport import messages
from ...transport.envelopes import Envelope
from ..processes import control_groups
from .children import ChannelAddress, Child

if TYPE_CHECKING:
    from ..runtime.component import Runtime


_DESCRIPTORS = 2
"""Of an idle process: its channel and its pidfd."""


class IdleProcess(msgspec.Struct):
    """A process without a job. ``served``: how many jobs it has had. ``since``: when it left."""

    template: str
    channel: ChannelAddress
    pid: int
    pidfd: int
    served: int
    identity: ProcessIdentity | None
    has_group: bool
    since: float


def left(child: Child, channel: ChannelAddress, now: float) -> IdleProcess:
    """The process that has left the job of ``child``, with its descriptors."""
    process = IdleProcess(
        template=child.template,
        channel=channel,
        pid=child.pid,
        pidfd=child.pidfd,
        served=child.place,
        identity=child.identity,
        has_group=child.has_group,
        since=now,
    )
    child.channel, child.pidfd, child.has_group = None, -1, False
    return process


def give(process: IdleProcess, child: Child) -> None:
    """Give the job of ``child`` to the process. If that has died, its descriptors report it."""
    child.channel, child.pid, child.pidfd = process.channel, process.pid, process.pidfd
    child.place = process.served + 1
    child.was_watched = True
    process.channel.tell(Envelope(messages.NextJob(job_id=child.job_id)))


class IdleProcesses:
    """Keeps some of them, each for some time; the runtime watches their descriptors."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._idle: list[IdleProcess] = []
        self._by_descriptor: dict[int, IdleProcess] = {}
        self._ending: dict[int, IdleProcess] = {}
        """By pidfd: those whose channel is closed."""
        self._is_look_due = False

    def __len__(self) -> int:
        """How many there are, with those that are about to end."""
        return len(self._idle) + len(self._ending)

    def has_room_beside(self, running: int) -> bool:
        """Whether one more may be kept beside this many running ones."""
        limit = settings.REUSED_IDLE_MAX
        if (budget := self._runtime.host.budget) is not None:
            free = (budget.run_slots - running) * settings.DESCRIPTORS_PER_JOB
            limit = min(limit, free // _DESCRIPTORS)
        return len(self) < limit

    def add(self, process: IdleProcess) -> None:
        """Keep a process for another job, or until its time is over."""
        self._idle.append(process)
        self._by_descriptor[process.pidfd] = process
        self._by_descriptor[process.channel.channel.fileno()] = process
        self._look_later()

    def take(self, template: str) -> IdleProcess | None:
        """The process that came last, whose memory is warm; it belongs to the caller now."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].template == template:
                process = self._idle.pop(place)
                del self._by_descriptor[process.pidfd]
                del self._by_descriptor[process.channel.channel.fileno()]
                return process
        return None

    def take_event(self, descriptor: int) -> bool:
        """One of them has ended, or said something: then it ends. False if it is none of them."""
        idle = self._by_descriptor.get(descriptor)
        if idle is not None:
            # A process without a job has nothing to say.
            self._end(idle)
        process = self._ending.pop(descriptor, None)
        if process is None:
            return idle is not None
        self._runtime.forget(descriptor)
        os.close(descriptor)
        if process.has_group and process.identity is not None:
            control_groups.remove(process.identity)
        return True

    def end_all(self, template: str | None = None) -> None:
        """End all of them, or those that this fork server has made."""
        for process in [one for one in self._idle if template in (None, one.template)]:
            self._end(process)

    def end_rested(self) -> None:
        """End those that have waited too long."""
        self._is_look_due = False
        until = self._runtime.clock() - settings.REUSED_IDLE_SECONDS
        for process in [one for one in self._idle if one.since <= until]:
            self._end(process)
        if self._idle:
            self._look_later()

    def close(self) -> None:
        """The executor ends: so do they."""
        for process in self._idle:
            process.channel.channel.close()
        for process in (*self._idle, *self._ending.values()):
            os.close(process.pidfd)

    def _end(self, process: IdleProcess) -> None:
        """Close its channel, with which it ends; its pidfd reports that."""
        self._idle.remove(process)
        descriptor = process.channel.channel.fileno()
        del self._by_descriptor[descriptor], self._by_descriptor[process.pidfd]
        self._runtime.forget(descriptor)
        process.channel.channel.close()
        self._ending[process.pidfd] = process

    def _look_later(self) -> None:
        if not self._is_look_due:
            self._is_look_due = True
            self._runtime.later(settings.REUSED_IDLE_SECONDS, messages.IdleProcessesDue())
