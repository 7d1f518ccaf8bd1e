"""LUXI's methods: what each one asks of which component, and what of the replies its caller gets.

Names, arguments and results are those of Ganeti 3.0's LuxiD. A method is a conversation: it yields
what to ask, gets the reply, and returns the result. Pure: it knows no socket and no clock.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...storage import errors, plain_values
from ...storage.queries import job_masks
from ...storage.wording import shortened
from ...transport import messages
from ...transport.ganeti.luxi import Call, UnreadableCallError
from ...transport.ganeti.luxi_words import cannot_convert
from ..runtime.addresses import CONFIG_STORE, JOB_QUEUE
from . import luxi_opcodes
from .luxi_queries import QUERIES
from .luxi_talks import ANSWER_SECONDS, Ask, Fields, JobId, JobIds, LuxiMethod, MethodContext, Talk

WAIT_SECONDS_MAX: Final = 89
"""Longest time that a client may wait for a change of a job."""

CANCEL_SECONDS: Final = 44.0
"""How long a request that cancels a job waits for the job's end, as in LuxiD."""

_CANCELED: Final = "Job successfully cancelled"

_EVERY_ENTRY: Final = 2**62
"""The serial of a log entry that no job reaches: new entries do not matter."""

ARCHIVE_SECONDS_MAX: Final = 170.0
"""Longest time that one request may archive jobs."""

_DEPTH_MAX: Final = 100
"""Deepest nesting of arguments that are no opcodes."""


def begin(call: Call, given: MethodContext) -> tuple[LuxiMethod, Talk]:
    """The method of ``call`` and its conversation. Raises `UnreadableCallError`."""
    method = METHODS.get(call.method)
    if method is None:
        name = msgspec.json.encode(shortened(call.method)).decode()
        raise UnreadableCallError(
            f"Unable to parse LUXI request method: Invalid string value for type LuxiReq: {name}"
        )
    least = len(method.takes) - method.optional
    if not least <= len(call.args) <= len(method.takes):
        expected = f"{least} or {len(method.takes)}" if method.optional else str(least)
        why = f"{call.method}: expected {expected} arguments, got {len(call.args)}"
        raise cannot_convert(call.args, why)
    values = [
        _typed(call, place, argument, kind)
        for place, (argument, kind) in enumerate(zip(call.args, method.takes, strict=False))
    ]
    if not method.takes_opcodes:
        try:
            plain_values.check_plain(values, call.method, depth_max=_DEPTH_MAX)
        except ValueError as error:
            raise UnreadableCallError(str(error)) from error
    return method, method.talk(given, *values)


def _typed(call: Call, place: int, argument: object, kind: Any) -> Any:  # noqa: ANN401
    try:
        return msgspec.convert(argument, kind, strict=kind not in _WITH_DIGITS)
    except msgspec.ValidationError as error:
        why = f"{call.method}: argument {place + 1}: {error}"
        raise cannot_convert(call.args, why) from error


# ---------------------------------------------------------------- types of arguments

_WITH_DIGITS: Final = (JobId, JobIds)
"""Numbers that clients may write as texts of digits."""


# ---------------------------------------------------------------- submitting


def _submitting(method: str, *, ignores_drain: bool) -> LuxiMethod:
    def talk(given: MethodContext, ops: list[Any]) -> Talk:
        spec = messages.JobSpec(ops=luxi_opcodes.checked(method, ops))
        # A key, because the request is repeated when the queue was restarted.
        request = messages.SubmitJobs([spec], key=given.uuid, ignores_drain=ignores_drain)
        reply = yield Ask(JOB_QUEUE, request)
        if reply.rejected:
            raise errors.RejectedError(f"the job is {reply.rejected[0]}")
        return reply.ids[0]

    return LuxiMethod((list[Any],), talk, is_writing=True, takes_opcodes=True)


def _submit_many(given: MethodContext, jobs: list[list[Any]]) -> Talk:
    if not jobs:
        return []
    checked = luxi_opcodes.checked_jobs("SubmitManyJobs", jobs)
    specs = [messages.JobSpec(ops=ops) for ops in checked]
    reply = yield Ask(JOB_QUEUE, messages.SubmitJobs(specs, key=given.uuid))
    ids = iter(reply.ids)
    return [
        [False, f"the job is {reply.rejected[place]}"]
        if place in reply.rejected
        else [True, next(ids)]
        for place in range(len(specs))
    ]


def _pick_up(_given: MethodContext, _job_id: int) -> Talk:
    yield from ()
    raise errors.GangerError("Luxi call 'PickupJob' is for internal use only")


# ---------------------------------------------------------------- jobs


def _wait_for_job_change(
    given: MethodContext,
    job_id: int,
    fields: Fields,
    *known: Any,  # noqa: ANN401 - JSON
) -> Talk:
    before, serial, timeout = known
    seconds = min(max(0, timeout), WAIT_SECONDS_MAX)
    masks = {} if given.may_write else job_masks.PARAMETERS_AND_OUTPUT
    asked, before = job_masks.without_masked(fields, before, masks)
    request = messages.AwaitJobChange(
        job_id,
        asked,
        values=before,
        log_serial=serial,
        seconds=float(seconds),
        ticket=given.connection,
    )
    try:
        reply = yield Ask(JOB_QUEUE, request, seconds + ANSWER_SECONDS)
    except errors.UnknownJobError as error:
        raise errors.UnknownJobError("Can't load job file") from error
    values = reply.values
    if len(asked) < len(fields):
        shown = job_masks.with_nulls(msgspec.json.decode(values), fields, masks)
        values = msgspec.json.encode(shown)
    log = reply.log
    if not given.may_write:
        log = msgspec.json.encode(job_masks.log(msgspec.json.decode(log)))
    return [msgspec.Raw(values), msgspec.Raw(log)]


def _cancel(given: MethodContext, job_id: int, kill: bool = False) -> Talk:  # noqa: FBT001, FBT002
    """Cancel, and tell what has become of it: a script may archive the job next."""
    reply = yield Ask(JOB_QUEUE, messages.CancelJob(id=job_id, kill=kill))
    if kill or reply.has_ended or not reply.accepted:
        return [reply.accepted, reply.text]
    until = given.clock() + CANCEL_SECONDS
    before = None
    while True:
        seconds = max(0.0, until - given.clock())
        request = messages.AwaitJobChange(
            job_id, ["status"], before, _EVERY_ENTRY, seconds, ticket=given.connection
        )
        try:
            now = yield Ask(JOB_QUEUE, request, seconds + ANSWER_SECONDS)
        except errors.UnknownJobError:
            # It is archived already.
            return [True, _CANCELED]
        before = msgspec.json.decode(now.values)
        if before == ["canceled"]:
            return [True, _CANCELED]
        name = f"JOB_STATUS_{str(before[0]).upper()}"
        if now.is_final:
            return [False, f"Job exited before it could have been canceled, status {name}"]
        if given.clock() >= until:
            return [False, f"Job could not be canceled, status {name}"]


def _change_priority(_given: MethodContext, job_id: int, priority: int) -> Talk:
    reply = yield Ask(JOB_QUEUE, messages.ChangeJobPriority(id=job_id, priority=priority))
    if reply.signaled is not None:
        # LuxiD tells the process, and does not hear that nothing is left to change.
        return [True, f"Job {job_id} with pid {reply.signaled} signaled"]
    return [reply.accepted, reply.text]


def _archive(_given: MethodContext, job_id: int) -> Talk:
    try:
        yield Ask(JOB_QUEUE, messages.ArchiveJob(id=job_id))
    except (errors.UnknownJobError, errors.JobStateError):
        return False
    return True


def _auto_archive(given: MethodContext, age: float, timeout: float) -> Talk:
    """Archive until nothing is left or the time is over: one request archives some of them."""
    until = given.clock() + min(timeout, ARCHIVE_SECONDS_MAX)
    archived = 0
    while True:
        reply = yield Ask(JOB_QUEUE, messages.AutoArchiveJobs(age_seconds=age))
        archived += len(reply.archived)
        if not reply.left or not reply.archived or given.clock() >= until:
            return [archived, reply.left]


# ---------------------------------------------------------------- rules and the queue


def _replace_filter(given: MethodContext, uuid: str | None, *rule: Any) -> Talk:  # noqa: ANN401
    priority, predicates, action, reason = rule
    # A new rule is named here: a repetition of the request must not make another one.
    request = messages.ReplaceFilter(
        uuid=given.uuid if uuid is None else uuid,
        priority=priority,
        predicates=predicates,
        action=action,
        reason=reason,
    )
    try:
        reply = yield Ask(CONFIG_STORE, request)
    except errors.FilterRuleError as error:
        if error.text.startswith("uuid:"):
            raise errors.GangerError("Unable to parse UUID") from error
        raise cannot_convert([uuid, *rule], error.text) from error
    return reply.uuid


def _delete_filter(_given: MethodContext, uuid: str) -> Talk:
    try:
        yield Ask(CONFIG_STORE, messages.DeleteFilter(uuid=uuid))
    except (errors.UnknownFilterError, errors.FilterRuleError) as error:
        # No rule has a UUID that is malformed, either.
        text = f"Filter rule with UUID {shortened(uuid)} does not exist"
        raise errors.UnknownFilterError(text) from error
    return None


def _set_drain_flag(_given: MethodContext, is_drained: bool) -> Talk:  # noqa: FBT001
    yield Ask(JOB_QUEUE, messages.SetDrain(is_drained=is_drained))
    return True


def _set_watcher_pause(_given: MethodContext, until: float | None) -> Talk:
    yield Ask(CONFIG_STORE, messages.SetWatcherPause(until))
    return until


METHODS: Final[dict[str, LuxiMethod]] = {
    "SubmitJob": _submitting("SubmitJob", ignores_drain=False),
    "SubmitJobToDrainedQueue": _submitting("SubmitJobToDrainedQueue", ignores_drain=True),
    "SubmitManyJobs": LuxiMethod(
        (list[list[Any]],), _submit_many, is_writing=True, takes_opcodes=True
    ),
    "PickupJob": LuxiMethod((JobId,), _pick_up),
    "WaitForJobChange": LuxiMethod((JobId, Fields, Any, int | None, int), _wait_for_job_change),
    "CancelJob": LuxiMethod((JobId, bool), _cancel, is_writing=True, optional=1),
    "ArchiveJob": LuxiMethod((JobId,), _archive, is_writing=True),
    "AutoArchiveJobs": LuxiMethod((float, float), _auto_archive, is_writing=True),
    "ChangeJobPriority": LuxiMethod((JobId, int), _change_priority, is_writing=True),
    "SetDrainFlag": LuxiMethod((bool,), _set_drain_flag, is_writing=True),
    "SetWatcherPause": LuxiMethod((int | float | None,), _set_watcher_pause, is_writing=True),
    "ReplaceFilter": LuxiMethod(
        (str | None, int, list[Any], Any, list[Any]), _replace_filter, is_writing=True
    ),
    "DeleteFilter": LuxiMethod((str,), _delete_filter, is_writing=True),
    **QUERIES,
}
"""Each method by its name on the wire."""
