"""Resources to attach and prompts to start with."""

import json

import pytest

TURN = {
    "session": "c1",
    "user": "Where is the greenhouse heater?",
    "assistant": "The greenhouse heater is in the shed.",
}


def read(wire, uri):
    (content,) = wire.ask("resources/read", {"uri": uri})["result"]["contents"]
    assert content["uri"] == uri
    return content["text"]


def test_pages_ledger_sessions_and_skills_can_be_attached(wire):
    """Each resource that is listed can be read."""
    wire.value("memory", target="user", action="add", content="Prefers green tea.")
    session_id = wire.value("remember_turn", **TURN)["session_id"]
    listed = wire.ask("resources/list")["result"]["resources"]
    texts = {one["uri"]: read(wire, one["uri"]) for one in listed}

    assert "Prefers green tea." in texts["kept://memory/USER.md"]
    assert texts["kept://memory/MEMORY.md"] == "# MEMORY.md (empty)"
    (edit,) = json.loads(texts["kept://memory/ledger"])
    shown = "[unverified, from the agent claude-code] Prefers green tea."
    assert (edit["after"], edit["origin"], edit["undone"]) == (shown, "agent", False)
    assert json.loads(texts["kept://sessions/recent"])[0]["session_id"] == session_id
    assert "greenhouse" in read(wire, f"kept://sessions/{session_id}")
    assert any(uri.startswith("kept://skills/") for uri in texts)
    templates = wire.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert {one["uriTemplate"] for one in templates} == {"kept://sessions/{session_id}", "kept://skills/{name}"}


@pytest.mark.parametrize(
    "uri",
    [
        "kept://nothing",
        "kept://memory/SOUL.md",
        "kept://memory/../state.db",
        "kept://sessions/",
        "kept://sessions/unknown",
        "kept://skills/..%2F..%2Fetc",
        "kept://skills/nothing",
        "file:///etc/passwd",
        "memory/USER.md",
    ],
)
def test_an_unknown_resource_is_refused(wire, uri):
    """Nothing but what is offered can be read."""
    error = wire.ask("resources/read", {"uri": uri})["error"]

    assert error["code"] == -32602
    assert error["data"] == {"uri": uri}


def test_recall_brings_what_was_found(wire):
    """The prompt contains the topic and the passages, also where those contain braces."""
    wire.value("remember_turn", **{**TURN, "assistant": "The heater {found} {topic} is in the shed."})
    prompts = wire.ask("prompts/list")["result"]["prompts"]
    filled = wire.ask("prompts/get", {"name": "recall", "arguments": {"topic": "the heater"}})["result"]
    text = filled["messages"][0]["content"]["text"]

    assert [one["name"] for one in prompts] == ["recall", "review"]
    assert "about this: the heater" in text
    assert "The heater {found} {topic} is in the shed." in text.replace(">>>", "").replace("<<<", "")


def test_review_says_what_to_keep(wire):
    """It needs no argument."""
    text = wire.ask("prompts/get", {"name": "review"})["result"]["messages"][0]["content"]["text"]

    assert "memory_read" in text


@pytest.mark.parametrize(
    "params", [{"name": "nothing"}, {"name": "recall"}, {"name": "recall", "arguments": {"topic": 5}}]
)
def test_a_wrong_prompt_is_refused(wire, params):
    """Unknown names and missing arguments are errors."""
    assert wire.ask("prompts/get", params)["error"]["code"] == -32602
