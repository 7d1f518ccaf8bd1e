"""Which peers are measured, with which options, and in which order."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from bench.peers import __main__ as program
from bench.peers import catalogue, driver
from bench.peers.task_spooler_side import unfinished

ROOT = Path(__file__).parents[2]
LISTED = """\
ID   State      Output               E-Level  Times(r/u/s)   Command [run=1/2]
1    finished   /tmp/ts-out.jzNkbB   0        0.00/0.00/0.00 true
2    {}    /tmp/ts-out.NBRILB                           true
"""


def refused(capsys: pytest.CaptureFixture[str], *given: str) -> str:
    with pytest.raises(SystemExit) as left:
        program.arguments(list(given))
    assert left.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


# Options.


def test_without_options_all_peers_are_measured_at_full_size() -> None:
    options = program.arguments([])
    assert (options.rounds, options.jobs, options.listed) == (3, 1_000, 100_000)
    assert catalogue.chosen(options.only) == list(catalogue.PEERS)


def test_chosen_peers_keep_the_order_of_the_table() -> None:
    options = program.arguments(["--only", "celery", "rq"])
    assert [peer.name for peer in catalogue.chosen(options.only)] == ["rq", "celery"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--rounds", "0"], "argument --rounds: expected 1 or more, not 0"),
        (["--jobs", "9"], "argument --jobs: expected 10 or more, not 9"),
        (["--jobs", "many"], "argument --jobs: expected a whole number, not 'many'"),
        (["--listed", "-1"], "argument --listed: expected 0 or more, not -1"),
        (["--only", "sidekiq"], "argument --only: invalid choice: 'sidekiq'"),
        (["--dir", "/nowhere"], "argument --dir: there is no folder /nowhere"),
        (["--page", "/nowhere.md"], "argument --page: /nowhere.md: [Errno 2]"),
        (["--page", str(ROOT / "README.md")], "no place for the tables"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], given: list[str], wanted: str
) -> None:
    assert wanted in refused(capsys, *given)


@pytest.mark.parametrize(("load", "is_told"), [(0.1, False), (7.0, True)])
def test_a_run_on_a_busy_machine_says_so(load: float, *, is_told: bool) -> None:
    line = program.run(program.arguments([]), 480, load)
    assert "3 rounds of 1,000 jobs" in line
    assert "in 8.0 minutes." in line
    assert ("**The machine was not quiet**: load 7.0 before." in line) is is_told


# Peers.


def test_names_are_unique() -> None:
    assert len(set(catalogue.NAMES)) == len(catalogue.NAMES)


@pytest.mark.parametrize("library", sorted({peer.library for peer in catalogue.PEERS}))
def test_every_library_has_one_side(library: str) -> None:
    assert importlib.util.find_spec(f"bench.peers.{library}_side") is not None


def test_make_builds_the_environment_of_every_peer_from_pinned_packages() -> None:
    (made,) = re.findall(r"^PEERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    used = {peer.environment for peer in catalogue.PEERS if peer.environment is not None}
    assert set(made.split()) == used
    pinned = {path.stem for path in (ROOT / "requirements" / "peers").glob("*.txt")}
    # Ansible is measured beside commands on nodes, by `make bench`.
    assert pinned == used | {"ansible"}


def test_each_round_begins_with_another_peer_and_has_all_of_them() -> None:
    peers = list(catalogue.PEERS)
    rounds = [catalogue.turn(peers, number) for number in range(len(peers))]
    assert {order[0].name for order in rounds} == set(catalogue.NAMES)
    assert all(sorted(order) == sorted(peers) for order in rounds)


def test_a_peer_without_environment_says_what_pip_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (celery,) = catalogue.chosen(["celery"])
    monkeypatch.setattr(driver, "ENVIRONMENTS", tmp_path)
    with pytest.raises(driver.SideMissingError, match="make bench-peers makes its environment"):
        driver.interpreter(celery)
    (tmp_path / "celery").mkdir()
    (tmp_path / "celery" / "problem").write_text("ERROR: no such wheel\nWARNING: old\n")
    with pytest.raises(driver.SideMissingError, match=r"not installed: ERROR: no such wheel$"):
        driver.interpreter(celery)


@pytest.mark.parametrize(
    ("state", "wanted"), [("queued ", True), ("running", True), ("finished", False)]
)
def test_a_list_of_task_spooler_tells_whether_jobs_are_left(state: str, *, wanted: bool) -> None:
    assert unfinished(LISTED.format(state)) is wanted
