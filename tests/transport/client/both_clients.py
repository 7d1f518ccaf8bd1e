"""Runs one test on both clients: the asyncio client is driven like the plain one.

Its event loop runs in a thread of its own. A verb waits for its coroutine, an iterator for each
part. So a test written for `Client` holds for `AsyncClient` as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Protocol, Self, TypeVar, cast

import pytest
from tests.transport.client.fake_daemon import PATIENCE_SECONDS

from ganger import AsyncClient, Client
from ganger.storage.jobs.job_views import LogLine, StatusChange

T = TypeVar("T")


class Connect(Protocol):
    """Makes clients of the kind that the test runs on; they are closed when it ends."""

    def __call__(self, *arguments: Any, **options: Any) -> Client: ...


@contextlib.contextmanager
def connecting(kind: str) -> Iterator[Connect]:
    """The factory for ``kind``, ``plain`` or ``asyncio``."""
    with contextlib.ExitStack() as made:

        def connect(*arguments: Any, **options: Any) -> Client:
            options.setdefault("timeout", PATIENCE_SECONDS)
            if kind == "plain":
                return made.enter_context(Client(*arguments, **options))
            driven = _Driven(AsyncClient(*arguments, **options))
            made.callback(driven.end)
            return cast("Client", driven)

        yield connect


@pytest.fixture(name="connect", params=["plain", "asyncio"])
def connect_either(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connecting(request.param) as connect:
        yield connect


class _Driven:
    """An asyncio client with the verbs of the plain one."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wait(self._client.close())

    def end(self) -> None:
        """Close the client and its loop; a task that hangs is a failure."""
        try:
            self.close()
            self._wait(_no_task_hangs())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            made = verb(*arguments, **options)
            return self._wait(made) if inspect.iscoroutine(made) else self._parts(made)

        return call

    def _parts(self, parts: AsyncIterator[T]) -> Iterator[T]:
        end = object()

        async def next_part() -> object:
            # Within the loop: it closes generators that were begun there and then dropped.
            return await anext(parts, end)

        while (part := self._wait(next_part())) is not end:
            yield cast("T", part)

    def _wait(self, awaited: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(2 * PATIENCE_SECONDS)


async def _no_task_hangs() -> None:
    if others := asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}:
        _, hanging = await asyncio.wait(others, timeout=PATIENCE_SECONDS)
        assert not hanging


def shown(part: StatusChange | LogLine) -> str:
    if isinstance(part, StatusChange):
        return f"{part.job_id}:{part.status}"
    return f"{part.job_id}#{part.text}"


class Aside:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=[call])
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._outcome.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where the result is wanted
            self._outcome.put((None, error))

    def result(self) -> Any:
        value, error = self._outcome.get(timeout=2 * PATIENCE_SECONDS)
        self._thread.join()
        if error is not None:
            raise error
        return value
