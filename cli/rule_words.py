"""Puts the predicates of filter rules into words: ``opcode = OP_EXEC and touches node/n7``. Pure.

The words are for people. What the command line and the daemon take is the JSON form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, assert_never

from ..storage import errors
from ..storage.filters import filters
from ..storage.filters.lock_predicate import TOUCHES
from ..storage.filters.predicates import Predicate, parse_predicates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.messages import FilterRow

_NAMES = {
    ("jobid", "id"): "id",
    ("opcode", "OP_ID"): "opcode",
    ("reason", "reason"): "reason",
    ("lock", TOUCHES): TOUCHES,
}
"""How the field for which a predicate is there is called; others are called as in the JSON form."""

_SIGNS_KEPT = "/.*_-:+@%"
"""A value of letters, digits and these needs no quotes."""


def matched(rule: FilterRow) -> str:
    """Which jobs a rule matches; the stored predicates if this version cannot read them."""
    try:
        found = parse_predicates(rule.predicates, "predicates")
    except errors.FilterRuleError:
        return compact(rule.predicates)
    is_alone = len(found) == 1
    parts = [_predicate(one, rule.watermark, is_alone=is_alone) for one in found]
    return " and ".join(parts) or "every job"


def compact(value: object) -> str:
    """JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _predicate(one: Predicate, watermark: int, *, is_alone: bool) -> str:
    words = _Words(one.name, watermark)
    if one.is_negated:
        return f"not {words.part(one.expression)}"
    return words.whole(one.expression) if is_alone else words.part(one.expression)


class _Words:
    """The words of the expressions of one predicate."""

    def __init__(self, predicate: str, watermark: int) -> None:
        self._predicate, self._watermark = predicate, watermark

    def part(self, tree: filters.Filter) -> str:
        """The expression as a part of a longer one."""
        text = self.whole(tree)
        is_joined = isinstance(tree, filters.AllOf | filters.AnyOf) and len(tree.parts) > 1
        return f"({text})" if is_joined and self._mode(tree) is None else text

    def whole(self, tree: filters.Filter) -> str:
        """The expression, which stands alone."""
        match tree:
            case filters.Always():
                return "every job"
            case filters.AllOf(parts):
                return self._mode(tree) or self._joined(parts, "and", "every job")
            case filters.AnyOf(parts):
                return self._alternatives(parts) or self._joined(parts, "or", "no job")
            case filters.Not(filters.Comparison("==", field, value)):
                return self._compared(field, "!=", value)
            case filters.Not(part):
                return f"not {self.part(part)}"
            case filters.IsTrue(field):
                return f"{self._named(field)} is true"
            case filters.Comparison(sign, field, value):
                return self._compared(field, "=" if sign == "==" else sign, value)
            case filters.Search(field, pattern):
                return f"{self._named(field)} =~ {_shown(pattern)}"
            case filters.Contains(field, value):
                return f"{self._named(field)} has {_shown(value)}"
            case _:
                assert_never(tree)

    def _joined(self, parts: Sequence[filters.Filter], word: str, none: str) -> str:
        if len(parts) == 1:
            return self.whole(parts[0])
        return f" {word} ".join(map(self.part, parts)) or none

    def _alternatives(self, parts: Sequence[filters.Filter]) -> str:
        """``opcode = A or B``; "" for parts that are no such values of one field."""
        fields, values = set[str](), []
        for part in parts:
            if not isinstance(part, filters.Comparison) or part.operator != "==":
                return ""
            fields.add(part.field)
            values.append(self._value(part.value))
        if len(fields) != 1:
            return ""
        return f"{self._compared(fields.pop(), '=', None)} {' or '.join(values)}"

    def _mode(self, tree: filters.Filter) -> str | None:
        """``touches node/n7 (shared)``; None for any other expression."""
        match tree:
            case filters.AllOf(
                (filters.Comparison("==", "touches", lock), filters.Comparison("==", "mode", mode))
            ):
                return f"{self._compared(TOUCHES, '=', lock)} ({mode})"
        return None

    def _compared(self, field: str, sign: str, value: filters.Value | None) -> str:
        subject = f"{self._named(field)} {sign}"
        if (self._predicate, field) == ("lock", TOUCHES):
            subject = TOUCHES if sign == "=" else "does not touch"
        return subject if value is None else f"{subject} {self._value(value)}"

    def _named(self, field: str) -> str:
        other = field if self._predicate in ("jobid", "opcode") else f"{self._predicate}.{field}"
        return _NAMES.get((self._predicate, field), other)

    def _value(self, value: filters.Value) -> str:
        is_watermark = self._predicate == "jobid" and value == "watermark"
        return _shown(self._watermark if is_watermark else value)


def _shown(value: filters.Value) -> str:
    # A number in quotes is a text.
    is_text = isinstance(value, str) and value != "" and not value.isdecimal()
    is_plain = all(sign.isalnum() or sign in _SIGNS_KEPT for sign in str(value))
    return str(value) if is_text and is_plain else compact(value)
