"""The gate without a daemon: a job's process asks the rules as they are stored.

A rule is in ``config.data`` before it is in force, and so before anybody was told that it is.
Whoever reads the file when an opcode is about to begin, and finds nothing that stops it, begins
before the next rule. Imported only when no daemon answers: it costs more than a short job.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...storage import config_files
from ...storage.settings import Places
from .rules_in_force import RulesInForce

if TYPE_CHECKING:
    from ...storage import jobs
    from ...transport.messages import ChosenUnder, GateAnswered


def gate(queue: str, job: jobs.Job, chosen: ChosenUnder, *, has_begun: bool) -> GateAnswered:
    """Whether the job's next opcode may start, by the rules beside the directory ``queue``.

    ``has_begun``: earlier opcodes have run. `StorageError` or `DataDirectoryError` if the rules
    cannot be read.
    """
    data = Path(queue).parent
    found = config_files.read(Places(data, data).config) or {}
    door = RulesInForce(list(found.get("filters", {}).values()))
    return door.gate(job, chosen, has_begun=has_begun)
