"""Filter rules for a job queue on a stage, and processes that want to begin an opcode."""

from __future__ import annotations

from typing import Any

from tests.actors.queue.queue_stage import Queue
from tests.actors.runtime.stage import Asker

from ganger.storage.filters.rules import parse_rule
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.messages import ChosenUnder, JobSpec

UUID = "aaaaaaaa-0000-4000-8000-000000000000"
EXEC: dict[str, Any] = {"OP_ID": "OP_EXEC", "argv": ["true"]}
REJECTS = {
    "uuid": UUID,
    "watermark": 0,
    "action": "REJECT",
    "predicates": [["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]],
    "reason_trail": [["gnt:user", "closed", 1]],
}
REJECTION = f"rejected by filter rule {UUID} (priority 0, reason: closed)"


def take_rules(queue: Queue, *rules: dict[str, Any], serial: int = 4, reads: bool = True) -> None:
    """The filter evaluator announces these rules."""
    changed = messages.RuleChainChanged(
        chain=7, serial=serial, reads_opcodes=reads, rules=[parse_rule(rule) for rule in rules]
    )
    queue.actor.notify(changed)


def command(**fields: Any) -> JobSpec:
    """A job that `REJECTS` lets in."""
    return JobSpec(ops=[EXEC], **fields)


def begin(queue: Queue, job_id: int, serial: int, *statuses: JobStatus, **chosen: Any) -> Asker:
    """The process wants to begin an opcode; the turn ends."""
    asker = queue.record(job_id, serial, *statuses, begins=ChosenUnder(**chosen))
    queue.actor.end_turn()
    return asker
