"""Errors of the remote API: status code and body as Ganeti's. Pure. Source: Ganeti 3.0, RAPI."""

from __future__ import annotations

import html

from ..storage import errors
from ..storage.wording import one_line

EXPLANATIONS = {
    400: ("Bad Request", "Bad request syntax or unsupported method"),
    401: ("Unauthorized", "No permission -- see authorization schemes"),
    403: ("Forbidden", "Request forbidden -- authorization will not help"),
    404: ("Not Found", "Nothing matches the given URI"),
    408: ("Request Timeout", "Request timed out; try again later"),
    409: ("Conflict", "Request conflict"),
    411: ("Length Required", "Client must specify Content-Length"),
    413: ("Request Entity Too Large", "Entity is too large"),
    415: ("Unsupported Media Type", "Entity body in unsupported format"),
    421: ("Misdirected Request", "The request was directed at another server"),
    431: ("Request Header Fields Too Large", "The server is unwilling to process the request."),
    500: ("Internal Server Error", "Server got itself in trouble"),
    501: ("Not Implemented", "Server does not support this operation"),
    502: ("Bad Gateway", "Invalid responses from another server/proxy"),
    503: ("Service Unavailable", "The server cannot process the request due to a high load"),
    504: ("Gateway Timeout", "The gateway server did not receive a timely response"),
}
"""The short phrase and the explanation of each code, as Ganeti's server sends them."""


class HttpError(Exception):
    """A request is answered with an error: a status code, and a text for people."""

    def __init__(self, code: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = headers or {}


def body(code: int, text: str = "") -> dict[str, object]:
    """The JSON of an error; without ``text`` the message is the code's short phrase.

    >>> body(404)
    {'code': 404, 'message': 'Not Found', 'explain': 'Nothing matches the given URI'}
    """
    phrase, explanation = EXPLANATIONS[code]
    # It may repeat what the client has sent.
    message = html.escape(one_line(text) or phrase)
    return {"code": code, "message": message, "explain": explanation}


def of(error: errors.GangerError) -> HttpError:
    """The answer to a request that the daemon, or the client library, has refused."""
    match error:
        case errors.DaemonUnreachableError():
            return HttpError(502, "The daemon cannot be reached")
        case errors.DeadlineError():
            return HttpError(504, "The daemon has not answered in time")
        case errors.OperationMissingError():
            # The request is fine: elsewhere it would be served.
            return HttpError(501, error.text)
    return HttpError(error.http_status, error.text)


def of_query(error: errors.GangerError) -> HttpError:
    """The answer to a request that Ganeti's web server would pass on to LuxiD.

    LuxiD's errors are 500, and 502 where it cannot read the request. An error with a kind shows as
    the pair of both.

    >>> of_query(errors.UnknownObjectError("Node name x not found")).text
    "('Node name x not found', 'unknown_entity')"
    """
    match error:
        case errors.NotAllowedError():
            return HttpError(403, error.text)
        case errors.FilterRuleError():
            return HttpError(502, f"Failed to parse request: {error.text}")
        case errors.BadRequestError(luxi_name="OpPrereqError"):
            return HttpError(500, str((error.text, error.error_code)))
        case errors.BadRequestError():
            return HttpError(500, error.text)
    return of(error)
