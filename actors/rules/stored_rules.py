"""The gate without a daemon: a job's process reads the stored rules itself.

A rule is in ``config.data`` before it is in force. So an opcode that no rule in this file stops
begins before the next rule is in force. The job process imports this module only when no daemon
answers: the import costs more than a short job.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...storage import config_files
from ...storage.disk.paths import Places
from ...storage.filters import rules
from .rules_in_force import RulesInForce

if TYPE_CHECKING:
    from ...storage.jobs import jobs
    from ...transport.messages import ChosenUnder, GateAnswered


def gate(queue: str, job: jobs.Job, chosen: ChosenUnder, *, has_begun: bool) -> GateAnswered:
    """Whether the job's next opcode may start, by the rules beside the directory ``queue``.

    ``has_begun``: earlier opcodes have run. `StorageError` or `DataDirectoryError` if the rules
    cannot be read.
    """
    data = Path(queue).parent
    found = config_files.read(Places(data, data).config) or {}
    known = rules.parse_rules(found.get("filters", {})).rules.values()
    return RulesInForce(known, wall_clock=time.time).gate(job, chosen, has_begun=has_begun)
