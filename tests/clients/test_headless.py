"""Facts that are said in one client reach the model of another, and every turn is stored once."""

HERON = "Remember for later: the staging server of the billing team is called heron-42"
QUESTION = "How is the staging server of the billing team called"


def test_what_claude_is_told_reaches_codex_and_opencode(connected):
    """The passage stands fenced in the request of the other client's model; nothing injected is stored as said."""
    connected.claude(HERON)
    stored = connected.stored()

    assert [(role, text) for source, role, text in stored if source == "claude-code"] == [
        ("user", HERON),
        ("assistant", "answer anthropic1 noted"),
    ]
    connected.codex(QUESTION)
    assert any("heron-42" in text for text in connected.given("responses"))
    connected.opencode(QUESTION)
    assert any("heron-42" in text for text in connected.given("chat"))
    texts = [text for _source, _role, text in connected.stored()]
    assert [text for text in texts if "heron-42" in text] == [HERON]
    assert not any("memory-context" in text or "kept-block" in text for text in texts)
    assert sorted(text for text in texts if text.startswith("answer")) == [
        "answer anthropic1 noted",
        "answer chat1 noted",
        "answer responses1 noted",
    ]
