"""The verbs of the client for asyncio that are not about single jobs.

Filter rules, the daemon, its locks and configuration, and queries in the form of Ganeti's.

docs/make_client.py makes `cluster_verbs` from this file: run it after a change.
"""

# ruff: noqa: ASYNC109 - the deadline of a call is told to the daemon, so each verb has one
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...storage import errors
from ...storage.jobs.jobs import check_id
from ...storage.query_views import FieldInfo, QueryAnswer, fields_of
from ..messages import (
    AwaitLocks,
    CountObjects,
    DaemonInfo,
    DescribeCluster,
    FilterRow,
    ForgetTasks,
    HistoryLine,
    InviteNode,
    ListDependencies,
    ListJobVersions,
    ListLocks,
    ListNodes,
    LockRow,
    LocksListed,
    LockWait,
    NodeInvited,
    NodesListed,
    ObjectChange,
    ObjectsChanged,
    ObjectsCounted,
    ReadHistory,
    ReadInfo,
    ReadLockWaits,
    ReadObjects,
    ReadPlan,
    ReadRuleHits,
    RemoveNode,
    SetWatcherPause,
)
from . import filter_requests, query_requests, requests, spans, wanted_locks
from .async_caller import AsyncCaller
from .async_streams import AsyncStreams


class AsyncClusterVerbs:
    """What a client can ask and change beside jobs. A base of `async_client.AsyncClient`."""

    _caller: AsyncCaller
    _streams: AsyncStreams
    _timeout: float

    # Filter rules.

    async def add_filter(
        self,
        *,
        priority: int = 0,
        predicates: Sequence[Any] = (),
        action: str | Sequence[Any] = "CONTINUE",
        reason: requests.Reason = "",
        uuid: str | None = None,
        valid_from: float | None = None,
        valid_until: float | None = None,
        name: str = "",
        first: bool = False,
        key: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store a filter rule and return its UUID; when this returns the rule is in force.

        The daemon tries rules by ``priority`` (lowest first), those that are to be ``first`` of
        their priority before the others, then age. ``name``: what may stand in the place of the
        UUID in every verb; no two rules have the same. The first rule whose
        ``predicates`` all match a job, and whose ``action`` is not ``CONTINUE``, applies to the
        job. Actions: ``ACCEPT``, ``PAUSE``, ``REJECT``, ``CONTINUE``, ``["RATE_LIMIT", n]`` (also
        ``"RATE_LIMIT n"``).
        Predicates: ``["jobid", FILTER]``, ``["opcode", FILTER]``, ``["reason", FILTER]``,
        ``["lock", ["=", "touches", "node/n1"]]``, and ``["!", PREDICATE]``. Outside of its window
        (seconds since the epoch) a rule does not apply.

        ``key``: of this user's; a repetition under it stores no second rule, and gets the same
        reply. Without one the library takes a new one for each call.
        """
        message = filter_requests.new_filter(
            uuid,
            (valid_from, valid_until),
            key,
            priority=priority,
            predicates=predicates,
            action=action,
            reason=reason,
            name=name,
            first=first,
        )
        stored = await self._caller.call(message, timeout)
        return stored.uuid

    async def replace_filter(
        self,
        uuid: str,
        *,
        priority: int = 0,
        predicates: Sequence[Any] = (),
        action: str | Sequence[Any] = "CONTINUE",
        reason: requests.Reason = "",
        valid_from: float | None = None,
        valid_until: float | None = None,
        name: str = "",
        first: bool = False,
        key: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """As `add_filter`, in place of the rule with this UUID; without one it is a new rule.

        In the place of a rule with this name, which must exist, and whose name the new one keeps
        unless it has another ``name``.
        """
        return await self.add_filter(
            priority=priority,
            predicates=predicates,
            action=action,
            reason=reason,
            uuid=uuid,
            valid_from=valid_from,
            valid_until=valid_until,
            name=name,
            first=first,
            key=key,
            timeout=timeout,
        )

    async def delete_filter(
        self, uuid: str, *, key: str | None = None, timeout: float | None = None
    ) -> None:
        """Delete the filter rule with this UUID or name; then it is no longer in force.

        ``key``: as in `add_filter`.
        """
        await self._caller.call(filter_requests.deleted_filter(uuid, key), timeout)

    async def filters(
        self, uuids: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[FilterRow]:
        """The filter rules, or those with these UUIDs, in the order of their evaluation."""
        listed = await self._caller.call(filter_requests.listed_filters(uuids), timeout)
        return listed.filters

    async def rule_hits(self, *, timeout: float | None = None) -> dict[str, int]:
        """To how many jobs each filter rule, by its UUID, was applied since the daemon started."""
        return (await self._caller.call(ReadRuleHits(), timeout)).hits

    # The daemon.

    async def info(self, *, disk: bool = False, timeout: float | None = None) -> DaemonInfo:
        """The version, health and figures of the daemon.

        ``disk``: also what takes how much of the disk. The daemon looks at each file for that.
        """
        return await self._caller.call(ReadInfo(with_disk=disk), timeout)

    async def locks(self, *, timeout: float | None = None) -> list[LockRow]:
        """Every lock that is held or wanted, then every job that others wait for (``job/ID``).

        Jobs without a process that will take a lock when they start are under ``wanted``: the first
        1,000 in the scheduler's order, and none while the scheduler does not answer.
        """
        held = await self._caller.call(ListLocks(), timeout)
        jobs = await self._caller.call(ListDependencies(), timeout)
        seconds = wanted_locks.SECONDS if timeout is None else min(timeout, wanted_locks.SECONDS)
        try:
            asked = ReadPlan(limit=wanted_locks.WANTING_JOBS_MAX)
            rows = wanted_locks.with_wanted(held.rows, await self._caller.call(asked, seconds))
        except errors.TryAgainError:
            rows = held.rows
        return rows + jobs.rows

    async def watch_locks(
        self, revision: int = 0, *, seconds: float = 30.0, timeout: float | None = None
    ) -> LocksListed:
        """The held and wanted locks, when they are others than at ``revision``.

        After ``seconds`` the reply comes without a change. Go on with the revision of the reply.
        Without a ``timeout``, the client's own one begins after them.
        """
        limit = self._timeout + seconds if timeout is None else timeout
        return await self._caller.call(AwaitLocks(revision, seconds), limit)

    async def lock_waits(self, *, timeout: float | None = None) -> list[LockWait]:
        """Which owners of locks wait for which others, in line."""
        return (await self._caller.call(ReadLockWaits(), timeout)).waits

    async def objects(
        self, kind: str, *names: str, timeout: float | None = None
    ) -> list[dict[str, Any]]:
        """Objects of the configuration, those of these UUIDs or names, or all of the kind.

        ``kind`` is a container of ``config.data`` (``nodes``, ``instances``, ...) or ``cluster``.
        Secrets are masked. Many come in pages; what changes meanwhile may be of either moment.
        """
        asked: ReadObjects | None = ReadObjects(requests.object_kind(kind), list(names) or None)
        found: list[dict[str, Any]] = []
        while asked is not None:
            reply = await self._caller.call(asked, timeout)
            found += reply.objects
            asked = query_requests.next_objects(asked, reply)
        return found

    async def count_objects(self, *, timeout: float | None = None) -> ObjectsCounted:
        """How many objects of each kind the configuration has, and its serial number."""
        return await self._caller.call(CountObjects(), timeout)

    async def change_objects(
        self,
        *changes: ObjectChange,
        why: str = "",
        key: str | None = None,
        timeout: float | None = None,
    ) -> ObjectsChanged:
        """Change objects of the configuration, all or none; returns when that is durable.

        ``key``: as in `add_filter`.
        """
        return await self._caller.call(requests.change_objects(changes, why, key), timeout)

    async def set_values(
        self,
        kind: str,
        name: str,
        values: Mapping[str, object],
        *,
        why: str = "",
        key: str | None = None,
        timeout: float | None = None,
    ) -> ObjectsChanged:
        """Change values in an object of the configuration, all or none; None removes one.

        ``name`` is a UUID or a name, and empty for the cluster. ``values`` go by their fields, such
        as ``offline`` or ``ndparams/ssh_port``. ``key``: as in `add_filter`.
        """
        asked = requests.set_values(kind, name, values, why, key)
        return await self._caller.call(asked, timeout)

    async def invite_node(
        self,
        name: str,
        *,
        valid_for: float | None = None,
        endpoint: str | None = None,
        announced: Sequence[str] = (),
        timeout: float | None = None,
    ) -> NodeInvited:
        """Let a host join as the node ``name``: the word for `ganger node join`, and until when.

        ``valid_for``: seconds, an hour by default. ``endpoint``: where the master listens for nodes
        from now on. ``announced``: where the host finds it, if its own addresses do not do.
        """
        seconds = spans.checked(valid_for, "valid_for") or 0.0
        asked = InviteNode(
            name=name, seconds=seconds, endpoint=endpoint or "", announced=list(announced)
        )
        return await self._caller.call(asked, timeout)

    async def nodes(self, *, timeout: float | None = None) -> NodesListed:
        """The nodes that have joined or were invited, and where the master listens for them."""
        return await self._caller.call(ListNodes(), timeout)

    async def remove_node(self, name: str, *, timeout: float | None = None) -> None:
        """Forget a node: its connection ends at once."""
        await self._caller.call(RemoveNode(name), timeout)

    async def forget_tasks(self, name: str, *, timeout: float | None = None) -> int:
        """Wait no longer for a silent node: of how many jobs it is now unknown what became there.

        Jobs that wait for the node end in an error, and locks kept for its tasks are freed.
        """
        return (await self._caller.call(ForgetTasks(name), timeout)).jobs

    async def pause_watcher(self, until: float | None, *, timeout: float | None = None) -> None:
        """Let Ganeti's watcher do nothing before ``until``, in seconds since the epoch; None: work.

        A query for ``watcher_pause`` of the ``cluster`` shows it.
        """
        await self._caller.call(SetWatcherPause(until), timeout)

    async def config_history(
        self, count: int = 100, *, before: int | None = None, timeout: float | None = None
    ) -> list[HistoryLine]:
        """The newest changes of the configuration, those older than the serial ``before``."""
        return (await self._caller.call(ReadHistory(count, before), timeout)).entries

    # Queries in the form of Ganeti's.

    async def query(
        self,
        what: str,
        fields: Sequence[str],
        filter: Any = None,  # noqa: A002, ANN401 - JSON of Ganeti's query language
        *,
        timeout: float | None = None,
    ) -> QueryAnswer:
        """Fields of all items that pass a filter.

        ``what`` is job, lock, node, instance, group, network, filter, export or cluster. ``filter``
        is in Ganeti's query language, as JSON or as text: ``["==", "status", "error"]`` or
        ``'status == "error"'``. An unknown field is no error: its values have a status of their
        own. ``timeout`` is the deadline of each page of a long answer.
        """
        return await self._streams.query(query_requests.query(what, fields, filter), timeout)

    async def query_json(
        self,
        what: str,
        fields: Sequence[str],
        filter: Any = None,  # noqa: A002, ANN401 - JSON of Ganeti's query language
        *,
        timeout: float | None = None,
    ) -> tuple[list[FieldInfo], bytes]:
        """As `query`, for those who pass rows on: the fields, and `QueryAnswer.data` as JSON."""
        return await self._streams.query_json(query_requests.query(what, fields, filter), timeout)

    async def job_ids(
        self, known_mark: int | None = None, *, timeout: float | None = None
    ) -> tuple[int, list[int] | None]:
        """A mark, and the ids of all live jobs; None if the mark is still the one that is known.

        The mark is another number whenever jobs have come or gone.
        """
        return await self._streams.job_ids(known_mark, timeout)

    async def job_versions(self, *, timeout: float | None = None) -> tuple[list[int], list[int]]:
        """The ids of all live jobs, and the version of each: cheap, to find out what has changed.

        A job whose version is the same as before has not changed; 0: it may have.
        """
        return await self._streams.job_versions(timeout)

    async def job_version(self, job_id: int, *, timeout: float | None = None) -> int | None:
        """As `job_versions`, of one job; None if it is not live."""
        job_id = check_id(job_id)
        message = ListJobVersions(after=job_id - 1, rows_max=1)
        found = await self._caller.call(message, timeout)
        return found.versions[0] if found.ids == [job_id] else None

    async def query_fields(
        self, what: str, fields: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> list[FieldInfo]:
        """The definitions of these fields, or of all that a query for ``what`` can ask for."""
        asked = query_requests.query_fields(what, fields)
        return fields_of((await self._caller.call(asked, timeout)).fields)

    async def cluster_info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The cluster as a whole: with the keys and values of Ganeti's ``QueryClusterInfo``."""
        return (await self._caller.call(DescribeCluster(), timeout)).info
