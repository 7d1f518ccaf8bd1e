"""The documents say what the code says, and their links lead somewhere."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from docs import make_tables

from ganger.cli import plans
from ganger.storage import opcodes
from ganger.storage.ganeti.opcodes.catalogue import RUN_IN_STORE
from ganger.storage.jobs import job_views
from ganger.storage.opcodes import catalogue
from ganger.transport import messages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LIBRARIES = DOCS / "decisions" / "libraries.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))
)
CODE_FOLDERS = ("storage", "transport", "actors", "cli", "rapi")

# What is imported of a library that is not called so.
MODULES = {
    "argon2-cffi": "argon2",
    "google-re2": "re2",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
}

# At home wherever values are declared.
AT_HOME_EVERYWHERE = {"msgspec"}


# Tables.


@pytest.mark.parametrize("path", make_tables.documents(), ids=lambda path: path.name)
def test_tables_in_prose_agree_with_the_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == make_tables.with_parts(text), "run docs/make_tables.py"


def test_every_table_stands_in_one_document() -> None:
    names = [
        name
        for path in make_tables.documents()
        for name in make_tables.part_names(path.read_text(encoding="utf-8"))
    ]
    assert sorted(names) == sorted(make_tables.PARTS)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("a job", job_views.JobInfo),
        ("an opcode of it", job_views.OpInfo),
        ("a line of a log", job_views.LogLine),
        ("a change of status", job_views.StatusChange),
        ("a lock", messages.LockRow),
        ("the daemon", messages.DaemonInfo),
    ],
)
def test_the_client_page_names_every_field(what: str, value: type[msgspec.Struct]) -> None:
    text = (DOCS / "client.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {what} \| (.*) \|$", text, re.MULTILINE)
    assert row is not None
    # What stands in brackets are values of a field.
    named = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row[1]))
    assert [name for name in named if name not in ("is_final", "error")] == list(
        value.__struct_fields__
    )


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("op-exec.md", {*catalogue.OpExec.__struct_fields__} - {"stdin_file"}),
        ("plan-file.md", {*plans.JOB_KEYS}),
    ],
)
def test_a_page_of_the_reference_names_every_key(page: str, names: set[str]) -> None:
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def test_the_page_of_the_configuration_names_every_opcode_that_its_store_runs() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [one for one in sorted(RUN_IN_STORE) if f"`{one}`" not in text] == []


@pytest.mark.parametrize(
    ("page", "words_max"), [("README.md", 900), ("docs/architecture.md", 1_500)]
)
def test_a_page_that_everybody_reads_first_is_short(page: str, words_max: int) -> None:
    words = (ROOT / page).read_text(encoding="utf-8").split()
    assert len(words) <= words_max, "tell the rest where it belongs: in the docstring of a room"


@pytest.mark.parametrize("room", [*make_tables.room_files(), Path("rapi/__init__.py")], ids=str)
def test_the_pages_that_a_room_names_are_there(room: Path) -> None:
    prose = ast.get_docstring(ast.parse((ROOT / room).read_text(encoding="utf-8"))) or ""
    named = re.findall(r"(?:docs|tests)/[\w/.-]+\.(?:md|py)", prose)
    assert [name for name in named if not (ROOT / name).exists()] == []


NAMED_AFTER_THEIR_RECEIVER = Path("transport/messages")


@pytest.mark.parametrize("room", [*make_tables.room_files(), Path("rapi/__init__.py")], ids=str)
def test_a_room_names_each_of_its_files(room: Path) -> None:
    prose = ast.get_docstring(ast.parse((ROOT / room).read_text(encoding="utf-8"))) or ""
    named = {"__init__", *re.findall(r"`(\w+)`", prose)}
    files = {path.stem for path in (ROOT / room).parent.glob("*.py")}
    if room.parent == NAMED_AFTER_THEIR_RECEIVER:
        receivers = "|".join(messages.ACCEPTED)
        files = {name for name in files if not re.match(rf"(?:{receivers}|job)(?:_|$)", name)}
    assert files - named == set(), "say in a line what they are for"


# Libraries.


def homes_in_prose() -> dict[str, set[str]]:
    """The homes of each library as the decision's table has them; a folder ends in a slash."""
    rows = re.findall(
        r"^\| ([\w, -]+) \| .* \| (.*) \|$", LIBRARIES.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {
        name.lower(): set(re.findall(r"`([a-z_/0-9]+)`", homes))
        for name, homes in rows
        if name != "library"
    }


def homes_found(module: str) -> set[str]:
    """The files that import ``module`` when they run, in whatever depth of their code."""
    return {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for folder in CODE_FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if module in imports_of(path)
    }


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """The packages that a file imports when it runs."""
    return frozenset(imports(ast.parse(path.read_text(encoding="utf-8"))))


def imports(node: ast.AST) -> set[str]:
    """The packages that this piece of code imports, but for those that only types need."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return set()
        case ast.Import(names=names):
            return {name.name.split(".")[0] for name in names}
        case ast.ImportFrom(level=0, module=str(name)):
            return {name.split(".")[0]}
    return set().union(*(imports(child) for child in ast.iter_child_nodes(node)))


def dependencies() -> list[str]:
    return [re.split(r"[<>=~]", text)[0].lower() for text in PROJECT["dependencies"]]


def test_every_dependency_is_in_the_table_of_libraries() -> None:
    assert sorted(homes_in_prose()) == sorted(dependencies())


@pytest.mark.parametrize("library", sorted(set(dependencies()) - AT_HOME_EVERYWHERE))
def test_a_library_is_used_at_its_home_alone(library: str) -> None:
    homes = homes_in_prose()[library]
    folders = tuple(home for home in homes if home.endswith("/"))
    found = homes_found(MODULES.get(library, library))
    assert {next(filter(home.startswith, folders), home) for home in found} == homes


# Examples.


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


PLAN_FILE = "docs/reference/plan-file.md"


@pytest.mark.parametrize("text", blocks(PLAN_FILE, "yaml"))
def test_the_forms_of_a_submission_are_read(text: str) -> None:
    planned = plans.read(text, PLAN_FILE)
    assert planned
    for job in planned:
        for op in job.ops:
            opcodes.check_opcode(op)


def test_the_forms_of_a_submission_are_distinguished() -> None:
    many, one, whole = blocks(PLAN_FILE, "yaml")
    assert [len(plans.read(text, PLAN_FILE)) for text in (many, one, whole)] == [3, 1, 1]
    assert yaml.safe_load(whole)["depends"] == [17, [18, ["success", "error"]]]


# Links.


def anchors(path: Path) -> set[str]:
    """What links into a page may name: its headings, as they are turned into anchors."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_repository_lead_somewhere(page: str) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        assert linked.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.match(r"docs/(?!decisions/|examples/|README)", page)]
)
def test_every_page_stands_once_in_the_table_of_contents(page: str) -> None:
    contents = (DOCS / "README.md").read_text(encoding="utf-8")
    assert contents.count(f"]({page.removeprefix('docs/')})") == 1


def test_the_readme_leads_to_the_table_of_contents() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
