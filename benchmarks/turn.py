"""The overhead of a turn beyond the model's own time, with a long history and a large store.

With `--tools`, every second message of the history is what a tool or a web page printed, and every turn reads a file
and saves an entry. The time that provenance takes of a turn is printed apart.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from wellkept.agent.agent import Agent, Opening
from wellkept.agent.conversation import Conversation
from wellkept.app import App, open_app
from wellkept.core.ids import SessionId, SourceName
from wellkept.core.messages import ChatRequest, Message, NewMessage, Origin, Role, Session, ToolCall
from wellkept.llm.scripted import Says, ScriptedModel
from wellkept.security.taint import Context

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.baseline import reference_loop_processor_seconds, reference_loop_seconds

WORDS = ("the build failed", "because nginx on staging", "refused the certificate", "we rolled back", "on Friday")


PAGE = " ".join(f"{word} {number}" for number in range(30) for word in WORDS)
"""What a tool printed: 2 KB."""


class Provenance:
    """Sums up the processor time of what decides where a text came from."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        for owner, name in (
            (Conversation, "find_source"), (Conversation, "build_tool_context"), (Context, "find_taint"),
        ):  # fmt: skip
            setattr(owner, name, self._measure(getattr(owner, name)))

    def _measure(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began, self._depth = time.thread_time(), self._depth + 1
            try:
                return function(*given, **named)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.thread_time() - began

        return call


def fill(app: App, *, history: int, store: int, has_tools: bool) -> SessionId:
    """Store other conversations, and one with a long history of its own."""
    sessions = app.owner.sessions
    for number in range(store // 1_000):
        other = SessionId(f"20250101_000000_{number:06x}")
        sessions.create(Session(id=other, source="cli", started=float(number)))
        texts = [" ".join(WORDS[(number + place) % len(WORDS) :]) + f" {number}-{place}" for place in range(1_000)]
        sessions.append(other, [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON) for text in texts])
    own = SessionId("20260101_000000_abcdef")
    sessions.create(Session(id=own, source="cli", started=1.0, model="scripted/bench"))
    rows = [
        NewMessage(Message(Role.USER if place % 2 == 0 else Role.ASSISTANT, f"message {place}"), 1.0, Origin.PERSON)
        for place in range(history)
    ]
    if has_tools:
        web = SourceName("web:https://docs.example.com/deploy")
        rows = [
            NewMessage(Message(Role.ASSISTANT, f"{place} {PAGE}"), 1.0, Origin.MODEL, source=web) if place % 2 else row
            for place, row in enumerate(rows)
        ]
    sessions.append(own, rows)
    return own


def answer(request: ChatRequest) -> Says | str:
    """Read a file and save an entry, then end the turn."""
    if request.messages[-1].role is not Role.USER:
        return "ok"
    number = len(request.messages)
    entry = f'{{"action": "add", "target": "memory", "content": "Fact {number}: staging uses port {number}."}}'
    return Says("", tool_calls=(ToolCall("a", "read_file", '{"path": "notes.txt"}'), ToolCall("b", "memory", entry)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=1_000)
    parser.add_argument("--store", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--tools", action="store_true")
    asked = parser.parse_args()
    reference = reference_loop_seconds()
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(folder, environ={"HOME": folder})
        own = fill(app, history=asked.history, store=asked.store, has_tools=asked.tools)
        app.owner.memory.load()
        model = ScriptedModel(answer if asked.tools else lambda _request: "ok", name="scripted/bench")
        setattr(app.models, "chat", lambda _name=None, **_options: model)  # noqa: B010 - the one part that is stood in for
        agent = app.owner.agent(Opening(resume=own))
        times, processor, provenance = anyio.run(turns, agent, asked.turns)
        app.close()
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    print(f"turn overhead, {asked.history:,} messages of history, {asked.store:,} in the store, {asked.turns} turns")
    print(f"  p50 {p50 * 1_000:.2f} ms ({p50 / reference:.4f} × reference loop)")
    print(f"  p95 {p95 * 1_000:.2f} ms ({p95 / reference:.4f} × reference loop)")
    busy = reference_loop_processor_seconds()
    print(f"  processor time p50 {processor * 1_000:.2f} ms ({processor / busy:.4f} × reference loop)")
    print(f"  provenance p50 {provenance * 1_000:.3f} ms of processor time")


async def turns(agent: Agent, count: int) -> tuple[list[float], float, float]:
    """Return the wall time of every turn, and the medians of their processor time, which a busy machine moves less."""
    times, processor, provenance = [], [], []
    measured = Provenance()
    for number in range(count):
        began, busy, measured.seconds = time.perf_counter(), time.process_time(), 0.0
        await agent.turn(f"question {number}")
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - busy)
        provenance.append(measured.seconds)
    return times[5:], statistics.median(processor[5:]), statistics.median(provenance[5:])


if __name__ == "__main__":
    main()
