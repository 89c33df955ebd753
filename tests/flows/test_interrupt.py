"""Interrupted turns: stored and marked, not reported to providers, not reviewed; through the real loop and in a terminal."""

import json
import os
import pty
import select
import signal
import sqlite3
import sys
import time
from contextlib import suppress

import anyio
import pytest
from tests import forks

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.cli.chat.slash import Slash
from wellkept.core.events import TextStreamed, ToolStarted
from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackAnthropic, LoopbackOpenAI

RECORDER = """
import json, pathlib, time
from agent.memory_provider import MemoryProvider
class Recorder(MemoryProvider):
    name = "recorder"
    slow = 0.0
    def is_available(self): return True
    def initialize(self, session_id, **context): self.home = pathlib.Path(context["kept_home"])
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def record(self, hook, *said):
        with (self.home / "told.jsonl").open("a") as file:
            file.write(json.dumps([hook, *said]) + chr(10))
    def prefetch(self, query, *, session_id=""):
        self.record("prefetch", query)
        if "slow recall" in query: time.sleep(90)
        return "Anna drinks oolong"
    def queue_prefetch(self, query, *, session_id=""): self.record("queue_prefetch", query)
    def sync_turn(self, user, assistant, *, session_id="", messages=()): self.record("sync_turn", user, assistant)
"""
IN_TERMINAL = """
import fcntl, runpy, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("wellkept", run_name="__main__", alter_sys=True)
"""
"""Runs kept with its standard input as the terminal that Ctrl-C is pressed in."""
STORY = Says("once upon a time " * 400, delay_seconds=0.05)
"""An answer that takes 40 s, so that it is always interrupted, however late the keys arrive on a busy machine."""
BOTH = pytest.mark.parametrize(
    ("loopback", "model"), [(LoopbackOpenAI, "openai/loopback"), (LoopbackAnthropic, "anthropic/loopback")]
)


@pytest.fixture
def recorded(home):
    """A home with a provider that records its calls, and a review after every turn."""
    folder = home / "plugins" / "recorder"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(RECORDER)
    (home / "config.yaml").write_text(
        "memory: {provider: recorder, nudge_interval: 1}\nproviders: {prefetch_timeout_seconds: 80}\n"
    )

    def told(hook):
        path = home / "told.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [said for name, *said in map(json.loads, lines) if name == hook]

    return told


def rows_of(home):
    return (
        sqlite3.connect(home / "state.db")
        .execute(
            "SELECT role, content, interrupted FROM messages m JOIN sessions s ON s.id = m.session_id"
            " WHERE s.source = 'cli' ORDER BY m.id"
        )
        .fetchall()
    )


def talk(home, server, model, *turns):
    """Take turns of one conversation; each is a text, and the event or the seconds that interrupt it, if any."""
    waiting = []

    def hear(event):
        if waiting and isinstance(event, waiting[-1]):
            waiting.clear()
            agent.interrupt()

    app = open_app(str(home), environ={"HOME": str(home.parent), **server.environment}, sink=hear)
    agent = app.owner.agent(Opening(), model_name=model)
    answers = []

    async def all_turns():
        for text, ended_by in turns:
            async with anyio.create_task_group() as group:
                if isinstance(ended_by, float):
                    group.start_soon(interrupted_after, ended_by)
                elif ended_by is not None:
                    waiting.append(ended_by)
                answers.append(await agent.turn(text))
                group.cancel_scope.cancel()
            await agent.after_turn()

    async def interrupted_after(seconds):
        await anyio.sleep(seconds)
        agent.interrupt()

    try:
        anyio.run(all_turns)
        agent.close()
    finally:
        app.close()
    return answers


@BOTH
def test_a_turn_stopped_while_it_speaks(home, recorded, loopback, model):
    """What was said is stored and marked; neither synced, nor prefetched for, nor reviewed; the next turn is all."""

    def script(body):
        text = json.dumps(body["messages"][-1])
        return STORY if "tell me" in text else "nothing to keep" if "Background review" in text else "done"

    with loopback(script) as server:
        first, second = talk(home, server, model, ("tell me", TextStreamed), ("and now?", None))
        assert server.hung_up.wait(5)
        sent = [json.dumps(body["messages"]) for body in server.bodies]

    assert first.interrupted
    assert first.text.startswith("once up")
    assert not second.interrupted
    (_, asked, _), (role, said, mark), *rest = rows_of(home)
    assert (asked, role, mark) == ("tell me", "assistant", 1)
    assert said.startswith("once up")
    assert "interrupted" in said
    assert [row[:2] for row in rest] == [("user", "and now?"), ("assistant", "done")]
    assert recorded("sync_turn") == [["and now?", "done"]]
    assert recorded("queue_prefetch") == [["and now?"]]
    assert recorded("prefetch") == [["tell me"], ["and now?"]]
    assert ["Background review" in each for each in sent] == [False, False, True]


@BOTH
def test_a_turn_stopped_while_a_tool_runs(home, recorded, loopback, model, work):
    """The call without an answer is repaired in the next request; the command is ended."""
    slow = Says("", (call("delegate_task", task="tell me a long story"),))

    def script(body):
        text = json.dumps(body["messages"])
        if "You are a sub-agent" in json.dumps(body):
            return STORY
        return "fine" if "and now?" in text else slow

    with loopback(script) as server:
        first, second = talk(home, server, model, ("please do", ToolStarted), ("and now?", None))

    assert (first.interrupted, second.text) == (True, "fine")
    assert [row[2] for row in rows_of(home)] == [0, 0, 1, 0, 0]
    assert recorded("sync_turn") == [["and now?", "fine"]]


@BOTH
def test_a_turn_stopped_while_a_provider_recalls(home, recorded, loopback, model):
    """Nobody waits for the provider: the message is stored and marked, and the model is not asked."""
    with loopback(["done", "nothing to keep"]) as server:
        begun = time.monotonic()
        first, second = talk(home, server, model, ("a slow recall", 0.5), ("and now?", None))
        took = time.monotonic() - begun
        asked = [each for each in server.bodies if "Background review" not in json.dumps(each["messages"])]

    assert first.interrupted
    assert second.text == "done"
    assert took < 45
    assert len(asked) == 1
    assert [(row[0], row[2]) for row in rows_of(home)][:2] == [("user", 0), ("assistant", 1)]
    assert recorded("sync_turn") == [["and now?", "done"]]


class Terminal:
    """`kept chat` in a process and a terminal of its own."""

    def __init__(self, home, work, env):
        self.near, far = pty.openpty()
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **env}
        command = [sys.executable, "-c", IN_TERMINAL, "chat", "--model", "openai/loopback"]
        self.process = forks.Popen(
            command, stdin=far, stdout=far, stderr=far, env=variables, cwd=work, start_new_session=True
        )
        os.close(far)
        self.seen = ""

    def type(self, keys):
        os.write(self.near, keys.encode())

    def sees(self, words, *, seconds=60):
        """Read until the words are there."""
        deadline = time.monotonic() + seconds
        while words not in self.seen and time.monotonic() < deadline:
            if select.select([self.near], [], [], 0.1)[0]:
                try:
                    piece = os.read(self.near, 65_536)
                except OSError:
                    break
                self.seen += piece.decode("utf-8", "replace")
                if b"\x1b[6n" in piece:
                    self.type("\x1b[1;1R")
        return words in self.seen

    def ends(self, seconds=60):
        """Wait for the end, reading meanwhile, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.sees("\0", seconds=0.2)
        return self.process.poll()

    def close(self):
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(5)
        os.close(self.near)


@pytest.fixture
def terminal(home, work):
    opened = []

    def start(server):
        opened.append(Terminal(home, work, server.environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_ctrl_c_in_a_chat_stops_the_turn_and_the_chat_continues(terminal, home, recorded):
    """One press keeps what was said; the next message is answered; the interrupted one reached no provider."""

    def script(body):
        text = json.dumps(body["messages"][-1])
        return STORY if "tell me" in text else "nothing to keep" if "Background review" in text else "all done here"

    with LoopbackOpenAI(script) as server:
        chat = terminal(server)
        assert chat.sees("/help"), chat.seen
        chat.type("tell me\r")
        assert chat.sees("once upon"), chat.seen
        chat.type("\x03")
        assert chat.sees("interrupted"), chat.seen
        chat.type("and now?\r")
        assert chat.sees("all done here"), chat.seen
        chat.type("/quit\r")
        assert chat.ends() == 0, chat.seen

    rows = rows_of(home)
    assert [(row[0], row[2]) for row in rows] == [("user", 0), ("assistant", 1), ("user", 0), ("assistant", 0)]
    assert recorded("sync_turn") == [["and now?", "all done here"]]
    assert "Traceback" not in chat.seen


def test_ctrl_c_twice_leaves_and_keeps_what_was_said(terminal, home, recorded):
    """The second press ends the process soon; the turn is stored and marked all the same."""
    with LoopbackOpenAI([STORY]) as server:
        chat = terminal(server)
        assert chat.sees("/help"), chat.seen
        chat.type("tell me\r")
        assert chat.sees("once upon"), chat.seen
        chat.type("\x03")
        chat.sees("stopping")
        chat.type("\x03")
        code = chat.ends()

    assert code in {0, 130}, chat.seen
    assert [(row[0], row[2]) for row in rows_of(home)] == [("user", 0), ("assistant", 1)]
    assert recorded("sync_turn") == []
    assert "Traceback" not in chat.seen


def test_what_is_typed_during_an_answer_waits_unseen(terminal):
    """The answer is not torn apart by what is typed meanwhile; it is the next message."""
    with LoopbackOpenAI([Says("slowly said " * 20, delay_seconds=0.05), "and answered"]) as server:
        chat = terminal(server)
        assert chat.sees("/help"), chat.seen
        chat.type("tell me\r")
        assert chat.sees("slowly"), chat.seen
        before = len(chat.seen)
        chat.type("typed ahead\r")
        assert chat.sees("and answered", seconds=30), chat.seen
        chat.type("/quit\r")
        assert chat.ends() == 0, chat.seen

    shown = chat.seen[before:]
    assert shown.count("typed ahead") >= 1
    assert shown.index("typed ahead") > shown.rindex("slowly")


def test_a_question_is_not_answered_by_what_was_typed_before_it(terminal, work):
    """A line that was typed ahead allows no command."""
    asks = Says("soon " * 40, (call("terminal", command="touch allowed"),), delay_seconds=0.05)
    with LoopbackOpenAI([asks, "not done"]) as server:
        chat = terminal(server)
        assert chat.sees("/help"), chat.seen
        chat.type("do it\r")
        assert chat.sees("soon"), chat.seen
        chat.type("y\r")
        assert chat.sees("[y/N]"), chat.seen
        time.sleep(0.5)
        chat.type("n\r")
        assert chat.sees("not done"), chat.seen
        chat.type("/quit\r")
        assert chat.ends() == 0, chat.seen

    assert not (work / "allowed").exists()


@pytest.mark.parametrize("said", ["tell me\r", ""], ids=["in a turn", "at the prompt"])
def test_a_terminal_that_is_closed_ends_the_chat_in_good_order(terminal, home, said):
    """What was said is stored and marked, the session is ended, and nothing is reported as a bug."""
    with LoopbackOpenAI([STORY]) as server:
        chat = terminal(server)
        assert chat.sees("/help"), chat.seen
        chat.type(said)
        if said:
            assert chat.sees("once upon"), chat.seen
        else:
            time.sleep(0.5)
        os.close(chat.near)
        chat.near = os.open(os.devnull, os.O_RDONLY)
        assert chat.process.wait(20) == 128 + signal.SIGHUP

    assert [(row[0], row[2]) for row in (rows_of(home) if said else [])] == (
        [("user", 0), ("assistant", 1)] * bool(said)
    )
    log = home / "logs" / "kept.log"
    assert not log.exists() or "unforeseen" not in log.read_text()


@pytest.mark.parametrize(("presses", "code"), [(1, 0), (2, 130)])
def test_ctrl_c_in_a_command_stops_it_and_the_chat_continues(kept, monkeypatch, presses, code):
    """One press in a command that takes long does not leave the chat; a second one soon after does."""
    monkeypatch.setattr(Slash, "run", lambda *_: signal.raise_signal(signal.SIGINT))

    ran = kept("chat", stdin="/usage\n" * presses + "remember that I like tea\n")

    assert ran.code == code
    assert "(stopped" in ran.err
    assert ("Saved to USER.md" in ran.out) is (presses == 1)
