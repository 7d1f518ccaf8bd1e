"""D11 at LUXI's socket: documents made from recorded ones, changed, damaged, cut, glued, dripped.

Most go through the codec and the table of methods in this process: each is refused as unreadable or
by an error of Ganger's, or becomes a message. Some go to a real daemon, where each must be answered
in time and in LUXI's form; after one that cannot be read the connection ends, after all others it
goes on. Other peers never read, stop within a document or say nothing, and one asks all the time:
it must never notice.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.harness import Daemon
from tests.system.ganeti.wconfd import Wconfd
from tests.torture.fuzz import document_maker
from tests.torture.fuzz.document_floods import run_document_floods
from tests.torture.fuzz.through_sockets import DELAY, PATIENCE_SECONDS, Look
from tests.torture.tally import Tally

from ganger.actors.ganeti import luxi_methods, luxi_talks
from ganger.storage import errors, settings
from ganger.transport import frames
from ganger.transport.ganeti import luxi
from ganger.transport.messages import ClientRequest

if TYPE_CHECKING:
    from ganger import Client

DAEMON_SHARE = 20
"""One of so many streams goes to a real daemon."""
DAEMON_STREAMS_MAX = 10_000
FLOODED_STREAMS = 1_000
"""With so many streams to a daemon, attacks on its memory follow."""
BATCH_STREAMS = 25
FAULTS_MAX = 5
OTHERS_MAX = 30
"""Most connections that stay and do nothing good."""
UNREADABLE = "Failed to parse request: "
DATA = Path(document_maker.__file__).parents[2] / "compatibility" / "data"


def run_fuzzed_documents(count: int, seed: int, folder: Path) -> Tally:
    """Take ``count`` streams of documents, some of them through the socket of a daemon."""
    tally = Tally(wanted=count)
    real = min(DAEMON_STREAMS_MAX, count // DAEMON_SHARE)
    for number in range(count - real):
        data = document_maker.stream(random.Random(f"{seed}-{number}"))
        _count(tally, _taken(data), f"seed {seed} stream {number}")
    _fuzz_daemon(real, seed, folder, tally)
    return tally


def _count(tally: Tally, problem: str, what: str) -> None:
    if problem:
        tally.failed(f"{what}: {problem}")
    else:
        tally.passed()


# ---------------------------------------------------------------- in this process


def _taken(data: bytes) -> str:
    """What was wrong with how the codec and the methods took it."""
    reader = luxi.DocumentReader(bytes_max=100_000)
    try:
        documents = reader.feed(data)
    except luxi.UnreadableCallError:
        return ""
    for document in documents:
        try:
            call = luxi.decode_call(document)
            given = luxi_talks.MethodContext(1, "00000000-0000-0000-0000-000000000001", float)
            _, talk = luxi_methods.begin(call, given)
            ask = next(talk)
        except StopIteration:
            continue
        except errors.GangerError as error:
            for encoded in (
                luxi.encode_unreadable(error.text),
                luxi.encode_error(error.luxi_name, error.text),
            ):
                if problem := _strangeness(json.loads(encoded.removesuffix(luxi.END))):
                    return f"{problem} for {document!r:.500}"
            continue
        except Exception as error:  # noqa: BLE001 - every other error is unexpected here
            return f"{error!r:.300} for {document!r:.500}"
        if problem := _sent(ask.request):
            return f"{problem} for {document!r:.500}"
    return ""


def _sent(request: Any) -> str:
    """Whether the message could also come from a client through the other listener."""
    try:
        frame = frames.encode(request, 1)
        if len(frame) <= settings.FRAME_BYTES_MAX:
            frames.decode(frame, ClientRequest)
    except Exception as error:  # noqa: BLE001 - every error is unexpected here
        return f"{type(request).__name__} is no message of a client: {error!r:.300}"
    return ""


# ---------------------------------------------------------------- a real daemon


def _fuzz_daemon(count: int, seed: int, folder: Path, tally: Tally) -> None:
    data = folder / "data"
    data.mkdir(mode=0o700)
    shutil.copy(DATA / "config.data", data)
    shutil.copytree(DATA / "queue", data / "queue")
    with Daemon(folder, holds_back=True) as daemon, daemon.client() as client, ExitStack() as stack:
        _tidied(client)
        path = daemon.places.luxi_socket
        look = Look(client)
        witness = stack.enter_context(Wconfd(path))
        others: list[socket.socket] = []
        stack.callback(_close, others)
        for number in range(count):
            dice = random.Random(f"{seed}-daemon-{number}")
            others.append(_strange_peer(path, dice))
            while len(others) > OTHERS_MAX:
                others.pop(dice.randrange(len(others))).close()
            problem = _exchange(path, dice) or _witnessed(witness)
            if not problem and number % BATCH_STREAMS == 0:
                problem = _tidied(client) or look.compare(client)
            _count(tally, problem, f"seed {seed} daemon stream {number}")
            if len(tally.faults) >= FAULTS_MAX:
                # Each may have taken the whole patience.
                return
        problem = _tidied(client) or look.compare(client)
        if problem:
            tally.failed(f"seed {seed} in the end: {problem}")
        tally.figures["daemon"] = f"{look.grown() / 2**20:+.0f} MiB"
        if count >= FLOODED_STREAMS:
            for problem in run_document_floods(path, client, tally.figures):
                _count(tally, problem or _witnessed(witness), "flood")


def _close(links: list[socket.socket]) -> None:
    for link in links:
        link.close()


def _strange_peer(path: Path, dice: random.Random) -> socket.socket:
    """A connection that stays: silent, within a document, or never reading."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(0)
    with contextlib.suppress(OSError):
        peer.connect(str(path))
        asked = b'{"method": "QueryFields", "args": ["instance", null]}' + luxi.END
        said = dice.choice((b"", b'{"method', document_maker.document(dice), asked * 200))
        if document_maker.is_harmless(said):
            peer.send(said)
    return peer


def _witnessed(witness: Wconfd) -> str:
    """Whether a connection that does nothing wrong is served all the time."""
    try:
        found = witness.call("QueryConfigValues", ["cluster_name"])
    except (OSError, EOFError, AssertionError) as error:
        return f"another connection was not served: {error!r:.300}"
    return "" if found == ["cluster.example.com"] else f"another connection was told {found}"


def _exchange(path: Path, dice: random.Random) -> str:
    """Send a stream; what of it was not answered as it must be."""
    data = document_maker.stream(dice)
    while not document_maker.is_harmless(data):
        data = document_maker.stream(dice)
    *documents, rest = data.split(luxi.END)
    ends = bool(dice.randrange(2))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(PATIENCE_SECONDS)
        link.connect(str(path))
        # It may be closed before everything was sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in document_maker.pieces(dice, data):
                link.sendall(piece)
            if ends:
                link.shutdown(socket.SHUT_WR)
        try:
            return _judged(link, documents, is_open=not ends, has_rest=bool(rest))
        except TimeoutError:
            return f"no answer to {data!r:.500}"
        except ValueError as error:
            return f"an answer that is no document ({error}) to {data!r:.500}"


def _judged(link: socket.socket, documents: list[bytes], *, is_open: bool, has_rest: bool) -> str:
    reader = luxi.DocumentReader()
    answers: list[bytes] = []
    for document in documents:
        while not answers:
            data = _received(link)
            if not data:
                return f"the connection was closed instead of an answer to {document!r:.500}"
            answers += reader.feed(data)
        answer = json.loads(answers.pop(0))
        if problem := _strangeness(answer):
            return f"{problem} to {document!r:.500}"
        if isinstance(answer["result"], str) and not answer["success"]:
            # Nothing follows.
            return "" if not answers and not _received(link) else "an answer after the last one"
    if not is_open:
        return "" if not answers and not _received(link) else "more answers than documents"
    # It is still open: what has begun can be ended, and what is no request ends the connection.
    link.sendall((luxi.END if has_rest else b"") + b"{}" + luxi.END)
    while data := _received(link):
        answers += reader.feed(data)
    is_last = bool(answers) and str(json.loads(answers[-1])["result"]).startswith(UNREADABLE)
    is_all = len(answers) <= 1 + has_rest and not reader.size
    return "" if is_last and is_all else f"answers after the last document: {answers!r:.300}"


def _received(link: socket.socket) -> bytes:
    """What came; nothing: the connection is closed."""
    try:
        return link.recv(65_536)
    except ConnectionResetError:
        # The daemon has not read all that was sent after a document that it could not read.
        return b""


def _strangeness(answer: Any) -> str:
    """What is not as LUXI says about an answer."""
    if not (isinstance(answer, dict) and list(answer) == ["success", "result"]):
        return f"another form of answer: {answer!r:.300}"
    result = answer["result"]
    match answer["success"], result:
        case True, _:
            return ""
        case False, str() if result.startswith(UNREADABLE) and result.isprintable():
            return ""
        case False, [str(name), [*args]] if name.endswith(("Error", "Lost", "Full", "Unknown")):
            texts = [arg for arg in args if isinstance(arg, str)]
            return "" if all(text.isprintable() for text in texts) else f"lines: {args!r:.300}"
    return f"another form of error: {answer!r:.300}"


def _tidied(client: Client) -> str:
    """Take back what holds jobs back, end the jobs, and run one more; what was wrong with that."""
    client.drain(drained=False, timeout=PATIENCE_SECONDS)
    for rule in client.filters(timeout=PATIENCE_SECONDS):
        client.delete_filter(rule.uuid, timeout=PATIENCE_SECONDS)
    for job in client.jobs(statuses=("queued", "waiting", "running"), timeout=PATIENCE_SECONDS):
        client.cancel(job.id, kill=True, timeout=PATIENCE_SECONDS)
    job_id = client.submit(DELAY, timeout=PATIENCE_SECONDS)
    [job] = client.wait(job_id, timeout=PATIENCE_SECONDS)
    return "" if job.status == "success" else f"job {job_id} has ended with {job.status}"
