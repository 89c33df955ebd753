"""Facts that are said in one client reach the model of another, and every turn is stored once."""

import json
import time
from collections import Counter

from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback import Hangs

FACTS = {
    "claude": "Remember for later: the staging server of the billing team is called heron-42",
    "codex": "Remember for later: the invoice printer of the shipping office is called osprey-77",
    "opencode": "Remember for later: the backup password vault of the legal desk is called condor-19",
}
QUESTIONS = {
    "claude": "How is the staging server of the billing team called",
    "codex": "How is the invoice printer of the shipping office called",
    "opencode": "How is the backup password vault of the legal desk called",
}
NAMES = {"claude": "heron-42", "codex": "osprey-77", "opencode": "condor-19"}
MODELS = {"claude": "anthropic", "codex": "responses", "opencode": "chat"}


def test_a_fact_said_in_one_client_reaches_the_models_of_the_others(connected):
    """Three clients, three facts: each is in a fenced text of the others' requests, and stored once, as it was said."""
    for client, fact in FACTS.items():
        getattr(connected, client)(fact)
    for asking, model in MODELS.items():
        for told, name in NAMES.items():
            if told != asking:
                getattr(connected, asking)(QUESTIONS[told])

                assert any(name in text for text in connected.given(model)), (told, asking)

    texts = [text.strip('"') for text in connected.texts()]
    said = Counter(texts)
    assert {fact: said[fact] for fact in FACTS.values()} == dict.fromkeys(FACTS.values(), 1)
    assert {question: said[question] for question in QUESTIONS.values()} == dict.fromkeys(QUESTIONS.values(), 2)
    answers = [text for text in texts if text.startswith("answer ")]
    assert sorted(answers) == sorted(f"answer {kind}{number} noted" for kind in MODELS.values() for number in (1, 2, 3))
    assert not any("memory-context" in text or "kept-block" in text for text in texts)
    sources = {source for source, _role, _text in connected.stored()}
    assert sources == {"claude-code", "codex", "opencode"}


def test_claude_is_offered_the_tools_of_kept(connected):
    """The server in the plugin folder starts, and its search is loaded from the first request on."""
    connected.claude("which tools are there")
    tools = {tool.get("name", "") for body in connected.requests("anthropic") for tool in body.get("tools", ())}

    assert "mcp__plugin_kept_kept__session_search" in tools


def test_codex_is_captured_before_its_hooks_are_trusted(connected):
    """`notify` brings the turn; status says what is missing, and a fact of Claude Code is not yet in the request."""
    connected.codex("The invoice printer is called osprey-77", trusted=False)

    assert connected.texts() == ["The invoice printer is called osprey-77", "answer responses1 noted"]
    status = {one["client"]: one for one in json.loads(connected.kept("connect", "status", "--json"))}
    assert status["codex"]["trusted"] is False
    assert "/hooks" in status["codex"]["next"]
    assert status["codex"]["last_captured"] is not None
    connected.codex("And the paper tray is blue", trusted=True)
    assert {one["client"]: one for one in json.loads(connected.kept("connect", "status", "--json"))}["codex"]["trusted"]


def test_resumed_forked_and_compacted_sessions_store_each_turn_once(connected):
    """The transcript of a fork repeats what came before, and a compaction adds a summary that nobody said."""
    connected.claude("first words of the talk")
    connected.claude("second words of the talk", "--continue")
    connected.claude("/compact", "--continue", check=False)
    connected.claude("third words of the talk", "--continue")
    connected.claude("fourth words on a branch", "--continue", "--fork-session")
    connected.codex("fifth words to codex")
    connected.run("codex", "exec", "--dangerously-bypass-hook-trust", "resume", "--last", "sixth words to codex")
    said = Counter(connected.texts())

    for text in ("first words of the talk", "second words of the talk", "third words of the talk"):
        assert said[text] == 1
    for text in ("fourth words on a branch", "fifth words to codex", "sixth words to codex"):
        assert said[text] == 1
    assert [text for text, count in said.items() if text.startswith("answer") and count > 1] == []


def test_a_sub_agent_is_stored_once_below_its_parent(connected):
    """Its prompt and its answer are in a session of their own."""

    def plan(body):
        text = json.dumps(body)
        names = {tool.get("name") for tool in body.get("tools", ())}
        tool = next((name for name in ("Agent", "Task") if name in names), None)
        is_first = "please delegate this" in text and "tool_result" not in text and "look for the parser" not in text
        if tool is None or not is_first:
            return None
        arguments = {"description": "look", "prompt": "look for the parser", "subagent_type": "general-purpose"}
        return Says("", tool_calls=(call(tool, **arguments),))

    connected.models["anthropic"].plan = plan
    connected.claude("please delegate this", "--allowedTools", "Task,Agent")
    stored = connected.stored()

    assert Counter(text for _, role, text in stored if role == "user")["please delegate this"] == 1
    below = [(role, text) for source, role, text in stored if source == "subagent"]
    assert [text for role, text in below if role == "user"] == ["look for the parser"]


def test_a_killed_client_and_a_lost_hook_lose_nothing(connected):
    """What stood in the transcripts when the client was killed, or while hooks were off, is stored by the next start."""
    connected.models["anthropic"].plan = lambda body: Hangs(60) if "hang here" in json.dumps(body) else None
    process = connected.start("claude", "-p", "words before the end, hang here")
    deadline = time.monotonic() + 90
    while not any("hang here" in json.dumps(body) for body in connected.requests("anthropic")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(1.0)  # until the client has written the prompt to its transcript
    process.kill()
    process.wait()
    connected.environment["KEPT_OFF"] = "1"
    connected.claude("words while the hooks are off")
    del connected.environment["KEPT_OFF"]
    connected.claude("words after that")
    said = Counter(connected.texts())

    assert said["words before the end, hang here"] == 1
    assert said["words while the hooks are off"] == 1
    assert said["words after that"] == 1


def test_clients_at_the_same_time_store_each_turn_once(connected):
    """Two of Claude Code and two of Codex, all at once."""
    runs = [connected.start("claude", "-p", f"claude words number {number}") for number in (1, 2)]
    trust = ("exec", "--dangerously-bypass-hook-trust")
    runs += [connected.start("codex", *trust, f"codex words number {number}") for number in (1, 2)]
    codes = [run.wait(timeout=180) for run in runs]
    said = Counter(connected.texts())

    assert codes == [0, 0, 0, 0]
    assert all(said[f"{name} words number {number}"] == 1 for name in ("claude", "codex") for number in (1, 2))
    assert Counter(said[text] for text in said if text.startswith("answer")) == {1: 4}
