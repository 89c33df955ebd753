"""Slow, silent and many connections, and worker threads that never return."""

import resource
import signal
import socket
import sys
import time
from contextlib import ExitStack, contextmanager

import httpx2
import pytest
from tests import forks

from .test_process import environment, kept

HANGING = """
import sys, time
from pathlib import Path
from wellkept.app import open_app
from wellkept.gateway.server import serve
app = open_app(sys.argv[1])
app.folder = Path("/")
serve(app, "127.0.0.1", 0, is_exact=True, when_ready=lambda address: print(address.port, flush=True),
      answer_mcp=lambda caller, body: time.sleep(600))
"""


@contextmanager
def server(home, *command, files=None, **more):
    """Run a server process and yield it with its port; `files` is the most that it may open."""

    def set_limit():
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    pipes = {"stdout": forks.subprocess.PIPE, "stderr": forks.subprocess.DEVNULL, "text": True}
    with forks.Popen(command, env=environment(home, **more), preexec_fn=set_limit, **pipes) as running:
        try:
            yield running, int(running.stdout.readline().rstrip().rpartition(":")[2].rstrip('"}'))
        finally:
            running.kill()


def connect(stack, port, sent=b""):
    one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
    one.sendall(sent)
    return one


def closes_within(one, seconds):
    """Whether the server closes a connection that goes on to send headers slowly."""
    end = time.monotonic() + seconds
    one.settimeout(0.2)
    while time.monotonic() < end:
        try:
            if not one.recv(1_000):
                return True
        except TimeoutError:
            one.sendall(b"X-Slow: yes\r\n")
        except OSError:
            return True
    return False


def ready(port):
    return httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code


@pytest.fixture
def limited(home):
    """A server that waits a second for headers, and may open 256 files."""
    command = (sys.executable, "-c", HANGING, str(home))
    with server(home, *command, files=256, KEPT_SERVE__HEADER_SECONDS="1", KEPT_SERVE__DRAIN_SECONDS="1") as found:
        yield found


def test_silent_and_half_requests_are_closed(limited):
    """Before the first request, after one, and where the rest of a refused body trickles in."""
    _, port = limited
    with ExitStack() as stack:
        silent = connect(stack, port)
        half = connect(stack, port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n")
        second = connect(stack, port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in second.recv(1_000)
        second.sendall(b"GET /healthz HTTP/1.1\r\n")
        body = connect(stack, port, b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n{")
        assert b" 401 " in body.recv(1_000)
        for one in (silent, half, second, body):
            assert closes_within(one, 6)


def test_many_silent_connections_leave_room(home):
    """With 256 files and 246 silent connections, and more, others are answered."""
    with (
        server(home, sys.executable, "-c", HANGING, str(home), files=256, KEPT_SERVE__HEADER_SECONDS="60") as (_, port),
        ExitStack() as stack,
    ):
        for count in (246, 300):
            for _ in range(count):
                connect(stack, port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" if count == 300 else b"")
            assert ready(port) == 200


def test_clients_that_do_not_read_their_answers_make_room(home):
    """Their requests run, but others are answered all the same."""
    asked = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    command = (sys.executable, "-c", HANGING, str(home))
    with server(home, *command, KEPT_SERVE__CONNECTIONS_PER_ADDRESS="4") as (_, port), ExitStack() as stack:
        for _ in range(4):
            unread = socket.socket()
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            unread.settimeout(10)
            stack.enter_context(unread).connect(("127.0.0.1", port))
            unread.sendall(asked)
        end = time.monotonic() + 20
        while ready(port) != 200 and time.monotonic() < end:
            time.sleep(0.2)
        assert time.monotonic() < end


def test_a_running_request_does_not_make_room(home):
    """Beyond the limit a new connection is refused if every other one has a request that runs."""
    more = {"KEPT_SERVE__CONNECTIONS_PER_ADDRESS": "4", "KEPT_SERVE__DRAIN_SECONDS": "1"}
    token = kept(home, "serve", "token", "show").stdout.strip()
    call = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\n\r\n{{}}"
    with server(home, sys.executable, "-c", HANGING, str(home), **more) as (_, port), ExitStack() as stack:
        for _ in range(4):
            connect(stack, port, call.encode())
        time.sleep(1)
        assert b" 503 " in connect(stack, port).recv(1_000)


def test_hanging_workers_block_neither_others_nor_the_end(limited, home):
    """Every thread for the work of requests hangs: callers are identified, health is told, and SIGTERM ends it."""
    running, port = limited
    token = kept(home, "serve", "token", "show").stdout.strip()
    call = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\n\r\n{{}}"
    with ExitStack() as stack:
        for _ in range(24):
            connect(stack, port, call.encode())
        time.sleep(1)
        assert ready(port) == 200
        own = {"Authorization": f"Bearer {token}"}
        assert httpx2.get(f"http://127.0.0.1:{port}/api/memory", headers=own, timeout=5).status_code == 200
        running.send_signal(signal.SIGTERM)
        assert running.wait(45) == 1
