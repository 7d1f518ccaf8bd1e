"""Makes hostile frames from the messages' own types; each follows from the dice alone.

Half of them are whole frames of a known message whose every field is of the right type most of
the time, and nearly always a value that no client would choose. The others are damaged, nearly
right, claim to be huge, nest deeply, or are noise. No value names a process or a file that
could concern others: numbers of processes are beyond what a kernel gives out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_args

import msgpack
from msgspec import inspect

from ganger.actors.ganeti.wconfd_table import METHODS
from ganger.storage import settings
from ganger.transport import messages
from ganger.transport.messages import PROTOCOL, Message

Maker = Callable[[random.Random], Any]

DOOR = messages.ClientRequest | messages.JobMessage
"""What may be said at the listener."""

PIDS = (0, -1, 2**22 + 1, 2**31, 2**63 - 1, 2**64 - 1, -(2**63))
INTEGERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
IDS = (*range(1, 12), 0, -1, 999_999, 2**62, 2**63, 2**64 - 1, -(2**63))
FLOATS = (0.0, -1.0, 0.5, 1e-300, 1e18, 1e308, float("nan"), float("inf"), float("-inf"), 3, -7)
TEXTS = (
    "", "x", "\0", "a\0b", "success", "queued", "5", "../..", "/", ".", "\n", "%s", "{}", "\u202e",
    "\U0010ffff", "é" * 300, "x" * 5_000, "node/a", "node/*", "cluster/BGL", "node/" + "y" * 2_000,
    "0b1c2d3e-0000-4000-8000-000000000001", "=~", "(a+)+$", "[", "*" * 50,
)  # fmt: skip
BYTES = (b"", b"\xff\xfe", b"{}", b"null", b"[" * 500, b'{"id":1,"ops":[]}', b"\x80" * 2_000)
OPCODES: tuple[Any, ...] = (
    {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": False},
    {"OP_ID": "OP_EXEC", "argv": ["true"]},
    {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": {"node": {"exclusive": ["n1"]}}},
    {"OP_ID": "OP_EXEC", "argv": ["no-such-program-at-all"], "timeout": -1},
    {"OP_ID": "OP_EXEC", "argv": ["true"], "stdin": "\0" * 20_000},
    {"OP_ID": "OP_EXEC", "argv": ["true"], "stdin_file": "job-1-input-0"},
    {"OP_ID": "OP_EXEC", "argv": ["true"], "env": {"A": "\1" * 12_000}},
    {"OP_ID": "OP_EXEC", "argv": []},
    {"OP_ID": "OP_EXEC", "argv": ["true\0"]},
    {"OP_ID": "OP_EXEC", "argv": ["true"], "locks": {"": {"shared": ["\0"]}}},
    {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "priority": 2**63},
    {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "depends": [[-1, ["success"]]]},
    {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "reason": [["\0", "\n", 2**63]]},
    {"OP_ID": "OP_NO_SUCH"},
    {"OP_ID": None},
    {},
)
PREDICATES: tuple[Any, ...] = (
    [], [["jobid", [">", "id", "watermark"]]], [["opcode", ["=", "OP_ID", "OP_EXEC"]]],
    [["opcode", ["=~", "OP_ID", "(a+)+$"]]], [["opcode", ["=~", "OP_ID", "["]]], [["reason", []]],
    [["opcode", ["!", ["!", ["!", ["?", "x"]]]]]], [["nothing", 5]], 5, "x", [[[[[[]]]]]],
    [["jobid", ["=", "id", 2**63]]], [["opcode", ["|", *[["?", "a"]] * 300]]],
)  # fmt: skip
ACTIONS: tuple[Any, ...] = (
    "ACCEPT", "CONTINUE", "PAUSE", "REJECT", ["RATE_LIMIT", 0], ["RATE_LIMIT", 2**63], [], 7,
)  # fmt: skip
ARGUMENTS: tuple[Any, ...] = (
    [], [True], ["x"], ["x", "y"], [{}], [{"uuid": "x", "serial_no": 2**63}], [11_000], [2**63],
    ["x", {"uuid": []}, -1, True], ["x", "down", None, None], ["x", ["y"] * 300], [None],
    ["x", "0.0.0.0", True],
)  # fmt: skip
_NAMED: dict[str, tuple[Any, ...]] = {
    "method": (*METHODS, "echo", "", "x" * 5_000),
    "args": ARGUMENTS,
    "pid": PIDS,
    "process_id": PIDS,
    "id": IDS,
    "ids": IDS,
    "job_id": IDS,
    "after": IDS,
    "body": BYTES,
    "ops": OPCODES,
    "predicates": PREDICATES,
    "action": ACTIONS,
    "version": (PROTOCOL,) * 20 + (0, 2, True, None, "1", 1.0),
}
_CONTAINED = {"ids", "ops"}
"""Fields whose elements, rather than themselves, have such a value."""


NEVER_PACKED = {messages.RulesChanged, messages.RuleChainChanged}
"""They carry parsed rules, which have no form on the wire."""


def _kinds() -> dict[str, type[Message]]:
    """Every message that there is, by its tag, also those that no peer may send to the listener."""
    found = (kind for kind in vars(messages).values() if isinstance(kind, type))
    kinds = {kind for kind in found if issubclass(kind, Message)} - NEVER_PACKED
    tags = {kind: kind.__struct_config__.tag for kind in kinds}
    return {str(tag): kind for kind, tag in tags.items() if tag is not None}


KINDS = _kinds()
ALLOWED = sorted(str(kind.__struct_config__.tag) for kind in get_args(DOOR))


def frame(dice: random.Random, number: int | None = None) -> bytes:
    """A frame of any sort; ``number``: its request's, if it is one that can be read."""
    match dice.randrange(20):
        case 0:
            return dice.randbytes(dice.randint(0, 200))
        case 1:
            return b"\x94\x01\x07\xc0" + dice.randbytes(dice.randint(0, 60))
        case 2:
            return dice.choice(_BOMBS)
        case 3 | 4 | 5 | 6:
            return _damaged(packed(envelope(dice, number)), dice)
        case 7 | 8:
            return packed(_nearly(dice, number))
        case _:
            return packed(envelope(dice, number))


def packed(value: object) -> bytes:
    """The value as msgpack; what that cannot hold becomes text."""
    data: bytes = msgpack.packb(value, use_bin_type=True, default=str)
    return data


def envelope(dice: random.Random, number: int | None = None) -> list[Any]:
    """A whole frame of some message, with fields that fit its type, mostly."""
    tag = dice.choice(ALLOWED) if dice.randrange(12) else dice.choice(_ALL)
    if number is None:
        number = dice.choice((1, 7, 2**31, 2**63 - 1, 2**64 - 1))
    deadline = None if dice.randrange(4) else dice.choice((5.0, 60, 0, -1.0, 1e300))
    return [PROTOCOL, number, deadline, {"type": tag, **_MAKERS[tag](dice)}]


def _nearly(dice: random.Random, number: int | None) -> list[Any]:
    """A frame of which one of the four parts is wrong, or missing."""
    parts = envelope(dice, number)
    place = dice.randrange(5)
    if place == 4:
        return parts[: dice.randrange(4)] if dice.randrange(2) else [*parts, None]
    wrong: tuple[tuple[Any, ...], ...] = (
        _NAMED["version"][20:],
        (-1, "x", None, 0.5, True, 2**63, [7], -(2**63)),
        (float("nan"), float("inf"), "soon", True, [], {}),
        (None, [], {}, "read_info", {"type": 5}, {"type": None}, {5: 5}, [["type", "read_info"]]),
    )
    parts[place] = dice.choice(wrong[place])
    return parts


def _damaged(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data))
    match dice.randrange(5):
        case 0:
            return data[:place]
        case 1:
            return data + data
        case 2:
            return data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]
        case 3:
            return data[:place] + dice.randbytes(4) + data[place:]
        case _:
            return data[:place] + dice.choice(_BOMBS)[:5] + data[place + 1 :]


def _bombs() -> list[bytes]:
    """Small frames that claim to be, or to hold, something large, and deep ones."""
    start = b"\x94\x01\x07\xc0"
    found = [b"", b"\xc1", b"\xd4\xff\x00", start + b"\xd7\xff" + bytes(8)]
    for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        found += [head + b"\xff" * 4, start + head + b"\x7f\xff\xff\xff"]
    for nest in (b"\x91", b"\x81\xa1a", b"\x81\xa4type", b"\xdd\x00\x00\x00\x01"):
        found += [nest * 5_000, start + nest * 600 + b"\xc0", start + nest * 5_000]
    ops = b"\x82\xa4type\xabsubmit_jobs\xa4jobs\x91\x81\xa3ops\x91\x81\xa1a"
    found += [start + ops + b"\x91" * depth + b"\xc0" for depth in (100, 450, 1_000, 100_000)]
    # Larger than a frame may be, by one byte; and keys that a map may not have.
    found += [
        start + b"\xc6" + settings.FRAME_BYTES_MAX.to_bytes(4, "big"),
        start + b"\x81\x90\x01",
    ]
    return found


# ---------------------------------------------------------------- values by type


def _maker(kind: inspect.Type, name: str = "") -> Maker:
    """Makes values of a type; now and then one of another type."""
    fitting = _fitting(kind, name)

    def make(dice: random.Random) -> Any:
        return _anything(dice, 2) if dice.random() < 0.02 else fitting(dice)

    return make


def _fitting(kind: inspect.Type, name: str) -> Maker:  # noqa: PLR0912 - a table
    if name in _NAMED and name not in _CONTAINED:
        return _one_of(_NAMED[name])
    match kind:
        case inspect.IntType():
            return _one_of(INTEGERS)
        case inspect.FloatType():
            return _one_of(FLOATS)
        case inspect.StrType():
            return _one_of(TEXTS)
        case inspect.BytesType():
            return _one_of(BYTES)
        case inspect.BoolType():
            return _one_of((True, False))
        case inspect.NoneType():
            return _one_of((None,))
        case inspect.LiteralType():
            return _one_of((*kind.values, "no_such"))
        case inspect.EnumType():
            return _one_of((*(member.value for member in kind.cls), "no_such"))
        case inspect.UnionType():
            return _any_of([_maker(each, name) for each in kind.types])
        case inspect.ListType() | inspect.VarTupleType():
            return _several(_maker(kind.item_type, name), _NAMED.get(name))
        case inspect.TupleType():
            return _each([_maker(each) for each in kind.item_types])
        case inspect.DictType():
            return _mapping(_maker(kind.key_type), _maker(kind.value_type))
        case inspect.StructType():
            return _structure(kind)
        case _:
            return lambda dice: _anything(dice, 3)


def _one_of(values: tuple[Any, ...]) -> Maker:
    return lambda dice: dice.choice(values)


def _any_of(makers: list[Maker]) -> Maker:
    return lambda dice: dice.choice(makers)(dice)


def _each(makers: list[Maker]) -> Maker:
    return lambda dice: [make(dice) for make in makers]


def _several(make: Maker, values: tuple[Any, ...] | None) -> Maker:
    element = make if values is None else _one_of(values)
    return lambda dice: [element(dice) for _ in range(dice.choice((0, 1, 1, 2, 5)))]


def _mapping(key: Maker, value: Maker) -> Maker:
    def make(dice: random.Random) -> Any:
        pairs = [(key(dice), value(dice)) for _ in range(dice.choice((0, 1, 3)))]
        return {name: each for name, each in pairs if not isinstance(name, list | dict)}

    return make


def _structure(kind: inspect.StructType) -> Maker:
    makers = [
        (each.encode_name, each.required, _maker(each.type, each.name)) for each in kind.fields
    ]
    if kind.array_like:
        return _each([make for _, _, make in makers])

    def make(dice: random.Random) -> Any:
        # One in fifty leaves out what must be there, and as many add an unknown field.
        made = {
            name: make(dice)
            for name, is_required, make in makers
            if dice.random() < (0.98 if is_required else 0.4)
        }
        return {**made, "no_such_field": 1} if dice.random() < 0.02 else made

    return make


def _anything(dice: random.Random, depth: int) -> Any:
    simple = (INTEGERS, FLOATS, TEXTS, BYTES, (None, True, False))
    if depth == 0 or dice.randrange(3):
        return dice.choice(dice.choice(simple))
    some = [_anything(dice, depth - 1) for _ in range(dice.randrange(4))]
    return some if dice.randrange(2) else dict(enumerate(some))


_MAKERS: dict[str, Maker] = {}
for _tag, _kind in KINDS.items():
    _info = inspect.type_info(_kind)
    assert isinstance(_info, inspect.StructType)
    _MAKERS[_tag] = _structure(_info)
_ALL = sorted(_MAKERS)
_BOMBS = _bombs()
