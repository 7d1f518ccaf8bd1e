"""``ganger filter``: rules that hold, reject or limit exactly the jobs that are meant."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors
from . import output
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..transport.messages import FilterRow, RuleTest
    from .call import Call

_COLUMNS = {
    "uuid": Column("uuid", lambda rule: rule.uuid),
    "watermark": Column("watermark", lambda rule: rule.watermark),
    "priority": Column("priority", lambda rule: rule.priority),
    "predicates": Column("predicates", lambda rule: _compact(rule.predicates)),
    "action": Column("action", lambda rule: action_text(rule.action)),
    "reason": Column("reason", lambda rule: reason_text(rule) or "-"),
    "state": Column("state", lambda rule: rule.state),
    "from": Column("from", lambda rule: output.absolute(rule.valid_from)),
    "until": Column("until", lambda rule: output.absolute(rule.valid_until)),
}
_USUAL = ("uuid", "priority", "action", "predicates", "reason", "state")
_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"\+(\d+(?:\.\d+)?)([smhd])")


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
        if isinstance(value, int | float):
            return float(value)
        if value == "now":
            return time.time()
        if span := _SPAN.fullmatch(value):
            return time.time() + float(span[1]) * _SPANS[span[2]]
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return dt.datetime.fromisoformat(value).timestamp()
        except ValueError:
            text = (
                f"{value!r}: expected now, +30m, +2h, 2026-11-21T18:00, or seconds since the epoch"
            )
            self.fail(text, param, ctx)


def _rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a rule."""
    options = (
        click.option(
            "--priority",
            type=int,
            default=0,
            show_default=True,
            metavar="N",
            help="Rules are looked at from the lowest number (0) on, older ones first.",
        ),
        click.option(
            "--predicates",
            metavar="JSON|@FILE",
            help='All must match, such as \'[["opcode", ["=", "OP_ID", "OP_EXEC"]]]\'. '
            "None: every job.",
        ),
        click.option(
            "--opcode",
            "opcodes",
            multiple=True,
            metavar="OP_ID",
            help="Jobs with one of these opcodes.",
        ),
        click.option(
            "--reason-matches", metavar="REGEX", help="Jobs with a reason in which this is found."
        ),
        click.option(
            "--jobs-after",
            metavar="ID",
            help="Jobs with a higher id; `now`: those that are submitted from now on.",
        ),
        click.option(
            "--action",
            default="CONTINUE",
            show_default=True,
            metavar="ACTION",
            help='ACCEPT, PAUSE, REJECT, CONTINUE, or "RATE_LIMIT N".',
        ),
        click.option(
            "--reason", default="", metavar="TEXT", help="Why; shown to whom it concerns."
        ),
        click.option("--valid-from", type=Moment(), metavar="TIME", help="Applies from then on."),
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


@filter_rules.command()
@_rule_options
@click.pass_obj
def add(call: Call, /, **described: Any) -> None:  # noqa: ANN401 - see _rule
    """Store a rule and print its UUID. It is in force when this returns."""
    with call.client() as client:
        click.echo(client.add_filter(**_rule(**described)))


@filter_rules.command()
@click.argument("uuid")
@_rule_options
@click.pass_obj
def replace(call: Call, /, uuid: str, **described: Any) -> None:  # noqa: ANN401 - see _rule
    """Store a rule in the place of the one with this UUID; if there is none, it is a new one."""
    with call.client() as client:
        click.echo(client.replace_filter(uuid, **_rule(**described)))


@filter_rules.command()
@click.argument("uuids", nargs=-1, required=True, metavar="UUID...")
@click.pass_obj
def delete(call: Call, uuids: Sequence[str]) -> None:
    """Delete rules. They are no longer in force when this returns."""
    with call.client() as client:
        for uuid in uuids:
            client.delete_filter(uuid)
            click.echo(f"Filter rule {uuid} is deleted")


@filter_rules.command("list")
@click.argument("uuids", nargs=-1, metavar="[UUID...]")
@output.style_options
@click.pass_obj
def list_rules(call: Call, uuids: Sequence[str], style: output.Style) -> None:
    """List the rules in the order in which they are looked at."""
    names = output.chosen_fields(style, _USUAL, tuple(_COLUMNS))
    with call.client() as client:
        rows = client.filters(uuids or None)
    if style.output == "json":
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return
    output.show_rows(rows, [_COLUMNS[name] for name in names], style)


@filter_rules.command()
@click.argument("uuids", nargs=-1, metavar="[UUID...]")
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
        click.echo(f"UUID: {row.uuid}")
        click.echo(f"  Watermark: {row.watermark}")
        click.echo(f"  Priority: {row.priority}")
        click.echo(f"  Predicates: {_compact(row.predicates)}")
        click.echo(f"  Action: {action_text(row.action)}")
        click.echo(f"  Reason trail: {_compact(row.reason_trail)}")
        click.echo(f"  State: {row.state}{_window(row)}")


@filter_rules.command()
@click.option("--rule", metavar="JSON|@FILE", help="A rule that is only thought of.")
@click.option("--without", metavar="UUID", help="As if this rule were deleted.")
@output.output_option
@click.pass_obj
def test(call: Call, *, rule: str | None, without: str | None, output_kind: str) -> None:
    """Tell which rule applies to each pending and running job, and which would. Changes nothing."""
    proposed = None if rule is None else _object(rule, "--rule")
    with call.client() as client:
        rows = client.test_filters(proposed, without=without)
    if output_kind == "json":
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return
    is_asked = rule is not None or without is not None
    for row in rows:
        click.echo(_tested(row, is_asked=is_asked))
    changed = sum(row.now != row.then for row in rows)
    told = f", {changed} would be under another rule" if is_asked else ""
    click.echo(f"{len(rows)} {'job' if len(rows) == 1 else 'jobs'}{told}")


def _tested(row: RuleTest, *, is_asked: bool) -> str:
    line = f"{row.id}  {row.status}  {_applied(row.now)}"
    if not is_asked or row.now == row.then:
        return line
    return f"{line}  ->  {_applied(row.then)}"


def _applied(rule: tuple[str, str] | None) -> str:
    return "no rule" if rule is None else f"{rule[1]} by {rule[0]}"


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
    if opcodes:
        found.append(["opcode", ["|", *(["=", "OP_ID", op_id] for op_id in opcodes)]])
    if reason_matches is not None:
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


def parsed_action(text: str) -> str | list[Any]:
    """``RATE_LIMIT 5`` as the pair that the daemon takes; everything else as it is."""
    name, _, number = text.replace("=", " ").partition(" ")
    if name == "RATE_LIMIT" and number.strip().isdecimal():
        return [name, int(number)]
    return text


def action_text(action: object) -> str:
    """An action as it is typed."""
    return " ".join(map(str, action)) if isinstance(action, list | tuple) else str(action)


def reason_text(rule: FilterRow) -> str:
    """The reasons that users gave."""
    return "; ".join(str(entry[1]) for entry in rule.reason_trail if entry[1])


def _window(row: FilterRow) -> str:
    parts = []
    if row.valid_from is not None:
        parts.append(f"from {output.absolute(row.valid_from)}")
    if row.valid_until is not None:
        parts.append(f"until {output.absolute(row.valid_until)}")
    return f" ({' '.join(parts)})" if parts else ""


def _number(text: str) -> int:
    if not text.isdecimal():
        raise errors.UsageError(f"--jobs-after: expected a job id or now, got {text!r}")
    return int(text)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _list(text: str, option: str) -> list[Any]:
    found = _json(text, option)
    if not isinstance(found, list):
        raise errors.UsageError(f"{option}: expected a JSON list of predicates")
    return found


def _object(text: str, option: str) -> dict[str, Any]:
    found = _json(text, option)
    if not isinstance(found, dict):
        raise errors.UsageError(f'{option}: expected a JSON object such as {{"action": "PAUSE"}}')
    return found


def _json(text: str, option: str) -> object:
    """``text`` as JSON, or the file that it names after an ``@``."""
    place = option
    if text.startswith("@"):
        place = text[1:]
        try:
            with open(place, encoding="utf-8") as stream:  # noqa: PTH123
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UsageError(f"{place}: {error}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise errors.UsageError(f"{place}: not JSON: {error}") from error
