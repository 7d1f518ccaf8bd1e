"""Values from the JSON of a request, and the texts for wrong ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ganger.rapi import bodies, problems
from ganger.rapi.problems import HttpError
from ganger.storage import errors


def refused(code: int, text: str, function: Any, *arguments: Any) -> None:
    with pytest.raises(HttpError) as caught:
        function(*arguments)
    assert (caught.value.code, caught.value.text) == (code, text)


def test_a_body_that_must_be_there_is_an_object() -> None:
    assert bodies.mapping({"a": 1}) == {"a": 1}
    for body, kind in (([], "list"), (None, "NoneType"), ("x", "str"), (True, "bool")):
        text = f"Body contents: Type is '{kind}', but 'dict' is expected"
        refused(400, text, bodies.mapping, body)
    text = "Body contents: Missing, but 'dict' is expected"
    refused(400, text, bodies.mapping, msgspec.UNSET)


def test_null_and_nothing_stand_for_an_empty_object() -> None:
    assert bodies.optional_mapping(msgspec.UNSET) == bodies.optional_mapping(None) == {}
    refused(
        400,
        "Body contents: Type is 'list', but 'dict' is expected",
        bodies.optional_mapping,
        [],
    )


def test_a_parameter_has_its_type_or_its_default() -> None:
    assert bodies.parameter({"n": 0}, "n", int) == 0
    assert bodies.parameter({"n": None}, "n", int, 7) == 7
    assert bodies.parameter({}, "n", int, 7) == 7
    refused(400, "Required parameter 'n' is missing", bodies.parameter, {}, "n", int)
    for value, kind in ((True, "bool"), ("1", "str"), (1.0, "float")):
        text = f"'n' parameter: Type is '{kind}', but 'int' is expected"
        refused(400, text, bodies.parameter, {"n": value}, "n", int)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.FilterRuleError("no"), 502, "Failed to parse request: no"),
        (errors.ParameterError("no field"), 500, "no field"),
        (errors.UnknownObjectError("no node"), 500, "('no node', 'unknown_entity')"),
        (errors.BadRequestError("odd"), 500, "('odd', 'wrong_input')"),
        (errors.BusyError("later"), 503, "later"),
        (errors.DaemonUnreachableError("x"), 502, "The daemon cannot be reached"),
        (errors.DeadlineError("x"), 504, "The daemon has not answered in time"),
    ],
)
def test_an_error_of_a_query_is_told_as_ganeti_does(
    error: errors.GangerError, code: int, text: str
) -> None:
    found = problems.of_query(error)
    assert (found.code, found.text) == (code, text)
