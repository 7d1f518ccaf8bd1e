"""The verbs for queries, of both clients, against a small daemon with real sockets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.transport.client.fake_daemon import FakeDaemon

from ganger import Client
from ganger.storage import errors
from ganger.storage.query_views import FieldInfo


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("what", "message"),
    [("job", "QueryJobs"), ("lock", "QueryLocks"), ("node", "QueryConfiguration")],
)
def test_an_answer_is_joined_from_its_pages(client: Client, what: str, message: str) -> None:
    answer = client.query(what, ["id", "status"])
    assert [(field.name, field.title) for field in answer.fields] == [
        ("id", "ID"),
        ("status", "STATUS"),
    ]
    assert answer.data == [[(0, [message, page, None])] * 2 for page in (0, 2)]
    assert answer.items[1] == {"id": [message, 2, None], "status": [message, 2, None]}


@pytest.mark.usefixtures("daemon")
def test_rows_come_as_json_for_those_who_pass_them_on(client: Client) -> None:
    answer = client.query("job", ["id", "status"])
    fields, rows = client.query_json("job", ["id", "status"])
    assert fields == answer.fields
    assert msgspec.json.decode(rows) == [[list(pair) for pair in row] for row in answer.data]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, None),
        (["==", "id", 5], ["==", "id", 5]),
        ('id == 5 and "a" in tags', ["&", ["==", "id", 5], ["=[]", "tags", "a"]]),
    ],
)
def test_a_filter_is_json_or_text(client: Client, given: object, sent: object) -> None:
    assert client.query("job", ["id"], given).items[0]["id"][2] == sent


@pytest.mark.usefixtures("daemon")
def test_objects_are_joined_from_their_pages(client: Client) -> None:
    found = client.objects("nodes")
    assert found == [{"uuid": "nodes", "page": 0}, {"uuid": "nodes", "page": 2}]


@pytest.mark.usefixtures("daemon")
def test_fields_are_defined(client: Client) -> None:
    found = FieldInfo(name="id", title="ID", kind="other", doc="The id")
    assert client.query_fields("job", ["id"]) == [found]
    assert [field.name for field in client.query_fields("job")] == ["all"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("job", "id"), "fields: expected a list of names, got str"),
        (("job", ["id", 5]), "fields[1]: expected a name, got 5"),
        ((5, ["id"]), "what: expected a text, got int"),
        (("job", ["id"], "id =="), "filter: character 6: expected a number, or a text in quotes"),
        (("job", ["id"], {1: 2}), "filter: expected str as key, got int"),
    ],
)
def test_wrong_arguments_are_named(
    daemon: FakeDaemon, client: Client, arguments: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(errors.BadRequestError) as refused:
        client.query(*arguments)
    assert refused.value.text.startswith(text)
    assert daemon.store.specs == {}


def test_fields_to_define_are_checked(client: Client) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^what: expected a text, got int$"):
        client.query_fields(5)  # type: ignore[arg-type]
