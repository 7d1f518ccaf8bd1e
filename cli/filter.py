"""``ganger filter``: rules that hold, reject or limit exactly the jobs that are meant."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors, rules, wording
from . import choices, output, reading
from .call import Call
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from ..transport.messages import FilterRow, RuleTest

_COLUMNS = {
    "uuid": Column("uuid", lambda rule: rule.uuid, width_least=36),
    "watermark": Column("watermark", lambda rule: rule.watermark),
    "priority": Column("priority", lambda rule: rule.priority),
    "predicates": Column("predicates", lambda rule: _compact(rule.predicates), width_least=16),
    "action": Column("action", lambda rule: action_text(rule.action)),
    "reason": Column("reason", lambda rule: reason_text(rule) or "-", width_least=16),
    "state": Column("state", lambda rule: rule.state),
    "from": Column("from", lambda rule: output.absolute(rule.valid_from)),
    "until": Column("until", lambda rule: output.absolute(rule.valid_until)),
}
_USUAL = ("uuid", "watermark", "priority", "predicates", "action", "reason", "state", "until")
_STORED_NAMES = {"from": "valid_from", "until": "valid_until"}
"""How those columns are called in a rule that are called otherwise in a table."""

_NUMBER = re.compile(r"-?[0-9]{1,100}")
"""A whole number that is not too long to be read; whether it is allowed, the daemon says."""

_COMPLETION_SECONDS = 1.0


class Moment(click.ParamType[float]):
    """A time: ``now``, ``+30m``, seconds since the epoch, or ISO 8601."""

    name = "time"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click gives it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """The time in seconds since the epoch."""
        try:
            return reading.moment(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _known_uuids(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The rules that a shell may offer; none if no daemon answers soon."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    # Nothing is called when a shell asks, so that the group has not made its `Call` yet.
    call = Call(data=context.find_root().params.get("data"))
    try:
        with call.client(timeout=_COMPLETION_SECONDS) as client:
            rows = client.filters()
    except errors.GangerError:
        return []
    given = context.params.get("uuids") or ()
    return [
        CompletionItem(row.uuid, help=f"{action_text(row.action)} {reason_text(row)}".strip())
        for row in rows
        if row.uuid.startswith(incomplete) and row.uuid not in given
    ]


class _RuleCommand(click.Command):
    """A command with ``--action``, in which ``RATE_LIMIT 5`` may be two words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_whole_action(args))


def with_whole_action(words: Sequence[str]) -> list[str]:
    """The words, with the number that follows ``--action RATE_LIMIT`` made a part of it."""
    found: list[str] = []
    for word in words:
        is_limit = found[-2:] == ["--action", "RATE_LIMIT"] or found[-1:] == ["--action=RATE_LIMIT"]
        if is_limit and _NUMBER.fullmatch(word):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a rule."""
    options = (
        click.option(
            "--priority",
            type=choices.Whole(most=rules.INTEGER_MAX),
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
            help="Jobs with this opcode. May be repeated: any of them.",
        ),
        click.option(
            "--reason-matches",
            type=choices.Text(),
            metavar="REGEX",
            help="Jobs with a reason in which this is found.",
        ),
        click.option(
            "--jobs-after",
            metavar="now|ID",
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
            help="Why; shown to whom it concerns.",
        ),
        click.option(
            "--valid-from",
            type=Moment(),
            metavar="TIME",
            help="Applies from then on: now, +30m, 2026-11-21T18:00, or seconds since the epoch.",
        ),
        click.option("--valid-until", type=Moment(), metavar="TIME", help="Applies until then."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group("filter")
def filter_rules() -> None:
    """Hold, reject or limit exactly the jobs that are meant.

    The first rule in order whose predicates all match a job, and whose action is not CONTINUE,
    applies to it. docs/queue-control.md teaches it with examples.
    """


@filter_rules.command(cls=_RuleCommand)
@_rule_options
@click.option(
    "--uuid", metavar="UUID", help="Give the rule this UUID; a rule that has it is replaced."
)
@click.pass_obj
def add(call: Call, /, uuid: str | None, **described: Any) -> None:  # noqa: ANN401 - see _rule
    """Store a rule and print its UUID. It is in force when this returns."""
    rule = _rule(**described)
    if uuid is not None:
        _check_named(uuid)
    with call.client() as client:
        output.echo(client.add_filter(uuid=uuid, **rule))


@filter_rules.command(cls=_RuleCommand, short_help="Store a rule in the place of another.")
@click.argument("uuid", shell_complete=_known_uuids)
@_rule_options
@click.pass_obj
def replace(call: Call, /, uuid: str, **described: Any) -> None:  # noqa: ANN401 - see _rule
    """Store a rule in the place of the one with this UUID; if there is none, it is a new one.

    Nothing of the old rule is kept: what is not given has its default, and the watermark is new.
    """
    rule = _rule(**described)
    _check_named(uuid)
    with call.client() as client:
        output.echo(client.replace_filter(uuid, **rule))


def _check_named(text: str, name: str = "UUID") -> None:
    """`UsageError` for an empty text: a variable of a script that was never set."""
    if not text:
        raise errors.UsageError(f"{name}: is empty")


@filter_rules.command()
@click.argument("uuids", nargs=-1, required=True, metavar="UUID...", shell_complete=_known_uuids)
@click.pass_obj
def delete(call: Call, uuids: Sequence[str]) -> None:
    """Delete rules. They are no longer in force when this returns."""
    with call.client() as client:
        for uuid in uuids:
            client.delete_filter(uuid)
            output.echo(f"Filter rule {uuid} is deleted")


@filter_rules.command("list", short_help="List the rules in their order.")
@click.argument("uuids", nargs=-1, metavar="[UUID...]", shell_complete=_known_uuids)
@output.style_options
@click.pass_obj
def list_rules(call: Call, uuids: Sequence[str], style: output.Style) -> None:
    """List the rules in the order in which they are looked at."""
    names = output.chosen_fields(style, _USUAL, tuple(_COLUMNS))
    with call.client() as client:
        rows = client.filters(uuids or None)
    if style.output == "json":
        output.show_json([_plain(row, names if style.fields else ()) for row in rows])
        return
    output.show_rows(rows, [_COLUMNS[name] for name in names], style)


def _plain(row: FilterRow, names: Sequence[str]) -> dict[str, Any]:
    """The rule as it is stored, or only these columns of it."""
    found: dict[str, Any] = msgspec.to_builtins(row)
    if not names:
        return found
    found["reason"] = reason_text(row)
    stored = [_STORED_NAMES.get(name, name) for name in names]
    return {name: found[name] for name in stored}


@filter_rules.command()
@click.argument("uuids", nargs=-1, metavar="[UUID...]", shell_complete=_known_uuids)
@output.output_option
@click.pass_obj
def info(call: Call, *, uuids: Sequence[str], output_kind: str) -> None:
    """Show rules whole."""
    with call.client() as client:
        rows = client.filters(uuids or None)
    if output_kind == "json":
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return
    for row in rows:
        output.echo(f"UUID: {row.uuid}")
        output.echo(f"  Watermark: {row.watermark}")
        output.echo(f"  Priority: {row.priority}")
        output.echo(f"  Predicates: {_compact(row.predicates)}")
        output.echo(f"  Action: {action_text(row.action)}")
        output.echo(f"  Reason trail: {_compact(row.reason_trail)}")
        output.echo(f"  State: {row.state}{_window(row)}")


@filter_rules.command(short_help="Tell which rule applies to each job, or would.")
@click.option(
    "--rule",
    metavar="JSON|YAML|@FILE",
    help='A rule that is only proposed, such as \'{"action": "PAUSE"}\'. Its keys: priority, '
    "predicates, action, reason, valid_from, valid_until, uuid.",
)
@click.option("--without", metavar="UUID", help="As if this rule were deleted.")
@output.output_option
@click.pass_obj
def test(call: Call, *, rule: str | None, without: str | None, output_kind: str) -> None:
    """Tell which rule applies to each pending and running job, and which would. Changes nothing."""
    proposed = None if rule is None else reading.read_rule(rule, "--rule")
    with call.client() as client:
        if without is not None:
            # A slip in it would be answered as if the rule were gone already.
            client.filters([without])
        rows = client.test_filters(proposed, without=without)
    if output_kind == "json":
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return
    is_asked = rule is not None or without is not None
    for row in rows:
        output.echo(_tested(row, is_asked=is_asked))
    changed = sum(row.now != row.then for row in rows)
    told = f", {changed} would be under another rule" if is_asked else ""
    output.echo(f"{len(rows)} {'job' if len(rows) == 1 else 'jobs'}{told}")


def _tested(row: RuleTest, *, is_asked: bool) -> str:
    line = f"{row.id}  {row.status}  {_applied(row.now)}"
    if not is_asked or row.now == row.then:
        return line
    return f"{line}  ->  {_applied(row.then)}"


def _applied(rule: tuple[str, str] | None) -> str:
    if rule is None:
        return "no rule"
    uuid, action = rule
    return f"{action} by {'the proposed rule' if uuid == rules.PROPOSED_UUID else uuid}"


def _rule(
    *,
    priority: int,
    predicates: str | None,
    opcodes: Sequence[str],
    reason_matches: str | None,
    jobs_after: str | None,
    action: str,
    reason: str,
    valid_from: float | None,
    valid_until: float | None,
) -> dict[str, Any]:
    found = [] if predicates is None else _list(predicates, "--predicates")
    for op_id in opcodes:
        _check_named(op_id, "--opcode")
        _doubt_opcode(op_id)
    if opcodes:
        named = [["=", "OP_ID", op_id] for op_id in opcodes]
        found.append(["opcode", named[0] if len(named) == 1 else ["|", *named]])
    if reason_matches is not None:
        # An empty pattern is found in every reason: the rule would be one for all jobs.
        _check_named(reason_matches, "--reason-matches")
        found.append(["reason", ["=~", "reason", reason_matches]])
    if jobs_after is not None:
        after: str | int = "watermark" if jobs_after == "now" else _number(jobs_after)
        found.append(["jobid", [">", "id", after]])
    return {
        "priority": priority,
        "predicates": found,
        "action": parsed_action(action),
        "reason": reason,
        "valid_from": valid_from,
        "valid_until": valid_until,
    }


def _doubt_opcode(op_id: str) -> None:
    """Say so of what is nearly an opcode's name: a rule for it would apply to no job."""
    from ..storage.opcodes import catalogue  # noqa: PLC0415 - other commands need no opcodes

    known = catalogue.known_ids()
    guess = "" if op_id in known else wording.likeness(op_id, known)
    if guess:
        # It may all the same be an opcode of a package that only the daemon has.
        text = f"--opcode: there is no opcode {op_id!r} here{guess}; the rule has it as it is"
        output.echo(f"ganger: {text}", err=True)


def parsed_action(text: str) -> str | list[Any]:
    """``RATE_LIMIT 5`` (or JSON) as the pair that the daemon takes; everything else as it is.

    The daemon judges it. Only a slip that people make is told here: small letters.
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


def action_text(action: object) -> str:
    """An action as it is typed."""
    return " ".join(map(str, action)) if isinstance(action, list | tuple) else str(action)


def reason_text(rule: FilterRow) -> str:
    """The reasons that users gave, in one line."""
    texts = (" ".join(str(entry[1]).split()) for entry in rule.reason_trail)
    return "; ".join(text for text in texts if text)


def _window(row: FilterRow) -> str:
    parts = []
    if row.valid_from is not None:
        parts.append(f"from {output.absolute(row.valid_from)}")
    if row.valid_until is not None:
        parts.append(f"until {output.absolute(row.valid_until)}")
    return f" ({' '.join(parts)})" if parts else ""


def _number(text: str) -> int:
    if not (text.isdecimal() and _NUMBER.fullmatch(text)):
        raise errors.UsageError(f"--jobs-after: expected a job id or now, got {text[:60]!r}")
    return choices.checked_number(text, "--jobs-after")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _list(text: str, option: str) -> list[Any]:
    found = reading.read_option(text, option, "predicates")
    if not isinstance(found, list):
        raise errors.UsageError(f"{option}: expected a list of predicates")
    return found
