"""Makes the parts of the documentation that repeat what the code says, from the code.

`.venv/bin/python docs/make_tables.py` writes them anew; tests/test_documents.py compares. Such
a part stands between two comments, of which the first names it::

    <!-- made by docs/make_tables.py: transitions -->
    <!-- end -->
"""  # noqa: INP001 - a folder of documents

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from ganger import Client
from ganger.actors.reconciling import TABLE, Fate, Life, Progress
from ganger.cli.main import ganger
from ganger.storage import errors
from ganger.storage.jobs import TRANSITIONS, JobStatus, OpcodeEvent

HERE = Path(__file__).parent

_PART = re.compile(
    r"(?P<head><!-- made by docs/make_tables\.py: (?P<name>[a-z-]+) -->\n)"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def main() -> None:
    """Bring every document up to the code."""
    for path in documents():
        text = path.read_text()
        made = with_parts(text)
        if made != text:
            path.write_text(made)
            sys.stdout.write(f"{path.name} is written anew\n")


def documents() -> list[Path]:
    """The documents that hold such parts."""
    return [path for path in sorted(HERE.glob("*.md")) if part_names(path.read_text())]


def part_names(text: str) -> list[str]:
    """The names of the parts in a document."""
    return [part["name"] for part in _PART.finditer(text)]


def with_parts(text: str) -> str:
    """The document with each part made anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


# What becomes of jobs after a restart.

_PROGRESS = {
    Progress.UNTOUCHED: "none has begun",
    Progress.BEGUN: "some have begun",
    Progress.FINAL: "the job is final",
}
_LIFE = {
    Life.NONE: "no process named",
    Life.ALIVE: "its process lives",
    Life.DEAD: "its process is dead",
}
_FATES = {
    Fate.KEEP: "kept as it is",
    Fate.ADOPT: "taken over",
    Fate.ENQUEUE: "pending again",
    Fate.FAIL: "ends in `error`",
}


def fates() -> str:
    """The table of `actors/reconciling`."""
    rows = [
        (_PROGRESS[progress], *(_FATES[TABLE[progress, life]] for life in Life))
        for progress in Progress
    ]
    return _table(("the job's opcodes", *(_LIFE[life] for life in Life)), rows)


# How the status of an opcode changes.

_EVENTS = {
    OpcodeEvent.TAKE_UP: "has to wait for jobs or locks",
    OpcodeEvent.START: "has its locks, and is about to run",
    OpcodeEvent.SUCCEED: "the operation has succeeded",
    OpcodeEvent.FAIL: "has failed, or cannot start",
    OpcodeEvent.CANCEL: "is to be canceled",
    OpcodeEvent.CONFIRM_CANCEL: "its process has seen it",
    OpcodeEvent.LOSE_PROCESS: "the job's process is gone",
}


def diagram() -> str:
    """`storage/jobs.TRANSITIONS` as a picture, without the loss of the process."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    for (status, event), target in TRANSITIONS.items():
        if event is not OpcodeEvent.LOSE_PROCESS:
            lines.append(f"    {status} --> {target}: {_words(event)}")
    lines += [f"    {status} --> [*]" for status in JobStatus if status.is_final]
    return "\n".join([*lines, "```", ""])


def transitions() -> str:
    """`storage/jobs.TRANSITIONS` as a table."""
    rows = [
        (f"`{status}`", _words(event), _EVENTS[event], f"`{target}`")
        for (status, event), target in TRANSITIONS.items()
        if event is not OpcodeEvent.LOSE_PROCESS
    ]
    lost = {target for (_, event), target in TRANSITIONS.items() if event.name == "LOSE_PROCESS"}
    [target] = lost
    event = OpcodeEvent.LOSE_PROCESS
    rows.append(("any", _words(event), _EVENTS[event], f"`{target}`"))
    return _table(("from", "event", "the opcode", "to"), rows)


def _words(event: OpcodeEvent) -> str:
    return event.replace("_", " ")


# The command line.


def commands() -> str:
    """Every command with its options, as `--help` has them."""
    root = click.Context(ganger, info_name="ganger")
    return "\n".join(_command(context) for context in contexts(root))


def contexts(context: click.Context) -> Iterator[click.Context]:
    """This command and everything below it, in the order of their declaration."""
    yield context
    if isinstance(context.command, click.Group):
        # A group of click's own tells its commands by the alphabet, and keeps them in order.
        names = list(context.command.commands) or context.command.list_commands(context)
        for name in names:
            command = context.command.get_command(context, name)
            assert command is not None
            yield from contexts(click.Context(command, info_name=name, parent=context))


def _command(context: click.Context) -> str:
    usage = " ".join(context.command.collect_usage_pieces(context))
    parts = [f"### {context.command_path}", "", f"`{context.command_path} {usage}`", ""]
    parts += _prose(context.command.help or "")
    records = [
        record
        for parameter in context.command.get_params(context)
        if "--help" not in parameter.opts
        and (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        rows = [(f"`{option}`", text) for option, text in records]
        parts.append(_table(("option", "meaning"), rows))
    return "\n".join(parts)


def _prose(text: str) -> Iterator[str]:
    """A help text: paragraphs are joined, and what click must not join is an example."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0] == "\b":
            yield from ("```text", *lines[1:], "```", "")
        else:
            yield from (" ".join(lines), "")


# Errors.


def error_classes() -> str:
    """The tree of `storage/errors`, with exit codes."""
    rows = [
        (f"{'&nbsp;' * 4 * depth}`{error.__name__}`", str(error.exit_code), _first_line(error))
        for error, depth in _errors(errors.GangerError, 0)
    ]
    return _table(("class", "exit code", "text, unless there is more to say"), rows)


def exit_codes() -> str:
    """The exit codes of `storage/errors`, with the errors that have them."""
    classes: dict[int, list[str]] = {}
    for error, _ in _errors(errors.GangerError, 0):
        classes.setdefault(error.exit_code, []).append(f"`{error.__name__}`")
    return _table(
        ("exit code", "errors"),
        [(str(code), ", ".join(names)) for code, names in sorted(classes.items())],
    )


def _errors(
    error: type[errors.GangerError], depth: int
) -> Iterator[tuple[type[errors.GangerError], int]]:
    yield error, depth
    for child in error.__subclasses__():
        # Some are declared elsewhere, and leave their module never.
        if child.__module__ == errors.__name__:
            yield from _errors(child, depth + 1)


# The client library.


def verbs() -> str:
    """The verbs of the client with their arguments."""
    rows = [
        (f"`{name}({', '.join(_arguments(verb))})`", _first_sentence(verb))
        for name, verb in vars(Client).items()
        if not name.startswith("_") and inspect.isfunction(verb)
    ]
    return _table(("verb", "meaning"), rows)


def _arguments(verb: Callable[..., object]) -> Iterator[str]:
    is_star_seen = False
    for name, parameter in list(inspect.signature(verb).parameters.items())[1:]:
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                is_star_seen = True
                yield f"*{name}"
                continue
            case inspect.Parameter.KEYWORD_ONLY if not is_star_seen:
                is_star_seen = True
                yield "*"
        has_default = parameter.default is not inspect.Parameter.empty
        yield f"{name}={parameter.default}" if has_default else name


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0]


def _first_sentence(thing: object) -> str:
    paragraph = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split("\n"))
    return re.sub(r"``", "`", paragraph)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *(tuple(row) for row in rows)]
    cells = ([" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "diagram": diagram,
    "error-classes": error_classes,
    "exit-codes": exit_codes,
    "fates": fates,
    "transitions": transitions,
    "verbs": verbs,
}
"""What can stand in a document."""


if __name__ == "__main__":
    main()
