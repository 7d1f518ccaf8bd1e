"""The verbs for filter rules, of both clients, against a small daemon with real sockets."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transport.client.fake_daemon import FakeDaemon

from ganger import Client
from ganger.storage import errors
from ganger.transport.client import filter_requests
from ganger.transport.messages import ReplaceFilter, SubmitJobs

OP = {"OP_ID": "OP_TEST_DELAY", "duration": 0}
UUID = "aaaaaaaa-0000-4000-8000-000000000000"
PREDICATES = [["jobid", [">", "id", "watermark"]]]


def test_a_rule_arrives_as_it_was_written(daemon: FakeDaemon, client: Client) -> None:
    uuid = client.add_filter(
        priority=3,
        predicates=PREDICATES,
        action=["RATE_LIMIT", 4],
        reason="slow",
        valid_from=5.0,
        valid_until=6.5,
    )
    sent = daemon.store.filters[uuid]
    assert (sent.priority, sent.predicates, sent.action) == (3, PREDICATES, ["RATE_LIMIT", 4])
    assert (sent.reason, sent.valid_from, sent.valid_until) == ("slow", 5.0, 6.5)


def test_a_rule_needs_nothing(daemon: FakeDaemon, client: Client) -> None:
    sent = daemon.store.filters[client.add_filter()]
    assert (sent.priority, sent.predicates, sent.action, sent.reason) == (0, [], "CONTINUE", "")


def test_each_new_rule_gets_a_uuid_of_its_own_unless_it_is_given(
    daemon: FakeDaemon, client: Client
) -> None:
    made = {client.add_filter() for _ in range(3)}
    assert client.add_filter(uuid=UUID) == UUID
    assert set(daemon.store.filters) == made | {UUID}


def test_a_rule_is_replaced_and_made_where_there_is_none(
    daemon: FakeDaemon, client: Client
) -> None:
    assert client.replace_filter(UUID, priority=1, reason="first") == UUID
    assert client.replace_filter(UUID, action="PAUSE", valid_until=9.0) == UUID
    [sent] = daemon.store.filters.values()
    assert (sent.priority, sent.action, sent.reason) == (0, "PAUSE", "")
    assert [row.valid_until for row in client.filters([UUID])] == [9.0]


@pytest.mark.usefixtures("daemon")
def test_rules_are_listed_all_or_some(client: Client) -> None:
    client.add_filter(uuid=UUID, priority=2, action="PAUSE", reason="why")
    other = client.add_filter()
    assert [row.uuid for row in client.filters()] == [UUID, other]
    [row] = client.filters([UUID])
    assert (row.priority, row.action, row.reason_trail) == (2, "PAUSE", [["gnt:user", "why", 1]])
    assert client.filters([]) == []


def test_a_rule_is_deleted_once(daemon: FakeDaemon, client: Client) -> None:
    client.add_filter(uuid=UUID)
    client.delete_filter(UUID)
    assert daemon.store.filters == {}
    with pytest.raises(errors.UnknownFilterError, match=UUID):
        client.delete_filter(UUID)


def test_a_rule_that_is_sent_again_keeps_its_uuid(daemon: FakeDaemon, client: Client) -> None:
    # The component was replaced before it replied: whether the rule was stored is unknown.
    daemon.refusals[ReplaceFilter] = [errors.ComponentRestartedError("gone")]
    uuid = client.add_filter(action="PAUSE")
    sent = [daemon.wait_for(ReplaceFilter) for _ in range(2)]
    assert sent[0] == sent[1] == daemon.store.filters[uuid]


def test_a_rejected_job_raises_and_of_a_batch_the_others_are_named(
    daemon: FakeDaemon, client: Client
) -> None:
    daemon.store.rejected = {1: f"rejected by filter rule {UUID} (priority 0)"}
    with pytest.raises(errors.RejectedError, match=rf"^job 1 is .* {UUID} .* ids 1, 2$") as caught:
        client.submit_many([OP, OP, OP])
    assert caught.value.ids == [1, None, 2]
    assert len(daemon.store.specs) == 2


def test_a_refusal_of_the_daemon_arrives_with_its_class(daemon: FakeDaemon, client: Client) -> None:
    daemon.refusals[SubmitJobs] = [errors.RejectedError("the job is rejected by filter rule x")]
    with pytest.raises(
        errors.RejectedError, match=r"^the job is rejected by filter rule x$"
    ) as caught:
        client.submit(OP)
    assert list(caught.value.ids) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (["=", "id", 2**63], "an integer of at most 64 bits"),
        (["=", "id", "\ud800"], "text that UTF-8 can hold"),
        (["=", "id", {1: 2}], "str as key, got int"),
        (["=", "id", object()], "plain data, got object"),
    ],
)
def test_what_cannot_be_sent_of_a_rule_is_refused_with_its_place(
    client: Client, expression: list[Any], expected: str
) -> None:
    place = rf"^predicates\[0\]\[1\]\[2\]: expected {expected}$"
    rule: dict[str, Any] = {"action": "PAUSE", "predicates": [["jobid", expression]]}
    with pytest.raises(errors.FilterRuleError, match=place):
        client.add_filter(**rule)
    with pytest.raises(errors.FilterRuleError, match=place):
        client.test_filters(rule)
    with pytest.raises(errors.FilterRuleError, match=place):
        client.simulate(rule=rule)


def test_no_reason_is_taken_alike_by_a_rule_that_is_tried_and_one_that_is_stored(
    daemon: FakeDaemon, client: Client
) -> None:
    tried = filter_requests.proposed_filter({"action": "PAUSE", "reason": None})
    client.add_filter(uuid=UUID, action="PAUSE", reason=None)  # type: ignore[arg-type]
    stored = daemon.store.filters[UUID]
    assert (tried.reason, stored.reason) == ("", "")


NO_ACTION = (
    r'^action: expected one of ACCEPT, PAUSE, REJECT, CONTINUE, or \["RATE_LIMIT", n\], got '
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"action": None}, f"{NO_ACTION}NoneType$"),
        ({"action": 5}, f"{NO_ACTION}int$"),
        ({"predicates": None}, r"^predicates: expected a list of predicates, got NoneType$"),
        ({"predicates": {}}, r"^predicates: expected a list of predicates, got dict$"),
        ({"uuid": 5}, r"^uuid: expected a UUID, got int$"),
        ({"reason": 5}, r"^reason: expected a text, or a list of entries, got int$"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_argument_and_not_stored(
    daemon: FakeDaemon, client: Client, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(errors.BadRequestError, match=expected):
        client.add_filter(**{"action": "PAUSE", **fields})
    assert daemon.store.filters == {}


def test_an_empty_list_of_predicates_is_every_job_and_a_limit_may_be_one_text(
    daemon: FakeDaemon, client: Client
) -> None:
    sent = daemon.store.filters[client.add_filter(action="RATE_LIMIT 3", predicates=[])]
    assert (sent.predicates, sent.action) == ([], ["RATE_LIMIT", 3])


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("delete_filter", (5,), {}, r"^uuid: expected a UUID, got int$"),
    ("filters", (5,), {}, r"^uuids: expected a list of UUIDs, got int$"),
    ("limits", (), {"running": 0}, r"^running: expected a number from 1 on, got 0$"),
    ("limits", (), {"tracked": "5"}, r"^tracked: expected a number from 1 on, got str$"),
    ("test_filters", (5,), {}, r"^rule: expected a rule \(a dictionary\), got int$"),
    ("test_filters", (), {"without": 5}, r"^without: expected the UUID of a rule, got int$"),
    ("simulate", (), {"rule": 5}, r"^rule: expected a rule \(a dictionary\), got int$"),
    ("simulate", (), {"ended": [5]}, r"^ended: expected a dictionary by job id, got list$"),
    ("simulate", (), {"priorities": 5}, r"^priorities: expected a dictionary by job id, got int$"),
    ("set_priority", (1, "high"), {}, r"^priority: expected a whole number, got str$"),
    ("set_priority", (1, 20), {}, r"^priority: expected -20 to 19, got 20$"),
    ("autoarchive", ("7d",), {}, r"^age: expected a number of seconds, got str$"),
    ("autoarchive", (float("nan"),), {}, r"^age: expected a number of seconds, got float$"),
]


@pytest.mark.parametrize(("verb", "words", "named", "expected"), WRONG)
def test_an_argument_of_a_wrong_type_is_refused_by_its_name(
    client: Client, verb: str, words: tuple[Any, ...], named: dict[str, Any], expected: str
) -> None:
    # Without a daemon: nothing is asked of it.
    with pytest.raises(errors.BadRequestError, match=expected):
        getattr(client, verb)(*words, **named)
