"""The proxy when something is wrong: a locked, broken or slow memory, bad input, strangers, and keys that must not stay."""

import base64
import json
import logging
import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest
from tests import forks

from wellkept.agent.offload import MAX_THREADS
from wellkept.connect.record import Connection, Record, save_record
from wellkept.core.errors import ConfigError
from wellkept.gateway.proxy.forwarding import load_upstreams
from wellkept.gateway.state import proxied_conversations
from wellkept.operations import recall

from .conftest import serve
from .proxied import FACT, KEY, QUESTION, Endpoint, proxied

SECONDS = 3.0
"""How long a request may take on a loaded machine that should take 0.3 seconds; the locks of these tests last longer."""


@pytest.fixture
def world(home):
    with proxied(home) as made:
        yield made


@pytest.fixture
def quick(home):
    """A proxy with the usual time, whose memory knows the fact and is warm."""
    with proxied(home) as made:
        made.remember()
    with proxied(home, KEPT_SERVE__PROXY__WAIT_MILLISECONDS="200") as made:
        made.ask("good morning", system="warm")
        made.settle()
        yield made


def raw(text=QUESTION):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def assert_passed(world, body):
    """The request arrives unchanged and at once."""
    began = time.monotonic()
    done = world.post(body)
    assert time.monotonic() - began < SECONDS
    assert (done.status_code, done.headers["x-kept"]) == (200, "passed")
    assert world.sent[-1] == body


# fail open


def test_a_locked_database_holds_nothing_up(quick):
    """While another process writes, requests pass; what was said is stored when the lock is gone."""
    with quick.served.app.database.writing():
        for number in range(3):
            assert_passed(quick, raw(f"{QUESTION} {number}"))
    said = [text for talk in quick.stored() for _role, text in talk]
    assert all(f"{QUESTION} {number}" in said for number in range(3))


def test_a_slow_memory_holds_nothing_up(quick, monkeypatch):
    """A search that takes long is given up, and what it finds later is not remembered as given."""
    is_free = threading.Event()
    real = recall.recall_for_prompt

    def wait(*args, **more):
        is_free.wait(20)
        return real(*args, **more)

    monkeypatch.setattr(proxied_conversations, "recall_for_prompt", wait)
    assert_passed(quick, raw())
    is_free.set()
    monkeypatch.undo()
    time.sleep(0.3)
    with quick.served.app.database.reading() as unit:
        assert not [text for (text,) in unit.execute("SELECT text FROM injections") if "heron" in text]


def test_a_memory_that_fails_holds_nothing_up(quick, monkeypatch):
    """Even a bug of ours does not cost the person an answer."""

    def fail(*_args, **_more):
        raise ZeroDivisionError

    monkeypatch.setattr(proxied_conversations, "build_start_block", fail)
    assert_passed(quick, raw())


def test_a_broken_database_holds_nothing_up(quick):
    """With a file that is no database any more, requests still pass for those who called before."""
    home = quick.served.app.home.database
    quick.served.app.state_file.close()
    for path in home.parent.glob(f"{home.name}*"):
        path.write_bytes(b"this is no database" * 1_000)
    assert_passed(quick, raw())


def test_stuck_threads_do_not_add_up(home, monkeypatch):
    """With every worker thread waiting for a disk that never answers, requests pass."""
    is_free = threading.Event()
    with proxied(home, KEPT_SERVE__PROXY__WAIT_MILLISECONDS="20") as world:
        world.post(raw())
        monkeypatch.setattr(proxied_conversations, "find_additions", lambda *_args, **_more: is_free.wait(60))
        began = time.monotonic()
        for number in range(MAX_THREADS + 2):
            done = world.post(raw(f"{QUESTION} {number}"))
            assert (done.status_code, done.headers["x-kept"]) == (200, "passed")
        assert time.monotonic() - began < (MAX_THREADS + 2) * SECONDS
        is_free.set()


@pytest.mark.speed
def test_a_request_passes_within_300_milliseconds(quick, monkeypatch):
    """With a memory that never answers, and with a locked database."""
    seconds = []
    with quick.served.app.database.writing():
        seconds += [measure(quick, number) for number in range(10)]
    monkeypatch.setattr(proxied_conversations, "find_additions", lambda *_args, **_more: time.sleep(1))
    seconds += [measure(quick, number) for number in range(10, 16)]
    assert max(seconds) <= 0.3, seconds


def measure(world, number):
    began = time.perf_counter()
    assert world.post(raw(f"{QUESTION} {number}")).headers["x-kept"] == "passed"
    return time.perf_counter() - began


# bad input


def test_an_endpoint_that_is_not_on_the_list_is_refused(world):
    """The proxy is no open relay: one line says what there is, and nothing is stored."""
    done = world.post(raw(), upstream="evil")
    assert done.status_code == 404
    assert done.json()["error"]["message"] == (
        "there is no upstream 'evil'; use anthropic, openai, or add it to serve.proxy"
    )
    for header in ("x-upstream", "x-kept-upstream", "x-target-url"):
        world.post(raw("hello there"), headers={header: "http://127.0.0.1:9"})
    assert len(world.endpoint.received) == 3


PATHS = ["api/tags", "v1/../api/tags", "v1/%2e%2e/admin", "..%2f..%2fetc", "v1//x", "v1/..%5c..%5cx", "", "V1/messages"]


def test_other_doors_of_an_endpoint_stay_closed(world):
    """Only what lies below v1 is forwarded, however the path is written."""
    host, _, port = world.served.url.removeprefix("http://").partition(":")
    for path in PATHS:
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(
                f"GET /proxy/{world.served.secret}/anthropic/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda line=line: line.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 404"), path
    assert world.endpoint.received == []


@pytest.mark.parametrize("path", ["v1/y#z", "v1/y{z}", "v1/y|z"])
def test_a_path_that_is_none_is_refused(world, path):
    """As a request that leads nowhere, not as a bug."""
    host, _, port = world.served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(f"GET /proxy/{world.served.secret}/anthropic/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert line.recv(65_536).startswith(b"HTTP/1.1 404")


def test_a_reply_does_not_speak_for_this_server(world):
    """Cookies, permissions for other sites and scripts of an endpoint have no effect at this address."""
    hostile = [
        ("Content-Type", "text/html"), ("Set-Cookie", "kept_session=x"), ("Access-Control-Allow-Origin", "*"),
        ("Content-Security-Policy", "script-src *"), ("X-Request-Id", "7"),
    ]  # fmt: skip
    world.endpoint.plan = lambda _request: (200, hostile, [b"<script>alert(1)</script>"])
    told = world.post(raw())
    assert told.headers["x-request-id"] == "7"
    assert not {"set-cookie", "access-control-allow-origin"} & set(told.headers)
    assert told.headers.get_list("content-security-policy") == ["sandbox; default-src 'none'; frame-ancestors 'none'"]


def test_the_token_of_a_path_stays_at_the_entrance(home, caplog):
    """The endpoint, the log, the figures and the answer to an error do not contain it."""
    with caplog.at_level(logging.DEBUG), proxied(home) as world:
        world.post(raw())
        secret = world.served.secret
        told = [world.post(raw(), upstream=name).text for name in ("none", "anthropic/..")]
        assert world.endpoint.received[0][1] == "/v1/messages"
        assert secret not in str(world.endpoint.received)
        assert secret not in str(told)
        assert secret not in world.served.client().get("/metrics").text
        world.settle()
        files = [
            path for path in world.served.app.home.path.rglob("*") if path.is_file() and path.name != "serve-token"
        ]
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("wellkept", "uvicorn"))]
    assert ours
    assert secret not in str(ours)


def test_a_body_over_the_limit_is_refused(home):
    """With one line, in the form of that API, and before it is read."""
    with proxied(home, KEPT_SERVE__PROXY__MAX_BODY_BYTES="2000") as world:
        done = world.post(raw("x" * 3_000))
        assert done.status_code == 413
        assert done.json()["error"]["message"] == "a body may have at most 2,000 bytes"
        chunked = httpx2.post(
            f"{world.served.proxy}/openai/v1/chat/completions", content=iter([b"x" * 1_500] * 2), timeout=20
        )
        assert (chunked.status_code, chunked.json()["error"]["message"]) == (413, "a body may have at most 2,000 bytes")
        assert world.endpoint.received == []
        assert world.stored() == []


BODIES = [
    b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"messages": 5}', b'{"messages": []}', b'{"messages":[{}]}',
    b'{"model":"m","messages":[{"role":"user","content":5}]}', b'{"model":"m","messages":[{"role":"alien","content":"x"}]}',
    b'{"messages":[{"role":"user","content":"one two three"}],"messages":[]}',
    b'{"messages":[{"role":"user","content":"one two three"}],}', b'{"messages":[{"role":"user","content":"a b c"}]} {}',
    b'{"messages":[{"role":"user","content":"one two"},{"role":"assistant","content":"a prefill"}]}',
    b"[" * 100_000, '{"messages":[{"role":"user","content":"ein Wort"}]}'.encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("path", ["v1/messages", "v1/chat/completions", "v1/responses"])
def test_a_body_that_is_not_understood_passes_as_it_is(world, path):
    """The endpoint answers it; that is none of our business."""
    world.note("I live in Leipzig")
    for body in BODIES:
        assert world.post(body, path=path).status_code == 200
    assert world.sent == BODIES
    assert world.stored() == []


@pytest.mark.parametrize(
    ("upstreams", "told"),
    [
        ({"x": "ftp://host"}, "'ftp://host' is not the address of an endpoint"),
        ({"x": "https://user:pass@host"}, "is not the address of an endpoint"),
        ({"x": "https://"}, "is not the address of an endpoint"),
        ({"x": "https://host:port"}, "is not the address of an endpoint"),
        ({"a/b": "https://host"}, "an endpoint cannot have this name"),
    ],
)
def test_a_wrong_address_is_refused(upstreams, told):
    """With one line that names the setting."""
    with pytest.raises(ConfigError, match=told):
        load_upstreams(upstreams)


def test_a_wrong_address_ends_the_start(tmp_path):
    """With exit code 2."""
    environment = {**os.environ, "KEPT_HOME": str(tmp_path), "KEPT_SERVE__PROXY__UPSTREAMS": '{"x": "ftp://host"}'}
    command = [str(Path(sys.executable).with_name("kept")), "serve", "--proxy", "--port", "0"]
    done = forks.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "not the address of an endpoint" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_option_there_is_no_proxy(home):
    """It is opt-in."""
    with serve(home) as served, served.client("") as client:
        done = client.post(f"/proxy/{served.secret}/anthropic/v1/messages", json={})
    assert (done.status_code, done.json()["error"]["message"]) == (
        404,
        "the proxy is off; start the server with --proxy",
    )


# who calls


def test_a_token_goes_in_a_header_of_its_own(world):
    """With tokens, one is needed; in the place of the endpoint's key it is refused, so that it does not leave."""
    token = world.served.token()
    assert world.post(raw(), has_token=False).status_code == 401
    misplaced = world.post(raw(), headers={"authorization": f"Bearer {token}"})
    assert misplaced.status_code == 401
    assert "x-kept-token" in misplaced.json()["error"]["message"]
    assert world.post(raw(), headers={"x-api-key": token}).status_code == 401
    assert world.post(raw(), headers={"x-kept-token": "kept_x_y"}).status_code == 401
    assert world.endpoint.received == []
    assert world.post(raw(), headers={"x-kept-token": token}).status_code == 200
    assert token not in str(world.endpoint.received)
    assert dict(world.endpoint.received[0][2])["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("x-api-key", "{}"), ("api-key", "{}"), ("x-goog-api-key", "{}"), ("referer", "http://127.0.0.1/proxy/{}/x"),
        ("cookie", "a=b; other={}"), ("authorization", "{}"), ("authorization", "Bearer\t{}"), ("authorization", "Basic {}"),
    ],
)  # fmt: skip
def test_a_token_reaches_the_endpoint_in_no_header(world, name, form):
    """Also where the endpoint has its key, and the token has come a second time."""
    token = world.served.token()
    text = base64.b64encode(f"user:{token}".encode()).decode() if "Basic" in form else token
    headers = {"authorization": "Bearer sk-endpoint", "x-kept-token": token, name: form.format(text)}
    refused = world.post(raw(), headers=headers)
    assert refused.status_code == 401
    assert token not in refused.text
    assert world.endpoint.received == []


def test_a_token_reaches_the_endpoint_in_no_address(world):
    """Neither in the query nor in a further part of the path."""
    token = world.served.token()
    for path in (f"v1/messages?key={token}", f"v1/messages?key=%6B{token[1:]}", f"v1/{token}/messages"):
        refused = world.post(raw(), path=path, headers={"x-kept-token": token})
        assert refused.status_code == 401
    assert world.endpoint.received == []


def test_each_user_has_a_memory_of_their_own(world):
    """What one user said is given to no other, and their conversations are apart."""
    ann, bob = world.served.token("ann"), world.served.token("bob")
    world.post(raw(FACT), headers={"x-kept-token": ann})
    world.settle()
    world.post(raw(), headers={"x-kept-token": bob})
    assert "heron" not in world.sent[-1].decode()
    world.post(raw(), headers={"x-kept-token": ann})
    assert "heron" in world.sent[-1].decode()
    world.settle()
    with world.served.client(bob) as client:
        assert len(client.get("/api/sessions").json()) == 1


def test_a_front_end_names_its_users(world):
    """With a token of the scope act-as; without it the header of another user is refused."""
    token = world.served.token("owner", "read", "write", "act-as")
    world.post(raw(FACT), headers={"x-kept-token": token, "x-librechat-user-id": "ann"})
    world.settle()
    world.post(raw(), headers={"x-kept-token": token, "x-librechat-user-id": "bob"})
    assert "heron" not in world.sent[-1].decode()
    plain = world.served.token("owner", "read", "write")
    assert world.post(raw(), headers={"x-kept-token": plain, "x-kept-user": "ann"}).status_code == 403


def test_a_token_that_may_only_read_stores_nothing(world):
    """It is given memory all the same."""
    world.remember()
    done = world.post(raw(), headers={"x-kept-token": world.served.token("owner", "read")})
    assert done.status_code == 200
    assert "heron" in world.sent[-1].decode()
    world.settle()
    with world.served.client(world.served.token()) as client:
        assert len(client.get("/api/sessions").json()) == 1


def test_pages_of_other_sites_cannot_call(world):
    """Nor can other names for this machine."""
    assert world.post(raw(), headers={"origin": "https://evil.example"}).status_code == 403
    assert world.post(raw(), headers={"host": "evil.example"}).status_code == 421
    assert world.endpoint.received == []


def test_the_cookie_of_a_browser_stays_here(world):
    """The web app keeps a token in it."""
    world.post(raw(), headers={"cookie": "a=1; kept_session=kept_1_secret; b=2"})
    assert dict(world.endpoint.received[0][2])["cookie"] == "a=1; b=2"


@pytest.mark.parametrize(
    ("client", "headers"),
    [("claude-code", {"x-claude-code-session-id": "s1"}), ("opencode", {"user-agent": "opencode/1.18.33 ai-sdk/4"})],
)
def test_a_connected_client_is_left_alone(world, client, headers):
    """A client with hooks would get everything twice, and be stored twice."""
    world.remember()
    folder = world.served.owner.space.home.connections
    connection = Connection(client, ("kept",))
    save_record(folder, Record({connection.key: connection}))
    done = world.post(raw(), headers=headers)
    assert done.headers["x-kept"] == "off"
    assert world.sent[-1] == raw()
    assert len(world.stored()) == 1
    assert world.post(raw()).headers["x-kept"] == "added"


# keys


def test_the_key_of_a_client_stays_nowhere(tmp_path):
    """Not in a file, a log, an error or on the terminal; also with --debug, and when things fail."""
    with Endpoint() as endpoint:
        upstreams = json.dumps({"anthropic": endpoint.url, "gone": "http://127.0.0.1:9"})
        environment = {**os.environ, "KEPT_HOME": str(tmp_path / "home"), "KEPT_SERVE__PROXY__UPSTREAMS": upstreams}
        command = [str(Path(sys.executable).with_name("kept")), "--debug", "serve", "--proxy", "--port", "0", "--json"]
        with (tmp_path / "err").open("wb") as err, (tmp_path / "out").open("wb") as out:
            server = forks.Popen(command, env=environment, stdout=out, stderr=err)
            try:
                url = wait_for_url(tmp_path / "out")
                secret = (tmp_path / "home" / "serve-token").read_text().strip()
                told = []
                for upstream, body in (("anthropic", raw()), ("anthropic", b"{"), ("gone", raw()), ("none", raw())):
                    for headers in (
                        {"x-api-key": KEY},
                        {"authorization": f"Bearer {KEY}"},
                        {"x-api-key": KEY.encode() + b"\x80"},
                    ):
                        place = f"{url}/proxy/{secret}/{upstream}/v1/messages"
                        told.append(httpx2.post(place, content=body, headers=headers, timeout=60).text)
                endpoint.plan = lambda _request: (401, [("Content-Length", "2")], [b"no"])
                told.append(
                    httpx2.post(
                        f"{url}/proxy/{secret}/anthropic/v1/messages", content=raw(), headers={"x-api-key": KEY}
                    ).text
                )
                time.sleep(0.5)
            finally:
                server.terminate()
                assert server.wait(60) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "kept.log" for path in files)
    assert any("state.db" in path.name for path in files)
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in "".join(told)
    assert sum(KEY in str(one[2]) for one in endpoint.received) >= 7


def wait_for_url(path):
    deadline = time.monotonic() + 60
    while not (found := re.search(r'"url": ?"([^"]+)"', path.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found[1]
