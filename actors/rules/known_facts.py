"""What is known of a job that rules look at: from the queue's message, or from the job's file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...storage import settings
from ...storage.queue_files import job_files
from ...transport import messages
from ..runtime.addresses import JOB_QUEUE
from . import filtering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...storage import errors
    from ...storage.filters.metering import Slice
    from ..runtime.component import Runtime
    from .unsure_locks import UnsureLocks


class KnownFacts:
    """Finds the facts about jobs; what it reads counts for the slice."""

    def __init__(self, runtime: Runtime, unsure: UnsureLocks, slice_: Slice) -> None:
        self._runtime = runtime
        self._unsure = unsure
        self._slice = slice_
        # Made once: a path is put together anew each time.
        self._queue = os.fspath(runtime.host.places.queue)

    def of(
        self,
        arrived: messages.JobToJudge,
        fields: frozenset[str] | None,
        *,
        priority: int | None = None,
    ) -> filtering.JobFacts:
        """The facts with these parameters; ``priority``: the one that the job would have.

        ``fields`` is None if nothing but its id is wanted. `StorageError` if the file that has
        them is gone, as that of a job archived meanwhile, or if the text is no job's.
        """
        inputs: Sequence[Mapping[str, Any]] | None = arrived.inputs
        if inputs is not None or fields is None:
            return self._unsure.known(filtering.JobFacts.of(arrived.job.id, inputs or (), priority))
        if arrived.class_inputs is not None and "reason" not in fields:
            inputs = arrived.class_inputs
        elif arrived.body is not None:
            inputs = job_files.read_job(arrived.body, arrived.job.id).judged_inputs
        elif arrived.is_in_file:
            self._slice.left -= settings.JOB_READ_STEPS
            inputs = job_files.read_inputs(self._queue, arrived.job.id)
        return self._unsure.known(filtering.JobFacts.of(arrived.job.id, inputs or (), priority))

    def note_unreadable(self, arrived: messages.JobToJudge, error: errors.StorageError) -> None:
        """No rule can look at this job's text, so it is held: a rule might hold or reject it."""
        self._runtime.log.error("job cannot be judged", job=arrived.job.id, error=error.text)
        if arrived.is_in_file:
            # The journal may make up for a damaged file: the queue mends it, and sends the text.
            self._runtime.tell(JOB_QUEUE, messages.ReportJobs(ids=[arrived.job.id], are_read=True))
