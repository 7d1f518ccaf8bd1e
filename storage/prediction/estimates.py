"""Run times that opcodes will need, from those that they needed before. Pure.

Opcodes are told apart by their kind and, commands (OP_EXEC), by the program's name. Of each the
last run times count, newer ones more: so an estimate follows a program that became slower, and one
run that hung moves it little. With each run time that comes, the estimates first measure how wrong
they would have been.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from .. import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEYS_MAX = 4_000
"""Kinds of opcodes and names of programs that are remembered; the one not seen longest goes."""

KEPT_MAX = 16
"""Run times kept of each."""

ERRORS_MAX = 1_000
"""Errors of the last predictions that are kept."""

NAME_CHARACTERS_MAX = 60
_DECAY = 0.93
"""What an older run time counts beside the next newer one."""

_WEIGHTS = tuple(_DECAY**age for age in reversed(range(KEPT_MAX)))
"""What run times count, newest last."""

_SUMS = (0.0, *accumulate(reversed(_WEIGHTS)))
"""What the newest run times count together, by their number."""

_HALF, _HIGH = 0.5, 0.9

_MEASURED_EVERY = 4
"""One in this many predictions is compared with what came, once a key has its full history."""

_SECONDS_MIN = 0.001
"""Shorter run times count as this: the relative error of less says nothing."""

_FORMAT = 1


def key_of(opcode: Mapping[str, Any]) -> str:
    """What the run time of an opcode is estimated by; "" if it has no kind.

    >>> key_of({"OP_ID": "OP_EXEC", "argv": ["/usr/bin/make", "all"]})
    'OP_EXEC make'
    """
    kind = opcode.get("OP_ID")
    if not isinstance(kind, str):
        return ""
    argv = opcode.get("argv") if kind == "OP_EXEC" else None
    if isinstance(argv, list | tuple) and argv and isinstance(argv[0], str):
        return f"{kind} {argv[0].rpartition('/')[2][:NAME_CHARACTERS_MAX]}"
    return kind[:NAME_CHARACTERS_MAX]


class Estimate(msgspec.Struct, frozen=True):
    """How long something runs: half take at most ``typical`` seconds, nine of ten ``high``.

    ``count``: the run times that it comes from, of its rarest part.
    """

    count: int
    typical: float
    high: float


class Accuracy(msgspec.Struct, frozen=True):
    """How wrong estimates were: ``median`` and ``high`` (nine of ten) relative errors.

    An error is relative to what was predicted wrongly: 0.5 is half too long or too short.
    """

    count: int
    median: float
    high: float


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The estimates in their file."""

    format: int
    times: dict[
        Annotated[str, msgspec.Meta(max_length=2 * NAME_CHARACTERS_MAX)],
        Annotated[
            list[Annotated[float, msgspec.Meta(ge=0, le=1e10)]],
            msgspec.Meta(min_length=1, max_length=KEPT_MAX),
        ],
    ]
    errors: Annotated[
        list[Annotated[float, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=ERRORS_MAX)
    ]


class Estimates:
    """The run times of each key, newest last, and the errors of the last predictions."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        self._errors: deque[float] = deque(maxlen=ERRORS_MAX)
        self._known: dict[str, Estimate] = {}
        self._usual: Estimate | None = None
        self._learnt = 0

    def __len__(self) -> int:
        return len(self._times)

    def learn(self, key: str, seconds: float) -> None:
        """Take in that an opcode with this key ran for this time, and succeeded."""
        if not (key and 0 <= seconds < math.inf):
            # A clock was put back, or a file was changed by hand.
            return
        # Rounded here and not in `encode`, which must be quick with every key in memory.
        seconds = _rounded(max(seconds, _SECONDS_MIN))
        self._learnt += 1
        if len(self._times.get(key, ())) < KEPT_MAX or self._learnt % _MEASURED_EVERY == 0:
            predicted = self.of_key(key)
            if predicted is not None:
                self._errors.append(_rounded(abs(predicted.typical - seconds) / seconds))
        # To the end: the first key is the one that was not seen longest.
        times = self._times.pop(key, None)
        if times is None:
            times = deque(maxlen=KEPT_MAX)
            if len(self._times) >= KEYS_MAX:
                oldest = next(iter(self._times))
                del self._times[oldest]
                self._known.pop(oldest, None)
        times.append(seconds)
        self._times[key] = times
        self._known.pop(key, None)
        self._usual = None

    def of_key(self, key: str) -> Estimate | None:
        """The estimate for this key; None without history."""
        known = self._known.get(key)
        if known is None and (times := self._times.get(key)) is not None:
            known = self._known[key] = _estimate(times)
        return known

    def of(self, keys: Iterable[str]) -> Estimate | None:
        """The estimate for opcodes that run one after the other; None if one has no history."""
        found = [self.of_key(key) for key in keys]
        parts = [one for one in found if one is not None]
        if not parts or len(parts) < len(found):
            return None
        typical = sum(one.typical for one in parts)
        spread = math.sqrt(sum((one.high - one.typical) ** 2 for one in parts))
        return Estimate(min(one.count for one in parts), typical, typical + spread)

    def usual(self) -> Estimate | None:
        """The estimate for an opcode of which nothing is known: the middle one of all keys."""
        if self._usual is None and self._times:
            found = map(self.of_key, self._times)
            typical = sorted(one.typical for one in found if one is not None)
            middle = typical[len(typical) // 2]
            self._usual = Estimate(0, middle, typical[int(0.9 * len(typical))])
        return self._usual

    def accuracy(self) -> Accuracy | None:
        """How wrong the last predictions were; None if there was none."""
        return accuracy_of(self._errors)

    def encode(self) -> bytes:
        """The estimates as the bytes of their file."""
        times = {key: list(found) for key, found in self._times.items()}
        return msgspec.json.encode(_Stored(_FORMAT, times, list(self._errors)))

    @classmethod
    def decode(cls, data: bytes) -> Estimates:
        """The estimates in a file; `StorageError` if it is damaged or of another format."""
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.StorageError(f"estimates: {error}") from error
        if stored.format != _FORMAT:
            raise errors.StorageError(f"estimates: expected format {_FORMAT}, got {stored.format}")
        made = cls()
        for key, times in list(stored.times.items())[-KEYS_MAX:]:
            made._times[key] = deque(times, maxlen=KEPT_MAX)
        made._errors.extend(stored.errors)
        return made


def accuracy_of(found: Iterable[float]) -> Accuracy | None:
    """The median and the ninth tenth of relative errors; None if there is none."""
    ordered = sorted(found)
    if not ordered:
        return None
    last = len(ordered) - 1
    return Accuracy(len(ordered), ordered[last // 2], ordered[math.ceil(0.9 * last)])


def _estimate(times: deque[float]) -> Estimate:
    """Weighted quantiles; in the median of an even number, the lower one of the two in the middle.

    As log times have the same order as times, this is robust against both kinds of outliers.
    """
    weighed = sorted(zip(times, _WEIGHTS[-len(times) :], strict=True))
    total = _SUMS[len(times)]
    reached, typical = 0.0, -1.0
    for seconds, weight in weighed:
        reached += weight
        if typical < 0 and reached >= _HALF * total:
            typical = seconds
        if reached >= _HIGH * total:
            return Estimate(len(times), typical, seconds)
    raise AssertionError("the parts add up to the whole")


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
