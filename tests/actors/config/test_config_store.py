"""The configuration store on a stage: it tells each what concerns it, and keeps the rest."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actors.runtime.stage import Asker, Stage, Staged
from tests.refusals import OneRefusal, refuse

from ganger.actors.config.config_store import ConfigStore
from ganger.actors.runtime.mailbox import Expired
from ganger.storage import config_files, settings
from ganger.storage.disk import descriptors
from ganger.storage.disk.disk_parts import DiskLimits
from ganger.storage.filters.rules import RULES_MAX, parse_rule, to_raw
from ganger.transport import messages
from ganger.transport.envelopes import Envelope
from ganger.transport.messages import Message

RULE = {"uuid": "aaaaaaaa-0000-4000-8000-000000000000", "watermark": 1, "action": "PAUSE"}


def on_disk(stage: Stage) -> dict[str, Any]:
    """The configuration on disk."""
    found = config_files.read(stage.places.config)
    assert found is not None
    return found


def test_the_first_start_makes_a_configuration(stage: Stage) -> None:
    stage.start(ConfigStore)
    found = config_files.read(stage.places.config)
    assert found is not None
    assert found["cluster"]["max_running_jobs"] == settings.RUNNING_JOBS_MAX
    assert len(found["cluster"]["uuid"]) == 36


def test_the_next_start_leaves_it_as_it_is(stage: Stage) -> None:
    data = b'{"cluster": {"max_running_jobs": 7},  "filters": {}, "of_somebody": [1]}\n'
    stage.places.config.write_bytes(data)
    stage.start(ConfigStore)
    assert stage.places.config.read_bytes() == data


def test_each_component_gets_its_part_of_the_configuration(stage: Stage) -> None:
    configuration = {"cluster": {"max_running_jobs": 7}, "filters": {"a": RULE}}
    stage.places.config.write_bytes(msgspec.json.encode(configuration))
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged, to="filter_evaluator").rules == [parse_rule(RULE)]
    assert stage.take_one(messages.LimitsChanged, to="scheduler").running_jobs_max == 7


def test_a_malformed_rule_is_left_out_named_and_kept(stage: Stage) -> None:
    data = msgspec.json.encode({"filters": {"a": {**RULE, "action": "STOP"}, "b": RULE}})
    stage.places.config.write_bytes(data)
    store = stage.start(ConfigStore)
    assert "filter rule is left out" in stage.log_stream.getvalue()
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged).rules == [parse_rule(RULE)]
    assert stage.places.config.read_bytes() == data


@pytest.mark.parametrize("data", [b"{}", b'{"cluster": {}}'])
def test_what_is_not_configured_has_its_default(stage: Stage, data: bytes) -> None:
    stage.places.config.write_bytes(data)
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged).rules == []
    assert stage.take_one(messages.LimitsChanged).running_jobs_max == settings.RUNNING_JOBS_MAX


def test_a_malformed_parameter_of_the_policy_is_named_once_and_the_others_are_in_force(
    stage: Stage,
) -> None:
    own = {"tick_seconds": "soon", "ticks": 5, "costs": {"blocks": -1, "free": 0.25}}
    data = msgspec.json.encode({"cluster": {"predictive_queue": own}})
    stage.places.config.write_bytes(data)
    store = stage.start(ConfigStore)
    for _ in range(3):
        store.notify(messages.ReportConfiguration())
    policies = [one.policy for _, one in stage.sent if isinstance(one, messages.PolicyChanged)]
    assert {
        (one.tick_seconds, one.ticks, one.costs.free, one.costs.blocks) for one in policies
    } == {(30.0, 5.0, 0.25, 3.0)}
    tick = "cluster.predictive_queue.tick_seconds: expected float"
    logged = stage.log_stream.getvalue()
    assert logged.count(tick) == logged.count("cluster.predictive_queue.costs.blocks: ") == 1
    limits = store.ask(messages.ReadLimits()).answer
    assert isinstance(limits, messages.LimitsRead)
    assert [one.partition(":")[0] for one in limits.not_in_force] == [
        "cluster.predictive_queue.tick_seconds",
        "cluster.predictive_queue.costs.blocks",
    ]


def test_it_sends_rules_and_limits_when_it_starts(stage: Stage) -> None:
    stage.make(ConfigStore, incarnation=1).actor.handle(Envelope(messages.Boot()))
    assert [type(message) for _, message in stage.sent] == [
        messages.RulesChanged,
        messages.PolicyChanged,
        messages.LimitsChanged,
        messages.DiskLimitsChanged,
        messages.ForecastsOutdated,
        messages.ForecastsOutdated,
        messages.ComponentReady,
    ]


def test_a_broken_configuration_is_no_configuration(stage: Stage) -> None:
    stage.places.config.write_bytes(b'{"cluster": {"max_running_jobs": 0}}')
    stage.make(ConfigStore, incarnation=1).actor.handle(Envelope(messages.Boot()))
    failed = stage.take_one(messages.ComponentFailed, to="supervisor")
    assert failed.text == (
        f"{stage.places.config}: cluster.max_running_jobs: expected a positive integer, got 0"
    )


# Filter rules.

UUID = "cccccccc-0000-4000-8000-000000000000"


def replace(**fields: Any) -> messages.ReplaceFilter:
    return messages.ReplaceFilter(**({"uuid": UUID, "action": "PAUSE"} | fields))


def report_last_id(store: Staged[ConfigStore], request: Envelope, last_id: int) -> None:
    """The queue replies."""
    request.reply(messages.LastId(last_id=last_id))
    store.handle_mail()


def store_with_rule(stage: Stage) -> Staged[ConfigStore]:
    """A store with one rule, which is not yet in force."""
    store = stage.start(ConfigStore)
    store_rule(stage, store, last_id=1)
    return store


def store_rule(stage: Stage, store: Staged[ConfigStore], *, last_id: int, **fields: Any) -> Asker:
    """Through to the evaluator: the rule is on disk, and not yet in force."""
    asker = store.say(replace(**fields))
    [request] = stage.take_requests(messages.ReadLastId)
    report_last_id(store, request, last_id)
    return asker


def stored(stage: Stage) -> Any:
    return on_disk(stage)["filters"]


def test_a_rule_is_answered_when_it_is_on_disk_and_in_force(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    asker = store.say(replace(priority=2, predicates=[["jobid", [">", "id", "watermark"]]]))
    [request] = stage.take_requests(messages.ReadLastId)
    assert stored(stage) == {}
    report_last_id(store, request, 41)
    rule = stored(stage)[UUID]
    assert (rule["watermark"], rule["priority"], rule["action"]) == (41, 2, "PAUSE")
    changed = stage.take_one(messages.RulesChanged, to="filter_evaluator")
    assert [to_raw(one) for one in changed.rules] == [rule]
    assert asker.answers == []
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert asker.answer == messages.FilterStored(uuid=UUID)
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert len(asker.answers) == 1


def full(stage: Stage, count: int) -> None:
    rules = {f"{n:08x}-0000-4000-8000-000000000000": RULE for n in range(count)}
    known = {uuid: {**rule, "uuid": uuid} for uuid, rule in rules.items()}
    stage.places.config.write_bytes(msgspec.json.encode({"filters": known}))


def test_a_rule_too_many_is_refused_and_nothing_is_changed(stage: Stage) -> None:
    full(stage, RULES_MAX)
    before = stage.places.config.read_bytes()
    store = stage.start(ConfigStore)
    name, text = store.say(replace()).refusal
    assert name == "FilterRuleError"
    assert f"no more than {RULES_MAX} are kept" in text
    assert stage.take_requests(messages.ReadLastId) == []
    assert stage.places.config.read_bytes() == before


def test_of_two_that_ask_for_the_last_place_one_is_refused(stage: Stage) -> None:
    full(stage, RULES_MAX - 1)
    store = stage.start(ConfigStore)
    askers = [store.say(replace(uuid=None)) for _ in range(2)]
    for request in stage.take_requests(messages.ReadLastId):
        request.reply(messages.LastId(last_id=1))
    store.handle_mail()
    assert len(stored(stage)) == RULES_MAX
    changed = stage.take_one(messages.RulesChanged)
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert isinstance(askers[0].answer, messages.FilterStored)
    assert f"no more than {RULES_MAX} are kept" in askers[1].refusal[1]


def test_a_change_leaves_the_rest_of_the_configuration_as_it_is(stage: Stage) -> None:
    data = b'{"cluster": {"max_running_jobs": 7}, "of_somebody": [1], "serial_no": 3}'
    stage.places.config.write_bytes(data)
    store_with_rule(stage)
    found = on_disk(stage)
    assert (found["cluster"], found["of_somebody"]) == ({"max_running_jobs": 7}, [1])
    assert found["serial_no"] == 4


def test_a_rule_without_a_uuid_gets_one(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    first = store_rule(stage, store, last_id=1, uuid=None)
    second = store_rule(stage, store, last_id=1, uuid=None)
    changed = stage.take(messages.RulesChanged)[-1]
    store.notify(messages.RulesApplied(serial=changed.serial))
    made = {asker.answer_as(messages.FilterStored).uuid for asker in (first, second)}
    assert len(made) == 2
    assert set(stored(stage)) == made


def test_a_rule_with_a_known_uuid_is_replaced_whole_with_a_new_watermark(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    store_rule(stage, store, last_id=1, priority=9, reason="first")
    store_rule(stage, store, last_id=5, action="REJECT")
    [rule] = stored(stage).values()
    assert (rule["watermark"], rule["priority"], rule["action"]) == (5, 0, "REJECT")
    assert [text for _, text, _ in rule["reason_trail"]] == [""]


def test_each_change_is_answered_when_it_is_in_force_and_not_before(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    first = store_rule(stage, store, last_id=1)
    second = store_rule(stage, store, last_id=1, uuid=None)
    third = store.say(messages.DeleteFilter(uuid=UUID))
    one, two, three = [changed.serial for changed in stage.take(messages.RulesChanged)]
    store.notify(messages.RulesApplied(serial=one))
    assert [len(asker.answers) for asker in (first, second, third)] == [1, 0, 0]
    # Rules that came quickly one after the other may come into force together.
    store.notify(messages.RulesApplied(serial=three))
    assert [len(asker.answers) for asker in (first, second, third)] == [1, 1, 1]
    assert one < two < three


def test_a_confirmation_to_an_earlier_incarnation_answers_no_request(stage: Stage) -> None:
    store_with_rule(stage)
    old = stage.take_one(messages.RulesChanged).serial
    successor = stage.start(ConfigStore, 2)
    asker = store_rule(stage, successor, last_id=1)
    successor.notify(messages.RulesApplied(serial=old))
    assert asker.answers == []
    assert stage.take_one(messages.RulesChanged).serial > old


def test_a_report_carries_the_serial_of_a_change_that_is_under_way(stage: Stage) -> None:
    # The evaluator was replaced and asks: what it brings into force then answers the change.
    store = stage.start(ConfigStore)
    asker = store_rule(stage, store, last_id=1)
    serial = stage.take_one(messages.RulesChanged).serial
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.RulesChanged).serial == serial
    store.notify(messages.RulesApplied(serial=serial))
    assert asker.answer == messages.FilterStored(uuid=UUID)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"uuid": UUID.upper()}, "uuid: Unable to parse UUID"),
        ({"priority": -1}, "priority: Invalid value for non-negative type '-1'"),
        ({"priority": 1.5}, "priority: "),
        ({"action": "STOP"}, "action: malformed FilterAction JSON"),
        ({"action": ["RATE_LIMIT", 0]}, "action: RATE_LIMIT argument must be a positive"),
        ({"action": ["PAUSE"]}, "action: "),
        ({"predicates": [["colour", None]]}, "predicates[0]: malformed FilterPredicate"),
        ({"predicates": [["jobid", ["<", "id"]]]}, "predicates[0][1]: '<' takes 2"),
        (
            {"predicates": [["jobid", None], ["reason", ["|", None, ["=~", "reason", "("]]]]},
            "predicates[1][1][2][2]: broken regular expression '('",
        ),
        ({"predicates": [["opcode", ["==", "OP_ID", 1.5]]]}, "predicates[0][1][2]: expected"),
        ({"predicates": {}}, "predicates: expected a list"),
        ({"reason": [["a", "b"]]}, "reason_trail[0]: expected"),
        ({"reason": 7}, "reason_trail: expected a list"),
        ({"valid_from": "soon"}, "valid_from: expected a time"),
        ({"valid_from": 5.0, "valid_until": 5.0}, "valid_until: must be later"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_place_and_changes_nothing(
    stage: Stage, fields: dict[str, Any], place: str
) -> None:
    store = stage.start(ConfigStore)
    before = stage.places.config.read_bytes()
    error, text = store.ask(replace(**fields)).refusal
    assert error == "FilterRuleError"
    assert text.startswith(place), text
    assert stage.places.config.read_bytes() == before
    assert stage.sent == []


def test_a_rule_is_deleted_when_it_is_no_longer_in_force(stage: Stage) -> None:
    store = store_with_rule(stage)
    stage.sent.clear()
    asker = store.say(messages.DeleteFilter(uuid=UUID))
    assert stored(stage) == {}
    changed = stage.take_one(messages.RulesChanged)
    assert (changed.rules, asker.answers) == ([], [])
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert asker.answer == messages.Done()


def test_a_deletion_does_not_overtake_a_rule_that_was_asked_for_before(stage: Stage) -> None:
    # A repeated request, say: the rule was answered, then it was deleted.
    store = store_with_rule(stage)
    repeated = store.say(replace())
    deleted = store.say(messages.DeleteFilter(uuid=UUID))
    [request] = stage.take_requests(messages.ReadLastId)
    report_last_id(store, request, 1)
    assert stored(stage) == {}
    changed = stage.take(messages.RulesChanged)[-1]
    assert changed.rules == []
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert repeated.answer == messages.FilterStored(uuid=UUID)
    assert deleted.answer == messages.Done()


def test_changes_of_rules_are_made_in_the_order_in_which_they_were_asked_for(stage: Stage) -> None:
    # The queue that was asked first is gone, and its successor was asked for the second rule.
    store = stage.start(ConfigStore)
    askers = [store.say(replace()), store.say(replace(action="REJECT"))]
    first, second = stage.take_requests(messages.ReadLastId)
    for request, last_id in ((second, 4), (first, 3)):
        request.reply(messages.LastId(last_id=last_id))
    store.handle_mail()
    store.hear_of_restart("job_queue")
    for request in stage.take_requests(messages.ReadLastId):
        request.reply(messages.LastId(last_id=5))
    store.handle_mail()
    rule = stored(stage)[UUID]
    assert (rule["action"], rule["watermark"]) == ("REJECT", 4)
    changed = stage.take(messages.RulesChanged)[-1]
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert [asker.answer for asker in askers] == [messages.FilterStored(uuid=UUID)] * 2


def test_what_waits_for_the_queue_is_asked_for_again_when_the_queue_is_replaced(
    stage: Stage,
) -> None:
    store = stage.start(ConfigStore)
    store.say(replace())
    other = UUID.replace("c", "d")
    store.say(replace(uuid=other))
    stage.take_requests(messages.ReadLastId)
    store.hear_of_restart("job_queue")
    for request in stage.take_requests(messages.ReadLastId):
        request.reply(messages.LastId(last_id=5))
    store.handle_mail()
    assert set(stored(stage)) == {UUID, other}


def test_a_reply_of_the_queue_to_an_earlier_incarnation_is_no_watermark(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    for _ in range(3):
        store.say(replace())
    old = stage.take_requests(messages.ReadLastId)
    successor = stage.start(ConfigStore, 2)
    successor.say(replace())
    for request in old:
        request.reply(messages.LastId(last_id=1))
    successor.handle_mail()
    assert stored(stage) == {}


def test_a_rule_that_the_queue_does_not_answer_is_refused_and_holds_up_nothing(
    stage: Stage,
) -> None:
    store = store_with_rule(stage)
    other = UUID.replace("c", "d")
    late, deleted = store.say(replace(uuid=other)), store.say(messages.DeleteFilter(uuid=UUID))
    store.handle(Expired(store.component.runtime._asked_last))
    assert late.refusal[0] == "DeadlineError"
    assert stored(stage) == {}
    [request] = stage.take_requests(messages.ReadLastId)
    report_last_id(store, request, 2)
    assert stored(stage) == {}
    changed = stage.take(messages.RulesChanged)[-1]
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert deleted.answer == messages.Done()


def test_a_deletion_that_waited_for_its_turn_is_refused_to_the_one_that_asked(
    stage: Stage,
) -> None:
    store = stage.start(ConfigStore)
    asker = store.say(replace())
    deleted = store.say(messages.DeleteFilter(uuid=UUID.replace("c", "d")))
    [request] = stage.take_requests(messages.ReadLastId)
    report_last_id(store, request, 1)
    assert deleted.refusal[0] == "UnknownFilterError"
    changed = stage.take_one(messages.RulesChanged)
    store.notify(messages.RulesApplied(serial=changed.serial))
    assert asker.answer == messages.FilterStored(uuid=UUID)


@pytest.mark.parametrize(
    ("uuid", "refusal"),
    [
        (UUID, ("UnknownFilterError", f"Filter rule with UUID {UUID} does not exist")),
        ("x", ("UnknownFilterError", "there is no filter rule with the UUID or name 'x'")),
    ],
)
def test_only_a_rule_that_is_there_can_be_deleted_or_asked_for(
    stage: Stage, uuid: str, refusal: tuple[str, str]
) -> None:
    store = stage.start(ConfigStore)
    assert store.ask(messages.DeleteFilter(uuid=uuid)).refusal == refusal
    assert store.ask(messages.ListFilters(uuids=[uuid])).refusal == refusal
    assert stage.sent == []


def test_a_name_that_no_rule_has_is_answered_with_the_one_that_is_meant(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    store.say(replace(name="hold node/n7"))
    [request] = stage.take_requests(messages.ReadLastId)
    report_last_id(store, request, 1)
    _, text = store.ask(messages.ListFilters(uuids=["hold nod/n7"])).refusal
    assert text.endswith("or name 'hold nod/n7' (did you mean hold node/n7?)")


def test_rules_are_listed_in_the_order_in_which_they_are_looked_at(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    store_rule(stage, store, last_id=1, priority=5)
    first = UUID.replace("c", "f")
    store_rule(stage, store, last_id=2, uuid=first)
    everything = store.ask(messages.ListFilters()).answer_as(messages.FiltersListed)
    assert [row.uuid for row in everything.filters] == [first, UUID]
    some = store.ask(messages.ListFilters(uuids=[UUID])).answer_as(messages.FiltersListed)
    assert [row.uuid for row in some.filters] == [UUID]
    assert store.ask(messages.ListFilters(uuids=[])).answer == messages.FiltersListed(filters=[])


def test_a_disk_that_refuses_changes_neither_rules_nor_limits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_rule(stage)
    stage.sent.clear()
    refuse(monkeypatch, "open", "fsync", "fdatasync", "replace", "rename")
    asker = store_rule(stage, store, last_id=2, action="REJECT")
    deleted = store.ask(messages.DeleteFilter(uuid=UUID))
    limited = store.ask(messages.SetLimits(running_jobs_max=3))
    monkeypatch.undo()
    refusals = [one.refusal[0] for one in (asker, deleted, limited)]
    # Nothing new is written while the record of the first one cannot be taken back.
    assert refusals == ["OutcomeUnknownError", "ReadOnlyError", "ReadOnlyError"]
    assert stage.sent == []
    limits = store.ask(messages.ReadLimits()).answer_as(messages.LimitsRead)
    assert limits.running_jobs_max == settings.RUNNING_JOBS_MAX
    [row] = store.ask(messages.ListFilters()).answer_as(messages.FiltersListed).filters
    assert (row.action, row.watermark) == ("PAUSE", 1)
    assert stored(stage)[UUID]["action"] == "PAUSE"


def test_limits_of_the_disk_lie_in_the_cluster_and_the_output_reader_hears_of_them(
    stage: Stage,
) -> None:
    store = stage.start(ConfigStore)
    store.ask(messages.SetLimits(output_bytes=5_000, keep_seconds=60.0))
    told = stage.take(messages.DiskLimitsChanged, to="output_reader")
    assert told[-1].limits == DiskLimits(output_bytes=5_000, keep_seconds=60.0)
    store.ask(messages.SetLimits(keep_seconds=0.0))
    wanted = DiskLimits(output_bytes=5_000)
    assert on_disk(stage)["cluster"]["disk_limits"]["output_bytes"] == 5_000
    limits = store.ask(messages.ReadLimits()).answer_as(messages.LimitsRead)
    assert (limits.disk, limits.not_in_force) == (wanted, ())


def test_limits_are_answered_when_they_are_on_disk_and_in_force(stage: Stage) -> None:
    store = stage.start(ConfigStore)
    asker = store.say(messages.SetLimits(running_jobs_max=3))
    found = on_disk(stage)["cluster"]
    assert found["max_running_jobs"] == 3
    changed = stage.take_one(messages.LimitsChanged, to="scheduler")
    assert changed.running_jobs_max == 3
    assert asker.answers == []
    # The scheduler was replaced, and took the word with it.
    store.notify(messages.ComponentReplaced(component="scheduler"))
    assert stage.take_one(messages.LimitsChanged) == changed
    later = store.say(messages.SetLimits(running_jobs_max=4))
    store.notify(messages.LimitApplied(serial=changed.serial))
    assert asker.answer_as(messages.LimitsRead).running_jobs_max == 3
    assert later.answers == []
    store.notify(messages.LimitApplied(serial=changed.serial + 1))
    assert later.answer_as(messages.LimitsRead).running_jobs_max == 4


def test_no_more_jobs_run_than_there_are_descriptors_for(stage: Stage) -> None:
    stage.places.config.write_bytes(b'{"cluster": {"max_running_jobs": 7}}')
    budget = descriptors.DescriptorBudget(limit=100, listener=10, run_slots=5)
    stage.host = msgspec.structs.replace(stage.host, budget=budget)
    store = stage.start(ConfigStore)
    store.notify(messages.ReportConfiguration())
    assert stage.take_one(messages.LimitsChanged, to="scheduler").running_jobs_max == 5
    limits = store.ask(messages.ReadLimits()).answer_as(messages.LimitsRead)
    assert (limits.running_jobs_max, limits.running_jobs_possible) == (7, 5)
    refused = store.ask(messages.SetLimits(running_jobs_max=6))
    assert refused.refusal[0] == "BadRequestError"
    store.ask(messages.SetLimits(running_jobs_max=5))
    assert stage.take_one(messages.LimitsChanged, to="scheduler").running_jobs_max == 5
    limits = store.ask(messages.ReadLimits()).answer_as(messages.LimitsRead)
    assert (limits.running_jobs_max, limits.running_jobs_possible) == (5, None)


def play_with_one_refusal(root: Path, place: int) -> tuple[bool, object]:
    """Changes, each repeated if the disk refused it: whether it did, and what is stored then."""
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage(root)
        stage.renew_log()
        store = stage.start(ConfigStore)
        refusal = OneRefusal(patch, place)
        other = UUID.replace("c", "d")
        for asked in (
            messages.SetLimits(running_jobs_max=7),
            replace(priority=1),
            replace(uuid=other),
            messages.DeleteFilter(uuid=UUID),
            messages.SetLimits(running_jobs_max=8),
        ):
            before = on_disk(stage)
            asker = insist(stage, store, asked, refusal)
            if asker is not None:
                # Refused: nothing has changed, on disk or for others.
                assert asker.refusal[0] == "ReadOnlyError"
                assert on_disk(stage) == before
                assert stage.log_of_changes.retry()
                assert insist(stage, store, asked, refusal) is None
        seen = on_disk(stage)
        listed = store.ask(messages.ListFilters()).answer_as(messages.FiltersListed).filters
        assert {row.uuid for row in listed} == set(seen["filters"]) == {other}
        component = store.component
        waiting = [
            component._rules._asked,
            component._rules._in_force.is_awaited,
            component._slots.is_awaited,
        ]
        assert not any(waiting)
        assert refusal.unflushed is None
        stage.close_log()
        stage.daemon_lock.remove()
        left = sorted(path.name for path in stage.places.data.iterdir())
        return refusal.has_come, (seen["cluster"]["max_running_jobs"], seen["serial_no"], left)


def insist(
    stage: Stage, store: Staged[ConfigStore], asked: Message, refusal: OneRefusal
) -> Asker | None:
    """Ask, and let all others confirm; the asker if it is refused."""
    with refusal.watching():
        asker = store.say(asked)
        for request in stage.take_requests(messages.ReadLastId):
            report_last_id(store, request, 1)
    told = stage.take(messages.RulesChanged), stage.take(messages.LimitsChanged)
    for rules_changed in told[0]:
        assert asker.answers == []
        store.notify(messages.RulesApplied(serial=rules_changed.serial))
    for limits_changed in told[1]:
        assert asker.answers == []
        store.notify(messages.LimitApplied(serial=limits_changed.serial))
    if not isinstance(asker.answer, messages.Failure):
        return None
    assert told == ([], [])
    return asker


def test_each_change_that_the_disk_refuses_once_is_made_when_it_is_asked_for_again(
    tmp_path: Path,
) -> None:
    _, expected = play_with_one_refusal(tmp_path / "0", 0)
    for place in itertools.count(1):
        has_come, seen = play_with_one_refusal(tmp_path / str(place), place)
        if not has_come:
            break
        assert seen == expected, place
    assert place > 3 * 5
