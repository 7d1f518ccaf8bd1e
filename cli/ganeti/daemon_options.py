"""The options of a daemon that serves LUXI."""

from __future__ import annotations

import contextlib
import grp
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click

from ..daemon_options import DaemonOptions

_GROUP_ID_MAX = 2**32 - 2


class Group(click.ParamType[int]):
    """A group of the system, by its name or its number: its number."""

    name = "group"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        with contextlib.suppress(KeyError, ValueError):
            return grp.getgrnam(text).gr_gid
        if not text.isdecimal() or int(text) > _GROUP_ID_MAX:
            self.fail(f"there is no group {text[:60]!r}", param, ctx)
        return int(text)


_OPTIONS = (
    click.option(
        "--luxi-anonymous-reads/--no-luxi-anonymous-reads",
        default=False,
        help="Let every user of this machine read at the path of --luxi-socket, but no private "
        "parameters and no output.",
    ),
    click.option(
        "--luxi-group",
        metavar="GROUP",
        type=Group(),
        help="Let the members of this group use LUXI, too, at the path of --luxi-socket.",
    ),
    click.option(
        "--luxi-socket",
        metavar="PATH",
        type=click.Path(dir_okay=False, resolve_path=True),
        help="Where the socket for Ganeti's tools (LUXI) is, if not in the run directory.",
    ),
    click.option("--no-luxi/--luxi", default=False, help="Serve no Ganeti tools (LUXI)."),
)


class Options(DaemonOptions, frozen=True, kw_only=True):
    """Those of every daemon, and those of LUXI's socket."""

    no_luxi: bool = False
    luxi_socket: str | None = None
    luxi_group: int | None = None
    luxi_anonymous_reads: bool = False

    more: ClassVar[tuple[Callable[..., Any], ...]] = _OPTIONS

    def closed_to_users(self) -> list[str]:
        if self.no_luxi or self.luxi_socket is None:
            return []
        path, found = Path(self.luxi_socket), list[str]()
        for option, is_given, group in (
            ("--luxi-anonymous-reads", self.luxi_anonymous_reads, None),
            ("--luxi-group", self.luxi_group is not None, self.luxi_group),
        ):
            if is_given and (folder := closed_folder(path, group)) is not None:
                text = f"its users cannot enter {folder}, where {path} lies"
                found.append(f"{option} has no effect: {text}")
        return found

    def listener_options(self) -> dict[str, dict[str, Any] | None]:
        given = {
            "path": self.luxi_socket,
            "group": self.luxi_group,
            "everybody_reads": self.luxi_anonymous_reads,
        }
        return {"luxi_listener": None if self.no_luxi else given}

    def moves_sockets(self) -> bool:
        return self.luxi_socket is not None

    def check(self) -> None:
        if self.no_luxi or self.luxi_socket is not None:
            return
        for option, value in (
            ("--luxi-group", self.luxi_group is not None),
            ("--luxi-anonymous-reads", self.luxi_anonymous_reads),
        ):
            if value:
                raise click.UsageError(
                    f"{option} needs --luxi-socket PATH: without it the socket lies in the run "
                    "directory, which is for the daemon's user alone."
                )


def closed_folder(path: Path, group: int | None) -> Path | None:
    """The nearest folder above ``path`` that this group, or for None some user, cannot enter.

    None if there is no such folder; one that is not there yet does not count.
    """
    for folder in path.parents:
        try:
            status = folder.stat()
        except OSError:
            continue
        is_open = status.st_mode & stat.S_IXOTH
        if group is not None and status.st_gid == group:
            is_open = status.st_mode & stat.S_IXGRP
        if not is_open:
            return folder
    return None
