"""Who is measured: the names, environments, configurations and promises of all queues.

The promises are those of the configuration that is measured, taken from each project's
documentation and code at the pinned version. Which page or name says so stands in
docs/decisions/peers-are-measured-in-their-own-environments.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One row of the table."""

    name: str
    """What ``--only`` takes."""
    title: str
    library: str
    """Its side is ``bench.peers.<library>_side``."""
    variant: str
    environment: str | None
    """The folder below ``.peers/``; None is Ganger's own environment."""
    setup: str
    """The configuration, beyond the project's defaults."""
    lacks: str
    """What it does not promise."""
    pending_max: int | None = None
    """How many jobs may be pending; None has no limit."""


RQ, HUEY = "rq", "huey-processes"
FRESH, REUSED = "ganger-fresh", "ganger-reused"

PEERS = (
    Peer(
        FRESH,
        "Ganger, fresh processes",
        "ganger",
        "fresh",
        None,
        "a process for each job, 20 run slots",
        "",
    ),
    Peer(
        "ganger-fresh-2",
        "Ganger, fresh processes, 2 slots",
        "ganger",
        "fresh-2-slots",
        None,
        "a process for each job, 2 run slots",
        "",
    ),
    Peer(
        REUSED,
        "Ganger, reused processes",
        "ganger",
        "reused",
        None,
        "processes that serve up to 100 jobs, 20 run slots",
        "no process of its own",
    ),
    Peer(
        RQ,
        "RQ",
        "rq",
        "",
        "rq",
        "2 default workers, which fork for each job; Redis with `appendfsync always`",
        "a success is kept for 500 s; a worker's death is noticed after minutes",
    ),
    Peer(
        "huey-threads",
        "Huey, threads",
        "huey",
        "threads",
        "huey",
        "2 threads that poll (0.1 s and longer); SQLite with `fsync`; results of None kept",
        "no process of its own; no state while it runs, its result goes when it is read; a job is"
        " lost if its worker dies",
    ),
    Peer(
        HUEY,
        "Huey, processes",
        "huey",
        "processes",
        "huey",
        "2 processes that poll (0.1 s and longer); SQLite with `fsync`; results of None kept",
        "no process of its own; no state while it runs, its result goes when it is read; a job is"
        " lost if its worker dies",
    ),
    Peer(
        "celery",
        "Celery, prefork",
        "celery",
        "",
        "celery",
        "2 pool processes; broker and results on Redis with `appendfsync always`",
        "no process of its own; no list of jobs; a result is kept for a day; a job that had begun"
        " is lost if the worker dies, one that was fetched comes again after an hour",
    ),
    Peer(
        "dramatiq",
        "Dramatiq",
        "dramatiq",
        "",
        "dramatiq",
        "2 processes of 8 threads; broker and results on Redis with `appendfsync always`",
        "no process of its own; no list of jobs; a result is kept for 10 minutes; a job may run"
        " more than once",
    ),
    Peer(
        "procrastinate",
        "Procrastinate",
        "procrastinate",
        "",
        "procrastinate",
        "2 worker processes of one job each; PostgreSQL's defaults (`fsync`, `synchronous_commit`)",
        "no process of its own; a job whose worker died stays `doing` until the user's own task"
        " retries it",
    ),
    Peer(
        "task-spooler",
        "task-spooler",
        "task_spooler",
        "",
        None,
        "2 slots; a command (`true`) instead of a function",
        "acknowledged in memory only: all jobs and states are lost with its server; a process and"
        " a connection wait for each pending job, so at most 1,000; 1,000 ended jobs are kept",
        pending_max=900,
    ),
)

NAMES = tuple(peer.name for peer in PEERS)


def chosen(names: list[str] | None) -> list[Peer]:
    """The peers of these names in the order of the table; all without names."""
    return [peer for peer in PEERS if names is None or peer.name in names]


def turn(peers: list[Peer], number: int) -> list[Peer]:
    """The order of round ``number`` (from 0): each round begins with another one.

    >>> [peer.name for peer in turn(chosen(["rq", "celery", "dramatiq"]), 1)]
    ['celery', 'dramatiq', 'rq']
    """
    first = number % len(peers) if peers else 0
    return peers[first:] + peers[:first]
