"""By which names clients may ask for the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from tests.rapi.asked import Reply, ask
from tests.rapi.noted import Noted
from tests.rapi.test_role_matrix import app_for

from ganger.rapi.certificate import CertificateFile
from ganger.rapi.hosts import Hosts
from ganger.storage.access import rapi_certificates

HOSTS = Hosts(["rapi.example.com", "Second.example.com"])


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "LOCALHOST:5080",
        "localhost.:5080",
        "ganger.localhost",
        "127.0.0.1:5080",
        "127.0.0.2",
        "192.0.2.7:5080",
        "[::1]:5080",
        "[2001:db8::7]",
        "rapi.example.com:5080",
        "second.EXAMPLE.com.",
        "node.certified.example:1",
        "exact.example",
    ],
)
def test_own_names_and_every_address_are_taken(header: str) -> None:
    hosts = Hosts(["rapi.example.com", "Second.example.com"])
    hosts.certify(["*.certified.example", "exact.example"])
    assert hosts.refusal(header) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "evil.example:5080",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "rapi.example.com.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "evil.example/localhost",
        "evil.example\\@localhost",
        "example.com",
        "a.b.certified.example",
        "certified.example",
        "[::1",
        "localhost:port",
        "0x7f000001",
        "2130706433",
        "loc\u0131lhost",
        "localhost,evil.example",
        "localhost evil.example",
    ],
)
def test_other_names_are_refused_with_what_to_set(header: str) -> None:
    HOSTS.certify(["*.certified.example"])
    text = HOSTS.refusal(header)
    assert text is not None
    assert text.endswith(
        "in Host is none of this server's: add it with 'ganger up --rapi-host NAME', "
        "or use a name of the certificate, or an address"
    )


def test_a_refusal_repeats_only_the_beginning_of_a_name() -> None:
    assert len(HOSTS.refusal("x" * 60_000) or "") < 250


@pytest.mark.parametrize("path", ["/", "/page.js", "/healthz", "/2/jobs", "/nothing"])
def test_a_foreign_name_gets_no_page_and_no_error_of_its_own(path: str) -> None:
    more = {"host": "evil.example", "accept": "text/html"}
    reply = asked(path, more)
    assert (reply.status, reply.body["code"]) == (421, 421)
    assert "evil.example" in reply.body["message"]


@pytest.mark.parametrize("path", ["/", "/page.js", "/healthz", "/2/jobs", "/nothing"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_two_lengths_are_refused_before_anything_else_is_looked_at(path: str, host: str) -> None:
    more = {"transfer-encoding": "chunked", "content-length": "0", "host": host}
    reply = asked(path, {**more, "accept": "text/html", "authorization": "nonsense"})
    assert (reply.status, reply.headers["connection"]) == (400, "close")
    assert reply.body["message"] == "The request has two lengths"


def asked(path: str, more: dict[str, str]) -> Reply:
    return asyncio.run(ask(app_for(), "GET", path, more=more))


def test_every_answer_says_that_nobody_keeps_it_or_guesses_its_type() -> None:
    for path in ("/healthz", "/nothing", "/2/jobs"):
        headers = asked(path, {}).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
    page = asked("/page.js", {"accept": "text/html"}).headers
    assert (page["cache-control"], page["x-content-type-options"]) == ("no-cache", "nosniff")


@pytest.mark.parametrize("days", [30, -1])
def test_the_names_are_those_of_the_certificate_also_when_it_is_over(
    tmp_path: Path, days: int
) -> None:
    path = tmp_path / "rapi.pem"
    names = ["localhost", "127.0.0.1", "web.example.com", "*.example.org"]
    rapi_certificates.create(path, names, days=days)
    file = CertificateFile(path, cast("Any", Noted()))
    assert file.names == names
    rapi_certificates.create(path, ["new.example.com"], days=30, is_replaced=True)
    file.look()
    assert file.names == ["new.example.com"]


def test_a_certificate_of_another_ones_has_names_too(tmp_path: Path) -> None:
    """A chain: the server's own certificate comes first, then that of who has signed it."""
    path, other = tmp_path / "rapi.pem", tmp_path / "other.pem"
    rapi_certificates.create(path, ["web.example.com"], days=30)
    rapi_certificates.create(other, ["ca.example.com"], days=30)
    begin = other.read_text().index("-----BEGIN CERTIFICATE")
    path.write_text(path.read_text() + other.read_text()[begin:])
    assert CertificateFile(path, cast("Any", Noted())).names == ["web.example.com"]
