"""``ganger query`` and ``ganger query-fields``: jobs, locks and objects of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from .. import output, reading
from ..output import Column

if TYPE_CHECKING:
    from ...storage.query_views import FieldInfo
    from ..call import Call

_USUAL = {
    "job": "id,status,summary",
    "lock": "name,mode,owner,pending",
    "filter": "uuid,watermark,priority,predicates,action",
    "node": "name,role,pip,group,pinst_cnt,sinst_cnt",
    "instance": "name,hypervisor,os,pnode,admin_state",
    "group": "name,node_cnt,pinst_cnt,alloc_policy",
    "network": "name,network,gateway,mac_prefix,group_list",
    "export": "node,export",
    "cluster": "name,master_node,config_version,drain_flag",
}
"""The fields that are shown without ``--fields``."""

_KINDS = click.Choice(list(_USUAL))
_WITHOUT_VALUE = {1: "??", 2: "?", 3: "-", 4: "*"}
_KIB = 1024
_DOC_WIDTH = 30


@click.command(short_help="Show fields of jobs, locks, nodes and other objects.")
@click.argument("what", type=_KINDS, metavar="WHAT")
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help='Only these: `status == "error" and id > 7`, or JSON: `["==", "status", "error"]`.',
)
@output.style_options
@click.pass_obj
def query(call: Call, what: str, expression: str | None, style: output.Style) -> None:
    """Show fields of jobs, locks, nodes and other objects.

    WHAT is job, lock, filter, node, instance, group, network, export or cluster;
    `ganger query-fields WHAT` lists its fields. In a table - stands for a field that the item does
    not have, ? for a value that is not known, and * for one of a node that is offline.

    \b
    EXPR is made of:
      FIELD                     a boolean field that is true
      FIELD == VALUE            also !=, <, <=, >, >=; texts in quotes
      VALUE in FIELD            also `not in`; the field is a list
      FIELD =~ m/PATTERN/i      also !~; the pattern stands anywhere in it
      FIELD =* "web*"           also !*; the whole name
      not, and, or, ( )
    """  # noqa: D301 - the mark that keeps lines apart
    added = [name[1:] for name in style.fields if name.startswith("+")]
    named = [name for name in style.fields if not name.startswith("+")]
    names = [*(named or _USUAL[what].split(",")), *added]
    with call.client() as client:
        answer = client.query(what, names, _parsed(expression))
    for field in answer.fields:
        if field.kind == "unknown":
            text = f"--fields: {what} has no field {field.name!r}; see `ganger query-fields {what}`"
            raise click.UsageError(text)
    if style.output == "json":
        output.show_json(answer.items)
        return
    columns = [_column(place, field) for place, field in enumerate(answer.fields)]
    output.show_rows(answer.data, columns, style, noun=f"{what}s")


@click.command("query-fields", short_help="List the fields that `ganger query` can show.")
@click.argument("what", type=_KINDS, metavar="WHAT")
@output.style_options
@click.pass_obj
def query_fields(call: Call, what: str, style: output.Style) -> None:
    """List the fields that `ganger query` can show and filter by.

    WHAT is job, lock, filter, node, instance, group, network, export or cluster.
    """
    names = output.chosen_fields(style, tuple(_FIELD_COLUMNS), tuple(_FIELD_COLUMNS))
    with call.client() as client:
        found = client.query_fields(what)
    if style.output == "json":
        shown = [msgspec.to_builtins(field) for field in found]
        output.show_json([{name: field[name] for name in names} for field in shown])
        return
    output.show_rows(found, [_FIELD_COLUMNS[name] for name in names], style)


_FIELD_COLUMNS = {
    "name": Column("name", lambda field: field.name),
    "title": Column("title", lambda field: field.title, width_least=10),
    "kind": Column("kind", lambda field: field.kind, width_least=9),
    "doc": Column("doc", lambda field: field.doc, width_least=_DOC_WIDTH),
}


def _parsed(expression: str | None) -> Any:  # noqa: ANN401 - JSON
    """The filter as the client takes it: JSON, or its text form."""
    if expression is None or not expression.lstrip().startswith("["):
        return expression
    return reading.parse_json(expression, "--filter")


def _column(place: int, field: FieldInfo) -> Column:
    return Column(field.title, lambda row: _cell(field, *row[place]))


def _cell(field: FieldInfo, status: int, value: Any) -> str:  # noqa: ANN401 - JSON of any field
    if status or value is None:
        return _WITHOUT_VALUE.get(status, "-")
    if field.kind == "timestamp":
        return output.absolute(value)
    if field.kind == "unit":
        return _size(value)
    match value:
        case True | False:
            return "Y" if value else "N"
        case [int(seconds), int()] if field.name.endswith("_ts"):
            return output.absolute(seconds)
        case [] | {}:
            return "-"
        case [*items] if all(isinstance(item, str) for item in items):
            return ",".join(items)
        case list() | dict():
            return msgspec.json.encode(value).decode()
    return str(value)


def _size(mebibytes: float) -> str:
    """A number of MiB for people: ``512M``, ``1.5G``, ``2.0T``."""
    if mebibytes < _KIB:
        return f"{mebibytes:g}M"
    if mebibytes < _KIB * _KIB:
        return f"{mebibytes / _KIB:.1f}G"
    return f"{mebibytes / _KIB / _KIB:.1f}T"
