"""A wrong command line is answered with the one that was probably meant."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ganger.cli import hints
from ganger.cli.main import _COMMANDS, SETTINGS, ganger
from ganger.storage import errors
from ganger.storage.disk import reserve


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("staus", "status"),
        ("jobs", "job list"),
        ("submit", "job submit"),
        ("stop", "down"),
        ("drain", "queue drain"),
    ],
)
def test_what_was_meant(word: str, expected: str) -> None:
    assert hints.meant(word, _COMMANDS) == f" Did you mean 'ganger {expected}'?"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            errors.ReadOnlyError(f"no changes: {reserve.REMEDY}"),
            f" ({hints.GIVE_SPACE})",
        ),
        (errors.ReadOnlyError("no changes: Input/output error"), ""),
        (
            errors.JobStateError(f"skipped; {errors.RETRY_FIRST.format(17)}"),
            " (`ganger job retry 17`)",
        ),
        (errors.BadRequestError(reserve.REMEDY), ""),
    ],
)
def test_a_refusal_names_the_command_that_helps(error: errors.GangerError, expected: str) -> None:
    assert hints.remedy(error) == expected


def test_the_hint_helps_whether_output_or_many_small_jobs_fill_the_disk() -> None:
    for command in ("--larger-than 1M` removes", "--older-than all` all that have ended"):
        assert f"`ganger job purge {command}" in hints.GIVE_SPACE


def test_a_word_that_resembles_no_command_gets_no_hint() -> None:
    assert hints.meant("xyzzy", _COMMANDS) == ""


def test_every_command_that_is_suggested_exists() -> None:
    context = click.Context(ganger, **SETTINGS)
    for line in hints._ELSEWHERE.values():
        command: click.Command = ganger
        for word in line.split():
            if word.startswith("-"):
                names = [name for one in command.get_params(context) for name in one.opts]
                assert word in names, line
            else:
                assert isinstance(command, click.Group)
                found = command.get_command(context, word)
                assert found is not None, line
                command = found


@pytest.mark.parametrize("command", [["echo a | wc"], ["ls *.txt"], ["a && b"]])
def test_a_line_for_a_shell_is_recognised(command: list[str]) -> None:
    assert "sh -c" in hints.shell(command)


@pytest.mark.parametrize("command", [["true"], ["/opt/x-y/z.sh"], ["echo", "a | wc"]])
def test_a_command_is_no_line_for_a_shell(command: list[str]) -> None:
    assert hints.shell(command) == ""


@pytest.mark.parametrize("words", [("--detached", "sleep", "1"), ("--lokc", "n1", "--", "true")])
def test_exec_takes_no_unknown_option_for_its_command(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(ganger, ["--data", "/nowhere", "exec", *words])
    assert done.exit_code == 2
    assert f"No such option '{words[0]}'" in done.output


@pytest.mark.parametrize("words", [[], ["exec"], ["job", "list"], ["filter"], ["completion"]])
def test_h_stands_for_help_everywhere(words: list[str]) -> None:
    short, long = (CliRunner().invoke(ganger, [*words, one]) for one in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)
    assert "-h, --help" in short.output
