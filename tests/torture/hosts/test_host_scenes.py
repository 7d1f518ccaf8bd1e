"""Scenes in the world of hosts, among them the classes of faults that other schedulers have had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.torture.hosts import simulated_hosts
from tests.torture.hosts.hosts_oracle import UNKNOWN
from tests.torture.hosts.hosts_world import HostsWorld, hosts_world
from tests.torture.hosts.job import JobProcess

from ganger.storage.nodes import begun_tasks
from ganger.transport import frames, messages
from ganger.transport.messages.base import PROTOCOL
from ganger.transport.zmq.peers import Credentials, Incoming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "instance/i1"


class Scene:
    """A world without faults but those that the test makes, and one host, ``web1``."""

    def __init__(self, world: HostsWorld) -> None:
        self.world = world
        self.master = world.master
        self.host = world.hosts[0]
        world.start()
        self.wait(2.0)

    def wait(self, seconds: float) -> None:
        self.world.agenda.run(self.world.agenda.now + seconds)
        assert self.world.agenda.problems == []

    def submit(self, seconds: float, **fields: object) -> JobProcess:
        locks = {"instance": {"exclusive": ["i1"]}}
        argv = ["run", str(seconds), "3"]
        opcode = {"OP_ID": "OP_EXEC", "argv": argv, "node": "web1", "locks": locks, **fields}
        return self.master.submit(opcode)

    def holder(self) -> int | None:
        """The job that has the lock."""
        state = self.world.oracle.locks._state
        found = [one.identifier for one in state.owners() if LOCK in dict(state.list_locks(one))]
        return found[0] if found else None

    def starts(self, process: JobProcess) -> int:
        return self.world.oracle.starts[process.task_key]


@pytest.fixture(name="scene")
def scene_of_one_host(tmp_path: Path) -> Iterator[Scene]:
    with hosts_world("a scene", tmp_path) as made:
        yield Scene(made)


def test_a_finished_task_does_not_run_again_after_a_restart_of_the_host_s_daemon(
    scene: Scene,
) -> None:
    """Its end was not told before, and it was archived meanwhile."""
    job = scene.submit(1.0)
    scene.wait(0.5)
    scene.world.network.cut(scene.host.key, {"up"}, 40.0)
    scene.wait(20.0)
    assert not scene.host.living()
    scene.host.kill()
    scene.host.start()
    scene.wait(60.0)
    assert (job.told, scene.starts(job)) == ("success", 1)


def test_a_lost_task_is_not_started_again_when_its_supervisor_has_died_too(scene: Scene) -> None:
    job = scene.submit(100.0)
    scene.wait(1.0)
    scene.host.lose_all()
    scene.master.kill()
    scene.wait(5.0)
    scene.host.start()
    scene.master.start()
    scene.wait(30.0)
    assert job.told.startswith("the command was lost on web1: its process ended without a result")
    assert (scene.starts(job), scene.host.living()) == (1, [])


def test_a_lost_task_is_not_started_again_when_its_job_has_died_too(scene: Scene) -> None:
    job = scene.submit(100.0)
    scene.wait(1.0)
    scene.host.lose_all()
    scene.master.kill_job(job)
    scene.wait(5.0)
    assert (scene.holder(), job.told) == (1, "")
    scene.host.start()
    scene.wait(30.0)
    assert (scene.starts(job), scene.holder()) == (1, None)
    assert job.told == "lost; its command on web1 had ended by then"


def test_no_task_is_killed_because_the_master_cannot_be_reached(scene: Scene) -> None:
    job = scene.submit(900.0)
    scene.wait(1.0)
    scene.master.kill()
    scene.world.network.cut(scene.host.key, {"up", "down"}, 700.0)
    scene.wait(600.0)
    [task] = scene.host.living()
    scene.master.start()
    scene.wait(200.0)
    assert task.is_alive
    scene.wait(200.0)
    assert (job.told, scene.starts(job)) == ("success", 1)


def test_locks_of_a_job_that_does_not_know_outlive_a_loss_of_power(scene: Scene) -> None:
    """The job has ended, so nothing but its mark says that its command may still run."""
    job = scene.submit(300.0, lost_after=5.0)
    waiting = scene.submit(1.0)
    scene.wait(1.0)
    scene.world.network.cut(scene.host.key, {"up", "down"}, 200.0)
    scene.wait(60.0)
    assert UNKNOWN in job.told
    for _ in range(2):
        scene.master.lose_power(loses_all=True)
        scene.master.start()
        scene.wait(20.0)
        assert (scene.holder(), waiting.told, len(scene.host.living())) == (1, "", 1)
    scene.wait(200.0)
    assert (waiting.told, scene.starts(waiting)) == ("success", 1)


def test_a_mark_that_is_not_flushed_would_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobProcess, "keep_mark", lambda _: None)
    with pytest.raises(AssertionError):
        test_locks_of_a_job_that_does_not_know_outlive_a_loss_of_power(scene)


def test_a_seed_repeats_to_the_letter(tmp_path: Path) -> None:
    traces = [
        simulated_hosts.play(7, 3, tmp_path / str(number), is_traced=True).agenda.trace
        for number in range(2)
    ]
    assert traces[0] == traces[1]
    assert len(traces[0] or ()) > 10


def test_a_master_of_another_version_gets_no_reply_and_the_host_says_why_it_has_none(
    scene: Scene,
) -> None:
    """Each would answer the other's frames, which neither understands, for ever."""
    link: Any = scene.host.side.actors["node_link"].component
    said: list[bytes] = []
    link._dealer.send = said.append
    frame = bytearray(frames.encode(messages.Failure("BadRequestError", "?"), 7))
    frame[1] += 1
    link._take_in(bytes(frame))
    problem = "the master speaks another version of Ganger: the frame has protocol version 2"
    assert said == []
    assert scene.host.side.host.master_states[-1].problem.startswith(problem)


def test_a_host_of_another_version_is_answered_and_not_let_in(scene: Scene) -> None:
    hub: Any = scene.master.side.actors["node_hub"].component
    frame = bytearray(frames.encode(messages.GreetMaster(directory="d"), 7))
    frame[1] += 1
    [peer] = [one for one, name in hub._names.items() if name == "web1"]
    said: list[messages.Message] = []
    hub._say = lambda _peer, _number, message: said.append(message)
    identity = Credentials(kind="remote", key=scene.host.key, address="10.0.0.9")
    hub._take_in(Incoming(peer, bytes(frame), identity))
    [failure] = said
    assert isinstance(failure, messages.Failure)
    assert failure.text == f"the frame has protocol version {PROTOCOL + 1}, expected {PROTOCOL}"


FORGOTTEN = (
    "was started anew since, and does not know the command: it is not known whether it began"
)


def unheard(scene: Scene) -> JobProcess:
    """A job whose task has begun and ended on the host, of which the master has heard nothing.

    The host is off then, with the data directory that it had before the task.
    """
    kept = scene.host.copy()
    scene.world.network.cut(scene.host.key, {"up"}, 20.0)
    job = scene.submit(1.0)
    scene.wait(5.0)
    assert (scene.starts(job), scene.host.living(), job.told) == (1, [], "")
    scene.host.kill()
    scene.host.put_back(kept)
    return job


def test_a_task_does_not_start_again_from_a_copy_of_the_present_run(scene: Scene) -> None:
    job = unheard(scene)
    scene.host.start()
    scene.wait(60.0)
    assert (job.told, scene.starts(job), scene.holder()) == ("", 1, 1)
    # Local jobs of the host, and its next daemons, do not hide what it has forgotten.
    scene.host.last_id += 10
    scene.host.kill()
    scene.host.start()
    scene.wait(60.0)
    assert (job.told, scene.starts(job), scene.holder()) == ("", 1, 1)
    scene.world._joined(scene.host)
    scene.wait(60.0)
    assert job.told.startswith("node web1 has joined anew since the command began")
    scene.world.forget_tasks(scene.host)
    later = scene.submit(1.0)
    scene.wait(60.0)
    assert (later.told, scene.starts(job)) == ("success", 1)


def test_a_task_does_not_start_again_from_a_copy_of_the_run_before_a_reboot(scene: Scene) -> None:
    job = unheard(scene)
    scene.host.reboot()
    scene.host.start()
    later = scene.submit(1.0)
    scene.wait(60.0)
    assert (job.told, scene.starts(job)) == (f"web1: the host {FORGOTTEN}", 1)
    assert (later.told, scene.starts(later), scene.holder()) == ("success", 1, None)


@pytest.mark.parametrize("loss", ["hub", "master", "power"])
@pytest.mark.parametrize("reboots", [False, True])
def test_nor_if_the_master_has_lost_what_it_had_in_memory(
    scene: Scene, loss: str, *, reboots: bool
) -> None:
    job = unheard(scene)
    if loss == "hub":
        scene.master.side.kill("node_hub")
        scene.master.start_hub()
    else:
        scene.master.kill() if loss == "master" else scene.master.lose_power(loses_all=True)
        scene.master.start()
    scene.wait(1.0)
    if reboots:
        scene.host.reboot()
    scene.host.start()
    scene.wait(60.0)
    if reboots:
        assert FORGOTTEN in job.told
    else:
        assert (job.told, scene.holder()) == ("", 1)
        scene.world._joined(scene.host)
        scene.world.forget_tasks(scene.host)
        scene.wait(60.0)
        assert UNKNOWN in job.told
    assert (scene.starts(job), scene.holder()) == (1, None)


@pytest.mark.parametrize("restarts", [(), ("hub",), ("master", "hub")])
def test_a_command_for_a_host_that_is_off_begins_when_it_has_been_rebooted(
    scene: Scene, restarts: tuple[str, ...]
) -> None:
    scene.host.reboot()
    scene.wait(60.0)
    job = scene.submit(1.0)
    scene.wait(1.0)
    for one in restarts:
        if one == "master":
            scene.master.kill()
            scene.master.start()
        else:
            scene.master.side.kill("node_hub")
            scene.master.start_hub()
        scene.wait(5.0)
    scene.host.start()
    scene.wait(60.0)
    assert (job.told, scene.starts(job)) == ("success", 1)


def test_a_host_whose_run_directory_was_cleaned_is_not_refused(scene: Scene) -> None:
    job = scene.submit(30.0)
    scene.wait(1.0)
    begun_tasks.path_of(scene.host.side.places).unlink()
    scene.host.kill()
    scene.host.start()
    scene.wait(60.0)
    later = scene.submit(1.0)
    scene.wait(60.0)
    assert (job.told, scene.starts(job), later.told) == ("success", 1, "success")
