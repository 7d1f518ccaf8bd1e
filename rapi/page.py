"""The page for browsers: files of this folder, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
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
    "page_state.js",
    "page_words.js",
    "page_jobs.js",
    "page_job.js",
    "page_submit.js",
    "page_rules.js",
    "page_locks.js",
    "page_timeline.js",
)

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def file_answer(name: str) -> Response:
    """The answer with one of the page's files."""
    path = _FOLDER / name
    kind = f"{_KINDS[path.suffix]}; charset=utf-8"
    return Response(path.read_bytes(), headers={**_HEADERS, "Content-Type": kind})


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether somebody asks who wants to see a page, and not a program."""
    return "text/html" in headers.get("accept", "")


async def _entrance(call: Call) -> Response | None:
    """The page for users who take anything, such as curl's; programs get null, as from Ganeti."""
    wanted = call.headers.get("accept", "")
    return file_answer("page.html") if "*/*" in wanted and "json" not in wanted else None


RESOURCES = (
    Resource(
        path="/",
        page="page.html",
        methods={
            "GET": Method(
                handler=_entrance,
                right=Right.READ,
                summary="Null; browsers, and who takes anything, get a page.",
            )
        },
    ),
    *(Resource(path=f"/{name}", page=name, is_own=True, methods={}) for name in FILES),
)
