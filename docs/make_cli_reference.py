"""Writes docs/cli.md from the help of the commands: run it after changing a command."""

from __future__ import annotations

import collections
import copy
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ganger.cli.main import EXIT_CODES, ganger

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 78

HEAD = """\
# The command line

`docs/make_cli_reference.py` makes this page from what `ganger COMMAND -h` shows.

## All commands

**Where.** `--data DIR`, before the command, or `GANGER_DATA` names the data directory; without them
it is `/var/lib/ganger` for root and `~/.local/share/ganger` for other users. The daemon's local
socket admits its own user, and root.

**Output.** Results go to standard output, errors and progress to standard error. On a terminal a
listing has colours and relative times; in a pipe it is plain, with times in UTC. Programs use `-o
json`, with times in seconds since the epoch, or `--separator`.

**Jobs.** Wherever a command takes the id of a job it takes a name, too: it means the newest job so
called. The name of a plan stands for all jobs of its newest submission, and `@last` for the newest
job that you have submitted.

**Times.** A span is `90` (seconds), `1.5h`, `30m`, `7d` or `2w`.

**Errors.** An error is one line on standard error that names its place. A refused request, or
batch, has stored nothing; only a filter rule refuses single jobs of a batch. If the answer is lost,
the line says `the outcome of ... is unknown`, and names the key under which the command can be
repeated safely.

```text
$ ganger job submit --op '{"OP_ID": "OP_EXEX"}'
ganger: unknown opcode 'OP_EXEX' (did you mean OP_EXEC?)
```

**Submitting.** [The plan file](reference/plan-file.md) is what `ganger job submit` reads.
`--reason`, `--priority` and `--depend` apply to each job of the file that does not set them itself
(for `--depend`: that has neither `after` nor `depends`). [OP_EXEC](reference/op-exec.md) says how a
command of `ganger exec` runs.

**Waiting.** `ganger job submit --wait`, `ganger job wait` and `ganger exec` end with 0 if each job
has succeeded or was not needed. A skipped job counts as the job that is the cause: it was not
needed if that has succeeded.
"""

MANY = 3
"""An option that so many commands have, in the same words, stands once on the page."""


MANY_HEAD = "A command that has them names them in brackets.\n"


def reference() -> str:
    """The whole page."""
    commands = dict(_commands(ganger, "ganger"))
    counts = collections.Counter(text for each in commands.values() for text in _texts(each))
    many = {text for text, count in counts.items() if count >= MANY}
    parts = [HEAD, "## Exit codes\n", _block(_exit_codes())]
    parts += ["## Options of many commands\n", MANY_HEAD, _block(_of_many(commands, many))]
    told: dict[str, str] = dict.fromkeys(many, "")
    for name, command in commands.items():
        arguments = (
            each.make_metavar(click.Context(command))
            for each in command.params
            if isinstance(each, click.Argument)
        )
        heading = " ".join((name, *arguments))
        parts += [f"## {heading}\n", _block(_help(name, command, told, commands))]
        told |= {text: name for text in _texts(command) if text not in told}
    return "\n".join(parts)


def _exit_codes() -> str:
    return textwrap.dedent(EXIT_CODES.replace("\b\n", "").partition("Exit codes:\n")[2])


def _of_many(commands: dict[str, click.Command], many: set[str]) -> str:
    """The options that many commands have."""
    every = {text: each for one in commands.values() for text, each in _texts(one).items()}
    # Of those that differ in a word, one.
    found = {_name(every[text]): every[text] for text in sorted(many)}
    page = click.Command("many", params=[*found.values()])
    return textwrap.dedent(_shown(page, "ganger").partition("Options:\n")[2])


def _help(
    name: str, command: click.Command, told: dict[str, str], commands: dict[str, click.Command]
) -> str:
    """The help of a command; of options that stand further up on the page only their names."""
    shorter = copy.copy(command)
    shorter.params = [
        each
        for each in command.params
        if not isinstance(each, click.Option) or _text(each, command) not in told
    ]
    # Behind the line of usage; the heading has its words.
    text, options, terms = _shown(shorter, name).partition("\n\n")[2].partition("Options:\n")
    shown = f"{textwrap.dedent(text)}{options}{terms}".rstrip()
    again = {text: each for text, each in _texts(command).items() if text in told}
    places = dict.fromkeys(told[text] for text in again)
    lines = [shown]
    for place in sorted(places, reverse=True):
        names = [_name(each) for text, each in again.items() if told[text] == place]
        theirs = _texts(commands[place]) if place else {}
        left_out = [_name(each) for text, each in theirs.items() if text not in again]
        if place and len(left_out) < len(names):
            but = f", but {', '.join(left_out)}" if left_out else ""
            lines.append(f"And the options of `{place}`{but}.")
        else:
            in_brackets = " ".join(f"[{each}]" for each in names)
            lines.append(f"As of `{place}`: {', '.join(names)}." if place else in_brackets)
    return "\n\n".join(textwrap.fill(one, WIDTH) if one is not shown else one for one in lines)


def _texts(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that its help shows, by what it says of them."""
    return {
        _text(each, command): each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden
    }


def _text(option: click.Option, command: click.Command) -> str:
    return " ".join(option.get_help_record(click.Context(command)) or ())


def _name(option: click.Option) -> str:
    return option.opts[-1]


def _shown(command: click.Command, name: str) -> str:
    """The help of a command, as wide as this page, without the option that asks for it."""
    command = copy.copy(command)
    command.add_help_option = False
    if not any(isinstance(each, click.Option) for each in command.params):
        command.options_metavar = ""
    context = click.Context(command, info_name=name, terminal_width=WIDTH)
    return command.get_help(context).replace("\b", "").strip()


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
