"""starlette on uvicorn that sends back the bytes of the last POST: ``python -m`` runs it.

Arguments: the port, the file of key and certificate.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request


def main() -> None:
    """Serve until the process is ended."""
    port, certificate = int(sys.argv[1]), sys.argv[2]
    kept = [b"{}"]

    async def serve(request: Request) -> Response:
        if request.method == "POST":
            kept[0] = await request.body()
        return Response(kept[0], media_type="application/json")

    app = Starlette(routes=[Route("/{rest:path}", serve, methods=["GET", "POST"])])
    uvicorn.run(
        app,
        port=port,
        http="h11",
        ssl_certfile=certificate,
        ssl_keyfile=certificate,
        log_level="error",
        access_log=False,
    )


if __name__ == "__main__":
    main()
