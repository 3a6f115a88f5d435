"""Take the pictures of Dagster, MLflow and the report after `make repro`, with headless Chromium.

    python scripts/screens.py FOLDER ROW     # the pictures' folder, a row of `evaluate`; needs `chromium`

A picture is taken once the page shows the expected text. A page that never does, or an asset that is out of
sync, ends this with one line.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from websockets.sync.client import connect

ROOT = Path(__file__).parents[1]
FLAGS = ["headless", "no-sandbox", "disable-gpu", "disable-background-networking", "hide-scrollbars"]
PATIENCE = 120  # seconds that a page may take
CLOSE = (
    "document.querySelector('[aria-label=\"Close\"]')?.click()"  # MLflow's assistant covers a third of a page
)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def started(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process group of its own until the block ends."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


@contextmanager
def user_interfaces() -> Iterator[tuple[str, str]]:
    """Run `make ui` on free ports; yield the addresses of Dagster and of MLflow's table of runs."""
    ports = {"DAGSTER_PORT": str(free_port()), "MLFLOW_PORT": str(free_port())}
    with started("scripts/ui", **ports) as ui:
        addresses = {}
        for line in ui.stdout or ():
            if (words := line.split())[:1] in (["Dagster"], ["MLflow"]):
                addresses[words[0]] = words[1]
            if "Ctrl-C stops" in line:
                break
        else:
            sys.exit("screens: `make ui` did not come up")
        yield addresses["Dagster"], addresses["MLflow"]


class Browser:
    """A page of headless Chromium, driven over its DevTools protocol."""

    def __init__(self, port: int) -> None:
        for _ in range(PATIENCE):
            try:
                with urlopen(f"http://127.0.0.1:{port}/json/list") as pages:
                    [page] = [p for p in json.load(pages) if p["type"] == "page"]
                break
            except (OSError, ValueError):
                time.sleep(1)
        else:
            sys.exit("screens: chromium did not come up")
        self._socket, self._calls = connect(page["webSocketDebuggerUrl"], max_size=None, legacy=True), 0

    def call(self, method: str, **parameters: object) -> dict:
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while (said := json.loads(self._socket.recv())).get("id") != self._calls:
            pass
        return said.get("result", {})

    def text(self) -> str:
        return self.call("Runtime.evaluate", expression="document.body.innerText")["result"].get("value", "")

    def open(self, address: str, shows: str, width: int, height: int) -> str:
        """Open a page and return its text once it contains `shows`."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)
        for _ in range(PATIENCE):
            time.sleep(1)
            if shows in (text := self.text()):
                time.sleep(2)  # pictures are drawn after the text
                return text
        sys.exit(f"screens: {address} does not show {shows!r}")

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        port = free_port()
        flags = [*FLAGS, f"user-data-dir={profile}", f"remote-debugging-port={port}"]
        with started("chromium", *(f"--{flag}" for flag in flags), "about:blank"):
            yield Browser(port)


def screens(folder: Path, row: str) -> None:
    report = (ROOT / "report/report.html").as_uri()
    with user_interfaces() as (dagster, mlflow), browser() as page:
        for name, address, shows, size in (
            ("graph", f"{dagster}/asset-groups", "evaluate", (1400, 900)),
            ("dagster", f"{dagster}/assets/evaluate/{row}?view=overview", "metrics/top1", (1400, 1000)),
            ("mlflow", mlflow, "translation/top1", (1400, 700)),
            ("report", report, "what was found", (1200, 1500)),
            ("report-phone", report, "what was found", (390, 844)),
        ):
            if "Unsynced" in page.open(address, shows, *size):
                sys.exit(f"screens: {address} is out of sync: make repro")
            page.call("Runtime.evaluate", expression=CLOSE)
            time.sleep(1)
            page.picture(folder / f"{name}.png")


if __name__ == "__main__":
    screens(Path(sys.argv[1]), sys.argv[2])
