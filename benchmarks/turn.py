"""The overhead of a turn beyond the model's own time, with a long history and a large store."""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from kept.agent.agent import Agent, Opening
from kept.app import App, open_app
from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.llm.scripted import ScriptedModel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.baseline import reference_loop_processor_seconds, reference_loop_seconds

WORDS = ("the build failed", "because nginx on staging", "refused the certificate", "we rolled back", "on Friday")


def fill(app: App, *, history: int, store: int) -> SessionId:
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
    sessions.append(own, rows)
    return own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=1_000)
    parser.add_argument("--store", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=200)
    asked = parser.parse_args()
    reference = reference_loop_seconds()
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(folder, environ={"HOME": folder})
        own = fill(app, history=asked.history, store=asked.store)
        app.owner.memory.load()
        model = ScriptedModel(lambda _request: "ok", name="scripted/bench")
        setattr(app.models, "chat", lambda _name=None, **_options: model)  # noqa: B010 - the one part that is stood in for
        agent = app.owner.agent(Opening(resume=own))
        times, processor = anyio.run(turns, agent, asked.turns)
        app.close()
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    print(f"turn overhead, {asked.history:,} messages of history, {asked.store:,} in the store, {asked.turns} turns")
    print(f"  p50 {p50 * 1_000:.2f} ms ({p50 / reference:.4f} × reference loop)")
    print(f"  p95 {p95 * 1_000:.2f} ms ({p95 / reference:.4f} × reference loop)")
    busy = reference_loop_processor_seconds()
    print(f"  processor time p50 {processor * 1_000:.2f} ms ({processor / busy:.4f} × reference loop)")


async def turns(agent: Agent, count: int) -> tuple[list[float], float]:
    """Return the wall time of every turn, and the median of their processor time, which a busy machine moves less."""
    times, processor = [], []
    for number in range(count):
        began, busy = time.perf_counter(), time.process_time()
        await agent.turn(f"question {number}")
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - busy)
    return times[5:], statistics.median(processor[5:])


if __name__ == "__main__":
    main()
