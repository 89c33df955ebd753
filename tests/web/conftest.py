"""A real browser against a real server with the invented history; runs with KEPT_WEB=1 (make test-web)."""

import os
import shutil
import socket
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn

from wellkept.app import open_app
from wellkept.core.clock import FixedClock
from wellkept.gateway.identity import COOKIE
from wellkept.gateway.server import build_application
from wellkept.gateway.state import tokens
from wellkept.operations import demo

CHROMIUM = os.environ.get("KEPT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
AXE = os.environ.get("KEPT_AXE", "")
SHOTS = os.environ.get("KEPT_SHOTS", "")
DEVICES = {"desktop": (1280, 860), "phone": (390, 780)}


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/web" in str(item.path):
            item.add_marker(pytest.mark.web)


class Site:
    """A server that can be stopped and started again on the same port."""

    def __init__(self, home, port=0):
        self.home = Path(home)
        self.listener_port = port
        self.environ = {"HOME": str(self.home.parent)}
        self.start()

    def start(self):
        """Listen; the app is opened anew, as after a restart."""
        self.app = open_app(str(self.home), environ=self.environ)
        self.app.folder = Path("/")
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.listener_port))
        self.listener_port = listener.getsockname()[1]
        config = uvicorn.Config(
            build_application(self.app, host="127.0.0.1"), http="h11", ws="none", log_config=None, access_log=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[listener]), daemon=True)
        self.thread.start()
        while not self.server.started and self.thread.is_alive():
            self.thread.join(0.01)

    def stop(self):
        """Stop listening and close the app."""
        self.server.should_exit = True
        self.thread.join(30)
        self.app.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.listener_port}"

    @property
    def owner(self):
        return self.app.caller()


@contextmanager
def serve_demo(folder):
    """Serve a home with the invented history."""
    home = Path(folder) / "home"
    clock = FixedClock(datetime.now(UTC))
    with closing(open_app(str(home), environ={"HOME": str(folder)}, clock=clock)) as app:
        demo.fill_home(app.caller(), clock)
    site = Site(home)
    try:
        yield site
    finally:
        site.stop()


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A site for tests that only read."""
    with serve_demo(tmp_path_factory.mktemp("shared")) as site:
        yield site


@pytest.fixture
def site(tmp_path):
    """A site of its own, for tests that change something."""
    with serve_demo(tmp_path) as found:
        yield found


@pytest.fixture
def open_page(chromium):
    """Open a page of a site; what the browser complains about fails the test."""
    contexts, problems = [], []

    def start(site, address="/", device="desktop", theme="light", javascript=True):
        width, height = DEVICES[device]
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, java_script_enabled=javascript,
            base_url=site.url, reduced_motion="reduce",
        )  # fmt: skip
        contexts.append(context)
        person = tokens.use_link(site.app, tokens.create_link(site.owner))
        context.add_cookies([{"name": COOKIE, "value": person.secret, "url": site.url}])
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        page.on("console", lambda said: problems.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request", lambda asked: None if asked.url.startswith((site.url, "data:")) else problems.append(asked.url)
        )
        page.goto(address)
        return page

    start.problems = problems
    yield start
    for context in contexts:
        context.close()
    assert problems == []
