"""``ganger cluster watcher``: what it asks of the daemon, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli import stand_in

from ganger.cli.main import ganger
from ganger.storage.query_views import FieldInfo, QueryAnswer


class Watched:
    """Answers as a daemon that knows until when the watcher is paused."""

    def __init__(self) -> None:
        self.until: float | None = None

    def pause_watcher(self, until: float | None) -> None:
        self.until = until

    def query(self, what: str, fields: list[str]) -> QueryAnswer:
        assert (what, fields) == ("cluster", ["watcher_pause"])
        return QueryAnswer(
            fields=[FieldInfo(name="watcher_pause", title="", kind="timestamp", doc="")],
            data=[[(3 if self.until is None else 0, self.until)]],
        )


def watcher(path: Path, daemon: Watched, *words: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        stand_in.use(patch, daemon)
        patch.setattr("ganger.cli.ganeti.watcher.time.time", lambda: 1_795_226_000.0)
        return CliRunner().invoke(ganger, ["--data", str(path), "cluster", "watcher", *words])


@pytest.mark.parametrize(
    ("span", "seconds"), [("90", 90), ("1.5m", 90), ("2h", 7_200), ("1d", 86_400), ("1w", 604_800)]
)
def test_the_watcher_is_paused_for_a_time(tmp_path: Path, span: str, seconds: int) -> None:
    daemon = Watched()
    said = watcher(tmp_path, daemon, "pause", span)
    assert daemon.until == 1_795_226_000 + seconds
    assert said.stdout == watcher(tmp_path, daemon, "info").stdout
    assert said.stdout.startswith("The watcher is paused until 2026-1")
    said = watcher(tmp_path, daemon, "continue")
    assert said.stdout == "The watcher is no longer paused.\n"
    assert watcher(tmp_path, daemon, "info").stdout == "The watcher is not paused.\n"


@pytest.mark.parametrize("span", ["", "soon", "5 m", "-3", "nan", "5y"])
def test_a_time_that_is_no_span_is_refused(tmp_path: Path, span: str) -> None:
    daemon = Watched()
    said = watcher(tmp_path, daemon, "pause", "--", span)
    assert said.exit_code == 2
    assert f"TIME: {span!r}: expected a span such as 90, 30m, 2h, 7d or 2w" in said.stderr
    assert daemon.until is None
