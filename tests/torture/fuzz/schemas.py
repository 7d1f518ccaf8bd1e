"""JSON by a schema of the OpenAPI document: values to send, and whether what came is as it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

EDGES = (2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30)
ODD_TEXTS = (
    "", " ", "a\x00b", "a\nb", "\u2028", "\U0001f4a9", "e\u0301", "<script>", "%00", "../..",
    "0", "-1", "1e9", "[", "(a+)+$", "x" * 300, "OP_TEST_DELAY", "OP_EXEC", "OP_TAGS_SET",
    "id", "status", "name",
    "queued", "success", "node0.example.com", "instance0.example.com", "default", "PAUSE", "REJECT",
)  # fmt: skip

INTEGERS = st.integers(-3, 40) | st.sampled_from(EDGES)
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(codec="utf-8"), max_size=12)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)

Components = Mapping[str, Any]


def values(schema: Mapping[str, Any], components: Components) -> st.SearchStrategy[Any]:
    """Values that the schema allows."""
    if "$ref" in schema:
        return st.deferred(lambda: values(_referred(schema, components), components))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(one, components) for one in schema["anyOf"]])
    match schema.get("type"):
        case "integer":
            return INTEGERS
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | INTEGERS
        case "string":
            return TEXTS
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array" if "prefixItems" in schema:
            return st.tuples(*[values(one, components) for one in schema["prefixItems"]])
        case "array":
            return st.lists(values(schema.get("items", {}), components), max_size=4)
        case "object":
            return _objects(schema, components)
    return ANYTHING


def _objects(schema: Mapping[str, Any], components: Components) -> st.SearchStrategy[Any]:
    known = {name: values(one, components) for name, one in schema.get("properties", {}).items()}
    if not known:
        others = schema.get("additionalProperties")
        inner = values(others, components) if isinstance(others, Mapping) else ANYTHING
        return st.dictionaries(TEXTS, inner, max_size=3)
    needed = {name: known.pop(name) for name in schema.get("required", ()) if name in known}
    # Few of many: an opcode has dozens.
    chosen = st.lists(st.sampled_from(sorted(known)), max_size=4, unique=True) if known else None
    first = st.fixed_dictionaries(needed)
    if chosen is None:
        return first
    rest = chosen.flatmap(
        lambda names: st.fixed_dictionaries({name: known[name] for name in names})
    )
    return st.tuples(first, rest).map(lambda both: {**both[0], **both[1]})


def mismatch(value: object, schema: Mapping[str, Any], components: Components) -> str:
    """Where a value is not as its schema says; empty if it is."""
    if "$ref" in schema:
        return mismatch(value, _referred(schema, components), components)
    if "anyOf" in schema:
        found = [mismatch(value, one, components) for one in schema["anyOf"]]
        return "" if "" in found else " and ".join(found)
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is none of {schema['enum']}"
    kind = schema.get("type")
    if kind is not None and not _IS[kind](value):
        return f"{value!r:.60} is no {kind}"
    if isinstance(value, dict):
        return _object_mismatch(value, schema, components)
    if isinstance(value, list):
        first = schema.get("prefixItems")
        inner = schema.get("items") or {}
        kinds = first if first is not None else [inner] * len(value)
        if len(kinds) != len(value):
            return f"{len(value)} items instead of {len(kinds)}"
        pairs = zip(value, kinds, strict=True)
        return next((text for one, each in pairs if (text := mismatch(one, each, components))), "")
    return ""


def _object_mismatch(
    value: Mapping[str, Any], schema: Mapping[str, Any], components: Components
) -> str:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{missing} missing"
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    for name, one in value.items():
        each = known.get(name, others)
        if each is False:
            return f"{name} is not declared"
        text = mismatch(one, each, components) if isinstance(each, Mapping) else ""
        if text:
            return f"{name}: {text}"
    return ""


def _referred(schema: Mapping[str, Any], components: Components) -> Mapping[str, Any]:
    found: Mapping[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS: Mapping[str, Callable[[object], bool]] = {
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
