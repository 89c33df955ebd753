"""Turns of the agent over real stores, with the scripted model."""

import json
import threading
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.core.errors import ModelBusy
from wellkept.core.events import TextStreamed, ToolFinished, Warned
from wellkept.core.messages import Role
from wellkept.core.tools import Tool, ToolSchema
from wellkept.llm.scripted import Says, ScriptedModel, call
from wellkept.memory.page import Add, Author
from wellkept.testing.loopback_servers import LoopbackOpenAI


@pytest.fixture
def opened(home, tmp_path, monkeypatch):
    """Opens an agent on a temporary home with a scripted model; `.app` and `.told` are at hand."""
    apps = []
    monkeypatch.chdir(tmp_path)

    def start(script, *, config="", **opening):
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(config)
        told = []
        app = open_app(str(home), environ={"HOME": str(tmp_path)}, sink=told.append)
        apps.append(app)
        model = ScriptedModel(script, name="scripted/test")
        app.models.chat = lambda _name=None, **_options: model
        agent = app.owner.agent(Opening(**opening))
        agent.app, agent.told, agent.scripted = app, told, model
        return agent

    yield start
    for app in apps:
        app.close()


def test_an_interrupted_turn_is_stored_and_marked(opened):
    """What was said so far is kept; the next request extends the one before."""
    agent = opened([Says("a long story " * 50, delay_seconds=0.01), "second"])

    async def talk():
        async with anyio.create_task_group() as group:
            answers = []

            async def first():
                answers.append(await agent.turn("tell me"))

            group.start_soon(first)
            while not any(isinstance(event, TextStreamed) for event in agent.told):  # noqa: ASYNC110 - told to a list
                await anyio.sleep(0.05)
            await anyio.sleep(0.1)
            agent.interrupt()
        answers.append(await agent.turn("and now?"))
        return answers

    first, second = anyio.run(talk)

    assert first.interrupted
    assert first.text.startswith("a long story")
    rows = agent.app.owner.sessions.messages(first.session_id)
    assert [row.interrupted for row in rows] == [False, True, False, False]
    assert second.text == "second"


def test_an_interrupt_is_heard_however_early_it_comes(opened):
    """Also while the prompt is still being built: the message is kept and marked, the model is not asked."""
    agent = opened(["never asked", "second"])

    async def talk():
        async with anyio.create_task_group() as group:
            group.start_soon(agent.turn, "tell me")
            await anyio.lowlevel.checkpoint()
            agent.interrupt()

    anyio.run(talk)

    rows = agent.app.owner.sessions.messages(agent.session.id)
    assert [(row.message.role, row.interrupted) for row in rows] == [(Role.USER, False), (Role.ASSISTANT, True)]
    assert agent.scripted.requests == []


def test_independent_tools_run_side_by_side(opened):
    """Three slow searches of one answer take the time of one."""
    agent = opened([Says(tool_calls=tuple(call("session_search", query=f"q{n}") for n in range(3))), "done"])
    tool = agent.parts.toolbox.tools["session_search"]
    running, most, guard = [0], [0], threading.Lock()

    def slow(arguments, context):
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.2)
        with guard:
            running[0] -= 1
        return {"success": True}

    structs.force_setattr(tool, "call", slow)

    answer = anyio.run(agent.turn, "search thrice")

    assert most[0] == 3
    assert [each.ok for each in answer.tool_calls] == [True, True, True]


def test_a_tool_that_throws_is_an_answer(opened):
    """The turn continues; the model gets the failure."""
    agent = opened([Says(tool_calls=(call("session_search", query="x"),)), "went on"])
    tool = agent.parts.toolbox.tools["session_search"]
    structs.force_setattr(tool, "call", lambda arguments, context: 1 / 0)

    answer = anyio.run(agent.turn, "hi")

    assert answer.text == "went on"
    assert [event.ok for event in agent.told if isinstance(event, ToolFinished)] == [False]


def test_a_turn_ends_at_its_limit_with_where_it_stands(opened):
    """A model that never stops calling is stopped."""
    agent = opened(lambda request: Says(tool_calls=(call("todo"),)), config="limits:\n  iterations: 3\n")

    answer = anyio.run(agent.turn, "loop")

    assert answer.stopped_by == "3 model calls"
    assert "todo ×3" in answer.text


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (Says("word " * 5_000, delay_seconds=0.05), "word word"),
        (Says("let me see", (call("slow_tool"),)), "[I stopped"),
    ],
    ids=["model", "tool"],
)
def test_a_turn_ends_when_its_time_is_over(opened, slow, said, released):
    """Neither a model that keeps talking nor a tool that hangs delays the end; the next turn works."""
    agent = opened([slow, "fine again"], config="limits:\n  seconds: 1\n")
    schema = ToolSchema("slow_tool", "Hangs.", {"type": "object"}, "todo")
    agent.parts.toolbox.tools["slow_tool"] = Tool(schema, lambda *_: released.wait(90) and {"success": True})
    began = time.monotonic()

    async def talk():
        stopped = await agent.turn("take your time")
        took = time.monotonic() - began
        return stopped, took, await agent.turn("and now?")

    stopped, took, after = anyio.run(talk)

    assert took < 45
    assert stopped.stopped_by == "1 seconds"
    assert not stopped.interrupted
    assert stopped.text.startswith(said)
    assert "[I stopped at the limit of 1 seconds for one turn." in stopped.text
    assert after.text == "fine again"


def test_a_failing_model_loses_nothing(opened):
    """The error is raised, the question is stored, and the next turn extends the same prefix."""
    agent = opened([ModelBusy("overloaded"), "fine again"])

    async def talk():
        with pytest.raises(ModelBusy):
            await agent.turn("are you there?")
        return await agent.turn("and now?")

    answer = anyio.run(talk)

    assert answer.text == "fine again"
    texts = [row.message.text for row in agent.app.owner.sessions.messages(answer.session_id)]
    assert texts[0] == "are you there?"
    assert "no answer" in texts[1]


def test_changes_of_others_are_reported_once_and_never_stored_as_content(opened):
    """A delta is in api_content of one message, inside the fence, and nowhere else."""
    agent = opened(["one", "two", "three"])

    async def talk():
        await agent.turn("first")
        agent.app.owner.memory.apply("user", Add("Prefers tea"), Author(origin="user"))
        await agent.turn("second")
        return await agent.turn("third")

    answer = anyio.run(talk)

    rows = agent.app.owner.sessions.messages(answer.session_id)
    told = [row for row in rows if row.api_content and "Prefers tea" in row.api_content]
    assert [row.message.text for row in told] == ["second"]
    assert "<memory-context>" in told[0].api_content
    assert all("Prefers tea" not in row.message.text for row in rows)
    found = agent.app.owner.tools()["session_search"].call({"query": "tea"}, _context())
    assert "Prefers tea" not in json.dumps(found)


def _context():
    from wellkept.core.tools import ToolContext

    return ToolContext()


def test_own_writes_are_not_in_the_delta(opened):
    """A conversation is not notified of what it wrote itself."""
    agent = opened(
        [Says(tool_calls=(call("memory", action="add", target="user", content="Likes tea"),)), "ok", "again"]
    )

    async def talk():
        await agent.turn("I like tea")
        return await agent.turn("next")

    answer = anyio.run(talk)

    rows = agent.app.owner.sessions.messages(answer.session_id)
    assert all(row.api_content is None for row in rows)


def test_a_sub_agent_works_in_a_session_of_its_own(opened):
    """delegate_task returns the report; the child is hidden from search and has no memory tool."""
    seen = []

    def script(request):
        seen.append([tool.name for tool in request.tools])
        if request.messages[-1].role is Role.USER and "count the files" in request.messages[-1].text:
            return "There are 3 files."
        if request.messages[-1].role is Role.TOOL:
            return "The sub-agent says 3."
        return Says(tool_calls=(call("delegate_task", task="count the files"),))

    agent = opened(script)

    answer = anyio.run(agent.turn, "how many files?")

    assert answer.text == "The sub-agent says 3."
    assert "memory" not in seen[1]
    assert "delegate_task" not in seen[1]
    sources = {session.source for session in agent.app.owner.sessions.recent(limit=10, source="subagent")}
    assert sources == {"subagent"}


def test_toolsets_decide_what_is_loaded(opened):
    """Without `memory` there is no memory tool and no page in the prompt."""
    agent = opened(["ok"], config="toolsets: [session_search]\n")
    agent.app.owner.memory.apply("user", Add("Prefers tea"))

    anyio.run(agent.turn, "hi")

    assert list(agent.parts.toolbox.tools) == ["session_search"]
    assert "Prefers tea" not in agent.conversation.prompt


def test_nudge_counters_survive_a_resume(opened):
    """A second process continues counting where the first one left."""
    first = opened(["a", "b", "c"])

    async def talk():
        await first.turn("1")
        return await first.turn("2")

    session = anyio.run(talk).session_id
    second = opened(["d"], resume=session)

    assert second.conversation.nudges.turns == 2


def test_secrets_are_redacted_in_the_store_only(opened, home):
    """The model gets the key, the database file never does."""
    agent = opened(["noted"])
    secret = "sk-ant-api03-" + "Zx9" * 30

    anyio.run(agent.turn, f"use {secret} please")
    agent.app.close()

    raw = b"".join(path.read_bytes() for path in home.glob("state.db*"))
    assert secret.encode() not in raw
    assert any(secret in message.text for message in agent.scripted.requests[0].messages)


def test_a_warning_names_an_unknown_provider(opened):
    """A configured provider that does not exist causes a warning; the chat continues."""
    agent = opened(["still here"], config="memory:\n  provider: nosuch\n")

    answer = anyio.run(agent.turn, "hi")

    assert answer.text == "still here"
    assert any(isinstance(event, Warned) and "nosuch" in event.message for event in agent.told)


def test_a_closed_conversation_leaves_nothing_behind(opened):
    """An app that opens one conversation after another keeps no thread, listener or manager of those that ended."""
    first = opened(lambda _request: "ok", config="memory: {provider: holographic}\n")
    app = first.app
    anyio.run(first.turn, "hello")
    before = {thread.name for thread in threading.enumerate() if thread.name.startswith("kept-")}
    listeners = len(app.owner.listeners)
    for number in range(3):
        agent = app.owner.agent(Opening())
        anyio.run(agent.turn, f"visit {number}")
        agent.close()

    def running():
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("kept-")]

    deadline = time.monotonic() + 60  # on a busy machine a thread that was told to end does so when it gets its turn
    while not (set(running()) <= before and running().count("kept-audit") == 1) and time.monotonic() < deadline:
        time.sleep(0.05)
    after = running()
    assert before
    assert set(after) <= before
    assert len(app.owner.listeners) == listeners
    assert len([name for name in after if name == "kept-audit"]) == 1
    assert anyio.run(first.turn, "still there?").text == "ok"


def test_sub_agents_leave_no_connection_open(home, tmp_path):
    """Each has an event loop of its own, whose connections end with it."""

    def script(body):
        last = body["messages"][-1]
        if last["role"] == "user" and "please" in str(last["content"]):
            return Says("", (call("delegate_task", task="look around"),))
        return "done"

    def sockets():
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum("socket" in str(link.readlink()) for link in links if link.is_symlink())

    with LoopbackOpenAI(script) as server:
        app = open_app(str(home), environ={"HOME": str(tmp_path), **server.environment})
        agent = app.owner.agent(Opening(), model_name="openai/loopback-model")

        async def talk():
            await agent.turn("please do")
            before = sockets()
            for _ in range(4):
                assert (await agent.turn("please do")).tool_calls[0].ok
            return before, sockets()

        before, after = anyio.run(talk)
        app.close()

    assert after <= before + 1
