"""What Procrastinate's workers run, on PostgreSQL."""

import os

import procrastinate

from .side import ADDRESS

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ[ADDRESS]))


@app.task(name="no_op")  # type: ignore[untyped-decorator]
def no_op() -> None:
    """The function of all jobs."""
