"""What the configuration, the users file and the watcher's pause of Ganeti say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.storage.ganeti.importing.ganeti import DATA

from ganger.storage import errors
from ganger.storage.access import rapi_users
from ganger.storage.ganeti.importing import parts

CONFIG: dict[str, Any] = msgspec.json.decode((DATA / "config.data").read_bytes())


def read(**changes: Any) -> parts.FoundConfig:
    return parts.configuration(msgspec.json.encode({**CONFIG, **changes}), "/c")


def users(text: str, *, is_open_to_all: bool = False) -> parts.FoundUsers:
    return parts.users(text.encode(), "/u", is_open_to_all=is_open_to_all)


def test_a_recorded_configuration() -> None:
    found = read()
    assert (found.cluster, found.serial, found.rules) == ("cluster.example.com", 125, 6)
    assert parts.described(found.objects) == "3 groups, 1 node, 4 instances, 1 network"
    assert found.damage == []


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (2_160_000, "version 2160000 (Ganeti 2.16), expected 3000000 (Ganeti 3.0)"),
        (3_010_000, "version 3010000 (Ganeti 3.1), expected 3000000 (Ganeti 3.0)"),
        ("3000000", "not a configuration: version: expected 3000000"),
        (None, "not a configuration: version: expected 3000000"),
        (True, "expected 3000000"),
    ],
)
def test_another_version_is_refused(version: object, words: str) -> None:
    with pytest.raises(errors.DataDirectoryError) as refused:
        read(version=version)
    assert refused.value.text.startswith("/c: ")
    assert words in refused.value.text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version": 3000000}', b'{"version": 3000000, "cluster": []}']
)
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    with pytest.raises(errors.DataDirectoryError, match=r"^/c: "):
        parts.configuration(data, "/c")


@pytest.mark.parametrize("serial", [None, "7", -1, True, 1.0])
def test_a_configuration_without_a_serial_number_is_refused(serial: object) -> None:
    with pytest.raises(errors.DataDirectoryError, match="serial_no: expected a number from 0 on"):
        read(serial_no=serial)


def test_a_configuration_that_no_daemon_could_send_is_refused() -> None:
    with pytest.raises(errors.DataDirectoryError, match="nodes/u: expected an object, got int"):
        read(nodes={"u": 5})


def test_a_value_of_a_wrong_shape_is_damage() -> None:
    found = read(cluster={**CONFIG["cluster"], "beparams": [1]})
    assert [one.text for one in found.damage] == [
        "cluster.beparams: expected object | null, got array; what needs it would fail"
    ]


def test_contradictions_are_taken_over_with_a_note() -> None:
    (uuid,) = CONFIG["nodes"]
    node = {**CONFIG["nodes"][uuid], "group": "nowhere"}
    (note,) = [note for note in read(nodes={uuid: node}).notes if note.startswith("/c: ")]
    assert note.startswith("/c: contradicts itself and is taken over as it is: ")
    assert "nowhere" in note


def test_an_unreadable_rule_is_damage_because_it_would_not_be_obeyed() -> None:
    found = read(filters={**CONFIG["filters"], "x": {"uuid": "x", "action": "PAUSE"}})
    (damage,) = found.damage
    assert "filters['x']" in damage.text
    assert damage.text.endswith("; the rule would not be obeyed")
    assert found.rules == 7


def test_a_rule_that_means_more_here_has_a_note() -> None:
    def rule(predicates: object) -> dict[str, object]:
        return {"r": {"uuid": "r", "watermark": 0, "predicates": predicates, "action": "PAUSE"}}

    search = ["|", ["==", "reason", "a"], ["=~", "reason", "b"]]
    text = (
        "filter rule r: a regular expression (=~) on reason never matches in Ganeti; here it does"
    )
    assert text in read(filters=rule([["reason", search]])).notes
    assert text not in read(filters=rule([["opcode", ["=~", "OP_ID", "b"]]])).notes
    assert text not in read(filters=rule([["reason", ["==", "reason", "=~"]]])).notes
    assert text not in read(filters=rule("reason")).notes


def test_users_are_taken_over_with_their_comments() -> None:
    text = "# ours\njack abc123\n\njill {HA1}7ffc96d3ac8a3ff5b6d2d4bc5b3e1b1b write\n"
    found = users(text)
    assert (found.data.decode(), found.count, found.damage) == (text, 2, [])
    assert [user.name for user in rapi_users.parse(text).values()] == ["jack", "jill"]


def test_a_line_that_is_no_user_is_left_out_and_named_without_its_secret() -> None:
    found = users("jack abc123\nalone\njoe hidden wirte\njack other\njill x read\n")
    assert found.data == b"jack abc123\njill x read\n"
    assert found.count == 2
    known = "admin, exec, operate, read, write"
    assert [one.text for one in found.damage] == [
        "line 2: expected NAME SECRET [OPTION,...]; the user is left out",
        f"line 3: unknown option 'wirte'; known: {known}; the user is left out",
        "line 4: user jack is in line 1 already; the user is left out",
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (users("jack x\n", is_open_to_all=True), "every user may write into it"),
        (parts.users(b"j\xff x\n", "/u", is_open_to_all=False), "not UTF-8"),
        (users("#" * 20_000_000), "larger than"),
    ],
)
def test_a_users_file_that_cannot_be_trusted_gives_no_users(
    found: parts.FoundUsers, words: str
) -> None:
    assert (found.data, found.count) == (b"", 0)
    assert words in found.damage[0].text


@pytest.mark.parametrize(
    ("data", "until"),
    [(b"1800000000\n", 1_800_000_000), (b"", None), (b"nan", None), (b"1e300", None)],
)
def test_a_pause(data: bytes, until: float | None) -> None:
    assert parts.pause(data) == until
