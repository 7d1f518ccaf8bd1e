"""Where hosts find the master: what an invitation may say, and what it says by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import errors
from ...storage.access import endpoints
from ..processes import machine

if TYPE_CHECKING:
    from ...transport import messages


def check(message: messages.InviteNode) -> None:
    """Raise `BadRequestError` if an endpoint of the invitation can be none."""
    problems = [endpoints.problem(one, is_listening=False) for one in message.announced]
    if message.endpoint:
        problems.append(endpoints.problem(message.endpoint, is_listening=True))
    for problem in filter(None, problems):
        raise errors.BadRequestError(problem)


def own_endpoints(endpoint: str) -> list[str]:
    """Where hosts may find this machine, if it listens at ``endpoint``."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if host.strip("[]") not in ("0.0.0.0", "::", "*"):  # noqa: S104 - what the operator has said
        return [endpoint]
    found = [*machine.addresses(), machine.host_name()]
    return [f"tcp://{f'[{one}]' if ':' in one else one}:{port}" for one in dict.fromkeys(found)]
