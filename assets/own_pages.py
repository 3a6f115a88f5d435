"""Protect a local web server from other web pages in the user's browser."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
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
    try:
        host, origin = urlsplit(f"//{headers.get('host', '')}"), urlsplit(headers.get("origin", ""))
    except ValueError:  # such as an IPv6 address without its closing bracket
        return "no address"
    if host.hostname not in LOCAL:
        return "foreign Host"
    if headers.get("origin") and origin.netloc != host.netloc:
        return "foreign Origin"
    by_get = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith("/graphql")
    if by_get and "query" in parse_qs(scope["query_string"].decode("latin-1")):
        return "queries are taken by POST"
    return ""
