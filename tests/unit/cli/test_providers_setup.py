"""`kept providers setup` for providers with a server: answers, keys, and what is refused before anything is saved."""

import json
import os
import pty
import select
import sys
import time
from unittest.mock import patch

import pytest
from tests import forks

from wellkept.config.settings import read_secrets
from wellkept.testing.http_double import Fault, HttpDouble


@pytest.fixture(autouse=True)
def _own_environment():
    """Variables that setup puts into the process are gone after the test."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def server():
    """A RetainDB without memories, which wants no key."""
    with HttpDouble() as double:
        double.route("GET", "/v1/memory/profile/.*", lambda _: (200, {"memories": []}))
        double.route("POST", "/v1/memory/search", lambda _: (200, {"results": []}))
        yield double


def test_a_server_of_ones_own_needs_no_key(run, home, server):
    """It is tested, switched on, and available in the next process too."""
    done = run("providers", "setup", "retaindb", "--set", f"base_url={server.url}", "--yes", "--json")
    status = json.loads(run("providers", "status", "--json").out)["active"][0]
    used = json.loads(run("tool", "retaindb_profile", "{}").out)

    assert used == {"success": True, "memories": []}
    assert (done.code, json.loads(done.out)) == (0, {"provider": "retaindb", "tested": True, "enabled": True})
    assert (status["available"], status["missing_variables"]) == (True, [])
    assert status["facts"]["reachable"] is True


def test_a_key_is_read_from_a_variable_and_stored_privately(run, home, server, monkeypatch):
    """Under the name of the question or of the variable; the command line never holds it."""
    monkeypatch.setenv("MY_KEY", "rdb_secret_1")
    monkeypatch.setenv("MY_OTHER", "rdb_secret_2")
    first = run(
        "providers", "setup", "retaindb", "--set", f"base_url={server.url}", "--secret", "api_key=env:MY_KEY", "--yes"
    )
    stored = read_secrets(home / ".env")
    second = run("providers", "setup", "retaindb", "--secret", "RETAINDB_API_KEY=env:MY_OTHER", "--yes")

    assert (first.code, second.code) == (0, 0), second.err
    assert stored == {"RETAINDB_API_KEY": "rdb_secret_1"}
    assert read_secrets(home / ".env") == {"RETAINDB_API_KEY": "rdb_secret_2"}
    assert "rdb_secret" not in (home / "retaindb.json").read_text()
    assert server.requests[-1].headers["x-api-key"] == "rdb_secret_2"


def test_another_setup_changes_only_what_is_given(run, home, server):
    """The address is still that of the first one, and a setting that is never asked can be set."""
    run("providers", "setup", "retaindb", "--set", f"base_url={server.url}", "--yes")
    done = run("providers", "setup", "retaindb", "--set", "top_k=3", "--set", "timeout_seconds=2", "--yes")
    stored = json.loads((home / "retaindb.json").read_text())

    assert done.code == 0, done.err
    assert (stored["base_url"], stored["top_k"], stored["timeout_seconds"]) == (server.url, 3, 2.0)


@pytest.mark.parametrize(
    ("arguments", "error", "accepted"),
    [
        (("mem0", "--set", "mode=moon"), "mode cannot be 'moon'", "platform | self-hosted | oss"),
        (("mem0", "--set", "embedding_dims=many"), "embedding_dims cannot be 'many'", "a whole number, from 8 to 8192"),
        (("mem0", "--set", "embedding_dims=3"), "embedding_dims cannot be '3'", "from 8 to 8192"),
        (("mem0", "--set", "rerank=perhaps"), "rerank cannot be 'perhaps'", "true | false"),
        (("mem0", "--set", "mode=self-hosted"), "mem0 needs base_url", "base_url=http://"),
        (("honcho", "--set", "base_url=localhost:8000"), "base_url cannot be 'localhost:8000'", "http://127.0.0.1:8000"),
        (("honcho", "--set", "base_url=ftp://x"), "base_url cannot be 'ftp://x'", "https://host"),
        (("honcho", "--set", "recallMode=all"), "recallMode cannot be 'all'", "hybrid | context | tools"),
        (("honcho",), "honcho needs a key, in HONCHO_API_KEY", "--secret api_key=env:HONCHO_API_KEY"),
        (("supermemory", "--set", "generation=v4"), "generation cannot be 'v4'", "v3 | v5"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_with_the_accepted_values(run, home, arguments, error, accepted):
    """Nothing is saved and nothing is switched on."""
    done = run("providers", "setup", *arguments, "--yes", "--json")
    answer = json.loads(done.out)

    assert done.code == 1
    assert error in answer["error"]
    assert accepted in answer["next"]
    assert not (home / f"{arguments[0]}.json").exists()
    assert json.loads(run("providers", "status", "--json").out)["provider"] == []


@pytest.mark.parametrize(
    ("secret", "word"), [("api_key=rdb_abc", "env:"), ("api_key=env:UNSET_HERE", "UNSET_HERE"), ("api_key", "env:VAR")]
)
def test_a_key_on_the_command_line_is_refused(run, home, secret, word):
    """So is a variable without a value."""
    done = run("providers", "setup", "retaindb", "--secret", secret, "--yes")

    assert done.code == 2
    assert word in done.err
    assert "rdb_abc" not in done.err


def test_a_back_end_that_refuses_the_key_is_not_switched_on(run, server, monkeypatch):
    """The answer says what the back end said and what to do next."""
    monkeypatch.setenv("MY_KEY", "old")
    server.outage = Fault(401, b'{"error": "expired"}')
    done = run(
        "providers", "setup", "retaindb", "--set", f"base_url={server.url}", "--secret", "api_key=env:MY_KEY", "--json"
    )

    assert done.code == 1
    assert "401: expired" in json.loads(done.out)["error"]
    assert "check the key" in json.loads(done.out)["next"]
    assert json.loads(run("providers", "status", "--json").out)["provider"] == []


def test_a_mode_without_tools_offers_none(run, home, server):
    """The tools of a prompt are read before the provider is started, and follow its settings all the same."""
    (home).mkdir()
    (home / "honcho.json").write_text(json.dumps({"base_url": server.url, "recallMode": "context"}))
    (home / "config.yaml").write_text("memory:\n  provider: honcho\n")
    without = run("tool", "honcho_profile", "{}")
    (home / "honcho.json").write_text(json.dumps({"base_url": server.url, "recallMode": "tools"}))
    with_tools = run("tool", "honcho_profile", "{}")

    assert "no tool" in without.err + without.out
    assert "no tool" not in with_tools.err + with_tools.out


def test_a_person_is_asked_and_a_wrong_answer_is_asked_again(home, server):
    """In a terminal: the address wants a scheme, the number a number, and Enter keeps the default."""
    near, far = pty.openpty()
    process = forks.Popen(
        [sys.executable, "-m", "wellkept", "providers", "setup", "retaindb"], stdin=far, stdout=far, stderr=far
    )
    os.close(far)
    answers = iter(["localhost:1", server.url, "", "lots", "5", "", ""])
    seen, answered, deadline = "", 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([near], [], [], 0.2)[0]:
            continue
        try:
            seen += os.read(near, 65_536).decode()
        except OSError:
            break
        if seen.endswith(": ") and len(seen) > answered:
            answered = len(seen)
            os.write(near, next(answers).encode() + b"\n")
    os.close(near)

    assert process.wait(10) == 0, seen
    assert "base_url cannot be 'localhost:1'" in seen
    assert "top_k cannot be 'lots'" in seen
    stored = json.loads((home / "retaindb.json").read_text())
    assert (stored["base_url"], stored["project"], stored["top_k"]) == (server.url, "kept", 5)
