"""The recorded exchanges of LUXI, played in order against one daemon.

One of three exchanges was not recorded: the story has steps of its own in their place. Jobs and
rules have other ids here; requests and answers are translated.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.harness import until
from tests.system.ganeti.wconfd import Wconfd, call

from ganger import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.faults.harness import Daemon

    from ganger import Client

DATA = Path(__file__).parent / "data"
RECORDED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((DATA / "luxi").glob("*.json"))
}
HOLD = {"predictive_queue": {"holds_back": False}}
"""As in Ganeti, jobs wait for their locks with a process."""

LONG_SECONDS = 60.0
"""Duration of jobs that the story ends."""

_JOB = re.compile(r"\b([Jj]ob[ =])(\d+)\b")
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class Answer(NamedTuple):
    """What came back, with the recorded ids. ``closed``: the daemon has closed the connection."""

    success: bool
    result: Any
    closed: bool


def recorded(name: str) -> Answer:
    """What Ganeti has answered."""
    one = RECORDED[name]
    found = one["response"] if "response" in one else json.loads(one["response_text"])
    return Answer(found["success"], found["result"], one["server_closed_connection_after_reply"])


class Story:
    """A daemon's side of the recording. ``answers`` has what it said, by the name of the exchange.

    ``ids``: our jobs and rules by those of the recording.
    """

    def __init__(self, daemon: Daemon, client: Client) -> None:
        self._path = daemon.places.luxi_socket
        self._link = Wconfd(self._path)
        self._client = client
        self._left = iter(RECORDED)
        self.ids: dict[Any, Any] = {}
        self.answers: dict[str, Answer] = {}

    def play_to(self, name: str) -> None:
        """Play all recorded exchanges that come before ``name``."""
        while not self.answers or next(reversed(self.answers)) != name:
            self._play(next(self._left))

    def play(self, *names: str) -> None:
        """Play these exchanges, which are the next ones of the recording."""
        for name in names:
            following = next(self._left)
            assert following == name, f"{following} comes before {name}"
            self._play(name)

    def _play(self, name: str) -> None:
        one = RECORDED[name]
        if "request_text" in one:
            data = one["request_text"].encode()
        else:
            data = json.dumps(translated(one["request"], self.ids)).encode()
        found = self._exchange(data)
        if found.success and recorded(name).success:
            self._learn(name, found.result)
        back = {ours: theirs for theirs, ours in self.ids.items()}
        self.answers[name] = found._replace(result=translated(found.result, back))

    def _exchange(self, document: bytes) -> Answer:
        self._link.send(document)
        found = self._link.reply()
        is_closed = False
        if isinstance(found["result"], str) and not found["success"]:
            is_closed = self._reconnect()
        return Answer(found["success"], found["result"], is_closed)

    def _reconnect(self) -> bool:
        """Whether the daemon had closed the connection."""
        try:
            self._link.reply()
        except EOFError:
            self._link.close()
            self._link = Wconfd(self._path)
            return True
        return False

    def _learn(self, name: str, result: Any) -> None:
        """Note by which id the recording knows what was made."""
        expected = recorded(name).result
        method = RECORDED[name].get("request", {}).get("method")
        if method in {"SubmitJob", "ReplaceFilter"}:
            self.ids[expected] = result
        elif method == "SubmitManyJobs":
            pairs = zip(expected, result, strict=True)
            self.ids |= {theirs: ours for (_, theirs), (is_taken, ours) in pairs if is_taken}

    # ------------------------------------------------------------ steps of its own

    def ask(self, method: str, *args: Any) -> Answer:
        """The answer to a request, as it came; the request has the recording's ids."""
        return self._exchange(call(method, *translated(list(args), self.ids)))

    def call(self, method: str, *args: Any) -> Any:
        """What a call gives that was not recorded; with the recording's ids."""
        return self._link.call(method, *translated(list(args), self.ids))

    def submit(
        self, recorded_id: int, duration: float = 0.01, reason: str = "bench", **more: Any
    ) -> None:
        """Submit the job that has this id in the recording."""
        self.ids[recorded_id] = self.call("SubmitJob", [delay(duration, reason, **more)])

    def submit_held(self, recorded_id: int, duration: float = 0.01, **more: Any) -> None:
        """Submit this job, which does not start before `release`."""
        last = max(ours for ours in self.ids.values() if isinstance(ours, int))
        self.rule("hold", 0, [["jobid", ["=", "id", last + 1]]], "PAUSE")
        self.submit(recorded_id, duration, **more)
        assert self.ids[recorded_id] == last + 1

    def release(self) -> None:
        """Let the job start that was held."""
        self.delete("hold")

    def rule(self, recorded_uuid: str, priority: int, predicates: Any, action: Any) -> None:
        """Add the rule that has this UUID in the recording."""
        trail = [["gnt:user", "corpus", time.time_ns()]]
        uuid = self.call("ReplaceFilter", None, priority, predicates, action, trail)
        self.ids[recorded_uuid] = uuid

    def delete(self, *recorded_uuids: str) -> None:
        """Delete rules."""
        for uuid in recorded_uuids:
            assert self.call("DeleteFilter", uuid) is None

    def wait(self, *recorded_ids: int) -> None:
        """Wait until these jobs have ended."""
        self._client.wait(*(self.ids[one] for one in recorded_ids), timeout=30)

    def wait_until(self, recorded_id: int, status: JobStatus) -> None:
        """Wait until this job has this status."""
        until(self._client, self.ids[recorded_id], status)

    def wait_for_log(self, recorded_id: int) -> None:
        """Wait until this running job has logged something."""
        _, log = self.call("WaitForJobChange", recorded_id, ["status"], ["running"], 0, 30)
        assert log

    def end(self, recorded_ids: Iterable[int]) -> None:
        """Kill these jobs, and wait for their ends."""
        for one in recorded_ids:
            self._client.cancel(self.ids[one], kill=True)
        self.wait(*recorded_ids)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def translated(value: Any, ids: Mapping[Any, Any]) -> Any:
    """The value with other ids of jobs and rules."""
    match value:
        case dict():
            return {name: translated(item, ids) for name, item in value.items()}
        case list():
            return [translated(item, ids) for item in value]
        case bool():
            return value
        case str():
            if value in ids:
                return ids[value]
            if value.isdecimal() and int(value) in ids:
                return str(ids[int(value)])
            value = _UUID.sub(lambda hit: ids.get(hit[0], hit[0]), value)
            return _JOB.sub(lambda hit: f"{hit[1]}{ids.get(int(hit[2]), hit[2])}", value)
        case int():
            return ids.get(value, value)
    return value


def delay(duration: float = 0.01, reason: str = "bench", **more: Any) -> dict[str, Any]:
    """An opcode as the recording has it."""
    return {
        "OP_ID": "OP_TEST_DELAY",
        "duration": duration,
        "on_master": True,
        "on_nodes": [],
        "repeat": 0,
        "interruptible": False,
        "no_locks": True,
        "dry_run": False,
        "debug_level": 0,
        "priority": 0,
        "reason": [["gnt:user", reason, time.time_ns()]],
        **more,
    }


def play(daemon: Daemon, client: Client) -> Story:
    """The whole recording."""
    story = Story(daemon, client)
    story.play_to("062-dep-relative-single")
    _play_dependencies(story)
    _play_waiting(story)
    _play_rules(story)
    _play_rate_limits(story)
    _play_running_jobs(story)
    _play_priorities_and_archive(story)
    _play_drained_queue(story)
    story.play("184-watcher-pause", "185-watcher-pause-off", "187-AutoArchiveJobs")
    return story


def _play_dependencies(story: Story) -> None:
    story.submit_held(88)
    story.play("064-dep-b-on-a", "065-dep-c-on-a-error")
    story.submit(91, depends=[[story.ids[88], []]])
    story.play("067-dep-e-null", "068-dep-bad-status")
    story.play("070-QueryJobs-while-dep-pending", "071-Query-job-waiting-deps")
    story.submit(93, -1)
    story.play("073-dep-g-on-failed")
    story.release()
    story.wait(88, 89, 90, 91, 93, 94)
    story.play("074-QueryJobs-deps-final", "076-QueryJobs-future-dep")
    story.play("077-QueryJobs-unknown-id", "079-QueryJobs-badfield", "080-QueryJobs-all-fields")


def _play_waiting(story: Story) -> None:
    story.play("082-WaitForJobChange-nochange", "083-WaitForJobChange-unknown")
    story.submit_held(96, LONG_SECONDS, repeat=2)
    story.play("085-WaitForJobChange-0")
    story.release()
    story.wait_until(96, JobStatus.RUNNING)
    story.wait_for_log(96)
    story.play("086-WaitForJobChange-1", "088-WaitForJobChange-3", "089-WaitForJobChange-4")
    story.end([96])


def _play_rules(story: Story) -> None:
    story.play_to("098-filter-ratelimit-str")
    story.rule("b0ecb73f-139d-4a5c-a35e-894a8997c1c0", 1, [], ["RATE_LIMIT", 2])
    story.rule("fc9bccfe-2faa-4507-8240-b5dc8d379bf3", 1, [], ["RATE_LIMIT", 3])
    story.play_to("110-QueryFilters-unknown")
    story.delete("41f8c20c-0b36-4d31-8bf2-d483b4f76db6")
    story.play_to("119-DeleteFilter")
    story.rule(
        "293d7850-ec73-4c33-9e8e-31eed273a2ac",
        5,
        [["reason", ["=", "reason", "rejectme"]]],
        "REJECT",
    )
    story.play("121-submit-rejected", "122-submitmany-rejected", "124-DeleteFilter-reject")
    story.play("125-filter-add-then-delete-at-once")
    story.delete("73128376-6b87-40c7-8a1e-e6e4f90fcff5")
    story.play("127-DeleteFilter-later", "128-filter-pause")
    story.submit(100)
    story.play("130-QueryJobs-paused", "131-filter-accept-over")
    story.submit(101, 0.01, "vip")
    story.wait(101)
    story.play("133-QueryJobs-vip-and-paused", "134-cancel-paused")
    story.play("136-cancel-again", "137-cancel-unknown", "139-filter-update-same-uuid")
    story.submit(102)
    story.wait(102)
    story.play("140-QueryJobs-unpaused", "142-DeleteFilter", "143-DeleteFilter")


def _play_rate_limits(story: Story) -> None:
    uuid = "e3029ccc-f912-4289-b3ea-2aa44923ca01"
    story.rule(uuid, 5, [["reason", ["=", "reason", "rl"]]], ["RATE_LIMIT", 2])
    story.play("145-submit-6-rl", "146-DeleteFilter-rl")
    story.end(range(103, 109))
    story.play("148-submit-4-adhoc-reason", "149-submit-5-adhoc2")
    story.end(range(113, 122))


def _play_running_jobs(story: Story) -> None:
    story.submit(122, LONG_SECONDS)
    story.wait_until(122, JobStatus.RUNNING)
    story.play("151-cancel-running", "152-archive-running", "154-QueryJobs-prio-running")
    story.play("155-cancel-kill")
    story.wait(122)
    story.play("157-submit-lock-holder")
    story.wait_until(123, JobStatus.RUNNING)
    story.play("158-submit-lock-waiter")
    story.wait_until(124, JobStatus.WAITING)
    story.play("160-Query-lock-held", "161-cancel-lock-waiter")
    story.end([123])


def _play_priorities_and_archive(story: Story) -> None:
    story.submit_held(125)
    story.play("163-prio-queued", "164-QueryJobs-prio", "166-archive-queued")
    story.release()
    story.wait(125)
    story.play("167-prio-final")
    assert story.call("ArchiveJob", 125) is True
    story.play("169-archive-again", "170-archive-unknown", "172-cancel-archived")
    story.play("173-cancel-finished")


def _play_drained_queue(story: Story) -> None:
    assert story.call("SetDrainFlag", *[True]) is True
    story.play("175-submit-drained", "176-submitmany-drained")
    story.ids[126] = story.call("SubmitJobToDrainedQueue", [delay()])
    story.play("178-drain-off")
    story.submit_held(127)
    story.play("179-prio-out-of-range-77", "181-QueryJobs-prio-77-after-release")
    story.play("182-cancel-prio-77")
    story.release()
    story.wait(126)
