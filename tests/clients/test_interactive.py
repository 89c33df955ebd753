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
    codex.read(8)  # its request for a title ends
    codex.close()
    sessions = connected.kept("sessions", "list")

    assert "stoat-8" in sessions
    assert "task title" not in sessions
    assert '"trusted": true' in connected.kept("connect", "status", "--json")
    connected.codex("How is the invoice printer of the shipping office called", trusted=False)
    assert any("osprey-77" in text for text in connected.given("responses"))
    said = Counter(connected.texts())
    assert said["the lower gate is called stoat-8"] == 1
    assert said["answer responses1 noted"] == 1


def test_opencode_at_a_terminal_and_continued(connected, terminal):
    """A turn that is typed and one that continues it headless are each stored once."""
    connected.opencode("the upper lock is called dipper-5")
    opencode = terminal("opencode", "--continue")
    opencode.wait("chat1 noted")
    opencode.type("and the lock keeper is called Wren")
    opencode.wait("chat2")
    opencode.close()
    connected.opencode("the lock has three gates", "--continue")
    said = Counter(text.strip('"') for text in connected.texts())

    assert said["the upper lock is called dipper-5"] == 1
    assert said["and the lock keeper is called Wren"] == 1
    assert said["the lock has three gates"] == 1
    assert [count for text, count in said.items() if text.startswith("answer chat")] == [1, 1, 1]
