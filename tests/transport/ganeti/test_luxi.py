"""Ganeti's documents: cut out of a stream, read, written."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.transport.ganeti import luxi
from ganger.transport.ganeti.luxi import Call, DocumentReader, UnreadableCallError

contents = st.binary().filter(lambda data: luxi.END not in data)


@given(st.lists(contents), contents, st.lists(st.integers(0, 40)))
def test_documents_are_found_however_the_stream_is_cut(
    documents: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    stream = b"".join(document + luxi.END for document in documents) + rest
    reader = DocumentReader()
    found = []
    for cut in cuts:
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    found += reader.feed(stream)
    assert found == documents
    assert reader.size == len(rest)


def test_drips_take_no_more_memory_than_one_piece() -> None:
    reader = DocumentReader()
    tracemalloc.start()
    for _ in range(100_000):
        reader.feed(b"ab")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 500_000
    assert reader.feed(luxi.END) == [b"ab" * 100_000]


def test_a_document_may_have_the_largest_size_and_no_more() -> None:
    reader = DocumentReader(bytes_max=4)
    assert reader.feed(b"1234\x035") == [b"1234"]
    assert reader.feed(b"678") == []
    with pytest.raises(UnreadableCallError, match="the document has more than 4 bytes"):
        reader.feed(b"9")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"hello", "parsing top-level JSON message: Invalid JSON: "),
        (b"", "parsing top-level JSON message: Invalid JSON: "),
        (b'{"method": "\xff"}', "parsing top-level JSON message: Invalid JSON: "),
        (b'{"method": ' + b"[" * 100_000, "parsing top-level JSON message: Invalid JSON: "),
        (
            b'{"method": "a", "args": [' + b"[]," * luxi.CONTAINERS_MAX + b"[]]}",
            "the document has more than 1000000 arrays and objects",
        ),
        (
            b'{"method": "a", "args": [' + b"0," * luxi.VALUES_MAX + b"0]}",
            "the document has more than 3000000 values",
        ),
        (b"[]", "parsing top-level JSON message: it is no object"),
        (b'{"args": []}', "key 'method': expected string, got null"),
        (b'{"method": 7, "args": []}', "key 'method': expected string, got int"),
        (b'{"method": "echo"}', "key 'args': expected array, got null"),
        (b'{"method": "echo", "args": {"a": 1}}', "key 'args': expected array, got dict"),
    ],
)
def test_what_is_no_request_is_told_why(document: bytes, problem: str) -> None:
    with pytest.raises(UnreadableCallError) as caught:
        luxi.decode_call(document)
    assert caught.value.text.startswith(problem)
    assert "\n" not in caught.value.text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
calls = st.fixed_dictionaries(
    {},
    optional={"method": st.text() | values, "args": st.lists(values) | values, "version": values},
)


@given(st.binary() | calls.map(lambda call: json.dumps(call).encode()))
def test_a_document_is_a_request_or_refused_with_a_reason(document: bytes) -> None:
    try:
        call = luxi.decode_call(document)
    except UnreadableCallError as error:
        refusal = luxi.encode_unreadable(error.text)
        assert json.loads(refusal.removesuffix(luxi.END))["success"] is False
        return
    assert (type(call.method), type(call.args)) == (str, list)


def test_unknown_keys_and_the_version_are_ignored() -> None:
    document = json.dumps({"method": "a", "args": [1], "version": 3000000, "more": 1}).encode()
    assert luxi.decode_call(document) == Call("a", [1])


def test_what_was_sent_is_repeated_on_one_printable_line() -> None:
    text = "a\n\x7f\u2028\ud800é" + "x" * 10_000
    for encoded in (luxi.encode_unreadable(text), luxi.encode_error("GenericError", text)):
        result = str(json.loads(encoded.removesuffix(luxi.END))["result"])
        assert "a    éxxx" in result
        assert result.isprintable()
        assert len(result) < 5_000


def test_answers_have_the_recorded_shapes() -> None:
    assert luxi.encode_result(None) == b'{"success":true,"result":null}\x03'
    assert luxi.encode_error("GenericError", "text") == (
        b'{"success":false,"result":["GenericError",["text"]]}\x03'
    )
    assert luxi.encode_unreadable("why") == (
        b'{"success":false,"result":"Failed to parse request: why"}\x03'
    )
