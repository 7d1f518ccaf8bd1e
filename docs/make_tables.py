"""Writes the generated tables in the documents anew from the code.

Run it after changing the code that they describe; tests/test_pages.py compares. Each table stands
between two comments, of which the first names it::

    <!-- made by docs/make_tables.py: fates -->
    <!-- end -->
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ganger import Client
from ganger.actors.store.reconciling import TABLE, Fate, Life, Progress
from ganger.storage import errors
from ganger.storage.fsck.findings import KINDS, FindingRemedy

HERE = Path(__file__).parent

_PART = re.compile(
    r"(?P<head><!-- made by docs/make_tables\.py: (?P<name>[a-z-]+) -->\n)"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)


def main() -> None:
    """Bring every document up to the code."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        made = with_parts(text)
        if made != text:
            path.write_text(made, encoding="utf-8")
            sys.stdout.write(f"{path.name} is written anew\n")


def documents() -> list[Path]:
    """The documents that hold such parts."""
    return [
        path for path in sorted(HERE.rglob("*.md")) if part_names(path.read_text(encoding="utf-8"))
    ]


def part_names(text: str) -> list[str]:
    """The names of the parts in a document."""
    return [part["name"] for part in _PART.finditer(text)]


def with_parts(text: str) -> str:
    """The document with each part made anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


# The rooms: folders of the code, each with the question that it answers.

_HOUSES = ("storage", "transport", "actors")


def rooms() -> str:
    """Each room with the first paragraph of its docstring."""
    rows = ((path.parent, HERE.parent / path) for path in room_files())
    lines = (f"| `{room}/` | {_question(path)} |" for room, path in rows if room.parts[1:])
    return "\n".join(["| room | question |", "|---|---|", *lines])


def room_files() -> list[Path]:
    """The file of each room that says what it is for, from the root of the checkout."""
    found = (path for house in _HOUSES for path in (HERE.parent / house).rglob("__init__.py"))
    return sorted(path.relative_to(HERE.parent) for path in found)


def _question(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


# What becomes of jobs after a restart.

_PROGRESS = {
    Progress.UNTOUCHED: "none has begun",
    Progress.BETWEEN: "the first have succeeded, the others have not begun",
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
    """The table of `actors/store/reconciling`."""
    rows = [
        (_PROGRESS[progress], *(_FATES[TABLE[progress, life]] for life in Life))
        for progress in Progress
    ]
    return _table(("the job's opcodes", *(_LIFE[life] for life in Life)), rows)


# What `ganger fsck` finds.

_REMEDIES = {
    FindingRemedy.REPAIR: "`--repair` ",
    FindingRemedy.OPERATOR: "you: ",
    FindingRemedy.NONE: "nothing to do: ",
}


def findings() -> str:
    """The table of `storage/fsck/findings`."""
    rows = [
        (f"`{kind}`", info.meaning, f"{_REMEDIES[info.remedy]}{info.how}")
        for kind, info in KINDS.items()
    ]
    return _table(("kind", "what it means", "what solves it"), rows)


# Errors.


def error_classes() -> str:
    """The tree of `storage/errors`, with exit codes."""
    rows = [
        (f"{'&nbsp;' * 4 * depth}`{error.__name__}`", str(error.exit_code), _first_line(error))
        for error, depth in _errors(errors.GangerError, 0)
    ]
    return _table(("class", "exit code", "text, unless there is more to say"), rows)


def _errors(
    error: type[errors.GangerError], depth: int
) -> Iterator[tuple[type[errors.GangerError], int]]:
    yield error, depth
    for child in error.__subclasses__():
        # Those declared elsewhere never leave their module.
        if child.__module__ == errors.__name__:
            yield from _errors(child, depth + 1)


# The client library.


def verbs() -> str:
    """The verbs of the client with their arguments."""
    rows = [
        (f"`{name}({', '.join(_arguments(verb))})`", _first_sentence(verb))
        for part in Client.__mro__
        for name, verb in vars(part).items()
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


def campaigns() -> str:
    """The campaigns of faults: how many in full, and how many in the tests."""
    # The tests are beside this folder, which is not looked through when this is run as a script.
    sys.path.append(str(HERE.parent))
    from tests.torture.campaigns import CAMPAIGNS  # noqa: PLC0415 - only found now

    rows = [
        (each.property, each.name, f"{each.full:,}", f"{each.share:,}", each.needs)
        for each in CAMPAIGNS
    ]
    return _table(("property", "campaign", "`make torture`", "`make test`", "needs"), rows)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    heads = tuple(heads)
    lines = [heads, tuple("---" for _ in heads), *(tuple(row) for row in rows)]
    cells = ([" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


# Figures for Prometheus.


def metrics() -> str:
    """Each metric with its text: in the code a name, and the text behind it."""
    code = (HERE.parent / "rapi" / "metrics.py").read_text(encoding="utf-8")
    rows = sorted({found for node in ast.walk(ast.parse(code)) for found in _metric(node)})
    lines = (f"| `{name}` | {text} |" for name, text in rows)
    return "\n".join(["| metric | meaning |", "|---|---|", *lines])


def _metric(node: ast.AST) -> Iterator[tuple[str, str]]:
    parts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
    match parts:
        case [ast.Constant(str(name)), ast.Constant(str(text)), *_] if name.startswith("ganger_"):
            yield name, text


PARTS: dict[str, Callable[[], str]] = {
    "campaigns": campaigns,
    "error-classes": error_classes,
    "fates": fates,
    "findings": findings,
    "metrics": metrics,
    "rooms": rooms,
    "verbs": verbs,
}
"""What can stand in a document."""


if __name__ == "__main__":
    main()
