"""Where a job comes from: its name, its plan, the job that it repeats, and who submitted it.

A listener finds out who submits, from the credentials of the connection. The queue stores it in the
job's file, in extra keys; a row in memory has an `Origin`, which alike jobs share.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from .. import errors, settings, wording

NAME_KEY: Final = "ganger_name"
"""Extra key of a job file: the job's name."""

PLAN_KEY: Final = "ganger_plan"
"""Extra key of a job file: the name of the plan that the job is part of."""

RETRY_OF_KEY: Final = "ganger_retry_of"
"""Extra key of a job file: the ended job that this one repeats."""

SUBMITTER_KEY: Final = "ganger_submitter"
"""Extra key of a job file: who submitted the job."""

LAST: Final = "@last"
"""Stands, in place of a name, for the newest job of the user who asks."""

Via = Literal["socket", "key", "rapi", "luxi", "node"]
"""The way in: the local socket, a key of a remote client, the remote API, Ganeti's LUXI."""

_NUMBER = re.compile(r"\s*[+-]?[\d_]+\s*")
_OWN_NAMES: Final[tuple[Via, ...]] = ("key", "rapi", "node")
"""The ways in with users of their own, who may be called as a user of the system is."""


class Submitter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who submitted a job: the user, or the name of the key, and the way in.

    ``uid``: of a local user, as the kernel vouches for it. ``era``: of a task, the host's era in
    which it came (`storage.nodes.begun_tasks`).
    """

    user: str
    uid: int | None = None
    via: Via
    era: str = ""

    @property
    def shown(self) -> str:
        """The submitter in one word: ``alice``; a remote one is ``key:laptop`` or ``rapi:bob``."""
        return f"{self.via}:{self.user}" if self.via in _OWN_NAMES else self.user

    def is_same_user(self, other: Submitter | None) -> bool:
        """Whether this is the same user, by whatever way."""
        return other is not None and (self.uid, self.shown) == (other.uid, other.shown)


class Origin(msgspec.Struct, frozen=True):
    """Where one job comes from; empty texts and None: nothing is known of that."""

    name: str = ""
    plan: str = ""
    submitter: Submitter | None = None
    user: str = ""
    """The submitter in one word."""
    retry_of: int | None = None
    """The job that it repeats."""

    @property
    def is_task(self) -> bool:
        """Whether a master waits for the job's end, and records it."""
        return self.submitter is not None and self.submitter.via == "node"


UNKNOWN: Final = Origin()
"""Of jobs whose files say nothing of it."""


def origin_of(extra: Mapping[str, Any]) -> Origin:
    """Where the job with these extra keys comes from; what is malformed counts as unknown."""
    raw = extra.get(SUBMITTER_KEY)
    name, plan = extra.get(NAME_KEY), extra.get(PLAN_KEY)
    retry_of = job_id_in(extra.get(RETRY_OF_KEY))
    if raw is None and name is None and plan is None and retry_of is None:
        return UNKNOWN
    submitter = raw if isinstance(raw, Submitter) else _submitter_in(raw)
    return shared(_text(name), _text(plan), submitter, retry_of)


@functools.lru_cache(maxsize=4_096)
def shared(
    name: str, plan: str, submitter: Submitter | None, retry_of: int | None = None
) -> Origin:
    """The origin with these parts: many jobs have the same object."""
    user = submitter.shown if submitter is not None else ""
    return Origin(name, plan, submitter, user, retry_of)


def job_id_in(value: object) -> int | None:
    """The id that a job's file names; None: it is malformed."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _submitter_in(raw: object) -> Submitter | None:
    try:
        return None if raw is None else msgspec.convert(raw, Submitter)
    except msgspec.ValidationError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def check_name(name: str, place: str) -> str:
    """``name`` if a job or plan may have it; else `BadRequestError` that begins with ``place``.

    It must not look like an id, an option, or a word such as ``@last``.
    """
    size = len(name.encode("utf-8", "replace"))
    if not 0 < size <= settings.NAME_BYTES_MAX:
        text = f"{place}: expected a name of 1 to {settings.NAME_BYTES_MAX} bytes, got {size}"
        raise errors.BadRequestError(text)
    if _NUMBER.fullmatch(name):
        raise errors.BadRequestError(f"{place}: {name.strip()!r} looks like an id; use a letter")
    if name.startswith(("@", "-")):
        text = f"{place}: {wording.shown(name)} begins with {name[0]}, which names must not"
        raise errors.BadRequestError(text)
    if wording.has_control(name) or name != name.strip():
        text = f"{place}: {wording.shown(name)}: expected a name without control characters, "
        raise errors.BadRequestError(f"{text}and without blanks at its ends")
    return name


def is_name(text: str) -> bool:
    """Whether ``text`` can only be a name, and no id; ``@last`` counts as one.

    >>> is_name("backup"), is_name("@last"), is_name("17"), is_name("-1")
    (True, True, False, False)
    """
    return not _NUMBER.fullmatch(text)
