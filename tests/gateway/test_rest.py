"""The operations over HTTP: the same answers as the command line, problems with a next step, limits."""

import json
import os
import socket
import threading
import time

import pytest

from wellkept.core.text import dumps
from wellkept.gateway.limits import Rates
from wellkept.operations import memory, search, sessions

from .conftest import serve


def test_answers_are_those_of_the_operations(served):
    """What a route returns is the JSON of its operation."""
    client, owner = served.client(), served.owner
    client.post("/api/memory/memory/entries", json={"text": "we use pnpm"})
    client.post("/api/chat", json={"message": "the staging server is heron", "stream": False})
    pairs = [
        ("/api/memory/snapshot", memory.render_snapshot(owner)),
        ("/api/memory/log", memory.read_log(owner)),
        ("/api/sessions", sessions.list_sessions(owner)),
    ]
    for path, result in pairs:
        assert client.get(path).json() == json.loads(dumps(result.as_json())), path
    found = [hit.message_id for hit, _ in search.search(owner, "staging").profiles[0].passages]
    assert [one["id"] for one in client.get("/api/search?query=staging").json()["passages"]] == found


def test_edits_can_be_undone_and_conflicts_are_told(served):
    """An entity tag protects from changes that somebody else made meanwhile."""
    client = served.client()
    first = client.get("/api/memory/memory").headers["etag"]
    assert client.post("/api/memory/memory/entries", json={"text": "one"}, headers={"If-Match": first}).is_success
    late = client.post("/api/memory/memory/entries", json={"text": "two"}, headers={"If-Match": first})
    assert (late.status_code, late.json()["current"]) == (412, "one")
    assert client.patch("/api/memory/memory/entries", json={"needle": "one", "text": "three"}).is_success
    assert client.post("/api/memory/undo", json={}).is_success
    assert client.get("/api/memory/memory").json()["entries"] == ["one"]
    assert client.request("DELETE", "/api/memory/memory/entries", params={"needle": "nothing"}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"text": 3}', b'{"text": ""}', b'{"text": {"a": 1}}', b'"x"', b"1e999"],
)
def test_wrong_bodies_get_a_problem(served, body):
    """Any JSON of any type: one answer that names the field."""
    answer = served.client().post(
        "/api/memory/memory/entries", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in {400, 415}
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_a_session_continues_by_its_id(served):
    """A chat over HTTP is a stored session."""
    client = served.client()
    first = client.post("/api/chat", json={"message": "hello there", "stream": False}).json()["session_id"]
    again = client.post("/api/chat", json={"message": "and again", "session": first, "stream": False}).json()
    shown = client.get(f"/api/sessions/{first}").json()
    assert again["session_id"] == first
    assert [one["content"] for one in shown["messages"] if one["role"] == "user"] == ["hello there", "and again"]


def test_the_stream_ends_with_the_whole_answer(served):
    """Events first, then `done`."""
    client = served.client(served.token())  # what has the start-up token may be no person
    with client.stream("POST", "/api/chat", json={"message": "Remember that I like tea"}) as answer:
        text = "".join(answer.iter_text())
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert names[0] == "session"
    assert names[-1] == "done"
    done = json.loads(text.rstrip().rpartition("data: ")[2])
    assert done["saved"][0]["text"] == "I like tea"


def test_incognito_leaves_no_trace(served):
    """Nothing is stored."""
    served.client().post("/api/chat", json={"message": "a secret okapi", "incognito": True, "stream": False})
    assert served.client().get("/api/sessions").json() == []


def test_a_program_only_asks_to_forget(served):
    """The request is listed with what waits; no token of a plan, and no decision, is accepted from a program."""
    client = served.client()
    client.post("/api/chat", json={"message": "the okapi is called Zarathustra", "stream": False})
    asked = client.post("/api/forget", json={"query": "Zarathustra"})
    waiting = asked.json()["pending_id"]

    assert asked.status_code == 202
    assert waiting in {one["id"] for one in client.get("/api/memory/pending").json()}
    assert client.post("/api/forget", json={"query": "Zarathustra", "confirm": "1.x"}).status_code == 412
    assert client.post(f"/api/memory/pending/{waiting}/approve").status_code == 403
    assert client.get("/api/search", params={"query": "Zarathustra"}).json()["passages"]


def test_no_token_decides(served):
    """Nor a program of this machine: each refusal says how a person decides."""
    client = served.client(served.token())
    refused = [
        client.post("/api/memory/pending/abc/approve"),
        client.post("/api/memory/pending/abc/reject"),
        client.post("/api/memory/archive/1/restore"),
        client.post("/api/memory/changes/abc/keep"),
        client.put("/api/memory/memory", json={"text": "x"}, headers={"If-Match": "*"}),
        client.post("/api/skills/pending/abc/approve"),
        client.post("/api/skills/abc/accept"),
        client.post("/api/tokens", json={}),
        client.delete("/api/tokens/abc"),
        client.post("/api/pairings", json={"code": "ABCDEFGH"}),
    ]

    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert all("a person runs it in a terminal" in answer.json()["next"] for answer in refused)


def test_too_large_and_too_many(served):
    """A body over the limit, with and without a length, and too many headers."""
    client = served.client()
    big = b'{"text": "' + b"x" * 10_100_000 + b'"}'
    assert client.post("/api/memory/memory/entries", content=big).status_code == 413
    parts = iter([big[:5_000_000], big[5_000_000:]])
    assert client.post("/api/memory/memory/entries", content=parts).status_code == 413
    assert served.client(**{f"X-{n}": "y" for n in range(150)}).get("/api/memory").status_code == 431


def test_a_slow_body_is_given_up(home):
    """A client that sends half a body does not hold its request for ever; others are answered meanwhile."""
    with serve(home, {"KEPT_SERVE__BODY_SECONDS": "1"}) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /api/memory/memory/entries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Authorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{" % served.secret.encode()
            )
            assert served.client().get("/api/memory").is_success
            slow.settimeout(30)
            assert b" 408 " in slow.recv(1_000)


MALFORMED = [
    b"GET /api/memory HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
    b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc",
    b"GET http://evil/ HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01garbage\r\n\r\n",
]


def test_malformed_requests_are_refused(served):
    """Two hosts, two lengths, garbage: a 4xx or a closed connection, and the server goes on."""
    host, port = served.url.removeprefix("http://").split(":")
    for raw in MALFORMED:
        with socket.create_connection((host, int(port))) as wire:
            wire.sendall(raw)
            wire.settimeout(30)
            answer = wire.recv(1_000)
        assert not answer or answer.startswith(b"HTTP/1.1 4"), raw
        assert served.client().get("/healthz").is_success, raw


def test_a_user_who_asks_too_much_waits():
    """Others do not."""
    rates = Rates(per_minute=60, at_once=2)
    assert (rates.admit("a"), rates.admit("a")) == (None, None)
    assert rates.admit("a") is not None
    assert rates.admit("b") is None
    rates.release("a")
    assert rates.admit("a") is None


def test_a_rate_refills(monkeypatch):
    """With time."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    rates = Rates(per_minute=2, at_once=100)
    assert [rates.admit("a") is None for _ in range(3)] == [True, True, False]
    clock[0] = 30.0
    assert [rates.admit("a") is None for _ in range(2)] == [True, False]


def test_answers_are_not_cached_and_not_framed(served):
    """Security headers on every answer, errors included."""
    for path in ("/api/memory", "/api/sessions/none", "/nowhere"):
        headers = served.client().get(path).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "no-store" in headers.get("cache-control", "")


def test_work_that_fails_in_the_background_does_not_end_the_server(home, monkeypatch):
    """An error that nobody foresaw is logged; requests are answered as before."""
    failed = threading.Event()

    def fail(_caller):
        failed.set()
        raise OSError("the disk is gone")

    monkeypatch.setattr("wellkept.gateway.server.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("wellkept.operations.upkeep.run_idle_work", fail)
    with serve(home) as served:
        assert failed.wait(60)
        failed.clear()
        assert failed.wait(60)  # it is tried again
        assert served.client().get("/api/memory").is_success


def test_a_backup_that_is_due_is_taken_while_the_server_is_idle(home, monkeypatch):
    """The schedule holds also where only the server runs."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("backup:\n  every: 1d\n")
    monkeypatch.setattr("wellkept.gateway.server.IDLE_SECONDS", 0.01)
    with serve(home):
        deadline = time.monotonic() + 60
        while not list((home / "backups").glob("*.kept*")) and time.monotonic() < deadline:
            time.sleep(0.02)

    assert list((home / "backups").glob("*.kept*"))


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_is_chosen_from_the_owners_list_only(home, tmp_path, stream):
    """Never by a path, and the answer does not tell whether anything is at that path."""
    script = tmp_path / "script.json"
    script.write_text('["the secret of the owner"]')
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    listed = {"KEPT_SERVE__MODELS": f'["openai/listed", "scripted/{script}"]', "KEPT_MODEL__DEFAULT": "extractive"}
    with serve(home, listed) as served:
        for client in (served.client(), served.client(served.token("ann")), served.browser()):
            for model in (
                f"scripted/{script}", f"scripted/{fifo}", "scripted//nonexistent", "scripted//dev/zero", f"local/{script}",
                "local//nonexistent", "openai/expensive", "gpt-expensive", "nonsense", "",
            ):  # fmt: skip
                told = client.post("/api/chat", json={"message": "x", "model": model, "stream": stream})
                assert told.status_code in {401, 403}, (model, told.text)
                assert told.text.replace(f"{model!r}", "'MODEL'") == client.post(
                    "/api/chat", json={"message": "x", "model": "MODEL", "stream": stream}
                ).text  # fmt: skip
        accepted = served.client().post("/api/chat", json={"message": "x", "model": "extractive", "stream": False})
        assert accepted.status_code == 200
        refused = served.client().post("/api/chat", json={"message": "x", "model": "openai/listed", "stream": False})
        assert "OPENAI_API_KEY" in refused.text


def test_a_model_server_that_is_down_is_no_bug_of_kept(home):
    """The answer says that the model failed, with the status of a bad gateway."""
    nowhere = {
        "KEPT_MODEL__DEFAULT": "openai/m",
        "KEPT_MODEL__BASE_URL": "http://127.0.0.1:9/v1",
        "KEPT_MODEL__RETRIES": "0",
    }
    with serve(home, nowhere) as served:
        told = served.client().post("/api/chat", json={"message": "x", "stream": False})
        assert told.status_code == 502
        assert "bug" not in told.text
