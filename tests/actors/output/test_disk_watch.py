"""The limit of all output, and retention: measured, put in force, and carried out by the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actors.runtime.stage import Stage, Staged

from ganger.actors.output.output_reader import OutputReader
from ganger.storage import errors, settings
from ganger.storage.disk import reserve
from ganger.storage.disk.disk_parts import DiskLimits
from ganger.storage.queue_files import spool
from ganger.storage.queue_files.disk_use import DiskMeter
from ganger.storage.queue_files.output_limits import LimitsInForce
from ganger.transport import messages

KIB = 1024


def _asked(stage: Stage) -> list[Any]:
    return [one for _, one in stage.requests if isinstance(one.message, messages.ReadLimits)]


class Watch:
    """An output reader, the limits that it was told, and the queue that purges for it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.places.archive.mkdir(exist_ok=True)
        self.actor: Staged[OutputReader] = stage.start(OutputReader)
        [self.asked] = _asked(stage)

    def limit(self, **limits: Any) -> None:
        self.actor.notify(messages.DiskLimitsChanged(DiskLimits(**limits)))
        self.actor.work_off()

    def write(self, job_id: int, size: int) -> None:
        path = Path(spool.output_path(self.stage.places.queue, job_id))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))

    def look_again(self) -> None:
        self.stage.now += settings.DISK_WATCH_SECONDS
        self.actor.notify(messages.DiskWatchDue())
        self.actor.work_off()

    @property
    def refusal(self) -> str:
        return LimitsInForce(str(self.stage.places.queue)).now().refusal

    @property
    def job_bytes(self) -> int:
        return LimitsInForce(str(self.stage.places.queue)).now().job_bytes

    def purges(self) -> list[Any]:
        return self.stage.take_requests(messages.PurgeJobs)

    def answer(self, asked: Any, message: messages.Message) -> None:
        asked.reply(message)
        self.actor.handle_mail()


@pytest.fixture
def watch(stage: Stage) -> Watch:
    return Watch(stage)


def test_a_reader_that_starts_asks_for_the_limits(watch: Watch) -> None:
    disk = DiskLimits(output_job_bytes=5_000)
    watch.answer(watch.asked, messages.LimitsRead(20, 25, disk=disk))
    assert watch.job_bytes == 5_000


def test_the_limit_of_all_output_is_in_force_while_it_is_reached(watch: Watch) -> None:
    watch.write(1, 8 * KIB)
    watch.limit(output_bytes=16 * KIB)
    assert watch.refusal == ""
    watch.write(1, 16 * KIB)
    watch.look_again()
    assert watch.refusal == (
        "output and archive take 16.0 KiB, and the limit for all jobs is 16.0 KiB"
    )
    watch.write(1, 4 * KIB)
    watch.look_again()
    assert watch.refusal == ""


def test_nothing_is_looked_at_while_there_is_no_limit_and_nobody_asks(watch: Watch) -> None:
    watch.look_again()
    assert watch.stage.timers == []
    watch.limit(output_bytes=16 * KIB)
    [due] = watch.stage.timers
    assert due.seconds == settings.DISK_WATCH_SECONDS
    # The alarm may come twice.
    for _ in range(2):
        watch.look_again()
    alarms = [one.alarm for one in watch.stage.timers if one.alarm is not None]
    assert [one.is_canceled for one in alarms] == [True, True, False]
    watch.limit()
    watch.look_again()
    assert len(watch.stage.timers) == len(alarms)


def test_the_queue_hears_of_a_full_disk_from_whoever_measures(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> int:
        return len(watch.stage.take(messages.DiskSeenFull))

    monkeypatch.setattr(reserve, "space_at", lambda _: reserve.Space(free=0, total=2**30))
    asked = watch.actor.ask(messages.ReadDiskUse())
    watch.actor.work_off()
    assert asked.answer_as(messages.DiskUseRead).use.free == 0
    assert told() == 1
    watch.limit(output_bytes=16 * KIB)
    assert told() == 1


def test_growth_is_noticed_before_the_next_measurement(watch: Watch) -> None:
    watch.write(1, 8 * KIB)
    watch.limit(output_bytes=16 * KIB)
    watch.write(1, 20 * KIB)
    watch.actor.notify(messages.OutputGrew(job_id=1, size=20 * KIB))
    watch.actor.work_off()
    assert "output and archive take 20.0 KiB" in watch.refusal


def test_output_that_was_measured_counts_only_as_far_as_it_has_grown_since(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.limit(output_bytes=100 * KIB)
    for size in (60, 64):
        watch.write(1, size * KIB)
        watch.actor.notify(messages.OutputGrew(job_id=1, size=size * KIB))
        watch.look_again()
    count, measured = 0, DiskMeter.measuring

    def counted(meter: DiskMeter) -> Iterator[None]:
        nonlocal count
        count += 1
        return measured(meter)

    monkeypatch.setattr(DiskMeter, "measuring", counted)
    for size in (68, 96, 100):
        watch.write(1, size * KIB)
        watch.actor.notify(messages.OutputGrew(job_id=1, size=size * KIB))
        watch.actor.work_off()
        assert count == (size == 100)
    assert "output and archive take 100.0 KiB" in watch.refusal


def test_without_the_limit_output_is_stored_again_and_nothing_is_measured(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch.write(1, 16 * KIB)
    watch.limit(output_bytes=4 * KIB)
    assert watch.refusal
    watch.limit(output_job_bytes=7_000)
    assert (watch.refusal, watch.job_bytes) == ("", 7_000)
    watch.stage.timers.clear()
    monkeypatch.setattr(DiskMeter, "measuring", None)
    watch.look_again()
    assert watch.stage.timers == []


def test_what_is_kept_too_long_is_purged_page_by_page_and_then_after_a_while(
    watch: Watch,
) -> None:
    watch.limit(keep_seconds=60.0)
    [first] = watch.purges()
    assert first.message == messages.PurgeJobs(age_seconds=60.0)
    watch.look_again()
    assert watch.purges() == [], "one at a time"
    watch.answer(first, messages.PurgeOutcome([(1, 4096)], [], 700))
    [second] = watch.purges()
    assert second.message == messages.PurgeJobs(age_seconds=60.0, after=700)
    watch.answer(second, messages.PurgeOutcome([]))
    watch.look_again()
    assert watch.purges() == []
    watch.stage.now += settings.RETENTION_SECONDS
    watch.look_again()
    assert len(watch.purges()) == 1


def test_what_is_too_much_is_purged_until_it_is_enough(watch: Watch) -> None:
    watch.write(1, 40 * KIB)
    watch.limit(keep_bytes=10 * KIB)
    [first] = watch.purges()
    assert first.message == messages.PurgeJobs(bytes_enough=30 * KIB)
    watch.answer(first, messages.PurgeOutcome([(1, 12 * KIB)], [], 1))
    [second] = watch.purges()
    assert second.message == messages.PurgeJobs(after=1, bytes_enough=18 * KIB)
    watch.answer(second, messages.PurgeOutcome([]))


def test_a_queue_that_refuses_is_asked_again_later(watch: Watch) -> None:
    watch.write(1, 40 * KIB)
    watch.limit(keep_bytes=10 * KIB)
    [first] = watch.purges()
    first.refuse(errors.ReadOnlyError("no"))
    watch.actor.handle_mail()
    assert watch.purges() == []
    watch.look_again()
    assert len(watch.purges()) == 1
