"""The HTTP client of remote providers, against a real server that misbehaves."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wellkept.core.errors import ProviderError
from wellkept.providers import remote as client_module
from wellkept.providers.base import Rejected
from wellkept.providers.remote import BackendMissing, HttpClient, check_url


class Server:
    """Answers every request with what `answer(handler)` sends, and records what arrived."""

    def __init__(self, answer):
        self.received = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args):
                pass

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                outer.received.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
                answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the names of http.server

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    servers = []

    def start(answer):
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def send(status, body=b"", **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_json_goes_both_ways_with_the_key(serve):
    """Parameters that are not given are left out."""
    server = serve(send(200, b'{"ok": [1, "\xc3\xbc"]}'))
    client = HttpClient("mem0", f"{server.url}/base/", headers={"X-API-Key": "k"})

    assert client.post("/v1/x", {"text": "ü"}) == {"ok": [1, "ü"]}
    assert client.get("v1/y", a="b c", none=None, n=3) == {"ok": [1, "ü"]}
    client.put("p", {}), client.patch("p", []), client.delete("p", body={"ids": [1]})
    client.close()

    method, path, headers, body = server.received[0]
    assert (method, path, headers["X-API-Key"], json.loads(body)) == ("POST", "/base/v1/x", "k", {"text": "ü"})
    assert headers["Content-Type"] == "application/json"
    assert server.received[1][1] == "/base/v1/y?a=b+c&n=3"
    assert [each[0] for each in server.received] == ["POST", "GET", "PUT", "PATCH", "DELETE"]
    assert json.loads(server.received[4][3]) == {"ids": [1]}


@pytest.mark.parametrize(
    ("status", "body", "kind", "message", "remedy"),
    [
        (401, b'{"detail": "bad key"}', ProviderError, "mem0 answered 401: bad key", "kept providers setup mem0"),
        (403, b"", ProviderError, "mem0 answered 403", "what it may do"),
        (402, b"[]", ProviderError, "mem0 answered 402: []", "quota"),
        (404, b'{"error": {"message": "no route"}}', BackendMissing, "404: no route", "version of the server"),
        (429, b'{"error": {"code": "slow"}}', ProviderError, "429: slow", "outbox"),
        (500, b"<html>oops</html>", ProviderError, "mem0 answered 500", "outbox"),
        (400, b'{"message": "too\\n long"}', Rejected, "400: too long", "content"),
        (413, b"", Rejected, "413", "content"),
        (422, b'{"detail": [{"loc": "x"}]}', Rejected, '422: [{"loc": "x"}]', "content"),
        (418, b"", ProviderError, "418", ""),
    ],
)
def test_a_refusal_is_one_line_with_the_next_step(serve, status, body, kind, message, remedy):
    """Only what is wrong with this one request is permanent."""
    client = HttpClient("mem0", serve(send(status, body)).url)

    with pytest.raises(ProviderError) as caught:
        client.post("x", {})

    assert type(caught.value) is kind
    assert getattr(caught.value, "permanent", False) == (kind is Rejected)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert "\n" not in caught.value.message


def test_what_is_gone_need_not_be_deleted(serve):
    """A delete that is repeated succeeds."""
    assert HttpClient("mem0", serve(send(404, b"{}")).url).delete("x", user_id="u") is None


def test_an_empty_answer_is_none_and_html_is_an_error(serve):
    """A login page is not the API."""
    assert HttpClient("mem0", serve(send(204)).url).get("x") is None
    page = serve(send(200, b"<html>", Content_Type="text/html; charset=utf-8"))
    with pytest.raises(ProviderError, match="text/html instead of JSON"):
        HttpClient("mem0", page.url).get("x")


def test_a_redirect_stays_on_its_host(serve):
    """The key goes nowhere else."""
    other = serve(send(200, b'{"stolen": true}'))
    away = serve(send(307, Location=f"{other.url}/x"))
    with pytest.raises(ProviderError, match="redirects to another host"):
        HttpClient("mem0", away.url, headers={"X-API-Key": "k"}).post("x", {})
    assert other.received == []

    def once(handler):
        send(308, Location="/moved")(handler) if handler.path == "/x" else send(200, b"[1]")(handler)

    server = serve(once)
    assert HttpClient("mem0", server.url).post("x", {"a": 1}) == [1]
    assert [(each[0], each[1], each[3]) for each in server.received] == [
        ("POST", "/x", b'{"a": 1}'),
        ("POST", "/moved", b'{"a": 1}'),
    ]
    with pytest.raises(ProviderError, match="redirects without end"):
        HttpClient("mem0", serve(send(302, Location="/x")).url).get("x")


def test_a_huge_answer_is_not_read_to_its_end(serve, monkeypatch):
    """Memory is bounded, whatever the server sends."""
    monkeypatch.setattr(client_module, "MOST_BYTES", 100_000)
    written = []

    def flood(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(1_000):
                handler.wfile.write(b"x" * 50_000)
                written.append(1)
        except OSError:
            return

    with pytest.raises(ProviderError, match="more than 100,000 bytes"):
        HttpClient("mem0", serve(flood).url).get("x")
    assert len(written) < 1_000


def test_a_slow_drip_ends_at_the_deadline(serve):
    """Each byte arrives in time, the whole does not."""

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(200):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return

    began = time.monotonic()
    with pytest.raises(ProviderError, match=r"did not answer within 0\.3 s"):
        HttpClient("mem0", serve(drip).url, seconds=0.3).get("x")
    assert time.monotonic() - began < 8


def test_silence_and_nobody_there_are_told_apart(serve):
    """A time-out, a closed port, a name that does not exist, a certificate."""
    silent = serve(lambda _handler: time.sleep(2))
    with pytest.raises(ProviderError, match=r"did not answer within 0\.2 s"):
        HttpClient("mem0", silent.url, seconds=0.2).get("x")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ProviderError, match=f"cannot be reached at 127.0.0.1:{port}"):
        HttpClient("mem0", f"http://127.0.0.1:{port}").get("x")
    plain = serve(send(200, b"{}"))
    with pytest.raises(ProviderError, match="no secure connection"):
        HttpClient("mem0", plain.url.replace("http://", "https://")).get("x")


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "//host", "host"])
def test_an_address_without_scheme_is_refused(url):
    """With an example of a good one."""
    with pytest.raises(ProviderError, match="not the address of a server") as caught:
        check_url("mem0", url)
    assert "https://" in caught.value.remedy
    assert check_url("mem0", " https://host/base ") == "https://host/base"
