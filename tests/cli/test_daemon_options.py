"""The daemon gets the options that `ganger up` got."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from ganger.cli.daemon_options import (
    DaemonOptions,
    daemon_options,
    kind,
    recorded,
    remembered_options,
)
from ganger.storage.disk.paths import Places

ALL = [
    *("--remote", "tcp://127.0.0.1:7610", "--placement", "apart", "--hung-after", "7.5"),
    *("--fresh-processes", "--no-rapi", "--rapi-address", "127.0.0.1", "--rapi-port", "5080"),
    *("--rapi-host", "a.example", "--rapi-host", "b.example"),
    *("--rapi-no-tls", "--rapi-anonymous-reads", "--test-hooks"),
]


def options_of(words: list[str]) -> DaemonOptions:
    done, taken = run(words)
    assert done.exit_code == 0, done.output
    return taken[0]


def run(words: list[str]) -> tuple[Result, list[DaemonOptions]]:
    taken: list[DaemonOptions] = []

    @click.command()
    @daemon_options
    def command(options: DaemonOptions) -> None:
        taken.append(options)

    return CliRunner().invoke(command, words), taken


@pytest.mark.parametrize("words", [[], ALL, ALL[:6]])
def test_options_that_are_passed_on_are_the_same(words: list[str]) -> None:
    options = options_of(words)
    assert options_of(options.words()) == options
    # These two are the defaults.
    assert set(words) <= {*options.words(), "--rapi-address", "127.0.0.1"}


def test_an_option_that_was_not_given_is_not_passed_on() -> None:
    assert options_of([]).words() == []
    assert options_of(["--placement", "together", "--hung-after", "60"]).words() == []


def test_a_daemon_is_told_which_options_of_the_last_one_it_leaves_out(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    assert recorded(places) == kind()()
    last = options_of(["--remote", "tcp://*:1", "--rapi-port", "80", "--no-rapi", "--test-hooks"])
    last.record(places)
    assert recorded(places) == msgspec.structs.replace(last, test_hooks=False)
    for words, left in (
        (["--rapi-port", "81"], "--remote 'tcp://*:1' --no-rapi"),
        (["--no-rapi", "--rapi-port", "80"], "--remote 'tcp://*:1'"),
    ):
        text = f"the last daemon was started with `{left}`, and this one without"
        assert options_of(words).dropped(recorded(places)) == text
    assert last.dropped(recorded(places)) == ""
    # A file that no daemon has written counts as none.
    for content in ("[]", '{"hung_after": "x"}', ""):
        places.options_file.write_text(content)
        assert recorded(places) == kind()()


def test_options_that_are_recorded_already_are_not_written_again(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    kind()().record(places)
    assert not places.options_file.exists()
    kind()(no_rapi=True).record(places)
    written = places.options_file.stat().st_mtime_ns
    kind()(no_rapi=True, test_hooks=True).record(places)
    assert places.options_file.stat().st_mtime_ns == written


def remembered(places: Places, words: list[str]) -> tuple[Result, list[Any]]:
    """What `ganger up` starts a daemon with, and the words by which the last one's differ."""
    taken: list[Any] = []

    @click.command()
    @remembered_options
    def command(options: DaemonOptions, changes: Callable[[], list[str]]) -> None:
        taken.extend((options, " ".join(changes())))

    done = CliRunner().invoke(command, words, obj=mock.Mock(places=places))
    return done, taken


def test_options_that_are_not_given_are_those_of_the_last_start(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    kind()(remote="tcp://*:1", no_rapi=True, rapi_port=80, rapi_host=("a",)).record(places)
    for words, started in (
        ([], "--remote tcp://*:1 --no-rapi --rapi-port 80 --rapi-host a"),
        (["--rapi", "--rapi-port", "81"], "--remote tcp://*:1 --rapi-port 81 --rapi-host a"),
        (["--rapi", "--rapi-host", "b"], "--remote tcp://*:1 --rapi-port 80 --rapi-host b"),
        (["--forget"], ""),
        (["--forget", "--fresh-processes"], "--fresh-processes"),
    ):
        done, taken = remembered(places, words)
        assert done.exit_code == 0, done.output
        assert " ".join(taken[0].words()) == started


def test_up_knows_which_words_differ_from_the_options_of_the_daemon_that_runs(
    tmp_path: Path,
) -> None:
    places = Places(tmp_path, tmp_path)
    kind()(no_rapi=True, hung_after=7.5, rapi_host=("a",)).record(places)
    for words, changes in (
        ("", ""),
        ("--no-rapi --hung-after 7.5 --placement together", ""),
        ("--rapi", "--rapi"),
        ("--rapi --rapi-host a", "--rapi"),
        ("--rapi --rapi-host b --rapi-host a", "--rapi --rapi-host b --rapi-host a"),
        ("--hung-after 60", "--hung-after 60"),
        ("--hung-after 1000000000 --fresh-processes", "--hung-after 1000000000 --fresh-processes"),
        ("--lasting-processes --test-hooks", ""),
        ("--forget", "--forget"),
        ("--forget --rapi", "--forget --rapi"),
        ("--forget --no-rapi --hung-after 7.5 --rapi-tls", "--forget"),
    ):
        done, taken = remembered(places, words.split())
        assert done.exit_code == 0, done.output
        assert sorted(taken[1].split()) == sorted(changes.split())


@pytest.mark.parametrize(
    ("last", "words", "problem"),
    [
        ({}, "--no-rapi --rapi-port 5", "--rapi-port: has no effect with --no-rapi; give --rapi"),
        ({"no_rapi": True}, "--rapi-tls", ""),
        (
            {"no_rapi": True},
            "--rapi-no-tls",
            "--rapi-no-tls: has no effect with --no-rapi of the la",
        ),
        ({"no_rapi": True, "rapi_port": 5}, "--no-rapi --hung-after 9", ""),
        ({"no_rapi": True}, "--rapi --rapi-port 5", ""),
    ],
)
def test_an_option_of_what_is_not_served_is_refused(
    tmp_path: Path, last: dict[str, Any], words: str, problem: str
) -> None:
    places = Places(tmp_path, tmp_path)
    kind()(**last).record(places)
    done, _ = remembered(places, words.split())
    assert str(done.exception or "").startswith(problem)
    assert bool(done.exception) is bool(problem)


def test_options_are_checked_with_those_that_are_remembered(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path)
    assert remembered(places, ["--luxi-anonymous-reads"])[0].exit_code == 2
    remembered(places, ["--luxi-socket", "/x"])[1][0].record(places)
    assert remembered(places, ["--luxi-anonymous-reads"])[0].exit_code == 0
