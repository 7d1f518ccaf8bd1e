"""Compares credentials with secrets, and remembers which were right.

A comparison takes its time by design, so it is done in a thread, one after the other, behind
everything else that the machine has to do. Credentials that were right are remembered as a keyed
hash of them and of the secret: to see them again costs microseconds, and a new secret needs a new
comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..storage.access import rapi_passwords, rapi_settings
from .problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.access.rapi_users import User

_NICENESS = 10
_KEY_BYTES = 32

Matches = Callable[[str, str, str], bool]
"""Compares a secret with name and password: `rapi_passwords.matches`."""


class Logins:
    """Compares credentials; ``matches`` does it, in a thread if that takes long."""

    def __init__(self, matches: Matches = rapi_passwords.matches) -> None:
        self._matches = matches
        self._key = os.urandom(_KEY_BYTES)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._of_address: Counter[str] = Counter()
        self._thread = ThreadPoolExecutor(1, "logins", initializer=_stand_back)
        self._unmatched = rapi_passwords.unmatched()
        self._users: Mapping[str, User] = {}
        self._secrets: list[str] = []

    async def user(
        self, users: Mapping[str, User], name: str, password: str, address: str = ""
    ) -> User | None:
        """The user of this name if the password is his; else None, after the same time.

        `HttpError` 503 if too many wait for a comparison.
        """
        user = users.get(name)
        secret = self._stand_in(users, name) if user is None else user.secret
        digest = self._digest(name, password, secret)
        if user is not None and digest in self._right:
            self._right.move_to_end(digest)
            return user
        if rapi_passwords.is_costly(secret):
            is_right = await self._compared(digest, address, (secret, name, password))
        else:
            is_right = self._matches(secret, name, password)
        if user is None or not is_right:
            return None
        self._right[digest] = None
        if len(self._right) > rapi_settings.LOGINS_KNOWN_MAX:
            self._right.popitem(last=False)
        return user

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _stand_in(self, users: Mapping[str, User], name: str) -> str:
        """What an unknown user's password is compared with: the secret of one who is known.

        The same one each time for a name: nobody learns from the time who is known.
        """
        if not users:
            return self._unmatched
        if users is not self._users:
            # Once for each state of the file: with many users it takes longer than a request.
            self._users, self._secrets = users, [users[one].secret for one in sorted(users)]
        chosen = hashlib.blake2b(name.encode(), key=self._key, digest_size=8).digest()
        return self._secrets[int.from_bytes(chosen) % len(self._secrets)]

    def _digest(self, *parts: str) -> bytes:
        made = hashlib.blake2b(key=self._key, digest_size=_KEY_BYTES)
        for part in parts:
            data = part.encode()
            made.update(len(data).to_bytes(8))
            made.update(data)
        return made.digest()

    async def _compared(self, digest: bytes, address: str, words: tuple[str, str, str]) -> bool:
        """The result of the thread. Who sends the same meanwhile waits for the same result."""
        running = self._running.get(digest)
        if running is None:
            self._require_place(address)
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._matches, *words)
            self._running[digest] = running
            self._of_address[address] += 1
            running.add_done_callback(lambda _: self._done(digest, address))
        # The request may end before; the others still need the result.
        return await asyncio.shield(running)

    def _done(self, digest: bytes, address: str) -> None:
        del self._running[digest]
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def _require_place(self, address: str) -> None:
        of_address = self._of_address[address]
        is_full = len(self._running) >= rapi_settings.LOGINS_WAITING_MAX
        if is_full or of_address >= rapi_settings.LOGINS_WAITING_OF_ADDRESS_MAX:
            raise HttpError(503, "Too many logins are being checked; try again later")


def _stand_back() -> None:
    """Let everything else run first: a flood of wrong passwords must not slow down jobs."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
