"""Dagster's web server, closed to other web pages.

Dagster takes GraphQL mutations by GET and checks neither Host nor Origin, so any page in the user's browser
could launch a run. `python -m assets.webserver` starts the same server, with its usual arguments, and checks
both.
"""

from __future__ import annotations

from dagster_webserver import app
from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from assets.own_pages import OwnPagesOnly


class Webserver(DagsterWebserver):
    """Add the check to Dagster's own middleware."""

    def build_middleware(self) -> list[Middleware]:
        return [Middleware(OwnPagesOnly), *super().build_middleware()]


if __name__ == "__main__":
    # Dagster's command line looks up this name
    app.DagsterWebserver = Webserver  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]
    main()
