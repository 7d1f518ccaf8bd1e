"""The certificate's file: a new one is in force for the next connection, a broken one is not."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ..storage import errors

if TYPE_CHECKING:
    from pathlib import Path

    from .notes import Notes


class CertificateFile:
    """TLS with the key and the certificate in a file. `DataDirectoryError` if there are none."""

    def __init__(self, path: Path, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._version = _version(path)
        self.context = _context(path)

    def look(self) -> None:
        """Use the file as it is now. One that cannot be used leaves the old one in force."""
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self.context = _context(self._path)
        except errors.DataDirectoryError as error:
            self._notes.warning("the new certificate cannot be used", problem=error.text)
        else:
            self._notes.info("certificate read again")


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
