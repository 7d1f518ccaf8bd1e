"""A page of another site cannot use the password that a browser keeps."""

from __future__ import annotations

import asyncio

import pytest
from tests.rapi.asked import Reply, ask, basic
from tests.rapi.test_role_matrix import app_for

from ganger.rapi.origins import is_foreign

OWN = {"host": "127.0.0.1:5080"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        (OWN, False),
        ({**OWN, "origin": "https://127.0.0.1:5080"}, False),
        ({**OWN, "origin": "https://127.0.0.1:5081"}, True),
        ({**OWN, "origin": "null"}, True),
        ({**OWN, "origin": "https://[broken"}, True),
        ({**OWN, "origin": "https://other.example"}, True),
        ({**OWN, "sec-fetch-site": "same-origin", "origin": "https://proxied.example"}, False),
        ({**OWN, "sec-fetch-site": "none"}, False),
        ({**OWN, "sec-fetch-site": "same-site"}, True),
        ({**OWN, "sec-fetch-site": "cross-site"}, True),
    ],
)
def test_only_pages_of_this_server_and_programs_are_no_strangers(
    headers: dict[str, str],
    expected: bool,  # noqa: FBT001
) -> None:
    assert is_foreign(headers) is expected


def asked(method: str, path: str, **headers: str) -> Reply:
    return asyncio.run(
        ask(app_for(), method, path, authorization=basic("admin", "admin"), more=headers)
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/2/filters"), ("POST", "/2/jobs/7/retry"), ("DELETE", "/2/jobs/7")],
)
def test_another_site_changes_nothing(method: str, path: str) -> None:
    assert asked(method, path).status == 200
    reply = asked(method, path, **{"sec-fetch-site": "cross-site"})
    assert (reply.status, reply.body["message"]) == (
        403,
        "Requests of other sites&#x27; pages are refused",
    )
    assert asked("GET", "/2/jobs", **{"sec-fetch-site": "cross-site"}).status == 200
