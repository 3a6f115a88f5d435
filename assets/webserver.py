"""Dagster's web server, closed to other web pages.

Dagster takes GraphQL mutations by GET and checks neither Host nor Origin, so any page in the user's browser
could launch a run. This module starts the same server behind a check of both: `python -m assets.webserver`,
with its usual arguments.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from dagster_webserver import app
from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = {"127.0.0.1", "localhost", "::1"}


class OwnPagesOnly:
    """Refuse requests with a foreign Host or Origin, and GraphQL queries by GET."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (reason := refusal(scope)):
            if scope["type"] == "http":
                await PlainTextResponse(reason, status_code=403)(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
        await self.app(scope, receive, send)


def refusal(scope: Scope) -> str:
    """Return why a request is refused, or an empty string."""
    headers = Headers(scope=scope)
    host = urlsplit(f"//{headers.get('host', '')}")
    if host.hostname not in LOCAL:
        return "foreign Host"
    origin = headers.get("origin")
    if origin and urlsplit(origin).netloc != host.netloc:
        return "foreign Origin"
    by_get = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith("/graphql")
    if by_get and "query" in parse_qs(scope["query_string"].decode("latin-1")):
        return "queries are taken by POST"
    return ""


class Webserver(DagsterWebserver):
    """Add the check to Dagster's own middleware."""

    def build_middleware(self) -> list[Middleware]:
        return [Middleware(OwnPagesOnly), *super().build_middleware()]


if __name__ == "__main__":
    # The name that Dagster's command line looks up
    app.DagsterWebserver = Webserver  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
    main()
