"""The server as a process among others: concurrency, size, faults of the home, the end of the pipe."""

import json
import threading
from contextlib import contextmanager

import apsw
import pytest

from wellkept.app import open_app
from wellkept.core.errors import UsageError
from wellkept.imports.spool import Spool, WaitingTurn
from wellkept.mcp_server import server as server_module
from wellkept.mcp_server import tools
from wellkept.storage.sqlite import open_state

TURN = {"session": "c1", "user": "Where is the greenhouse heater?", "assistant": "In the shed."}


def test_many_calls_at_once_are_all_answered(wire):
    """Answers may come in any order; each has the id of its request."""
    for number in range(100, 140):
        arguments = {"session": f"c{number % 5}", "user": f"question {number}", "assistant": "yes", "key": str(number)}
        wire.send(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call",
             "params": {"name": "remember_turn", "arguments": arguments}}
        )  # fmt: skip
    answers = [wire.receive() for _ in range(40)]

    assert {one["id"] for one in answers} == set(range(100, 140))
    assert all(one["result"]["structuredContent"]["stored"] == 2 for one in answers)


def test_a_slow_call_does_not_hold_up_others(wire, monkeypatch):
    """A search is answered while another tool still works; a cancelled call is not answered at all."""
    goes_on = threading.Event()
    offers = dict(tools._offers())

    def wait(_caller, _arguments, _client):
        goes_on.wait(30)
        return {"success": True}

    slow = tools.Offer("slow", "Slow", "Takes its time, as a summary may.", {"type": "object"}, wait)
    monkeypatch.setattr(tools, "_offers", lambda: {**offers, "slow": slow})
    for number in (7, 8):
        wire.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "slow"}})

    assert wire.value("session_search")["results"] == []
    wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert wire.ask("ping", number="p")["id"] == "p"
    goes_on.set()
    assert wire.receive()["id"] == 8
    assert wire.ask("ping", number="q")["id"] == "q"


def test_a_megabyte_of_arguments_is_answered(wire):
    """Large arguments are refused or stored by the tool, not by the transport."""
    assert wire.failure("memory", target="memory", action="add", content="x" * (1 << 20))
    assert wire.value("remember_turn", session="c", user="y" * (1 << 20))["stored"] == 1


def test_a_line_without_end_is_skipped(connect, monkeypatch):
    """It does not fill the memory, and the next request is answered."""
    monkeypatch.setattr(server_module, "MOST_LINE_BYTES", 10_000)
    wire = connect()
    wire.send(b"x" * 35_000)

    assert "too long" in wire.receive()["error"]["message"]
    assert wire.ask("ping")["result"] == {}


def test_broken_unicode_is_answered(wire):
    """Lone surrogates in a request come back escaped."""
    wire.send(rb'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"\ud800"}}')

    assert wire.receive()["result"]["isError"] is True
    assert wire.value("remember_turn", session="c", user="a \ud800 b")["stored"] == 1


def test_an_unforeseen_failure_is_one_line(wire, monkeypatch):
    """The model reads one line, the log has the rest, and the server continues."""

    def fail(_caller, _arguments, _client):
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(tools, "_offers", lambda: {"odd": tools.Offer("odd", "Odd", "Fails.", {}, fail)})

    assert "internal error" in (told := wire.failure("odd"))
    assert "secret" not in told


def test_a_broken_home_is_an_answer_and_heals(connect):
    """Tools are listed without a home; a call that cannot open it says why; the next one tries again."""
    broken = [True]

    @contextmanager
    def open_caller():
        if broken:
            raise UsageError("the settings are wrong", "run: kept config check")
        app = open_app()
        yield app.caller()
        app.close()

    wire = connect(opener=open_caller)

    assert len(wire.ask("tools/list")["result"]["tools"]) == 8
    assert wire.failure("memory_read") == "the settings are wrong; next: run: kept config check"
    broken.clear()
    assert "(empty)" in wire.text("memory_read")


def test_a_corrupt_store_is_one_line_with_the_next_step(connect, home):
    """Search and capture say what to run; the pages still work."""
    home.mkdir(parents=True)
    open_state(home / "state.db").close()
    whole = (home / "state.db").read_bytes()
    (home / "state.db").write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    wire = connect()

    failures = [wire.failure("session_search", query="x"), wire.failure("forget", query="x")]

    assert all("next:" in one for one in failures), failures
    assert "(empty)" in wire.text("memory_read")


def test_a_newer_store_is_one_line(connect, home):
    """A home of a newer kept is not touched, and the answer says to update."""
    home.mkdir(parents=True)
    open_state(home / "state.db").close()
    with apsw.Connection(str(home / "state.db")) as newer:
        newer.execute("CREATE TABLE of_the_future (id INTEGER PRIMARY KEY)")
        newer.pragma("user_version", 9_999)

    assert "update kept" in connect().failure("session_search", query="x")


def test_a_locked_store_spools_the_turn(wire, home, monkeypatch):
    """While another program holds the lock, a turn waits in the spool and says so; then it is stored by itself."""
    monkeypatch.setattr("wellkept.storage.sqlite.BUSY_SECONDS", 0.2)
    wire.value("remember_turn", **TURN)
    other = open_state(home / "state.db")
    with other.writing():
        answer = wire.call("remember_turn", session="c1", user="And the spade?", assistant="Beside it.")
    other.close()

    assert answer["isError"] is True
    assert "spool" in json.dumps(answer)


def test_what_waits_in_the_spool_is_stored_when_it_is_quiet(connect, home, monkeypatch):
    """Conversations that a hook could not store in time are found after a while."""
    monkeypatch.setattr(server_module, "QUIET_SECONDS", 0.05)
    home.mkdir(parents=True)
    app = open_app()
    folder = app.owner.home.spool
    app.close()
    Spool(folder).add(WaitingTurn("codex", "s1", "t1", None, "the okapi eats leaves", "yes", 1_790_000_000.0))
    wire = connect()
    deadline = threading.Event()

    for _ in range(100):
        if not list(folder.glob("*")):
            break
        deadline.wait(0.1)

    assert wire.value("session_search", query="okapi leaves")["results"][0]["source"] == "codex"


def test_another_user_sees_nothing_of_the_owner(wire, connect):
    """Pages, conversations, receipts, ledger and resources of one user do not exist for another."""
    wire.value("memory", target="user", action="add", content="Prefers green tea.")
    session_id = wire.value("remember_turn", **TURN)["session_id"]
    kim = connect("kim")

    assert "green tea" not in kim.text("memory_read")
    assert kim.value("session_search", query="greenhouse heater")["results"] == []
    assert kim.value("session_search")["results"] == []
    assert "there is no session" in kim.failure("session_search", session_id=session_id)
    assert "no message 1" in kim.failure("session_search", around_message_id=1)
    assert kim.call("forget", session_id=session_id)["isError"] is True
    assert kim.call("forget", query="green tea")["isError"] is True
    for uri in ("memory/USER.md", "memory/ledger", "sessions/recent"):
        assert "tea" not in json.dumps(kim.ask("resources/read", {"uri": f"kept://{uri}"}))
    assert kim.ask("resources/read", {"uri": f"kept://sessions/{session_id}"})["error"]["code"] == -32602
    assert kim.value("remember_turn", **TURN)["session_id"] != session_id


def test_the_end_of_the_pipe_ends_the_server(wire):
    """Calls that run are finished, the home is closed, nothing is left over."""
    wire.value("remember_turn", **TURN)
    wire.close()

    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("kept-mcp")]
    assert left == []


@pytest.mark.parametrize("method", ["resources/list", "resources/read", "prompts/get"])
def test_resources_of_a_broken_home_are_one_line(connect, method):
    """An error of the home is an error of the request."""

    @contextmanager
    def open_caller():
        raise UsageError("the settings are wrong", "run: kept config check")
        yield

    params = {"uri": "kept://memory/USER.md", "name": "recall", "arguments": {"topic": "x"}}
    error = connect(opener=open_caller).ask(method, params)["error"]

    assert error["message"] == "the settings are wrong; next: run: kept config check"
