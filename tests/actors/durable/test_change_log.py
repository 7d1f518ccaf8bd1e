"""The configuration's changes in the log: durable before the reply, in one order, never mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.actors.runtime.stage import Asker
from tests.actors.runtime.staged_log import StagedLog
from tests.refusals import refusing

from ganger.storage import config_files, settings
from ganger.storage.disk.paths import Places
from ganger.storage.log.journal import Journal
from ganger.storage.log.records import ConfigChanged, encoded
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import ChangesStored, StoreChanges


def change(serial: int, who: str = "") -> ConfigChanged:
    return ConfigChanged(serial, 6.0, who, "", [("cluster", "uuid", {"name": f"number {serial}"})])


def request(*changes: ConfigChanged, known: int | None = None) -> StoreChanges:
    base = changes[0].serial - 1
    return StoreChanges(base, base if known is None else known, [encoded(one) for one in changes])


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("log")
    made = Places(folder / "data", folder / "run")
    made.queue.mkdir(parents=True)
    first = config_files.first_configuration("uuid", 5.0)
    config_files.write(made.config, first | {"serial_no": 6})
    return made


@pytest.fixture
def log(places: Places) -> Iterator[StagedLog]:
    made = StagedLog(places)
    yield made
    made.close()


def store(log: StagedLog, message: StoreChanges) -> Asker:
    asker = Asker()
    log.take(Envelope(message, asker))
    return asker


def serials(places: Places) -> list[int]:
    """The changes that a reader finds, beside those of ``config.data``."""
    return [one.serial for one in config_files.read_stored(places.config).changes]


def test_changes_get_a_position_when_they_are_durable(places: Places, log: StagedLog) -> None:
    asker, message = Asker(), request(change(7), change(8))
    log.changes.store(Envelope(message, asker), message)
    assert asker.answers == []
    log.ledger.commit()
    first = asker.answer_as(ChangesStored).position
    second = store(log, request(change(9))).answer_as(ChangesStored).position
    assert first is not None
    assert second == first + 1 == log.ledger.position
    assert serials(places) == [7, 8, 9]


def test_jobs_and_changes_of_a_turn_share_a_flush(log: StagedLog) -> None:
    store(log, request(change(7)))
    before, done = log.ledger.flushes, list[str]()
    message = request(change(8))
    log.changes.store(Envelope(message, Asker()), message)
    log.ledger.store_state((3, 1, b"{}"), lambda: done.append("job"))
    log.ledger.commit()
    assert done == ["job"]
    assert log.ledger.flushes == before + 1


def test_a_repetition_gets_the_reply_and_is_stored_once(places: Places, log: StagedLog) -> None:
    message = request(change(7))
    assert store(log, message).answer_as(ChangesStored).position
    assert store(log, message).answer_as(ChangesStored).position
    # Also by a queue that was replaced meanwhile: it finds them in its log.
    log.ledger.close()
    other = StagedLog(places)
    asker = store(other, message)
    other.close()
    assert asker.answer_as(ChangesStored).position
    assert serials(places) == [7]
    kept = [one for one in Journal(places.journal).replay() if isinstance(one, ConfigChanged)]
    assert kept == [change(7)]


def test_a_repetition_before_the_flush_gets_the_same_reply(places: Places, log: StagedLog) -> None:
    # Whoever waits for a reply asks again whenever a component was replaced.
    askers, message = [Asker(), Asker()], request(change(7))
    for asker in askers:
        log.changes.store(Envelope(message, asker), message)
    log.ledger.commit()
    assert askers[0].answer_as(ChangesStored) == askers[1].answer
    assert serials(places) == [7]
    with refusing("pwrite"):
        askers, message = [Asker(), Asker()], request(change(8))
        for asker in askers:
            log.changes.store(Envelope(message, asker), message)
        log.ledger.commit()
    assert [asker.refusal[0] for asker in askers] == ["ReadOnlyError"] * 2


def test_changes_that_do_not_know_newer_ones_are_not_stored(places: Places, log: StagedLog) -> None:
    store(log, request(change(7, "the predecessor")))
    asker = store(log, request(change(7, "the successor"), known=6))
    assert asker.answer == ChangesStored(position=None)
    # Nor if both wait for the same flush.
    first, second = request(change(8, "one")), request(change(8, "other"))
    askers = [Asker(), Asker()]
    for each, message in zip(askers, (first, second), strict=True):
        log.changes.store(Envelope(message, each), message)
    log.ledger.commit()
    assert askers[0].answer_as(ChangesStored).position
    assert askers[1].answer == ChangesStored(position=None)
    assert serials(places) == [7, 8]


def test_a_store_that_knows_the_lost_ones_goes_on_anew(places: Places, log: StagedLog) -> None:
    store(log, request(change(7), change(8), change(9)))
    # The store has read them, and does not count them: one before was damaged, say.
    asker = store(log, request(change(7, "anew"), known=9))
    assert asker.answer_as(ChangesStored).position
    found = config_files.read_stored(places.config).changes
    assert [(one.serial, one.who) for one in found] == [(7, "anew")]


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_the_disk_refuses_is_refused_and_settled_later(
    places: Places, log: StagedLog, *, is_settled: bool
) -> None:
    store(log, request(change(7)))
    calls = ("pwrite",) if is_settled else ("fdatasync", "ftruncate")
    with refusing(*calls):
        name, _ = store(log, request(change(8))).refusal
        assert name == ("ReadOnlyError" if is_settled else "OutcomeUnknownError")
        waiting = Asker()
        log.take(Envelope(messages.AwaitSettled(), waiting))
        assert waiting.answers == []
    assert log.retry()
    assert waiting.answer == messages.Done()
    assert serials(places) == [7]
    assert store(log, request(change(8))).answer_as(ChangesStored).position
    assert serials(places) == [7, 8]


def test_each_segment_repeats_what_the_file_may_lack(
    places: Places, log: StagedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "JOURNAL_SEGMENT_BYTES", 1_000)
    store(log, request(change(7), change(8)))
    for serial in range(1, 40):
        log.ledger.store_state((3, serial, b"x" * 200), lambda: None)
        log.ledger.commit()
        assert serials(places) == [7, 8]
    assert len(list(places.journal.iterdir())) == 1
    log.take(Envelope(messages.ConfigFilesWritten(serial=7)))
    for serial in range(40, 80):
        log.ledger.store_state((3, serial, b"x" * 200), lambda: None)
        log.ledger.commit()
    kept = [one for one in Journal(places.journal).replay() if isinstance(one, ConfigChanged)]
    assert kept == [change(8)]
    configuration = config_files.first_configuration("uuid", 5.0)
    config_files.write(places.config, configuration | {"serial_no": 7})
    assert serials(places) == [8]


def test_positions_go_on_behind_those_of_a_predecessor(places: Places, log: StagedLog) -> None:
    store(log, request(change(7)))
    store(log, request(change(8)))
    before = log.ledger.position
    log.ledger.close()
    other = StagedLog(places)
    position = store(other, request(change(9))).answer_as(ChangesStored).position
    other.close()
    assert position is not None
    assert position > before
