"""What Dramatiq's workers run. Broker and results are on Redis."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from .side import ADDRESS

broker = RedisBroker(url=os.environ[ADDRESS])
# Without results nobody could know when a job has ended.
broker.add_middleware(Results(backend=RedisBackend(url=os.environ[ADDRESS])))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)  # type: ignore[untyped-decorator]
def no_op() -> None:
    """The function of all jobs."""


@dramatiq.actor(queue_name="held", store_results=True)  # type: ignore[untyped-decorator]
def held_no_op() -> None:
    """The function of jobs whose queue has no worker."""
