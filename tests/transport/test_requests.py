"""The verbs as messages: what callers may write, and what they are told if it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ganger.storage import errors, settings
from ganger.storage.jobs import JobStatus
from ganger.transport import requests, watches
from ganger.transport.messages import (
    JobRows,
    JobSpec,
    JobsSubmitted,
    ListJobs,
    ReplaceFilter,
    SubmitJobs,
)

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}


def submission(jobs: Sequence[Any], **given: Any) -> SubmitJobs:
    arguments: dict[str, Any] = {
        "reason": None, "priority": None, "depends": None, "key": "k", "dry_run": False,
        "now_nanoseconds": 17,
    }  # fmt: skip
    return requests.submission(jobs, **(arguments | given))


def test_a_job_may_be_opcodes_one_opcode_a_dictionary_or_a_spec() -> None:
    jobs = [[OP, OP], OP, {"ops": [OP], "priority": 3}, JobSpec(ops=[OP])]
    specs = submission(jobs).jobs
    assert [len(spec.ops) for spec in specs] == [2, 1, 1, 1]
    assert [spec.priority for spec in specs] == [None, None, 3, None]


def test_what_a_job_leaves_out_is_taken_from_the_call() -> None:
    own = {"ops": [OP], "reason": "mine", "priority": -5, "depends": [-1]}
    first, second = submission([own, [OP]], reason="ours", priority=7, depends=[4]).jobs
    assert (first.reason, first.priority, first.depends) == (
        [("gnt:user", "mine", 17)], -5, [(-1, ["success"])],
    )  # fmt: skip
    assert (second.reason, second.priority, second.depends) == (
        [("gnt:user", "ours", 17)], 7, [(4, ["success"])],
    )  # fmt: skip


def test_a_priority_of_zero_is_a_priority() -> None:
    (spec,) = submission([{"ops": [OP], "priority": 0}], priority=7).jobs
    assert spec.priority == 0


def test_dependencies_are_ids_or_pairs() -> None:
    (spec,) = submission([OP], depends=[3, [4, ["error"]], (5, ("success", "canceled"))]).jobs
    assert spec.depends == [(3, ["success"]), (4, ["error"]), (5, ["success", "canceled"])]


def test_a_trail_is_passed_on_as_it_is() -> None:
    trail = [("gnt:client:gnt-x", "because", 5)]
    assert submission([OP], reason=trail).jobs[0].reason == trail


@pytest.mark.parametrize(
    ("jobs", "given", "text"),
    [
        (["OP_EXEC"], {}, r"jobs\[0\]: expected a list of opcodes, got str"),
        ([[OP], [OP, 5]], {}, r"jobs\[1\]\[1\]: expected an opcode .*, got int"),
        ([{"ops": [OP], "colour": 1}], {}, r"jobs\[0\]: unknown field 'colour'"),
        ([{"ops": [OP], "depends": [True]}], {}, r"jobs\[0\]\.depends\[0\]: expected a job id"),
        ([OP], {"depends": [[1, "success"]]}, r"depends\[0\]: expected a job id, or"),
        ([OP], {"depends": "1"}, "depends: expected a list, got str"),
        ([OP], {"reason": [("a", "b")]}, "reason: expected a text, or a list"),
        ([OP], {"key": "k" * (settings.KEY_BYTES_MAX + 1)}, "key: expected 1 to 200 bytes"),
        (OP, {}, "jobs: expected a list of jobs, got dict"),
    ],
)
def test_wrong_arguments_are_named(jobs: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.BadRequestError, match=text):
        submission(jobs, **given)


def test_many_ids_are_asked_for_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LIST_PAGE_ROWS", 2)
    pages = list(requests.listings([5, 3, 3, 9], ["running"], archived=False))
    assert [page.ids for page in pages] == [[3, 5], [9]]
    assert pages[0].statuses == [JobStatus.RUNNING]


def test_pages_end_even_if_the_daemon_never_says_so() -> None:
    request = ListJobs(after=8)
    assert requests.next_page(request, JobRows(rows=[], next_after=None)) is None
    assert requests.next_page(request, JobRows(rows=[], next_after=8)) is None
    assert requests.next_page(request, JobRows(rows=[], next_after=9)) == ListJobs(after=9)


def test_only_whole_fields_need_whole_jobs() -> None:
    assert not requests.needs_whole(None)
    assert not requests.needs_whole(["id", "status"])
    assert requests.needs_whole(["id", "ops"])
    with pytest.raises(errors.BadRequestError, match="unknown field 'color': expected some of id"):
        requests.needs_whole(["color"])


def test_an_unknown_status_is_named() -> None:
    with pytest.raises(errors.BadRequestError, match="'done': expected one of queued, waiting"):
        list(requests.listings(None, ["done"], archived=False))


@pytest.mark.parametrize("wrong", [0, -1, True, "7", 2**63, [7]])
def test_what_is_no_job_id_is_named(wrong: object) -> None:
    with pytest.raises(errors.BadRequestError, match="expected a positive number"):
        watches.checked_ids([1, wrong])


# Filter rules.


def test_without_a_rejection_the_ids_are_those_that_were_answered() -> None:
    assert requests.submitted(JobsSubmitted(ids=[4, 5]), 2) == [4, 5]


def test_the_ids_of_the_others_stand_at_their_places_in_the_batch() -> None:
    reply = JobsSubmitted(ids=[7, 9], rejected={1: "rejected by x", 3: "rejected by y"})
    with pytest.raises(errors.RejectedError) as caught:
        requests.submitted(reply, 4)
    assert caught.value.ids == [7, None, 9, None]
    assert str(caught.value) == (
        "job 1 is rejected by x; job 3 is rejected by y; the others have the ids 7, 9"
    )


def test_a_dry_run_that_is_rejected_in_part_names_no_ids() -> None:
    with pytest.raises(errors.RejectedError) as caught:
        requests.submitted(JobsSubmitted(ids=[], rejected={0: "rejected by x"}), 2)
    assert caught.value.ids == [None, None]
    assert str(caught.value) == "job 0 is rejected by x"


def test_of_many_ids_only_the_first_are_told() -> None:
    reply = JobsSubmitted(ids=list(range(1, 26)), rejected={25: "rejected by x"})
    with pytest.raises(errors.RejectedError, match=r"1, 2, .*, 10 and 15 more$"):
        requests.submitted(reply, 26)


def test_a_new_rule_is_named_by_the_client_so_that_it_can_be_repeated() -> None:
    first, second = (requests.new_filter(None, (None, None), action="PAUSE") for _ in range(2))
    assert first.uuid is not None
    assert len(first.uuid) == 36
    assert first.uuid != second.uuid
    assert requests.new_filter("u", (1.0, 2.5), priority=3) == ReplaceFilter(
        uuid="u", priority=3, valid_from=1.0, valid_until=2.5
    )
