"""What a provider plugin is told, when, and what it is never told; with the real command line and real plugins."""

import json

import pytest
from tests.flows import recorder

from kept.llm.scripted import Says
from kept.testing.loopback_servers import LoopbackOpenAI

BODY = "Ask the vault for the new key before the old one is revoked."


@pytest.fixture
def server():
    running = []

    def start(*script):
        one = LoopbackOpenAI(list(script))
        one.__enter__()
        running.append(one)
        return one

    yield start
    for one in running:
        one.__exit__(None, None, None)


def use(home, provider, extra=""):
    (home / "config.yaml").write_text(
        f"memory:\n  provider: {provider}\nmodel:\n  default: openai/loopback-model\n{extra}"
    )


def users_of(request):
    return [each["content"] for each in request.body["messages"] if each["role"] == "user"]


def test_the_text_of_a_skill_is_not_the_message_of_the_person(kept_process, home, server):
    """The model gets the skill in this and later requests; providers, title and search get what the person wrote."""
    calls = recorder.install(home)
    use(home, "rec")
    (home / "skills" / "good").mkdir(parents=True)
    (home / "skills" / "good" / "SKILL.md").write_text(f"---\nname: good\ndescription: Rotate keys.\n---\n\n{BODY}\n")
    model = server(Says("Done."), Says("Yes."))

    ran = kept_process("chat", env=model.environment, stdin="/good for staging\nreally?\n")

    assert ran.code == 0, ran.err
    assert [BODY in text for text in users_of(model.requests[1])] == [True, False]
    told = calls("on_turn_start", "prefetch", "sync_turn", "queue_prefetch")
    assert BODY not in json.dumps(calls())
    assert {call[1][call[0] == "on_turn_start"] for call in told} == {"/good for staging", "really?"}
    (listed,) = kept_process("sessions", "list", "--json").json
    assert listed["title"] == "/good for staging"
    shown = kept_process("sessions", "show", listed["session_id"], "--json").out
    assert "/good for staging" in shown
    assert BODY not in shown


def test_recalled_text_does_not_accumulate(kept_process, home, server):
    """Only the newest message of a request carries what was recalled for it."""
    recorder.install(home)
    use(home, "rec")
    model = server(Says("one"), Says("two"), Says("three"))

    kept_process("chat", env=model.environment, stdin="first\nsecond\nthird\n")

    recalled = [["RECALLED-" in text for text in users_of(request)] for request in model.requests]
    assert recalled == [[True], [False, True], [False, False, True]]
