"""The certificate that Ganger makes: clients that check it strictly accept it, for its names."""

from __future__ import annotations

import datetime as dt
import hashlib
import ssl
from pathlib import Path

import pytest

from ganger.storage import errors
from ganger.storage.access import rapi_certificates


@pytest.fixture(name="path", scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "rapi.pem"
    names = ["localhost", "127.0.0.1", "::1", "*.example.org"]
    rapi_certificates.create(path, names, days=10)
    return path


def handshake(path: Path, name: str) -> str | None:
    """The version of TLS that both sides agree on; the client checks all it can."""
    client = ssl.create_default_context(cafile=path)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[0].version()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "node1.example.org"])
def test_a_strict_client_accepts_it_for_each_name(path: Path, name: str) -> None:
    assert handshake(path, name) == "TLSv1.3"


@pytest.mark.parametrize("name", ["example.com", "127.0.0.2"])
def test_it_is_for_no_other_name(path: Path, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(path, name)


def test_it_is_private_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rapi.pem"
    found = rapi_certificates.create(path, ["localhost", "localhost"], days=10)
    assert path.stat().st_mode & 0o777 == 0o600
    assert found.names == ["localhost"]
    day = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=10)
    assert dt.date.fromisoformat(found.valid_until) in {day, day - dt.timedelta(days=1)}
    text = path.read_text()
    der = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])
    assert found.fingerprint.replace(":", "").lower() == hashlib.sha256(der).hexdigest()


def test_one_that_is_there_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "rapi.pem"
    rapi_certificates.create(path, ["localhost"], days=10)
    before = path.read_bytes()
    with pytest.raises(errors.BadRequestError, match="exists already"):
        rapi_certificates.create(path, ["localhost"], days=10)
    assert path.read_bytes() == before
    rapi_certificates.create(path, ["localhost"], days=10, is_replaced=True)
    assert path.read_bytes() != before


@pytest.mark.parametrize("name", ["", "a b", "ä", "-a", "http://a", "x" * 300, "a,b"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.BadRequestError, match="expected a host name in ASCII"):
        rapi_certificates.create(tmp_path / "rapi.pem", [name], days=10)
    assert not (tmp_path / "rapi.pem").exists()


def test_own_names_have_the_address_that_is_listened_at_but_not_all_addresses() -> None:
    assert "192.0.2.7" in rapi_certificates.own_names("192.0.2.7")
    for everything in ("0.0.0.0", "::", ""):
        found = rapi_certificates.own_names(everything)
        assert everything not in found
        assert found[:3] == ["localhost", "127.0.0.1", "::1"]


def test_a_host_name_that_no_certificate_can_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "büro")
    assert rapi_certificates.own_names() == ["localhost", "127.0.0.1", "::1"]
