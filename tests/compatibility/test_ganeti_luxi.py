"""Recorded exchanges of Ganeti 3.0's LUXI, played in order against one daemon.

It serves the recorded configuration and a part of the recorded queue. Every answer is the recorded
one, but for times, durations and the places where a table says what differs and why.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import ANY

import pytest
from tests.compatibility import luxi_story
from tests.compatibility.luxi_story import DATA, RECORDED, Answer, Story, recorded
from tests.faults.harness import Daemon

JOBS = {int(path.name.removeprefix("job-")) for path in (DATA / "queue").glob("job-*")}
RACK3 = "8523c08b-9002-4e55-8e57-fd33db0a2d8a"
NODE = "node/90910f02-036a-444f-8631-f25d6d53cb05"
RECENT_SECONDS = 10**9
"""A number above this is a time."""

_DURATION = re.compile(r"(?<=^TEST_DELAY)\(.*\)$")


class Begins(str):
    """Equals every text that begins with it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(str(self))

    __hash__ = str.__hash__


Differs = Callable[[Any], Answer]
"""Makes our answer of Ganeti's result."""


def gives(result: Any) -> Differs:
    """We give this."""
    return lambda _: Answer(success=True, result=result, closed=False)


def changes(change: Callable[[Any], Any]) -> Differs:
    """We give Ganeti's result with a change."""
    return lambda result: Answer(success=True, result=change(result), closed=False)


def refuses(name: str, *args: str) -> Differs:
    """We refuse it with an exception of Ganeti."""
    return lambda _: Answer(success=False, result=[name, [*map(Begins, args)]], closed=False)


def in_own_words(result: str) -> Answer:
    """The request cannot be read; the text goes on in another way."""
    begin, _, _ = result.partition(": ")
    return Answer(success=False, result=Begins(f"{begin}: "), closed=True)


def statuses(rows: list[Any], status: str) -> list[Any]:
    """Rows of jobs: those that have not ended have this status, but for the first one."""
    first, *others = rows
    return [first, *([row[0], status, row[2], [status], row[4]] for row in others)]


def _of_cluster(info: dict[str, Any]) -> dict[str, Any]:
    others = {"vcs_version": ANY, "mtime": ANY, "max_running_jobs": 30}
    return info | others | {"tags": ["alpha", "bench", "beta", "delta", "zeta"]}


def _without_live(rows: list[Any]) -> list[Any]:
    return [[name, "ERROR_nodedown", node, None, addresses] for name, _, node, _, addresses in rows]


def _without_status(answer: dict[str, Any]) -> dict[str, Any]:
    data = [[name, [0, "ERROR_nodedown"], addresses] for name, _, addresses in answer["data"]]
    return {**answer, "data": data}


def _of_kept_jobs(answer: dict[str, Any], later: list[Any]) -> dict[str, Any]:
    kept = [row for row in answer["data"] if row[0][1] in JOBS]
    return {**answer, "data": kept + later}


def _with_waiting(answer: dict[str, Any]) -> dict[str, Any]:
    [[job_id, _, ops]] = answer["data"]
    return {**answer, "data": [[job_id, [0, "waiting"], ops]]}


def _of_locks(answer: dict[str, Any]) -> dict[str, Any]:
    by_name = {row[0][1]: row for row in answer["data"]}
    big_lock = by_name["cluster/BGL"]
    # The recorded answer itself must stay as it is.
    by_name["cluster/BGL"] = [*big_lock[:2], [0, ["123"]], [0, [["shared", ["124"]]]]]
    return {**answer, "data": list(by_name.values())}


DIFFERENCES: Final[dict[str, dict[str, Differs]]] = {
    "The text after 'Failed to parse request' comes from LuxiD's library; clients see only its "
    "kind": dict.fromkeys(
        (
            "001-bad-json",
            "002-not-an-object",
            "004-no-args",
            "008-wrong-arg-count",
            "043-Query-bad-filter",
            "068-dep-bad-status",
            "092-filter-bad-action",
            "095-filter-bad-op",
            "097-filter-bad-ratelimit",
            "098-filter-ratelimit-str",
        ),
        in_own_words,
    ),
    "The recorded configuration is younger than the exchange": {
        "010-QueryClusterInfo": changes(_of_cluster),
        "017-QueryGroups": changes(lambda rows: [*rows, ["rack3", RACK3, 0, []]]),
        "038-Query-group": changes(
            lambda answer: {**answer, "data": [*answer["data"], [[0, "rack3"], [0, []]]]}
        ),
    },
    "Of the recorded queue a part was kept, with some younger jobs": {
        "040-Query-job-unknown-field": changes(
            lambda answer: _of_kept_jobs(
                answer, [[[0, job_id], [1, None]] for job_id in sorted(JOBS) if job_id > 100]
            )
        ),
        "041-Query-job-filter": changes(lambda answer: _of_kept_jobs(answer, [])),
        "187-AutoArchiveJobs": gives([len(JOBS) - 1, 0]),
    },
    "What only nodes know is shown as for a node that does not answer": {
        "016-QueryInstances": changes(_without_live),
        "037-Query-instance": changes(_without_status),
    },
    "A job without opcodes is refused": {
        "047-SubmitJob-empty": refuses("OpPrereqError", "a job needs at least one", "wrong_input"),
    },
    "A dependency on a job id that does not exist is refused at submission": {
        "061-dep-missing-job": refuses(
            "OpPrereqError", "depends[0]: there is no job 999999", "wrong_input"
        ),
        "076-QueryJobs-future-dep": gives([[95, None, None, None, None]]),
    },
    "Relative ids reach only jobs of the same submission": {
        "062-dep-relative-single": refuses(
            "OpPrereqError", "depends[0]: -1 is out of reach", "wrong_input"
        ),
    },
    "A job whose dependency is not final is waiting, not queued": {
        "070-QueryJobs-while-dep-pending": changes(lambda rows: statuses(rows, "waiting")),
        "071-Query-job-waiting-deps": changes(_with_waiting),
    },
    "REJECT refuses at submission, in a batch that entry alone": {
        "121-submit-rejected": refuses(
            "OpPrereqError",
            "the job is rejected by filter rule 293d7850-ec73-4c33-9e8e-31eed273a2ac (priority 5",
            "wrong_input",
        ),
        "122-submitmany-rejected": gives(
            [[False, Begins("the job is rejected by filter rule 293d7850-")], [True, 99]]
        ),
    },
    "A running job is not told to end; how a job is killed is said in full": {
        "151-cancel-running": gives([False, "Job 122 is no longer waiting in the queue"]),
        "155-cancel-kill": gives([True, Begins("Job 122 is running and will be killed: SIGTERM")]),
    },
    "A job gets all its locks at once or waits for all of them": {
        "160-Query-lock-held": changes(_of_locks),
    },
    "A job that waits for locks can be canceled at any time": {
        "161-cancel-lock-waiter": gives([True, "Job successfully cancelled"]),
    },
    "A drained queue has an exception of its own": dict.fromkeys(
        ("175-submit-drained", "176-submitmany-drained"),
        refuses("JobQueueDrainError", "Job queue is drained, refusing job."),
    ),
    "A priority that no job can have is refused": {
        "179-prio-out-of-range-77": refuses(
            "OpPrereqError", "priority: expected -20 to 19, got 77", "wrong_input"
        ),
        "181-QueryJobs-prio-77-after-release": gives([[127, "queued", 0, [None]]]),
        "182-cancel-prio-77": gives([True, "Dequeued job 127"]),
    },
}
"""Why an answer is another one than Ganeti's, the exchanges, and what we answer."""

_DIFFERS = {name: make for found in DIFFERENCES.values() for name, make in found.items()}


def plain(value: Any) -> Any:
    """The value without times and durations."""
    match value:
        case dict():
            return {
                name: "seconds" if name == "duration" else plain(item)
                for name, item in value.items()
            }
        case [int(seconds), int(fraction)] if seconds > RECENT_SECONDS:
            assert 0 <= fraction < 10**6
            return "time"
        case list():
            return [plain(item) for item in value]
        case str() if not isinstance(value, Begins):
            return _DURATION.sub("", value)
        case int() if value > 10**15:
            return "nanoseconds"
    return value


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    data = folder / "data"
    data.mkdir(mode=0o700)
    shutil.copytree(DATA / "queue", data / "queue")
    config = json.loads((DATA / "config.data").read_text())
    # The rules of the recording came after the exchanges.
    config["filters"] = {}
    config["cluster"] |= luxi_story.HOLD
    (data / "config.data").write_text(json.dumps(config))
    (data / "config.data").chmod(0o600)
    with Daemon(folder, holds_back=True) as daemon, daemon.client() as client:
        played = luxi_story.play(daemon, client)
        yield played
        played.close()


def test_every_recorded_exchange_is_played_and_few_differ(story: Story) -> None:
    assert list(story.answers) == list(RECORDED)
    assert _DIFFERS.keys() <= RECORDED.keys()
    assert len(_DIFFERS) == sum(map(len, DIFFERENCES.values())) < len(RECORDED) / 3


@pytest.mark.parametrize("name", RECORDED)
def test_the_answer_is_the_recorded_one_or_differs_as_the_table_says(
    story: Story, name: str
) -> None:
    expected = recorded(name)
    if name in _DIFFERS:
        expected = _DIFFERS[name](expected.result)
    found = story.answers[name]
    assert found._replace(result=plain(found.result)) == expected._replace(
        result=plain(expected.result)
    )


@pytest.mark.parametrize("name", _DIFFERS)
def test_the_table_has_nothing_that_does_not_differ(story: Story, name: str) -> None:
    assert plain(story.answers[name]) != plain(recorded(name))


def test_made_rules_have_uuids_of_their_own(story: Story) -> None:
    texts = [ours for theirs, ours in story.ids.items() if isinstance(theirs, str)]
    assert len(set(texts)) == len(texts) > 10
    assert set(texts) & set(story.ids) == {"00000000-0000-0000-0000-000000000000"}


# ---------------------------------------------------------------- beyond the recording


def prerequisite(*texts: str) -> Answer:
    return refuses("OpPrereqError", *texts)(None)


UNREADABLE = Answer(success=False, result=Begins("Failed to parse request: "), closed=True)
NODE_UUID = NODE.removeprefix("node/")
FACTS: Final[list[tuple[str, list[Any], Answer]]] = [
    # Ids are numbers or texts of digits; the rows are in the order of the first mention.
    ("QueryJobs", [[18, "20", 18], ["id"]], gives([[18], [20]])(None)),
    ("QueryJobs", [["abc"], ["id"]], UNREADABLE),
    ("QueryJobs", [[-1], ["id"]], UNREADABLE),
    ("QueryNodes", [[], ["name"], True], prerequisite("Sync queries are not", "wrong_input")),
    (
        "QueryNodes",
        [[], ["name", "a", "b"], False],
        prerequisite("Unknown output fields selected: a, b", "wrong_input"),
    ),
    ("QueryNodes", [[NODE_UUID, "x"], ["name"], False], gives([["node1.example.com"]])(None)),
    ("QueryNetworks", [[], ["name", "gateway"], False], gives([["net1", "10.77.1.254"]])(None)),
    ("QueryExports", [[], True], prerequisite("Sync queries are not", "wrong_input")),
    ("QueryFilters", [["x"], ["nosuch"]], prerequisite("Unknown output fields", "wrong_input")),
    (
        "Query",
        ["node", ["name"], ["=", "name", "x"]],
        prerequisite("Node name x not found", "unknown_entity"),
    ),
    (
        "Query",
        ["os", ["name"], None],
        refuses("GenericError", "Query 'ItemTypeOpCode QROs' ")(None),
    ),
    ("QueryTags", ["cluster", ""], gives(["alpha", "bench", "beta", "delta", "zeta"])(None)),
    ("QueryTags", ["dog", "rex"], UNREADABLE),
    (
        "QueryConfigValues",
        [["modify_ssh_setup", "ssh_key_type", "ssh_key_bits", "x"]],
        gives([False, "rsa", 2048, None])(None),
    ),
    ("PickupJob", [1], refuses("GenericError", "Luxi call 'PickupJob' is for internal use")(None)),
    # An unknown field makes all values null; the job has ended, so the answer comes at once.
    ("WaitForJobChange", [101, ["status", "x"], None, None, 60], gives([[None, None], ANY])(None)),
    ("WaitForJobChange", [101, ["status"], [], None, 1.5], UNREADABLE),
    ("CancelJob", [18, 1], UNREADABLE),
    ("CancelJob", [18], gives([False, "Job 18 not found in queue"])(None)),
    ("ArchiveJob", ["999999"], gives(result=False)(None)),
    ("AutoArchiveJobs", ["all", 1], UNREADABLE),
    ("SetDrainFlag", [False], gives(result=True)(None)),
    ("SetDrainFlag", [0], UNREADABLE),
    ("DeleteFilter", ["x"], refuses("GenericError", "Filter rule with UUID x does not")(None)),
    ("ReplaceFilter", [None, -1, [], "PAUSE", []], UNREADABLE),
    ("SubmitManyJobs", [[[]]], prerequisite("a job needs at least one opcode", "wrong_input")),
    (
        "SubmitJob",
        [[{"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "inst1", "reason": []}]],
        prerequisite("OP_INSTANCE_STARTUP: this opcode is known, but", "wrong_input"),
    ),
]
"""Requests that were not recorded, and what is known of Ganeti's answers."""


@pytest.mark.parametrize(("method", "args", "expected"), FACTS)
def test_the_answer_is_as_known_of_ganeti(
    story: Story, method: str, args: list[Any], expected: Answer
) -> None:
    assert story.ask(method, *args) == expected
