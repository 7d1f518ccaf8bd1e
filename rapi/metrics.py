"""Figures for Prometheus. The home of prometheus_client.

What the daemon counts is read from it at each scrape. The histograms come from the feed of job
events, so they begin with this process, as counters of Prometheus may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from ..storage import errors
from ..storage.jobs.job_views import JobInfo
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import Outcome
from ..transport.messages import DaemonInfo, FilterRow, LockWait, NodeState
from .declarations import Call, Method, Resource, Right
from .feed import Feed

if TYPE_CHECKING:
    from ..transport.client.async_client import AsyncClient
    from .feed import JobEvent

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
CAUSES = ("dependency", "rule", "limit", "lock", "process", "slots", "order")
"""For what jobs wait (`Client.waiting`)."""

_WAITING_SECONDS = 2.0
_OPCODES_MAX = 200
"""Most opcodes with histograms of their own; further ones count as ``other``."""


class JobTimes:
    """Histograms of the times of jobs that have started or ended while this process lived."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._opcodes: set[str] = set()
        self._start = self._histogram("ganger_job_start_delay_seconds", "From submission to start")
        self._run = self._histogram("ganger_job_run_seconds", "From start to end")
        self._wait = self._histogram(
            "ganger_job_lock_wait_seconds", "Waiting with a process, for locks or dependencies"
        )
        self._waiting_since: dict[int, float] = {}
        self.ended: Counter[str] = Counter()
        """How many jobs have ended, by final status."""
        self.outcomes: Counter[str] = Counter()
        """How many jobs have ended, by outcome."""

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ["opcode"], registry=self.registry, buckets=_SECONDS)

    def hear(self, event: JobEvent, job: JobInfo) -> None:
        """Take in an event of the feed."""
        name = self._name(job)
        if event.status == "waiting":
            self._waiting_since.setdefault(event.job_id, event.time)
        else:
            since = self._waiting_since.pop(event.job_id, None)
            if since is not None:
                self._wait.labels(name).observe(max(0.0, event.time - since))
        if event.previous is None or job.received is None:
            # It is how a job was when the feed began, or the job has no times.
            return
        if job.is_final:
            self.ended[event.status] += 1
            self.outcomes[str(event.outcome)] += 1
            if job.started is not None:
                self._start.labels(name).observe(max(0.0, job.started - job.received))
                if job.ended is not None:
                    self._run.labels(name).observe(max(0.0, job.ended - job.started))

    def _name(self, job: JobInfo) -> str:
        """The job's first opcode, without its parameters: ``EXEC`` of ``EXEC(make), EXEC(ls)``."""
        name = job.summary.partition(",")[0].partition("(")[0].strip() or "other"
        if name not in self._opcodes:
            if len(self._opcodes) >= _OPCODES_MAX:
                return "other"
            self._opcodes.add(name)
        return name


class _Told(msgspec.Struct):
    """What the daemon has just told."""

    info: DaemonInfo
    waits: list[LockWait]
    waiting: dict[str, int]
    rules: list[FilterRow]
    hits: dict[str, int]
    nodes: list[NodeState]


class _Now:
    """The figures of this moment, as a collector."""

    def __init__(self, told: _Told, times: JobTimes, feed: Feed) -> None:
        self._info = told.info
        self._waits = told.waits
        self._waiting = told.waiting
        self._rules = told.rules
        self._hits = told.hits
        self._hosts = told.nodes
        self._times = times
        self._feed = feed

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield from self._jobs()
        yield from self._ended()
        yield CounterMetricFamily(
            "ganger_flushes", "Flushes of the journal", value=self._info.flushes
        )
        yield from self._components()
        yield from self._states()
        yield from self._disk()
        yield from self._hits_of_rules()
        yield self._nodes()

    def _jobs(self) -> Iterable[Metric]:
        """Live jobs, and for what they wait."""
        jobs = GaugeMetricFamily("ganger_jobs", "Live jobs by status", labels=["status"])
        for status in map(str, JobStatus):
            jobs.add_metric([status], self._info.counts.get(status, 0))
        yield jobs
        waiting = GaugeMetricFamily(
            "ganger_jobs_waiting",
            "Jobs that wait, by the first thing that holds them",
            labels=["cause"],
        )
        for cause in CAUSES:
            waiting.add_metric([cause], self._waiting.get(cause, 0))
        yield waiting

    def _ended(self) -> Iterable[Metric]:
        """Jobs that have ended, by status and by outcome."""
        ended = CounterMetricFamily(
            "ganger_jobs_ended", "Jobs that ended while this exporter lived", labels=["status"]
        )
        for status in JobStatus:
            if status.is_final:
                ended.add_metric([str(status)], self._times.ended[status])
        yield ended
        outcomes = CounterMetricFamily(
            "ganger_job_outcomes", "Jobs that ended while this exporter lived", labels=["outcome"]
        )
        for outcome in Outcome:
            outcomes.add_metric([str(outcome)], self._times.outcomes[outcome])
        yield outcomes

    def _components(self) -> Iterable[Metric]:
        """Components of the daemon and its processes."""
        info = self._info
        restarts = CounterMetricFamily(
            "ganger_component_restarts", "Restarts by the supervisor", labels=["component"]
        )
        ready = GaugeMetricFamily(
            "ganger_component_ready", "Whether a component is ready", labels=["component"]
        )
        for component in info.components:
            restarts.add_metric([component.name], component.restarts)
            ready.add_metric([component.name], int(component.is_ready))
        yield restarts
        yield ready
        memory = GaugeMetricFamily("ganger_memory_bytes", "Resident memory", labels=["process"])
        for name, size in info.memory.items():
            memory.add_metric([name], size)
        yield memory
        turns = GaugeMetricFamily(
            "ganger_longest_turn_seconds", "Longest turn of the last seconds", labels=["component"]
        )
        for name, seconds in info.longest_turns.items():
            turns.add_metric([name], seconds)
        yield turns

    def _hits_of_rules(self) -> Iterable[Metric]:
        hits = CounterMetricFamily(
            "ganger_filter_hits", "Jobs to which a rule was applied", labels=["rule", "action"]
        )
        for rule in self._rules:
            action = rule.action if isinstance(rule.action, str) else str(rule.action[0])
            hits.add_metric([rule.uuid, action], self._hits.get(rule.uuid, 0))
        yield hits

    def _nodes(self) -> Metric:
        nodes = GaugeMetricFamily("ganger_nodes", "Hosts by their connection", labels=["state"])
        counts = Counter(
            ("there" if one.is_there else "silent") if one.has_joined else "invited"
            for one in self._hosts
        )
        for state in ("there", "silent", "invited"):
            nodes.add_metric([state], counts[state])
        return nodes

    @property
    def _lock_waits(self) -> int:
        """Those that stand in line for a lock, and those that are held back for one."""
        return len(self._waits) + self._waiting.get("lock", 0)

    def _states(self) -> Iterable[Metric]:
        info = self._info
        is_full = info.is_disk_full or info.lacks_room
        for name, text, value in (
            ("ganger_up", "Whether the daemon answers", 1),
            ("ganger_read_only", "Whether the disk refuses writes", int(info.is_read_only)),
            ("ganger_disk_full", "Whether the disk has no room for new jobs", int(is_full)),
            ("ganger_output_dropped_jobs", "Jobs that drop output", len(info.output_dropped)),
            ("ganger_drained", "Whether the queue takes no jobs", int(info.is_drained)),
            ("ganger_quarantined_files", "Files that cannot be read", len(info.quarantined)),
            ("ganger_start_time_seconds", "When the daemon started", info.started),
            ("ganger_last_job_id", "The last id given", info.counts.get("last_id", 0)),
            ("ganger_lock_waits", "Owners and pending jobs that wait for a lock", self._lock_waits),
            ("ganger_event_listeners", "Open streams of events", self._feed.listeners),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _disk(self) -> Iterable[Metric]:
        disk = self._info.disk
        if disk is None:
            return
        used = GaugeMetricFamily(
            "ganger_disk_used_bytes", "What parts of the queue take", labels=["part"]
        )
        for part, size in disk.parts().items():
            used.add_metric([part], size)
        yield used
        yield GaugeMetricFamily("ganger_disk_free_bytes", "Free on the queue's disk", disk.free)
        yield GaugeMetricFamily("ganger_disk_size_bytes", "All of the queue's disk", disk.total)


async def _waiting(client: AsyncClient) -> dict[str, int]:
    """For what jobs wait; a scrape does not wait long for the scheduler."""
    try:
        return await client.waiting(timeout=_WAITING_SECONDS)
    except errors.TryAgainError:
        return {}


async def read_metrics(call: Call) -> Response:
    """Everything that is counted, in Prometheus's text format."""
    client = call.client
    told = _Told(
        await client.info(disk=True),
        await client.lock_waits(),
        await _waiting(client),
        await client.filters(),
        await client.rule_hits(),
        (await client.nodes()).nodes,
    )
    now = _Now(told, call.of(JobTimes), call.of(Feed))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(now)
    text = generate_latest(registry) + generate_latest(call.of(JobTimes).registry)
    return Response(text, media_type=None, headers={"Content-Type": CONTENT_TYPE_LATEST})


RESOURCES = (
    Resource(
        path="/metrics",
        is_own=True,
        methods={
            "GET": Method(handler=read_metrics, right=Right.READ, summary="Figures for Prometheus.")
        },
    ),
)
