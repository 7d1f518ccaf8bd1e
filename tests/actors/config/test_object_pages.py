"""Objects come in pages, each small enough for a reply; they are counted without reading them."""

from __future__ import annotations

import pytest
from tests import clusters

from ganger.actors.config import object_pages
from ganger.storage import errors, settings
from ganger.storage.cluster.configuration import Change, Configuration
from ganger.storage.cluster.objects import ObjectKind
from ganger.transport import frames
from ganger.transport.messages import ObjectsRead, ReadObjects

NODES = 7


@pytest.fixture(name="snapshot")
def snapshot_of_some_nodes() -> Configuration:
    return Configuration.load(clusters.made_configuration(nodes=NODES, instances=3))


def never() -> bool:
    return False


def pages(
    snapshot: Configuration, asked: ReadObjects, *, is_slow: bool = False
) -> list[ObjectsRead]:
    found = [object_pages.page(snapshot, asked, lambda: is_slow)]
    while found[-1].next_after is not None:
        following = ReadObjects(asked.kind, asked.names, found[-1].next_after)
        found.append(object_pages.page(snapshot, following, lambda: is_slow))
    return found


def uuids(read: list[ObjectsRead]) -> list[str]:
    return [one["uuid"] for page in read for one in page.objects]


ALL = sorted(clusters.uuid_of("nodes", number) for number in range(NODES))


def test_few_objects_are_one_page(snapshot: Configuration) -> None:
    read = pages(snapshot, ReadObjects(ObjectKind.NODE))
    assert len(read) == 1
    assert uuids(read) == ALL


def test_more_than_a_frame_holds_comes_in_pages(snapshot: Configuration) -> None:
    large = "x" * (settings.FRAME_BYTES_MAX // 4)
    changes = [
        Change(ObjectKind.NODE, uuid, {**snapshot.get(ObjectKind.NODE, uuid), "other": large})
        for uuid in ALL
    ]
    read = pages(snapshot.changed(changes, 1.0), ReadObjects(ObjectKind.NODE))
    assert uuids(read) == ALL
    assert all(len(frames.encode(page, 1)) < settings.FRAME_BYTES_MAX for page in read)


@pytest.mark.parametrize("names", [None, ALL[::-1], [*ALL, ALL[0]]])
def test_a_page_that_takes_too_long_ends_and_the_next_goes_on(
    snapshot: Configuration, names: list[str] | None
) -> None:
    read = pages(snapshot, ReadObjects(ObjectKind.NODE, names), is_slow=True)
    assert uuids(read) == (ALL if names is None else names)
    assert [len(page.objects) for page in read] == [1] * len(read)


def test_a_page_goes_on_behind_an_object_that_went(snapshot: Configuration) -> None:
    first = object_pages.page(snapshot, ReadObjects(ObjectKind.NODE), lambda: True)
    assert first.next_after == ALL[0]
    later = snapshot.changed([Change(ObjectKind.NODE, ALL[0], None)], 1.0)
    rest = object_pages.page(later, ReadObjects(ObjectKind.NODE, after=first.next_after), never)
    assert uuids([first, rest]) == ALL


@pytest.mark.parametrize("after", ["", "x", "-1", "1" * 5_000])
def test_what_is_no_mark_is_refused(snapshot: Configuration, after: str) -> None:
    with pytest.raises(errors.BadRequestError, match="after: expected what an earlier page"):
        object_pages.page(snapshot, ReadObjects(ObjectKind.NODE, ALL, after), never)


def test_objects_are_counted(snapshot: Configuration) -> None:
    found = object_pages.counted(snapshot)
    assert found.serial_no == snapshot.serial_no
    assert (found.counts["nodes"], found.counts["instances"]) == (NODES, 3)
    assert "cluster" not in found.counts
