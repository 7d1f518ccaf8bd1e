"""Finds out who submits a job, from the credentials of the connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage import errors
from ...storage.access.submitters import key_owner, local_user

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ...storage.jobs.origins import Submitter
    from ...transport.messages import Message
    from ...transport.zmq.peers import Credentials

RAPI_KEEPER = "rapi_keeper"
"""The component whose process knows users of its own."""


class Submitters:
    """Knows the users behind connections."""

    def __init__(self, keys_directory: Path, processes: Mapping[str, int]) -> None:
        """``processes``: the daemon's own, by the component that keeps each."""
        self._keys = keys_directory
        self._processes = processes

    def named(self, message: Message, identity: Credentials) -> Message:
        """The message with who has sent it, whatever it says; the remote API names its users."""
        submitter: Submitter | None = getattr(message, "submitter", None)
        if submitter is not None and submitter.via == "rapi" and self._is_rapi(identity):
            return message
        fields: dict[str, Any] = {"submitter": self._submitter(identity)}
        return msgspec.structs.replace(message, **fields)

    def _is_rapi(self, identity: Credentials) -> bool:
        is_local = identity.kind == "local" and identity.uid == os.geteuid()
        return is_local and identity.pid == self._processes.get(RAPI_KEEPER)

    def check_key(self, identity: Credentials) -> None:
        """Raise `NotAllowedError` if the key of this remote client was revoked."""
        self._submitter(identity)

    def _submitter(self, identity: Credentials) -> Submitter:
        if identity.uid is not None:
            return local_user(identity.uid, "socket")
        assert identity.key is not None
        found = key_owner(self._keys, identity.key)
        if found is None:
            # Its connection was there before.
            raise errors.NotAllowedError("the key of this client was revoked")
        return found
