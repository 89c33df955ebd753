"""The proxy against an endpoint on loopback: bytes, headers, streams, and errors on the way."""

import gzip
import json
import re
import threading
import time
import zlib

import httpx2
import pytest

from .proxied import KEY, QUESTION, proxied


@pytest.fixture
def world(home):
    with proxied(home) as made:
        yield made


FENCED = re.compile(rb"<memory-context>.*?</memory-context>", re.DOTALL)


def test_only_the_addition_differs(world):
    """Spaces, escapes, order, numbers and unknown fields of a request keep their bytes."""
    world.remember()
    before = (
        b'{ "messages" :\n[ {"role":"user","content":[ {"type":"text","text":"what is the st\\u0061ging server called '
        b'on which port \xc3\xa4 \\ud83d\\ude00","cache_control":{"type":"ephemeral"}}'
    )
    middle = b' ]} ],\t"temperature":1.0e0 , "metadata": {"user_id":"u","new":[1,2,{"a":null}]}, "system":[{"type":"text","text":"be brief"}'
    after = b' ] ,"max_tokens":99,"model":"m", "thinking":{"type":"enabled","budget_tokens":2048}  }\n'
    world.post(before + middle + after, path="v1/messages?beta=true")
    _method, path, _headers, sent = world.endpoint.received[-1]
    assert path == "/v1/messages?beta=true"
    assert len(FENCED.findall(sent)) == 2
    assert (
        re.sub(rb',\{"type":"text","text":"<memory-context>.*?</memory-context>"\}', b"", sent)
        == before + middle + after
    )
    assert json.loads(sent)["messages"][0]["content"][0]["text"].endswith("ä 😀")


def test_without_memory_a_request_is_what_it_was(world):
    """A home that knows nothing adds nothing."""
    body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hello there friend"}]} '
    assert world.post(body).headers["x-kept"] == "added"
    assert world.sent == [body]


def test_headers_go_on_without_those_of_the_connection(world):
    """What the vendor reads arrives; what was for us, or for one connection, does not."""
    given = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "context-1m-2025-08-07,interleaved-thinking-2025-05-14",
        "x-app": "cli",
        "accept-encoding": "gzip, br",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "keep-alive": "timeout=5",
        "te": "trailers",
        "x-kept-session": "mine",
        "x-kept-token": "",
    }
    world.post({"model": "m", "messages": [{"role": "user", "content": "hello there"}]}, headers=given)
    _method, _path, pairs, body = world.endpoint.received[-1]
    found = dict(pairs)
    kept = ("anthropic-version", "anthropic-beta", "x-app", "accept-encoding")
    assert {name: found[name] for name in kept} == {name: given[name] for name in kept}
    assert found["x-api-key"] == KEY
    assert found["host"] == world.endpoint.url.removeprefix("http://")
    assert found["content-length"] == str(len(body))
    assert not {"x-hop", "keep-alive", "te", "x-kept-session", "x-kept-token"} & set(found)


EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":5}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}\n\n',
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n: a comment\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"hel',
    b"lo \xc3",
    b'\xa4"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]
"""A stream with a comment, with an unknown event, and with a character that is cut in two."""


def zstd(data):
    try:
        from compression import zstd as module
    except ImportError:
        from backports import zstd as module
    return module.compress(data)


CODINGS = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd}


@pytest.mark.parametrize("coding", [*CODINGS, "br"])
def test_a_reply_keeps_its_bytes(world, coding):
    """A stream arrives as it was sent, compressed or not; what can be read is stored."""
    whole = b"".join(EVENTS)
    data = CODINGS.get(coding, bytes)(whole)
    cut = [data[place : place + 100] for place in range(0, len(data), 100)]
    headers = [("Content-Type", "text/event-stream; charset=utf-8"), ("Content-Encoding", coding)]
    headers += [("anthropic-ratelimit-requests-remaining", "49"), ("X-Twice", "a=1"), ("X-Twice", "b=2")]
    world.endpoint.plan = lambda _request: (200, headers, cut)
    sent = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "good morning"}]}
    with (
        httpx2.Client(timeout=60) as client,
        client.stream(
            "POST", f"{world.served.proxy}/anthropic/v1/messages", json=sent, headers={"x-api-key": KEY}
        ) as reply,
    ):
        assert b"".join(reply.iter_raw()) == data
        assert reply.headers["content-encoding"] == coding
        assert reply.headers["anthropic-ratelimit-requests-remaining"] == "49"
        assert reply.headers.get_list("x-twice") == ["a=1", "b=2"]
    expected = [] if coding == "br" else [[("user", "good morning"), ("assistant", "hello ä")]]
    assert world.stored() == expected


def test_errors_arrive_as_they_were_and_nothing_is_stored(world):
    """Status, body and headers of an error are the endpoint's."""
    for status in (400, 401, 403, 404, 413, 429, 500, 529):
        body = json.dumps({"type": "error", "error": {"type": "some_error", "message": f"no {status}"}}).encode()
        own = {"retry-after": "7", "request-id": f"req_{status}"}
        headers = [("Content-Type", "application/json"), *own.items(), ("Content-Length", str(len(body)))]
        world.endpoint.plan = lambda _request, reply=(status, headers, [body]): reply
        world.endpoint.received.clear()
        done = world.ask("hello there")
        assert (done.status_code, done.content) == (status, body)
        assert {name: done.headers[name] for name in own} == own
        assert len(world.endpoint.received) == 1, status  # it never tries again by itself
    assert world.stored() == []


def test_a_stream_is_passed_on_as_it_comes(world):
    """The first event arrives before the second is sent."""
    goes_on = threading.Event()

    def chunks():
        yield EVENTS[0]
        assert goes_on.wait(20)
        yield from EVENTS[1:]

    world.endpoint.plan = lambda _request: (200, [("Content-Type", "text/event-stream")], chunks())
    sent = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "good morning"}]}
    with (
        httpx2.Client(timeout=60) as client,
        client.stream(
            "POST", f"{world.served.proxy}/anthropic/v1/messages", json=sent, headers={"x-api-key": KEY}
        ) as reply,
    ):
        found = reply.iter_raw()
        assert next(found) == EVENTS[0]
        goes_on.set()
        assert b"".join(found) == b"".join(EVENTS[1:])


def test_a_client_that_leaves_ends_the_request(world):
    """The endpoint need not go on, and what the client was shown is stored."""

    def chunks():
        yield from EVENTS[:9]
        for _ in range(1_000):
            time.sleep(0.02)
            yield b": still here\n\n"

    world.endpoint.plan = lambda _request: (200, [("Content-Type", "text/event-stream")], chunks())
    sent = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "good morning"}]}
    with (
        httpx2.Client(timeout=60) as client,
        client.stream(
            "POST", f"{world.served.proxy}/anthropic/v1/messages", json=sent, headers={"x-api-key": KEY}
        ) as reply,
    ):
        got = b""
        for chunk in reply.iter_raw():
            got += chunk
            if b": still here" in got:
                break
    assert world.endpoint.left.wait(20)
    assert world.stored() == [[("user", "good morning"), ("assistant", "hello ä")]]


def test_a_reply_that_breaks_off_breaks_off(world):
    """The client notices, as it would without the proxy."""
    world.endpoint.plan = lambda _request: (200, [("Content-Type", "text/event-stream")], [*EVENTS[:9], None])
    with pytest.raises(httpx2.RemoteProtocolError):
        world.ask("good morning", stream=True)
    assert world.stored() == [[("user", "good morning"), ("assistant", "hello ä")]]


def test_an_endpoint_that_is_not_there(home):
    """The answer is an error of that API, and says nothing of the key."""
    nowhere = json.dumps({"anthropic": "http://127.0.0.1:9"})
    with proxied(home, KEPT_SERVE__PROXY__UPSTREAMS=nowhere) as world:
        done = world.ask("hello there")
    assert done.status_code == 502
    assert done.json()["error"]["message"] == "kept cannot reach 127.0.0.1: ConnectError"


@pytest.mark.parametrize("path", ["v1/messages/count_tokens", "v1/embeddings", "v1/messages/batches"])
def test_other_paths_pass_unchanged(world, path):
    """Nothing is added to them, and nothing is stored."""
    world.remember()
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}]}).encode()
    world.post(body, path=path)
    assert world.endpoint.received[-1][1] == f"/{path}"
    assert world.sent[-1] == body
    assert len(world.stored()) == 1


def test_lists_of_models_pass(world):
    """Other methods go on as they are."""
    data = b'{"object":"list","data":[{"id":"gpt"}]}'
    world.endpoint.plan = lambda _request: (200, [("Content-Type", "application/json")], [data])
    with world.served.client("") as client:
        assert client.get(f"/proxy/{world.served.secret}/openai/v1/models?limit=5").content == data
        assert client.delete(f"/proxy/{world.served.secret}/openai/v1/responses/resp_1").content == data
    assert [one[:2] for one in world.endpoint.received] == [
        ("GET", "/v1/models?limit=5"),
        ("DELETE", "/v1/responses/resp_1"),
    ]
