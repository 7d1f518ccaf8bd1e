"""The folders, the build list, the pinned requirements and the built wheel fit together."""

from __future__ import annotations

import ast
import doctest
import importlib
import linecache
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import ganger

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PACKAGES: list[str] = PYPROJECT["tool"]["setuptools"]["packages"]
TOP_FOLDERS = [name.removeprefix("ganger.") for name in PACKAGES if name.count(".") == 1]
LINKS = ROOT / ".typing" / "ganger"

# Modules that only some parts of Ganger need and that cost the others time and memory.
HEAVY = ("pykka", "threading", "zmq")


def _folder(package: str) -> Path:
    """The folder of ``package``: the root of the checkout is the root package."""
    return ROOT.joinpath(*package.split(".")[1:])


def _run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def _output(*command: str | Path, folder: Path) -> str:
    done = _run(*command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Folders, build list and links.


def test_every_package_of_the_build_list_has_a_folder_and_every_folder_a_package() -> None:
    assert PYPROJECT["tool"]["setuptools"]["package-dir"] == {"ganger": "."}
    listed = {_folder(package).relative_to(ROOT).as_posix() for package in PACKAGES}
    code_at_top = {
        marker.parent for marker in ROOT.glob("[!.]*/py.typed") if marker.parent.name != "build"
    }
    found = {
        source.parent.relative_to(ROOT).as_posix()
        for folder in code_at_top
        for source in folder.rglob("*.py")
    }
    assert listed == {".", *found}


def test_every_package_is_marked_as_typed() -> None:
    unmarked = [name for name in (".", *TOP_FOLDERS) if not (ROOT / name / "py.typed").is_file()]
    assert not unmarked


def test_the_links_for_static_tools_mirror_the_build_list() -> None:
    names = ("__init__.py", "py.typed", *TOP_FOLDERS)
    expected = {name: f"../../{name}" for name in names}
    links = {link.name: str(link.readlink()) for link in LINKS.iterdir()}
    assert links == expected
    assert all(link.exists() for link in LINKS.iterdir())


# Public names.


def test_public_names_are_the_same_for_the_interpreter_and_for_the_type_checker() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    for_type_checker = {
        (f".{statement.module}", alias.name)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ImportFrom) and statement.level == 1
        for alias in statement.names
    }
    assert set(ganger._HOMES.values()) == for_type_checker
    assert list(ganger._HOMES) == ganger.__all__


@pytest.mark.parametrize("name", ganger.__all__)
def test_every_public_name_can_be_imported_and_is_listed(name: str) -> None:
    assert getattr(ganger, name).__name__.rpartition(".")[2] == name
    assert name in dir(ganger)


def test_an_unknown_public_name_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="NoSuchName"):
        exec("from ganger import NoSuchName")  # Not written plainly: mypy knows better.


# Pinned requirements.

_PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


def _pins(name: str) -> dict[str, Version]:
    """The pinned versions in ``requirements/<name>.txt``; fails on any line that is no pin."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = re.sub(r" *\\\n *", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    pins = {}
    for line in lines:
        pin = _PIN.fullmatch(line)
        assert pin, f"requirements/{name}.txt: not a pin with hashes: {line[:80]}"
        # One library may have a version for each Python.
        assert pin["name"] not in pins or pin["marker"]
        pins[pin["name"]] = Version(pin["version"])
    return pins


def _requirements(*groups: str) -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *PYPROJECT["build-system"]["requires"]]
    return [
        Requirement(text) for text in texts + [text for group in groups for text in extras[group]]
    ]


@pytest.mark.parametrize(("name", "groups"), [("run", ()), ("dev", ("dev", "bench"))])
def test_every_requirement_is_pinned_within_its_bounds(name: str, groups: tuple[str, ...]) -> None:
    pins = _pins(name)
    for requirement in _requirements(*groups):
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not in requirements/{name}.txt: make lock"
        assert version in requirement.specifier, f"{requirement} is pinned to {version}: make lock"


_BOUNDS = sorted(path for path in (ROOT / "requirements").rglob("*.in") if path.stem != "build")


@pytest.mark.parametrize("path", _BOUNDS, ids=lambda path: path.stem)
def test_what_benchmarks_need_is_pinned_within_its_bounds(path: Path) -> None:
    name = path.relative_to(ROOT / "requirements").with_suffix("").as_posix()
    pins = _pins(name)
    for requirement in map(Requirement, path.read_text().split()):
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not in requirements/{name}.txt: make lock"
        assert version in requirement.specifier, f"{requirement} is pinned to {version}: make lock"


def test_plots_run_on_the_versions_of_development() -> None:
    dev = _pins("dev")
    assert {name: dev.get(name, version) for name, version in _pins("bench").items()} == _pins(
        "bench"
    )


def test_development_runs_on_the_versions_that_users_run_on() -> None:
    assert _pins("run").items() <= _pins("dev").items()


def test_no_file_for_installation_names_an_index_or_a_host() -> None:
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", *(ROOT / "requirements").rglob("*.*")]
    named = re.compile(r"https?://|file://|--(extra-)?index-url|--find-links|--trusted-host")
    found = {file.name: named.findall(file.read_text()) for file in files}
    assert not any(found.values()), found


# The wheel, as a user gets it.


@dataclass(frozen=True)
class Installed:
    """The wheel, and a fresh environment in which it is installed, away from the checkout."""

    wheel: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    wheel = _build_wheel(folder)
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    python = folder / "venv" / "bin" / "python"
    site = Path(
        _output(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
        ).strip()
    )
    # The libraries come from this test's own environment, as a plain path: nothing is fetched,
    # and the loader of its editable installation does not come along.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _output(
        sys.executable,
        *("-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python),
        *("install", "--no-index", "--no-deps", "--ignore-installed", wheel),
        folder=folder,
    )
    return Installed(wheel, folder)


def _build_wheel(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "LICENSE", "__init__.py", "py.typed"):
        shutil.copy(ROOT / name, source)
    for name in TOP_FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _output(
        sys.executable,
        *("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source),
        folder=folder,
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_every_module_and_data_file(installed: Installed) -> None:
    expected = {
        f"{package.replace('.', '/')}/{file.name}"
        for package in PACKAGES
        for pattern in ("*.py", "*.json", "*.html", "*.css", "*.js", "py.typed")
        for file in _folder(package).glob(pattern)
    }
    with zipfile.ZipFile(installed.wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_clients_can_be_imported_from_the_installed_wheel(installed: Installed) -> None:
    lines = "import ganger; from ganger import Client, AsyncClient; print(ganger.__file__)"
    origin = _output(installed.python, "-c", lines, folder=installed.folder)
    assert Path(origin.strip()).is_relative_to(installed.folder / "venv")


def test_the_installed_command_prints_its_version(installed: Installed) -> None:
    command = installed.folder / "venv" / "bin" / "ganger"
    assert PROJECT["version"] in _output(command, "--version", folder=installed.folder)


@pytest.mark.parametrize("module", ["ganger", "ganger.storage.jobs.jobs"])
def test_parts_without_actors_load_no_threads_and_no_sockets(
    installed: Installed, module: str
) -> None:
    lines = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    assert _output(installed.python, "-c", lines, folder=installed.folder) == "[]\n"


def test_the_daemon_loads_neither_what_paints_a_terminal_nor_asyncio(installed: Installed) -> None:
    lines = (
        "import sys, ganger.cli.daemon, ganger.actors.supervision.supervisor;"
        "print('rich' in sys.modules, 'asyncio' in sys.modules); import rich; print(rich.__name__);"
        "import asyncio; print(asyncio.run.__name__)"
    )
    output = _output(installed.python, "-c", lines, folder=installed.folder)
    assert output == "False False\nrich\nrun\n"


def test_a_type_checker_sees_the_types_of_the_installed_wheel(installed: Installed) -> None:
    seen = _mypy(
        installed, "from ganger import AsyncClient, Client\npair = (AsyncClient, Client)\n"
    )
    assert seen.returncode == 0, seen.stdout + seen.stderr


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("from ganger import NoSuchName", 'Module "ganger" has no attribute "NoSuchName"'),
        ("from ganger import Client\nClient.nothing", '"type[Client]" has no attribute "nothing"'),
        (
            "from ganger import AsyncClient\nAsyncClient.nothing",
            '"type[AsyncClient]" has no attribute "nothing"',
        ),
        ("from ganger import GangerError\nx: str = GangerError.exit_code", 'has type "int"'),
    ],
)
def test_a_type_checker_sees_mistakes_in_the_use_of_the_installed_wheel(
    installed: Installed, lines: str, complaint: str
) -> None:
    seen = _mypy(installed, lines)
    assert seen.returncode == 1, seen.stdout + seen.stderr
    assert complaint in seen.stdout


def _mypy(installed: Installed, lines: str) -> subprocess.CompletedProcess[str]:
    (installed.folder / "snippet.py").write_text(lines)
    return _run(
        sys.executable,
        *("-m", "mypy", "--strict", "--config-file=", "--python-executable", installed.python),
        "snippet.py",
        folder=installed.folder,
    )


def test_no_two_test_modules_have_the_same_name() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} <= {"conftest.py"}


# Examples in docstrings.


def _modules() -> list[str]:
    return [
        *PACKAGES,
        *(
            f"{package}.{module.name}"
            for package in PACKAGES
            for module in pkgutil.iter_modules([str(_folder(package))])
            if not module.ispkg and module.name != "__main__"
        ),
    ]


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    # Before each example, doctest asks for the state of every file that a traceback has shown.
    monkeypatch.setattr(linecache, "checkcache", lambda _=None: None)
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0, "the report is in the captured output"
