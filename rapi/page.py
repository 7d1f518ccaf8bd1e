"""The page for browsers: files of this folder, without anything from elsewhere."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from .declarations import Call, Method, Resource, Right

_FOLDER = Path(__file__).parent
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

FILES = (
    "page.html",
    "page.css",
    "page.js",
    "page_api.js",
    "page_parts.js",
    "page_jobs.js",
    "page_rules.js",
    "page_charts.js",
)

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def file_answer(name: str) -> Response:
    """The answer with one of the page's files."""
    path = _FOLDER / name
    kind = f"{_KINDS[path.suffix]}; charset=utf-8"
    return Response(path.read_bytes(), headers={**_HEADERS, "Content-Type": kind})


def wants_page(call: Call) -> bool:
    """Whether a browser asks, and not a program."""
    return "text/html" in call.headers.get("accept", "")


def _file(name: str) -> Resource:
    async def serve(_: Call) -> Response:
        return file_answer(name)

    summary = f"The page's file {name}."
    method = Method(handler=serve, right=Right.NOTHING, summary=summary)
    return Resource(path=f"/{name}", is_own=True, methods={"GET": method})


RESOURCES = tuple(_file(name) for name in FILES)
