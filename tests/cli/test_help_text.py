"""Help fits the terminal and is broken between words."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from ganger.cli.help_text import HelpFormatter
from ganger.cli.main import ganger


def pages(width: int) -> Iterator[tuple[str, str]]:
    """The help of every command on a terminal that is so wide."""

    def found(command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, str]]:
        context = click.Context(
            command, parent, command.name, terminal_width=width, **command.context_settings
        )
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from found(below, context)

    return found(ganger, None)


@pytest.mark.parametrize("width", [58, 78, 98])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = [line for _, page in pages(width) for line in page.split("\n") if len(line) > width]
    assert wide == []


@pytest.mark.parametrize("width", [58, 78])
def test_no_word_is_broken(width: int) -> None:
    whole = dict(pages(400))
    assert len(whole) > 30
    for name, page in pages(width):
        assert page.split() == whole[name].split()


def test_no_summary_of_a_command_is_cut() -> None:
    assert not [page for _, page in pages(78) if "....\n" in page or "...\n  " in page]


def written(text: str, width: int) -> list[str]:
    formatter = HelpFormatter(width=width)
    formatter.write_text(text)
    return formatter.getvalue().rstrip("\n").split("\n")


def test_a_command_and_an_option_stay_on_one_line() -> None:
    assert written("Stop it with `ganger down` or --dry-run.", 20) == [
        "Stop it with",
        "`ganger down` or",
        "--dry-run.",
    ]


def test_an_apostrophe_quotes_nothing() -> None:
    text = "the daemon's user and the owner's file"
    assert written(text, 14) == ["the daemon's", "user and the", "owner's file"]


def test_what_is_longer_than_the_line_is_wrapped_like_any_text() -> None:
    assert written("see `a b c d e f g h i j k`", 12) == ["see `a b c d", "e f g h i j", "k`"]
    assert written("see `a b c d e f`", 13) == ["see", "`a b c d e f`"]


def test_a_line_that_is_kept_apart_goes_on_below_its_text() -> None:
    text = "\b\nCodes:\n  1   it is refused, or\n      no daemon answers\n  2   wrong"
    assert written(text, 40) == [
        "Codes:",
        "  1   it is refused, or no daemon",
        "      answers",
        "  2   wrong",
    ]
