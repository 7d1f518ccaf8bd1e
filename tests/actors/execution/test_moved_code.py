"""Code that is allocated anew, side by side, does what it did."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from ganger.actors.execution import moved_code


class Account:
    """Uses much of what functions have: closures, defaults, properties, nested code, generators."""

    limit = (1, (2, 3))

    def __init__(self, start: int = 5, *, step: int = 2) -> None:
        self._start, self._step = start, step

    @property
    def doubled(self) -> int:
        return self._start * 2

    def counter(self) -> Callable[[], int]:
        start = self._start

        def count() -> int:
            nonlocal start
            start += self._step
            return start

        return count

    def pairs(self) -> list[tuple[int, int]]:
        return [(number, other) for number in range(2) for other in (number, *self.limit[1])]

    def numbers(self) -> Iterator[int]:
        yield from (number for number in (1, 2))

    def unused(self) -> None:
        """Nothing calls it."""


def work() -> list[object]:
    account = Account(step=3)
    count = account.counter()
    return [account.doubled, count(), count(), account.pairs(), [*account.numbers()]]


def called() -> None:
    work()


def test_only_what_runs_gets_other_code_that_does_the_same() -> None:
    expected = work()
    functions = [work, Account.__init__, Account.counter, Account.pairs, Account.numbers]
    doubled = vars(Account)["doubled"].fget
    functions += [doubled, Account.unused]
    before = [function.__code__ for function in functions]
    moved_code.move_together(called)
    after = [function.__code__ for function in functions]
    are_moved = [old is not new for old, new in zip(before, after, strict=True)]
    assert are_moved == [True] * 6 + [False]
    assert after == before
    assert work() == expected
    # The code within is moved with it.
    old, new = (next(filter(_is_code, code.co_consts)) for code in (before[2], after[2]))
    assert old == new
    assert old is not new


def _is_code(constant: object) -> bool:
    return type(constant) is type(work.__code__)


def test_the_profile_of_the_process_is_as_before() -> None:
    seen: list[str] = []

    def note(_frame: object, event: str, _argument: object) -> None:
        seen.append(event)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        moved_code.move_together(called)
        assert sys.getprofile() is note
    finally:
        sys.setprofile(before)
