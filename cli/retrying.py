"""``ganger job retry --edit``: lets the user edit the opcodes of an ended job.

Edited text is never lost: the file is removed only when its text was submitted, or is empty or
unchanged.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors, opcodes
from ..storage.jobs import jobs
from . import output, repeating

if TYPE_CHECKING:
    from ..storage.jobs import job_views
    from ..transport.client.client import Client


def edited(client: Client, job_id: int, *, whole: bool, key: str | None) -> int:
    """Let the user edit the opcodes of an ended job, submit them, and return the new job's id."""
    text = opcodes_text(client.job(job_id), whole=whole)
    path = _stored(text, job_id)
    try:
        _edit(path, job_id)
        ops = read(_saved(path), "the edited opcodes")
        with repeating.under(key) as used:
            new_id = client.retry(job_id, ops=ops, key=used)
    except (errors.GangerError, click.ClickException) as error:
        raise _with_place(error, path, text, job_id) from error
    except (KeyboardInterrupt, click.Abort):
        output.echo(f"ganger: the edited text is kept in {path}", err=True)
        raise
    path.unlink()
    return new_id


def opcodes_text(old: job_views.JobInfo, *, whole: bool) -> str:
    """The opcodes to be repeated, as text to be edited. `JobStateError` if there are none."""
    if not old.is_final:
        text = f"job {old.id} has status {old.status}: only an ended job can be retried"
        raise errors.JobStateError(text)
    ops = old.ops or []
    first = jobs.first_to_repeat(old.id, [op.status for op in ops], is_whole=whole)
    fields = [_fields(op.input) for op in ops[first:]]
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode() + "\n"


def read(text: str, source: str) -> list[dict[str, Any]]:
    """The opcodes in an edited text; `PlanError` names what is wrong with it."""
    from . import plans  # noqa: PLC0415 - most commands read no plan

    match plans.read(text, source):
        case [plans.PlannedJob(ops=ops, name=None, reason=None, priority=None, depends=[])]:
            pass
        case _:
            raise errors.PlanError(f"{source}: expected one list of opcodes")
    for index, op in enumerate(ops):
        if (name := opcodes.lost_secret(op)) is not None:
            text = f"{source}: opcode {index}: {name} is secret and was not stored; give it"
            raise errors.PlanError(text)
    return ops


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are set. Of the reasons those that users gave: limits depend on them."""
    fields = {name: value for name, value in given.items() if value is not None}
    kept = jobs.users_reasons(fields)
    fields.pop("reason", None)
    return {**fields, "reason": kept} if kept else fields


def _stored(text: str, job_id: int) -> Path:
    """A new file with this text that only this user may read."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"ganger-retry-{job_id}-", suffix=".json")
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        # An old time: every save changes it.
        os.utime(name, (0, 0))
    except OSError as error:
        text = f"the opcodes cannot be put into a file to be edited: {error.strerror}"
        raise errors.StorageError(text) from error
    return Path(name)


def _edit(path: Path, job_id: int) -> None:
    try:
        click.edit(filename=str(path))
    except click.ClickException as error:
        if os.environ.get("VISUAL") or os.environ.get("EDITOR"):
            raise
        raise click.ClickException(f"{error.message} (EDITOR names the editor to use)") from error
    try:
        is_saved = path.stat().st_mtime != 0
    except OSError as error:
        text = f"the editor has left no file {path}: nothing is submitted"
        raise errors.UsageError(text) from error
    if not is_saved:
        text = f"nothing was saved: nothing is submitted (as it was: `ganger job retry {job_id}`)"
        raise errors.UsageError(text)


def _saved(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.PlanError(f"the edited opcodes: not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise errors.StorageError(f"{path}: {error.strerror}") from error
    if not text.strip():
        raise errors.UsageError("the edited file is empty: nothing is submitted")
    return text


def _with_place(
    error: errors.GangerError | click.ClickException, path: Path, text: str, job_id: int
) -> Exception:
    """The error, with the file that keeps the edited text, if the user has changed it."""
    try:
        left = path.read_bytes()
    except OSError:
        return error
    if not left.strip() or left == text.encode():
        path.unlink()
        return error
    again = f"ganger job retry {job_id} --ops {shlex.quote(os.fspath(path))}"
    kept = f"the edited text is kept in {path}; mend it, then `{again}`"
    if isinstance(error, click.ClickException):
        return click.ClickException(f"{error.message}; {kept}")
    return type(error)(f"{error.text.rstrip('.')}; {kept}")
