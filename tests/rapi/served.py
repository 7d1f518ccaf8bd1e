"""A daemon that serves the remote API, and a client of HTTP that shows everything."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.faults.harness import Daemon

if TYPE_CHECKING:
    from pathlib import Path

USERS = {
    "admin": "admin,exec",
    "writer": "write",
    "reader": "read",
    "tagger": "operate,opcode:OP_TAGS_SET",
    "delayer": "operate,opcode:OP_TEST_DELAY",
}
"""Users by their options; the password of each is the name backwards."""

JSON = "application/json"


def password(user: str) -> str:
    """The password of a user."""
    return user[::-1]


class Answer(NamedTuple):
    """What came back. ``body`` is JSON; ``text`` the same as it was sent."""

    status: int
    body: Any
    headers: dict[str, str]
    text: str


class Served(Daemon):
    """A daemon with the remote API, on the first port from 5080 on that is free."""

    def __init__(self, folder: Path, *options: str, has_tls: bool = False) -> None:
        super().__init__(folder, *options, holds_back=True)
        self.has_tls = has_tls
        self._port: int | None = None

    def up(self) -> None:
        """Start the daemon (again)."""
        self.make_users()
        tls = () if self.has_tls else ("--rapi-no-tls",)
        self.begun(self.run("up", "--test-hooks", *tls, *self.options, check=False))

    def make_users(self) -> None:
        """Write the users of the remote API, the first time."""
        users = self.data / "rapi" / "users"
        if not users.exists():
            users.parent.mkdir(parents=True, mode=0o700)
            lines = [f"{user} {password(user)} {options}\n" for user, options in USERS.items()]
            users.write_text("".join(lines))
            users.chmod(0o600)

    @property
    def port(self) -> int:
        """Where the remote API listens."""
        if self._port is None:
            with self.client() as client:
                found = client.info().rapi
                assert found is not None
                self._port = found.port
        return self._port

    def connection(self) -> http.client.HTTPConnection:
        """A connection to the remote API."""
        if not self.has_tls:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        context = ssl.create_default_context(cafile=self.places.rapi_certificate)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "admin",
        content_type: str | None = JSON,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """The answer to one request. A body that is no text goes as JSON; None: there is none."""
        sent = dict(headers or {})
        if user is not None:
            words = base64.b64encode(f"{user}:{password(user)}".encode()).decode()
            sent["Authorization"] = f"Basic {words}"
        if body is not None and content_type is not None:
            sent["Content-Type"] = content_type
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        with closing(self.connection()) as connection:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read().decode()
            found = json.loads(text) if response.getheader("Content-Type") == JSON else None
            return Answer(response.status, found, dict(response.getheaders()), text)

    def get(self, path: str, **more: Any) -> Any:
        """The body of the answer to a GET, which must be 200."""
        return self.done("GET", path, **more)

    def done(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The body of the answer to a request, which must be 200."""
        answer = self.request(method, path, body, **more)
        assert answer.status == http.client.OK, answer
        return answer.body

    def refused(self, code: int, method: str, path: str, body: Any = None, **more: Any) -> str:
        """The message of a request that must be refused with this code."""
        answer = self.request(method, path, body, **more)
        assert answer.status == code, answer
        assert answer.body.keys() == {"code", "message", "explain"}
        assert answer.body["code"] == code
        message: str = answer.body["message"]
        assert "\n" not in message
        return message
