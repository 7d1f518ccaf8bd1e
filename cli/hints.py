"""Guesses what a wrong command line was meant to be. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..storage import errors
from ..storage.disk import reserve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ELSEWHERE = {
    **dict.fromkeys(("jobs", "list", "ls", "ps"), "job list"),
    **dict.fromkeys(("add", "submit"), "job submit"),
    **dict.fromkeys(("log", "logs"), "job logs"),
    **{
        verb: f"job {verb}"
        for verb in ("archive", "cancel", "info", "retry", "wait", "watch", "why")
    },
    **{verb: f"queue {verb}" for verb in ("drain", "limit", "simulate", "undrain")},
    "show": "job info",
    "kill": "job cancel --kill",
    "filters": "filter list",
    "rules": "filter list",
    "keys": "key list",
    "locks": "lock list",
    "queues": "queue info",
    "run": "exec",
    "start": "up",
    "stop": "down",
    "restart": "down",
    "server": "daemon",
    "check": "fsck",
    "repair": "fsck --repair",
    "help": "--help",
    "version": "--version",
}
"""Words of other tools, and commands without the group in which they are."""

_SHELL_SIGNS = frozenset(" \t\n|&;<>$*?")


_RETRIES = (
    (re.compile(errors.RETRY_FIRST.format(r"(\d+)")), "ganger job retry {}"),
    (re.compile(errors.RETRY_WHOLE.format(r"(\d+)")), "ganger job retry {} --all"),
)

GIVE_SPACE = (
    "`ganger job purge --larger-than 1M` removes ended jobs with much output, "
    "`ganger job purge --older-than all` all that have ended"
)
"""What helps when the disk is full, by output or by many small jobs."""


def remedy(error: errors.GangerError) -> str:
    """The command that does what the error says would help, or nothing."""
    for text, command in _RETRIES if isinstance(error, errors.JobStateError) else ():
        if found := text.search(error.text):
            return f" (`{command.format(found[1])}`)"
    is_full = isinstance(error, errors.StorageError) and reserve.REMEDY in error.text
    return f" ({GIVE_SPACE})" if is_full else ""


def meant(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'X'?`` for an unknown command, or nothing."""
    found = _ELSEWHERE.get(word)
    if found is None:
        # Only a mistake costs this import.
        from difflib import get_close_matches  # noqa: PLC0415

        found = next(iter(get_close_matches(word, list(known), n=1)), None)
    return "" if found is None else f" Did you mean 'ganger {found}'?"


def shell(command: Sequence[str]) -> str:
    """A hint for a command that is one word and looks like a line for a shell; or nothing."""
    if len(command) == 1 and _SHELL_SIGNS.intersection(command[0]):
        return "; no shell reads it (to use one: `ganger exec -- sh -c '...'`)"
    return ""
