"""The assistant without a model over the gateway: the same dialogue as in a terminal."""

import pytest

from wellkept.memory.page import Target


def ask(client, messages, said):
    """Send a history that ends with a new message, and return the history with the answer."""
    messages = [*messages, {"role": "user", "content": said}]
    answer = client.post("/v1/chat/completions", json={"model": "kept", "messages": messages})
    assert answer.status_code == 200, answer.text
    return [*messages, {"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]}]


def test_a_yes_over_v1_decides_nothing(served):
    """A token is held by a program: the answer says how a person saves what was proposed."""
    with served.client(served.token()) as client:
        talk = ask(client, [], "Wir nutzen pnpm, nicht npm")
        assert "Soll ich es behalten?" in talk[-1]["content"]
        talk = ask(client, talk, "ja")

    assert "only a person can decide" in talk[-1]["content"]
    assert "`kept memory approve" in talk[-1]["content"]
    assert served.owner.space.memory.entries(Target.USER) == []


@pytest.mark.parametrize("said", ["forget that I play the cello", "delete everything you know about me"])
def test_nothing_is_forgotten_over_v1(served, said):
    """What was said to be remembered is; forgetting it is left to a person."""
    with served.client(served.token()) as client:
        talk = ask(client, [], "Remember that I play the cello")
        talk = ask(client, talk, said)
        asked = talk[-1]["content"]
        ask(client, talk, "yes")

    assert "only a person can decide" in asked
    assert served.owner.space.memory.entries(Target.USER) == ["I play the cello"]
