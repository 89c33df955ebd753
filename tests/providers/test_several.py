"""Several providers at once: one neutral search, merged recall, and what each is worth."""

import json
import os

import anyio
import pytest

from wellkept import operations
from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.core.tools import ToolContext
from wellkept.llm.scripted import ScriptedModel
from wellkept.testing.provider_contract import Bench

HERON = "The heron stands in the garden pond"


def remember(provider, *texts):
    for number, text in enumerate(texts, start=1):
        provider.on_memory_write("add", "user", text, {"ledger_id": number, "before": None})


def test_recall_is_merged_without_duplicates_and_one_tool_searches_all(open_backend, start_of):
    """What both know is said once; what one knows is said too; their own searches are gone, their other tools stay."""
    first, second = start_of(open_backend("mem0")), start_of(open_backend("hindsight"))
    remember(first, HERON, "The heron is grey")
    remember(second, HERON, "The heron eats fish")
    bench = Bench(first.home)
    manager = bench.manager(first, second, context=bench.context(several=True))
    tools = {tool.schema.name: tool for tool in manager.tools()}
    recalled = manager.recall("What about the heron?", session_id="s1", turn=1)
    asked = tools["memory_recall"].call({"query": "heron"}, ToolContext(session_id="s1"))["recalled"]
    bench.close()

    assert not {"mem0_search", "hindsight_recall"} & set(tools)
    assert {"mem0_add", "hindsight_retain", "memory_recall"} <= set(tools)
    for text in (recalled, asked):
        assert text.count(HERON) == 1
        assert "grey" in text
        assert "fish" in text


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("hindsight", {"memory_mode": "tools"}),
        ("honcho", {"recallMode": "tools"}),
        ("supermemory", {"auto_recall": False}),
    ],
)
def test_the_neutral_tool_finds_what_a_mode_without_recall_would_not_give(open_backend, start_of, name, settings):
    """It replaced the provider's own search, so that nothing else could find it."""
    backend = open_backend(name)
    backend.configure(**settings)
    provider = start_of(backend)
    remember(provider, HERON)
    backend.digest()
    bench = Bench(backend.home)
    other = start_of(open_backend("retaindb"))
    manager = bench.manager(provider, other, context=bench.context(several=True))
    (tool,) = [tool for tool in manager.tools() if tool.schema.name == "memory_recall"]
    before = manager.recall("What about the heron?", session_id="s1", turn=1)
    answer = tool.call({"query": "heron"}, ToolContext(session_id="s1"))
    bench.close()

    assert "heron" not in before
    assert "heron" in answer["recalled"]


def test_one_that_is_down_is_named_and_the_other_answers(open_backend, start_of):
    """In the tool's answer; recall before a turn just goes on."""
    up, down = open_backend("mem0"), open_backend("retaindb")
    first, second = start_of(up), start_of(down)
    remember(first, HERON)
    bench = Bench(up.home)
    manager = bench.manager(first, second, context=bench.context(several=True))
    (tool,) = [tool for tool in manager.tools() if tool.schema.name == "memory_recall"]
    down.kill()
    answer = tool.call({"query": "heron"}, ToolContext(session_id="s1"))
    recalled = manager.recall("about the heron", session_id="s1", turn=1)
    bench.close()

    assert "heron" in answer["recalled"]
    assert "heron" in recalled
    assert "retaindb cannot be reached" in json.dumps(answer["failed"])


def test_stats_show_hit_rate_latency_and_cost_of_each(open_backend, start_of, tmp_path, monkeypatch):
    """After a conversation with two providers, one of which knows nothing."""
    monkeypatch.chdir(tmp_path)
    knows, empty = open_backend("mem0"), open_backend("retaindb")
    empty.configure(auto_capture=False)
    remember(start_of(knows), HERON)
    (knows.home / "config.yaml").write_text("memory: {provider: [mem0, retaindb]}\n")
    app = open_app(str(knows.home), environ=dict(os.environ))
    try:
        model = ScriptedModel(lambda _request: "ok", name="scripted/test")
        app.models.chat = lambda _name=None, **_options: model
        agent = app.owner.agent(Opening())
        anyio.run(agent.turn, "Where does the heron stand?")
        anyio.run(agent.turn, "Where does the heron stand now?")
    finally:
        app.close()
    app = open_app(str(knows.home), environ=dict(os.environ))
    try:
        found = {each.provider: each for each in operations.providers.measure_providers(app.caller(), days=1)}
    finally:
        app.close()

    assert (found["mem0"].recalls, found["mem0"].hits) == (2, 2)
    assert (found["retaindb"].recalls, found["retaindb"].hits) == (2, 0)
    assert found["mem0"].recall_p95_ms > 0
    assert found["mem0"].recalled_tokens > 0
    assert found["retaindb"].recalled_tokens == 0
    assert found["mem0"].failures == found["retaindb"].failures == 0
