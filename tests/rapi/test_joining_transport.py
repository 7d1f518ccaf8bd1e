"""What is written at one go leaves together, in order, and at once when it is long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ganger.rapi.joining_transport import JoiningTransport
from ganger.storage.access import rapi_settings

LONG = bytes(rapi_settings.JOINED_BYTES_MAX + 1)


class Carrier:
    def __init__(self) -> None:
        self.done: list[bytes | str] = []
        self.has_closed = False

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def is_closing(self) -> bool:
        return self.has_closed

    def close(self) -> None:
        self.done.append("closed")

    def abort(self) -> None:
        self.done.append("aborted")

    def get_write_buffer_size(self) -> int:
        return 100

    def get_extra_info(self, name: str) -> str:
        return f"its {name}"


def run(scene: Callable[[JoiningTransport, Carrier], None]) -> list[bytes | str]:
    """What was done to the carrier, also in the next turn of the event loop."""
    carrier = Carrier()

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        scene(JoiningTransport(cast("Any", carrier), loop), carrier)
        await asyncio.sleep(0)

    asyncio.run(whole())
    return carrier.done


def test_parts_leave_together() -> None:
    def scene(joining: JoiningTransport, carrier: Carrier) -> None:
        for part in (b"head", b"", b"body"):
            joining.write(part)
        assert joining.waiting_bytes(None) == 108
        assert joining.waiting_bytes(cast("Any", carrier)) == 8
        assert carrier.done == []

    assert run(scene) == [b"headbody"]


def test_what_follows_a_flush_leaves_by_itself() -> None:
    def scene(joining: JoiningTransport, _: Carrier) -> None:
        joining.write(b"one")
        joining.flush()
        joining.write(b"two")

    assert run(scene) == [b"one", b"two"]


def test_a_long_part_leaves_at_once_behind_the_others_and_is_not_copied() -> None:
    def scene(joining: JoiningTransport, carrier: Carrier) -> None:
        joining.write(b"head")
        joining.write(LONG)
        assert carrier.done == [b"head", LONG]
        assert carrier.done[1] is LONG
        joining.write(LONG)
        assert carrier.done[2:] == [LONG]

    assert len(run(scene)) == 3


def test_closing_sends_the_rest_and_aborting_drops_it() -> None:
    def close(joining: JoiningTransport, _: Carrier) -> None:
        joining.write(b"last")
        joining.close()

    def abort(joining: JoiningTransport, _: Carrier) -> None:
        joining.write(b"last")
        joining.abort()

    assert run(close) == [b"last", "closed"]
    assert run(abort) == ["aborted"]


def test_nothing_is_written_to_what_has_closed() -> None:
    def scene(joining: JoiningTransport, carrier: Carrier) -> None:
        joining.write(b"late")
        carrier.has_closed = True

    assert run(scene) == []


def test_everything_else_is_the_carriers() -> None:
    def scene(joining: JoiningTransport, _: Carrier) -> None:
        assert joining.get_extra_info("peername") == "its peername"

    run(scene)
