"""The supervision tree as a table: which components there are, in the order of their start."""

from __future__ import annotations

from ..config.config_store import ConfigStore
from ..doors.wire_listener import WireListener
from ..execution.executor import Executor
from ..locks.lock_manager import LockManager
from ..output.output_reader import OutputReader
from ..queue.job_queue import JobQueue
from ..rules.filter_evaluator import FilterEvaluator
from ..scheduling.scheduler import Scheduler

COMPONENTS = (
    ConfigStore,
    LockManager,
    FilterEvaluator,
    Scheduler,
    JobQueue,
    OutputReader,
    Executor,
    WireListener,
)
"""Started one after the other, each when the one before it is ready; stopped in reverse.

The listener comes last, so that nobody is let in before everything is there, and stops
first. When one is replaced, those in `TOLD_OF_REPLACEMENT` hear of it.
"""

TOLD_OF_REPLACEMENT = ("executor", "wire_listener", "config_store", "job_queue")
"""They stand for somebody outside, whose requests the replaced component has forgotten."""
