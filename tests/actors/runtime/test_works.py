"""Work in slices: who has the next turn, who gets the answer, and when it ends early."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged

from ganger.actors.runtime.component import Component
from ganger.actors.runtime.works import Work
from ganger.storage import errors
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import LastId, Message, ReadLastId


class Worker(Component):
    """Writes down each slice and each message."""

    name = "worker"

    def boot(self) -> None:
        self.done: list[str] = []

    def receive(self, envelope: Envelope[Message]) -> None:
        self.done.append(type(envelope.message).__name__)

    def slices(self, name: str, count: int, end: Message | Exception | None = None) -> Work:
        """Work of so many slices, which then returns or raises ``end``."""
        try:
            for number in range(1, count):
                self.done.append(f"{name}{number}")
                yield
            self.done.append(f"{name}{count}")
            if isinstance(end, Exception):
                raise end
        except GeneratorExit:
            self.done.append(f"{name} ends early")
            raise
        return end


@pytest.fixture(name="worker")
def component_that_works(stage: Stage) -> Staged[Worker]:
    return stage.start(Worker)


def test_the_first_slice_is_taken_now_and_one_more_in_each_turn(worker: Staged[Worker]) -> None:
    worker.component.runtime.work(worker.component.slices("a", 3))
    assert worker.component.done == ["a1"]
    worker.turn(ReadLastId(), ReadLastId())
    assert worker.component.done == ["a1", "ReadLastId", "ReadLastId"]
    worker.handle_mail()
    assert worker.component.done[3:] == ["a2"]
    # The next one needs another turn, and what has come meanwhile goes first.
    assert worker.actor.mailbox.empty()
    worker.turn(ReadLastId())
    assert worker.work_off() == 1
    assert worker.component.done[4:] == ["ReadLastId", "a3"]
    worker.end_turn()
    assert worker.actor.mailbox.empty()


def test_works_of_one_component_take_turns(worker: Staged[Worker]) -> None:
    for name, count in (("a", 3), ("b", 2), ("c", 3)):
        worker.component.runtime.work(worker.component.slices(name, count))
    assert worker.component.runtime.work_count == 3
    assert worker.work_off() == 5
    assert worker.component.done == ["a1", "b1", "c1", "a2", "b2", "c2", "a3", "c3"]


def test_what_the_work_returns_answers_the_request(worker: Staged[Worker]) -> None:
    askers = [Asker(), Asker(), Asker()]
    for asker, count in zip(askers, (1, 3), strict=False):
        work = worker.component.slices("a", count, LastId(last_id=count))
        worker.component.runtime.work(work, Envelope(ReadLastId(), asker))
    assert [asker.answers for asker in askers[:2]] == [[LastId(last_id=1)], []]
    # It has answered by itself.
    worker.component.runtime.work(
        worker.component.slices("b", 2), Envelope(ReadLastId(), askers[2])
    )
    worker.work_off()
    assert askers[1].answer == LastId(last_id=3)
    assert askers[2].answers == []


@pytest.mark.parametrize("count", [1, 2])
def test_an_expected_error_refuses_the_request_alone(worker: Staged[Worker], count: int) -> None:
    asker, work = Asker(), worker.component.slices("a", count, errors.BadRequestError("no"))
    worker.component.runtime.work(worker.component.slices("b", 3))
    worker.component.runtime.work(work, Envelope(ReadLastId(), asker))
    worker.work_off()
    assert asker.refusal == ("BadRequestError", "no")
    assert worker.component.done[-1] == "b3"
    assert not worker.actor.is_over


def test_another_error_refuses_the_request_for_good_and_ends_the_component(
    stage: Stage, worker: Staged[Worker]
) -> None:
    asker, work = Asker(), worker.component.slices("a", 2, ValueError("odd"))
    worker.component.runtime.work(work, Envelope(ReadLastId(), asker))
    with pytest.raises(AssertionError, match="odd"):
        worker.work_off()
    assert asker.refusal[0] == "RequestFatalError"
    assert worker.actor.is_over
    assert "odd" in stage.log_stream.getvalue()


def test_an_error_of_work_without_a_request_ends_the_component(worker: Staged[Worker]) -> None:
    worker.component.runtime.work(worker.component.slices("a", 2, errors.BadRequestError("no")))
    with pytest.raises(AssertionError, match="no"):
        worker.work_off()
    assert worker.actor.is_over


def test_at_its_deadline_the_request_is_refused_and_its_work_ends(
    stage: Stage, worker: Staged[Worker]
) -> None:
    asker, other = Asker(), Asker()
    for name, one, outlives in (("a", asker, False), ("b", other, True)):
        work = worker.component.slices(name, 3, LastId(last_id=7))
        envelope = Envelope(ReadLastId(), one, deadline=stage.now + 5)
        worker.component.runtime.work(work, envelope, outlives_asker=outlives)
    stage.now += 5.1
    worker.work_off()
    assert worker.component.done == ["a1", "b1", "a ends early", "b2", "b3"]
    assert asker.refusal[0] == "DeadlineError"
    assert other.answer == LastId(last_id=7)


def test_work_for_a_peer_ends_with_it_unless_it_outlives_the_asker(worker: Staged[Worker]) -> None:
    askers = {}
    for name, peer, outlives in (("a", b"p", False), ("b", b"q", False), ("c", b"p", True)):
        asker = askers[name] = Asker()
        work = worker.component.slices(name, 2, LastId(last_id=7))
        envelope = Envelope(ReadLastId(), asker, peer=peer)
        worker.component.runtime.work(work, envelope, outlives_asker=outlives)
    worker.component.runtime.forget_peer(b"p")
    worker.work_off()
    assert worker.component.done == ["a1", "b1", "c1", "a ends early", "b2", "c2"]
    assert [askers[name].answers for name in "abc"] == [
        [],
        [LastId(last_id=7)],
        [LastId(last_id=7)],
    ]


def test_work_may_begin_other_work(worker: Staged[Worker]) -> None:
    component = worker.component

    def begin() -> Generator[None, None, messages.Message | None]:
        yield
        component.runtime.work(component.slices("inner", 2))
        return None

    component.runtime.work(begin())
    worker.work_off()
    assert component.done == ["inner1", "inner2"]


# In a thread.


def beside(worker: Staged[Worker], name: str, give: Callable[[], object]) -> Work:
    """Work that has a thread call ``give``, and writes down what comes of it."""
    done = worker.component.done
    done.append(f"{name} begins")
    try:
        found = yield give
    except errors.GangerError as error:
        found = error.text
    done.append(f"{name}: {found}")
    return None


def test_a_thread_does_what_the_work_yields_and_others_have_their_turns(
    worker: Staged[Worker],
) -> None:
    runtime = worker.component.runtime
    runtime.work(beside(worker, "a", lambda: worker.component.done.append("in a thread")))
    runtime.work(worker.component.slices("b", 2))
    assert worker.work_off() == 1
    assert worker.component.done == ["a begins", "b1", "b2"]
    assert worker.work_beside()
    assert worker.component.done[3:] == ["in a thread", "a: None"]
    assert not worker.work_beside()


def test_one_thread_works_at_a_time_and_not_for_who_does_not_wait(
    stage: Stage, worker: Staged[Worker]
) -> None:
    late, runtime = Asker(), worker.component.runtime
    runtime.work(beside(worker, "a", lambda: 1))
    overdue = Envelope(ReadLastId(), late, deadline=stage.now + 5)
    runtime.work(beside(worker, "b", lambda: 1 / 0), overdue)
    runtime.work(beside(worker, "c", lambda: 3))
    assert len(stage.timers) == 1
    stage.now += 5.1
    assert worker.work_beside()
    assert late.refusal[0] == "DeadlineError"
    assert worker.component.done[3:] == ["a: 1"]
    assert worker.work_beside()
    assert worker.component.done[4:] == ["c: 3"]


def test_an_error_in_the_thread_is_one_of_the_work(worker: Staged[Worker]) -> None:
    def refuse() -> None:
        raise errors.BadRequestError("no")

    asker, runtime = Asker(), worker.component.runtime
    runtime.work(beside(worker, "a", refuse))
    runtime.work(beside(worker, "b", lambda: 1 / 0), Envelope(ReadLastId(), asker))
    worker.work_beside()
    assert worker.component.done[2:] == ["a: no"]
    worker.work_beside()
    assert asker.refusal[0] == "RequestFatalError"
    assert worker.actor.is_over


def test_without_a_thread_to_be_had_the_turn_does_it(
    worker: Staged[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker.actor.dispatcher, "in_thread", refuse)
    worker.component.runtime.work(beside(worker, "a", lambda: 1))
    worker.handle_mail()
    assert worker.component.done == ["a begins", "a: 1"]
