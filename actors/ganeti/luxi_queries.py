"""LUXI's questions: queries of items, the classic listings, and what tools ask about the cluster.

Pure, as all of `luxi_methods`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

import msgspec

from ...storage import errors
from ...storage.ganeti.queries.jobs import JOBS, OURS
from ...storage.queries import job_masks
from ...transport import messages
from ...transport.client.query_requests import Query, next_query
from ...transport.envelopes import Address
from ...transport.ganeti.luxi_words import (
    IN_JOBS_ONLY,
    RESOURCES,
    cannot_convert,
    not_supported,
    unknown_resource,
)
from ..runtime.addresses import CONFIG_STORE, JOB_QUEUE, LOCK_MANAGER
from .luxi_talks import Ask, Fields, JobIds, LuxiMethod, MethodContext, Talk

REPLY_BYTES_MAX: Final = 512 * 1024 * 1024
"""Largest answer to a query."""

OPERATORS_MAX: Final = 1_000
"""Most operators of a filter of those who may only read, also of one that only names items: others
wait while it is read."""

IDS_PER_QUERY: Final = 500
"""Most ids of jobs in one question to the queue: more make several questions."""


def _pages(
    request: Query, to: Address[Any], *, hides: bool = False
) -> Generator[Ask, Any, tuple[list[dict[str, str]], msgspec.Raw]]:
    """The fields and the rows of the whole answer, which comes in pages.

    ``hides``: without what those who may only read must not see.
    """
    if hides:
        _check_filter(request.filter)
        if isinstance(request, messages.QueryJobs):
            job_masks.check_filter(request.filter, job_masks.PARAMETERS_AND_OUTPUT)
    asked: Query | None = request
    parts: list[bytes] = []
    fields: list[dict[str, str]] = []
    size = 0
    while asked is not None:
        reply: messages.QueryAnswered = yield Ask(to, asked)
        fields, rows = reply.fields, reply.rows
        if hides and isinstance(asked, messages.QueryJobs):
            masks = job_masks.PARAMETERS_AND_OUTPUT
            rows = job_masks.masked_rows(rows, asked.fields, masks, is_classic=asked.is_classic)
        if len(rows) > len(b"[]"):
            parts.append(rows[1:-1])
            size += len(rows)
        _check_reply(size)
        asked = next_query(asked, reply)
    return fields, msgspec.Raw(b"[%b]" % b",".join(parts))


def _check_filter(raw_filter: object) -> None:
    """Raise `BadRequestError` for a filter with too many operators."""
    if msgspec.json.encode(raw_filter).count(b"[") > OPERATORS_MAX:
        text = f"filter: has more than {OPERATORS_MAX} operators; who may only read may not ask it"
        raise errors.BadRequestError(text)


def _check_reply(size: int) -> None:
    if size > REPLY_BYTES_MAX:
        raise errors.BadRequestError(
            f"the answer has more than {REPLY_BYTES_MAX} bytes; ask for fewer fields"
        )


def _query(given: MethodContext, what: str, fields: Fields, raw_filter: Any) -> Talk:  # noqa: ANN401
    _check_resource("Query", what, [what, fields, raw_filter])
    try:
        answer = yield from _pages(*_request(what, fields, raw_filter), hides=not given.may_write)
    except errors.FilterRuleError as error:
        raise cannot_convert([what, fields, raw_filter], error.text) from error
    return {"fields": answer[0], "data": answer[1]}


def _request(
    what: str, fields: Fields, raw_filter: object, *, is_classic: bool = False
) -> tuple[Query, Address[Any]]:
    match what:
        case "job":
            return messages.QueryJobs(fields, raw_filter, is_classic=is_classic), JOB_QUEUE
        case "lock":
            return messages.QueryLocks(fields, raw_filter), LOCK_MANAGER
    asked = messages.QueryConfiguration(what, fields, raw_filter, is_classic=is_classic)
    return asked, CONFIG_STORE


def _query_fields(_given: MethodContext, what: str, fields: Fields | None) -> Talk:
    _check_resource("QueryFields", what, [what, fields])
    if what == "job" and not fields:
        # What Ganeti's tools list are Ganeti's fields.
        fields = [name for name in JOBS.fields if name not in OURS]
    reply = yield Ask(CONFIG_STORE, messages.QueryFields(what, fields))
    return {"fields": reply.fields}


def _check_resource(method: str, what: str, args: list[Any]) -> None:
    """Raise unless the daemon itself answers for this: a job may, or no part of Ganger."""
    if what in IN_JOBS_ONLY:
        raise errors.GangerError(not_supported(method, what))
    if what not in RESOURCES:
        raise cannot_convert(args, unknown_resource(what))


def _classic(
    given: MethodContext,
    what: str,
    fields: Fields,
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


def _query_jobs(given: MethodContext, ids: JobIds, fields: Fields) -> Talk:
    wanted = list(dict.fromkeys(ids or ()))
    parts: list[bytes] = []
    for start in range(0, max(1, len(wanted)), IDS_PER_QUERY):
        some = wanted[start : start + IDS_PER_QUERY]
        rows = yield from _classic(given, "job", fields, some, "id")
        assert isinstance(rows, msgspec.Raw)
        parts.append(bytes(rows)[1:-1])
        _check_reply(sum(map(len, parts)))
    return msgspec.Raw(b"[%b]" % b",".join(filter(None, parts)))


def _query_filters(given: MethodContext, uuids: list[str] | None, fields: Fields) -> Talk:
    return (yield from _classic(given, "filter", fields, uuids, "uuid"))


def _query_exports(given: MethodContext, nodes: list[str], use_locking: bool) -> Talk:  # noqa: FBT001
    _refuse_locking(use_locking)
    return (yield from _classic(given, "export", ["node", "export"], nodes, "node"))


def _listing(what: str) -> LuxiMethod:
    def talk(given: MethodContext, names: list[str], fields: Fields, use_locking: bool) -> Talk:  # noqa: FBT001
        _refuse_locking(use_locking)
        return (yield from _classic(given, what, fields, names))

    return LuxiMethod((list[str], Fields, bool), talk)


def _refuse_locking(use_locking: bool) -> None:  # noqa: FBT001
    if use_locking:
        raise errors.BadRequestError("Sync queries are not allowed")


def _query_cluster_info(_given: MethodContext) -> Talk:
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


def _query_config_values(_given: MethodContext, names: list[str]) -> Talk:
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


def _query_tags(_given: MethodContext, kind: str, name: str | None) -> Talk:
    if kind == "cluster":
        return (yield Ask(CONFIG_STORE, messages.DescribeCluster())).info["tags"]
    if kind not in _TAGGED:
        raise cannot_convert([kind, name], f"Invalid string value for type TagKind: {kind!r}")
    what = _TAGGED[kind]
    _, data = yield from _pages(*_request(what, ["tags"], ["==", "name", name or ""]))
    [[[_status, tags]]] = msgspec.json.decode(data)
    return tags


QUERIES: Final[dict[str, LuxiMethod]] = {
    "Query": LuxiMethod((str, Fields, Any), _query),
    "QueryFields": LuxiMethod((str, Fields | None), _query_fields),
    "QueryJobs": LuxiMethod((JobIds, Fields), _query_jobs),
    "QueryNodes": _listing("node"),
    "QueryInstances": _listing("instance"),
    "QueryGroups": _listing("group"),
    "QueryNetworks": _listing("network"),
    "QueryExports": LuxiMethod((list[str], bool), _query_exports),
    "QueryFilters": LuxiMethod((list[str] | None, Fields), _query_filters),
    "QueryClusterInfo": LuxiMethod((), _query_cluster_info),
    "QueryConfigValues": LuxiMethod((list[str],), _query_config_values),
    "QueryTags": LuxiMethod((str, str | None), _query_tags),
}
"""Each of these methods by its name on the wire."""
