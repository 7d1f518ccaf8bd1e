"""The mailbox of an actor: messages, descriptors, and the end of each turn."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.actors.runtime import component
from ganger.actors.runtime.component import Mailbox, PollingMailbox
from ganger.storage import settings

DEADLINE = 10.0

TURN_ENDED = component._TURN_ENDED


@pytest.fixture(params=[Mailbox, PollingMailbox])
def mailbox(request: pytest.FixtureRequest) -> Iterator[Mailbox]:
    made: Mailbox = request.param()
    yield made
    made.close()


def take(mailbox: Mailbox, count: int) -> list[object]:
    """The next parcels; ``T`` for the end of a turn, ``Q`` for quiet, descriptors if ready."""
    taken: list[object] = []
    for _ in range(count):
        parcel = mailbox.get()
        message = getattr(parcel, "message", parcel)
        if parcel is TURN_ENDED:
            taken.append("T")
        elif parcel is component._QUIET:
            taken.append("Q")
        elif isinstance(message, component._Readable):
            taken.append(message.descriptors)
        else:
            taken.append(parcel)
    return taken


def test_a_turn_ends_once_after_a_burst(mailbox: Mailbox) -> None:
    for number in (1, 2, 3):
        mailbox.put(number)
    assert take(mailbox, 4) == [1, 2, 3, "T"]
    mailbox.put(4)
    assert take(mailbox, 2) == [4, "T"]


def test_what_comes_during_a_turn_belongs_to_it(mailbox: Mailbox) -> None:
    mailbox.put(1)
    assert take(mailbox, 1) == [1]
    mailbox.put(2)
    assert take(mailbox, 2) == [2, "T"]


def test_a_turn_ends_after_so_many_messages_at_the_latest(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TURN_MESSAGES_MAX", 2)
    for number in range(1, 6):
        mailbox.put(number)
    assert take(mailbox, 8) == [1, 2, "T", 3, 4, "T", 5, "T"]


def test_waiting_messages_are_counted(mailbox: Mailbox) -> None:
    assert mailbox.empty()
    mailbox.put(1)
    mailbox.put(2)
    assert (mailbox.qsize(), mailbox.empty()) == (2, False)
    take(mailbox, 1)
    assert mailbox.qsize() == 1


class _Watchful(queue.SimpleQueue[Any]):
    """Fails instead of blocking, and notes that the mailbox would have slept."""

    def get(self, *_: Any, **__: Any) -> Any:
        try:
            return self.get_nowait()
        except queue.Empty:
            raise _AsleepError from None


class _AsleepError(Exception):
    """The mailbox has nothing more to hand out."""


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 4))
def test_a_turn_always_ends_before_sleeping(puts: list[bool], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "TURN_MESSAGES_MAX", limit)
        mailbox = Mailbox()
        mailbox._queue = _Watchful()
        handled, in_turn = 0, 0
        for is_put in (*puts, *[False] * (3 * len(puts) + 3)):
            if is_put:
                mailbox.put(1)
                continue
            try:
                [taken] = take(mailbox, 1)
            except _AsleepError:
                # Not through `get`, so a message put after this begins a turn of its own.
                assert in_turn == 0
                mailbox._handled = 0
                continue
            if taken == "T":
                assert in_turn > 0
                in_turn = 0
            else:
                handled, in_turn = handled + 1, in_turn + 1
                assert in_turn <= limit
        assert handled == sum(puts)


@pytest.fixture
def polling() -> Iterator[PollingMailbox]:
    made = PollingMailbox()
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_descriptor_is_handed_out_when_it_is_ready(
    polling: PollingMailbox, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    polling.watch(reader)
    os.write(writer, b"x")
    assert take(polling, 2) == [[reader], "T"]
    polling.put(1)
    assert take(polling, 3) == [[reader], 1, "T"]
    os.read(reader, 1)
    polling.put(2)
    assert take(polling, 2) == [2, "T"]


def test_a_forgotten_descriptor_is_not_handed_out(
    polling: PollingMailbox, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    polling.watch(reader)
    os.write(writer, b"x")
    polling.forget(reader)
    polling.put(1)
    assert take(polling, 2) == [1, "T"]


def test_descriptors_are_not_starved_by_messages(
    polling: PollingMailbox, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TURN_MESSAGES_MAX", 3)
    reader, writer = pipe
    polling.watch(reader)
    for number in range(1, 6):
        polling.put(number)
    assert take(polling, 1) == [1]
    os.write(writer, b"x")
    assert take(polling, 7) == [2, 3, "T", [reader], 4, 5, "T"]


def test_a_message_wakes_a_mailbox_that_waits_for_descriptors(
    polling: PollingMailbox, pipe: tuple[int, int]
) -> None:
    polling.watch(pipe[0])
    for number in range(200):
        taken: list[object] = []
        sleeper = threading.Thread(target=lambda: taken.extend(take(polling, 2)))  # noqa: B023
        sleeper.start()
        polling.put(number)
        sleeper.join(DEADLINE)
        assert taken == [number, "T"]


def test_an_owner_with_patience_is_woken_though_nothing_came(mailbox: Mailbox) -> None:
    for patience in (0.001, 0):
        mailbox.patience_seconds = patience
        assert take(mailbox, 4) == ["Q", "T", "Q", "T"]
        mailbox.put(1)
        assert take(mailbox, 3) == [1, "T", "Q"]
        mailbox.put(2)
        assert take(mailbox, 2) == [2, "T"]
    mailbox.patience_seconds = None
    mailbox.put(3)
    assert take(mailbox, 2) == [3, "T"]


def test_who_has_patience_hears_of_descriptors_too(
    polling: PollingMailbox, pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    polling.watch(reader)
    polling.patience_seconds = 0.001
    assert take(polling, 2) == ["Q", "T"]
    os.write(writer, b"x")
    polling.put(1)
    assert take(polling, 3) == [[reader], 1, "T"]


def test_a_closed_mailbox_wakes_nobody(polling: PollingMailbox) -> None:
    polling.close()
    # As seen by a sender that was held up between its two steps.
    polling._is_asleep = True
    polling.put(1)
    polling.close()
    assert polling.qsize() == 1
