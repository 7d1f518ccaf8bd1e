"""Which watches follow which jobs."""

from __future__ import annotations

import pytest
from tests.actors.runtime.stage import Asker

from ganger.actors.store.job_rows import JobClass, Row
from ganger.actors.store.subscriptions import Watch, WatchList
from ganger.storage import errors, settings
from ganger.storage.jobs.jobs import JobStatus, LogEntry
from ganger.transport import messages
from ganger.transport.envelopes import Envelope

ENTRY: LogEntry = (1, (5, 6), "stdout", "x")


def none_gathers() -> None:
    raise AssertionError("no watch gathers")


def row(job_id: int, status: JobStatus = JobStatus.RUNNING) -> Row:
    return Row(id=job_id, status=status, priority=0, job_class=JobClass(summary="X"))


def watch(
    of: WatchList,
    *ids: int,
    every: bool = False,
    log: bool = False,
    is_final_only: bool = False,
    is_gathered: bool = False,
    peer: bytes = b"p",
    number: int = 1,
) -> Asker:
    asker = Asker()
    request = messages.WatchJobs(ids=None if every else list(ids), log=log)
    envelope = Envelope(request, asker, number, peer=peer)
    following = Watch(
        envelope,
        None if every else set(ids),
        log=log,
        is_final_only=is_final_only,
        is_gathered=is_gathered,
    )
    of.open(following)
    return asker


def changes(of: Asker) -> list[tuple[int, str]]:
    """The changes that a watch received; its end is (0, "ended")."""
    sent = []
    for answer in of.answers:
        match answer:
            case messages.JobChanged():
                sent.append((answer.job.id, str(answer.job.status)))
            case messages.WatchEnded():
                sent.append((0, "ended"))
            case _:
                raise AssertionError(answer)
    return sent


def test_each_change_of_a_followed_job_is_sent() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, 1, 2)
    known.changed(row(1))
    known.changed(row(3))
    known.changed(row(2))
    assert changes(asker) == [(1, "running"), (2, "running")]


def test_a_watch_of_ends_gets_nothing_else() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, 1, 2, is_final_only=True)
    all_ends = watch(known, every=True, is_final_only=True, number=2)
    for status in (JobStatus.WAITING, JobStatus.RUNNING, JobStatus.ERROR):
        for job_id in (1, 2, 3):
            known.changed(row(job_id, status))
    assert changes(asker) == [(1, "error"), (2, "error"), (0, "ended")]
    assert changes(all_ends) == [(1, "error"), (2, "error"), (3, "error")]


def test_a_watch_ends_when_all_its_jobs_are_final() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, 1, 2)
    known.changed(row(1, JobStatus.SUCCESS))
    known.changed(row(2, JobStatus.ERROR))
    known.changed(row(2, JobStatus.ERROR))
    assert changes(asker) == [(1, "success"), (2, "error"), (0, "ended")]
    assert len(known) == 0


def test_a_watch_of_nothing_that_can_change_ends_at_once() -> None:
    known = WatchList(none_gathers)
    assert changes(watch(known)) == [(0, "ended")]
    assert len(known) == 0


def test_a_watch_of_every_job_does_not_end() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, every=True)
    known.changed(row(1, JobStatus.SUCCESS))
    known.changed(row(2))
    assert changes(asker) == [(1, "success"), (2, "running")]
    assert len(known) == 1


def test_log_entries_go_to_the_watches_that_include_logs() -> None:
    known = WatchList(none_gathers)
    wanting, other = watch(known, 1, log=True), watch(known, 1, number=2)
    of_all = watch(known, every=True, log=True, number=3)
    known.logged(1, 0, [ENTRY])
    known.logged(2, 4, [ENTRY])
    first, second = (
        messages.JobLogged(id=1, op_index=0, entries=[ENTRY]),
        messages.JobLogged(id=2, op_index=4, entries=[ENTRY]),
    )
    assert wanting.answers == [first]
    assert other.answers == []
    assert of_all.answers == [first, second]


def entries(*serials: int) -> list[LogEntry]:
    return [(serial, (5, 6), "stdout", str(serial)) for serial in serials]


def sent_entries(of: Asker) -> list[int]:
    return [
        entry[0]
        for answer in of.answers
        if isinstance(answer, messages.JobLogged)
        for entry in answer.entries
    ]


def test_log_entries_are_sent_once_and_in_order() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, 1, log=True)
    for serials in ((1, 2), (1, 2), (2, 3), (5, 6), (4,), (6,), (4, 5, 6, 7)):
        known.logged(1, 0, entries(*serials))
    assert sent_entries(asker) == [1, 2, 3, 4, 5, 6, 7]


def test_a_watch_that_lacks_an_entry_gets_the_whole_log_at_the_end() -> None:
    known = WatchList(none_gathers)
    asker, other = watch(known, 1, log=True), watch(known, 1, number=2)
    known.logged(1, 0, entries(1))
    assert known.lacking(1, 1) == []
    (lacking,) = known.lacking(1, 4)
    lacking.send_log(1, 0, entries(1, 3, 4))
    assert sent_entries(asker) == [1]
    lacking.send_log(1, 0, entries(1, 3, 4, 5, 7), all_until=4)
    assert sent_entries(asker) == [1, 3, 4, 5]
    assert other.answers == []


def test_each_notice_carries_the_number_of_the_watch() -> None:
    known = WatchList(none_gathers)
    asker = watch(known, 1, number=42)
    known.changed(row(1))
    assert [envelope.number for envelope in asker.envelopes] == [42]


def test_a_watch_that_is_begun_again_replaces_the_first() -> None:
    known = WatchList(none_gathers)
    first = watch(known, 1, 2, log=True)
    again = watch(known, 2)
    known.changed(row(2, JobStatus.SUCCESS))
    known.logged(2, 0, [ENTRY])
    assert first.answers == []
    assert changes(again) == [(2, "success"), (0, "ended")]
    assert len(known) == 0


def test_a_stopped_watch_gets_nothing_more() -> None:
    known = WatchList(none_gathers)
    asker, of_all = watch(known, 1), watch(known, every=True, number=2)
    known.stop(b"p", 1)
    known.stop(b"p", 1)
    known.stop(b"p", 2)
    known.changed(row(1))
    assert asker.answers == of_all.answers == []
    assert len(known) == 0


def test_the_watches_of_a_peer_that_is_gone_end_and_no_others() -> None:
    known = WatchList(none_gathers)
    gone = [watch(known, 1, peer=b"a"), watch(known, every=True, peer=b"a", number=2)]
    left = watch(known, 1, peer=b"b")
    known.stop_all_of(b"a")
    known.changed(row(1))
    assert [asker.answers for asker in gone] == [[], []]
    assert changes(left) == [(1, "running")]


def test_the_same_number_of_two_peers_is_two_watches() -> None:
    known = WatchList(none_gathers)
    one, other = watch(known, 1, peer=b"a"), watch(known, 1, peer=b"b")
    known.changed(row(1))
    assert changes(one) == changes(other) == [(1, "running")]


def test_watches_are_bounded_and_one_may_always_be_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "WATCHERS_MAX", 2)
    known = WatchList(none_gathers)
    watch(known, 1, number=1)
    watch(known, 1, number=2)
    with pytest.raises(errors.BusyError) as caught:
        watch(known, 1, number=3)
    assert caught.value.text == "2 watches are open already"
    watch(known, 2, number=2)
    assert len(known) == 2


def test_nothing_is_kept_of_watches_that_have_ended() -> None:
    known = WatchList(none_gathers)
    watch(known, *range(100))
    watch(known, *range(50), number=2)
    known.stop(b"p", 1)
    for job_id in range(50):
        known.changed(row(job_id, JobStatus.SUCCESS))
    assert (len(known), dict(known._by_job), known._of_all) == (0, {}, [])


@pytest.mark.parametrize(
    ("all_until", "sent"), [(0, [3]), (4, [3]), (5, [3, 5, 6]), (7, [3, 5, 6]), (8, [3, 5, 6, 8])]
)
def test_entries_behind_a_gap_wait_unless_no_other_can_come_before_them(
    all_until: int, sent: list[int]
) -> None:
    asker = Asker()
    envelope = Envelope(messages.WatchJobs(ids=[1], log=True), asker, 1)
    following = Watch(envelope, {1}, log=True, log_serials={1: 2})
    log: list[LogEntry] = [(serial, (5, 6), "stdout", "x") for serial in (1, 2, 3, 5, 6, 8)]
    following.send_log(1, 0, log, all_until)
    assert [serial for serial, *_ in asker.answer_as(messages.JobLogged).entries] == sent
    assert following.log_serial(1) == sent[-1]


def gathered(of: Asker) -> list[list[str]]:
    """What a gathered watch received, message by message: ``3:running``, ``3#1``, ``ended``."""
    found = []
    for answer in of.answers:
        match answer:
            case messages.JobsChanged():
                found.append([f"{job.id}:{job.status}" for job in answer.jobs])
            case messages.JobLogged():
                found.append([f"{answer.id}#{entry[0]}" for entry in answer.entries])
            case messages.WatchEnded():
                found.append(["ended"])
            case _:
                raise AssertionError(answer)
    return found


def test_a_gathered_watch_gets_changes_together_and_each_of_them() -> None:
    calls: list[str] = []
    known = WatchList(lambda: calls.append("soon"))
    asker, other = watch(known, every=True, is_gathered=True), watch(known, 1, number=2)
    for job_id, status in ((1, JobStatus.QUEUED), (2, JobStatus.QUEUED), (1, JobStatus.RUNNING)):
        known.changed(row(job_id, status))
    assert asker.answers == []
    assert changes(other) == [(1, "queued"), (1, "running")]
    assert calls == ["soon"]
    known.send_gathered()
    known.send_gathered()
    assert gathered(asker) == [["1:queued", "2:queued", "1:running"]]
    known.changed(row(2))
    assert calls == ["soon", "soon"]
    known.send_gathered()
    assert gathered(asker)[1:] == [["2:running"]]


def test_gathered_changes_come_before_later_log_entries_and_the_end() -> None:
    known = WatchList(lambda: None)
    asker = watch(known, 1, 2, log=True, is_gathered=True)
    known.changed(row(1))
    known.logged(1, 0, entries(1))
    known.changed(row(1, JobStatus.SUCCESS))
    known.changed(row(2, JobStatus.ERROR))
    assert gathered(asker) == [["1:running"], ["1#1"], ["1:success", "2:error"], ["ended"]]
    known.send_gathered()
    assert len(asker.answers) == 4


def test_not_too_many_changes_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WATCH_GATHERED_MAX", 2)
    known = WatchList(lambda: None)
    asker = watch(known, every=True, is_gathered=True)
    for job_id in (1, 2, 3):
        known.changed(row(job_id))
    assert gathered(asker) == [["1:running", "2:running"]]
    known.send_gathered()
    assert gathered(asker)[1:] == [["3:running"]]


def test_a_stopped_watch_gets_nothing_that_was_gathered() -> None:
    known = WatchList(lambda: None)
    asker, other = (watch(known, every=True, is_gathered=True, number=number) for number in (1, 2))
    known.changed(row(1))
    known.stop(b"p", 1)
    known.send_gathered()
    assert asker.answers == []
    assert gathered(other) == [["1:running"]]
