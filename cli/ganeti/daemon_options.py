"""The options of a daemon that serves LUXI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click

from ...storage.disk import ownership
from .. import choices
from ..daemon_options import DaemonOptions

_OPTIONS = (
    click.option(
        "--luxi-anonymous-reads",
        is_flag=True,
        help="Let every user of this machine read by LUXI, at the path of --luxi-socket; "
        "private parameters and the output of commands are hidden.",
    ),
    click.option(
        "--luxi-group",
        metavar="GROUP",
        type=choices.Group(),
        help="The group whose members may use LUXI as the daemon's user and root may, at the "
        "path of --luxi-socket.",
    ),
    click.option(
        "--luxi-socket",
        metavar="PATH",
        type=click.Path(dir_okay=False, resolve_path=True),
        help="Where the socket for Ganeti's own tools is (LUXI), if not in the run directory.",
    ),
    click.option("--no-luxi", is_flag=True, help="Serve no Ganeti tools (LUXI)."),
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
            if is_given and (folder := ownership.closed_folder(path, group)) is not None:
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
