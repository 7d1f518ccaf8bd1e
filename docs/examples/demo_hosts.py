"""`make demo-hosts`: a master and five hosts on this machine, and what is true after faults.

    .venv/bin/python -m docs.examples.demo_hosts [--loopback] [--keep]

Each host has its own data directory and node daemon, and where that is allowed a network namespace,
from which it calls the master over a cable of its own. Elsewhere they share the loopback address. A
maintenance plan runs its commands there. While a command runs on each host, one host is cut off,
one loses all of its processes as in a reboot, and the master's daemon is killed. The exit code is 0
only if every command started exactly once, and every job says what was true.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from docs.examples import demo_network
from docs.examples.demo import still_running

from ganger import Client, GangerError
from ganger.storage.alive import lock_files
from ganger.storage.disk import paths

HOSTS = tuple(f"web{number}" for number in range(1, 6))
CUT_OFF, REBOOTED = "web2", "web4"
STEPS = ("stop", "upgrade", "start")
LINES = 20_000
"""How many lines each upgrade prints."""

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.1
MARK = "GANGER_DEMO_HOST"
"""In the environment of each process of a machine: whose it is."""

STEP = "echo $GANGER_JOB_ID >> {witness}/$0"
UPGRADE = f"""{STEP}
seq 1 {LINES}
read gate < {{gate}}
echo done"""


class Machine:
    """One of the machines: a data directory, and the processes that were started for it."""

    def __init__(self, folder: Path, name: str, inside: Sequence[str] = ()) -> None:
        self.name = name
        self._inside = inside
        self.places = paths.places(folder / name)
        self.witness = folder / f"{name}-witness"
        self.gate = folder / f"{name}-gate"
        self.witness.mkdir()
        os.mkfifo(self.gate)

    def ganger(self, *words: str) -> str:
        """Run a command of `ganger` as if it were typed there; its standard output."""
        done = subprocess.run(
            [
                *self._inside,
                *[sys.executable, "-m", "ganger.cli.main", "--data", str(self.places.data)],
                *words,
            ],
            env={**os.environ, MARK: str(self.places.data)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise GangerError(f"{self.name}: ganger {' '.join(words[:2])}: {done.stderr.strip()}")
        return done.stdout.strip()

    def processes(self) -> Iterator[psutil.Process]:
        """All that run there: the daemon, processes of jobs, and commands."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.places.data):
                    yield process

    def daemon(self) -> psutil.Process:
        """The daemon itself."""
        return psutil.Process(lock_files.holder(self.places.queue / "lock"))

    def kill(self, processes: Sequence[psutil.Process]) -> None:
        """End them without warning, and wait until they have gone."""
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        still_running(processes, PATIENCE_SECONDS)

    def began(self) -> list[str]:
        """The steps that have begun there: each as often as it has."""
        return [
            step
            for path in sorted(self.witness.iterdir())
            for step in [path.name] * len(path.read_text().splitlines())
        ]

    def open_gate(self) -> None:
        """Let the command go on that waits there."""
        self.gate.write_text("go\n")


class Demonstration:
    """One run. ``holds`` until a claim is refuted."""

    def __init__(self, folder: Path, network: demo_network.Loopback) -> None:
        self._network = network
        self.master = Machine(folder, "master")
        self.hosts = {name: Machine(folder, name, network.inside(name)) for name in HOSTS}
        self.holds = True
        self._began = time.monotonic()

    def run(self) -> None:
        """Let the hosts join, run the plan, break what can break, and check everything."""
        self.say(self.master.ganger("up", "--no-rapi"))
        self.join()
        with Client(self.master.places.data) as client:
            ids = client.submit_many(self.plan(), plan="maintenance")
        self.say(f"Submitted the plan: {len(ids)} jobs, {ids[0]} to {ids[-1]}")
        self.until(self.all_upgrade, "the upgrade has begun on all hosts")
        self.break_things()
        for name, host in self.hosts.items():
            if name != REBOOTED:
                host.open_gate()
        with Client(self.master.places.data) as client:
            jobs = client.wait(*ids, timeout=PATIENCE_SECONDS)
            names = [str(job["name"]) for job in self.plan()]
            self.verify(client, dict(zip(names, jobs, strict=True)))
        print("Everything held." if self.holds else "NOT everything held.")

    def join(self) -> None:
        """What an operator does: a line on the master, and the line that it prints on the host."""
        endpoint = self._network.endpoint
        for name, host in self.hosts.items():
            where = ("--listen", endpoint, "--announce", endpoint)
            _, *line = self.master.ganger("node", "invite", name, *where).split()
            host.ganger(*line)
            self.say(f"{name} has joined")
        self.until(lambda: self.silent() == [], "all hosts are there")

    def plan(self) -> list[dict[str, Any]]:
        """For each host: stop the service, upgrade, start it; or repair it if that failed."""
        jobs: list[dict[str, Any]] = []
        for name, host in self.hosts.items():
            first = len(jobs)
            for number, step in enumerate((*STEPS, "repair")):
                script = (UPGRADE if step == "upgrade" else STEP).format(
                    witness=host.witness, gate=host.gate
                )
                after = {"start": 1, "repair": 1}.get(step, number - 1)
                ends = ["failed", "lost"] if step == "repair" else ["success"]
                jobs.append(
                    {
                        "name": f"{step}-{name}",
                        "ops": [
                            {
                                "OP_ID": "OP_EXEC",
                                "argv": ["sh", "-c", script, step],
                                "node": name,
                            }
                        ],
                        "depends": [(first + after - len(jobs), ends)] if number else [],
                    }
                )
        return jobs

    def break_things(self) -> None:
        """Cut one host off, end another one's processes, and kill the master meanwhile."""
        rebooted = self.hosts[REBOOTED]
        self.cut_off()
        rebooted.kill(list(rebooted.processes()))
        self.say(f"{REBOOTED} loses all of its processes, as in a reboot (SIGKILL)")
        self.until(lambda: REBOOTED in self.silent(), f"the master knows that {REBOOTED} is silent")
        self.master.kill([self.master.daemon()])
        self.say("The master's daemon is killed; the processes of its jobs live on")
        self.say(self.master.ganger("up"))
        self.say(rebooted.ganger("node", "up"))
        self.mend()
        self.until(lambda: self.silent() == [], "all hosts are there again")

    def cut_off(self) -> None:
        """Let nothing from one host come to the master, or back."""
        if isinstance(self._network, demo_network.Cables):
            self._network.cut(CUT_OFF)
            self.say(f"{CUT_OFF} is cut off: its packets are lost")
        else:
            self.hosts[CUT_OFF].daemon().suspend()
            self.say(f"{CUT_OFF} is cut off: its node daemon answers nothing (SIGSTOP)")

    def mend(self) -> None:
        """The host that was cut off is reached again."""
        if isinstance(self._network, demo_network.Cables):
            self._network.mend(CUT_OFF)
        else:
            self.hosts[CUT_OFF].daemon().resume()

    def verify(self, client: Client, jobs: dict[str, Any]) -> None:
        """Compare what the jobs say with what the hosts have witnessed."""
        print(f"The plan has ended after {time.monotonic() - self._began:.1f} s. Verified:")
        ends = {name: str(job.outcome) for name, job in jobs.items()}
        expected = {
            f"{step}-{name}": "success" if step != "repair" else "skipped"
            for name in HOSTS
            for step in (*STEPS, "repair")
        }
        broken = jobs[f"upgrade-{REBOOTED}"]
        expected |= {
            f"upgrade-{REBOOTED}": ends[f"upgrade-{REBOOTED}"],
            f"start-{REBOOTED}": "skipped",
            f"repair-{REBOOTED}": "success",
        }
        self.claim(
            f"{len(jobs)} jobs ended as they should",
            [f"{name}: {ends[name]}" for name in ends if ends[name] != expected[name]],
        )
        text = f"upgrade-{REBOOTED} has failed, and says: {broken.reason_ended}"
        is_true = ends[f"upgrade-{REBOOTED}"] in ("failed", "lost") and REBOOTED in (
            broken.reason_ended or ""
        )
        self.claim(text, [] if is_true else [ends[f"upgrade-{REBOOTED}"]])
        faults = []
        for name, host in self.hosts.items():
            wanted = ["repair" if name == REBOOTED else "start", "stop", "upgrade"]
            if host.began() != wanted:
                faults.append(f"{name}: {host.began()}")
        self.claim("every command that should start did so exactly once", faults)
        whole = b"".join(b"%d\n" % number for number in range(1, LINES + 1)) + b"done\n"
        faults = [
            name
            for name in HOSTS
            if name != REBOOTED and self.output(client, jobs[f"upgrade-{name}"].id) != whole
        ]
        self.claim(f"the {LINES} lines of each upgrade came whole, in order and once", faults)
        self.claim("no lock is held any more", [str(row) for row in client.locks()])
        left = [name for name, host in self.hosts.items() if self.commands(host)]
        self.claim("no command runs on a host any more", left)

    def output(self, client: Client, job_id: int) -> bytes:
        """What the job has printed."""
        return b"".join(one.data for one in client.logs(job_id) if one.stream == "stdout")

    def commands(self, host: Machine) -> list[psutil.Process]:
        """The commands of tasks that run there."""
        return [one for one in host.processes() if one.name() in ("sh", "seq")]

    def all_upgrade(self) -> bool:
        """Whether the upgrade has begun everywhere."""
        return all("upgrade" in host.began() for host in self.hosts.values())

    def silent(self) -> list[str]:
        """The hosts that have no connection to the master now."""
        with Client(self.master.places.data) as client:
            return [one.name for one in client.nodes().nodes if not one.is_there]

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for what tells nobody when it comes."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > end:
                raise GangerError(f"waited in vain: {what}")
            select.select([], [], [], LOOK_SECONDS)
        self.say(what[0].upper() + what[1:])

    def say(self, text: str) -> None:
        """One line of what happens."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def claim(self, claim: str, faults: Sequence[str]) -> None:
        """Print whether a claim holds: it does if there are no faults."""
        self.holds = self.holds and not faults
        print(f"  {'FAILED' if faults else 'ok    '} {claim}")
        for fault in faults:
            print(f"         {fault}")

    def end(self) -> None:
        """Leave no process, whatever state the machines are in."""
        for machine in (self.master, *self.hosts.values()):
            # The next look finds a process that was just being started.
            end = time.monotonic() + PATIENCE_SECONDS
            while (left := list(machine.processes())) and time.monotonic() < end:
                machine.kill(left)
            shutil.rmtree(machine.places.run, ignore_errors=True)


def main() -> int:
    """Run the demonstration; 0 if everything held."""
    parser = argparse.ArgumentParser(description="A master and five hosts, and faults.")
    parser.add_argument("--keep", action="store_true", help="leave all files in place")
    parser.add_argument("--loopback", action="store_true", help="no namespaces for the hosts")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    is_inside = demo_network.ENTERED in os.environ
    if not is_inside and not arguments.loopback:
        if not (why_not := demo_network.why_not()):
            demo_network.enter()
        print(f"All hosts share the loopback address: no namespaces ({why_not})")
    folder = Path(tempfile.mkdtemp(prefix="ganger-hosts-"))
    network = demo_network.Cables(HOSTS) if is_inside else demo_network.Loopback()
    if is_inside:
        print("Each host has a network namespace, and a cable to the master")
    demonstration = Demonstration(folder, network)
    try:
        demonstration.run()
    except KeyboardInterrupt:
        print("\nInterrupted: cleaning up", file=sys.stderr)
        return 130
    except GangerError as error:
        print(f"demo-hosts: {error.text}", file=sys.stderr)
        return error.exit_code
    finally:
        demonstration.end()
        if arguments.keep:
            print(f"Kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if demonstration.holds else 1


if __name__ == "__main__":
    sys.exit(main())
