"""The jobs of a kind by the taken names that they want: pure.

Jobs of a kind want other names. What is said of one of them - its weight, whether locks hold it
back - depends only on those names that have owners now, in a mode that conflicts. Owners are few,
so nearly all jobs of a kind lie in the one part that wants none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.id_sets import IdSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ...storage.prediction.lock_types import LockForecast
    from .holding import NamesTaken
    from .kinds import Kind
    from .pending_job import Pending
    from .remedies import Buckets


class Part:
    """Jobs of one kind that want the same of the taken names.

    ``needs`` and ``first``: as in `Pending.needs` and `Pending.needs_first`, of one of these jobs.
    """

    __slots__ = ("first", "ids", "kind", "needs", "priority")

    def __init__(self, kind: Kind, ids: IdSet, sample: Pending) -> None:
        self.kind = kind
        self.ids = ids
        self.priority = kind.priority
        self.needs: LockForecast | None = sample.needs
        self.first: LockForecast | None = sample.needs_first or sample.needs

    @property
    def buckets(self) -> Buckets:
        """The buckets in which each of these jobs takes a place."""
        return self.kind.buckets


def parts_of(
    kind: Kind, taken: Sequence[NamesTaken], pending: Mapping[int, Pending]
) -> Iterator[Part]:
    """All jobs of a kind, beside owners that have taken these names."""
    for ids in _split(kind.ids, kind.wanting(taken)):
        yield Part(kind, ids, pending[next(iter(ids))])


def _split(ids: IdSet, sets: Iterable[IdSet]) -> list[IdSet]:
    """The ids, by the sets that they are in."""
    found: list[IdSet] = []
    seen = IdSet()
    for one in sets:
        common = seen.shared_with(one)
        for place in range(len(found)):
            if not common:
                break
            inside = found[place].shared_with(common)
            if inside:
                common = common.without(inside)
                if len(inside) < len(found[place]):
                    found[place] = found[place].without(inside)
                    found.append(inside)
        if new := one.without(seen):
            found.append(new)
            seen.update(new)
    rest = ids.without(seen) if seen else ids
    return [rest, *found] if rest else found
