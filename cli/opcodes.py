"""``ganger opcodes``: which opcodes there are, and what parameters each has."""

from __future__ import annotations

import shutil
import sys
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import click
import msgspec

from ..storage import errors, wording
from ..storage.opcodes import Opcode, catalogue
from . import completing, layout, output
from .output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERYWHERE = frozenset(Opcode.__struct_fields__)
"""The parameters of all opcodes, which stand last."""


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: Any
    required: bool


class _Kind(msgspec.Struct, frozen=True):
    opcode: str
    runs: bool
    needs: list[str]
    """The parameters without a default."""


@click.command(short_help="List the opcodes, or the parameters of one.")
@click.argument("name", required=False, shell_complete=completing.opcodes)
@output.style_options
def opcodes(name: str | None, style: output.Style) -> None:
    """List the opcodes that jobs can have, or all parameters of the opcode NAME.

    Also those of packages that are installed here. A job with an opcode that does not run is
    refused.
    """
    catalogue.load_user_opcodes()
    if name is None:
        found = [_kind(op_id) for op_id in catalogue.known_ids()]
        _show(found, _KIND_COLUMNS, style)
        return
    declared = _declared(name)
    if style.output == "table":
        output.echo(f"{declared.op_id}: {_summary(declared)}")
        if not declared.has_operation():
            output.echo("No job can run it here.")
    parameters = list(_parameters(declared))
    if sys.stdout.isatty() and style == output.Style():
        _show_wrapped(parameters)
    else:
        _show(parameters, _PARAMETER_COLUMNS, style)


def _show_wrapped(parameters: list[_Parameter]) -> None:
    """For a terminal: a type may be longer than a line."""
    rows = [
        [str(column.plain(one)) for column in _PARAMETER_COLUMNS.values()] for one in parameters
    ]
    rows.insert(0, [name.upper() for name in _PARAMETER_COLUMNS])
    for line in layout.wrapped(rows, shutil.get_terminal_size().columns):
        output.echo(line)


def _show(found: list[Any], columns: dict[str, Column], style: output.Style) -> None:
    names = output.chosen_fields(style, tuple(columns), tuple(columns))
    if style.output == "json":
        shown = [msgspec.to_builtins(one) for one in found]
        output.show_json(
            [{name: one[name] for name in names} for one in shown] if style.fields else shown
        )
        return
    output.show_rows(found, [columns[name] for name in names], style, noun="opcodes")


def _kind(op_id: str) -> _Kind:
    declared = catalogue.find(op_id)
    assert declared is not None, "it is known"
    needs = [field.name for field in msgspec.structs.fields(declared) if field.required]
    return _Kind(op_id, declared.has_operation(), needs)


def _declared(name: str) -> type[Opcode]:
    known = catalogue.known_ids()
    wanted = name.upper()
    wanted = wanted if wanted.startswith("OP_") else f"OP_{wanted}"
    declared = catalogue.find(wanted)
    if declared is None:
        text = f"unknown opcode {wording.shown(name)}{wording.likeness(wanted, known)}"
        raise errors.UsageError(f"{text}; `ganger opcodes` lists them")
    return declared


def _summary(declared: type[Opcode]) -> str:
    return (declared.__doc__ or "").strip().partition("\n")[0]


def _parameters(declared: type[Opcode]) -> Iterator[_Parameter]:
    fields = msgspec.structs.fields(declared)
    for field in sorted(fields, key=lambda field: (field.name in _EVERYWHERE, not field.required)):
        default: Any = field.default
        if default is msgspec.NODEFAULT:
            made = field.default_factory
            default = None if made is msgspec.NODEFAULT else made()
        yield _Parameter(
            field.name, type_text(field.type), msgspec.to_builtins(default), field.required
        )


_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "null",
    Any: "anything",
    object: "anything",
}


def type_text(hint: Any) -> str:  # noqa: ANN401 - a type
    """A type in words.

    >>> type_text(list[str] | None), type_text(dict[str, Literal["a", "b"]])
    ('list of text, or null', 'mapping of text to "a" | "b"')
    """
    if hint in _WORDS:
        return _WORDS[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_text(parts[0])
    if origin is Literal:
        return " | ".join(msgspec.json.encode(part).decode() for part in parts)
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(type_text(part) for part in parts)
    if origin in (list, tuple):
        return "list of " + " and ".join(type_text(part) for part in parts if part is not ...)
    if origin is dict:
        return f"mapping of {type_text(parts[0])} to {type_text(parts[1])}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"mapping with {', '.join(hint.__struct_encode_fields__)}"
    return getattr(hint, "__name__", str(hint))


def _default(parameter: _Parameter) -> str:
    if parameter.required:
        return "(required)"
    return "-" if parameter.default is None else msgspec.json.encode(parameter.default).decode()


_PARAMETER_COLUMNS = {
    "name": Column("name", lambda one: one.name),
    "default": Column("default", _default),
    "type": Column("type", lambda one: one.type, width_least=40),
}

_KIND_COLUMNS = {
    "opcode": Column("opcode", lambda one: one.opcode, width_least=30),
    "runs": Column("runs", lambda one: "yes" if one.runs else "no", width_least=4),
    "needs": Column("needs", lambda one: ", ".join(one.needs) or "-"),
}
