"""Which jobs a listing shows: conditions on the listed fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import translate
from typing import TYPE_CHECKING

import msgspec

from .. import errors, settings
from .outcomes import Outcome

if TYPE_CHECKING:
    from .jobs import JobStatus
    from .listing import JobSummary

    Test = Callable[[JobSummary], bool]


class JobFilter(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Conditions on a job, all of which must be met.

    ``name``: the name of the job, or that of its plan, with ``*`` and ``?``. ``user``: who
    submitted it; ``bob`` stands for ``key:bob``, too. ``reason``: a part of its reason.
    ``reason`` and ``text`` are looked for in small letters or capitals.
    ``since``, ``until``: it was received from then on, or before; seconds since the epoch.
    ``text``: each of these words is a part of its id, summary, reason, name, plan or user.
    ``outcomes``: it has ended in one of these.
    """

    name: str | None = None
    user: str | None = None
    reason: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None
    outcomes: list[Outcome] | None = None

    def check(self) -> None:
        """Raise `BadRequestError` for a text that is empty, or too long."""
        for field in ("name", "user", "reason", "text"):
            given = getattr(self, field)
            if given is not None and not 0 < len(given) <= settings.SUMMARY_BYTES_MAX:
                most = settings.SUMMARY_BYTES_MAX
                text = f"{field}: expected 1 to {most} characters, got {len(given)}"
                raise errors.BadRequestError(text)

    def test(self, *, is_exact: bool = False) -> Test:
        """Whether a job meets all conditions; ``is_exact``: the name has no signs for others."""
        tests = tuple(self._tests(is_exact=is_exact))
        if len(tests) == 1:
            return tests[0]
        return lambda job: all(test(job) for test in tests)

    def _tests(self, *, is_exact: bool) -> Iterator[Test]:
        # The cheap ones, and those that most jobs fail, come first.
        if (since := self.since) is not None:
            yield lambda job: job.received is not None and job.received >= since
        if (until := self.until) is not None:
            yield lambda job: job.received is not None and job.received < until
        if self.outcomes is not None:
            outcomes = frozenset(self.outcomes)
            yield lambda job: job.outcome in outcomes
        if (user := self.user) is not None:
            yield lambda job: job.user == user or job.user.rpartition(":")[2] == user
        if (name := self.name) is not None and is_exact:
            yield lambda job: name in (job.name, job.plan)
        elif name is not None:
            is_called = re.compile(translate(name)).fullmatch
            yield lambda job: bool(
                (job.name and is_called(job.name)) or (job.plan and is_called(job.plan))
            )
        if (reason := self.reason) is not None:
            part = reason.lower()
            yield lambda job: part in job.reason.lower()
        if self.text is not None:
            words = self.text.lower().split()
            yield lambda job: _has_words(job, words)

    def needles(self, statuses: Collection[JobStatus] | None = None) -> Needles:
        """What stands in the JSON of each job that passes, and has one of ``statuses``."""
        name = "" if self.name is None or set("*?[") & set(self.name) else self.name
        of_name = [] if self.name is None or "[" in self.name else re.split("[*?]", self.name)
        texts = [text for text in (*of_name, self.user) if text]
        parts: list[tuple[bytes, ...]] = [(_in_json(text),) for text in texts]
        if self.outcomes is not None:
            parts.append(tuple(b'"outcome":"%b"' % one.encode() for one in self.outcomes))
        if statuses is not None:
            parts.append(tuple(b'"status":"%b"' % one.encode() for one in statuses))
        words = (self.text or "").split()
        reason = [self.reason] if self.reason else []
        # Digits may be a part of the id.
        certain = [*texts, *reason, *(word for word in words if not word.isdecimal())]
        return Needles(
            name=name or self.user or "",
            parts=tuple(parts),
            words=tuple(_in_json(_small(word)).lower() for word in (*reason, *words)),
            grams=frozenset(gram for text in certain for gram in grams(text)),
            since=self.since,
            until=self.until,
            outcomes=None if self.outcomes is None else frozenset(map(str, self.outcomes)),
        )


class Needles(msgspec.Struct, frozen=True):
    """Parts of the JSON of a job: what lacks one of them need not be decoded.

    ``name``: it is the name, the plan or the user, or the name of the user's key. ``parts``: one of
    each. ``words``: all of them, in small letters. The rest says which jobs need no look at all:
    ``grams`` of its texts, and when it was received, and its outcome, as in `JobFilter`.
    """

    name: str = ""
    parts: tuple[tuple[bytes, ...], ...] = ()
    words: tuple[bytes, ...] = ()
    grams: frozenset[bytes] = frozenset()
    since: float | None = None
    until: float | None = None
    outcomes: frozenset[str] | None = None

    def __bool__(self) -> bool:
        """Whether anything is looked for."""
        return bool(self.parts or self.words)

    def are_in(self, text: bytes) -> bool:
        """Whether all of them are in the JSON of a job, or may be in that of several jobs."""
        if not all(any(one in text for one in part) for part in self.parts):
            return False
        if not self.words:
            return True
        # Other letters have small forms that bytes do not know.
        is_plain = text.isascii()
        small = text.lower() if is_plain else _small(text.decode("utf-8", "replace")).encode()
        return all(word in small for word in self.words)


NOTHING = Needles()


def grams(text: str) -> set[bytes]:
    """Each three bytes in a row of the words of a text, in small letters.

    Those of a part of the text are among them.

    >>> sorted(grams("Go North"))
    [b'nor', b'ort', b'rth']
    """
    words = set(_small(text).encode("utf-8", "surrogatepass").split(b" "))
    return {word[start : start + 3] for word in words for start in range(len(word) - 2)}


def _small(text: str) -> str:
    """In small letters. Of a sigma the small form depends on its neighbours, so it has one here."""
    return text.lower().replace("\u03c2", "\u03c3")


def _in_json(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


def _has_words(job: JobSummary, words: list[str]) -> bool:
    shown = " ".join((str(job.id), job.summary, job.reason, job.name, job.plan, job.user)).lower()
    return all(word in shown for word in words)
