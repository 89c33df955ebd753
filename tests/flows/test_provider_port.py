"""What a provider plugin is told, when, and what it is never told; with the real command line and real plugins."""

import json
import os
import pty
import sys

import pytest
from tests import forks
from tests.flows import recorder

from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

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


KEY = "sk-proj-" + "A1b2C3d4" * 10


@pytest.mark.parametrize("isolate", ["on", "off"])
def test_no_hook_of_a_plugin_gets_a_credential(kept_process, home, server, isolate):
    """Message, tool arguments, page edit, title, end of the session, delegation, questions: all pass one redaction."""
    calls = recorder.install(home)
    use(home, "rec", f"providers:\n  isolate: {isolate}\n")
    model = server(
        Says("", tool_calls=(call("rec_search", q=f"who has {KEY}?"),)),
        Says("", tool_calls=(call("memory", action="add", target="memory", content=f"The deploy key is {KEY}."),)),
        Says("", tool_calls=(call("delegate_task", task=f"Use {KEY}."),)),
        Says(f"The child says {KEY}."),
        Says(f"It is {KEY}."),
        Says("A branch."),
    )

    ran = kept_process(
        "chat", env=model.environment, stdin=f"use the key {KEY}\n/title {KEY}\n/branch\nand now {KEY}\n/new\n"
    )
    kept_process("tool", "rec_search", json.dumps({"q": KEY}))

    assert ran.code == 0, ran.err
    told = {hook for hook, *_ in calls()}
    assert {"initialize", "prefetch", "queue_prefetch", "sync_turn", "on_turn_start", "on_session_end"} <= told
    assert {"on_session_switch", "on_delegation", "handle_tool_call", "shutdown"} <= told
    assert KEY not in json.dumps(calls())
    assert "[redacted:openai_key]" in json.dumps(calls("prefetch"))


def test_set_up_without_a_terminal_names_the_dialogue_that_it_skips(kept_process, home):
    """`post_setup` needs a terminal; without one the person is told, and how to run it."""
    calls = recorder.install(home)

    ran = kept_process("providers", "setup", "rec", "--yes")

    assert ran.code == 0, ran.err
    assert not calls("post_setup")
    assert "set-up dialogue of its own, which was skipped" in ran.err
    assert "kept providers setup rec" in ran.err


@pytest.mark.parametrize("isolate", ["on", "off"])
def test_the_own_dialogue_of_a_plugin_gets_the_configuration(home, isolate):
    """It gets the home and what is in `config.yaml`, without credentials."""
    calls = recorder.install(home)
    (home / "config.yaml").write_text(
        f"model:\n  default: openai/x\n  api_key: {KEY}\nproviders:\n  isolate: {isolate}\n"
    )
    master, terminal = pty.openpty()
    with os.fdopen(master, "r+b", 0):
        done = forks.run(
            [sys.executable, "-m", "wellkept", "providers", "setup", "rec", "--no-test"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            timeout=60,
            check=False,
        )
    os.close(terminal)

    assert done.returncode == 0
    ((_, (folder, config), _),) = calls("post_setup")
    assert folder == str(home)
    assert config["model"] == {"default": "openai/x", "api_key": "[redacted:openai_key]"}


def test_nothing_is_queued_for_a_provider_that_cannot_run(kept_process, home, server):
    """Of two providers, the one that is not available has an empty queue; the other gets every turn."""
    works = recorder.install(home, "works")
    recorder.install(home, "absent", available=False)
    use(home, "[works, absent]")
    model = server(Says("one"))

    ran = kept_process("run", "first", env=model.environment)

    assert "'absent' is not in use" in ran.err
    assert len(works("sync_turn")) == 1
    lanes = {lane["provider"]: lane["waiting"] for lane in kept_process("providers", "outbox", "--json").json["lanes"]}
    assert lanes.get("absent", 0) == 0
