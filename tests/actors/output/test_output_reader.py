from __future__ import annotations

from pathlib import Path

import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.refusals import refusing

from ganger.actors.output.output_reader import OutputReader
from ganger.storage import settings
from ganger.storage.disk import free_memory
from ganger.storage.queue_files import disk_use, spool
from ganger.storage.queue_files.output_blocks import STORED_BYTES_MAX
from ganger.transport import messages


class Reader:
    """A reader on a stage, and the file that it reads."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.actor: Staged[OutputReader] = self.stage.start(OutputReader)

    def write(self, job_id: int, data: bytes) -> None:
        path = Path(spool.output_path(self.stage.places.queue, job_id))
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as stream:
            stream.write(data)

    def ask(self, job_id: int, offset: int, wait: float = 0.0, peer: bytes = b"p") -> Asker:
        known = offset if wait else 0
        asked = messages.ReadOutput(id=job_id, offset=offset, wait_seconds=wait, known=known)
        asker = self.actor.say(asked, peer=peer)
        self.actor.end_turn()
        return asker

    @property
    def patience(self) -> float | None:
        return self.actor.component.runtime.patience_seconds


@pytest.fixture
def reader(stage: Stage) -> Reader:
    return Reader(stage)


def page(data: bytes, size: int) -> messages.OutputPage:
    return messages.OutputPage(data=data, size=size)


def test_a_page_is_what_lies_in_the_file(reader: Reader) -> None:
    reader.write(1, b"0123456789")
    assert reader.ask(1, 4).answer == page(b"456789", 10)
    assert reader.ask(1, 10).answer == page(b"", 10)
    assert reader.ask(2, 0).answer == page(b"", 0)


def test_a_page_has_a_largest_size_and_room_for_a_block(reader: Reader) -> None:
    reader.write(1, bytes(3 * settings.OUTPUT_PAGE_BYTES))
    assert len(reader.ask(1, 0).answer_as(messages.OutputPage).data) == settings.OUTPUT_PAGE_BYTES
    for wanted, count in [(1, STORED_BYTES_MAX), (10**9, settings.OUTPUT_PAGE_BYTES)]:
        asker = reader.actor.ask(messages.ReadOutput(id=1, bytes_max=wanted))
        assert len(asker.answer_as(messages.OutputPage).data) == count


def test_a_follower_gets_new_output(reader: Reader) -> None:
    asker = reader.ask(1, 0, wait=5)
    assert asker.answers == []
    reader.write(1, b"more")
    reader.actor.notify(messages.OutputGrew(job_id=2, size=9))
    # A job's process repeats the size that it told a predecessor.
    reader.actor.notify(messages.OutputGrew(job_id=1, size=0))
    assert asker.answers == []
    reader.actor.notify(messages.OutputGrew(job_id=1, size=4))
    assert asker.answer == page(b"more", 4)
    reader.actor.notify(messages.OutputGrew(job_id=1, size=5))
    assert len(asker.answers) == 1


def test_a_follower_of_a_torn_end_waits_until_there_is_more(reader: Reader) -> None:
    reader.write(1, b"torn")
    asked = messages.ReadOutput(id=1, offset=0, known=4, wait_seconds=5)
    asker = reader.actor.ask(asked)
    assert asker.answers == []
    reader.write(1, b"+")
    reader.actor.notify(messages.OutputGrew(job_id=1, size=5))
    assert asker.answer == page(b"torn+", 5)


def test_a_follower_who_lags_by_pages_waits_for_none_of_them(reader: Reader) -> None:
    size = 3 * settings.OUTPUT_PAGE_BYTES
    reader.write(1, bytes(size))
    asked = messages.ReadOutput(id=1, offset=size // 3, known=size // 3, wait_seconds=5)
    answer = reader.actor.ask(asked).answer_as(messages.OutputPage)
    assert (len(answer.data), answer.size) == (settings.OUTPUT_PAGE_BYTES, size)


def test_a_follower_waits_for_a_limited_time(reader: Reader) -> None:
    first = reader.ask(1, 0, wait=3, peer=b"a")
    second = reader.ask(1, 0, wait=1e9, peer=b"b")
    assert reader.patience == pytest.approx(3, abs=0.01)
    reader.stage.now += 3
    reader.actor.be_quiet()
    assert (first.answer, second.answers) == (page(b"", 0), [])
    reader.stage.now += settings.OUTPUT_WAIT_SECONDS_MAX
    reader.actor.be_quiet()
    assert second.answer == page(b"", 0)
    assert reader.patience is None


def test_output_without_a_notice_is_found_when_the_time_is_over(reader: Reader) -> None:
    asker = reader.ask(1, 0, wait=3)
    reader.write(1, b"untold")
    reader.stage.now += 3.01
    reader.actor.be_quiet()
    assert asker.answer == page(b"untold", 6)


def test_a_new_question_of_a_follower_ends_the_wait_of_its_last_one(reader: Reader) -> None:
    waiting, other = reader.ask(1, 0, wait=5), reader.ask(1, 0, wait=5, peer=b"other")
    last = reader.ask(1, 0)
    assert (waiting.answer, last.answer) == (page(b"", 0), page(b"", 0))
    assert other.answers == []


def test_too_many_waits_are_refused(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "OUTPUT_WAITS_MAX", 1)
    reader.ask(1, 0, wait=5)
    assert reader.ask(2, 0, wait=5).refusal[0] == "BusyError"


def test_an_unreadable_file_is_reported(reader: Reader) -> None:
    Path(spool.output_path(reader.stage.places.queue, 1)).mkdir(parents=True)
    assert reader.ask(1, 0).refusal[0] == "StorageError"
    waiting = reader.ask(2, 0, wait=5)
    Path(spool.output_path(reader.stage.places.queue, 2)).mkdir()
    reader.actor.notify(messages.OutputGrew(job_id=2, size=5))
    assert waiting.refusal[0] == "StorageError"


def test_the_use_of_the_disk_is_measured_for_each_who_asks(reader: Reader) -> None:
    reader.stage.places.archive.mkdir(exist_ok=True)
    for size in (4096, 8192):
        reader.write(1, bytes(4096))
        asked = reader.actor.say(messages.ReadDiskUse())
        reader.actor.work_off()
        assert asked.answer_as(messages.DiskUseRead).use.output == size


def test_who_asks_while_it_is_measured_gets_a_later_measurement(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_use, "_FILES_AT_ONCE", 1)
    reader.write(1, bytes(4096))
    first = reader.actor.say(messages.ReadDiskUse())
    assert first.answers == []
    reader.write(1, bytes(4096))
    second = reader.actor.say(messages.ReadDiskUse())
    reader.actor.work_off()
    sizes = [one.answer_as(messages.DiskUseRead).use.output for one in (first, second)]
    assert sizes == [4096, 8192]


def test_a_disk_that_cannot_be_measured_is_refused_and_asked_again(reader: Reader) -> None:
    with refusing("statvfs"):
        refused = reader.actor.say(messages.ReadDiskUse())
        reader.actor.work_off()
    assert refused.refusal[0] == "StorageError"
    again = reader.actor.say(messages.ReadDiskUse())
    reader.actor.work_off()
    assert again.answer_as(messages.DiskUseRead).use.free > 0


def test_the_memory_of_large_pages_goes_back_when_no_more_is_read(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    monkeypatch.setattr(free_memory, "give_back", lambda: given.append(reader.stage.now))
    reader.write(1, bytes(2 * settings.OUTPUT_PAGE_BYTES))
    reader.write(2, b"little")
    reader.ask(2, 0)
    assert reader.patience is None
    for offset in (0, settings.OUTPUT_PAGE_BYTES):
        reader.ask(1, offset)
        reader.stage.now += 1.5
        reader.actor.be_quiet()
        assert given == []
    assert reader.patience == pytest.approx(0.5, abs=0.01)
    # A request for little does not put it off.
    reader.ask(2, 0)
    reader.stage.now += 0.5
    reader.actor.be_quiet()
    assert given == [reader.stage.now]
    reader.stage.now += 10
    reader.actor.be_quiet()
    assert (len(given), reader.patience) == (1, None)
