"""Short scenes in which the power is lost at any moment: each could lose acknowledged data.

The campaign `power_loss` found them; each is a scene of its own here. A process is run step by
step, and between the steps enough time passes for files to be written again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.torture.power.job_threads import JOURNAL_SEGMENT_BYTES, STATE_BYTES_MAX
from tests.torture.power.machine import Machine, opcode
from tests.torture.power.power_loss import Play, lose_power_everywhere

from ganger.storage.jobs import jobs
from ganger.storage.queue_files import spool
from ganger.transport.messages import JobSpec, ListJobs

LOSSES = 1
PART = 0.4
"""At so many of a scene's moments; `make torture` takes all, and goes on (`scene_losses`)."""

RENEW = "inodes.InodePool.renew"
DROP = "job_files.QueueDirectory.drop_pages"
CHECK = "read_back.check_content"
"""What keeps a page that the disk has refused out of job files, and what finds it there."""


def text(size: int, mark: str = "w") -> str:
    """Text of which no part is like another, so that a lost or doubled part is seen."""
    words = (f"{mark}{number:06d}" for number in range(size // 8 + 1))
    return " ".join(words)[:size]


def job(*ops: object) -> JobSpec:
    return JobSpec(ops=list(ops))  # type: ignore[arg-type]


def submit(machine: Machine, *specs: JobSpec) -> None:
    machine.submit(*specs)
    machine.end_turn()


def start(machine: Machine, job_id: int) -> None:
    machine.choose(job_id)
    machine.end_turn()


def step(machine: Machine, job_id: int, count: int = 1) -> None:
    for _ in range(count):
        if job_id in machine.processes:
            machine.clock.now += 1.2
            machine.step(machine.processes[job_id])
            if machine.is_up:
                machine.end_turn()


def run(machine: Machine, job_id: int) -> None:
    while job_id in machine.processes:
        step(machine, job_id)


def restart(machine: Machine) -> None:
    machine.crash_daemon()
    machine.boot()


def renew_journal(machine: Machine) -> None:
    """So much is submitted that the journal goes on in a new segment."""
    submit(machine, job(opcode(text(JOURNAL_SEGMENT_BYTES, "r"))))
    machine.run_timers()
    machine.end_turn()


def fail_to_flush(machine: Machine) -> None:
    """The flush of the file system fails once; the next attempt, a second later, goes well."""
    machine.fails_next_sync = True
    renew_journal(machine)
    assert not machine.fails_next_sync
    machine.run_timers()
    machine.end_turn()


def ends_before_a_flush_that_failed(machine: Machine) -> None:
    submit(machine, job(opcode("a")), job(opcode("b")), job(opcode("c", words=3)))
    for job_id in (1, 2):
        start(machine, job_id)
        run(machine, job_id)
    machine.archive(2)
    machine.end_turn()
    start(machine, 3)
    step(machine, 3, 3)
    fail_to_flush(machine)
    run(machine, 3)
    renew_journal(machine)


def a_daemon_that_ends_after_a_flush_that_failed(machine: Machine) -> None:
    submit(machine, job(opcode("a")))
    start(machine, 1)
    run(machine, 1)
    machine.fails_next_sync = True
    renew_journal(machine)
    restart(machine)
    renew_journal(machine)


def a_process_that_leaves_after_a_flush_that_failed(machine: Machine) -> None:
    submit(machine, job(opcode("a", node="a")))
    start(machine, 1)
    while 1 in machine.processes and not any(machine.processes[1].sent):
        machine.step(machine.processes[1])
        machine.end_turn()
    fail_to_flush(machine)
    run(machine, 1)
    renew_journal(machine)
    renew_journal(machine)


def a_flush_that_fails_three_times_from_the_start_on(machine: Machine) -> None:
    """What is written anew must not go into a file of which the disk has refused a page."""
    submit(machine, job(opcode("a")), job(opcode("b")))
    for job_id in (1, 2):
        start(machine, job_id)
        run(machine, job_id)
    machine.fails_next_sync = True
    restart(machine)
    for is_refused in (True, True, False):
        machine.clock.now += 9.0
        machine.fails_next_sync = is_refused
        machine.run_timers()
        machine.end_turn()
    assert not machine.queue.component.store.ledger.is_read_only
    renew_journal(machine)


def a_refusal_of_which_another_program_heard(machine: Machine) -> None:
    """No flush fails: what the disk has is seen by reading it alone."""
    submit(machine, job(opcode("a")), job(opcode("b")))
    for job_id in (1, 2):
        start(machine, job_id)
        run(machine, job_id)
    machine.archive(2)
    machine.end_turn()
    machine.crash_daemon()
    machine.refuse_writing_back()
    machine.boot()
    machine.run_timers()
    machine.end_turn()
    for _ in range(2):
        machine.clock.now += 9.0
        machine.run_timers()
        machine.end_turn()
    renew_journal(machine)


def a_large_job_that_waits_when_the_disk_refuses(machine: Machine) -> None:
    """The journal does not repeat a state that it has not: the file alone has it."""
    large = job(opcode(text(STATE_BYTES_MAX), node="n"))
    submit(machine, job(opcode("a", words=9, node="n")), large)
    start(machine, 1)
    step(machine, 1, 3)
    start(machine, 2)
    step(machine, 2, 2)
    machine.refuse_writing_back()
    for _ in range(3):
        machine.clock.now += 9.0
        renew_journal(machine)


def a_page_that_leaves_the_memory_after_a_refusal(machine: Machine) -> None:
    """The journal has the job as long as nobody has found its file on the disk."""
    submit(machine, job(opcode("a")), job(opcode("b")))
    start(machine, 1)
    run(machine, 1)
    machine.rest()
    machine.refuse_writing_back()
    machine.evict_all()
    reader = machine.queue.component.store.reader
    assert jobs.decode_job(reader.document(1).body).status.is_final
    assert jobs.decode_job(reader.document(2).body).id == 2
    assert machine.queue.component.store.quarantined == []
    start(machine, 2)
    run(machine, 2)


def the_first_job(machine: Machine) -> None:
    submit(machine, job(opcode("a")))


def a_key_and_a_rule(machine: Machine) -> None:
    machine.authorise()
    machine.configure()


def changes_of_the_configuration_that_share_a_flush(machine: Machine) -> None:
    machine.configure(1)
    machine.configure(6)
    restart(machine)
    machine.configure(6)


def a_change_of_the_configuration_that_the_disk_refused(machine: Machine) -> None:
    machine.configure(1)
    machine.next_flushes_fail = [True]
    machine.configure(3)
    assert not machine.next_flushes_fail
    machine.configure(2)


def a_history_whose_flush_failed(machine: Machine) -> None:
    """The replies to changes lie in the history alone once the journal has gone."""
    machine.configure(3)
    # Of the name of the new segment, and of the history.
    machine.next_flushes_fail = [False, True]
    machine.write_whole()
    assert not machine.next_flushes_fail
    machine.configure(2)
    machine.write_whole()
    machine.configure(1)


def a_history_of_whose_refusal_another_program_heard(machine: Machine) -> None:
    machine.configure(3)
    machine.refuse_writing_back()
    for _ in range(2):
        machine.write_whole()
    machine.configure(1)
    machine.crash_daemon()
    machine.refuse_writing_back()
    machine.boot_in_vain()
    if not machine.is_up:
        machine.boot()
    machine.configure(1)


def a_job_that_waited_over_a_restart(machine: Machine) -> None:
    submit(machine, job(opcode("a"), opcode("b")), job(opcode("c")))
    restart(machine)
    start(machine, 1)
    run(machine, 1)


def a_job_reprioritised_while_a_process_was_made(machine: Machine) -> None:
    submit(machine, job(opcode("a")))
    machine.choose(1)
    machine.reprioritise(1, -5)
    renew_journal(machine)
    run(machine, 1)


def words_of_a_large_job(machine: Machine) -> None:
    submit(machine, job(opcode(text(STATE_BYTES_MAX), words=4), opcode("b", words=2)))
    start(machine, 1)
    run(machine, 1)


def words_while_no_daemon_is_there(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=3), opcode("b", words=1)))
    start(machine, 1)
    machine.crash_daemon()
    step(machine, 1, 7)
    machine.boot()
    run(machine, 1)


def files_written_over_in_place(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=4), opcode(text(9_000), words=4), opcode("c")))
    start(machine, 1)
    run(machine, 1)


def a_cancel_granted_by_a_waiting_job(machine: Machine) -> None:
    # A large state is flushed by the process itself, and not with the answer.
    large = job(opcode(text(STATE_BYTES_MAX), node="n"))
    submit(machine, job(opcode("a", words=9, node="n")), large)
    start(machine, 1)
    step(machine, 1, 3)
    start(machine, 2)
    step(machine, 2, 2)
    machine.cancel(2)
    machine.end_turn()
    # The process rests before each change on the disk: its last state comes later.
    machine.interruption = 1.0
    step(machine, 2, 9)


def a_cancel_granted_by_a_job_that_has_just_begun(machine: Machine) -> None:
    submit(machine, job(opcode(text(STATE_BYTES_MAX))))
    start(machine, 1)
    machine.cancel(1)
    machine.end_turn()
    machine.interruption = 1.0
    step(machine, 1, 9)


def a_priority_granted_by_a_waiting_job(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=9, node="n")), job(opcode("b", node="n")))
    start(machine, 1)
    step(machine, 1, 3)
    start(machine, 2)
    machine.reprioritise(2, -7)
    machine.end_turn()
    step(machine, 2, 3)


def a_state_sent_again_to_a_successor(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=9), opcode("b")))
    start(machine, 1)
    step(machine, 1, 4)
    restart(machine)
    step(machine, 1, 2)
    renew_journal(machine)
    run(machine, 1)


def an_end_sent_while_the_daemon_is_replaced(machine: Machine) -> None:
    submit(machine, job(opcode("a", node="n1")))
    start(machine, 1)
    while machine.queue.component.store.reader.rows(ListJobs(ids=[1])).rows[0].status != "running":
        step(machine, 1)
    machine.step(machine.processes[1])
    restart(machine)
    machine.step(machine.processes[1])
    renew_journal(machine)
    run(machine, 1)


def an_end_that_the_daemon_did_not_live_to_read(machine: Machine) -> None:
    submit(machine, job(opcode("a")), job(opcode("b")))
    start(machine, 1)
    step(machine, 1)
    machine.step(machine.processes[1])
    restart(machine)
    machine.end_turn()
    machine.archive(1)
    machine.end_turn()
    renew_journal(machine)


def a_process_killed_before_its_last_flush(machine: Machine) -> None:
    submit(machine, job(opcode(text(STATE_BYTES_MAX))))
    start(machine, 1)
    machine.interruption = 1.0
    path = machine.places.queue / "job-1"
    while not jobs.decode_job(path.read_bytes()).status.is_final:
        step(machine, 1)
    machine.end(machine.processes[1])
    machine.end_turn()
    machine.archive(1)
    machine.end_turn()


def the_first_job_in_the_archive(machine: Machine) -> None:
    submit(machine, job(opcode("a")), job(opcode("b")))
    start(machine, 1)
    run(machine, 1)
    restart(machine)
    machine.archive(1)
    machine.end_turn()
    for _ in range(3):
        submit(machine, job(opcode("c")))


def jobs_purged_while_the_journal_has_them(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=3)), job(opcode(text(40_000))), job(opcode("c")))
    for job_id in (1, 2, 3):
        start(machine, job_id)
        run(machine, job_id)
    machine.archive(2)
    machine.end_turn()
    machine.purge(1, 2)
    machine.end_turn()
    for _ in range(3):
        renew_journal(machine)
    machine.purge(3)
    machine.end_turn()
    restart(machine)
    machine.end_turn()
    renew_journal(machine)


def a_purge_whose_segment_goes_with_the_one_before(machine: Machine) -> None:
    def fill_segment() -> None:
        submit(machine, job(opcode(text(JOURNAL_SEGMENT_BYTES, "r"))))

    fill_segment()
    submit(machine, job(opcode("a")), job(opcode("b")))
    for job_id in (2, 3):
        start(machine, job_id)
        run(machine, job_id)
    fill_segment()
    machine.purge(2, 3)
    machine.end_turn()
    fill_segment()
    # Only now the compactor works: at the first segment, then at the two others together.
    for _ in range(3):
        machine.run_timers()
        machine.end_turn()


def a_purge_that_the_disk_refused(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=3)), job(opcode("b")))
    for job_id in (1, 2):
        start(machine, job_id)
        run(machine, job_id)
    machine.archive(1)
    machine.end_turn()
    machine.next_flushes_fail = [True]
    machine.purge(1, 2)
    machine.end_turn()
    _make_up(machine)
    machine.purge(1, 2)
    machine.end_turn()


def output_after_a_flush_that_failed(machine: Machine) -> None:
    submit(machine, job(opcode("a", words=3), opcode("b", words=2)))
    start(machine, 1)
    path = spool.output_path(machine.places.queue, 1)
    while not os.path.exists(path):
        step(machine, 1)
    machine.next_flushes_fail = [True]
    run(machine, 1)
    assert not machine.next_flushes_fail


def inputs_of_a_submission_that_was_refused(machine: Machine) -> None:
    # The files with the inputs and their folder, the record, and what takes the record out again.
    machine.next_flushes_fail = [False, False, False, True, True]
    submit(machine, job(opcode(text(9_000)), opcode(text(9_000))))
    assert not machine.next_flushes_fail
    restart(machine)
    renew_journal(machine)


def inputs_of_a_submission_that_was_refused_once_more(machine: Machine) -> None:
    machine.next_flushes_fail = [False, False, True, True]
    submit(machine, job(opcode(text(9_000))))
    machine.run_timers()
    machine.end_turn()
    renew_journal(machine)


def submissions_whose_flush_failed(machine: Machine, failures: list[bool]) -> None:
    submit(machine, job(opcode("a")))
    machine.next_flushes_fail = [*failures]
    machine.submit(job(opcode("b")), key="k")
    submit(machine, job(opcode("c")))
    _make_up(machine)


def changes_whose_flush_failed(machine: Machine, failures: list[bool]) -> None:
    submit(machine, job(opcode("a")), job(opcode("b")))
    machine.next_flushes_fail = [*failures]
    machine.cancel(1)
    machine.reprioritise(2, 7)
    machine.end_turn()
    _make_up(machine)


def _make_up(machine: Machine) -> None:
    assert not machine.next_flushes_fail
    machine.run_timers()
    machine.end_turn()


@pytest.mark.parametrize("failures", [[True], [True, True]])
@pytest.mark.parametrize("scene", [submissions_whose_flush_failed, changes_whose_flush_failed])
def test_what_was_refused_does_not_come_back_with_the_power(
    scene: Callable[[Machine, list[bool]], None], failures: list[bool], tmp_path: Path
) -> None:
    # The flush of the record, and the one that takes the record out again.
    def play(machine: Machine) -> None:
        scene(machine, failures)

    assert lose_power_everywhere(play, tmp_path, losses=4 * LOSSES) == []


SCENES: list[Play] = [
    the_first_job,
    a_key_and_a_rule,
    changes_of_the_configuration_that_share_a_flush,
    a_change_of_the_configuration_that_the_disk_refused,
    a_history_whose_flush_failed,
    a_history_of_whose_refusal_another_program_heard,
    a_job_that_waited_over_a_restart,
    a_job_reprioritised_while_a_process_was_made,
    words_of_a_large_job,
    words_while_no_daemon_is_there,
    files_written_over_in_place,
    a_cancel_granted_by_a_waiting_job,
    a_cancel_granted_by_a_job_that_has_just_begun,
    a_priority_granted_by_a_waiting_job,
    a_state_sent_again_to_a_successor,
    an_end_sent_while_the_daemon_is_replaced,
    an_end_that_the_daemon_did_not_live_to_read,
    a_process_killed_before_its_last_flush,
    the_first_job_in_the_archive,
    ends_before_a_flush_that_failed,
    a_daemon_that_ends_after_a_flush_that_failed,
    a_process_that_leaves_after_a_flush_that_failed,
    a_flush_that_fails_three_times_from_the_start_on,
    a_refusal_of_which_another_program_heard,
    a_page_that_leaves_the_memory_after_a_refusal,
    a_large_job_that_waits_when_the_disk_refuses,
    jobs_purged_while_the_journal_has_them,
    a_purge_whose_segment_goes_with_the_one_before,
    a_purge_that_the_disk_refused,
    output_after_a_flush_that_failed,
    inputs_of_a_submission_that_was_refused,
    inputs_of_a_submission_that_was_refused_once_more,
]


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_that_was_acknowledged_is_lost_or_done_twice(scene: Play, tmp_path: Path) -> None:
    assert lose_power_everywhere(scene, tmp_path, losses=LOSSES, part=PART) == []


@pytest.mark.parametrize(
    ("scene", "without"),
    [
        (a_flush_that_fails_three_times_from_the_start_on, [RENEW, DROP, CHECK]),
        (a_refusal_of_which_another_program_heard, [CHECK]),
    ],
)
def test_the_scenes_find_out_a_product_that_trusts_a_flush(
    scene: Play, without: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in without:
        monkeypatch.setattr(f"ganger.storage.queue_files.{call}", lambda *_: None)
    faults = lose_power_everywhere(scene, tmp_path, losses=2)
    assert any("quarantined" in fault for fault in faults)


@pytest.mark.parametrize("without", [RENEW, DROP])
def test_each_of_the_rules_after_a_failed_flush_is_enough(
    without: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"ganger.storage.queue_files.{without}", lambda *_: None)
    scene = a_flush_that_fails_three_times_from_the_start_on
    assert lose_power_everywhere(scene, tmp_path, losses=LOSSES, part=PART) == []
