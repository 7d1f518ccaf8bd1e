"""The ASGI application: finds the resource, checks user, rights, parameters and body, answers."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path

from ..storage import errors
from ..storage.access import rapi_settings
from ..storage.access.rapi_users import NOBODY, User
from . import origins, page, problems, roles, scopes
from .declarations import Call, Method, Resource, Right, fits
from .event_streams import EventStream
from .hosts import Hosts
from .problems import HttpError

if TYPE_CHECKING:
    import re

    from starlette.types import ASGIApp, Receive, Scope, Send

    from .authentication import Authentication
    from .notes import Notes
    from .views import Views

JSON = "application/json"
_LOOKS = ("GET", "HEAD")
_FORBIDDEN = 403
_encode = msgspec.json.Encoder().encode


class Number(Convertor[str]):
    """A number in a path, as its digits: any number can be asked for."""

    regex = "[0-9]{1,100}"

    def convert(self, value: str) -> str:
        """The digits."""
        return value

    def to_string(self, value: str) -> str:
        """The digits."""
        return value


register_url_convertor("int", Number())


_Pattern = tuple["re.Pattern[str]", "_Endpoint"]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What all resources of one process share."""

    authentication: Authentication
    notes: Notes
    """The daemon's log."""
    views: Views
    shared: Mapping[type, Any] = {}
    """What all requests share, as in `Call.shared`; a view adds what its users may see."""


def application(
    resources: Sequence[Resource], service: Service, hosts: Hosts | None = None
) -> ASGIApp:
    """The application that serves these resources at these names."""
    return _Router(resources, service, hosts or Hosts())


class _Router:
    """Finds the resource of a path: with starlette's patterns, but not by trying one by one."""

    def __init__(self, resources: Sequence[Resource], service: Service, hosts: Hosts) -> None:
        self._hosts = hosts
        self._fixed: dict[str, _Endpoint] = {}
        self._varying: dict[tuple[int, str], list[_Pattern]] = {}
        for resource in resources:
            endpoint = _Endpoint(resource, service)
            pattern, _, _ = compile_path(resource.path)
            if "{" not in resource.path:
                self._fixed.setdefault(resource.path, endpoint)
            else:
                self._varying.setdefault(_kind(resource.path), []).append((pattern, endpoint))
        self._missing = _Endpoint(None, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refused := self._refusal(scope)) is not None:
            await _secured(error_answer(refused))(scope, receive, send)
            return
        path = scope["path"]
        endpoint, scope["path_params"] = self._found(path)
        await endpoint(scope, receive, send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        """Why nothing of the request is looked at, whatever it asks for."""
        names = [name for name, _ in scope["headers"]]
        if b"transfer-encoding" in names and b"content-length" in names:
            # A proxy between us and the client may have believed the other one.
            return HttpError(400, "The request has two lengths", {"Connection": "close"})
        for name, value in scope["headers"]:
            if name == b"host" and (text := self._hosts.refusal(value.decode("latin-1"))):
                return HttpError(421, text, {"Connection": "close"})
        return None

    def _found(self, path: str) -> tuple[_Endpoint, dict[str, str]]:
        if (fixed := self._fixed.get(path)) is not None:
            return fixed, {}
        for pattern, endpoint in self._varying.get(_kind(path), ()):
            if (match := pattern.fullmatch(path)) is not None:
                return endpoint, match.groupdict()
        return self._missing, {}


def _kind(path: str) -> tuple[int, str]:
    """What a path has in common with the declared one: how many parts, and the second of them.

    >>> _kind("/2/jobs/{job_id:int}"), _kind("/2/jobs/17")
    ((3, 'jobs'), (3, 'jobs'))
    """
    parts = path.split("/", 3)
    return path.count("/"), parts[2] if len(parts) > 2 else ""  # noqa: PLR2004


def answer(value: object, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, with a newline behind it, as Ganeti writes it."""
    return Response(_encode(value) + b"\n", code, dict(headers or {}), JSON)


def error_answer(error: HttpError) -> Response:
    """The answer to a request that is refused."""
    return answer(problems.body(error.code, error.text), error.code, error.headers)


def _secured(response: Response) -> Response:
    """The answer; nobody keeps it, or guesses another type, unless it says how."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    return response


class _Endpoint:
    """Answers the requests for one resource; None: for a path that has none."""

    def __init__(self, resource: Resource | None, service: Service) -> None:
        self._resource = resource
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except HttpError as error:
            if "x-requested-with" in request.headers:
                # A script asks for the password itself; the browser must not.
                error.headers.pop("WWW-Authenticate", None)
            response = error_answer(error)
        except errors.GangerError as error:
            response = error_answer(problems.of(error))
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the request fails alone, and the log has it
            # Without its text, in which there may be a part of the request.
            kind, where = type(error).__name__, _place(error)
            self._service.notes.error("request failed", path=scope["path"], error=kind, where=where)
            response = error_answer(HttpError(500))
        await _secured(response)(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if (found := self._file(request)) is not None:
            return found
        user = await self._service.authentication.user(request)
        method = self._method(request, user)
        if request.method not in _LOOKS and origins.is_foreign(request.headers):
            raise HttpError(403, "Requests of other sites' pages are refused")
        try:
            return await self._answer(request, user, method)
        except HttpError as error:
            if error.code != _FORBIDDEN:
                raise
            if user is NOBODY:
                raise self._service.authentication.demand() from error
            self._service.notes.warning("request refused", user=user.name, why=error.text)
            raise

    async def _answer(self, request: Request, user: User, method: Method) -> Response:
        query = _query(request)
        body = await _body(request, user)
        _check(roles.refusal(user, method.right, method.opcodes))
        view = self._service.views.of(user)
        call = Call(
            client=view.client,
            user=user,
            resource=self._resource.path if self._resource else "",
            path=request.path_params,
            query=query,
            body=body if method.reads is None else method.reads(body),
            headers=dict(request.headers),
            shared={**self._service.shared, **view.shared},
        )
        call = await scopes.settled(call, method.right)
        _check(await scopes.refusal(call, method.right))
        found = await method.handler(call)
        if isinstance(found, EventStream):
            found.may_go_on = lambda: self._service.authentication.current(user) is not None
        return found if isinstance(found, Response) else answer(found)

    def _file(self, request: Request) -> Response | None:
        """The page's file, for a browser that asks for it; it has no secrets."""
        if self._resource is None or not self._resource.page or request.method not in _LOOKS:
            return None
        is_asked = not self._resource.methods or page.is_browser(request.headers)
        return page.file_answer(self._resource.page) if is_asked else None

    def _method(self, request: Request, user: User) -> Method:
        if self._resource is None or not fits(request.path_params):
            if user is NOBODY:
                self._service.authentication.require(user, Right.READ)
            raise HttpError(404)
        name = "GET" if request.method == "HEAD" else request.method
        method = self._resource.methods.get(name)
        if method is None:
            path = request.scope["path"]
            raise HttpError(501, f"Method {request.method} is unsupported for path {path}")
        self._service.authentication.require(user, method.right)
        return method


def _check(refused: str | None) -> None:
    """`HttpError` 403 if there is a reason to refuse the request."""
    if refused is not None:
        raise HttpError(_FORBIDDEN, refused)


def _place(error: Exception) -> str:
    """The line of code that has raised it."""
    [*_, (frame, line)] = traceback.walk_tb(error.__traceback__)
    return f"{PurePath(frame.f_code.co_filename).name}:{line}"


def _query(request: Request) -> dict[str, list[str]]:
    """The parameters of the query string; empty values count as not given."""
    found: dict[str, list[str]] = {}
    # Not of `request.url`, which begins with what the client says is our name.
    for name, value in parse_qsl(request.scope["query_string"].decode()):
        found.setdefault(name, []).append(value)
    return found


async def _body(request: Request, user: User) -> Any:  # noqa: ANN401 - JSON
    """The body's JSON; UNSET without a body. `HttpError` for what is none."""
    # Who is not known must not fill the memory.
    known = rapi_settings.BODY_BYTES_MAX
    most = rapi_settings.BODY_BYTES_MAX_OF_NOBODY if user is NOBODY else known
    data = await _data(request, most)
    if not data:
        return msgspec.UNSET
    if request.headers.get("content-type", "").lower() != JSON:
        raise HttpError(415)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HttpError(400, "Unable to parse JSON data") from error


async def _data(request: Request, most: int) -> bytes:
    """The body. `HttpError` 413 if it is too large.

    Most of a body that is too large is read all the same: many clients see the answer only when
    they have sent everything.
    """
    declared = int(request.headers.get("content-length", "0"))
    is_asking = request.headers.get("expect", "").lower() == "100-continue"
    if declared > (most if is_asking else rapi_settings.BODY_DISCARDED_MAX):
        raise _too_large(most)
    data, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            data += part
        elif size > rapi_settings.BODY_DISCARDED_MAX:
            break
    if size > most:
        raise _too_large(most)
    return bytes(data)


def _too_large(most: int) -> HttpError:
    text = f"Request body is larger than {most} bytes"
    return HttpError(413, text, {"Connection": "close"})
