"""The options that describe a filter rule, and the rule that they make."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ..storage import errors, wording
from ..storage.filters import lock_predicate, rules
from . import choices, completing, lock_names, output, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NUMBER = re.compile(r"-?[0-9]{1,100}")
"""A whole number that is short enough to be parsed; the daemon checks its range."""


class Moment(click.ParamType[float]):
    """A time: ``now``, ``+30m``, seconds since the epoch, or ISO 8601.

    ``is_past``: spans go into the past, as ``-7d``.
    """

    name = "time"

    def __init__(self, *, is_past: bool = False) -> None:
        self._is_past = is_past

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click gives it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """The time in seconds since the epoch."""
        try:
            return reading.moment(str(value), is_past=self._is_past)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RuleCommand(click.Command):
    """A command with ``--action``, in which ``RATE_LIMIT 5`` may be two words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_whole_action(args))


def _with_whole_action(words: Sequence[str]) -> list[str]:
    """The words, with the one that follows ``--action RATE_LIMIT``, a number, joined to it."""
    found: list[str] = []
    for word in words:
        is_limit = found[-2:] == ["--action", "RATE_LIMIT"] or found[-1:] == ["--action=RATE_LIMIT"]
        if is_limit and (_NUMBER.fullmatch(word) or not word.startswith("-")):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _named(_: click.Context, __: click.Parameter, name: str | None) -> str:
    if name is None:
        return ""
    # An empty name is probably an unset variable of a script.
    check_named(name, "--name")
    try:
        return rules.parse_name(name, where="--name")
    except errors.FilterRuleError as error:
        raise errors.UsageError(error.text) from error


_OPTIONS = (
    click.option(
        "--priority",
        type=choices.Whole(least=0, most=rules.INTEGER_MAX),
        default=0,
        show_default=True,
        metavar="N",
        help="Rules are looked at from the lowest number (0) on, older ones first.",
    ),
    click.option(
        "--predicates",
        metavar="JSON|YAML|@FILE",
        help='All must match, such as \'[["opcode", ["=", "OP_ID", "OP_EXEC"]]]\'. '
        "None: every job.",
    ),
    click.option(
        "--opcode",
        "opcodes",
        type=choices.Text(),
        multiple=True,
        metavar="OP_ID",
        shell_complete=completing.opcodes,
        help="Jobs with this opcode. Repeated: any of them.",
    ),
    click.option(
        "--lock",
        "locks",
        type=choices.Text(),
        multiple=True,
        metavar="LEVEL/NAME",
        shell_complete=completing.locks,
        help="Jobs that touch this lock (see `ganger hold`). NAME * is any lock of the level. "
        "Repeated: any of them.",
    ),
    click.option(
        "--reason-matches",
        type=choices.Text(),
        metavar="REGEX",
        help="Jobs with a reason in which this is found.",
    ),
    click.option(
        "--jobs-after",
        metavar="now|ID|NAME",
        shell_complete=completing.jobs_of_option,
        help="Jobs with a higher id; `now`: those that are submitted from now on.",
    ),
    click.option(
        "--action",
        default="CONTINUE",
        show_default=True,
        metavar="ACTION",
        help="ACCEPT, PAUSE, REJECT, CONTINUE, or RATE_LIMIT N (also rate-limit:N).",
    ),
    click.option(
        "--reason",
        type=choices.Text(),
        default="",
        metavar="TEXT",
        help="Why; shown to the users whose jobs the rule stops.",
    ),
    click.option(
        "--valid-from",
        type=Moment(),
        metavar="TIME",
        help="Applies from then on: now, +30m, 2026-11-21T18:00, or seconds since the epoch.",
    ),
    click.option("--valid-until", type=Moment(), metavar="TIME", help="Applies until then."),
    click.option(
        "--name",
        type=choices.Text(),
        callback=_named,
        metavar="NAME",
        help="What may be typed in the place of the UUID; no two rules have the same.",
    ),
    click.option("--first", is_flag=True, help="Looked at before the other rules of its priority."),
)


def rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a rule."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def described(
    *,
    priority: int,
    predicates: str | None,
    opcodes: Sequence[str],
    locks: Sequence[str],
    reason_matches: str | None,
    jobs_after: str | None,
    action: str,
    reason: str,
    valid_from: float | None,
    valid_until: float | None,
    name: str,
    first: bool,
) -> dict[str, Any]:
    """The rule that the options describe, as the client library takes it."""
    found = [] if predicates is None else _list(predicates, "--predicates")
    opcodes = [_opcode(one) for one in opcodes]
    if opcodes:
        named = [["=", "OP_ID", op_id] for op_id in opcodes]
        found.append(["opcode", named[0] if len(named) == 1 else ["|", *named]])
    if locks:
        touched = [["=", "touches", one_lock(lock, "--lock")] for lock in locks]
        found.append(["lock", touched[0] if len(touched) == 1 else ["|", *touched]])
    if reason_matches is not None:
        # An empty pattern is found in every reason: the rule would apply to all jobs.
        check_named(reason_matches, "--reason-matches")
        _check_pattern(reason_matches)
        found.append(["reason", ["=~", "reason", reason_matches]])
    if valid_from is not None and valid_until is not None and valid_from > valid_until:
        raise errors.UsageError("--valid-until: is before --valid-from")
    if jobs_after is not None:
        after: str | int = (
            "watermark" if jobs_after == "now" else choices.one_job(jobs_after, "--jobs-after")
        )
        found.append(["jobid", [">", "id", after]])
    return {
        "priority": priority,
        "predicates": found,
        "action": _action(action),
        "reason": reason,
        "valid_from": valid_from,
        "valid_until": valid_until,
        "name": name,
        "first": first,
    }


def one_lock(text: str, named: str) -> str:
    """The lock that a rule looks at; `UsageError`, which begins with ``named``, for anything else.

    A rule for what no job can mean would hold nothing, and say that it does.
    """
    if text.endswith((":shared", ":exclusive")):
        mode = text.rpartition(":")[2]
        raise errors.UsageError(f"{named}: leave out :{mode}: the rule is for every mode")
    lock_names.check_one_lock(text, named)
    level, _, name = text.partition("/")
    if level and name:
        lock_names.check_lock(level, name, named)
    try:
        return "/".join(lock_predicate.parse_lock(text, named))
    except errors.FilterRuleError as error:
        raise errors.UsageError(error.text) from error


def _opcode(text: str) -> str:
    """The opcode that is meant: ``exec`` is OP_EXEC.

    Warns of a name that is nearly an opcode's: a rule for it would apply to no job.
    """
    from ..storage.opcodes import catalogue  # noqa: PLC0415 - other commands need no opcodes

    check_named(text, "--opcode")
    known = catalogue.known_ids()
    whole = f"OP_{text.upper().removeprefix('OP_')}"
    if whole in known:
        return whole
    if guess := wording.likeness(whole, known):
        # The daemon may have opcodes of a package that is not installed here.
        doubt = f"--opcode: there is no opcode {text!r} here{guess}; the rule is stored as written"
        output.echo(f"ganger: {doubt}", err=True)
    return text


def _action(text: str) -> str | list[Any]:
    """``RATE_LIMIT 5`` (or JSON) as the pair that the daemon takes; everything else as it is.

    The daemon checks it. Only small letters, a common slip, are refused here.
    """
    if text.startswith("["):
        written: list[Any] = reading.parse_json(text, "--action")
        return written
    if isinstance(found := rules.written_action(text), list):
        name, limit = found
        is_number = isinstance(limit, int)
        return [name, choices.checked_number(str(limit), "--action") if is_number else limit]
    if text == "RATE_LIMIT":
        raise errors.UsageError(
            "--action: RATE_LIMIT takes a number, as in --action 'RATE_LIMIT 5'"
        )
    if text not in rules.ACTIONS and text.upper() in rules.ACTIONS:
        raise errors.UsageError(f"--action: write {text.upper()}, in capitals, not {text!r}")
    return text


def check_named(text: str, name: str = "UUID") -> None:
    """`UsageError` for an empty text: probably an unset variable of a script."""
    if not text:
        raise errors.UsageError(f"{name}: is empty")


def _check_pattern(pattern: str) -> None:
    from ..storage.filters import filters  # noqa: PLC0415 - loads the library of patterns

    try:
        filters.compiled_pattern(pattern, "--reason-matches")
    except errors.FilterRuleError as error:
        raise errors.UsageError(error.text) from error


def _list(text: str, option: str) -> list[Any]:
    found = reading.read_option(text, option, "predicates")
    if not isinstance(found, list):
        raise errors.UsageError(f"{option}: expected a list of predicates")
    return found
