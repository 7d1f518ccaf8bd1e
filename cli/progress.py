"""Progress on a terminal, for work that takes long: a bar, or what is being done since when."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

_SHOWN_AFTER_SECONDS = 1.0


@contextmanager
def during(what: str) -> Iterator[Callable[[str], None]]:
    """Meanwhile show ``what`` and the time it takes, on a terminal, if that is over a second.

    What it gives takes another text in place of ``what``.
    """
    doing = [what]

    def tell(text: str) -> None:
        doing[0] = text

    if not sys.stderr.isatty():
        yield tell
        return
    with ExitStack() as stack:
        timer = threading.Timer(_SHOWN_AFTER_SECONDS, _show, (doing, stack))
        timer.start()
        try:
            yield tell
        finally:
            timer.cancel()
            timer.join()


def _show(doing: list[str], stack: ExitStack) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.progress import (  # noqa: PLC0415
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TimeElapsedColumn,
    )
    from rich.text import Text  # noqa: PLC0415

    class What(ProgressColumn):
        def render(self, _: Task) -> Text:
            return Text(output.harmless(doing[0]))

    console = Console(stderr=True)
    columns = (SpinnerColumn(), What(), TimeElapsedColumn())
    progress = stack.enter_context(Progress(*columns, console=console, transient=True))
    stack.enter_context(output.above(console))
    progress.add_task("", total=None)


class Bar:
    """Shows how much is done, on standard error, if that is a terminal and there is much to do."""

    def __init__(self, what: str, least: int) -> None:
        self._what = what
        self._least = least
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def show(self, done: int, total: int, what: str | None = None) -> None:
        """Show that ``done`` of ``total`` are done; remove the bar when all are."""
        if total < self._least or not sys.stderr.isatty():
            return
        if self._progress is None:
            self._progress = _new_progress()
            self._progress.start()
            self._progress.add_task(self._what, total=total)
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=done, description=what or self._what)
        if done == total:
            self._stop()

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _new_progress() -> Progress:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
