"""Certificates of the remote API: self-signed ones. The only file with cryptography."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import re
import socket
from typing import TYPE_CHECKING

import msgspec

from .. import errors
from ..disk import documents

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_CLOCK_SKEW = dt.timedelta(days=1)
"""Clocks of clients may be behind ours."""

_OTHER_USES = dict.fromkeys(
    (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)
"""What the key is not for: it only signs, in the handshake of TLS."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may want to know of a certificate."""

    names: list[str]
    """The host names and addresses that it is for."""
    valid_until: str
    """The day, as YYYY-MM-DD."""
    fingerprint: str
    """SHA-256 of the certificate, as hexadecimal digits with colons."""


def create(
    path: Path, names: Iterable[str], *, days: int, is_replaced: bool = False
) -> Certificate:
    """Make a key and a certificate for these host names and addresses, in one private file.

    `BadRequestError`: there is one already, or a name cannot be in a certificate.
    """
    if path.exists() and not is_replaced:
        raise errors.BadRequestError(f"{path}: exists already")
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    chosen = list(dict.fromkeys(names))
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    until = now + dt.timedelta(days=days)
    made = _signed(key, chosen, now - _CLOCK_SKEW, until)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + made.public_bytes(serialization.Encoding.PEM)
    documents.replace(path, pem, flush=True, mode=documents.SECRET_MODE)
    return Certificate(
        names=chosen,
        valid_until=until.date().isoformat(),
        fingerprint=made.fingerprint(hashes.SHA256()).hex(":").upper(),
    )


def _signed(
    key: ec.EllipticCurvePrivateKey, names: list[str], since: dt.datetime, until: dt.datetime
) -> x509.Certificate:
    """The certificate of ``key`` for these names, signed by itself."""
    from cryptography import x509  # noqa: PLC0415 - only this command needs it
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    alternatives = [_general_name(name) for name in names]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ganger remote API")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **_OTHER_USES), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(authority, critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def own_names(address: str = "") -> list[str]:
    """The names and addresses by which this machine is called, and the address to listen at."""
    found = ["localhost", "127.0.0.1", "::1"]
    name = socket.gethostname()
    if _HOST.fullmatch(name):
        found.append(name)
    if address and not _is_any(address):
        found.append(address)
    return list(dict.fromkeys(found))


def _is_any(address: str) -> bool:
    """Whether the address stands for all of the machine's."""
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509  # noqa: PLC0415

    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    if not _HOST.fullmatch(name):
        raise errors.BadRequestError(f"{name!r}: expected a host name in ASCII, or an address")
    return x509.DNSName(name)
