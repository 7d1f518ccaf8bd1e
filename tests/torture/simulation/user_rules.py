"""Filter rules of the simulated world: the user who changes them, and what each then forbids.

What a rule means is said here anew, in the plainest words, and compared with what happens. A rule
counts from its acknowledgement until the user asks for a change of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ganger.storage import errors
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages

if TYPE_CHECKING:
    from tests.torture.simulation.user import User

UUID = "00000000-0000-4000-8000-000000000001"
SHARE_OF_PRIORITIES = 0.3
"""Of the rules that pause, those that look at priorities."""

BEGUN = frozenset({JobStatus.RUNNING, JobStatus.SUCCESS, JobStatus.ERROR})


class Rule:
    """A rule for the jobs up to ``last``, as the user stores it; None: for all, whatever their ids.

    With ``below`` it is only for those with an opcode of a priority below that. What it forbids is
    judged when the world is at rest, since until then a user may change that priority.
    """

    def __init__(
        self, action: str, last: int | None, limit: int = 0, below: int | None = None
    ) -> None:
        self.below = below
        self.action = action
        self.looks_at_ids = last is not None
        self.last = math.inf if last is None else last
        self.limit = limit

    def request(self) -> messages.ReplaceFilter:
        """What stores it."""
        action: Any = [self.action, self.limit] if self.limit else self.action
        predicates: list[Any] = [["opcode", ["=", "OP_ID", "OP_EXEC"]]]
        if self.looks_at_ids:
            predicates = [["jobid", ["<=", "id", self.last]]]
        if self.below is not None:
            predicates.append(["opcode", ["<", "priority", self.below]])
        return messages.ReplaceFilter(uuid=UUID, predicates=predicates, action=action)


class RuleBook:
    """Which rule was acknowledged, and which opcodes had begun by then."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        self._begun: set[tuple[int, int]] = set()

    def asked(self) -> None:
        """A change was asked for: until it is acknowledged the old rule may hold, or the new."""
        self.rule = None

    def acknowledged(self, rule: Rule | None, begun: set[tuple[int, int]]) -> None:
        """From now on nothing goes by older rules; these opcodes had begun."""
        self.rule = rule
        self._begun = begun

    def forbids(self, job_id: int, index: int, running: list[int]) -> str | None:
        """Why this opcode may not start now; ``running``: jobs that are in an operation."""
        rule = self.rule
        if rule is None or job_id > rule.last or (job_id, index) in self._begun:
            return None
        if rule.below is not None:
            return None
        if rule.action == "PAUSE":
            return f"a rule that pauses jobs up to {rule.last} is in force"
        if self.has_begun(job_id):
            return None
        if rule.action == "REJECT":
            return f"a rule that rejects jobs up to {rule.last} is in force"
        others = [other for other in running if other != job_id and other <= rule.last]
        if rule.action == "RATE_LIMIT" and len(others) >= rule.limit:
            return f"a rule lets {rule.limit} jobs up to {rule.last} run, and {others} do"
        return None

    def has_begun(self, job_id: int) -> bool:
        """Whether the job had executed something when the rule was acknowledged."""
        return any(begun == job_id for begun, _ in self._begun)

    def must_not_wait(self, job_id: int) -> bool:
        """Whether the rule sends a job back, or cancels it, that only waits for locks."""
        rule = self.rule
        if rule is None or job_id > rule.last or rule.below is not None:
            return False
        return rule.action == "PAUSE" or (rule.action == "REJECT" and not self.has_begun(job_id))


class RuleChanger:
    """Stores rules and deletes them, one change at a time."""

    def __init__(self, user: User, book: RuleBook) -> None:
        self._user = user
        self._book = book
        self._is_changing = False
        self._wants_none = False

    def change(self) -> None:
        """Another rule, or none."""
        dice = self._user.core.dice
        known = self._user.acknowledged
        if self._is_changing or self._wants_none or not known:
            return
        # Never for jobs to come: those that were answered with an id are there.
        last: int | None = dice.choice((min(known), max(known), max(known)))
        action = dice.choice(("PAUSE", "PAUSE", "REJECT", "RATE_LIMIT", "none"))
        if self._user.core.character.has_alike_jobs and action != "REJECT" and dice.random() < 0.7:
            # It would reject jobs to come; others it holds until the rule goes.
            last = None
        match action:
            case "none":
                self._ask(None)
            case "RATE_LIMIT":
                self._ask(Rule("RATE_LIMIT", last, dice.randint(1, 2)))
            case "PAUSE" if dice.random() < SHARE_OF_PRIORITIES:
                self._ask(Rule("PAUSE", last, below=dice.choice((-10, 0, 10))))
            case _:
                self._ask(Rule(action, last))

    def clear(self) -> None:
        """Delete what is stored, now or when the change that is under way is done."""
        self._wants_none = True
        if not self._is_changing:
            self._ask(None)

    def is_gone(self, message: messages.Message, error: Exception) -> bool:
        """Whether a deletion was refused because the rule is not there (any more)."""
        is_deletion = isinstance(message, messages.DeleteFilter)
        return is_deletion and isinstance(error, errors.UnknownFilterError)

    def _ask(self, rule: Rule | None) -> None:
        self._is_changing = True
        self._book.asked()
        request = messages.DeleteFilter(uuid=UUID) if rule is None else rule.request()

        def done(_: object) -> None:
            self._is_changing = False
            self._book.acknowledged(rule, self._user.core.oracle.begun())
            if self._wants_none and rule is not None:
                self._ask(None)

        self._user.ask(request, done)
