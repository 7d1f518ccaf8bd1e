"""Which pending jobs want which names of locks: pure.

Most names are wanted by one job: its id is kept alone, without a set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.id_sets import IdSet
from .holding import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...storage.prediction.lock_types import LockForecast
    from .holding import NamesTaken


class WantedNames:
    """The jobs that want a name, by its level, whether they want it exclusively, and the name."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, bool], dict[str, int | IdSet]] = {}

    def add(self, job_id: int, forecast: LockForecast) -> None:
        """The job wants the names of this forecast."""
        for level, names, is_exclusive in named(forecast):
            jobs = self._jobs.setdefault((level, is_exclusive), {})
            for name in names:
                known = jobs.get(name)
                if known is None:
                    jobs[name] = job_id
                elif isinstance(known, IdSet):
                    known.add(job_id)
                elif known != job_id:
                    jobs[name] = IdSet.of((known, job_id))

    def discard(self, job_id: int, forecast: LockForecast) -> None:
        """The job wants the names of this forecast no longer."""
        for level, names, is_exclusive in named(forecast):
            jobs = self._jobs.get((level, is_exclusive), {})
            for name in names:
                known = jobs.get(name)
                if isinstance(known, IdSet):
                    known.discard(job_id)
                if known == job_id or (isinstance(known, IdSet) and not known):
                    del jobs[name]
            if not jobs:
                self._jobs.pop((level, is_exclusive), None)

    def in_conflict(self, taken: Iterable[NamesTaken]) -> Iterator[IdSet]:
        """Of each taken name that jobs want in a conflicting mode, the set of these jobs."""
        for level, names, is_exclusive in taken:
            for wants_all in (True, False) if is_exclusive else (True,):
                jobs = self._jobs.get((level, wants_all), {})
                for name in min(names, jobs, key=len):
                    if name in names and (known := jobs.get(name)) is not None:
                        yield known if isinstance(known, IdSet) else IdSet.of((known,))
