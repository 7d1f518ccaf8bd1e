"""What Huey's workers run, on an SQLite file that is flushed before each acknowledgement."""

import os

from huey import SqliteHuey

from .side import ADDRESS

# The jobs of `held` lie in the same file, and no consumer takes them. A result of None is kept,
# because it is the only sign that a job has ended.
queue = SqliteHuey("running", filename=os.environ[ADDRESS], fsync=True, store_none=True)
held = SqliteHuey("held", filename=os.environ[ADDRESS], fsync=True, store_none=True)


@queue.task()  # type: ignore[untyped-decorator]
def no_op() -> None:
    """The function of all jobs."""


@held.task()  # type: ignore[untyped-decorator]
def held_no_op() -> None:
    """The function of held jobs."""
