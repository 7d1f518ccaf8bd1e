"""The tree of errors: branches, codes, and how errors travel."""

from __future__ import annotations

import pytest

from ganger.storage import errors

KNOWN = errors._tree(errors.GangerError)
BRANCHES = (errors.BadRequestError, errors.TryAgainError, errors.OperatorError)


@pytest.mark.parametrize("kind", KNOWN.values())
def test_the_docstring_is_the_default_sentence(kind: type[errors.GangerError]) -> None:
    text = kind().text
    assert text.endswith(".")
    assert "\n" not in text
    assert kind("Another.").text == "Another." == str(kind("Another."))


@pytest.mark.parametrize(
    "kind", [kind for kind in KNOWN.values() if kind is not errors.GangerError]
)
def test_each_error_is_in_the_branch_of_the_one_who_acts(kind: type[errors.GangerError]) -> None:
    assert sum(issubclass(kind, branch) for branch in BRANCHES) == 1


@pytest.mark.parametrize("kind", KNOWN.values())
def test_an_error_comes_over_the_wire_as_itself(kind: type[errors.GangerError]) -> None:
    sent = kind("what happened")
    received = errors.from_wire(sent.name, sent.text)
    assert type(received) is kind
    assert received.text == "what happened"


@pytest.mark.parametrize("name", ["NoSuchError", "", "Exception", "ValueError"])
def test_an_unknown_name_is_an_error_all_the_same(name: str) -> None:
    received = errors.from_wire(name, "what happened")
    assert type(received) is errors.GangerError
    assert received.text == "what happened"


def test_an_empty_text_stays_empty() -> None:
    assert errors.BusyError("").text == ""


def test_the_names_are_unique() -> None:
    # A name is all that travels.
    assert len(KNOWN) == len({kind.__qualname__ for kind in KNOWN.values()})


@pytest.mark.parametrize("kind", KNOWN.values())
def test_codes_are_valid_for_shells_and_browsers(kind: type[errors.GangerError]) -> None:
    assert 0 < kind.exit_code < 126
    assert 400 <= kind.http_status <= 599
    is_callers = issubclass(kind, errors.BadRequestError)
    assert (kind.http_status < 500) == is_callers
    assert kind.luxi_name


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.OpcodeError, 1),
        (errors.InputLostError, 1),
        (errors.UsageError, 2),
        (errors.DaemonUnreachableError, 1),
        (errors.DataDirectoryError, 1),
        (errors.OperatorError, 70),
        (errors.ReadOnlyError, 74),
        (errors.BusyError, 75),
        (errors.DeadlineError, 124),
    ],
)
def test_the_documented_exit_codes(kind: type[errors.GangerError], code: int) -> None:
    assert kind.exit_code == code
