"""Fixtures shared by the browser tests: the built book on a local address, and Chromium."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "_build" / "html"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(what):
    """Skip for a reader; in CI nothing may be missing."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def book_url():
    """Address of the built book, served on the loopback interface."""
    if not (BOOK / "index.html").exists():
        missing("no built book: run `make book`")
    handler = functools.partial(QuietHandler, directory=str(BOOK))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Chromium, as the system has it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    chromium = chromium or shutil.which("google-chrome")
    if chromium is None:
        missing("no Chromium: install Debian's chromium or Chrome")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        instance = play.chromium.launch(executable_path=chromium, args=FLAGS)
        yield instance
        instance.close()
