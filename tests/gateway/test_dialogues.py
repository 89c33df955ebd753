"""The assistant without a model over the gateway: the same dialogue as in a terminal."""

from kept.memory.edits import Target


def ask(client, messages, said):
    """Send a history that ends with a new message, and return the history with the answer."""
    messages = [*messages, {"role": "user", "content": said}]
    answer = client.post("/v1/chat/completions", json={"model": "kept", "messages": messages})
    assert answer.status_code == 200, answer.text
    return [*messages, {"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]}]


def test_a_yes_over_v1_saves_what_was_proposed(served):
    """The open question belongs to the session that the history continues."""
    with served.client(served.token()) as client:
        talk = ask(client, [], "Wir nutzen pnpm, nicht npm")
        assert "Soll ich es behalten?" in talk[-1]["content"]
        talk = ask(client, talk, "ja")

    assert "Gespeichert" in talk[-1]["content"]
    assert served.owner.space.memory.entries(Target.USER) == ["Wir nutzen pnpm, nicht npm"]


def test_forgetting_over_v1_asks_first(served):
    """Nothing goes before the yes, everything named after it; the conversation goes on."""
    with served.client(served.token()) as client:
        talk = ask(client, [], "Remember that I play the cello")
        talk = ask(client, talk, "forget that I play the cello")
        assert served.owner.space.memory.entries(Target.USER) == ["I play the cello"]
        talk = ask(client, talk, "yes")
        again = ask(client, [], "what do you know about me?")

    assert "Permanently deleted" in talk[-1]["content"]
    assert served.owner.space.memory.entries(Target.USER) == []
    assert "cello" not in again[-1]["content"]


def test_everything_is_forgotten_over_v1(served):
    """Also the conversation in which it is said; a new one starts from nothing."""
    with served.client(served.token()) as client:
        talk = ask(client, [], "Remember that I play the cello")
        talk = ask(client, talk, "delete everything you know about me")
        talk = ask(client, talk, "yes")
        again = ask(client, [], "what do you know about me?")

    assert "Permanently deleted" in talk[-1]["content"]
    assert "I know nothing about you yet" in again[-1]["content"]
