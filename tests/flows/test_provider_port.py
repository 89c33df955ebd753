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


def test_memory_that_is_off_is_neither_explained_nor_offered(kept_process, home, server):
    """With both pages switched off the prompt has no guidance for them, and the model has no tool for them."""
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  memory_enabled: false\n  user_profile_enabled: false\n")
    model = server(Says("Hello."))

    ran = kept_process("run", "hello", "--model", "openai/loopback-model", env=model.environment)

    assert ran.code == 0, ran.err
    body = model.requests[0].body
    assert "# Memory" not in body["messages"][0]["content"]
    assert "memory" not in [tool["function"]["name"] for tool in body["tools"]]
    assert "disabled in the configuration" in kept_process("tool", "memory", '{"action": "add", "content": "x"}').out


def test_an_incognito_chat_without_a_model_reads_past_conversations(kept_process, work):
    """It answers from them, and does not claim that they cannot be read."""
    kept_process("run", "The staging host is called heron-7.")

    ran = kept_process("chat", "--incognito", stdin="What is the staging host called?\nWho is the plumber?\n")

    assert "heron-7" in ran.out
    assert "cannot be read" not in ran.out + ran.err
    assert len(kept_process("sessions", "list", "--json").json) == 1
