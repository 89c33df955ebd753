"""People at a terminal: what they type is stored once, and what they trust runs from then on."""

from collections import Counter


def test_claude_at_a_terminal(connected, terminal):
    """Two turns, then the client is killed: both are stored, and the block of the next session names the session."""
    claude = terminal("claude")
    claude.wait("? for shortcuts")
    claude.type("the harbour light is called petrel-3")
    claude.wait("noted")
    claude.type("and its keeper is called Marten")
    claude.wait("noted")
    claude.close()
    said = Counter(connected.texts())

    assert said["the harbour light is called petrel-3"] == 1
    assert said["and its keeper is called Marten"] == 1
    assert [count for text, count in said.items() if text.startswith("answer anthropic")] == [1, 1]
    connected.codex("How is the harbour light called and who is its keeper")
    assert any("petrel-3" in text for text in connected.given("responses"))


def test_codex_hooks_are_trusted_at_a_terminal(connected, terminal):
    """Codex asks once; after "trust all" its hooks run without a flag, here and in `codex exec`."""
    connected.claude("Remember for later: the invoice printer of the shipping office is called osprey-77")
    codex = terminal("codex")
    codex.wait("Hooks need review")
    codex.type("2")
    codex.wait("for shortcuts")
    codex.type("the lower gate is called stoat-8")
    codex.wait("responses1 noted")
    codex.close()

    assert '"trusted": true' in connected.kept("connect", "status", "--json")
    connected.codex("How is the invoice printer of the shipping office called", trusted=False)
    assert any("osprey-77" in text for text in connected.given("responses"))
    said = Counter(connected.texts())
    assert said["the lower gate is called stoat-8"] == 1
    assert said["answer responses1 noted"] == 1
