"""``ganger filter``: rules that hold, reject or limit the jobs that they match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..storage import errors
from ..storage.filters import rules
from . import (
    choices,
    completing,
    output,
    reading,
    repeating,
    rule_names,
    rule_options,
    rule_words,
)
from .call import Call, known
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.client.client import Client
    from ..transport.messages import FilterRow, RuleTest

_COLUMNS = {
    "rule": Column("rule", lambda rule: rule.name or rule.uuid, width_least=36),
    "uuid": Column("uuid", lambda rule: rule.uuid, width_least=36),
    "watermark": Column("watermark", lambda rule: rule.watermark),
    "priority": Column("priority", lambda rule: rule.priority),
    "matches": Column("matches", rule_words.matched, width_least=50),
    "predicates": Column(
        "predicates", lambda rule: rule_words.compact(rule.predicates), width_least=16
    ),
    "action": Column("action", lambda rule: action_text(rule.action)),
    "reason": Column("reason", lambda rule: reason_text(rule) or "-", width_least=16),
    "state": Column("state", lambda rule: rule.state),
    "from": Column("from", lambda rule: output.absolute(rule.valid_from)),
    "until": Column(
        "until",
        lambda rule: output.absolute(rule.valid_until),
        lambda rule: output.relative(rule.valid_until),
    ),
    "name": Column("name", lambda rule: rule.name or "-"),
}
_USUAL = ("rule", "priority", "state", "action", "until", "matches", "reason")
"""The columns without ``--fields``."""

_STORED_NAMES = {"from": "valid_from", "until": "valid_until"}
"""The fields of those columns that have another name in a stored rule."""


def _uuid(_: click.Context, __: click.Parameter, uuid: str | None) -> str | None:
    if uuid is None:
        return None
    rule_options.check_named(uuid, "--uuid")
    try:
        return rules.parse_uuid(uuid, where="--uuid")
    except errors.FilterRuleError as error:
        raise errors.UsageError(error.text) from error


@click.group("filter")
def filter_rules() -> None:
    """Hold, reject or limit the jobs that match a rule.

    The first rule in order whose predicates all match a job, and whose action is not CONTINUE,
    applies to it. docs/queue-control.md has examples.
    """


@filter_rules.command(cls=rule_options.RuleCommand)
@rule_options.rule_options
@click.option(
    "--uuid",
    metavar="UUID",
    callback=_uuid,
    help="Give the rule this UUID; a rule that has it is replaced.",
)
@repeating.key_option()
@click.pass_obj
def add(
    call: Call,
    /,
    uuid: str | None,
    key: str | None,
    **described: Any,  # noqa: ANN401 - see rule_options
) -> None:
    """Store a rule and print its UUID. It is in force when this returns."""
    rule = rule_options.described(**described)
    with call.client() as client, repeating.under(key) as used:
        output.echo(client.add_filter(uuid=uuid, key=used, **rule))


@filter_rules.command(
    cls=rule_options.RuleCommand, short_help="Store a rule in the place of another."
)
@click.argument("uuid", metavar="RULE", shell_complete=completing.rules)
@rule_options.rule_options
@repeating.key_option()
@click.pass_obj
def replace(
    call: Call,
    /,
    uuid: str,
    key: str | None,
    **described: Any,  # noqa: ANN401 - see rule_options
) -> None:
    """Store a rule in the place of the one with this UUID; if there is none, it is a new one.

    RULE is a UUID, or the name of a rule that exists. Nothing else of the old rule is kept: what is
    not given has its default, and the watermark is new.
    """
    rule = rule_options.described(**described)
    rule_options.check_named(uuid)
    with call.client() as client, repeating.under(key) as used:
        [uuid] = rule_names.whole(client, [uuid])
        try:
            output.echo(client.replace_filter(uuid, key=used, **rule))
        except errors.FilterRuleError as error:
            if not error.text.startswith("uuid: "):
                raise
            text = f"there is no filter rule {uuid!r}; to store a new one: `ganger filter add`"
            raise errors.UnknownFilterError(text) from error


@filter_rules.command()
@click.argument(
    "uuids", nargs=-1, required=True, metavar="RULE...", shell_complete=completing.rules
)
@repeating.key_option()
@click.pass_obj
def delete(call: Call, *, uuids: Sequence[str], key: str | None) -> int:
    """Delete rules, by UUID or name. They are no longer in force when this returns."""
    code = 0
    with call.client() as client, repeating.under(key) as used:
        for uuid in rule_names.whole(client, uuids):
            try:
                # Each is a change of its own.
                client.delete_filter(uuid, key=f"{used}/{uuid}")
            except errors.UnknownFilterError as error:
                output.echo(f"ganger: {error.text}", err=True)
                code = error.exit_code
            else:
                output.echo(f"Filter rule {uuid} is deleted")
    return code


@filter_rules.command("list", short_help="List the rules in their order.")
@click.argument("uuids", nargs=-1, metavar="[RULE...]", shell_complete=completing.rules)
@output.style_options
@click.pass_obj
def list_rules(call: Call, uuids: Sequence[str], style: output.Style) -> int:
    """List the rules in the order in which they are looked at.

    A rule without a name is called by as much of its UUID as differs from the others; that may
    stand wherever the whole UUID may. `ganger filter info` shows rules whole.
    """
    names = output.chosen_fields(style, _USUAL, tuple(_COLUMNS))
    with call.client() as client:
        rows, code = _known(client, uuids)
    columns = dict(_COLUMNS)
    if not uuids:
        labels = rule_names.labels(rows)
        columns["rule"] = Column("rule", lambda rule: labels[rule.uuid], width_least=36)
    if code and not rows:
        return code
    if style.output == "json":
        output.show_json([_plain(row, names if style.fields else ()) for row in rows])
        return code
    output.show_rows(rows, [columns[name] for name in names], style, noun="rules")
    return code


def _known(client: Client, uuids: Sequence[str]) -> tuple[list[FilterRow], int]:
    chosen = rule_names.whole(client, uuids)
    return known(chosen, lambda some: client.filters(some or None))


def _plain(row: FilterRow, names: Sequence[str]) -> dict[str, Any]:
    """The rule as it is stored, or only these columns of it."""
    found: dict[str, Any] = msgspec.to_builtins(row)
    if not names:
        return found
    found["rule"] = row.name or row.uuid
    found["matches"] = rule_words.matched(row)
    found["reason"] = reason_text(row)
    stored = [_STORED_NAMES.get(name, name) for name in names]
    return {name: found[name] for name in stored}


@filter_rules.command()
@click.argument("uuids", nargs=-1, metavar="[RULE...]", shell_complete=completing.rules)
@output.output_option
@click.pass_obj
def info(call: Call, *, uuids: Sequence[str], output_kind: str) -> int:
    """Show rules whole."""
    with call.client() as client:
        rows, code = _known(client, uuids)
    if output_kind == "json" and (rows or not code):
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return code
    for row in rows:
        output.echo(f"UUID: {row.uuid}")
        if row.name:
            output.echo(f"  Name: {row.name}")
        output.echo(f"  Watermark: {row.watermark}")
        output.echo(f"  Priority: {row.priority}")
        output.echo(f"  Matches: {rule_words.matched(row)}")
        output.echo(f"  Predicates: {rule_words.compact(row.predicates)}")
        output.echo(f"  Action: {action_text(row.action)}")
        output.echo(f"  Reason trail: {rule_words.compact(row.reason_trail)}")
        output.echo(f"  State: {row.state}{_window(row)}")
    return code


@filter_rules.command(short_help="Tell which rule applies to each job, or would.")
@choices.proposed_rule_option
@click.option(
    "--without",
    metavar="RULE",
    shell_complete=completing.rules,
    help="As if this rule were deleted.",
)
@output.output_option
@click.pass_obj
def test(call: Call, *, rule: str | None, without: str | None, output_kind: str) -> None:
    """Tell which rule applies to each pending and running job, and which would. Changes nothing."""
    proposed = None if rule is None else reading.read_rule(rule, "--rule")
    with call.client() as client:
        left_out = None if without is None else rule_names.whole(client, [without])[0]
        rows = client.test_filters(proposed, without=left_out)
    if output_kind == "json":
        output.show_json([msgspec.to_builtins(row) for row in rows])
        return
    is_asked = rule is not None or without is not None
    for row in rows:
        output.echo(_tested(row, is_asked=is_asked))
    changed = sum(row.now != row.then for row in rows)
    changes = f", {changed} would be under another rule" if is_asked else ""
    output.echo(f"{len(rows)} {'job' if len(rows) == 1 else 'jobs'}{changes}")


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
