"""Writes that a provider does not take: the one that fails blocks loudly, the one that is refused holds nothing up."""

import json

import pytest

from wellkept.testing.loopback_servers import LoopbackOpenAI

PLUGIN = """
import json, pathlib
from agent.memory_provider import MemoryProvider
class TooLong(Exception):
    permanent = True
class Picky(MemoryProvider):
    name = "picky"
    def is_available(self): return True
    def initialize(self, session_id, **context): self.home = pathlib.Path(context["kept_home"])
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def sync_turn(self, user, assistant, *, session_id="", messages=()):
        if "poison" in user: raise RuntimeError("index 7 out of range")
        if "too long" in user: raise TooLong("at most 100 characters")
        with (self.home / "told.txt").open("a") as file: file.write(user + chr(10))
"""


@pytest.fixture
def say(kept, home):
    """Says something in a conversation of its own, with the provider in use."""
    folder = home / "plugins" / "picky"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    (home / "config.yaml").write_text("memory: {provider: picky}\nproviders: {switch_wait_seconds: 1}\n")
    with LoopbackOpenAI(lambda _body: "fine") as server:
        yield lambda text: kept("run", text, "--model", "openai/loopback-model", env=server.environment)


def test_a_write_that_fails_says_what_it_blocks_and_how_to_go_on(kept, home, say):
    """Strictly in order: what is behind it waits; status names the write, since when, and both commands."""
    say("poison")
    say("after it")
    status = kept("providers", "status")
    blocked = kept("providers", "status", "--json").json["active"][0]["blocked"][0]

    assert not (home / "told.txt").exists()
    assert f"BLOCKED since {blocked['since']} by write {blocked['id']} (sync_turn)" in status.out
    assert "1 wait behind it" in status.out
    assert "index 7 out of range" in status.out
    assert blocked["drop"] in status.out
    assert blocked["retry"] in status.out

    assert kept(*blocked["retry"].split()[1:]).code == 0
    assert kept(*blocked["drop"].split()[1:], "--yes").code == 0
    say("the next")
    assert (home / "told.txt").read_text().splitlines() == ["after it", "the next"]
    assert "BLOCKED" not in kept("providers", "status").out


def test_a_write_that_is_refused_for_good_is_set_aside(kept, home, say):
    """It is counted and kept; what is behind it is delivered, the provider stays well, and a person may retry it."""
    say("this is too long")
    say("after it")

    assert (home / "told.txt").read_text().splitlines() == ["after it"]
    active = kept("providers", "status", "--json").json["active"][0]
    assert (active["refused"], active["waiting"], active["health"], active["blocked"]) == (1, 0, "ok", [])
    assert "1 permanently refused" in kept("providers", "status").out
    shown = kept("providers", "outbox")
    assert "at most 100 characters" in shown.out
    (item,) = [each for each in json.loads(kept("providers", "outbox", "--json").out)["items"] if each["refused"]]
    assert item["due"] is None
    assert kept("providers", "outbox", "drop", "--id", str(item["id"]), "--yes").code == 0
    assert kept("providers", "status", "--json").json["active"][0]["refused"] == 0
