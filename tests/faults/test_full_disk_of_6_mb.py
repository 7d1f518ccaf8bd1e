"""A job fills a disk of 6 MB: the queue says so, and commands alone give the space back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.faults.own_namespaces import problem, told_by

from ganger.storage.disk import reserve

KIB = 1024


@pytest.fixture(name="told", scope="module")
def life_on_a_small_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if why_not := problem():
        pytest.skip(why_not)
    return told_by("tests.faults.full_disk", tmp_path_factory.mktemp("small"))


def test_a_verbose_job_is_stopped_before_it_fills_the_disk_and_says_why(
    told: dict[str, Any],
) -> None:
    why = "job 1 is running: its output is dropped: "
    assert told["why"].startswith(why)
    assert "the disk is nearly full" in told["why"]
    status = told["full of output"]
    assert status["output_dropped"]["1"].startswith("its output is dropped: ")
    assert (status["is_read_only"], status["is_disk_full"]) == (False, False)
    assert status["disk"]["output"] > 3_000 * KIB
    assert 500 * KIB < status["disk"]["free"] < 1_100 * KIB
    code, line = told["check"]
    assert (code, line.partition(" | ")[0]) == (1, "GANGER WARNING: output is dropped: job 1")
    assert told["meanwhile"][0] == 0, "others go on"


def test_commands_alone_give_the_space_back(told: dict[str, Any]) -> None:
    assert "Job 1 would be purged: " in told["dry purge"][1]
    assert told["archive"] == [0, "Job 1 is archived\n"]
    code, said = told["purge"]
    assert (code, said.startswith("Job 1 is purged: ")) == (0, True)
    assert told["emptied"]["disk"]["free"] > told["full of output"]["disk"]["free"] + 3_000 * KIB
    assert told["emptied"]["output_dropped"] == {}


def test_without_room_for_a_job_all_say_so_and_a_purge_of_small_jobs_makes_it(
    told: dict[str, Any],
) -> None:
    status = told["no room"]
    assert (status["is_read_only"], status["is_disk_full"]) == (False, False)
    assert status["lacks_room"] is True
    assert status["disk"]["jobs"] > 4 * KIB
    code, said = told["status without room"]
    lines = said.splitlines()
    assert code == 74
    assert lines[0].startswith("NO ROOM: ")
    assert "Queue:      NO ROOM on the disk: no new jobs are taken" in lines
    assert told["queue without room"][1].startswith("The queue is NO ROOM on the disk")
    code, line = told["check without room"]
    text = "GANGER CRITICAL: the disk has no room for a new job: the queue takes none"
    assert (code, line.startswith(text)) == (2, True)
    assert told["purge of large jobs"] == [0, "0 jobs purged; 0 bytes freed\n"]
    code, said = told["purge of all"]
    freed = json.loads(said)["freed_bytes"]
    assert (code, freed >= 4 * KIB) == (0, True)
    # The log and the journal may have got a block each.
    assert told["free again"] - status["disk"]["free"] >= freed - 8 * KIB
    assert told["room again"][0] == 0


def test_a_disk_on_which_nothing_is_free_is_told_of_before_a_write_fails(
    told: dict[str, Any],
) -> None:
    code, said = told["status when nothing is free"]
    lines = said.splitlines()
    assert code == 74
    assert lines[0] == ("DISK FULL: 0 bytes of 6.0 MiB free; no new jobs are taken, and none start")
    assert "`ganger job purge --larger-than 1M` removes ended jobs" in lines[1]
    assert "`ganger job purge --older-than all` all that have ended" in lines[2]
    assert "Queue:      DISK FULL: no new jobs are taken, and none start" in lines
    assert told["status as JSON"]["is_disk_full"] is True
    assert told["queue when nothing is free"][1].startswith("The queue is DISK FULL")
    assert told["reserve when nothing is free"] is True
    assert "DISK FULL: the queue takes no new jobs" in told["log"]


def test_a_disk_that_others_have_filled_to_the_last_byte_is_emptied_too(
    told: dict[str, Any],
) -> None:
    full = told["full"]
    assert full["is_read_only"] or full["is_disk_full"]
    assert (full["disk"]["reserve"], full["disk"]["free"]) == (0, 0)
    code, said = told["refused"]
    assert (code, "`ganger job purge --older-than all` all that have ended" in said) == (74, True)
    code, line = told["check when full"]
    assert (code, line.startswith("GANGER CRITICAL: ")) == (2, True)
    assert told["configured bytes"] > reserve.START_BYTES
    code, said = told["start when full"]
    assert (code, said.startswith("The daemon is ready")) == (0, True), said
    assert told["started when full"]["is_disk_full"] is True
    code, said = told["purge when full"]
    assert (code, "1 job purged; 1." in said) == (0, True), said
    assert told["at work again"][0] == 0


def test_in_the_end_all_is_as_in_the_beginning(told: dict[str, Any]) -> None:
    for state in (told["open"], told["end"]):
        assert (state["is_read_only"], state["is_disk_full"]) == (False, False)
        assert state["disk"]["reserve"] == 256 * KIB
    assert told["last job"] == [0, "well\n"]
    assert told["down"][0] == 0
    code, said = told["fsck"]
    assert (code, "clean" in said) == (0, True), said


def test_a_full_disk_with_nothing_but_jobs_that_wait_is_emptied_by_cancel_and_purge(
    told: dict[str, Any],
) -> None:
    assert told["held jobs"] == 13
    full = told["held when full"]
    assert (full["is_read_only"], full["is_disk_full"]) == (True, True)
    assert (full["disk"]["reserve"], full["disk"]["free"]) == (0, 0)
    code, said = told["cancel held"]
    assert (code, said.count("Dequeued job")) == (0, 11), said
    code, said = told["purge held"]
    assert (code, "11 jobs purged" in said) == (0, True), said


def test_a_priority_that_is_given_on_a_full_disk_leaves_a_held_job_held(
    told: dict[str, Any],
) -> None:
    code, said = told["first priority"]
    assert (code, "have been changed to -5" in said) == (0, True), said
    code, said = told["last priority"]
    # What the queue itself has just freed may let it take one change more.
    taken = "have been changed to -6" in said
    refused = "the queue takes no changes now" in said
    assert (code, taken, refused) in ((0, True, False), (74, False, True)), said
    assert told["held and left"] == 2
    code, why = told["held at the end"]
    assert (code, "is queued: paused by the rule 'hold " in why) == (0, True), why
    assert f"Its priority is {-6 if taken else -5}" in why
    assert told["released"][0] == 0
