"""The configuration store: the single writer of ``config.data``, in Ganeti's schema.

It sends the rules to the filter evaluator, and the number of run slots to the scheduler. It keeps
fields that it does not know.

The reply to a change follows when the change is in force: on disk, and known to the queue and the
scheduler (filter rules: compiled, too). So nothing after the reply obeys the old configuration.

Changes wait in one line for the configuration lock (`change_line`). Filter rules have a part of
their own (`filter_rules`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from ...storage import config_files, entry_points, errors, settings
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.objects import ObjectKind
from ...storage.prediction.policy import judged
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE, OUTPUT_READER, SCHEDULER
from ..runtime.component import Component
from ..runtime.turn_limit import turn_limit
from . import object_pages, objects, opcode_locks
from .change_keys import keyed
from .change_line import ChangeLine, Made
from .disk_limits import disk_limits_of
from .filter_rules import FilterRules
from .forecasts import Forecasts
from .installed_parts import PartContext, Parts
from .known_nodes import KnownNodes
from .pending_acks import PendingAcks
from .stored_configuration import Edit, StoredConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ...transport.envelopes import Envelope


_OwnNotice = messages.WholeDue | messages.WholeWritten
_ObjectMessage = (
    messages.ReadObjects
    | messages.CountObjects
    | messages.ChangeObjects
    | messages.SetValues
    | messages.ReadHistory
    | messages.PrepareOpcode
    | messages.ResolveForecasts
    | messages.ReadOpcodeWait
    | messages.CheckNode
    | messages.NameLocks
    | _OwnNotice
)


_INSTALLED = entry_points.load(entry_points.CONFIG_PARTS)
"""The parts that packages bring. They are looked up once: a store that is started anew may have no
descriptor for it."""


class ConfigStore(Component[messages.ConfigMessage]):
    """Owns the configuration."""

    name = "config_store"

    def boot(self) -> None:
        """Read the configuration; make a first one if there is none."""
        self._is_whole_due = self._is_writing = False
        self._unflushed: list[tuple[Envelope, messages.Reply]] = []
        self._flushing: list[tuple[Envelope, messages.Reply]] = []
        self._stored = StoredConfiguration(self.places, self._first, self.runtime.wall_clock())
        self.quarantined = tuple(self._stored.quarantined)
        for text in self.quarantined:
            self.log.error("file of the configuration is quarantined", file=text)
        if self._stored.lost:
            self.log.warning(
                "config.data lacks changes of its history: it is an older copy",
                changes=self._stored.lost,
            )
        if self._stored.is_whole_due:
            self.log.warning("config.data lacks changes of the log: the disk is full")
            self._write_whole_later()
        self._changes = ChangeLine(self.runtime, self._stored, self._write_whole_later)
        self._rules = FilterRules(self.runtime, self._stored, self._changes)
        context = PartContext(self.runtime, self._stored, self._changes, self)
        self._parts = Parts(context, _INSTALLED.objects.values())
        self._nodes = KnownNodes(self.runtime, self._stored)
        self._forecasts = Forecasts(self.runtime, self._stored)
        self._parts.begin()
        # Serials start at the clock, so late confirmations to our predecessor match none.
        self._slots = PendingAcks(time.monotonic_ns())
        self._not_in_force: tuple[str, ...] = ()
        self._report()
        self._forecasts.begin()

    def _first(self) -> dict[str, Any]:
        is_node = self.runtime.host.is_node
        return config_files.first_configuration(str(uuid.uuid4()), time.time(), is_node=is_node)

    def receive(self, envelope: Envelope[messages.ConfigMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.ReportConfiguration():
                self._report()
            case (
                messages.ReplaceFilter()
                | messages.DeleteFilter()
                | messages.ListFilters()
                | messages.RulesApplied()
            ):
                self._rules.take(envelope, message)
            case messages.ReportNodes():
                self._nodes.report()
            case messages.LimitApplied():
                self._slots.in_force(message.serial)
            case messages.ReadLimits():
                envelope.reply(self._limits(self._stored.snapshot))
            case messages.SetLimits():
                self._set_limits(envelope, message)
            case messages.ComponentReplaced():
                self._resend()
            case messages.ChangesOverdue():
                self._changes.refuse_overdue()
            case messages.LocksNotWritten():
                self._changes.note_unwritten(message.error)
            case _:
                self._take_more(envelope, message)

    def _take_more(self, envelope: Envelope, message: messages.ConfigMessage) -> None:
        if self._parts.take(envelope, message):
            return
        if not isinstance(message, _ObjectMessage):
            text = f"{type(message).__name__}: no installed package serves this request"
            raise errors.BadRequestError(text)
        self._take_objects(envelope, message)

    def _take_objects(self, envelope: Envelope, message: _ObjectMessage) -> None:
        match message:
            case messages.ReadObjects():
                self._read_objects(envelope, message)
            case messages.CountObjects():
                envelope.reply(object_pages.counted(self._stored.snapshot))
            case messages.ChangeObjects():
                changes = objects.checked_batch(message.changes)
                kinds = {change.kind for change in changes}
                self._change_objects(envelope, message, kinds, lambda _: changes)
            case messages.SetValues():
                self._change_objects(
                    envelope,
                    message,
                    {message.kind},
                    lambda now: [objects.with_values(now, message)],
                )
            case messages.ReadHistory():
                self._read_history(envelope, message)
            case messages.PrepareOpcode() | messages.ReadOpcodeWait():
                envelope.reply(opcode_locks.answered(self._stored.snapshot, message))
            case messages.CheckNode():
                self._nodes.check_start(message.node)
                envelope.reply(messages.Done())
            case messages.NameLocks():
                envelope.reply(opcode_locks.named(self._stored.snapshot, message.locks))
            case messages.ResolveForecasts():
                self._forecasts.answer(envelope, message)
            case _:
                self._take_notice(message)

    def _take_notice(self, message: _OwnNotice) -> None:
        match message:
            case messages.WholeDue():
                self._write_whole()
            case messages.WholeWritten():
                self._note_whole(message)
            case _:
                assert_never(message)

    def turn_ended(self) -> None:
        """Store what the parts of the store have collected in the turn, and tell."""
        self._parts.turn_ended()

    def close(self) -> None:
        """Write the whole configuration if the log is ahead of it."""
        if not hasattr(self, "_stored"):
            return
        if self._is_whole_due and not self._is_writing:
            with contextlib.suppress(errors.StorageError):
                self._stored.prepare_whole()()
        if hasattr(self, "_parts"):
            self._parts.close()
        self._stored.close()

    def _report(self) -> None:
        self._rules.report()
        self._report_limits()

    def _resend(self) -> None:
        """Resend changes that a replaced component has not confirmed."""
        self._rules.report_again()
        if self._slots.is_awaited:
            self._report_limits()

    # ------------------------------------------------------------ limits

    def _limits(self, snapshot: Configuration) -> messages.LimitsRead:
        cluster = snapshot.cluster
        running = cluster.get("max_running_jobs", settings.RUNNING_JOBS_MAX)
        possible = self._run_slots_max()
        disk = disk_limits_of(cluster)
        return messages.LimitsRead(
            running_jobs_max=running,
            tracked_jobs_max=cluster.get("max_tracked_jobs", settings.TRACKED_JOBS_MAX),
            running_jobs_possible=possible if running > possible else None,
            not_in_force=(*judged(cluster).problems, *disk.problems),
            disk=disk.limits,
        )

    def _run_slots_max(self) -> int:
        """The number of running jobs for which there are descriptors."""
        budget = self.runtime.host.budget
        return sys.maxsize if budget is None else budget.run_slots

    def _report_limits(self) -> None:
        limits = self._limits(self._stored.snapshot)
        running = limits.running_jobs_max
        if limits.running_jobs_possible is not None:
            running = limits.running_jobs_possible
            self.log.warning(
                "fewer run slots than configured: too few files may be open",
                configured=limits.running_jobs_max,
                possible=running,
            )
        serial = self._slots.serial
        policy = judged(self._stored.snapshot.cluster).policy
        for problem in limits.not_in_force:
            if problem not in self._not_in_force:
                self.log.warning("a parameter of the cluster is not in force", problem=problem)
        self._not_in_force = limits.not_in_force
        # Confirmed together: the scheduler takes its messages in order.
        self.runtime.tell(SCHEDULER, messages.PolicyChanged(policy=policy, serial=serial))
        changed = messages.LimitsChanged(running_jobs_max=running, serial=serial)
        self.runtime.tell(SCHEDULER, changed)
        self.runtime.tell(OUTPUT_READER, messages.DiskLimitsChanged(limits.disk))

    def _set_limits(self, envelope: Envelope, message: messages.SetLimits) -> None:
        self.check_slots(message.running_jobs_max)
        wanted = {
            "max_running_jobs": message.running_jobs_max,
            "max_tracked_jobs": message.tracked_jobs_max,
        }
        given = {name: value for name, value in wanted.items() if value is not None}

        def make(snapshot: Configuration) -> Made:
            disk = disk_limits_of(snapshot.cluster).changed(message)
            cluster = Change(
                ObjectKind.CLUSTER, snapshot.cluster_uuid, {**snapshot.cluster, **given, **disk}
            )
            return Made(Edit([cluster], message.sender, "limits of the queue"), done)

        def done(after: Configuration) -> None:
            answer(self._limits(after))

        def answer(limits: messages.LimitsRead) -> None:
            self._slots.add(envelope, limits)
            self._report_limits()

        self._changes.add(envelope, keyed(self._stored, message, make, self._limits, answer))

    def check_slots(self, wanted: int | None) -> None:
        """Raise `BadRequestError` if there are too few descriptors for this many running jobs."""
        budget = self.runtime.host.budget
        if wanted is None or budget is None or wanted <= budget.run_slots:
            return
        raise errors.BadRequestError(
            f"{wanted} run slots: the daemon may open {budget.limit} files at one time, which do "
            f"for {budget.run_slots}; raise the hard limit (`ulimit -Hn`, or LimitNOFILE= of the "
            "service) and start it again"
        )

    # ------------------------------------------------------------ objects

    def _read_objects(self, envelope: Envelope, message: messages.ReadObjects) -> None:
        is_enough = turn_limit(self.runtime)
        envelope.reply(object_pages.page(self._stored.snapshot, message, is_enough))

    def _change_objects(
        self,
        envelope: Envelope,
        message: messages.ChangeObjects | messages.SetValues,
        kinds: set[ObjectKind],
        changes_for: Callable[[Configuration], list[Change]],
    ) -> None:
        changes: list[Change] = []

        def make(snapshot: Configuration) -> Made:
            changes[:] = changes_for(snapshot)
            new = [change for change in changes if not objects.is_made(snapshot, change)]
            return Made(Edit(new, message.sender, message.why), done)

        def reply_of(after: Configuration) -> messages.ObjectsChanged:
            stamps = [objects.stamp(after, change) for change in changes]
            return messages.ObjectsChanged(serial_no=after.serial_no, stamps=stamps)

        def done(after: Configuration) -> None:
            self.answer_in_force(envelope, reply_of(after), changes)

        def repeated(reply: messages.ObjectsChanged) -> None:
            self._answer_in_force(envelope, reply, kinds)

        self._changes.add(envelope, keyed(self._stored, message, make, reply_of, repeated))

    def answer_in_force(
        self, envelope: Envelope, answer: messages.Reply, changes: Sequence[Change]
    ) -> None:
        """Send the reply to stored changes when they are in force."""
        self._answer_in_force(envelope, answer, {change.kind for change in changes})

    def _answer_in_force(
        self, envelope: Envelope, answer: messages.Reply, kinds: Container[ObjectKind]
    ) -> None:
        if ObjectKind.FILTER in kinds:
            self._rules.load_and_report(envelope, answer)
            if ObjectKind.CLUSTER in kinds:
                self._report_limits()
        elif ObjectKind.CLUSTER in kinds:
            self._slots.add(envelope, answer)
            self._report_limits()
        else:
            envelope.reply(answer)

    def _read_history(self, envelope: Envelope, message: messages.ReadHistory) -> None:
        entries = self._stored.history(message.count, message.before)
        lines = [
            msgspec.convert(entry, messages.HistoryLine, from_attributes=True) for entry in entries
        ]
        envelope.reply(messages.HistoryRead(entries=lines))

    # ------------------------------------------------------------ disk

    def flush(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Send ``answer`` when ``config.data`` and the ssconf files hold all that is stored now."""
        self._unflushed.append((envelope, answer))
        if not self._is_writing:
            self._write_whole()

    def write_files(self, envelope: Envelope, answer: messages.Reply) -> None:
        """As `flush`, and look at every file, whatever has changed."""
        self._parts.begin()
        self.flush(envelope, answer)

    def _write_whole(self) -> None:
        if self._is_writing:
            # Two at once could end in the wrong order.
            self._write_whole_later()
            return
        self._is_whole_due = False
        self._flushing, self._unflushed = self._unflushed, []
        try:
            work = self._stored.prepare_whole()
        except errors.StorageError as error:
            self._note_whole(messages.WholeWritten(error=error.text))
            return
        self._is_writing = True
        self.runtime.in_thread(functools.partial(_written, work))

    def _note_whole(self, message: messages.WholeWritten) -> None:
        self._is_writing = False
        if message.serial:
            # The log need not repeat what is there.
            written = messages.ConfigFilesWritten(serial=message.serial)
            self.runtime.tell(JOB_QUEUE, written)
        flushing, self._flushing = self._flushing, []
        for envelope, answer in flushing:
            answered = functools.partial(_answer_flush, envelope, answer)
            if message.error is None:
                self._parts.when_written(answered)
            else:
                answered(message.error)
        if message.error is not None:
            error = message.error
            self.log.error("config.data is not written; the log keeps its changes", error=error)
            self._write_whole_later()
        if self._unflushed:
            self._write_whole()

    def _write_whole_later(self) -> None:
        if not self._is_whole_due:
            self._is_whole_due = True
            self.runtime.later(settings.CONFIG_WHOLE_SECONDS, messages.WholeDue())


def _answer_flush(envelope: Envelope, answer: messages.Reply, error: str | None) -> None:
    if error is None:
        envelope.reply(answer)
    else:
        envelope.refuse(errors.StorageError(error))


def _written(work: Callable[[], int]) -> messages.WholeWritten:
    try:
        return messages.WholeWritten(serial=work())
    except errors.StorageError as error:
        return messages.WholeWritten(error=error.text)
