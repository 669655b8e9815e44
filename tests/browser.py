"""A headless Chromium over its debugging socket: just what the book's tests need.

python tests/browser.py PAGE OUT.png [--width 390] [--height 900] [--dark] [--full]
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import http.server
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab; `events` holds what the browser reported since the last `open`."""

    def __init__(self, program: str, profile: Path) -> None:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        port_file = profile / "DevToolsActivePort"
        limit = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().count("\n")):
            if time.monotonic() > limit or self.process.poll() is not None:
                raise RuntimeError(f"{program} did not start")
            time.sleep(0.1)
        port = port_file.read_text().split()[0]
        address = f"http://127.0.0.1:{port}/json/new?about:blank"
        asked = urllib.request.Request(address, method="PUT")
        with urllib.request.urlopen(asked) as answer:
            tab = json.load(answer)
        self.socket = websocket.create_connection(
            tab["webSocketDebuggerUrl"], suppress_origin=True, timeout=60
        )
        self.numbers, self.events = itertools.count(1), list[dict[str, Any]]()
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, keep the events that come before its answer."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        self.socket.send(json.dumps(message))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def js(self, code: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{code}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, code: str, seconds: float = 20) -> bool:
        """Wait for an expression to become true."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self.js(code):
                return True
            time.sleep(0.05)
        return False

    def resize(self, width: int, height: int = 900, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def open(self, url: str) -> None:
        """Load a page and wait for its scripts and its mathematics."""
        self.call("Page.navigate", url="about:blank")
        self.until("document.readyState == 'complete' && location.href == 'about:blank'")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")
        self.js("window.MathJax && MathJax.startup ? MathJax.startup.promise : 0")
        self.js("new Promise(done => setTimeout(done, 150))")  # late requests

    def dark(self, on: bool = True) -> None:
        mode = "dark" if on else "light"
        self.js(f"document.documentElement.dataset.theme = '{mode}'")

    def screenshot(self, path: Path, full: bool = False) -> None:
        if full:  # a window as high as the page
            width, height = self.js("[innerWidth, document.body.scrollHeight]")
            self.resize(width, height, phone=width < 600)
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(picture))

    def reports(self, kind: str) -> list[dict[str, Any]]:
        return [e["params"] for e in self.events if e["method"] == kind]

    def trouble(self, base: str) -> list[str]:
        """Console errors, failed requests, and requests to any other place."""
        found = []
        for event in self.reports("Runtime.exceptionThrown"):
            error = event["exceptionDetails"].get("exception", {})
            found.append(f"exception: {error.get('description')}")
        for event in self.reports("Runtime.consoleAPICalled"):
            if event["type"] in ("error", "assert"):
                found.append(f"console: {event['args']}")
        for event in self.reports("Log.entryAdded"):
            if event["entry"]["level"] == "error":
                text = event["entry"]["text"]
                found.append(f"log: {text} {event['entry'].get('url', '')}")
        for event in self.reports("Network.requestWillBeSent"):
            url = event["request"]["url"]
            if not url.startswith((base, "data:", "blob:", "about:")):
                found.append(f"foreign request: {url[:200]}")
        for event in self.reports("Network.responseReceived"):
            if event["response"]["status"] >= 400:
                found.append(f"failed request: {event['response']['url'][:200]}")
        found += [
            f"failed request: {e['errorText']}"
            for e in self.reports("Network.loadingFailed")
            if not e.get("canceled")
        ]
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a new profile, closed at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        started = Browser(find_chromium() or "chromium", Path(profile))
        try:
            yield started
        finally:
            started.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder on a port of this machine; gives its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--full", action="store_true", help="the whole page")
    options = parser.parse_args()
    with served(options.page.parent) as base, browser() as tab:
        tab.resize(options.width, options.height, phone=options.width < 600)
        tab.open(f"{base}/{options.page.name}")
        tab.dark(options.dark)
        time.sleep(0.3)
        tab.screenshot(options.out, options.full)
        print("\n".join(tab.trouble(base)) or "no trouble")


if __name__ == "__main__":
    main()
