"""LUXI's methods: what each one asks of which component, and what of the replies its caller gets.

Names, arguments and results are those of Ganeti 3.0's LuxiD. A method is a conversation: it yields
what to ask, gets the reply, and returns the result. Pure: it knows no socket and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ...storage import errors, plain_values
from ...storage.wording import shortened
from ...transport import messages
from ...transport.client.query_requests import Query, next_query
from ...transport.luxi import Call, UnreadableCallError
from ...transport.luxi_words import (
    IN_JOBS_ONLY,
    RESOURCES,
    cannot_convert,
    not_supported,
    unknown_resource,
)
from ...transport.messages import Request
from ..runtime.addresses import CONFIG_STORE, JOB_QUEUE, LOCK_MANAGER
from ..runtime.directory import Address
from . import luxi_opcodes
from .luxi_masks import OPCODES, check_filter, masked_rows, with_nulls, without_opcodes

ANSWER_SECONDS: Final = 170.0
"""How long a component may take: Ganeti's clients wait for 180 s."""

WAIT_SECONDS_MAX: Final = 89
"""Longest time that a client may wait for a change of a job."""

CANCEL_SECONDS: Final = 44.0
"""How long a request that cancels a job waits for the job's end, as in LuxiD."""

_CANCELED: Final = "Job successfully cancelled"

_EVERY_ENTRY: Final = 2**62
"""The serial of a log entry that no job reaches: new entries do not matter."""

REPLY_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest answer to a query."""

IDS_PER_QUERY: Final = 500
"""Most ids of jobs in one question to the queue: more make several questions."""

ARCHIVE_SECONDS_MAX: Final = 170.0
"""Longest time that one request may archive jobs."""


class Ask(NamedTuple):
    """What a method wants to know next. ``seconds``: how long the reply may take."""

    to: Address[Any]
    request: Request[Any]
    seconds: float = ANSWER_SECONDS


class Surroundings(NamedTuple):
    """What a method needs of outside: a new ``uuid`` for what is made, and monotonic seconds.

    ``connection``: the number of the caller's connection, on which no two methods are under way.
    """

    connection: int
    uuid: str
    clock: Callable[[], float]
    may_write: bool = True
    """Whether the caller may do and see everything, or only read what all may know."""


_DEPTH_MAX: Final = 100
"""Deepest nesting of arguments that are no opcodes."""

Talk = Generator[Ask, Any, object]
"""A method under way. It returns its result; `msgspec.Raw` is JSON already."""


class Method(NamedTuple):
    """``takes``: the types of the arguments, of which the last ``optional`` may be missing."""

    takes: tuple[Any, ...]
    talk: Callable[..., Talk]
    is_writing: bool = False
    optional: int = 0
    takes_opcodes: bool = False
    """Opcodes have checks of their own."""


def begin(call: Call, given: Surroundings) -> tuple[Method, Talk]:
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

JobId = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
"""A job id."""

_JobIds = list[JobId] | None

_WITH_DIGITS: Final = (JobId, _JobIds)
"""Numbers that clients may write as texts of digits."""

_Fields = list[str]


# ---------------------------------------------------------------- submitting


def _submitting(method: str, *, ignores_drain: bool) -> Method:
    def talk(given: Surroundings, ops: list[Any]) -> Talk:
        spec = messages.JobSpec(ops=luxi_opcodes.checked(method, ops))
        # A key, because the request is repeated when the queue was restarted.
        request = messages.SubmitJobs([spec], key=given.uuid, ignores_drain=ignores_drain)
        reply = yield Ask(JOB_QUEUE, request)
        if reply.rejected:
            raise errors.RejectedError(f"the job is {reply.rejected[0]}")
        return reply.ids[0]

    return Method((list[Any],), talk, is_writing=True, takes_opcodes=True)


def _submit_many(given: Surroundings, jobs: list[list[Any]]) -> Talk:
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


def _pick_up(_given: Surroundings, _job_id: int) -> Talk:
    yield from ()
    raise errors.GangerError("Luxi call 'PickupJob' is for internal use only")


# ---------------------------------------------------------------- queries


def _pages(
    request: Query, to: Address[Any], *, hides: bool = False
) -> Generator[Ask, Any, tuple[list[dict[str, str]], msgspec.Raw]]:
    """The fields and the rows of the whole answer, which comes in pages.

    ``hides``: without what those who may only read must not see.
    """
    if hides:
        check_filter(request.filter)
    asked: Query | None = request
    parts: list[bytes] = []
    fields: list[dict[str, str]] = []
    size = 0
    while asked is not None:
        reply: messages.QueryAnswered = yield Ask(to, asked)
        fields, rows = reply.fields, reply.rows
        if hides and isinstance(asked, messages.QueryJobs):
            rows = masked_rows(rows, asked.fields, is_classic=asked.is_classic)
        if len(rows) > len(b"[]"):
            parts.append(rows[1:-1])
            size += len(rows)
        _check_reply(size)
        asked = next_query(asked, reply)
    return fields, msgspec.Raw(b"[%b]" % b",".join(parts))


def _check_reply(size: int) -> None:
    if size > REPLY_BYTES_MAX:
        raise errors.BadRequestError(
            f"the answer has more than {REPLY_BYTES_MAX} bytes; ask for fewer fields"
        )


def _query(given: Surroundings, what: str, fields: _Fields, raw_filter: Any) -> Talk:  # noqa: ANN401
    _check_resource("Query", what, [what, fields, raw_filter])
    try:
        answer = yield from _pages(*_request(what, fields, raw_filter), hides=not given.may_write)
    except errors.FilterRuleError as error:
        raise cannot_convert([what, fields, raw_filter], error.text) from error
    return {"fields": answer[0], "data": answer[1]}


def _request(
    what: str, fields: _Fields, raw_filter: object, *, is_classic: bool = False
) -> tuple[Query, Address[Any]]:
    match what:
        case "job":
            return messages.QueryJobs(fields, raw_filter, is_classic=is_classic), JOB_QUEUE
        case "lock":
            return messages.QueryLocks(fields, raw_filter), LOCK_MANAGER
    asked = messages.QueryConfiguration(what, fields, raw_filter, is_classic=is_classic)
    return asked, CONFIG_STORE


def _query_fields(_given: Surroundings, what: str, fields: _Fields | None) -> Talk:
    _check_resource("QueryFields", what, [what, fields])
    reply = yield Ask(CONFIG_STORE, messages.QueryFields(what, fields))
    return {"fields": reply.fields}


def _check_resource(method: str, what: str, args: list[Any]) -> None:
    """Raise if the daemon does not answer for this: a job may, or nobody."""
    if what in IN_JOBS_ONLY:
        raise errors.GangerError(not_supported(method, what))
    if what not in RESOURCES:
        raise cannot_convert(args, unknown_resource(what))


def _classic(
    given: Surroundings,
    what: str,
    fields: _Fields,
    names: Sequence[str | int] | None,
    name_field: str = "name",
) -> Talk:
    """Rows of bare values: of the items that have these names, or of all."""
    wanted = None
    if names:
        wanted = ["|", *(["==", name_field, name] for name in names)]
    request = _request(what, fields, wanted, is_classic=True)
    _, rows = yield from _pages(*request, hides=not given.may_write)
    return rows


def _query_jobs(given: Surroundings, ids: _JobIds, fields: _Fields) -> Talk:
    wanted = list(dict.fromkeys(ids or ()))
    parts: list[bytes] = []
    for start in range(0, max(1, len(wanted)), IDS_PER_QUERY):
        some = wanted[start : start + IDS_PER_QUERY]
        rows = yield from _classic(given, "job", fields, some, "id")
        assert isinstance(rows, msgspec.Raw)
        parts.append(bytes(rows)[1:-1])
        _check_reply(sum(map(len, parts)))
    return msgspec.Raw(b"[%b]" % b",".join(filter(None, parts)))


def _query_filters(given: Surroundings, uuids: list[str] | None, fields: _Fields) -> Talk:
    return (yield from _classic(given, "filter", fields, uuids, "uuid"))


def _query_exports(given: Surroundings, nodes: list[str], use_locking: bool) -> Talk:  # noqa: FBT001
    _refuse_locking(use_locking)
    return (yield from _classic(given, "export", ["node", "export"], nodes, "node"))


def _listing(what: str) -> Method:
    def talk(given: Surroundings, names: list[str], fields: _Fields, use_locking: bool) -> Talk:  # noqa: FBT001
        _refuse_locking(use_locking)
        return (yield from _classic(given, what, fields, names))

    return Method((list[str], _Fields, bool), talk)


def _refuse_locking(use_locking: bool) -> None:  # noqa: FBT001
    if use_locking:
        raise errors.BadRequestError("Sync queries are not allowed")


def _query_cluster_info(_given: Surroundings) -> Talk:
    return (yield Ask(CONFIG_STORE, messages.DescribeCluster())).info


_OF_CLUSTER: Final = {
    "cluster_name": "cluster_name",
    "watcher_pause": "watcher_pause",
    "master_node": "master_node",
    "drain_flag": "drain_flag",
}
"""The values of `QueryConfigValues` that are fields of a query."""

_OF_INFO: Final = ("modify_ssh_setup", "ssh_key_type", "ssh_key_bits")
"""Those that describe the cluster."""


def _query_config_values(_given: Surroundings, names: list[str]) -> Talk:
    known: dict[str, Any] = {}
    fields = list(_OF_CLUSTER.values())
    if any(name in _OF_CLUSTER for name in names):
        _, data = yield from _pages(*_request("cluster", fields, None))
        [row] = msgspec.json.decode(data)
        known |= {name: value for name, (_status, value) in zip(_OF_CLUSTER, row, strict=True)}
    if any(name in _OF_INFO for name in names):
        info = (yield Ask(CONFIG_STORE, messages.DescribeCluster())).info
        known |= {name: info.get(name) for name in _OF_INFO}
    return [known.get(name) for name in names]


_TAGGED: Final = {
    "nodegroup": "group",
    "node": "node",
    "instance": "instance",
    "network": "network",
}


def _query_tags(_given: Surroundings, kind: str, name: str | None) -> Talk:
    if kind == "cluster":
        return (yield Ask(CONFIG_STORE, messages.DescribeCluster())).info["tags"]
    if kind not in _TAGGED:
        raise cannot_convert([kind, name], f"Invalid string value for type TagKind: {kind!r}")
    what = _TAGGED[kind]
    _, data = yield from _pages(*_request(what, ["tags"], ["==", "name", name or ""]))
    [[[_status, tags]]] = msgspec.json.decode(data)
    return tags


# ---------------------------------------------------------------- jobs


def _wait_for_job_change(
    given: Surroundings,
    job_id: int,
    fields: _Fields,
    *known: Any,  # noqa: ANN401 - JSON
) -> Talk:
    before, serial, timeout = known
    seconds = min(max(0, timeout), WAIT_SECONDS_MAX)
    asked = fields
    if not given.may_write and OPCODES in fields:
        asked, before = without_opcodes(fields, before)
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
    if asked is not fields:
        values = with_nulls(values, fields)
    return [msgspec.Raw(values), msgspec.Raw(reply.log)]


def _cancel(given: Surroundings, job_id: int, kill: bool = False) -> Talk:  # noqa: FBT001, FBT002
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
            # Somebody has archived it already.
            return [True, _CANCELED]
        before = msgspec.json.decode(now.values)
        if before == ["canceled"]:
            return [True, _CANCELED]
        name = f"JOB_STATUS_{str(before[0]).upper()}"
        if now.is_final:
            return [False, f"Job exited before it could have been canceled, status {name}"]
        if given.clock() >= until:
            return [False, f"Job could not be canceled, status {name}"]


def _change_priority(_given: Surroundings, job_id: int, priority: int) -> Talk:
    reply = yield Ask(JOB_QUEUE, messages.ChangeJobPriority(id=job_id, priority=priority))
    return [reply.accepted, reply.text]


def _archive(_given: Surroundings, job_id: int) -> Talk:
    try:
        yield Ask(JOB_QUEUE, messages.ArchiveJob(id=job_id))
    except (errors.UnknownJobError, errors.JobStateError):
        return False
    return True


def _auto_archive(given: Surroundings, age: float, timeout: float) -> Talk:
    """Archive until nothing is left or the time is over: one request archives some of them."""
    until = given.clock() + min(timeout, ARCHIVE_SECONDS_MAX)
    archived = 0
    while True:
        reply = yield Ask(JOB_QUEUE, messages.AutoArchiveJobs(age_seconds=age))
        archived += len(reply.archived)
        if not reply.left or not reply.archived or given.clock() >= until:
            return [archived, reply.left]


# ---------------------------------------------------------------- rules and the queue


def _replace_filter(given: Surroundings, uuid: str | None, *rule: Any) -> Talk:  # noqa: ANN401
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


def _delete_filter(_given: Surroundings, uuid: str) -> Talk:
    try:
        yield Ask(CONFIG_STORE, messages.DeleteFilter(uuid=uuid))
    except (errors.UnknownFilterError, errors.FilterRuleError) as error:
        # No rule has a UUID that is malformed, either.
        text = f"Filter rule with UUID {shortened(uuid)} does not exist"
        raise errors.UnknownFilterError(text) from error
    return None


def _set_drain_flag(_given: Surroundings, is_drained: bool) -> Talk:  # noqa: FBT001
    yield Ask(JOB_QUEUE, messages.SetDrain(is_drained=is_drained))
    return True


def _set_watcher_pause(_given: Surroundings, until: float | None) -> Talk:
    yield Ask(CONFIG_STORE, messages.SetWatcherPause(until))
    return until


METHODS: Final[dict[str, Method]] = {
    "SubmitJob": _submitting("SubmitJob", ignores_drain=False),
    "SubmitJobToDrainedQueue": _submitting("SubmitJobToDrainedQueue", ignores_drain=True),
    "SubmitManyJobs": Method((list[list[Any]],), _submit_many, is_writing=True, takes_opcodes=True),
    "PickupJob": Method((JobId,), _pick_up),
    "WaitForJobChange": Method((JobId, _Fields, Any, int | None, int), _wait_for_job_change),
    "CancelJob": Method((JobId, bool), _cancel, is_writing=True, optional=1),
    "ArchiveJob": Method((JobId,), _archive, is_writing=True),
    "AutoArchiveJobs": Method((float, float), _auto_archive, is_writing=True),
    "ChangeJobPriority": Method((JobId, int), _change_priority, is_writing=True),
    "SetDrainFlag": Method((bool,), _set_drain_flag, is_writing=True),
    "SetWatcherPause": Method((int | float | None,), _set_watcher_pause, is_writing=True),
    "Query": Method((str, _Fields, Any), _query),
    "QueryFields": Method((str, _Fields | None), _query_fields),
    "QueryJobs": Method((_JobIds, _Fields), _query_jobs),
    "QueryNodes": _listing("node"),
    "QueryInstances": _listing("instance"),
    "QueryGroups": _listing("group"),
    "QueryNetworks": _listing("network"),
    "QueryExports": Method((list[str], bool), _query_exports),
    "QueryFilters": Method((list[str] | None, _Fields), _query_filters),
    "ReplaceFilter": Method(
        (str | None, int, list[Any], Any, list[Any]), _replace_filter, is_writing=True
    ),
    "DeleteFilter": Method((str,), _delete_filter, is_writing=True),
    "QueryClusterInfo": Method((), _query_cluster_info),
    "QueryConfigValues": Method((list[str],), _query_config_values),
    "QueryTags": Method((str, str | None), _query_tags),
}
"""Each method by its name on the wire."""
