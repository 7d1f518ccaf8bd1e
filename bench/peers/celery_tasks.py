"""What Celery's workers run. Broker and results are on Redis."""

import os

from celery import Celery

from .side import ADDRESS

app = Celery("bench", broker=os.environ[ADDRESS], backend=os.environ[ADDRESS])


@app.task  # type: ignore[untyped-decorator]
def no_op() -> None:
    """The function of all jobs."""
