"""The options of LUXI's socket reach the daemon, and are refused where they have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_daemon_options import options_of, run

from ganger.cli.daemon_options import recorded
from ganger.cli.ganeti.daemon_options import Options, closed_folder
from ganger.storage.disk.paths import Places

ALL = [
    *("--no-luxi", "--luxi-socket", "/run/luxi", "--luxi-group", "0", "--luxi-anonymous-reads"),
]


@pytest.mark.parametrize("words", [ALL, ["--luxi-socket", "/run/luxi", "--luxi-group", "0"]])
def test_options_that_are_passed_on_are_the_same(words: list[str]) -> None:
    options = options_of(words)
    assert options_of(options.words()) == options
    assert set(words) <= {*options.words()}


def test_the_listener_is_told_what_was_given() -> None:
    given = ["--luxi-socket", "/run/luxi", "--luxi-group", "0"]
    expected = {"path": "/run/luxi", "group": 0, "everybody_reads": False}
    assert options_of(given).listener_options() == {"luxi_listener": expected}
    assert options_of([*given, "--no-luxi"]).listener_options() == {"luxi_listener": None}


def test_the_options_of_the_last_daemon_are_known(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    options_of(["--luxi-socket", "/run/luxi"]).record(places)
    assert recorded(places) == Options(luxi_socket="/run/luxi")
    places.options_file.write_text('{"luxi_group": "x"}')
    assert recorded(places) == Options()


@pytest.mark.parametrize("words", [["--luxi-anonymous-reads"], ["--luxi-group", "0"]])
def test_nobody_else_reaches_the_run_directory_so_rights_there_are_refused(
    words: list[str],
) -> None:
    done, taken = run(words)
    assert (done.exit_code, taken) == (2, [])
    text = f"{words[0]} needs --luxi-socket PATH: without it the socket lies in the run directory"
    assert text in done.output.replace("\n", " ")
    for more in (["--luxi-socket", "/run/luxi"], ["--no-luxi"]):
        assert run([*words, *more])[0].exit_code == 0


@pytest.mark.parametrize("words", [["--luxi-anonymous-reads"], ["--luxi-group", "0"], []])
def test_rights_at_a_socket_that_their_users_cannot_reach_are_named(
    words: list[str], tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    given = ["--luxi-socket", str(tmp_path / "luxi"), *words]
    warnings = options_of(given).closed_to_users()
    text = f"its users cannot enter {tmp_path}, where {tmp_path / 'luxi'} lies"
    assert warnings == [f"{option} has no effect: {text}" for option in words[:1]]
    assert options_of([*given, "--no-luxi"]).closed_to_users() == []
    assert options_of(["--luxi-socket", "/luxi", *words]).closed_to_users() == []


@pytest.mark.parametrize(
    ("mode", "closed_for"),
    [(0o755, []), (0o700, ["all", "own"]), (0o710, ["all"]), (0o701, ["own"]), (0o750, ["all"])],
)
def test_a_folder_that_others_cannot_enter_is_named(
    tmp_path: Path, mode: int, closed_for: list[str]
) -> None:
    """Other folders above it may be closed, too; ``own`` is the group of this one."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    socket = folder / "not there yet" / "socket"
    for name, group in (("all", None), ("own", folder.stat().st_gid)):
        is_named = closed_folder(socket, group) == folder
        assert is_named == (name in closed_for)
