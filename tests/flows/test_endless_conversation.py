"""A conversation that never ends: real adapters, real store, a model on loopback that reports usage."""

import gc
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from tests import forks

from wellkept.agent.agent import Agent, Opening
from wellkept.app import App, open_app
from wellkept.context.summary import find_citations, is_summary
from wellkept.core.events import Compacted, Event, Warned
from wellkept.core.ids import MessageId
from wellkept.core.messages import Role, Usage
from wellkept.core.tools import ToolContext
from wellkept.llm.scripted import Says, call
from wellkept.llm.tokens import text_tokens
from wellkept.testing.loopback import Hangs, Overflows, Status, Step
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

# each `anyio.run` leaves the client's connections to the garbage collector, which must not raise elsewhere
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SUMMARY = "## Goal\n- keep the counters right\n## Progress\n### Done\n- counted things\n## Next Steps\n- go on\n"
SERVERS = {"openai": LoopbackOpenAI, "anthropic": LoopbackAnthropic}


class Endpoint:
    """What the loopback model answers, and what was wrong with what it got."""

    def __init__(self, window: int, summarise: Callable[[], Step] = lambda: SUMMARY) -> None:
        self.window = window
        self.summarise = summarise
        self.said = ""
        self.searches = True
        self.largest = self.summaries = self.calls = 0
        self.wrong: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Step:
        text = json.dumps(body, ensure_ascii=False)
        if "working record of a conversation" in text or "of a table of contents" in text:
            self.summaries += 1
            return self.summarise()
        # an endpoint counts a tenth more than the estimate, as real ones do
        tokens = int(text_tokens(text) * 1.1)
        self.largest = max(self.largest, tokens)
        self.wrong += self._wrong(body, tokens)
        if tokens > self.window:
            return Overflows()
        usage = Usage(input_tokens=tokens, output_tokens=40)
        self.calls += 1
        if self.searches and self.calls % 3 == 0:
            return Says("", (call("session_search", query=f"counter {self.calls}", limit=1),), usage=usage)
        return Says(f"Counter {self.calls} is set. " + "All tests pass now. " * (self.calls % 17), usage=usage)

    def _wrong(self, body: dict[str, Any], tokens: int) -> list[str]:
        messages = [one for one in body["messages"] if one["role"] != "system"]
        roles = [one["role"] for one in messages if one["role"] != "tool"]
        wrong = [f"{tokens:,} tokens"] if tokens > self.window else []
        if any(a == b for a, b in itertools.pairwise(roles)) and not _split_by_tools(messages):
            wrong.append(f"roles {roles[-6:]}")
        if roles[0] != "user":
            wrong.append("the assistant speaks first")
        if self.said not in json.dumps([one for one in messages if one["role"] == "user"], ensure_ascii=False):
            wrong.append("the last user message is gone")
        return wrong


def _split_by_tools(messages: list[dict[str, Any]]) -> bool:
    """Whether two answers in a row have tool results between them, as OpenAI's form has."""
    return all(a["role"] != b["role"] or a["role"] == "tool" for a, b in itertools.pairwise(messages))


class Talk:
    """A person who keeps talking."""

    def __init__(self, home: Path, endpoint: Endpoint, api: str = "openai", **settings: str) -> None:
        home.mkdir(exist_ok=True)
        lines = [f"model:\n  default: {api}/loopback-model\n  retries: 0\n  context_length: {endpoint.window}\n"]
        lines += [f"{key}: {value}\n" for key, value in settings.items()]
        (home / "config.yaml").write_text("".join(lines))
        self.home, self.endpoint = home, endpoint
        self.server = SERVERS[api](endpoint)
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.__exit__(*error)
        gc.collect()

    def app(self) -> App:
        return open_app(str(self.home), environ=self.server.environment, sink=self.events.append)

    def turns(self, agent: Agent, first: int, count: int) -> None:
        async def talk() -> None:
            for number in range(first, first + count):
                self.endpoint.said = (
                    f"Please set counter number {number} of shelf zebra{number}. " + "Be careful. " * 12
                ).strip()
                await agent.turn(self.endpoint.said)
            await agent.parts.model.aclose()

        self.endpoint.said = ""
        anyio.run(talk)

    @property
    def compactions(self) -> list[Compacted]:
        return [event for event in self.events if isinstance(event, Compacted)]


@pytest.mark.parametrize(
    ("window", "api", "engine", "toolsets", "turns"),
    [
        (16_000, "openai", "compressor", "null", 60),
        (16_000, "anthropic", "compressor", "null", 40),
        (16_000, "openai", "lossless", "null", 40),
        (8_000, "openai", "compressor", "[memory, session_search]", 60),
        (32_000, "anthropic", "compressor", "[memory, session_search]", 80),
    ],
)
def test_it_never_overflows_and_loses_nothing(
    tmp_path: Path, window: int, api: str, engine: str, toolsets: str, turns: int
) -> None:
    """Requests stay valid and small over restarts; every message is found and read from inside."""
    endpoint = Endpoint(window)
    with Talk(tmp_path / "home", endpoint, api, context=f"{{engine: {engine}}}", toolsets=toolsets) as talk:
        session_id = None
        for first in range(0, turns, 20):
            app = talk.app()
            agent = app.owner.agent(Opening(resume=session_id))
            talk.turns(agent, first, 20)
            session_id = agent.session.id
            if first + 20 < turns:
                agent.close()
                app.close()
        store, active = app.owner.sessions, agent.conversation.record.rows

        assert endpoint.wrong == []
        assert talk.compactions
        assert all(one.after_tokens < window // 2 for one in talk.compactions), talk.compactions
        search = app.owner.tools()["session_search"]
        inside = ToolContext(session_id=session_id, active_message_ids=tuple(int(row.id) for row in active))
        for number in range(0, turns, 7):
            if any(f"zebra{number}." in row.message.text for row in active):
                continue
            answer = search.call({"query": f"zebra{number}"}, inside)
            texts = [one["content"] for result in answer["results"] for one in result["messages"]]
            assert any(f"Please set counter number {number} of shelf zebra{number}." in text for text in texts)
        ids = {one for row in active if is_summary(row.message) for one in find_citations(row.message.text)}
        assert ids
        assert [one for one in ids if store.message(MessageId(one)) is None] == []
        app.close()


FAILURES: dict[str, Callable[[], Step]] = {
    "nonsense": lambda: "I am sorry, I cannot help with that.",
    "empty": lambda: Says(""),
    "too long": lambda: Says(SUMMARY + "- a step that was done\n" * 4_000, piece_length=10**6),
    "no key": lambda: Status(401),
    "server error": lambda: Status(500),
    "overflow": Overflows,
    "hanging": lambda: Hangs(1.0),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_summary_model_ends_nothing(tmp_path: Path, failure: str) -> None:
    """The chat continues, nothing is lost, the person is told once."""
    endpoint = Endpoint(16_000, FAILURES[failure])
    auxiliary = f"{{compression: {{timeout: {0.2 if failure == 'hanging' else 20}}}}}"
    with Talk(tmp_path / "home", endpoint, toolsets="[memory, session_search]", auxiliary=auxiliary) as talk:
        app = talk.app()
        agent = app.owner.agent(Opening())
        talk.turns(agent, 0, 50)

        assert endpoint.wrong == []
        assert endpoint.summaries
        lineage = [agent.session.id]
        while (parent := app.owner.sessions.session(lineage[-1]).parent_session_id) is not None:
            lineage.append(parent)
        stored = [row for one in lineage for row in app.owner.sessions.messages(one)]
        users = [row.message.text for row in stored if row.message.role is Role.USER and not is_summary(row.message)]
        assert len(users) == 50
        told = [event.message for event in talk.events if isinstance(event, Warned)]
        told += [one.note for one in talk.compactions if one.note]
        assert len(told) == (0 if failure == "too long" else 1), told
        app.close()


def test_two_processes_compact_a_session_once(tmp_path: Path) -> None:
    """The second process continues with the result of the first."""
    endpoint = Endpoint(64_000)
    with Talk(tmp_path / "home", endpoint, toolsets="[memory, session_search]") as talk:
        app = talk.app()
        agent = app.owner.agent(Opening())
        talk.turns(agent, 0, 30)
        session_id = agent.session.id
        agent.close()
        apps = [talk.app() for _ in range(2)]
        agents = [one.owner.agent(Opening(resume=session_id)) for one in apps]
        threads = [threading.Thread(target=lambda one=one: anyio.run(one.compress)) for one in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        anyio.run(agents[0].compress)
        anyio.run(agents[1].compress)

        children = [one for one in app.owner.sessions.recent(limit=10) if one.parent_session_id == session_id]
        assert len(children) == 1
        assert len(list(app.owner.sessions.recent(limit=10))) == 2
        talk.turns(agents[0], 30, 1)
        talk.turns(agents[1], 31, 1)
        assert endpoint.wrong == []
        for one in (app, *apps):
            one.close()


@pytest.mark.timeout(600)  # four processes and 24 turns: half a minute on an idle machine, minutes on a busy one
@pytest.mark.parametrize("in_place", ["false", pytest.param("true", marks=pytest.mark.heavy)])
def test_processes_on_one_session_compact_it_once(tmp_path: Path, in_place: str) -> None:
    """Three `kept run --resume` at the same time: one summary, one session that continues, nothing lost."""
    slow = Says(SUMMARY, piece_length=8, delay_seconds=0.1)
    endpoint = Endpoint(64_000, lambda: slow)
    settings = {"toolsets": "[memory, session_search]", "compression": f"{{in_place: {in_place}}}"}
    with Talk(tmp_path / "home", endpoint, **settings) as talk:
        app = talk.app()
        agent = app.owner.agent(Opening())
        talk.turns(agent, 0, 24)
        session_id = agent.session.id
        agent.close()
        assert endpoint.summaries == 0
        endpoint.window, endpoint.said = int(endpoint.largest * 1.8), ""
        endpoint.searches = False  # long results could fill the context a second time
        config = talk.home / "config.yaml"
        config.write_text(config.read_text().replace("64000", str(endpoint.window)))
        said = [f"parallel {number}: please set the counter" for number in range(3)]
        running = [_resumed(talk, session_id, text) for text in said]
        ended = [(one.communicate(timeout=300), one.returncode) for one in running]
        after = _resumed(talk, session_id, "and now?").communicate(timeout=300)[0]

        assert [code for _, code in ended] == [0, 0, 0], ended
        assert json.loads(after)["answer"]
        assert endpoint.wrong == []
        assert endpoint.summaries == 1
        store = app.owner.sessions
        chain = {session_id, store.tip(session_id)}
        assert len(chain) == (1 if in_place == "true" else 2)
        assert {one.id for one in store.recent(limit=10)} == chain
        stored = [row for one in chain for row in store.messages(one)]
        assert len([row for row in stored if is_summary(row.message)]) == 1
        assert set(said) < {row.message.text for row in stored}
        app.close()


def _resumed(talk: Talk, session_id: str, text: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "wellkept", "run", "--resume", session_id, "--json", "--", text]
    own = {**os.environ, **talk.server.environment, "KEPT_HOME": str(talk.home)}
    return forks.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
