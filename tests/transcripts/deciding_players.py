"""Players of the pure deciding files: locks, run slots, filter rules."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.actors.scheduling.schedules import CHAIN, verdict
from tests.transcripts.player import Command, Player, listed

from ganger.actors.locks.locking import LockOutcome, LockState
from ganger.actors.rules import filtering, gating
from ganger.actors.scheduling.depending import dependency_outcome
from ganger.actors.scheduling.scheduling import Schedule
from ganger.storage.filters.predicates import JobFacts
from ganger.storage.filters.rules import ActionName, FilterRule, parse_rule
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.jobs.outcomes import JobEnd, Outcome, end_of
from ganger.storage.locks.locks import LockLevel, LockMode, Owner, decode_locks, encode_locks
from ganger.storage.prediction.lock_types import NO_LOCKS, LockForecast, exclusive, forecast_of
from ganger.transport.messages import JobVerdict


class Locking(Player):
    """Job 2 has the lock file ``job_2``; ``2@9`` is another process of it, ``x`` a thread."""

    def new(self, _: Command | None = None) -> str:
        self.state = LockState()
        return ""

    def request(self, command: Command) -> str:
        outcome = self.state.request(owner(command), command.number("priority"), locks(command))
        return reply(command, outcome, "waits for")

    def try_now(self, command: Command) -> str:
        priority = float(command.get("priority", "inf"))
        outcome = self.state.try_request(owner(command), locks(command), priority)
        return reply(command, outcome, "is not granted, because of")

    def union(self, command: Command) -> str:
        wanted = [(lock, LockMode(mode)) for lock, mode in locks(command)]
        least = command.number("at-least")
        taken = self.state.opportunistic_union(owner(command), wanted, least)
        return f"{command.words[0]} takes {listed(taken) or 'nothing'}"

    def priority(self, command: Command) -> str:
        priority = int(command.words[1])
        return served(command, self.state.set_priority(owner(command), priority))

    def free(self, command: Command) -> str:
        return served(command, self.state.release_owner(owner(command)))

    def free_level(self, command: Command) -> str:
        level = LockLevel(command.words[1])
        return served(command, self.state.free_level(owner(command), level))

    def share_level(self, command: Command) -> str:
        level = LockLevel(command.words[1])
        return served(command, self.state.downgrade_level(owner(command), level))

    def keep(self, command: Command) -> str:
        return served(command, self.state.intersect(owner(command), command.words[1:]))

    def die(self, command: Command) -> str:
        return served(command, self.state.release_lock_file(owner(command).lock_file))

    def restart(self, _: Command) -> str:
        file = decode_locks(encode_locks(self.state.snapshot()))
        self.state, woken = LockState.restore(file)
        return f"restored; served: {numbers(woken)}" if woken else "restored"

    def pairs(self, command: Command) -> str:
        """Each line: what job 1 holds, what job 2 wants."""
        found = []
        for line in command.data:
            state = LockState()
            held, wanted = ([tuple(one.split("="))] for one in line.split())
            state.request(Owner(1, "job_1", 1), 0, held)  # type: ignore[arg-type]
            tried = state.try_request(Owner(2, "job_2", 1), wanted)  # type: ignore[arg-type]
            asked = state.request(Owner(2, "job_2", 1), 0, wanted)  # type: ignore[arg-type]
            assert tried == asked
            found.append(f"{'granted' if asked.granted else 'waits  '}  {line}")
        return "\n".join(found)

    def show(self, _: Command) -> str:
        held = [(one.identifier, self.state.list_locks(one)) for one in self.state.owners()]
        lines = [f"{name} holds {listed(f'{n}={m}' for n, m in own)}" for name, own in held if own]
        for pending in self.state.snapshot().pending:
            wants = listed(f"{name}={change}" for name, change in pending.changes)
            lines.append(f"{pending.owner.identifier} (priority {pending.priority}) wants {wants}")
        return "\n".join(lines) or "nobody holds or wants anything"


def owner(command: Command) -> Owner:
    name, _, process = command.words[0].partition("@")
    if not name.isdigit():
        return Owner(name, "daemon", 1)
    return Owner(int(name), f"job_{name}", int(process or 1))


def locks(command: Command) -> list[tuple[str, str]]:
    return [(key, value) for key, value in command.pairs if "/" in key]


def numbers(owners: Iterable[Owner]) -> str:
    return listed(one.identifier for one in owners)


def reply(command: Command, outcome: LockOutcome, stopped: str) -> str:
    text = f"{command.words[0]} "
    text += "granted" if outcome.granted else f"{stopped} {numbers(outcome.blockers)}"
    return text + (f"; served: {numbers(outcome.woken)}" if outcome.woken else "")


def served(command: Command, woken: Iterable[Owner]) -> str:
    return f"{command.name} {command.words[0]}: served {numbers(woken) or 'nobody'}"


class Scheduling(Player):
    """A schedule of jobs under rule chain 7; ``decide`` says what starts."""

    def new(self, command: Command | None = None) -> str:
        self.schedule = Schedule(command.number("slots", 20) if command else 20)
        self.schedule.change_chain(CHAIN)
        return ""

    def pending(self, command: Command) -> str:
        for one in verdicts(command):
            self.schedule.add(one)
        return ""

    def judged(self, command: Command) -> str:
        for one in verdicts(command):
            self.schedule.judge(one)
        return ""

    def end(self, command: Command) -> str:
        self.schedule.learn(command.id, JobStatus(command.words[1]))
        return ""

    def holds(self, command: Command) -> str:
        """The lock manager tells what a job holds now, on the level of nodes."""
        self.schedule.locks_changed(command.id, on_nodes(command.words[1:]))
        return ""

    def gone(self, command: Command) -> str:
        """The lock manager tells that the process of a job has ended, and lost its locks."""
        self.schedule.owner_ended(command.id)
        return ""

    def status(self, command: Command) -> str:
        """The job queue answers a question."""
        word = command.words[1]
        self.schedule.learn(command.id, None if word == "missing" else JobStatus(word))
        return ""

    def priority(self, command: Command) -> str:
        self.schedule.reprioritise(command.id, int(command.words[1]))
        return ""

    def remove(self, command: Command) -> str:
        self.schedule.remove(command.id)
        return ""

    def slots(self, command: Command) -> str:
        self.schedule.limit(command.id)
        return ""

    def rules(self, command: Command) -> str:
        self.schedule.change_chain(command.id, reads_opcodes=bool(command.get("reads")))
        return ""

    def replace_all(self, command: Command) -> str:
        pending, running = (
            [one for line in command.data for one in parse(line) if line.startswith(word)]
            for word in ("pending", "running")
        )
        self.schedule.replace_all(pending, running)
        return ""

    def decide(self, _: Command) -> str:
        made = self.schedule.decide()
        limits = {one: f" (limit {name})" for one, name in made.limits.items()}
        lines = [f"start {listed(str(one) + limits.get(one, '') for one in made.start)}"]
        lines += [f"{one.id} {one.verdict} {one.text}".rstrip() for one in made.unsatisfiable]
        lines += [f"ask the queue for {listed(made.unknown)}"] if made.unknown else []
        lines += [f"eligible {listed(made.eligible)}"] if made.eligible else []
        lines += [f"ask the rules for {listed(made.unjudged)}"] if made.unjudged else []
        return "; ".join(lines if made.start else ["start nothing", *lines[1:]])

    def why(self, command: Command) -> str:
        at = self.schedule.position(command.id)
        assert at is not None
        full = [f"bucket {one.name} has {one.size}, taken by {one.inside}" for one in at.full]
        facts = (
            f"{command.id}: {at.ahead} ahead",
            f"waits for {listed(at.open)}" if at.open else "",
            at.failing,
            listed(full),
            f"{at.action} by {at.rule}" if at.rule else "",
            f"running {listed(at.running) or 'nothing'} in {at.slots} slots",
        )
        return "; ".join(filter(None, facts))

    def depends(self, command: Command) -> str:
        """Each line: dependencies, and behind ``given`` what is known (status/outcome)."""
        found = []
        for line in command.data:
            wanted, given = (part.split() for part in line.split("given"))
            depends = [after(word) for word in wanted]
            known = {
                int(job_id): None if end == "missing" else end_given(end)
                for job_id, end in (word.split(":") for word in given)
            }
            made = dependency_outcome(depends, known)
            done = f"{made.verdict}{f' for {listed(made.open)}' if made.open else ''}"
            text = f"  ({made.text})" if made.text else ""
            found.append(f"{done:<13}  {line}{text}")
        return "\n".join(found)


def end_given(text: str) -> JobEnd:
    status, _, outcome = text.partition("/")
    plain = end_of(JobStatus(status), None)
    return plain._replace(outcome=Outcome(outcome)) if outcome else plain


def after(word: str) -> tuple[int, tuple[str, ...]]:
    target, _, statuses = word.partition(":")
    return int(target), tuple(filter(None, statuses.split(",")))


def parse(line: str) -> list[JobVerdict]:
    name, *words = line.split()
    pairs = [(key, value) for key, _, value in (word.partition("=") for word in words) if value]
    ids = [word for word in words if "=" not in word]
    return verdicts(Command(name, ids, pairs, []))


def on_nodes(names: Iterable[str]) -> LockForecast:
    found = tuple(filter(None, names))
    return forecast_of(node=exclusive(found)) if found else NO_LOCKS


def verdicts(command: Command) -> list[JobVerdict]:
    nodes = on_nodes(command.get("nodes").split(","))
    depends = [after(value) for key, value in command.pairs if key == "after"]
    buckets = [value.split(":") for key, value in command.pairs if key == "bucket"]
    limit = command.number("limit") or None
    action = "RATE_LIMIT" if limit else command.get("action", "ACCEPT")
    return [
        verdict(
            job_id,
            *((target, ",".join(wanted)) for target, wanted in depends),
            priority=command.number("priority"),
            action=action,
            rule=command.get("rule") or (None if action == "ACCEPT" else "r"),
            limit=limit,
            limits=tuple((name, int(size)) for name, size in buckets),
            chain=command.number("chain", CHAIN),
            forecast=nodes,
        )
        for job_id in command.ids
    ]


# A job as the daemon stores it at submission: defaults filled in, unset parameters left out,
# except for `depends` and `comment`, which are null.
DELAY: dict[str, Any] = {
    "OP_ID": "OP_TEST_DELAY",
    "duration": 0.001,
    "on_master": True,
    "on_nodes": ["node1", "node2"],
    "repeat": 0,
    "no_locks": False,
    "priority": -10,
    "depends": [[99, ["success"]]],
    "comment": None,
    "dry_run": False,
    "debug_level": 2,
    "reason": [["gnt:user", "pink bunny", 50], ["gnt:opcode:test_delay", "job=101;index=0", 60]],
}
CREATE: dict[str, Any] = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "web1",
    "hvparams": {"acpi": True, "boot": {"order": "disk"}, "vnc": None},
    "priority": 0,
    "depends": None,
    "comment": "second",
    "reason": [["gnt:user", "urgent", 70]],
}


class Rules(Player):
    """Rules ``a`` to ``f`` in force; their UUIDs begin with these letters."""

    def new(self, _: Command | None = None) -> str:
        self.known: list[FilterRule] = []
        return ""

    def rule(self, command: Command) -> str:
        action: Any = command.words[1]
        fields: dict[str, Any] = {
            "valid_from": command.number("from") or None,
            "valid_until": command.number("until") or None,
        }
        made = {
            "uuid": f"{command.words[0] * 8}-0000-4000-8000-000000000000",
            "watermark": command.number("watermark", 100),
            "priority": command.number("priority"),
            "action": [action, command.number("limit")] if command.get("limit") else action,
            "predicates": [json.loads(line) for line in command.data],
            **{key: value for key, value in fields.items() if value is not None},
        }
        self.known.append(parse_rule(made))
        return ""

    def job(self, command: Command) -> str:
        """A job with one opcode is judged."""
        reason = [["gnt:user", command.get("reason"), 1]]
        facts = JobFacts.of(
            command.id, [{"OP_ID": command.get("op", "OP_TEST_DELAY"), "reason": reason}]
        )
        now = float(command.number("at"))
        chains = [filtering.compile_chain(known, now) for known in (self.known, self.known[::-1])]
        one, other = (filtering.judge(chain, facts) for chain in chains)
        assert one == other, "the order in which rules are given counts"
        limit = f" {one.limit}" if one.limit else ""
        return f"{command.id}: {one.action}{limit} by {(one.rule or 'no rule,')[:8].rstrip(',')}"

    def chain(self, command: Command) -> str:
        made = filtering.compile_chain(self.known, float(command.number("at")))
        order = listed((one.verdict.rule or "")[0] for one in made.links)
        reads = "opcodes" if made.looks_at.opcodes else "ids only"
        return f"in force: {order or 'none'}; reads {reads}; next change: {made.changes_at}"

    def match(self, command: Command) -> str:
        """Whether a predicate matches the job of `DELAY` and `CREATE`, id 101."""
        found = []
        facts = JobFacts.of(101, [DELAY, CREATE])
        for line in command.data:
            expression, end = json.JSONDecoder().raw_decode(line)
            self.new()
            self.rule(
                Command("rule", ["a", "PAUSE"], [], [json.dumps([command.words[0], expression])])
            )
            verdict = filtering.judge(filtering.compile_chain(self.known, 0.0), facts)
            yes = "yes" if verdict.action is ActionName.PAUSE else "no "
            found.append(f"{yes}  {line[end:].strip()}")
        return "\n".join(found)

    def gate(self, command: Command) -> str:
        action = ActionName(command.words[0])
        found = filtering.Verdict("a", action, command.number("limit") or None)
        done = gating.decide(
            found, has_executed="executed" in command.words, limit=command.get("chosen")
        )
        return f"{done.outcome}{f' by {done.rule}' if done.rule else ''}"
