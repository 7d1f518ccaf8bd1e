"""Carries out the opcodes that need nothing but the configuration, each once.

A job repeats its request when a component, the daemon or its link was replaced. The answer of an
opcode that changes something is stored with the change, in the journal and the history: so even a
successor of the daemon finds it. All other answers are kept while the store lives: they changed
nothing, so a successor may decide again.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, opcodes, settings
from ...storage.alive import lock_files
from ...storage.cluster.objects import ObjectKind
from ...storage.ganeti.operations import deciding
from ...storage.ganeti.operations.base import Circumstances, RefusedError
from ...storage.ganeti.operations.table import OPERATIONS
from ...storage.locks.locks import CONFIG_LOCK
from ...storage.log.records import OpcodeAnswer
from ...storage.opcodes import LockNeeds, OperationError
from ...transport.envelopes import Envelope
from ...transport.messages import (
    OpcodeRan,
    OpcodeWait,
    PrepareOpcode,
    ReadHolders,
    ReadOpcodeWait,
    RunOpcode,
)
from ..config.change_line import Made
from ..config.opcode_locks import prepared, problem_of
from ..config.stored_configuration import Edit, StoredConfiguration
from ..runtime.addresses import LOCK_MANAGER
from . import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.cluster.configuration import Configuration
    from ...storage.ganeti.operations.base import Outcome
    from ...transport.messages import LockHolders
    from ..config.installed_parts import PartContext


OPCODE_ANSWER_BYTES_MAX = settings.FRAME_BYTES_MAX // 4
"""Largest result, with its log, of an opcode that the configuration store carries out."""

OPCODE_ANSWERS_MAX = 1_000
"""Answers to such opcodes that the store keeps in memory, one for each job, the newest."""


def decided(
    snapshot: Configuration,
    message: RunOpcode,
    *,
    now: float,
    known: Callable[[], Mapping[str, Any]],
) -> Outcome:
    """What the opcode does. Raises `OperationError` or `BadRequestError`: it changes nothing.

    ``known`` gives what the configuration does not hold of the cluster.
    """
    opcode = opcodes.parse(message.opcode)
    held = LockNeeds.of(message.locks)
    needs_known = OPERATIONS[opcode.op_id].needs_known
    given = Circumstances(message.new_uuid, now, held, known() if needs_known else {})
    outcome = deciding.decided(opcode, snapshot, given)
    size = len(msgspec.json.encode([outcome.result, outcome.log]))
    if size > OPCODE_ANSWER_BYTES_MAX:
        text = (
            f"{opcode.op_id}: the result has {size} bytes as JSON, "
            f"expected at most {OPCODE_ANSWER_BYTES_MAX}"
        )
        raise OperationError("OpResultError", text)
    return outcome


def failed(error: OperationError | errors.BadRequestError) -> OpcodeRan:
    """The answer to an opcode that failed so."""
    log = list(error.log) if isinstance(error, RefusedError) else []
    return OpcodeRan(log=log, error=problem_of(error))


def new_run_slots(snapshot: Configuration, outcome: Outcome) -> int | None:
    """The number of run slots that the opcode sets; None if it leaves them as they are."""
    for change in outcome.changes:
        if change.kind is ObjectKind.CLUSTER and change.object is not None:
            slots: int | None = change.object.get("max_running_jobs")
            return None if slots == snapshot.cluster.get("max_running_jobs") else slots
    return None


def entry_of(message: RunOpcode) -> tuple[str, str]:
    """Who changes the configuration, and why, as the history says it."""
    return f"job {message.job_id}", opcodes.summary(message.opcode)


def stored_form(message: RunOpcode, outcome: Outcome) -> OpcodeAnswer:
    """The answer as it is stored with the change."""
    return OpcodeAnswer(message.job_id, message.op_index, outcome.result, list(outcome.log))


OpcodeMessage = PrepareOpcode | RunOpcode | ReadOpcodeWait | notices.OpcodeDecided
"""What comes to this part of the store."""


class Answers:
    """The answers to the newest opcode of each job, of a store that began at this serial number."""

    def __init__(self, stored: StoredConfiguration) -> None:
        self._stored = stored
        self._complete_since = stored.snapshot.serial_no
        self._newest: dict[int, tuple[int, OpcodeRan]] = {}

    def find(self, message: RunOpcode) -> OpcodeRan | None:
        """The answer that the request has had already. Raises `StorageError`."""
        index, answer = self._newest.get(message.job_id, (-1, None))
        if index == message.op_index:
            return answer
        if message.since >= self._complete_since:
            return None
        found = self._stored.find_answer(message.job_id, message.op_index, message.since)
        return None if found is None else OpcodeRan(result=found.result, log=found.log)

    def keep(self, key: tuple[int, int], answer: OpcodeRan) -> None:
        """Keep the answer to this opcode: job and index; the oldest ones go."""
        job_id, op_index = key
        self._newest.pop(job_id, None)
        self._newest[job_id] = (op_index, answer)
        if len(self._newest) > OPCODE_ANSWERS_MAX:
            self._newest.pop(next(iter(self._newest)))
            # What is not in memory any more is found in the history.
            self._complete_since = self._stored.snapshot.serial_no


class OpcodeRuns:
    """The part of the configuration store that carries out opcodes."""

    def __init__(self, context: PartContext, known: Callable[[], Mapping[str, Any]]) -> None:
        """``known`` gives what the configuration does not hold of the cluster."""
        self._runtime, self._configuration, self._changes, self._store = context
        self._known = known
        self._answers = Answers(self._configuration)
        self._in_line: dict[tuple[int, int], _Repeats] = {}

    def take(self, envelope: Envelope, message: OpcodeMessage) -> None:
        """Handle one message."""
        if isinstance(message, notices.OpcodeDecided):
            self._note_decided(message)
        elif isinstance(message, ReadOpcodeWait):
            self._tell_wait(envelope, message.job_id)
        elif isinstance(message, PrepareOpcode):
            given = Circumstances(message.new_uuid, self._runtime.wall_clock())
            snapshot = self._configuration.snapshot
            locks_of = functools.partial(deciding.locks_of, snapshot=snapshot, given=given)
            envelope.reply(prepared(snapshot, message, locks_of))
        elif (answer := self._answers.find(message)) is not None:
            envelope.reply(answer)
        elif (waiting := self._in_line.get(_key(message))) is not None:
            waiting.envelopes.append(envelope)
        else:
            self._run(envelope, message)

    def _note_decided(self, message: notices.OpcodeDecided) -> None:
        """A thread has decided an opcode; a job that asked our predecessor asks again."""
        repeats = self._in_line.get((message.job_id, message.op_index))
        if repeats is not None:
            self._answers.keep((message.job_id, message.op_index), message.answer)
            repeats.tell(Envelope(message.answer))

    def _tell_wait(self, envelope: Envelope, job_id: int) -> None:
        """Say whether the job's opcode waits for the configuration lock, and who holds it."""
        ours = (repeats for (job, _), repeats in self._in_line.items() if job == job_id)
        if not (self._changes.is_blocked and any(one.waits_for_lock for one in ours)):
            envelope.reply(OpcodeWait())
            return

        def answer(found: LockHolders) -> None:
            envelope.reply(OpcodeWait(is_waiting=True, owners=found.owners, text=found.text))

        holders = ReadHolders(CONFIG_LOCK)
        self._runtime.ask(LOCK_MANAGER, holders, answer, envelope.refuse, envelope.deadline)

    def _run(self, envelope: Envelope, message: RunOpcode) -> None:
        """Carry the opcode out: at once if it changes nothing, else when the lock is free."""
        operation = OPERATIONS.get(str(message.opcode.get("OP_ID")))
        if operation is not None and operation.is_long:
            self._in_line[_key(message)] = _Repeats(self._in_line, _key(message), envelope)
            decide = functools.partial(self._decided, self._configuration.snapshot, message)
            self._runtime.in_thread(functools.partial(_decided_in_thread, message, decide))
            return
        try:
            outcome = self._decided(self._configuration.snapshot, message)
        except (OperationError, errors.BadRequestError) as error:
            self._answer(envelope, message, failed(error))
            return
        if operation is not None and operation.writes_files and not message.opcode.get("dry_run"):
            # A repetition does it again, which does no harm.
            self._store.write_files(envelope, _answer_of(message, outcome))
            return
        if not outcome.changes:
            self._answer(envelope, message, _answer_of(message, outcome))
            return
        repeats = self._in_line[_key(message)] = _Repeats(self._in_line, _key(message), envelope)
        repeats.waits_for_lock = True
        waiting = msgspec.structs.replace(envelope, reply_to=repeats)
        self._changes.add(waiting, lambda snapshot: self._made(snapshot, waiting, message))

    def _made(self, snapshot: Configuration, envelope: Envelope, message: RunOpcode) -> Made:
        def fail(error: OperationError | errors.BadRequestError) -> None:
            self._answer(envelope, message, failed(error))

        if lock_files.is_dead(message.lock_file):
            # It waited for the lock meanwhile. No client hears of this error.
            text = f"the process of job {message.job_id} has ended; its opcode changes nothing"
            raise errors.NotAllowedError(text)
        who, why = entry_of(message)
        try:
            outcome = self._decided(snapshot, message)
        except (OperationError, errors.BadRequestError) as error:
            problem = error
            return Made(Edit((), who, why), lambda _: fail(problem))

        def done(_: Configuration) -> None:
            answer = _answer_of(message, outcome)
            self._answers.keep(_key(message), answer)
            self._store.answer_in_force(envelope, answer, outcome.changes)

        edit = Edit(outcome.changes, who, why, stored_form(message, outcome))
        return Made(edit, done, fail)

    def _decided(self, snapshot: Configuration, message: RunOpcode) -> Outcome:
        now = self._runtime.wall_clock()
        outcome = decided(snapshot, message, now=now, known=self._known)
        if outcome.changes:
            self._store.check_slots(new_run_slots(snapshot, outcome))
        return outcome

    def _answer(self, envelope: Envelope, message: RunOpcode, answer: OpcodeRan) -> None:
        self._answers.keep(_key(message), answer)
        envelope.reply(answer)


def _decided_in_thread(message: RunOpcode, decide: Callable[[], Outcome]) -> notices.OpcodeDecided:
    """The answer to an opcode that changes nothing; runs in a thread of its own."""
    try:
        outcome = decide()
        assert not outcome.changes, "a long operation changes nothing"
        answer = _answer_of(message, outcome)
    except (OperationError, errors.BadRequestError) as error:
        answer = failed(error)
    except Exception as error:  # noqa: BLE001 - the job waits for an answer
        answer = OpcodeRan(error=("OpExecError", [f"{type(error).__name__}: {error}"]))
    return notices.OpcodeDecided(job_id=message.job_id, op_index=message.op_index, answer=answer)


class _Repeats:
    """The reply address of an opcode that waits for the lock: all who have asked for it."""

    def __init__(
        self,
        waiting: dict[tuple[int, int], _Repeats],
        key: tuple[int, int],
        envelope: Envelope,
    ) -> None:
        self.envelopes = [envelope]
        self.waits_for_lock = False
        """Whether it is a change: a question waits for no lock."""
        self._waiting = waiting
        self._key = key

    def tell(self, envelope: Envelope) -> None:
        """Answer all; later ones begin anew."""
        self._waiting.pop(self._key, None)
        for one in self.envelopes:
            one.reply(envelope.message)


def _key(message: RunOpcode) -> tuple[int, int]:
    return message.job_id, message.op_index


def _answer_of(message: RunOpcode, outcome: Outcome) -> OpcodeRan:
    stored = stored_form(message, outcome)
    return OpcodeRan(result=stored.result, log=stored.log)
