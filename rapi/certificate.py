"""The certificate's file: a new one is in force for the next connection, a broken one is not."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any, cast

from ..storage import errors

if TYPE_CHECKING:
    from pathlib import Path

    from .notes import Notes


_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which `ssl` has no name."""


class CertificateFile:
    """TLS with the key and the certificate in a file. `DataDirectoryError` if there are none."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._version = _version(path)
        self.context, self.names = _read(path)

    def look(self) -> None:
        """Use the file as it is now. One that cannot be used leaves the old one in force."""
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self.context, self.names = _read(self._path)
        except errors.DataDirectoryError as error:
            self._notes.warning("the new certificate cannot be used", problem=error.text)
        else:
            self._notes.info("certificate read again")


def _read(path: Path) -> tuple[ssl.SSLContext, list[str]]:
    """TLS with the file, and the names that the certificate is for."""
    context = _context(path)
    return context, _names(context, path)


def _names(context: ssl.SSLContext, path: Path) -> list[str]:
    """The names in the certificate, as a client sees them: `ssl` reads no certificate else."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    # Trusted as it is, also when it is over: only the names matter.
    asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        asking.load_verify_locations(path)
        client = asking.wrap_bio(to_client, to_server)
        server = context.wrap_bio(to_server, to_client, server_side=True)
        for side in (client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        found = cast("dict[str, Any]", client.getpeercert() or {})
    except (OSError, ValueError):
        return []
    if "subjectAltName" in found:
        return [name for _kind, name in found["subjectAltName"]]
    return [
        name for part in found.get("subject", ()) for kind, name in part if kind == "commonName"
    ]


def _context(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password: a key with one would ask for it at a terminal.
        context.load_cert_chain(path, password="")
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise errors.DataDirectoryError(f"{path}: no usable key and certificate: {why}") from error
    return context


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
