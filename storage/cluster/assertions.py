"""What one object of the configuration says that must fit what the others say.

`assertions_of` reads one object and looks at no other one. `integrity` compares the assertions of
all objects. A field of a wrong type asserts nothing: it is a problem by itself (`objects`).
Packages note what they know of the kinds (`objects.Kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..wording import shown
from .objects import Object, ObjectKind, installed_kinds, place_of, schema_problem


class Claim(NamedTuple):
    """A value that only one place of the configuration may have."""

    what: str
    value: str
    scope: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.value}" + (f" {self.scope}" if self.scope else "")


class Token(NamedTuple):
    """Something that one object provides and others need, such as a node with this UUID."""

    what: str
    value: str

    def __str__(self) -> str:
        return f"{self.what} {self.value}"


class Assertions(NamedTuple):
    """All that one object says; places are paths such as ``instances/<uuid>.primary_node``."""

    problems: tuple[str, ...] = ()
    """What is wrong with the object by itself."""

    claims: tuple[tuple[Claim, str], ...] = ()
    needs: tuple[tuple[Token, str], ...] = ()
    provides: tuple[Token, ...] = ()
    ports: tuple[tuple[int, str], ...] = ()
    """The TCP and UDP ports in use, which the cluster's highest one must reach."""

    candidates_possible: int = 0
    """1 for a node that could be a master candidate."""

    candidates: int = 0
    """1 for a node that is one."""


NOTHING: Final = Assertions()

PORT: Final = "port"
WORDS: Final = {
    ObjectKind.CLUSTER: "cluster",
    ObjectKind.NODE: "node",
    ObjectKind.NODE_GROUP: "node group",
    ObjectKind.INSTANCE: "instance",
    ObjectKind.NETWORK: "network",
    ObjectKind.DISK: "disk",
    ObjectKind.FILTER: "filter rule",
}
_NO_LOCK_NAMES: Final = ("*", "[lockset]")
"""What stands for all locks of a level: an object with such a name would take them."""

_WITH_UNIQUE_NAMES: Final = (
    ObjectKind.NODE,
    ObjectKind.NODE_GROUP,
    ObjectKind.INSTANCE,
    ObjectKind.NETWORK,
)


def assertions_of(kind: ObjectKind, uuid: str, found: object) -> Assertions:
    """What this object says; `NOTHING` for an object that is not there (None)."""
    if found is None:
        return NOTHING
    notes = Notes(place_of(kind, uuid))
    problem = schema_problem(kind, uuid, found)
    if problem is not None:
        notes.problems.append(problem)
    if isinstance(found, dict):
        _note_common(kind, uuid, found, notes)
        for package in installed_kinds():
            package.note(kind, found, notes)
    if kind is not ObjectKind.CLUSTER:
        notes.provides.append(Token(WORDS[kind], uuid))
    return notes.assertions()


class Notes:
    """Collects the assertions of one object, or of a part of it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.problems: list[str] = []
        self.claims: list[tuple[Claim, str]] = []
        self.needs: list[tuple[Token, str]] = []
        self.provides: list[Token] = []
        self.ports: list[tuple[int, str]] = []
        self.candidates_possible = 0
        self.candidates = 0

    def problem(self, field: str, text: str) -> None:
        self.problems.append(f"{self.place}.{field}: {text}")

    def claim(self, field: str, what: str, value: object, scope: str = "") -> None:
        """No other object may have this value; what is no text claims nothing."""
        if isinstance(value, str) and value:
            self.claims.append((Claim(what, value, scope), f"{self.place}.{field}"))

    def claim_port(self, field: str, value: object) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            self.claim(field, PORT, str(value))
            self.ports.append((value, f"{self.place}.{field}"))

    def need(self, field: str, what: str, value: object) -> None:
        """Some object must provide this; what is empty or no text needs nothing."""
        if isinstance(value, str) and value:
            self.needs.append((Token(what, value), f"{self.place}.{field}"))

    def assertions(self) -> Assertions:
        return Assertions(
            tuple(self.problems),
            tuple(self.claims),
            tuple(self.needs),
            tuple(self.provides),
            tuple(self.ports),
            self.candidates_possible,
            self.candidates,
        )


# ---------------------------------------------------------------- what every object says


def _note_common(kind: ObjectKind, uuid: str, found: Object, notes: Notes) -> None:
    own = found.get("uuid")
    if isinstance(own, str) and own != uuid:
        notes.problem("uuid", f"expected its key {uuid}, got {shown(own)}")
    notes.claims.append((Claim("UUID", uuid), notes.place))
    if kind in _WITH_UNIQUE_NAMES:
        _note_lock_names({"uuid": uuid, "name": found.get("name")}, notes)
        notes.claim("name", f"name of {_article(WORDS[kind])}", found.get("name"))


def _note_lock_names(fields: Mapping[str, object], notes: Notes) -> None:
    for field, name in fields.items():
        if name in _NO_LOCK_NAMES:
            notes.problem(field, f"{shown(str(name))} stands for all locks of a level")


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
