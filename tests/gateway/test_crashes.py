"""The server dies in the middle of turns, or clients leave them: no message is lost and no turn is stored twice."""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from tests import forks

from wellkept.gateway import streams
from wellkept.llm.scripted import Says
from wellkept.testing.loopback import Status
from wellkept.testing.loopback_servers import LoopbackOpenAI

from .conftest import serve

SLOW = Says("word " * 400, piece_length=5, delay_seconds=0.05)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


class Model:
    """A model on loopback that answers from a plan."""

    def __init__(self):
        self.steps = []
        self.upstream = LoopbackOpenAI(lambda _body: self.steps.pop(0) if self.steps else "fine")

    @property
    def environ(self):
        return {**self.upstream.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}


@pytest.fixture
def model():
    made = Model()
    with made.upstream:
        yield made


@contextmanager
def run_server(home, environ):
    """Run `kept serve` as a process; yield it with a client."""
    command = [sys.executable, "-m", "wellkept", "serve", "--port", "0", "--json"]
    own = {"KEPT_HOME": str(home), "HOME": str(home.parent), "PATH": os.environ["PATH"], **environ}
    process = forks.Popen(command, env=own, cwd="/", stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(process.stdout.readline())
        own = {"Authorization": f"Bearer {(home / 'serve-token').read_text().strip()}"}
        with httpx2.Client(base_url=ready["url"], headers=own, timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(client, messages):
    """Return the answer to chat completions."""
    answer = client.post("/v1/chat/completions", json={"model": "kept", "messages": messages})
    assert answer.is_success, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def read_some(client, messages, pieces=3):
    """Begin a streamed answer and leave it after a few pieces; return what came."""
    body = {"model": "kept", "messages": messages, "stream": True}
    shown = []
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line.removeprefix("data: "))["choices"]
                shown += [one["delta"].get("content") for one in choices if one["delta"].get("content")]
            if len(shown) >= pieces:
                return "".join(shown)
    return "".join(shown)


def read_sessions(client):
    """Return role and text of the messages of every session, the oldest session first."""
    found = []
    for one in reversed(client.get("/api/sessions").json()):
        shown = client.get(f"/api/sessions/{one['session_id']}").json()["messages"]
        found.append([(row["role"], row["content"]) for row in shown])
    return found


def test_kill_in_the_middle_of_turns(home, model):
    """The clients send their requests again: each message is stored once, in its one session."""
    with run_server(home, model.environ) as (process, client):
        first = ask(client, [user("one")])
        history = [user("one"), assistant(first), user("two")]
        model.steps = [SLOW, SLOW]
        asked = [history, [user("alone")]]
        threads = [threading.Thread(target=_ask_until_death, args=(client, one)) for one in asked]
        for thread in threads:
            thread.start()
        while len(model.upstream.requests) < 3:
            time.sleep(0.01)
        process.kill()
        for thread in threads:
            thread.join(30)
    model.steps = []
    with run_server(home, model.environ) as (_process, client):
        stored = [text for rows in read_sessions(client) for role, text in rows if role == "user"]
        assert sorted(stored) == ["alone", "one", "two"]  # they were acknowledged with the first piece
        for one in asked:
            ask(client, one)
        pair = [("user", "one"), ("assistant", "fine")]
        assert sorted(read_sessions(client)) == sorted(
            [[*pair, ("user", "two"), ("assistant", "fine")], [("user", "alone"), ("assistant", "fine")]]
        )
        ask(client, [*history, assistant("fine"), user("three")])
        assert len(read_sessions(client)) == 2


def _ask_until_death(other, messages):
    try:
        with httpx2.Client(base_url=other.base_url, headers=other.headers, timeout=60) as client:
            read_some(client, messages, pieces=10_000)
    except httpx2.HTTPError:
        return


@pytest.mark.parametrize("repeats", [True, False])
def test_a_client_that_leaves_its_stream(home, model, repeats):
    """What it was shown is stored as broken off; it can ask again, or go on."""
    with serve(home, model.environ) as served, served.client() as client:
        first = ask(client, [user("one")])
        history = [user("one"), assistant(first), user("two")]
        model.steps = [SLOW]
        shown = read_some(served.client(), history)
        _wait_for(lambda: read_sessions(client)[0][-1][1].endswith("[interrupted by the user]"))
        left = read_sessions(client)[0]
        assert left[2] == ("user", "two")
        assert left[3][1].startswith(shown)
        if repeats:
            ask(client, history)
            assert read_sessions(client) == [[*left[:3], ("assistant", "fine")]]
        else:
            ask(client, [*history, assistant(shown), user("three")])
            assert read_sessions(client) == [[*left, ("user", "three"), ("assistant", "fine")]]


def _wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_request_that_failed_is_repeated(home, model):
    """The message of the person is stored once, with the answer that came at last."""
    with serve(home, model.environ) as served, served.client() as client:
        model.steps = [Status(400, "no")]
        body = {"model": "kept", "messages": [user("one")]}
        assert client.post("/v1/chat/completions", json=body).status_code == 502
        assert read_sessions(client)[0][0] == ("user", "one")
        ask(client, [user("one")])
        assert read_sessions(client) == [[("user", "one"), ("assistant", "fine")]]


def test_another_message_after_one_that_failed_keeps_both(home, model):
    """The one without an answer stays in its session; the conversation goes on beside it."""
    with serve(home, model.environ) as served, served.client() as client:
        first = ask(client, [user("one")])
        model.steps = [Status(400, "no")]
        history = [user("one"), assistant(first)]
        client.post("/v1/chat/completions", json={"model": "kept", "messages": [*history, user("two")]})
        ask(client, [*history, user("other")])
        texts = [text for rows in read_sessions(client) for role, text in rows if role == "user"]
        assert texts.count("two") == texts.count("other") == 1


def open_stream(served, messages, token=None):
    """Begin a streamed request on a socket that nobody reads."""
    body = json.dumps({"model": "kept", "messages": messages, "stream": True}).encode()
    host, port = served.url.removeprefix("http://").split(":")
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    found.connect((host, int(port)))
    key = f"Authorization: Bearer {token or served.secret}\r\n"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n{key}Content-Type: application/json\r\n"
    found.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


def test_a_client_that_does_not_read_is_given_up(home, model, monkeypatch):
    """Its turn is stored and frees the conversation, although the connection is still open."""
    monkeypatch.setattr(streams, "WRITE_SECONDS", 0.5)
    model.steps = [Says("long " * 2_000_000, piece_length=100_000)]
    with serve(home, model.environ) as served, served.client() as client:
        with open_stream(served, [user("tell me all")]):
            _wait_for(lambda: model.upstream.requests)
            _wait_for(lambda: client.get("/readyz").json()["turns"] == 0)
            rows = read_sessions(client)[0]
            assert rows[0] == ("user", "tell me all")
            assert rows[1][1].startswith("long long")
            assert ask(client, [user("tell me all")]) == "fine"
        assert read_sessions(client) == [[("user", "tell me all"), ("assistant", "fine")]]


@pytest.mark.speed
def test_slow_clients_do_not_slow_others(home, model):
    """The 95th percentile of a plain turn at most doubles beside streams that nobody reads and bodies that never end."""

    def measure(client):
        times = []
        for number in range(60):
            began = time.perf_counter()
            ask(client, [user(f"question {len(model.upstream.requests)} {number}")])
            times.append(time.perf_counter() - began)
        return statistics.quantiles(times[10:], n=20)[-1]

    with serve(home, {**model.environ, "KEPT_SERVE__REQUESTS_AT_ONCE": "40"}) as served:
        own, other = served.token("ann", "read", "write"), served.token("bob", "read", "write")
        with served.client(own) as client, ExitStack() as slow:
            quiet = measure(client)
            for number in range(15):
                model.steps.append(Says("long " * 1_000_000, piece_length=100_000))
                slow.enter_context(open_stream(served, [user(f"tell me all {number}")], other))
                _wait_for(lambda: not model.steps)
                half = slow.enter_context(socket.create_connection(served.client().base_url.netloc.decode().split(":")))
                half.sendall(
                    f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {other}\r\n"
                    "Content-Length: 1000\r\n\r\n{".encode()
                )
            busy = measure(client)
    assert busy <= 2 * quiet, (quiet, busy)


@pytest.mark.heavy
def test_many_chats_at_once():
    """The small form of the load test: no error, no answer that is not complete."""
    program = Path(__file__).parents[2] / "benchmarks" / "gateway.py"
    command = [sys.executable, str(program), "--chats", "10", "--seconds", "5", "--users", "5"]
    done = forks.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 errors" in done.stdout


PLUGIN = """
import time
from pathlib import Path
from wellkept.providers.base import MemoryProvider
class Slow(MemoryProvider):
    name = "slow"
    def is_available(self): return True
    def initialize(self, session_id, **context): self.file = Path(context["hermes_home"]) / "delivered.txt"
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def sync_turn(self, user, assistant, *, session_id="", messages=()):
        time.sleep(SECONDS)
        with self.file.open("a") as lines:
            lines.write(user + "\\n")
"""


def put_slow_provider(home, seconds):
    """Write a provider whose back end takes this long for a turn, and use it."""
    folder = home / "plugins" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN.replace("SECONDS", str(seconds)))
    (home / "config.yaml").write_text("memory:\n  provider: slow\nserve:\n  drain_seconds: 3\n")


@pytest.mark.parametrize(("seconds", "delivered"), [(0.3, ["one", "two"]), (300, [])])
def test_a_stop_delivers_the_outbox_within_its_limit(home, model, seconds, delivered):
    """What a back end does not take in time waits for the next start."""
    put_slow_provider(home, seconds)
    with run_server(home, model.environ) as (process, client):
        ask(client, [user("one")])
        ask(client, [user("two")])
        process.terminate()
        start = time.monotonic()
        code = process.wait(60)
        lasted = time.monotonic() - start
    file = home / "delivered.txt"
    command = [sys.executable, "-m", "wellkept", "--home", str(home), "providers", "outbox", "--json"]
    waiting = json.loads(forks.run(command, capture_output=True, text=True, check=True).stdout)

    assert code == 0
    assert lasted < 30
    assert (file.read_text().split() if file.exists() else []) == delivered
    assert len(waiting["items"]) == 2 - len(delivered)
