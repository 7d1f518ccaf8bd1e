"""One request for each of many jobs, several of them under way at a time, and a line for each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ..storage import errors, wording
from . import output

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from ..transport.client.async_client import AsyncClient
    from ..transport.client.client import Client
    from .call import Call

    Act = Callable[[AsyncClient, int], Coroutine[Any, Any, tuple[bool, str]]]
    """Makes the request for one job: whether it is accepted, and what to print."""

LINES_MAX = 50
"""So many jobs that a command has changed get a line of their own; of more there is the count."""

UNDER_WAY_MAX = 32
"""Requests that wait for their replies at a time."""

_FROM_JOBS = 10
"""For fewer jobs it costs more to import asyncio than to wait for one reply after the other."""


def each(call: Call, ids: Sequence[int], act: Act, *, is_whole: bool) -> int:
    """Call ``act`` for each job, and print its line in the order of ``ids``; 0 if all accept it.

    A refusal for one job does not stop the others: the code is 1 then. If the daemon goes away, or
    the user interrupts, what was answered is printed. ``is_whole``: as `Lines`.
    """
    lines = Lines(is_whole=is_whole)
    try:
        if len(ids) < _FROM_JOBS:
            with call.client() as client:
                for job_id in ids:
                    lines.show(job_id, *_at_once(_answer(act, InTurn(client), job_id)))
        else:
            import asyncio  # noqa: PLC0415 - see `_FROM_JOBS`

            asyncio.run(_together(call, ids, act, lines))
    finally:
        lines.finish()
    return lines.code


class Lines:
    """Prints a line for each job at once: if the daemon goes away, the user knows what was done.

    Unless ``is_whole``, of the jobs beyond `LINES_MAX` that accept it only the count is printed.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self.code = 0
        self._is_whole = is_whole
        self._accepting = self._last = 0

    def show(self, job_id: int, accepted: bool, text: str) -> None:  # noqa: FBT001 - of a pair
        """Print what was answered for this job."""
        if accepted:
            self._accepting, self._last = self._accepting + 1, job_id
        else:
            self.code = 1
        if self._is_whole or not accepted or self._accepting <= LINES_MAX:
            output.echo(text if accepted else f"ganger: {text}", err=not accepted)

    def finish(self) -> None:
        """Print the count of the others."""
        if not self._is_whole and self._accepting > LINES_MAX:
            more = wording.counted(self._accepting - LINES_MAX, "more job")
            output.echo(f"... and so for {more}, up to job {self._last}")


class InTurn:
    """A client whose verbs can be awaited, and wait for their replies by themselves."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def call(*words: Any, **more: Any) -> Any:  # noqa: ANN401 - as the verb
            return getattr(self._client, verb)(*words, **more)

        return call


def _at_once(answer: Coroutine[Any, Any, tuple[bool, str]]) -> tuple[bool, str]:
    """What a coroutine returns that never waits for an event loop."""
    try:
        answer.send(None)
    except StopIteration as end:
        found: tuple[bool, str] = end.value
        return found
    raise AssertionError


async def _answer(act: Act, client: Any, job_id: int) -> tuple[bool, str]:  # noqa: ANN401
    try:
        return await act(client, job_id)
    except errors.BadRequestError as error:
        return False, error.text


async def _together(call: Call, ids: Sequence[int], act: Act, lines: Lines) -> None:
    import asyncio  # noqa: PLC0415 - see `_FROM_JOBS`

    under_way: deque[tuple[int, asyncio.Task[tuple[bool, str]]]] = deque()
    async with call.async_client() as client:
        try:
            for job_id in ids:
                if len(under_way) == UNDER_WAY_MAX:
                    await _show_first(under_way, lines)
                task = asyncio.create_task(_answer(act, client, job_id))
                under_way.append((job_id, task))
            while under_way:
                await _show_first(under_way, lines)
        finally:
            # Something has come between: what was answered behind it is printed all the same.
            for job_id, task in under_way:
                if task.done() and not task.cancelled() and task.exception() is None:
                    lines.show(job_id, *task.result())
                task.cancel()


async def _show_first(
    under_way: deque[tuple[int, asyncio.Task[tuple[bool, str]]]], lines: Lines
) -> None:
    job_id, task = under_way[0]
    answer = await task
    under_way.popleft()
    lines.show(job_id, *answer)
