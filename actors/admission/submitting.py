"""From a submission to the jobs that will be stored: pure checks of the admission.

All jobs are checked before any is stored. One bad job fails its whole submission; the error names
its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors, opcodes, request_keys, settings, wording
from ...storage.cluster.lock_names import LockNames
from ...storage.jobs import jobs, origins
from ...storage.nodes import node_states
from ...storage.opcodes import catalogue, fields
from ...storage.opcodes.node_opcodes import OpNodeCall, OpNodeCopy
from ...storage.queue_files import job_files, spool
from ...transport.messages import JobSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_DIGEST_BYTES = 12
_INPUTS = {
    catalogue.OpExec.op_id: ("stdin", "stdin_base64"),
    OpNodeCopy.op_id: ("content", "content_base64"),
}
"""The parameters of opcodes that may be large: a file beside the job holds them then."""
_NOTED = (catalogue.OpExec.op_id, OpNodeCall.op_id, OpNodeCopy.op_id)
"""The opcodes in which the queue notes the UUIDs of what their locks name."""
_NO_NAMES = LockNames({})
_encode = msgspec.json.Encoder(order="deterministic").encode

FindInput = Callable[[object], spool.Stored]
"""Finds standard input that lies in a file already, by its name. Raises `OpcodeError`."""


class Draft(msgspec.Struct, frozen=True):
    """A checked job, ready to be stored, with what lies outside its file."""

    job: jobs.Job
    secrets: dict[int, dict[str, Any]] = {}
    """Secret parameters of the opcodes that have any, by their places; kept in memory only."""
    inputs: list[tuple[str, bytes | spool.Stored]] = []
    """Files of standard input beside the job: names and contents."""


DONE = Draft(jobs.Job(id=0, ops=[]))
"""In place of a draft of which nothing more is needed."""


def drafts(
    specs: Sequence[JobSpec],
    *,
    first_id: int,
    now: float,
    key: str | None,
    find_input: FindInput | None = None,
) -> list[Draft]:
    """The jobs of one submission, with ids from ``first_id`` on.

    Raises what `check_whole` and `drafted` raise.
    """
    check_whole(specs, first_id=first_id, key=key)
    return drafted(
        specs, range(len(specs)), first_id=first_id, now=now, key=key, find_input=find_input
    )


def check_whole(specs: Sequence[JobSpec], *, first_id: int, key: str | None) -> None:
    """Check what concerns the submission, and none of its jobs.

    Raises `BadRequestError`, and `DataDirectoryError` if no ids are left.
    """
    if not specs:
        raise errors.BadRequestError("a submission needs at least one job")
    if len(specs) > settings.JOBS_PER_SUBMIT_MAX:
        text = f"a submission has at most {settings.JOBS_PER_SUBMIT_MAX} jobs, got {len(specs)}"
        raise errors.BadRequestError(text)
    if key is not None:
        request_keys.check(key)
    if first_id + len(specs) - 1 > job_files.ID_MAX:
        # The next start would not recognise a file with a higher number as one of a job.
        left = job_files.ID_MAX - first_id + 1
        ids = wording.counted(max(left, 0), "id")
        text = f"the queue has {ids} left, up to {job_files.ID_MAX}, too few for this"
        raise errors.DataDirectoryError(text)


def drafted(
    specs: Sequence[JobSpec],
    places: Iterable[int],
    *,
    first_id: int,
    now: float,
    key: str | None,
    find_input: FindInput | None = None,
    nodes: Mapping[str, str] | None = None,
    lock_names: LockNames = _NO_NAMES,
) -> list[Draft]:
    """The jobs at these places of one submission, whose ids begin with ``first_id``.

    ``find_input`` finds what was sent before, and the files of the job that is repeated: opcodes
    may name no others. ``nodes``: the state of each node (`node_states`); None: all will do.
    ``lock_names``: what the locks of commands are called.
    Raises `BadRequestError` (or a kind of it) naming the job, opcode and
    parameter.
    """
    result = []
    for place in places:
        try:
            draft = _draft(specs[place], place, first_id, now, key, find_input, nodes)
            _note_locks(draft.job, lock_names)
            result.append(draft)
        except errors.BadRequestError as error:
            if len(specs) == 1:
                raise
            raise type(error)(f"job {place} of the submission: {error.text}") from error
    return result


def _draft(  # noqa: PLR0917 - one job of a submission
    spec: JobSpec,
    place: int,
    first_id: int,
    now: float,
    key: str | None,
    find_input: FindInput | None,
    nodes: Mapping[str, str] | None,
) -> Draft:
    if not spec.ops:
        raise errors.BadRequestError("a job needs at least one opcode")
    if len(spec.ops) > settings.OPCODES_PER_JOB_MAX:
        text = f"a job has at most {settings.OPCODES_PER_JOB_MAX} opcodes, got {len(spec.ops)}"
        raise errors.BadRequestError(text)
    job_id = first_id + place
    entries = []
    for index, raw in enumerate(spec.ops):
        try:
            entries.append(_entry(spec, raw, index, job_id, place, now))
            _check_nodes(entries[-1].input, nodes)
        except errors.BadRequestError as error:
            if len(spec.ops) == 1:
                raise
            raise type(error)(f"opcode {index}: {error.text}") from error
    secrets = {index: found for index, op in enumerate(entries) if (found := _hide_secrets(op))}
    inputs = []
    for index, op in enumerate(entries):
        if op.input["OP_ID"] in _INPUTS:
            at = f"opcode {index}: " if len(entries) > 1 else ""
            inputs += _take_input(op.input, spool.input_name(job_id, index), find_input, at)
    extra: dict[str, Any] = {jobs.STATE_SERIAL_KEY: 1}
    if key is not None:
        extra[jobs.SUBMISSION_KEY] = key
    if spec.name:
        extra[origins.NAME_KEY] = origins.check_name(spec.name, "name")
    job = jobs.Job(id=job_id, ops=entries, received_timestamp=jobs.timestamp(now), extra=extra)
    return Draft(job, secrets, inputs)


def _check_nodes(given: Mapping[str, Any], nodes: Mapping[str, str] | None) -> None:
    """Raise `OpcodeError` if the opcode is to run on a node that takes no commands."""
    if nodes is None or not ("node" in given or "nodes" in given):
        return
    declared = catalogue.find(given["OP_ID"])
    if declared is not None and declared.runs_on_nodes:
        for name in opcodes.targets(given):
            node_states.check_new(nodes, name, given["OP_ID"])


def _note_locks(job: jobs.Job, names: LockNames) -> None:
    """Note in commands the UUIDs of what their locks name."""
    for op in job.ops:
        given = op.input
        if given["OP_ID"] not in _NOTED:
            continue
        # What was copied from a stored job may have changed since.
        given.pop("lock_uuids", None)
        nodes, locks = opcodes.targets(given), given.get("locks")
        if names.has_some and (nodes or locks):
            needs = fields.locks_on_nodes(opcodes.LockNeeds.of(locks or {}), nodes, {})
            if uuids := names.uuids(needs.named()):
                given["lock_uuids"] = uuids


def stored_forms(drafts: Sequence[Draft], accepted: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """The jobs that are to be stored: id, serial, and the text of the file.

    ``accepted`` are their places. `BadRequestError` names one that is too large.
    """
    found = []
    for place in accepted:
        draft = drafts[place]
        body = jobs.encode_job(draft.job)
        try:
            check_size(draft.job, body, draft.secrets)
        except errors.BadRequestError as error:
            text = error.text
            if len(drafts) > 1:
                text = f"job {place} of the submission: {text}"
            raise errors.BadRequestError(text) from error
        found.append((draft.job.id, 1, body))
    return found


def check_size(job: jobs.Job, body: bytes, secrets: Mapping[int, dict[str, Any]]) -> None:
    """Raise `BadRequestError` if the stored form of a new job, with its secrets, is too large.

    It names the opcode if the job has several.
    """
    size = len(body) + (len(msgspec.json.encode(secrets)) if secrets else 0)
    if size <= settings.JOB_SUBMITTED_BYTES_MAX:
        return
    limit = settings.JOB_SUBMITTED_BYTES_MAX
    text = f"the job is too large: {size} bytes as JSON, at most {limit} are stored"
    if len(job.ops) > 1:
        sizes = [len(msgspec.json.encode(op.input)) for op in job.ops]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        text += f" (the largest opcode is opcode {largest}, with {sizes[largest]} bytes)"
    raise errors.BadRequestError(text)


def digest(spec: JobSpec) -> str:
    """A digest of a submitted job, which tells a repetition; empty if there can be no such job.

    Defaults that a later version fills in do not change it, nor do the times of reasons. It leaves
    out secrets, because the digest of a short secret gives it away.
    """
    try:
        given = [_given(raw) for raw in spec.ops]
        name = (spec.name,) if spec.name else ()
        content = (given, _untimed(spec.reason), spec.priority, spec.depends, *name)
        return hashlib.blake2b(_encode(content), digest_size=_DIGEST_BYTES).hexdigest()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return ""


def _given(raw: Mapping[str, Any]) -> dict[str, Any]:
    fields = opcodes.redacted(raw)
    if "reason" in fields:
        fields["reason"] = _untimed(fields["reason"])
    return fields


def _untimed(trail: object) -> object:
    """A reason trail without times, which are those of each attempt."""
    if not isinstance(trail, list | tuple):
        return trail
    return [entry[:2] if isinstance(entry, list | tuple) else entry for entry in trail]


def no_input(name: object) -> spool.Stored:
    """A submission may name no file, but what was sent before for it. Raises `OpcodeError`."""
    if spool.upload_of(name) is not None:
        raise errors.InputLostError("what was sent before is gone; send it again")
    raise errors.OpcodeError("the queue sets this itself; give stdin")


def _take_input(
    given: dict[str, Any], name: str, find_input: FindInput | None, place: str
) -> list[tuple[str, bytes | spool.Stored]]:
    """Have a large input in a file beside the job, which has this name; that file."""
    op_id = given["OP_ID"]
    stored = given.get("stdin_file")
    if stored is not None:
        try:
            source = (find_input or no_input)(stored)
        except errors.OpcodeError as error:
            raise type(error)(f"{place}{op_id}: stdin_file: {error.text}") from error
        given["stdin_file"] = name
        return [(name, source)]
    plain, encoded = _INPUTS[op_id]
    field = plain if given.get(plain) is not None else encoded
    text: str | None = given.get(field)
    if text is None or _fits(text):
        return []
    data = text.encode() if field == plain else fields.from_base64(text)
    del given[field]
    given["stdin_file"] = name
    return [(name, data)]


def _fits(text: str) -> bool:
    """Whether the standard input may stand in the job's own file."""
    limit = settings.INPUT_INLINE_BYTES_MAX
    # A character takes at most six bytes as JSON, and the quotes two; nearly all inputs are small.
    return len(text) * 6 + 2 <= limit or len(msgspec.json.encode(text)) <= limit


def inputs(spec: JobSpec, *, job_id: int, place: int) -> list[dict[str, Any]]:
    """The opcodes of a job as they are stored, but for times. Raises `BadRequestError`."""
    return [_entry(spec, raw, index, job_id, place, 0).input for index, raw in enumerate(spec.ops)]


def retried(
    job: jobs.Job,
    ops: Sequence[dict[str, Any]] | None,
    *,
    is_whole: bool,
    now_nanoseconds: int,
) -> JobSpec:
    """The job that repeats an ended one, from its first opcode that did not succeed on.

    ``is_whole``: from its first one on. ``ops`` replaces its opcodes. `JobStateError` if all
    succeeded, `BadRequestError` naming a secret parameter, which no file has.
    """
    reason = [(jobs.RETRY_SOURCE, f"retry of job {job.id}", now_nanoseconds)]
    name = origins.origin_of(job.extra).name or msgspec.UNSET
    if ops is not None:
        return JobSpec(ops=list(ops), reason=reason, name=name)
    statuses = [op.status for op in job.ops]
    first = jobs.first_to_repeat(job.id, statuses, is_whole=is_whole)
    inputs = [_repeated(op.input, index) for index, op in enumerate(job.ops) if index >= first]
    return JobSpec(ops=inputs, reason=reason, name=name)


def _repeated(fields: Mapping[str, Any], index: int) -> dict[str, Any]:
    if (name := opcodes.lost_secret(fields)) is not None:
        text = f"opcode {index}: {name} is secret and was not stored; give the opcodes anew"
        raise errors.BadRequestError(text)
    return {**fields, "reason": jobs.users_reasons(fields)}


def _hide_secrets(entry: jobs.OpcodeEntry) -> dict[str, Any]:
    """Take the secret parameters out of an opcode that will be stored, and return them."""
    if not opcodes.secret_fields(entry.input):
        return {}
    stored = opcodes.redacted(entry.input)
    secrets = {name: value for name, value in entry.input.items() if stored[name] != value}
    entry.input = stored
    return secrets


def check_targets(
    drafts: Iterable[Draft], first_id: int, count: int, is_job: Callable[[int], bool]
) -> None:
    """Raise `DependencyError` if a job waits for one that does not exist.

    ``count``: the jobs of the submission. ``is_job`` says whether there is a job with an id below
    ``first_id``.
    """
    for draft in drafts:
        for index, op in enumerate(draft.job.ops):
            for number, (target, _) in enumerate(op.input.get("depends") or ()):
                if target >= first_id or is_job(target):
                    continue
                text = f"depends[{number}]: there is no job {target}"
                if len(draft.job.ops) > 1:
                    text = f"opcode {index}: {text}"
                if count > 1:
                    text = f"job {draft.job.id - first_id} of the submission: {text}"
                raise errors.DependencyError(text)


def _entry(  # noqa: PLR0917 - the place of one opcode in its submission
    spec: JobSpec, raw: dict[str, Any], index: int, job_id: int, place: int, now: float
) -> jobs.OpcodeEntry:
    given = dict(raw)
    if index == 0 and spec.depends:
        if given.get("depends") or given.get("depend"):
            text = "depends: given for the job and for its first opcode; use one of the two"
            raise errors.DependencyError(text)
        given["depends"] = [[target, list(statuses)] for target, statuses in spec.depends]
    if spec.priority is not None:
        given.setdefault("priority", spec.priority)
    fields = opcodes.check_opcode(given)
    if (name := opcodes.lost_secret(fields)) is not None:
        # It was copied from a stored job; without the secret the new job would fail.
        text = f"{fields['OP_ID']}: {name}: {opcodes.REDACTED} stands for a secret; give the secret"
        raise errors.OpcodeError(text)
    if fields.get("depends"):
        # Checked again: the check of an opcode that a user installed may change them.
        fields["depends"] = _resolved(opcodes.dependencies(fields), job_id, place)
    fields["reason"] = _trail(spec, fields, index, job_id, now)
    return jobs.OpcodeEntry(input=fields, priority=fields.get("priority", 0))


def _trail(
    spec: JobSpec, fields: dict[str, Any], index: int, job_id: int, now: float
) -> list[list[Any]]:
    microseconds = int(now * 1_000_000)
    source = f"gnt:opcode:{fields['OP_ID'].removeprefix('OP_').lower()}"
    text = f"job={job_id};index={index}"
    given = [list(entry) for entry in (*fields.get("reason", ()), *spec.reason)]
    return [*given, [source, text, microseconds * 1_000]]


def _resolved(
    depends: list[tuple[int, tuple[str, ...]]], job_id: int, place: int
) -> list[list[Any]]:
    """Dependencies with absolute ids; relative ones count back within the submission."""
    resolved: list[list[Any]] = []
    for number, (target, statuses) in enumerate(depends):
        if 0 < target < job_id:
            resolved.append([target, list(statuses)])
        elif -place <= target < 0:
            resolved.append([target + job_id, list(statuses)])
        else:
            raise errors.DependencyError(
                f"depends[{number}]: {_out_of_reach(target, job_id, place)}"
            )
    return resolved


def _out_of_reach(target: int, job_id: int, place: int) -> str:
    if target < 0:
        before = wording.counted(place, "job")
        reach = f"the submission has {before} before this one"
        return f"{target} is out of reach: {reach}"
    if target == job_id:
        return "a job cannot depend on itself"
    return f"there is no job {target} (yet)"
