"""Which options of LUXI a daemon that runs already does not follow."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ganger.cli.luxi_wishes import LuxiWishes, without_effect
from ganger.transport.messages import LuxiState


@pytest.mark.parametrize(
    ("mode", "wishes", "expected"),
    [
        (0o600, LuxiWishes(), []),
        (0o600, LuxiWishes(path="SOCKET"), []),
        (0o600, LuxiWishes(path="/other"), ["--luxi-socket /other"]),
        (0o660, LuxiWishes(group=os.getegid()), []),
        (0o660, LuxiWishes(group=4_000_000), ["--luxi-group 4000000"]),
        (0o660, LuxiWishes(everybody_reads=True), ["--luxi-anonymous-reads"]),
        (0o666, LuxiWishes(everybody_reads=True), []),
        (0o600, LuxiWishes(is_off=True), ["--no-luxi"]),
    ],
)
def test_options_without_effect_are_named(
    tmp_path: Path, mode: int, wishes: LuxiWishes, expected: list[str]
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))
        path.chmod(mode)
        if wishes.path == "SOCKET":
            wishes = wishes._replace(path=str(path))
        assert list(without_effect(LuxiState(path=str(path), problem=""), wishes)) == expected


def test_a_daemon_without_luxi_follows_none_but_one() -> None:
    wishes = LuxiWishes("/socket", os.getegid(), everybody_reads=True)
    found = [option.partition(" ")[0] for option in without_effect(None, wishes)]
    assert found == ["--luxi-socket", "--luxi-group", "--luxi-anonymous-reads"]
    assert list(without_effect(None, LuxiWishes(is_off=True))) == []
