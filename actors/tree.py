"""The supervision tree as a table: which components there are, in the order of their start."""

from __future__ import annotations

from .config_store import ConfigStore
from .executor import Executor
from .filter_evaluator import FilterEvaluator
from .job_queue import JobQueue
from .lock_manager import LockManager
from .output_reader import OutputReader
from .scheduler import Scheduler
from .wire_listener import WireListener

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
