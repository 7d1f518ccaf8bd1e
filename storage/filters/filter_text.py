"""The text form of the query filter language, as people type it: ``status == "error"``.

`parse_text` turns it into the JSON form, which `filters` checks. Source: Ganeti's command line.

The forms, with ``f`` for a field: ``f``, ``f == 5``, ``f != "a"``, ``<``, ``<=``, ``>``, ``>=``,
``"a" in f``, ``"a" not in f``, ``f =~ m/pattern/si``, ``f !~ m/pattern/``, ``f =* "glob*"``,
``f !* "glob*"``. ``not`` binds tightest, then ``and``, then ``or``; parentheses group.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from .. import errors
from ..wording import brief
from .filters import DEPTH_MAX, rule_error

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<pattern>m(?:/(?:[^/\\]|\\.)*/|\#(?:[^\#\\]|\\.)*\#|\|(?:[^|\\]|\\.)*\||\^(?:[^\^\\]|\\.)*\^)[si]*)
    | (?P<word>[A-Za-z][A-Za-z0-9_./-]*)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?[0-9]+)
    | (?P<sign>==|!=|<=|>=|=~|!~|=\*|!\*|<|>|=|\(|\))
    | (?P<end>$)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PATTERN_PARTS: Final = re.compile(r"m(.)(.*)\1([si]*)", re.DOTALL)
_DIGITS_MAX: Final = 19
_COMPARISONS: Final = {
    "==": "==",
    "=": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_WORDS: Final = frozenset({"and", "or", "not", "in"})


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_text(text: str) -> list[Any]:
    """The filter in JSON form; `FilterRuleError` names the character where the mistake is.

    >>> parse_text('status == "error" and not (id < 7 or archived)')
    ['&', ['==', 'status', 'error'], ['!', ['|', ['<', 'id', 7], ['?', 'archived']]]]
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> list[Any]:
        found = self._any_of()
        if self._peek().kind != "end":
            raise _expected("and, or, or the end", self._peek())
        return found

    def _any_of(self) -> list[Any]:
        parts = [self._all_of()]
        while self._takes_word("or"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else ["|", *parts]

    def _all_of(self) -> list[Any]:
        parts = [self._negated()]
        while self._takes_word("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else ["&", *parts]

    def _negated(self) -> list[Any]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise rule_error("filter", f"is nested deeper than {DEPTH_MAX}")
        try:
            if self._takes_word("not"):
                return ["!", self._negated()]
            return self._condition()
        finally:
            self._depth -= 1

    def _condition(self) -> list[Any]:
        token = self._take()
        if token.text == "(" and token.kind == "sign":
            found = self._any_of()
            closing = self._take()
            if closing.text != ")":
                raise _expected("and, or, or )", closing)
            return found
        if token.kind in ("text", "number"):
            return self._contained(_value(token))
        if token.kind != "word" or token.text in _WORDS:
            raise _expected("a field, a value, not, or (", token)
        return self._of_field(token.text)

    def _contained(self, value: str | int) -> list[Any]:
        is_negated = self._takes_word("not")
        if not self._takes_word("in"):
            raise _expected("in, or not in", self._peek())
        field = self._take()
        if field.kind != "word" or field.text in _WORDS:
            raise _expected("a field", field)
        found = ["=[]", field.text, value]
        return ["!", found] if is_negated else found

    def _of_field(self, field: str) -> list[Any]:
        sign = self._peek()
        if sign.kind != "sign" or sign.text in "()":
            return ["?", field]
        self._next += 1
        operand = self._take()
        if sign.text in _COMPARISONS:
            return [_COMPARISONS[sign.text], field, _value(operand)]
        if sign.text in ("=~", "!~"):
            search = ["=~", field, _pattern(operand)]
        else:
            search = ["=~", field, _glob(operand)]
        return ["!", search] if sign.text.startswith("!") else search

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _takes_word(self, word: str) -> bool:
        token = self._peek()
        if token.kind == "word" and token.text == word:
            self._next += 1
            return True
        return False


def _tokens(text: str) -> list[_Token]:
    found = []
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise rule_error("filter", f"character {at + 1}: cannot read {brief(text[at:])}")
        kind = match.lastgroup
        assert kind is not None
        found.append(_Token(kind, match[kind], match.start(kind)))
        if kind == "end":
            return found
        at = match.end()


def _value(token: _Token) -> str | int:
    if token.kind == "number" and len(token.text) <= _DIGITS_MAX:
        return int(token.text)
    if token.kind == "text":
        return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)
    raise _expected("a number, or a text in quotes", token)


def _pattern(token: _Token) -> str:
    parts = _PATTERN_PARTS.fullmatch(token.text) if token.kind == "pattern" else None
    if parts is None:
        raise _expected("a pattern such as m/^web/i", token)
    mark, pattern, flags = parts.groups()
    pattern = pattern.replace(f"\\{mark}", mark)
    return f"(?{flags}:{pattern})" if flags else str(pattern)


def _glob(token: _Token) -> str:
    """The pattern for a name with ``*`` and ``?``; its end from a dot on may be missing."""
    if token.kind != "text":
        raise _expected("a text in quotes", token)
    escaped = re.escape(str(_value(token))).replace(r"\*", ".*").replace(r"\?", ".")
    return rf"^{escaped}(\..*)?$"


def _expected(what: str, token: _Token) -> errors.FilterRuleError:
    found = "the end" if token.kind == "end" else brief(token.text)
    return rule_error("filter", f"character {token.at + 1}: expected {what}, found {found}")
