"""The filter rules of the configuration: stored, deleted, listed, brought into force.

Rules change in the order of the requests. A client may have sent a request twice, and goes on
after one reply: the second copy must not undo the client's next request.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors
from ...storage.cluster.configuration import Change, Configuration
from ...storage.cluster.objects import ObjectKind
from ...storage.filters import rules
from ...transport import messages
from ..rules import rule_requests
from ..runtime.addresses import FILTER_EVALUATOR, JOB_QUEUE
from .change_keys import keyed
from .change_line import ChangeLine, Made, Make
from .pending_acks import PendingAcks
from .stored_configuration import Edit, StoredConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.filters.rules import FilterRule
    from ...transport.envelopes import Envelope
    from ..runtime.component import Runtime


RuleMessage = (
    messages.ReplaceFilter | messages.DeleteFilter | messages.ListFilters | messages.RulesApplied
)


class _Asked(msgspec.Struct, frozen=True, eq=False):
    """A change of the rules that waits for its turn: a rule to store, or a UUID to delete.

    A new rule waits for the watermark from the queue, a deletion for the rules before it.
    """

    envelope: Envelope
    change: FilterRule | str
    message: messages.ReplaceFilter | messages.DeleteFilter


class FilterRules:
    """The part of the configuration store that owns the filter rules."""

    def __init__(
        self, runtime: Runtime, configuration: StoredConfiguration, changes: ChangeLine
    ) -> None:
        """Parse the stored rules."""
        self._runtime = runtime
        self._configuration = configuration
        self._changes = changes
        # Serials start at the clock, so late confirmations to our predecessor match none.
        self._in_force = PendingAcks(time.monotonic_ns())
        self._asked: deque[_Asked] = deque()
        self.load()

    def load(self) -> None:
        """Parse the stored rules."""
        self.known, problems = rules.parse_rules(_filters(self._configuration.snapshot))
        for problem in problems:
            self._runtime.log.error("filter rule is left out", error=problem.text)

    def report(self) -> None:
        """Tell the filter evaluator all rules."""
        changed = messages.RulesChanged(list(self.known.values()), serial=self._in_force.serial)
        self._runtime.tell(FILTER_EVALUATOR, changed)

    def load_and_report(self, envelope: Envelope, answer: messages.Reply) -> None:
        """A client has written other rules: send ``answer`` when they are in force."""
        self.load()
        self._announce(envelope, answer)

    def report_again(self) -> None:
        """A replaced component may not have confirmed the last change."""
        if self._in_force.is_awaited:
            self.report()

    def take(self, envelope: Envelope, message: RuleMessage) -> None:
        """Handle one message."""
        match message:
            case messages.ReplaceFilter():
                self._take_rule(envelope, message)
            case messages.DeleteFilter():
                self._take_deletion(envelope, message)
            case messages.ListFilters():
                self._list(envelope, message)
            case messages.RulesApplied():
                self._in_force.in_force(message.serial)

    def _list(self, envelope: Envelope, message: messages.ListFilters) -> None:
        stored = _filters(self._configuration.snapshot)
        uuids = None
        if message.uuids is not None:
            uuids = [rule_requests.uuid_of(stored, wanted) for wanted in message.uuids]
        listed = rule_requests.listed(self.known.values(), uuids, self._runtime.wall_clock())
        envelope.reply(messages.FiltersListed(filters=listed))

    # ------------------------------------------------------------ requests

    def _take_rule(self, envelope: Envelope, message: messages.ReplaceFilter) -> None:
        # Refuse a wrong rule now. The watermark comes from the queue.
        asked_for, stored = message, _filters(self._configuration.snapshot)
        message = rule_requests.addressed(message, rule_requests.stored_names(stored))
        if message.uuid is None:
            message = msgspec.structs.replace(message, uuid=str(uuid.uuid4()))
        rule = rule_requests.build_rule(message, watermark=0, now_nanoseconds=time.time_ns())
        rule_requests.with_rule(stored, rule)
        asked = _Asked(envelope, rule, asked_for)
        self._asked.append(asked)
        answered = functools.partial(self._change_rules, asked)
        failed = functools.partial(self._forget_rule, asked)
        self._runtime.ask(JOB_QUEUE, messages.ReadLastId(), answered, failed)

    def _take_deletion(self, envelope: Envelope, message: messages.DeleteFilter) -> None:
        # After the rules before it, one of which it may delete.
        asked = _Asked(envelope, message.uuid, message)
        if self._asked:
            self._asked.append(asked)
        else:
            self._change(asked, 0)

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
        if isinstance(asked.change, str):
            self._delete(asked, asked.change)
        else:
            self._store(asked, msgspec.structs.replace(asked.change, watermark=last_id))

    # ------------------------------------------------------------ changes

    def _store(self, asked: _Asked, rule: FilterRule) -> None:
        who, stored_as = asked.message.sender, messages.FilterStored(uuid=rule.uuid)

        def make(snapshot: Configuration) -> Made:
            # The rules have changed since the first check. A repetition under a key meets its own
            # rule, so that names are looked at here alone.
            rule_requests.check_name_is_free(_filters(snapshot), rule)
            changed = rule_requests.with_rule(_filters(snapshot), rule)
            stored = Change(ObjectKind.FILTER, rule.uuid, changed[rule.uuid])
            return Made(Edit([stored], who, "filter rule stored"), done)

        def done(_: Configuration) -> None:
            self.known[rule.uuid] = rule
            self._announce(asked.envelope, stored_as)

        self._add(asked, make, stored_as)

    def _delete(self, asked: _Asked, unwanted: str) -> None:
        who = asked.message.sender

        def make(snapshot: Configuration) -> Made:
            found = rule_requests.uuid_of(_filters(snapshot), unwanted)
            gone = Change(ObjectKind.FILTER, found, None)
            return Made(Edit([gone], who, "filter rule deleted"), functools.partial(done, found))

        def done(found: str, _: Configuration) -> None:
            self.known.pop(found, None)
            self._announce(asked.envelope, messages.Done())

        self._add(asked, make, messages.Done())

    def _add(self, asked: _Asked, make: Make, reply: messages.Reply) -> None:
        """Make the change when the lock is free, once for each key."""
        repeated = functools.partial(self._announce, asked.envelope)
        try:
            once = keyed(self._configuration, asked.message, make, lambda _: reply, repeated)
        except errors.GangerError as error:
            # Others may wait in the same line: the refusal is for this one.
            asked.envelope.refuse(error)
        else:
            self._changes.add(asked.envelope, once)

    def _announce(self, envelope: Envelope, answer: messages.Reply) -> None:
        """Bring the stored rules into force; send ``answer`` when they are."""
        self._in_force.add(envelope, answer)
        self.report()


def _filters(snapshot: Configuration) -> Mapping[str, Any]:
    found: Mapping[str, Any] = snapshot.document.get("filters", {})
    return found
