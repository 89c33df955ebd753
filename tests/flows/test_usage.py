"""Every model call is counted once, for its task, its model and the conversation that made it."""

import json

import anyio

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.core.messages import Usage
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

ONE = Usage(input_tokens=100, output_tokens=10)
MODEL = "openai/loopback-model"


def calls_by_task(kept, *more):
    rows = kept("usage", "--by", "task", "--json", *more).json["rows"]
    return {row["key"]: row["calls"] for row in rows}


def test_each_call_of_a_review_is_counted(kept):
    """A review that took three calls counts three, with their tokens, in the session that it looked back on."""
    entries = iter(["User likes tea", "User likes short answers"])

    def script(body):
        reviewed = "Background review" in json.dumps(body["messages"])
        entry = next(entries, None) if reviewed else None
        calls = (call("memory", action="add", target="user", content=entry),) if entry else ()
        return Says("" if calls else "ok", calls, usage=ONE)

    kept("config", "set", "memory.nudge_interval", "2")
    with LoopbackOpenAI(script) as server:
        first = kept("run", "one", "--model", MODEL, "--json", env=server.environment)
        session = first.json["session_id"]
        kept("run", "two", "--resume", session, "--model", MODEL, env=server.environment)

    assert len(server.requests) == 5
    assert calls_by_task(kept) == {"main": 2, "review": 3}
    assert calls_by_task(kept, "--session", session) == {"main": 2, "review": 3}
    rows = {row["key"]: row for row in kept("usage", "--by", "task", "--json").json["rows"]}
    assert (rows["review"]["input_tokens"], rows["review"]["output_tokens"]) == (300, 30)


def test_a_review_that_breaks_off_counts_what_it_took(kept):
    """Its first call was paid for, whatever happened to the second."""

    def script(body):
        if "Background review" not in json.dumps(body["messages"]):
            return Says("ok", usage=ONE)
        if body["messages"][-1]["role"] == "tool":
            return ""
        return Says("", (call("memory", action="add", target="user", content="User likes tea"),), usage=ONE)

    kept("config", "set", "memory.nudge_interval", "1")
    kept("config", "set", "model.retries", "0")
    with LoopbackOpenAI(script) as server:
        kept("run", "one", "--model", MODEL, env=server.environment)

    assert calls_by_task(kept)["review"] >= 1


def test_auxiliary_calls_are_counted_by_task(kept):
    """Summaries of a compaction and of a search are counted under their own tasks, once each."""

    def script(body):
        last = body["messages"][-1]
        if "tools" not in body:
            return Says("A short summary of what was said.", usage=ONE)
        if last["role"] == "user" and "search" in str(last["content"]):
            return Says("", (call("session_search", query="harbour", summarize=True),), usage=ONE)
        return Says("The harbour opens at nine. " * 30, usage=ONE)

    with LoopbackOpenAI(script) as server:
        env = server.environment
        kept("config", "set", "model.default", MODEL)
        first = kept("run", "When does the harbour open?", "--json", env=env)
        session = first.json["session_id"]
        for number in range(12):
            kept("run", f"And on day {number}?", "--resume", session, env=env)
        kept("config", "set", "compression.protect_last_n", "2")
        assert kept("sessions", "compress", session, env=env).code == 0
        other = kept("run", "search for the harbour", "--json", env=env)
        asked = sum(1 for body in server.bodies if "tools" not in body)

    assert other.json["tool_calls"][0]["ok"]
    counted = calls_by_task(kept)
    assert counted["main"] == 15
    assert counted["compression"] >= 1
    assert counted["search_summary"] >= 1
    assert counted["compression"] + counted["search_summary"] == asked


def test_conversations_side_by_side_count_their_own(home, tmp_path):
    """An auxiliary task of one is not counted for the other that is open in the same process."""
    with LoopbackOpenAI(lambda _body: Says("A title", usage=ONE), models=("big", "small")) as server:
        home.mkdir()
        (home / "config.yaml").write_text("auxiliary: {title: {model: small}}\n")
        app = open_app(str(home), environ={"HOME": str(tmp_path), **server.environment})
        agents = [app.owner.agent(Opening(), model_name="openai/big") for _ in range(2)]

        async def talk():
            for agent in agents:
                await agent.turn("hello")
            await agents[0].after_turn()

        anyio.run(talk)
        rows = [
            (number, row.task, row.calls)
            for number, agent in enumerate(agents)
            for row in app.owner.sessions.usage(session_id=agent.session.id)
        ]
        app.close()

    assert sorted(rows) == [(0, "main", 1), (0, "title", 1), (1, "main", 1)]
