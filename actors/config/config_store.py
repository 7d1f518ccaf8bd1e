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
from ...transport import messages
from ..rules import rule_changes
from ..runtime.addresses import FILTER_EVALUATOR, JOB_QUEUE, SCHEDULER
from ..runtime.component import Component

if TYPE_CHECKING:
    from ...storage.rules import FilterRule
    from ...transport.envelopes import Envelope


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
        found = config_files.read(self.places.config)
        if found is None:
            found = config_files.first_configuration(str(uuid.uuid4()), time.time())
            config_files.write(self.places.config, found)
        self._load(found)
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
                assert_never(message)

    def _filters(self) -> dict[str, Any]:
        found: dict[str, Any] = self._configuration.get("filters", {})
        return found

    def _load(self, configuration: dict[str, Any]) -> None:
        """Take over this configuration, and parse its rules."""
        self._configuration = configuration
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
        cluster = self._configuration.get("cluster", {})
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
        cluster = self._configuration.get("cluster", {}) | given
        self._write({**self._configuration, "cluster": cluster})
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
        self._write_rules(rule_changes.with_rule(self._filters(), rule))
        self._known[rule.uuid] = rule
        self._announce(envelope, messages.FilterStored(uuid=rule.uuid))

    def _delete_rule(self, envelope: Envelope, unwanted: str) -> None:
        filters = self._filters()
        rule_changes.check_known(filters, unwanted)
        self._write_rules({key: rule for key, rule in filters.items() if key != unwanted})
        self._known.pop(unwanted, None)
        self._announce(envelope, messages.Done())

    def _list_rules(self, envelope: Envelope, message: messages.ListFilters) -> None:
        for wanted in message.uuids or ():
            rule_changes.check_known(self._filters(), wanted)
        listed = rule_changes.listed(self._known.values(), message.uuids, time.time())
        envelope.reply(messages.FiltersListed(filters=listed))

    def _write_rules(self, filters: dict[str, Any]) -> None:
        self._write({**self._configuration, "filters": filters})

    def _announce(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Bring the stored rules into force; send ``answer`` when they are."""
        self._rules.add(envelope, answer)
        self._report_rules()

    def _write(self, configuration: dict[str, Any]) -> None:
        """Write this configuration durably, then use it; a `StorageError` changes nothing."""
        serial = configuration.get("serial_no", 0)
        changed = {
            **configuration,
            "serial_no": serial + 1 if isinstance(serial, int) else 1,
            "mtime": time.time(),
        }
        try:
            config_files.write(self.places.config, changed)
        except errors.StorageError:
            self._take_back(changed)
            raise
        self._configuration = changed

    def _take_back(self, refused: dict[str, Any]) -> None:
        """Replace a configuration that became visible, though its name could not be flushed."""
        with contextlib.suppress(errors.GangerError):
            if config_files.read(self.places.config) == refused:
                config_files.write(self.places.config, self._configuration)
