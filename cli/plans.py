"""Reads what is submitted: one job, many jobs or a plan, as JSON or YAML. The home of PyYAML.

Three forms are known::

    [{"OP_ID": ...}, ...]                    one job: its opcodes
    {"ops": [...], "reason": ...}            one job, with options for all of it
    [[...], [...]] or {"jobs": [...]}        many jobs; with names and ``after`` a plan

In a plan ``after`` names the jobs that must come first: ``after: [build]`` (it must have
succeeded), ``after: [{build: [success, failed]}]`` or ``after: [{build: always}]``. ``name`` beside
``jobs`` is the name of the whole plan. ``for_each: {node: ...}`` makes a job for each of several
nodes (`plan_expansion`). A plan becomes one submission in which every job stands
behind those it waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..storage import errors, settings
from ..storage.jobs import origins
from ..storage.jobs.outcomes import DEPENDENCY_WORDS
from ..storage.wording import likeness
from . import plan_expansion, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .plan_expansion import FindNodes

JOB_KEYS = ("name", "ops", "after", "reason", "priority", "depends")
"""What a job of a plan may have."""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a submission. ``depends`` are ids, or places before it as negative numbers.

    ``plan`` is the name of the whole. ``index`` is its place in what was read, from 0: in a plan it
    may be submitted elsewhere.
    """

    ops: list[dict[str, Any]]
    name: str | None = None
    plan: str | None = None
    index: int = 0
    reason: str | None = None
    priority: int | None = None
    depends: list[tuple[int, list[str]]] = []

    def as_submission(self) -> dict[str, Any]:
        """As the client library takes it."""
        given: dict[str, Any] = {"ops": self.ops}
        if self.name is not None:
            given["name"] = self.name
        if self.reason is not None:
            given["reason"] = self.reason
        if self.priority is not None:
            given["priority"] = self.priority
        if self.depends:
            given["depends"] = [[target, statuses] for target, statuses in self.depends]
        return given


def read(
    text: str,
    source: str,
    told: Callable[[int], None] = lambda _: None,
    find_nodes: FindNodes | None = None,
) -> list[PlannedJob]:
    """The jobs in ``text``, in the order of submission; `PlanError` naming what is wrong.

    ``told`` hears how many have been read. ``find_nodes``: as `plan_expansion.expanded` takes it.
    """

    def check_count(count: int) -> None:
        told(count)
        if count > settings.JOBS_PER_SUBMIT_MAX:
            most = f"a submission has at most {settings.JOBS_PER_SUBMIT_MAX} jobs"
            raise errors.PlanError(f"{source}: {most}, and this has more")

    document = reading.parse(text, source, check_jobs=check_count)
    match document:
        case {"jobs": list(entries)} | ([list(), *_] | [{"ops": _}, *_] as entries):
            check_count(len(entries))
    try:
        return _jobs(document, find_nodes)
    except errors.PlanError as error:
        raise errors.PlanError(f"{source}: {error.text}") from error


def _jobs(document: object, find_nodes: FindNodes | None) -> list[PlannedJob]:
    match document:
        case {"jobs": list(entries), **rest}:
            name = _name(rest.pop("name", None), "name")
            if rest:
                raise errors.PlanError(f"unknown key {_first(rest)!r} beside 'jobs'")
            entries = plan_expansion.expanded(entries, find_nodes)
            found = _ordered([_entry(entry, f"jobs[{n}]") for n, entry in enumerate(entries)])
            return [msgspec.structs.replace(one, plan=name) for one in found] if name else found
        case {"jobs": _}:
            raise errors.PlanError("jobs: expected a list")
        case {"ops": _}:
            return _ordered([_entry(document, "job")])
        case {"OP_ID": _}:
            return [PlannedJob(ops=_ops([document], "job"))]
        case [list(), *_] | [{"ops": _}, *_]:
            return _ordered([_entry(entry, f"[{n}]") for n, entry in enumerate(document)])
        case [dict(), *_]:
            return [PlannedJob(ops=_ops(document, "job"))]
    raise errors.PlanError("expected a list of opcodes, a job with 'ops', or 'jobs'")


class _Entry(msgspec.Struct, frozen=True):
    job: PlannedJob
    after: list[tuple[str, list[str]]]
    place: str


def _entry(entry: object, place: str) -> _Entry:
    if isinstance(entry, list):
        return _Entry(PlannedJob(ops=_ops(entry, place)), [], place)
    if not isinstance(entry, dict):
        raise errors.PlanError(f"{place}: expected a job: a mapping with 'ops'")
    name = _name(entry.get("name"), f"{place}.name")
    where = f"job {name!r}" if name else place
    for key in entry:
        if key not in JOB_KEYS:
            text = f"{where}: unknown key {key!r} (known: {', '.join(JOB_KEYS)})"
            raise errors.PlanError(text)
    if "ops" not in entry:
        raise errors.PlanError(f"{where}: 'ops' is missing")
    reason, priority = entry.get("reason"), entry.get("priority")
    if reason is not None and not isinstance(reason, str):
        raise errors.PlanError(f"{where}.reason: expected a text, got {reason!r}")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise errors.PlanError(f"{where}.priority: expected a whole number, got {priority!r}")
    job = PlannedJob(
        ops=_ops(entry["ops"], where),
        name=name,
        reason=reason,
        priority=priority,
        depends=_depends(entry.get("depends"), where),
    )
    return _Entry(job, _after(entry.get("after"), where), where)


def _name(name: object, place: str) -> str | None:
    """The name of a job or plan, by which users call it."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise errors.PlanError(f"{place}: expected a text, got {name!r}")
    try:
        return origins.check_name(name, place)
    except errors.BadRequestError as error:
        raise errors.PlanError(error.text) from error


def _ops(ops: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(ops, list) or not ops:
        raise errors.PlanError(f"{where}: expected a list of opcodes")
    for index, op in enumerate(ops):
        if not isinstance(op, dict):
            raise errors.PlanError(f"{where}: opcode {index}: expected a mapping with 'OP_ID'")
        if op.get("OP_ID") == "OP_EXEC":
            _check_texts(op, f"{where}: opcode {index}: ")
    return ops


def _check_texts(op: dict[str, Any], place: str) -> None:
    """Refuse what YAML has taken for a number or a truth value where a command needs a text."""
    argv, env = op.get("argv"), op.get("env")
    found = [(f"argv[{number}]", word) for number, word in enumerate(_list(argv))]
    found += [(f"env.{name}", env[name]) for name in env] if isinstance(env, dict) else []
    for name, value in found:
        if isinstance(value, int | float):
            written = msgspec.json.encode(value).decode()
            kind = "truth value" if isinstance(value, bool) else "number"
            text = f'{place}{name}: {written} is a {kind}; quote it, as in "{written}"'
            raise errors.PlanError(text)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _depends(depends: object, where: str) -> list[tuple[int, list[str]]]:
    found = []
    for number, one in enumerate(depends if isinstance(depends, list) else []):
        match one:
            case int(job_id) if not isinstance(one, bool):
                found.append((job_id, ["success"]))
            case [int(job_id), list(statuses)]:
                found.append((job_id, [str(status) for status in statuses]))
            case _:
                text = f"{where}.depends[{number}]: expected a job id or [id, [statuses]]"
                raise errors.PlanError(text)
    if depends is not None and not isinstance(depends, list):
        raise errors.PlanError(f"{where}.depends: expected a list")
    return found


def _after(after: object, where: str) -> list[tuple[str, list[str]]]:
    if after is None:
        return []
    if isinstance(after, str):
        after = [after]
    if not isinstance(after, list):
        raise errors.PlanError(f"{where}.after: expected a list of names")
    found: list[tuple[str, list[str]]] = []
    for number, one in enumerate(after):
        match one:
            case str(name):
                found.append((name, ["success"]))
            case dict() if len(one) == 1:
                ((name, statuses),) = one.items()
                found.append((str(name), _statuses(statuses, f"{where}.after[{number}]")))
            case _:
                text = f"{where}.after[{number}]: expected a name or {{name: [statuses]}}"
                raise errors.PlanError(text)
    return found


def _statuses(statuses: object, where: str) -> list[str]:
    if isinstance(statuses, str):
        statuses = [statuses]
    known = ", ".join(DEPENDENCY_WORDS)
    if not isinstance(statuses, list) or not set(map(str, statuses)) <= set(DEPENDENCY_WORDS):
        raise errors.PlanError(f"{where}: expected some of {known}, got {statuses!r}")
    return [str(status) for status in statuses]


def _ordered(entries: list[_Entry]) -> list[PlannedJob]:
    """The jobs in an order in which each comes behind those it waits for, else as written."""
    places = _by_name(entries)
    for entry in entries:
        for name, _ in entry.after:
            if name not in places:
                raise errors.PlanError(
                    f"{entry.place}.after: there is no job called {name!r}{likeness(name, places)}"
                )
    order: list[int] = []
    done: set[int] = set()
    for index in range(len(entries)):
        _visit(index, entries, places, order, done)
    position = {index: number for number, index in enumerate(order)}
    result = []
    for number, index in enumerate(order):
        entry = entries[index]
        depends = [(position[places[name]] - number, statuses) for name, statuses in entry.after]
        depends = [*entry.job.depends, *depends]
        result.append(msgspec.structs.replace(entry.job, index=index, depends=depends))
    return result


def _by_name(entries: Iterable[_Entry]) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, entry in enumerate(entries):
        name = entry.job.name
        if name is None:
            continue
        if name in places:
            raise errors.PlanError(f"two jobs are called {name!r}")
        places[name] = index
    return places


def _visit(
    start: int, entries: list[_Entry], places: dict[str, int], order: list[int], done: set[int]
) -> None:
    """Put ``start`` behind everything it waits for; without recursion: chains may be long."""
    path: list[int] = []
    stack: list[tuple[int, bool]] = [(start, False)]
    while stack:
        index, is_left = stack.pop()
        if is_left:
            path.pop()
            done.add(index)
            order.append(index)
            continue
        if index in done:
            continue
        if index in path:
            names = [str(entries[each].job.name) for each in path[path.index(index) :]]
            raise errors.PlanError(f"the plan has a cycle: {' -> '.join([*names, names[0]])}")
        path.append(index)
        stack.append((index, True))
        needed = [places[name] for name, _ in entries[index].after]
        stack.extend((each, False) for each in sorted(needed, reverse=True))


def _first(mapping: dict[Any, Any]) -> object:
    return next(iter(mapping))
