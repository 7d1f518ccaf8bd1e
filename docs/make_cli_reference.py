"""Writes docs/cli.md from the commands' own help: run it after changing a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ganger.cli.main import EXIT_CODES, ganger

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
# The command line

Written by `docs/make_cli_reference.py` from the help of the commands; a test compares the two.
`ganger COMMAND --help` shows the same. Shell completion: `ganger completion --help`.

Every error is one line on standard error, `ganger: ...`, that names what is wrong and where.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "## Exit codes\n", _block(EXIT_CODES.replace("\b\n", ""))]
    for name, command in _commands(ganger, "ganger"):
        context = click.Context(command, info_name=name, max_content_width=90)
        parts += [f"## {name}\n", _block(command.get_help(context).replace("\b", ""))]
    return "\n".join(parts)


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().split("\n"))
    return f"```text\n{lines}\n```\n"


if __name__ == "__main__":
    (Path(__file__).parent / "cli.md").write_text(reference(), encoding="utf-8")
