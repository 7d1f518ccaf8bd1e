"""Clients that wait for changes of jobs, of a job queue on the stage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.actors.ganeti.queue_parts import waits_of
from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Asker

from ganger.transport import messages

FIELDS = ["status", "opstatus", "priority", "start_ts", "end_ts", "opresult"]
SECONDS = 60.0


def request(job_id: int = 1, **fields: Any) -> messages.AwaitJobChange:
    fields.setdefault("seconds", SECONDS)
    return messages.AwaitJobChange(id=job_id, fields=fields.pop("fields", FIELDS), **fields)


def answer(asker: Asker) -> tuple[list[Any], list[Any]]:
    """The values and the log of the only answer."""
    found = asker.answer_as(messages.JobAwaited)
    return json.loads(found.values), json.loads(found.log)


def now(queue: Queue, job_id: int = 1) -> list[Any]:
    """The values as they are now."""
    return answer(queue.actor.ask(request(job_id)))[0]


def last_serial(queue: Queue, job_id: int = 1) -> int:
    return queue.job(job_id).last_log_serial


def wait(queue: Queue, job_id: int = 1, **fields: Any) -> Asker:
    """Somebody who has everything up to now waits for more."""
    fields.setdefault("values", now(queue, job_id))
    fields.setdefault("log_serial", last_serial(queue, job_id))
    asker = queue.actor.say(request(job_id, **fields), number=next(_numbers))
    queue.actor.end_turn()
    assert asker.answers == []
    return asker


_numbers = itertools.count(1_000_000)


def woken(queue: Queue, change: Callable[[], object]) -> tuple[list[Any], list[Any]]:
    """What somebody who waits gets when this has happened; he who waits for another job: none."""
    asker, other = wait(queue), wait(queue, 2)
    change()
    queue.actor.end_turn()
    assert other.answers == []
    return answer(asker)


def waits(queue: Queue) -> int:
    return len(waits_of(queue.actor.component))


def log(queue: Queue, *serials: int, job_id: int = 1) -> None:
    entries = [(serial, (5, 6), "message", f"line {serial}") for serial in serials]
    queue.actor.turn(messages.JobLogAppended(job_id=job_id, op_index=0, entries=entries))


def priority(queue: Queue) -> None:
    queue.actor.say(messages.ChangeJobPriority(id=1, priority=-10))


def cancel(queue: Queue) -> None:
    queue.actor.say(messages.CancelJob(id=1))
