"""Objects that a program gives to `open_app`."""

import asyncio

from wellkept import Opening, open_app
from wellkept.core.tools import Tool, ToolSchema
from wellkept.llm.scripted import Says, ScriptedModel, call
from wellkept.testing.provider_contract import RecordingProvider, eventually


def test_a_tool_a_provider_and_a_model_are_used(tmp_path):
    """The model answers, calls the tool and gets what the provider recalls; the provider is told of the turn."""
    schema = ToolSchema("clock", "Tell the time.", {"type": "object", "properties": {}}, "workspace")
    model = ScriptedModel([Says(tool_calls=(call("clock"),)), Says("At noon.")])
    provider = RecordingProvider(recalled="lunch is at noon")
    app = open_app(
        str(tmp_path / "home"),
        environ={},
        tools=[Tool(schema, lambda _arguments, _context: {"time": "noon"})],
        provider=provider,
        model=model,
    )
    agent = app.owner.agent(Opening())
    answer = asyncio.run(agent.turn("When is lunch?"))

    assert answer.text == "At noon."
    assert [use.name for use in answer.tool_calls] == ["clock"]
    assert "lunch is at noon" in str(model.requests[0].messages[-1])
    eventually(lambda: provider.calls_of("sync_turn"))
    agent.close()
    app.close()
    assert [each.hook for each in provider.calls if each.hook in {"on_session_end", "shutdown"}] == [
        "on_session_end",
        "shutdown",
    ]


def test_an_interrupted_turn_is_no_part_of_the_end(tmp_path):
    """What a person stopped is not told to a provider, neither the question nor the half answer."""
    provider = RecordingProvider()
    app = open_app(str(tmp_path / "home"), environ={}, provider=provider, model=ScriptedModel([Says("Yes.")]))
    agent = app.owner.agent(Opening())
    asyncio.run(agent.turn("first"))

    async def stop_at_once():
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(agent.turn("second, interrupted"))
            await asyncio.sleep(0)
            agent.interrupt()
        return turn.result()

    assert asyncio.run(stop_at_once()).interrupted
    agent.close()
    app.close()
    (end,) = provider.calls_of("on_session_end")
    assert [each["content"] for each in end.args[0]] == ["first", "Yes."]
