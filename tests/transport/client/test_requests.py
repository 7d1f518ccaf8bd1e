"""The verbs as messages: what callers may write, and the errors if it is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ganger.storage import errors, settings
from ganger.storage.filters import rules
from ganger.storage.jobs.jobs import JobStatus
from ganger.transport import messages
from ganger.transport.client import filter_requests, requests
from ganger.transport.messages import (
    DeleteFilter,
    FilterRow,
    JobRows,
    JobSpec,
    JobsSubmitted,
    JobSummary,
    ListFilters,
    ListJobs,
    ReadLimits,
    ReplaceFilter,
    SetLimits,
    Simulate,
    SubmitJobs,
    TestFilters,
)

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
UUID = "aaaaaaaa-0000-4000-8000-000000000000"


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


@pytest.mark.parametrize("count", [20_001, 65_536, 100_000])
def test_a_submission_of_too_many_jobs_is_refused_in_words_about_jobs(count: int) -> None:
    with pytest.raises(errors.BadRequestError) as refused:
        submission([[OP]] * count)
    assert refused.value.text == f"a submission has at most 20000 jobs, got {count}"


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


def test_arguments_are_taken_up_to_their_bounds() -> None:
    least, most = -(2**63), 2**63 - 1
    made = submission([OP], depends=[least, [most, []]], key="ä" * (settings.KEY_BYTES_MAX // 2))
    assert made.jobs[0].depends == [(least, ["success"]), (most, [])]
    made = submission([OP], depends=[most, [least, []]], key="k")
    assert made.jobs[0].depends == [(most, ["success"]), (least, [])]
    for number in (1, most):
        assert requests.positive(number, "running") == number
        assert filter_requests._by_job({number: 2}, "after") == {number: 2}
    for beyond in (0, most + 1):
        with pytest.raises(errors.BadRequestError, match="running: expected a number from 1 on"):
            requests.positive(beyond, "running")
        with pytest.raises(errors.BadRequestError, match="after: expected job ids as keys"):
            filter_requests._by_job({beyond: 2}, "after")
    for depends in ([most + 1], [least - 1], [[most + 1, []]], [[least - 1, []]]):
        with pytest.raises(errors.DependencyError, match="too large for a job id"):
            submission([OP], depends=depends)


def test_many_ids_are_counted_where_they_are_named() -> None:
    shown = requests._IDS_SHOWN_MAX
    assert requests._shown([7] * shown) == ", ".join(["7"] * shown)
    assert requests._shown([7] * (shown + 2)).endswith("7 and 2 more")


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
        ([OP], {"depends": [[True, []]]}, r"depends\[0\]: expected a job id, or"),
        ([OP], {"depends": [[True]]}, r"depends\[0\]: expected a job id, or"),
        ([OP], {"depends": [[10**30, []]]}, r"depends\[0\]: this number is too large for a job id"),
        ([OP], {"depends": [[1, "success"]]}, r"depends\[0\]: expected a job id, or"),
        ([OP], {"depends": "1"}, "depends: expected a list, got str"),
        ([OP], {"reason": [("a", "b")]}, "^reason: expected a text, or a list"),
        ([OP, {"ops": [OP], "reason": 5}], {}, r"jobs\[1\]\.reason: expected a text, or a list"),
        ([{"ops": [OP], "priority": "high"}], {}, r"jobs\[0\]\.priority: expected a whole number"),
        ([OP], {"priority": 10**30}, "^priority: "),
        ([OP], {"depends": [10**30]}, r"depends\[0\]: this number is too large for a job id"),
        ([OP], {"key": 5}, "key: expected a text, got int"),
        ([OP], {"key": ""}, "key: expected 1 to 200 bytes"),
        ([OP], {"key": "a\nb"}, r"key: expected no control characters, got 'a\\nb'"),
        ([OP], {"key": "\ud800"}, "key: holds half of a character pair"),
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


def test_pages_end_even_if_the_daemon_never_ends_them() -> None:
    request = ListJobs(after=8)
    assert requests.next_page(request, JobRows(rows=[], next_after=None)) is None
    assert requests.next_page(request, JobRows(rows=[], next_after=8)) is None
    assert requests.next_page(request, JobRows(rows=[], next_after=9)) == ListJobs(after=9)
    for next_after, follows in ((None, None), (8, None), (9, 9)):
        reply = messages.FiltersTested(rows=[], next_after=next_after)
        found = filter_requests.next_test(messages.TestFilters(after=8), reply)
        assert (None if found is None else found.after) == follows


def test_only_whole_fields_need_whole_jobs() -> None:
    assert not requests.needs_whole(None)
    assert not requests.needs_whole(["id", "status"])
    assert requests.needs_whole(["id", "ops"])
    with pytest.raises(errors.BadRequestError, match="unknown field 'color': expected some of id"):
        requests.needs_whole(["color"])


def test_an_unknown_status_is_named() -> None:
    with pytest.raises(errors.BadRequestError, match="'done': expected one of queued, waiting"):
        list(requests.listings(None, ["done"], archived=False))


# Filter rules.


def test_without_a_rejection_the_ids_are_those_that_were_answered() -> None:
    assert requests.submitted(JobsSubmitted(ids=[4, 5]), 2) == [4, 5]


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        (JobsSubmitted(ids=[4]), 2),
        (JobsSubmitted(ids=[4, 5]), 1),
        (JobsSubmitted(ids=[4, 5], rejected={2: "rejected by x"}), 1),
        (JobsSubmitted(ids=[4], rejected={2: "rejected by x"}), 1),
    ],
)
def test_the_answer_to_another_submission_is_not_taken_for_this_one(
    reply: JobsSubmitted, count: int
) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^key: another submission .* \(ids 4"):
        requests.submitted(reply, count)


def test_a_single_job_that_is_rejected_has_no_number() -> None:
    with pytest.raises(errors.RejectedError) as caught:
        requests.submitted(JobsSubmitted(ids=[], rejected={0: "rejected by x"}), 1)
    assert str(caught.value) == "the job is rejected by x"
    assert (caught.value.ids, caught.value.rejected) == ([None], {0: "rejected by x"})


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


def test_of_many_ids_only_the_first_are_named() -> None:
    reply = JobsSubmitted(ids=list(range(1, 26)), rejected={25: "rejected by x"})
    with pytest.raises(errors.RejectedError, match=r"1, 2, .*, 10 and 15 more$"):
        requests.submitted(reply, 26)


def test_a_new_rule_is_named_by_the_client_so_that_it_can_be_repeated() -> None:
    first, second = (
        filter_requests.new_filter(None, (None, None), action="PAUSE") for _ in range(2)
    )
    assert first.uuid is not None
    assert len(first.uuid) == 36
    assert first.uuid != second.uuid
    assert first.request != second.request
    assert filter_requests.new_filter("u", (1.0, 2.5), "k", priority=3) == ReplaceFilter(
        uuid="u", priority=3, valid_from=1.0, valid_until=2.5, request="k"
    )
    # Under a key of the caller, the daemon names the rule: each call would name another one.
    assert filter_requests.new_filter(None, (None, None), "k").uuid is None


@pytest.mark.parametrize("key", ["", "x" * 201, 5, "\ud800"])
def test_a_key_of_a_change_is_a_short_text(key: Any) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^key: "):
        requests.change_key(key)


# Rules that are only proposed.


def test_a_proposed_rule_has_a_uuid_that_stands_for_it_unless_it_has_its_own() -> None:
    assert filter_requests.proposed_filter({}) == ReplaceFilter(uuid=rules.PROPOSED_UUID)
    assert filter_requests.proposed_filter({"uuid": None}).uuid == rules.PROPOSED_UUID
    assert filter_requests.proposed_filter({"uuid": UUID}).uuid == UUID
    assert rules.parse_uuid(rules.PROPOSED_UUID)


def test_the_uuid_of_what_is_proposed_is_never_stored() -> None:
    with pytest.raises(errors.FilterRuleError, match=r"^uuid: f.* a rule that is only proposed$"):
        filter_requests.new_filter(rules.PROPOSED_UUID, (None, None))


def test_a_rule_that_was_listed_can_be_proposed_as_it_is() -> None:
    trail = [["gnt:user", "why", 5], ["luxid", "", 6]]
    row = FilterRow(
        uuid=UUID,
        watermark=17,
        priority=2,
        predicates=[["jobid", [">", "id", 3]]],
        action=["RATE_LIMIT", 3],
        reason_trail=trail,
        valid_until=9.0,
        state="expired",
    )
    assert filter_requests.proposed_filter(msgspec.to_builtins(row)) == ReplaceFilter(
        uuid=UUID,
        priority=2,
        predicates=[["jobid", [">", "id", 3]]],
        action=["RATE_LIMIT", 3],
        reason=trail,
        valid_until=9.0,
    )
    # As with `--fields +reason`: what was written goes before the trail.
    assert (
        filter_requests.proposed_filter({"reason": "mine", "reason_trail": trail}).reason == "mine"
    )


def test_a_limit_may_be_one_text() -> None:
    assert filter_requests.proposed_filter({"action": "RATE_LIMIT 3"}).action == ["RATE_LIMIT", 3]
    asked = filter_requests.new_filter(UUID, (None, None), action="rate-limit:4")
    assert asked.action == ["RATE_LIMIT", 4]


KNOWN = "uuid, priority, predicates, action, reason, valid_from, valid_until, name, first"
NO_ACTION = 'action: expected one of ACCEPT, PAUSE, REJECT, CONTINUE, or ["RATE_LIMIT", n], got '


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (5, "rule: expected a rule (a dictionary), got int"),
        ([], "rule: expected a rule (a dictionary), got list"),
        (
            {"acton": "PAUSE"},
            f"rule: unknown key 'acton' (did you mean action?); known are {KNOWN}",
        ),
        ({5: 1}, f"rule: unknown key '5'; known are {KNOWN}"),
        ({"x" * 100: 1}, f"rule: unknown key '{'x' * 56}...; known are {KNOWN}"),
        ({"action": None}, f"{NO_ACTION}NoneType"),
        ({"action": 5}, f"{NO_ACTION}int"),
        ({"action": {}}, f"{NO_ACTION}dict"),
        ({"action": b"PAUSE"}, f"{NO_ACTION}bytes"),
        ({"predicates": None}, "predicates: expected a list of predicates, got NoneType"),
        ({"predicates": {}}, "predicates: expected a list of predicates, got dict"),
        ({"predicates": "x"}, "predicates: expected a list of predicates, got str"),
        ({"predicates": 5}, "predicates: expected a list of predicates, got int"),
        ({"reason": 5}, "reason: expected a text, or a list of entries, got int"),
        ({"uuid": 5}, "uuid: expected a UUID, got int"),
        ({"valid_until": object()}, "valid_until: expected plain data, got object"),
    ],
)
def test_what_is_wrong_with_a_rule_is_named_as_the_caller_wrote_it(
    rule: Any, expected: str
) -> None:
    with pytest.raises(errors.BadRequestError, match=f"^{re.escape(expected)}$"):
        filter_requests.proposed_filter(rule)
    if isinstance(rule, dict) and rule.keys() <= set(filter_requests.RULE_KEYS):
        fields: dict[str, Any] = dict(rule)
        window = (fields.pop("valid_from", None), fields.pop("valid_until", None))
        with pytest.raises(errors.BadRequestError, match=f"^{re.escape(expected)}$"):
            filter_requests.new_filter(fields.pop("uuid", None), window, **fields)


def test_no_predicates_are_every_job() -> None:
    assert filter_requests.new_filter(UUID, (None, None), predicates=[]).predicates == []
    assert filter_requests.new_filter(UUID, (None, None), predicates=()).predicates == []


def simulation(**given: Any) -> Simulate:
    arguments: dict[str, Any] = dict.fromkeys(("priorities", "running", "ended", "without"))
    return filter_requests.simulation(**{"rule": None, **arguments, **given})


def test_a_simulation_has_what_was_asked() -> None:
    assert simulation() == Simulate()
    asked = simulation(
        rule={"action": "PAUSE"}, priorities={4: -20}, running=1, ended={5: "error"}, without=UUID
    )
    assert asked == Simulate(
        rule=ReplaceFilter(uuid=rules.PROPOSED_UUID, action="PAUSE"),
        without=UUID,
        priorities={4: -20},
        running_jobs_max=1,
        ended={5: JobStatus.ERROR},
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rule": 5}, "rule: expected a rule (a dictionary), got int"),
        ({"without": 5}, "without: expected the UUID of a rule, got int"),
        ({"priorities": 5}, "priorities: expected a dictionary by job id, got int"),
        ({"priorities": {"4": 5}}, "priorities: expected job ids as keys, got '4'"),
        ({"priorities": {4: "high"}}, "priorities[4]: expected a whole number, got str"),
        ({"priorities": {4: True}}, "priorities[4]: expected a whole number, got bool"),
        ({"priorities": {4: 20}}, "priorities[4]: expected -20 to 19, got 20"),
        ({"ended": [5]}, "ended: expected a dictionary by job id, got list"),
        ({"ended": {0: "success"}}, "ended: expected job ids as keys, got '0'"),
        ({"ended": {True: "success"}}, "ended: expected job ids as keys, got 'True'"),
        ({"running": 0}, "running: expected a number from 1 on, got 0"),
        ({"running": 2**63}, f"running: expected a number from 1 on, got {2**63}"),
        ({"running": "5"}, "running: expected a number from 1 on, got str"),
    ],
)
def test_what_is_wrong_with_a_simulation_is_named(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(errors.BadRequestError, match=f"^{re.escape(expected)}$"):
        simulation(**given)


def test_a_test_of_rules_takes_what_a_simulation_takes() -> None:
    assert filter_requests.filter_test(None, None) == TestFilters()
    asked = filter_requests.filter_test({"priority": 3}, UUID)
    assert asked.rule == ReplaceFilter(uuid=rules.PROPOSED_UUID, priority=3)
    assert asked.without == UUID
    with pytest.raises(errors.BadRequestError, match=r"^rule: expected a rule \(a dictionary\)"):
        filter_requests.filter_test(5, None)  # type: ignore[arg-type]
    with pytest.raises(errors.BadRequestError, match=r"^without: expected the UUID of a rule, got"):
        filter_requests.filter_test(None, 5)  # type: ignore[arg-type]


def test_limits_are_read_or_changed() -> None:
    assert requests.limits(None, None) == ReadLimits()
    assert requests.limits(3, None, "k") == SetLimits(running_jobs_max=3, request="k")
    assert requests.limits(None, 4, "k") == SetLimits(tracked_jobs_max=4, request="k")
    with pytest.raises(errors.BadRequestError, match=r"^running: expected a number from 1 on, got"):
        requests.limits(0, None)
    with pytest.raises(errors.BadRequestError, match=r"^tracked: expected a number from 1 on, got"):
        requests.limits(None, -1)


def test_rules_are_named_by_texts() -> None:
    assert filter_requests.deleted_filter(UUID, "k") == DeleteFilter(uuid=UUID, request="k")
    assert filter_requests.listed_filters(None) == ListFilters()
    assert filter_requests.listed_filters((UUID,)) == ListFilters(uuids=[UUID])
    with pytest.raises(errors.BadRequestError, match=r"^uuid: expected a UUID, got int$"):
        filter_requests.deleted_filter(5)  # type: ignore[arg-type]
    with pytest.raises(errors.BadRequestError, match=r"^uuids\[0\]: expected a UUID, got int$"):
        filter_requests.listed_filters([5])  # type: ignore[list-item]
    with pytest.raises(errors.BadRequestError, match=r"^uuids: expected a list of UUIDs, got str$"):
        filter_requests.listed_filters(UUID)


@pytest.mark.parametrize(
    ("kind", "name", "value", "place"),
    [
        ("cluster", "", 2**64, "cluster/beparams/x"),
        ("nodes", "node1", [{"a": -(2**63) - 1}], "nodes/node1/beparams/x[0].a"),
    ],
)
def test_a_number_that_no_message_holds_is_named_by_its_path(
    kind: str, name: str, value: object, place: str
) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        requests.set_values(kind, name, {"beparams/x": value}, "")
    assert caught.value.text == f"{place}: expected an integer of at most 64 bits"


def test_each_field_of_a_listed_job_keeps_its_name_on_the_way_to_the_caller() -> None:
    names: Any = JobSummary.__struct_fields__
    view = requests.summary_view(JobSummary(*names))
    assert [getattr(view, name) for name in names] == [*names]
