"""Options that several commands share, and the values they take."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from ..storage import errors, plain_values, settings, wording
from ..storage.access import endpoints
from ..storage.jobs import origins
from ..storage.jobs.jobs import JobStatus
from ..storage.jobs.outcomes import ANY_FAILED, DEPENDENCY_WORDS
from . import completing, output, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from click.shell_completion import CompletionItem

    from .call import Call

FINAL_STATUSES = tuple(status for status in JobStatus if status.is_final)
_NAMED_PRIORITIES = {"high": -10, "normal": 0, "low": 10}
_ID_DIGITS_MAX = 18
_Named = TypeVar("_Named")
"""No job id has more digits, and a number of this length fits into a frame."""

_GUESSED_FROM = 500
"""How many of the newest jobs are looked at for a name that is like an unknown one."""

_PLACE_OF_DEPENDENCY = re.compile(r"depends\[([0-9]+)\]: ")
_SECONDS_MAX = 1_000_000_000


class Priority(click.ParamType[int]):
    """A priority: a number from -20 (most urgent) to 19, or high, normal, low."""

    name = "priority"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        if text in _NAMED_PRIORITIES:
            return _NAMED_PRIORITIES[text]
        try:
            number = int(text)
        except ValueError:
            number = settings.PRIORITY_MAX + 1
        if not settings.PRIORITY_MIN <= number <= settings.PRIORITY_MAX:
            expected = (
                f"expected {settings.PRIORITY_MIN} to {settings.PRIORITY_MAX}, "
                f"high, normal or low, got {value!r}"
            )
            self.fail(expected, param, ctx)
        return number


class Endpoint(click.ParamType[str]):
    """An endpoint, ``tcp://HOST:PORT``: where to listen, or else where others can call."""

    name = "endpoint"

    def __init__(self, *, is_listening: bool = True) -> None:
        self._is_listening = is_listening

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        if problem := endpoints.problem(text, is_listening=self._is_listening):
            self.fail(problem, param, ctx)
        return text


class _Job(click.ParamType[_Named]):
    """What stands for a job: a shell completes ids and names."""

    name = "job"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - as click calls it
        incomplete: str,
    ) -> list[CompletionItem]:
        return completing.jobs(ctx, incomplete)


class JobId(_Job[int]):
    """A job: its id, or its name (the newest job of that name; ``@last``: the user's newest)."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        if text and origins.is_name(text):
            called = _found([Text().convert(text, param, ctx)], _call(ctx))
            if not (found := called.jobs[text]):
                where = f"{param.opts[0]}: " if isinstance(param, click.Option) else ""
                raise errors.UnknownJobError(where + called.unknown(text))
            if len(found) > 1:
                jobs = f"{wording.shown(text)} is a plan of {len(found)} jobs"
                raise errors.UsageError(f"{jobs}: name one of them")
            return found[0]
        return _number(text, self, param, ctx)


def _number(
    text: str,
    kind: click.ParamType[int],
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _ID_DIGITS_MAX):
        kind.fail(f"expected the id or the name of a job, got {text[:60]!r}", param, ctx)
    return int(digits)


def _call(ctx: click.Context | None) -> Call:
    assert ctx is not None, "only a command line has names"
    call: Call = ctx.obj
    return call


class _Called(NamedTuple):
    """The jobs of each name, none or several; if some have none, names that may be meant."""

    jobs: dict[str, list[int]]
    others: Sequence[str] = ()

    @property
    def unknown_names(self) -> list[str]:
        """The names that no job has."""
        return [name for name in self.jobs if not self.jobs[name]]

    def unknown(self, name: str) -> str:
        """That no job has the name, with the one that is meant."""
        if name == origins.LAST:
            return "@last: you have submitted no job that is still there"
        meant = wording.likeness(name, self.others)
        return f"there is no job called {wording.shown(name)}{meant}"


def _found(names: Sequence[str], call: Call) -> _Called:
    """The jobs that are called so: one request to the daemon if there are jobs of each name."""
    with call.client() as client:
        found = _Called(dict(zip(names, client.find(*names), strict=True)))
        if not found.unknown_names:
            return found
        if (part := client.info().archive_indexed) is not None:
            output.echo(f"ganger: {wording.unindexed(part)}", err=True)
        newest = list(client.jobs(archived=True, last=_GUESSED_FROM))
    others = {one for job in newest for one in (job.name, job.plan) if one}
    return found._replace(others=sorted(others))


def one_job(text: str, option: str) -> int:
    """The job that a part of an option's value names; `UsageError` or `UnknownJobError`."""
    try:
        return JobId().convert(text, None, click.get_current_context())
    except click.BadParameter as error:
        raise errors.UsageError(f"{option}: {error.message}") from error
    except errors.UnknownJobError as error:
        raise errors.UnknownJobError(f"{option}: {error.text}") from error


class _IdOrName(_Job["int | str"]):
    """The id of a job, or what can only be a name."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        text = str(value)
        if text and origins.is_name(text):
            return Text().convert(text, param, ctx)
        return _number(text, JobId(), param, ctx)


def job_ids(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument ``IDS``: ids and names of jobs; they arrive as ``ids``.

    The name of a plan stands for all of its jobs. Standard error names the names that no job has.
    The command goes on with the others, and its exit code is 1 at least. Without any other it does
    not begin.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument(
            "ids", nargs=-1, type=_IdOrName(), required=required, metavar=_IDS[required]
        )
        @functools.wraps(function)
        def wrapped(
            call: Call,
            *args: Any,  # noqa: ANN401
            ids: Sequence[int | str],
            **more: Any,  # noqa: ANN401
        ) -> int | None:
            names = [one for one in ids if isinstance(one, str)]
            found = _found(names, call) if names else _Called({})
            unknown = found.unknown_names
            for name in unknown:
                output.echo(f"ganger: {found.unknown(name)}", err=True)
            left = [
                job_id
                for one in ids
                for job_id in (found.jobs[one] if isinstance(one, str) else (one,))
            ]
            if unknown and not left:
                return 1
            code: int | None = function(call, *args, ids=left, **more)
            return code or (1 if unknown else code)

        return wrapped

    return decorate


_IDS = {True: "IDS...", False: "[IDS]..."}


class Dependency(_Job[tuple[int, list[str]]]):
    """A dependency: ``17`` or ``backup`` (it must succeed), or ``17:success,failed``."""

    name = "dependency"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, list[str]]:
        text = str(value)
        word, statuses = self._parts(text)
        if not set(statuses) <= set(DEPENDENCY_WORDS):
            self._fail_word(statuses, param, ctx)
        head, colon, names = word.rpartition(":")
        if colon and head:
            found = _found([word, head], _call(ctx)).jobs
            if found[head] and not found[word]:
                # The name of a job, with a mistake behind it.
                self._fail_word(names.split(","), param, ctx)
        return JobId().convert(word, param, ctx), statuses

    def _fail_word(
        self, words: Sequence[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> NoReturn:
        word = next(one for one in words if one not in DEPENDENCY_WORDS)
        meant = wording.likeness(word, DEPENDENCY_WORDS)
        known = ", ".join(DEPENDENCY_WORDS)
        self.fail(f"expected one of {known}, got {wording.shown(word)}{meant}", param, ctx)

    def _parts(self, text: str) -> tuple[str, list[str]]:
        """The job, and the statuses behind a colon: a name may have a colon, too."""
        word, colon, names = text.rpartition(":")
        statuses = names.split(",")
        if colon and (set(statuses) <= set(DEPENDENCY_WORDS) or not origins.is_name(word)):
            return word, statuses
        return text, ["success"]


class Bytes(click.ParamType[int]):
    """A number of bytes: ``4096``, ``200K``, ``1.5M``, ``2G``, ``1T`` (of 1024 each)."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)([KMGT]?)(?:i?B)?", str(value), re.ASCII)
        if found is None:
            expected = f"expected a number with K, M, G or T, such as 200M, got {str(value)[:60]!r}"
            self.fail(expected, param, ctx)
        number = int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))
        if number > plain_values.INTEGER_MAX:
            self.fail(f"expected less than 8 million T, got {str(value)[:60]!r}", param, ctx)
        return number


class BytesOrNone(Bytes):
    """As `Bytes`; ``none`` is 0."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        return 0 if value == "none" else super().convert(value, param, ctx)


class Whole(click.ParamType[int]):
    """A whole number within bounds. Help does not show bounds that only say what can be stored."""

    name = "integer"

    def __init__(self, *, least: int | None = None, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"expected a whole number, got {str(value)[:60]!r}", param, ctx)
        if self._least is not None and number < self._least:
            self.fail(f"expected at least {self._least}, got {number}", param, ctx)
        if self._most is not None and number > self._most:
            self.fail(f"expected at most {self._most}, got {str(number)[:60]}", param, ctx)
        return number


class WholeRange(click.IntRange):
    """A whole number within bounds that help shows; an error calls it a number, not a range."""

    name = "integer"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        least, most = (None if one is None else int(one) for one in (self.min, self.max))
        return Whole(least=least, most=most).convert(value, param, ctx)


class OneOf(click.Choice[str]):
    """One of these words; the error for another one says which word, or which option, is meant."""

    def __init__(self, known: Iterable[str], other: str, known_there: Iterable[str]) -> None:
        """``known_there``: the words of the option ``other``."""
        super().__init__([str(one) for one in known])
        self._other, self._known_there = other, [str(one) for one in known_there]

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ANN401, ARG002
        known = ", ".join(self.choices)
        if value in self._known_there:
            return f"expected one of {known}; {value!r} goes with {self._other}"
        meant = wording.likeness(value, self.choices)
        return f"expected one of {known}, got {wording.shown(value)}{meant}"


class Seconds(click.ParamType[float]):
    """A time span: ``90`` (seconds), ``1.5``, ``30m``, ``2h``, ``7d`` or ``2w``."""

    name = "span"
    others = ""

    def __init__(self, *, least: float = 0.0) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        try:
            seconds = reading.seconds(text)
        except ValueError:
            seconds = -1.0
        if not self._least <= seconds <= _SECONDS_MAX:
            most = f"from {self._least:g} s to {_SECONDS_MAX // 86_400:,} days"
            expected = f"expected a time such as 90, 30m, 2h or 7d{self.others}, {most}"
            self.fail(f"{expected}, got {text[:60]!r}", param, ctx)
        return seconds


class Age(Seconds):
    """An age: ``90`` (seconds), ``30m``, ``2h``, ``7d``, or ``all``."""

    name = "age"
    others = ", or all"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return -1.0 if value == "all" else super().convert(value, param, ctx)


class Text(click.ParamType[str]):
    """Text that a frame can carry. Python turns an argument that is not UTF-8 into surrogates."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"not UTF-8 text: {text[:60]!r}", param, ctx)
        return text


class Name(Text):
    """A name of a job or plan."""

    name = "name"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = super().convert(value, param, ctx)
        option = param.opts[0] if param is not None else "name"
        try:
            return origins.check_name(text, option)
        except errors.BadRequestError as error:
            raise errors.UsageError(error.text) from error


def checked_number(text: str, option: str) -> int:
    """The whole number in ``text``; `UsageError` if it is none, or too large for a frame."""
    try:
        number = int(text)
    except ValueError as error:
        raise errors.UsageError(f"{option}: expected a whole number, got {text[:60]!r}") from error
    if not plain_values.INTEGER_MIN <= number <= plain_values.INTEGER_MAX:
        raise errors.UsageError(f"{option}: expected an integer of at most 64 bits")
    return number


proposed_rule_option = click.option(
    "--rule",
    metavar="JSON|YAML|@FILE",
    help='A rule that is only proposed, such as \'{"action": "PAUSE"}\'. Its keys: priority, '
    "predicates, action, reason, valid_from, valid_until, uuid, name, first.",
)


def submission_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every submission: name, reason, priority, dependencies, dry run."""

    @click.option(
        "--name",
        type=Name(),
        metavar="NAME",
        help="A name; usable wherever an id is, and shown in listings.",
    )
    @click.option(
        "--reason",
        type=Text(),
        metavar="TEXT",
        help="Why; `job info` shows it, and `job list --reason` finds it.",
    )
    @click.option(
        "--priority",
        type=Priority(),
        metavar="N",
        help="-20 (most urgent) to 19, or high, normal (0, as without it), low.",
    )
    @click.option(
        "--after",
        "--depend",
        "depends",
        type=Dependency(),
        multiple=True,
        metavar="ID|NAME[:WORD,...]",
        help="Start only after this job (has succeeded, or ended in one of these statuses or "
        "outcomes; always: in any). May be repeated.",
    )
    @click.option(
        "--on-failure",
        type=JobId(),
        multiple=True,
        metavar="ID|NAME",
        help="Start only if this job fails, is killed, lost or timed out; repeated: one of them.",
    )
    @click.option("--dry-run", is_flag=True, help="Check everything, store nothing.")
    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        return _with_dependencies(function, *args, **options)

    return wrapped


def _with_dependencies(
    function: Callable[..., Any],
    *args: Any,  # noqa: ANN401
    depends: tuple[tuple[int, list[str]], ...],
    on_failure: tuple[int, ...],
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Call ``function`` with both kinds of dependencies; a refusal names the option."""
    failed = [(job_id, [ANY_FAILED]) for job_id in on_failure]
    try:
        return function(*args, depends=[*depends, *failed], **options)
    except errors.BadRequestError as error:
        found = _PLACE_OF_DEPENDENCY.match(error.text)
        if found is None or not (depends or failed):
            raise
        option = "--after" if int(found[1]) < len(depends) else "--on-failure"
        raise type(error)(f"{option}: {error.text[found.end() :]}") from error
