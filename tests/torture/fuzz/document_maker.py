"""Documents for LUXI: recorded requests, whole, changed, damaged and glued; all drawn from dice."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ganger.transport.ganeti import luxi

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

_FOLDER = Path(__file__).parents[2] / "compatibility" / "data" / "luxi"
_RECORDED = [json.loads(path.read_text()) for path in sorted(_FOLDER.glob("*.json"))]

REQUESTS: Final[list[dict[str, Any]]] = [
    *(one["request"] for one in _RECORDED if "request" in one),
    {"method": "SubmitJobToDrainedQueue", "args": [[{"OP_ID": "OP_TEST_DELAY", "duration": 1,
     "reason": []}]]},
    {"method": "SetDrainFlag", "args": [True]},
    {"method": "PickupJob", "args": [1]},
    {"method": "QueryNodes", "args": [["node1.example.com"], ["name", "group"], False]},
    {"method": "QueryNetworks", "args": [[], ["name", "gateway", "tags"], False]},
    {"method": "QueryTags", "args": ["cluster", ""]},
    {"method": "QueryFields", "args": ["node", ["name", "uuid"]]},
    {"method": "ChangeJobPriority", "args": ["1", 10]},
    {"method": "AutoArchiveJobs", "args": [-1, 1]},
    {"method": "SubmitJob", "args": [[{"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None,
     "tags": ["a"], "reason": [["gnt:client", "x", 1]]}]]},
]  # fmt: skip
"""What Ganeti's programs send, one of each kind at least."""

METHODS: Final = sorted({request["method"] for request in REQUESTS})

_STRANGE: Final[list[Any]] = [
    None, True, False, 0, -1, 1, 77, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30,
    0.0, -0.5, 1e-300, 1e308, "", "x", "0", "-1", "job", "name", "id", "&", "|", "!", "==", "=~",
    "(a+)+$", "[", "\0", "\x7f", "\u2028", "\U0001f9a2", "é", "../../etc/passwd", "x" * 5_000,
    [], {}, [[]], [None], ["|"], ["&", []], {"": None}, {"OP_ID": "OP_TEST_DELAY"}, [1, 2, 3],
    "00000000-0000-0000-0000-000000000000",
]  # fmt: skip
_BYTES: Final = (
    b"", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b'"',
    b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"Infinity", b"1e999", b"-", b"0x1", b"9" * 400,
    b"\n\n", b"/*", b"[" * 2_000, b'{"a":' * 300, luxi.END,
)  # fmt: skip
_SECONDS_MAX: Final = 1
"""Longest time that a request may wait for a change."""


def document(dice: random.Random) -> bytes:
    """One document, or several: what is put into it may be the byte that ends one."""
    kind = dice.randrange(10)
    if kind == 0:
        return dice.choice((dice.randbytes(dice.randrange(60)), _deep(dice)))
    request = copy.deepcopy(dice.choice(REQUESTS))
    if kind > 3:
        for _ in range(dice.randint(1, 3)):
            request = _changed(dice, request)
    if dice.randrange(20) == 0:
        request = _nested(dice, request)
    data = _written(dice, request)
    return _damaged(dice, data) if kind in (1, 4) else data


def stream(dice: random.Random) -> bytes:
    """Documents one after the other, of which the last one may have no end."""
    parts = [document(dice) for _ in range(dice.randint(1, 6))]
    glue = luxi.END if dice.randrange(12) else b""
    return glue.join(parts) + (b"" if dice.randrange(6) == 0 else luxi.END)


def pieces(dice: random.Random, data: bytes) -> Iterator[bytes]:
    """The data as it goes through the socket: at once, in parts, or dripping."""
    size = dice.choice((len(data), len(data), 1_000, 100, 7)) or 1
    # No stream takes longer than a thousand system calls.
    size = max(size, len(data) // 1_000)
    for place in range(0, len(data), size):
        yield data[place : place + size]


def is_harmless(data: bytes) -> bool:
    """Whether no document waits long for a change of a job, and none runs a command."""
    if b"OP_EXEC" in data:
        return False
    for one in data.split(luxi.END):
        try:
            call = luxi.decode_call(one)
        except luxi.UnreadableCallError:
            continue
        if call.method == "WaitForJobChange" and len(call.args) == 5:
            seconds = call.args[4]
            if not isinstance(seconds, int | float) or seconds > _SECONDS_MAX:
                return False
    return True


def _deep(dice: random.Random) -> bytes:
    """A request whose arguments are deeper than any reader follows, with an end or without."""
    depth = dice.choice((900, 1_100, 5_000))
    word = dice.choice((b"[", b'{"a":'))
    end = dice.choice((b"", {b"[": b"]"}.get(word, b"}") * depth + b"}"))
    return b'{"method": "QueryTags", "args": ' + word * depth + b"0" + end


def _changed(dice: random.Random, request: Any) -> Any:
    """The request with another value somewhere, or without one, or with one twice."""
    ways = list(_ways(request))
    way = dice.choice(ways)
    if not way:
        wrapped = {"method": dice.choice(METHODS), "args": [request], "more": 1}
        return dice.choice([dice.choice(_STRANGE), [request], wrapped])
    holder = request
    for step in way[:-1]:
        holder = holder[step]
    last = way[-1]
    match dice.randrange(6):
        case 0 if isinstance(holder, list):
            holder.insert(last, copy.deepcopy(dice.choice([holder[last], *_STRANGE])))
        case 0:
            holder[str(dice.choice(_STRANGE))] = holder.pop(last)
        case 1:
            del holder[last]
        case 2:
            other = dice.choice(REQUESTS)
            holder[last] = copy.deepcopy(_at(other, dice.choice(list(_ways(other)))))
        case 3 if way == ("method",):
            holder[last] = dice.choice(METHODS)
        case _:
            holder[last] = copy.deepcopy(dice.choice(_STRANGE))
    return request


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _ways(item, (*way, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _ways(item, (*way, place))


def _at(value: Any, way: tuple[Any, ...]) -> Any:
    for step in way:
        value = value[step]
    return value


def _nested(dice: random.Random, request: Any) -> Any:
    if not (isinstance(request, dict) and isinstance(request.get("args"), list)):
        return request
    deep: Any = dice.choice(_STRANGE)
    word = dice.choice(["!", "&", "|"])
    for _ in range(dice.choice((5, 40, 120, 500))):
        deep = [word, deep] if dice.randrange(2) else [deep]
    request["args"][-1:] = [deep]
    return request


def _written(dice: random.Random, request: Any) -> bytes:
    try:
        text = json.dumps(
            request,
            ensure_ascii=bool(dice.randrange(4)),
            indent=dice.choice((None, None, None, 1)),
            separators=dice.choice((None, (",", ":"))),
        )
    except RecursionError:
        return b"{}"
    return text.encode("utf-8", "surrogatepass")


def _damaged(dice: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(found) + 1)
        end = min(len(found), at + dice.choice((0, 0, 1, 1, 5, 40)))
        found[at:end] = dice.choice(
            (dice.choice(_BYTES), bytes([dice.randrange(256)]), bytes(found[at:end]) * 2)
        )
    return bytes(found)
