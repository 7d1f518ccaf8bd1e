"""D11 over HTTP: requests made from the OpenAPI document, sound, wrong and damaged.

Each must be answered in time, with what the document declares, or with an error in Ganeti's form
that is no fault of the server; and the daemon behind goes on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from tests import clusters
from tests.rapi.asked import basic
from tests.rapi.served import JSON, Served, password
from tests.torture.fuzz import schemas
from tests.torture.fuzz.through_sockets import DELAY, PATIENCE_SECONDS, Look
from tests.torture.tally import Tally

from ganger import Client
from ganger.rapi.problems import EXPLANATIONS

BATCH_REQUESTS = 50
SECONDS_MAX = 30.0
"""A request that is not answered within that time hangs; waiting for a job takes ten."""

USER = "writer"
"""May do everything but run commands: what is drawn by chance must not be one."""

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "BREW")
HEADERS = (
    ("Idempotency-Key", ("", "k", "x" * 300, "\xe9")),
    ("Last-Event-ID", ("", "0.0", "1.99999999999999999999", "x.-1", "\xe9")),
    ("Content-Type", ("text/plain", "application/JSON", "application/json; charset=utf-8")),
    ("Authorization", ("Basic", "Basic !", "Bearer x", basic("nobody", "x"))),
    ("Expect", ("100-continue",)),
    ("Host", ("[", "a b", "")),
    ("Accept", ("text/html",)),
)


_RULE = {"predicates": [["jobid", [">", "id", 3]]]}
SOUND: Mapping[str, tuple[dict[str, Any], ...]] = {
    "/2/jobs": (
        {"ops": [DELAY]},
        {"ops": [DELAY, {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["a"]}]},
    ),
    "/2/filters": ({**_RULE, "action": "PAUSE"}, {**_RULE, "action": "REJECT"}),
    "/2/rules": ({**_RULE, "action": ["RATE_LIMIT", 2]}, {"action": "ACCEPT"}),
    "/2/query/{what}": ({"fields": ["id", "status"]}, {"fields": ["name"]}),
    "/2/simulate": ({"rule": _RULE}, {"running": 3}),
}
"""Parts of bodies, by path, with which a request is likely to be served."""


class Sent(NamedTuple):
    """One request, as it is sent. ``reply``: the schema of the answer, if there is one."""

    method: str
    path: str
    data: bytes | None
    headers: dict[str, str]
    reply: Mapping[str, Any] | None
    damage: int | None
    """The seed of what is done to its bytes."""


def run_fuzzed_requests(count: int, seed: int, folder: Path) -> Tally:
    """Send ``count`` requests; look at the daemon after each batch of them."""
    data = folder / "data"
    data.mkdir(mode=0o700)
    made = clusters.made_configuration(nodes=2, instances=2)
    (data / "config.data").write_text(json.dumps(made))
    (data / "config.data").chmod(0o600)
    tally = Tally(wanted=count)
    with Served(folder) as served, served.client() as client, ExitStack() as stack:
        document = served.get("/2/openapi.json")
        sender = _Sender(stack, served.port, document["components"]["schemas"])
        look = Look(client)
        sent: list[Sent] = []

        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.seed(seed)
        @hypothesis.given(requests(document))
        def send(request: Sent) -> None:
            sent.append(request)
            problem = sender.send(request)
            if not problem and len(sent) % BATCH_REQUESTS == 0:
                problem = _tidied(client) or look.compare(client)
            if problem:
                tally.failed(f"seed {seed} request {len(sent)} {request!r:.500}: {problem}")
            else:
                tally.passed()

        send()
        problem = _tidied(client) or look.compare(client)
        state = client.info(timeout=PATIENCE_SECONDS).rapi
        if state is None or state.restarts or not state.is_ready:
            problem = problem or f"the remote API was started again: {state}"
        if problem:
            tally.failed(f"seed {seed} in the end: {problem}")
    return tally


def requests(document: Mapping[str, Any]) -> st.SearchStrategy[Sent]:
    """Requests for each operation of the document, as it declares them, and otherwise."""
    components = document["components"]["schemas"]
    return st.one_of(
        [
            _requests(path, method, operation, components)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
    )


def _requests(
    path: str, method: str, operation: Mapping[str, Any], components: Mapping[str, Any]
) -> st.SearchStrategy[Sent]:
    parts = {one["name"]: _part(one) for one in operation["parameters"] if one["in"] == "path"}
    query = {
        one["name"]: schemas.values(one["schema"], components) | schemas.TEXTS
        for one in operation["parameters"]
        if one["in"] == "query"
    }
    bodies: st.SearchStrategy[Any] = schemas.ANYTHING
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"][JSON]["schema"]
        found = schemas.values(schema, components)
        near = [_with(found, part) for part in SOUND.get(path, ())]
        bodies = st.one_of(found, found, found, bodies, *near)
    reply = operation["responses"]["200"].get("content", {}).get(JSON, {}).get("schema")

    @st.composite
    def drawn(draw: st.DrawFn) -> Sent:
        url = path
        for name, part in parts.items():
            url = url.replace(f"{{{name}}}", quote(draw(part), safe=""))
        chosen = {name: draw(query[name]) for name in sorted(query) if draw(st.booleans())}
        if chosen:
            url += "?" + urlencode(chosen, doseq=True, errors="replace")
        used = method.upper()
        if draw(st.integers(0, 15)) == 0:
            used = draw(st.sampled_from(METHODS))
        headers = {"Authorization": basic(USER, password(USER))}
        data = None
        if "requestBody" in operation or (method == "get" and draw(st.integers(0, 15)) == 0):
            data = json.dumps(draw(bodies)).encode()
            headers["Content-Type"] = JSON
        if draw(st.integers(0, 7)) == 0:
            name, known = draw(st.sampled_from(HEADERS))
            headers[name] = draw(st.sampled_from(known))
        damage = draw(st.integers(0, 2**32)) if draw(st.integers(0, 9)) == 0 else None
        return Sent(used, url, data, headers, reply if used == method.upper() else None, damage)

    return drawn()


def _with(bodies: st.SearchStrategy[Any], part: dict[str, Any]) -> st.SearchStrategy[Any]:
    return bodies.map(lambda drawn: {**drawn, **part})


def _part(parameter: Mapping[str, Any]) -> st.SearchStrategy[str]:
    """What stands in a part of a path that varies."""
    if parameter["schema"]["type"] == "integer":
        return schemas.INTEGERS.map(str)
    known = (
        "node0.example.com",
        "instance0.example.com",
        "default",
        "job",
        "lock",
        "filter",
        "node",
    )
    return st.sampled_from(known) | schemas.TEXTS.filter(bool)


class _Sender:
    """Sends requests over one connection, as long as that lives."""

    def __init__(self, stack: ExitStack, port: int, components: Mapping[str, Any]) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        self._address = ("127.0.0.1", port)
        self._components = components
        stack.callback(self._link.close)

    def send(self, request: Sent) -> str:
        """What was wrong with the answer."""
        try:
            if request.damage is not None:
                return self._send_damaged(request)
            return self._send(request)
        except TimeoutError:
            self._link.close()
            return "no answer"
        except (OSError, http.client.HTTPException) as error:
            self._link.close()
            return f"no answer, but {error!r}"

    def _send(self, request: Sent) -> str:
        for attempt in (1, 2):
            try:
                self._write(request)
                response = self._link.getresponse()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # An idle connection may have been closed.
                self._link.close()
                if attempt == 2:
                    raise
        kind = response.getheader("Content-Type", "")
        if kind.startswith("text/event-stream"):
            # It need not end.
            response.close()
            self._link.close()
            return "" if response.status == http.client.OK else f"{response.status} {kind}"
        text = response.read()
        return self._judged(request, response.status, kind, text)

    def _write(self, request: Sent) -> None:
        self._link.putrequest(request.method, request.path, skip_host="Host" in request.headers)
        for name, value in request.headers.items():
            self._link.putheader(name, value.encode("latin-1"))
        if request.data is not None:
            self._link.putheader("Content-Length", str(len(request.data)))
        self._link.endheaders(request.data)

    def _judged(self, request: Sent, status: int, kind: str, text: bytes) -> str:
        if status == http.client.OK:
            if request.reply is None or request.method == "HEAD":
                return ""
            if kind != JSON:
                return "" if kind.startswith("text/html") else f"{status} {kind}"
            return schemas.mismatch(json.loads(text), request.reply, self._components)
        if status not in EXPLANATIONS:
            return f"undeclared status {status}"
        if request.method == "HEAD":
            return ""
        body = json.loads(text)
        if set(body) != {"code", "message", "explain"} or body["code"] != status:
            return f"{status} in another form: {text!r:.200}"
        if not body["message"].isprintable():
            return f"{status} with more than one line: {text!r:.200}"
        if body["message"] == EXPLANATIONS[500][0]:
            return "the server failed"
        return ""

    def _send_damaged(self, request: Sent) -> str:
        dice = random.Random(request.damage)
        lines = [f"{request.method} {request.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in request.headers.items() if name != "Host"]
        if request.data is not None:
            lines.append(f"Content-Length: {len(request.data)}")
        whole = "\r\n".join([*lines, "", ""]).encode("latin-1") + (request.data or b"")
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            end = min(len(data), at + dice.randint(0, 20))
            data[at:end] = dice.choice(
                [b"", b"\r\n", b"\x00", bytes([dice.randrange(256)]), data[at:end] * 2, b": 1\r\n"]
            )
            data = data or bytearray(b"\n")
        with socket.create_connection(self._address, SECONDS_MAX) as link:
            with contextlib.suppress(OSError):
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
            answer = bytearray()
            with contextlib.suppress(ConnectionError):
                while len(answer) < 2**16 and (part := link.recv(2**16)):
                    answer += part
        if answer and not answer.startswith(b"HTTP/1.1 "):
            return f"no HTTP came back: {bytes(answer[:60])!r}"
        if b"Internal Server Error" in answer:
            return "the server failed"
        return ""


def _tidied(client: Client) -> str:
    """Delete what holds jobs back, end the jobs, and run one more; what was wrong with that."""
    for rule in client.filters():
        client.delete_filter(rule.uuid)
    for job in client.jobs(statuses=("queued", "waiting", "running")):
        client.cancel(job.id, kill=True)
    job_id = client.submit(DELAY, timeout=PATIENCE_SECONDS)
    [job] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    return "" if job.status == "success" else f"job {job_id} has ended with {job.status}"
