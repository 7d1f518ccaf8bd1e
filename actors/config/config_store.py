"""The configuration store: the single writer of ``config.data``, in Ganeti's schema.

It sends the rules to the filter evaluator, and the number of run slots to the scheduler. It keeps
fields that it does not know.

The reply to a change follows when the change is in force: on disk, and known to the queue and the
scheduler (filter rules: compiled, too). So nothing after the reply obeys the old configuration.

Rules change in the order of the requests. A client may have sent a request twice, and goes on
after one reply: the second copy must not undo the client's next request.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from ...storage import config_files, errors, rules, settings
from ...storage.cluster.configuration import Change
from ...storage.cluster.objects import Kind
from ...storage.opcodes import OperationError
from ...transport import messages
from ..rules import rule_changes
from ..runtime.addresses import FILTER_EVALUATOR, JOB_QUEUE, SCHEDULER
from ..runtime.component import Component
from . import objects, opcode_runs
from .config_queries import ConfigQueries
from .stored_configuration import StoredConfiguration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.config_files import OpcodeAnswer
    from ...storage.rules import FilterRule
    from ...transport.envelopes import Envelope


_ObjectMessage = (
    messages.ReadObjects
    | messages.ChangeObjects
    | messages.SetValues
    | messages.ReadHistory
    | messages.QueryConfiguration
    | messages.QueryFields
    | messages.PrepareOpcode
    | messages.RunOpcode
    | messages.WholeDue
    | messages.WholeWritten
)


class _Changes:
    """Numbered changes of one kind, and the requests that wait until they are in force."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self._unanswered: list[tuple[int, Envelope, messages.Reply]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for one of them."""
        return bool(self._unanswered)

    def add(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Number a stored change; send ``answer`` when it is in force."""
        self.serial += 1
        self._unanswered.append((self.serial, envelope, answer))

    def in_force(self, serial: int) -> None:
        """Answer all changes up to this serial."""
        waiting, self._unanswered = self._unanswered, []
        for number, envelope, answer in waiting:
            if number <= serial:
                envelope.reply(answer)
            else:
                self._unanswered.append((number, envelope, answer))


class _Asked(msgspec.Struct, frozen=True, eq=False):
    """A change of the rules that waits for its turn: a rule to store, or a UUID to delete.

    A new rule waits for the watermark from the queue, a deletion for the rules before it.
    """

    envelope: Envelope
    change: FilterRule | str


class ConfigStore(Component[messages.ConfigMessage]):
    """Owns the configuration."""

    name = "config_store"

    def boot(self) -> None:
        """Read the configuration; make a first one if there is none."""
        self._is_whole_due = self._is_writing = False
        self._stored = StoredConfiguration(self.places, _first)
        self._answers = opcode_runs.Answers(self._stored)
        self._queries = ConfigQueries(self.runtime, lambda: self._stored.snapshot)
        self._load_rules()
        # Serials start at the clock, so late confirmations to our predecessor match none.
        self._rules = _Changes(time.monotonic_ns())
        self._slots = _Changes(time.monotonic_ns())
        self._asked: deque[_Asked] = deque()
        self._report()

    def receive(self, envelope: Envelope[messages.ConfigMessage]) -> None:
        """Handle one message."""
        message = envelope.message
        match message:
            case messages.ReportConfiguration():
                self._report()
            case messages.ReplaceFilter():
                self._take_rule(envelope, message)
            case messages.DeleteFilter():
                self._take_deletion(envelope, message)
            case messages.ListFilters():
                self._list_rules(envelope, message)
            case messages.RulesApplied():
                self._rules.in_force(message.serial)
            case messages.LimitApplied():
                self._slots.in_force(message.serial)
            case messages.ReadLimits():
                envelope.reply(self._limits())
            case messages.SetLimits():
                self._set_limits(envelope, message)
            case messages.ComponentReplaced():
                self._resend()
            case _:
                self._take_objects(envelope, message)

    def _take_objects(self, envelope: Envelope, message: _ObjectMessage) -> None:
        match message:
            case messages.ReadObjects():
                self._read_objects(envelope, message)
            case messages.ChangeObjects():
                changes = [objects.checked(change) for change in message.changes]
                self._change_objects(envelope, message, changes)
            case messages.SetValues():
                change = objects.with_values(self._stored.snapshot, message)
                self._change_objects(envelope, message, [change])
            case messages.ReadHistory():
                self._read_history(envelope, message)
            case messages.QueryConfiguration() | messages.QueryFields():
                self._queries.answer(envelope, message)
            case messages.PrepareOpcode():
                now = self.runtime.wall_clock()
                envelope.reply(opcode_runs.prepared(self._stored.snapshot, message, now))
            case messages.RunOpcode():
                self._run_opcode(envelope, message)
            case messages.WholeDue():
                self._write_whole()
            case messages.WholeWritten():
                self._note_whole(message)
            case _:
                assert_never(message)

    def close(self) -> None:
        """Write the whole configuration if the journal is ahead of it, and close the journal."""
        if not hasattr(self, "_stored"):
            return
        if self._is_whole_due and not self._is_writing:
            with contextlib.suppress(errors.StorageError):
                self._stored.prepare_whole()()
        self._stored.close()

    def _filters(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._stored.snapshot.document.get("filters", {})
        return found

    def _load_rules(self) -> None:
        """Parse the stored rules."""
        self._known, problems = rules.parse_rules(self._filters())
        for problem in problems:
            self.log.error("filter rule is left out", error=problem.text)

    def _report(self) -> None:
        self._report_rules()
        self._report_limits()

    def _report_rules(self) -> None:
        self.runtime.tell(
            FILTER_EVALUATOR,
            messages.RulesChanged(rules=list(self._known.values()), serial=self._rules.serial),
        )

    # ------------------------------------------------------------ limits

    def _limits(self) -> messages.LimitsRead:
        cluster = self._stored.snapshot.cluster
        running = cluster.get("max_running_jobs", settings.RUNNING_JOBS_MAX)
        possible = self._run_slots_max()
        return messages.LimitsRead(
            running_jobs_max=running,
            tracked_jobs_max=cluster.get("max_tracked_jobs", settings.TRACKED_JOBS_MAX),
            running_jobs_possible=possible if running > possible else None,
        )

    def _run_slots_max(self) -> int:
        """The number of running jobs for which there are descriptors."""
        budget = self.runtime.host.budget
        return sys.maxsize if budget is None else budget.run_slots

    def _report_limits(self) -> None:
        limits = self._limits()
        running = limits.running_jobs_max
        if limits.running_jobs_possible is not None:
            running = limits.running_jobs_possible
            self.log.warning(
                "fewer run slots than configured: too few files may be open",
                configured=limits.running_jobs_max,
                possible=running,
            )
        changed = messages.LimitsChanged(running_jobs_max=running, serial=self._slots.serial)
        self.runtime.tell(SCHEDULER, changed)

    def _set_limits(self, envelope: Envelope, message: messages.SetLimits) -> None:
        self._check_slots(message.running_jobs_max)
        wanted = {
            "max_running_jobs": message.running_jobs_max,
            "max_tracked_jobs": message.tracked_jobs_max,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        snapshot = self._stored.snapshot
        cluster = Change(Kind.CLUSTER, snapshot.cluster_uuid, {**snapshot.cluster, **given})
        self._change_configuration([cluster], message.sender, "limits of the queue")
        self._slots.add(envelope, self._limits())
        self._report_limits()

    def _check_slots(self, wanted: int | None) -> None:
        budget = self.runtime.host.budget
        if wanted is None or budget is None or wanted <= budget.run_slots:
            return
        raise errors.BadRequestError(
            f"{wanted} run slots: the daemon may open {budget.limit} files at one time, which do "
            f"for {budget.run_slots}; raise the hard limit (`ulimit -Hn`, or LimitNOFILE= of the "
            "service) and start it again"
        )

    # ------------------------------------------------------------ filter rules

    def _take_rule(self, envelope: Envelope, message: messages.ReplaceFilter) -> None:
        if message.uuid is None:
            message = msgspec.structs.replace(message, uuid=str(uuid.uuid4()))
        # Refuse a wrong rule now. The watermark comes from the queue.
        rule = rule_changes.build_rule(message, watermark=0, now_nanoseconds=time.time_ns())
        rule_changes.with_rule(self._filters(), rule)
        asked = _Asked(envelope, rule)
        self._asked.append(asked)
        answered = functools.partial(self._change_rules, asked)
        failed = functools.partial(self._forget_rule, asked)
        self.runtime.ask(JOB_QUEUE, messages.ReadLastId(), answered, failed)

    def _take_deletion(self, envelope: Envelope, message: messages.DeleteFilter) -> None:
        if self._asked:
            # After the rules before it, one of which it may delete.
            self._asked.append(_Asked(envelope, message.uuid))
        else:
            self._delete_rule(envelope, message.uuid)

    def _resend(self) -> None:
        """Resend changes that a replaced component has not confirmed."""
        if self._rules.is_awaited:
            self._report_rules()
        if self._slots.is_awaited:
            self._report_limits()

    def _change_rules(self, newest: _Asked, reported: messages.LastId) -> None:
        """Make all waiting changes up to this one, in order."""
        if newest not in self._asked:
            # A later reply came first, and this change was made with it.
            return
        asked = None
        while asked is not newest:
            asked = self._asked.popleft()
            self._change(asked, reported.last_id)
        self._delete_next()

    def _forget_rule(self, asked: _Asked, error: errors.GangerError) -> None:
        """Refuse the change: the queue did not answer in time."""
        if asked in self._asked:
            self._asked.remove(asked)
            asked.envelope.refuse(error)
            self._delete_next()

    def _delete_next(self) -> None:
        """Make the deletions at the head of the line: no rule is before them."""
        while self._asked and isinstance(self._asked[0].change, str):
            self._change(self._asked.popleft(), 0)

    def _change(self, asked: _Asked, last_id: int) -> None:
        try:
            if isinstance(asked.change, str):
                self._delete_rule(asked.envelope, asked.change)
            else:
                self._store_rule(asked.envelope, asked.change, last_id)
        except errors.GangerError as error:
            # The rules have changed since the check. The reply at hand is no request to refuse.
            asked.envelope.refuse(error)

    def _store_rule(self, envelope: Envelope, asked: FilterRule, last_id: int) -> None:
        rule = msgspec.structs.replace(asked, watermark=last_id)
        changed = rule_changes.with_rule(self._filters(), rule)
        stored = Change(Kind.FILTER, rule.uuid, changed[rule.uuid])
        self._change_configuration([stored], _sender(envelope), "filter rule stored")
        self._known[rule.uuid] = rule
        self._announce(envelope, messages.FilterStored(uuid=rule.uuid))

    def _delete_rule(self, envelope: Envelope, unwanted: str) -> None:
        rule_changes.check_known(self._filters(), unwanted)
        gone = Change(Kind.FILTER, rules.parse_uuid(unwanted), None)
        self._change_configuration([gone], _sender(envelope), "filter rule deleted")
        self._known.pop(unwanted, None)
        self._announce(envelope, messages.Done())

    def _list_rules(self, envelope: Envelope, message: messages.ListFilters) -> None:
        for wanted in message.uuids or ():
            rule_changes.check_known(self._filters(), wanted)
        listed = rule_changes.listed(self._known.values(), message.uuids, time.time())
        envelope.reply(messages.FiltersListed(filters=listed))

    def _announce(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Bring the stored rules into force; send ``answer`` when they are."""
        self._rules.add(envelope, answer)
        self._report_rules()

    # ------------------------------------------------------------ objects

    def _read_objects(self, envelope: Envelope, message: messages.ReadObjects) -> None:
        snapshot = self._stored.snapshot
        found = objects.found(snapshot, message.kind, message.names)
        envelope.reply(messages.ObjectsRead(serial_no=snapshot.serial_no, objects=found))

    def _change_objects(
        self,
        envelope: Envelope,
        message: messages.ChangeObjects | messages.SetValues,
        changes: list[Change],
    ) -> None:
        snapshot = self._stored.snapshot
        new = [change for change in changes if not objects.is_made(snapshot, change)]
        if new:
            self._change_configuration(new, message.sender, message.why)
            snapshot = self._stored.snapshot
        changed = messages.ObjectsChanged(
            serial_no=snapshot.serial_no,
            stamps=[objects.stamp(snapshot, change) for change in changes],
        )
        if any(change.kind is Kind.CLUSTER for change in changes):
            self._slots.add(envelope, changed)
            self._report_limits()
        else:
            envelope.reply(changed)

    def _read_history(self, envelope: Envelope, message: messages.ReadHistory) -> None:
        entries = self._stored.history(message.count, message.before)
        lines = [
            msgspec.convert(entry, messages.HistoryLine, from_attributes=True) for entry in entries
        ]
        envelope.reply(messages.HistoryRead(entries=lines))

    # ------------------------------------------------------------ opcodes

    def _run_opcode(self, envelope: Envelope, message: messages.RunOpcode) -> None:
        """Carry the opcode out, unless an earlier request about it was answered."""
        answer = self._answers.find(message)
        if answer is not None:
            envelope.reply(answer)
            return
        before = self._stored.snapshot
        try:
            answer = self._operate(message)
        except (OperationError, errors.BadRequestError) as error:
            answer = opcode_runs.failed(error)
        self._answers.keep(message, answer)
        if self._stored.snapshot.cluster is not before.cluster:
            self._slots.add(envelope, answer)
            self._report_limits()
        else:
            envelope.reply(answer)

    def _operate(self, message: messages.RunOpcode) -> messages.OpcodeRan:
        snapshot = self._stored.snapshot
        outcome = opcode_runs.decided(snapshot, message, self.runtime.wall_clock())
        stored = opcode_runs.stored_form(message, outcome)
        if outcome.changes:
            self._check_slots(opcode_runs.new_run_slots(snapshot, outcome))
            who, why = opcode_runs.entry_of(message)
            self._change_configuration(list(outcome.changes), who, why, stored)
        return messages.OpcodeRan(result=stored.result, log=stored.log)

    # ------------------------------------------------------------ disk

    def _change_configuration(
        self, changes: list[Change], who: str, why: str, answer: OpcodeAnswer | None = None
    ) -> None:
        """Store changes durably, then use them; an error changes nothing."""
        self._stored.change(changes, self.runtime.wall_clock(), who, why, answer)
        if not self._is_whole_due:
            self._write_whole_later()

    def _write_whole(self) -> None:
        if self._is_writing:
            # Two at once could end in the wrong order.
            self._write_whole_later()
            return
        self._is_whole_due = False
        try:
            work = self._stored.prepare_whole()
        except errors.StorageError as error:
            self._note_whole(messages.WholeWritten(error=error.text))
            return
        self._is_writing = True
        self.runtime.aside(functools.partial(_written, work))

    def _note_whole(self, message: messages.WholeWritten) -> None:
        self._is_writing = False
        if message.error is not None:
            error = message.error
            self.log.error("config.data is not written; its journal grows", error=error)
            self._write_whole_later()

    def _write_whole_later(self) -> None:
        self._is_whole_due = True
        self.runtime.later(settings.CONFIG_WHOLE_SECONDS, messages.WholeDue())


def _sender(envelope: Envelope) -> str:
    return getattr(envelope.message, "sender", "")


def _first() -> dict[str, Any]:
    return config_files.first_configuration(str(uuid.uuid4()), time.time())


def _written(work: Callable[[], None]) -> messages.WholeWritten:
    try:
        work()
    except errors.StorageError as error:
        return messages.WholeWritten(error=error.text)
    return messages.WholeWritten()
