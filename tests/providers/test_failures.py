"""What goes wrong at a back end: one clear line with the next step, the same for every adapter."""

import json

import pytest

from wellkept.core.errors import KeptError
from wellkept.providers.base import Rejected
from wellkept.providers.writes import FinishedTurn
from wellkept.testing.http_double import Fault
from wellkept.testing.provider_contract import Bench, eventually

REMOTE = ("hindsight", "honcho", "mem0", "openviking", "retaindb", "supermemory")
SEVEN = (*REMOTE, "byterover")
HTML = b"<html><body>Welcome to the portal</body></html>"

TABLE = {
    "wrong key": (Fault(401, b'{"detail": "invalid key"}'), "401: invalid key", "check the key"),
    "expired key": (Fault(403, b'{"error": {"message": "expired"}}'), "403: expired", "check the key"),
    "quota": (Fault(402, b'{"message": "out of credits"}'), "402: out of credits", "quota"),
    "too many": (Fault(429, b'{"error": "slow down"}'), "429: slow down", "outbox"),
    "moved route": (Fault(404, b'{"detail":"Not Found"}'), "404: Not Found", "version of the server"),
    "html": (Fault(200, HTML, "text/html"), "text/html instead of JSON", "is this the API?"),
    "html error": (Fault(502, HTML, "text/html"), "answered 502", "outbox"),
    "50 MB": (Fault(200, b'"' + b"x" * 50_000_000 + b'"'), "more than 8,000,000 bytes", "check the server"),
    "redirect": (Fault(302, b"", location="https://portal.example.org/login"), "another host", "final one"),
    "slow drip": (Fault(200, b'{"results": []}' + b" " * 500, drip_seconds=0.05), "did not answer within", "server is up"),
    "silence": (Fault(200, b"{}", seconds=30), "did not answer within", "server is up"),
}  # fmt: skip
PROGRAM = {
    "wrong key": ({"error": "401 Unauthorized: invalid key"}, "invalid key", "brv"),
    "quota": ({"error": "402 out of credits"}, "out of credits", "outbox"),
    "no model": ({"error": "No provider connected. Run x"}, "No provider connected", "brv providers connect"),
    "html": ({"garbage": HTML.decode()}, "without JSON", "brv --version"),
    "50 MB": ({"garbage": "[" + "1," * 3_000_000 + "1]"}, "more than 4,000,000 bytes", "brv status"),
    "silence": ({"seconds": 30}, "did not answer within", "brv status"),
    "dns": ({"error": "getaddrinfo ENOTFOUND iam.example.org"}, "ENOTFOUND", "outbox"),
}


def check_line(error, message, remedy):
    assert isinstance(error, KeptError)
    assert not getattr(error, "permanent", False)
    assert message in error.message
    assert remedy in error.remedy
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def fail_of(work):
    with pytest.raises(KeptError) as caught:
        work()
    return caught.value


@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("backend", REMOTE, indirect=True)
def test_every_failure_is_one_line_with_the_next_step(backend, start_of, kind):
    """In recall and in a write; none of them is permanent, so the write waits; status says it too."""
    fault, message, remedy = TABLE[kind]
    is_slow = kind in {"silence", "slow drip"}
    backend.configure(timeout_seconds=0.5 if is_slow else 50.0)
    provider = start_of(backend)
    backend.double.outage = fault

    check_line(fail_of(lambda: provider.prefetch("hello there", session_id="s1")), message, remedy)
    if not is_slow:
        turn = lambda: provider.sync_turn("hello", "hi", session_id="s1")  # noqa: E731 - called once
        check_line(fail_of(turn), message, remedy)
        status = provider.get_status()
        assert (status["reachable"], message in status["error"]) == (False, True)
    provider.shutdown()


@pytest.mark.parametrize(
    ("url", "message", "remedy"),
    [
        ("https://127.0.0.1:{port}", "no secure connection to 127.0.0.1", "certificate"),
        ("http://nowhere.invalid", "cannot be reached at nowhere.invalid", "address and the network"),
        ("http://127.0.0.1:1", "cannot be reached at 127.0.0.1:1", "address and the network"),
    ],
    ids=["tls", "dns", "nobody"],
)
@pytest.mark.parametrize("backend", REMOTE, indirect=True)
def test_no_connection_is_one_line_with_the_next_step(backend, start_of, url, message, remedy):
    """A server without TLS, a name that does not exist, nobody there."""
    backend.configure(base_url=url.format(port=backend.double.url.rpartition(":")[2]))
    provider = start_of(backend)

    check_line(fail_of(lambda: provider.prefetch("hello there", session_id="s1")), message, remedy)
    assert provider.get_status()["reachable"] is False


@pytest.mark.parametrize("kind", PROGRAM)
@pytest.mark.parametrize("backend", ["byterover"], indirect=True)
def test_every_failure_of_a_program_is_one_line_with_the_next_step(backend, start_of, kind):
    """It exits with 0 each time."""
    mode, message, remedy = PROGRAM[kind]
    provider = start_of(backend)
    provider.add_entry("user", "Likes tea")
    backend.configure(timeout_seconds=1.0)
    provider = start_of(backend)
    backend.brv.set(**mode)

    check_line(fail_of(lambda: provider.prefetch("hello there")), message, remedy)
    assert provider.get_status()["reachable"] is False


def settle(bench, manager, number):
    bench.settle(manager, FinishedTurn(session_id="s1", key=str(number), user=f"turn {number}", assistant="ok"))


@pytest.mark.parametrize("backend", SEVEN, indirect=True)
def test_passing_failures_are_retried_and_permanent_ones_set_aside_with_a_count(backend, start_of):
    """The write behind a rejected one is delivered; nothing is lost."""
    bench = Bench(backend.home)
    manager = bench.manager(start_of(backend), breaker_failures=1000)
    if backend.name == "byterover":
        backend.brv.set(model="m", curate_error="the text is too large")
    else:
        backend.double.outage = Fault(422, b'{"detail": "too long"}')
    settle(bench, manager, 1)
    eventually(lambda: bench.outbox.lanes()[0].refused == 1, seconds=30)
    if backend.name == "byterover":
        backend.brv.set(model="m", curate_error="busy")
    else:
        backend.double.outage = Fault(503)
    settle(bench, manager, 2)
    eventually(lambda: (head := bench.outbox.head(backend.name)) is not None and head.attempts >= 2, seconds=30)
    backend.brv.set(model="m") if backend.name == "byterover" else setattr(backend.double, "outage", None)
    eventually(lambda: bench.outbox.lanes()[0].waiting == 0, seconds=30)
    (lane,) = bench.outbox.lanes()
    (aside,) = bench.outbox.items()
    bench.close()

    assert (lane.refused, lane.delivered, lane.dropped) == (1, 1, 0)
    assert (aside.is_refused, "too l" in aside.last_error) == (True, True)
    assert backend.said() == ["turn 2"]


@pytest.mark.parametrize("backend", REMOTE, indirect=True)
def test_a_key_never_appears_in_an_error(backend, start_of):
    """Also when the back end repeats it."""
    provider = start_of(backend)
    backend.double.outage = Fault(401, json.dumps({"detail": f"bad key {backend.key}"}).encode())
    bench = Bench(backend.home)
    manager = bench.manager(provider)
    settle(bench, manager, 1)
    eventually(lambda: (head := bench.outbox.head(backend.name)) is not None and head.attempts >= 1, seconds=30)
    (item,) = bench.outbox.items()
    bench.close()

    assert "401" in item.last_error
    assert backend.key not in item.last_error
    assert backend.key not in json.dumps(provider.get_status())


def test_only_a_rejection_of_the_content_is_permanent():
    """The table above holds no permanent failure."""
    assert Rejected.permanent is True
