"""A long conversation on a loopback model: whether the process stays small and the turns stay quick."""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from kept.agent.agent import Agent, Opening
from kept.app import open_app
from kept.core.messages import Usage
from kept.llm.scripted import Says, call
from kept.testing.loopback_openai import LoopbackOpenAI

SETTLED_SHARE = 0.2
"""The part of the run after which growth counts: caches and pools fill in the beginning."""


def resident_mb() -> float:
    """Return the resident set of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def answers(body: Mapping[str, Any]) -> Says:
    """Return the next answer: each turn searches and takes a note, each third one writes to a page."""
    messages = body["messages"]
    last = messages[-1]
    text = str(last.get("content"))
    sent = sum(len(str(message)) for message in messages) // 4
    usage = Usage(input_tokens=max(1, sent // 10), output_tokens=60, cache_read_tokens=sent - sent // 10)
    if last["role"] == "tool" or not text.startswith("Turn "):
        return Says("Here is what I found. " * 20, usage=usage, piece_length=200)
    number = int(text.split()[1])
    calls = [call("session_search", query=f"question about topic {number % 50}"), call("list_files", path=".")]
    if number % 3 == 0:
        action = {"action": "add", "target": "memory", "content": f"Topic {number} was settled"}
        calls.append(call("memory", **action))
    return Says("Let me look.", tool_calls=tuple(calls), usage=usage, piece_length=200)


async def talk(agent: Agent, *, seconds: float) -> tuple[list[float], list[tuple[float, float]]]:
    """Take turns until the time is over; return their times, and the resident set over time."""
    times: list[float] = []
    sizes: list[tuple[float, float]] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        start = time.perf_counter()
        await agent.turn(f"Turn {len(times)} of the soak: what was said about topic {len(times) % 50}?")
        times.append(time.perf_counter() - start)
        await agent.after_turn()
        if len(times) % 20 == 0:
            sizes.append((time.monotonic() - began, resident_mb()))
    gc.collect()
    sizes.append((time.monotonic() - began, resident_mb()))
    return times, sizes


def main() -> None:
    """Run the soak and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--provider", default="holographic", help="an external memory, or an empty word for none")
    parser.add_argument("--window", type=int, default=128_000, help="the model's window in tokens")
    parser.add_argument("--most-mb-per-hour", type=float, default=None, help="fail above this growth")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LoopbackOpenAI(answers) as server:
        variables = {
            "HOME": folder,
            **server.environment,
            "KEPT_MODEL__CONTEXT_LENGTH": str(asked.window),
            "KEPT_MEMORY__OVERFLOW": "archive",
            **({"KEPT_MEMORY__PROVIDER": asked.provider} if asked.provider else {}),
        }
        app = open_app(folder, environ=variables)
        agent = app.agent(Opening(), model_name="openai/loopback-model")
        forgetting = threading.Thread(target=_forget, args=(server,), daemon=True)
        forgetting.start()
        times, sizes = anyio.run(lambda: talk(agent, seconds=asked.minutes * 60))
        sessions = len(agent.live.lineage)
        agent.close()
        app.close()
    _report(asked, times, sizes, sessions=sessions)


def _forget(server: LoopbackOpenAI) -> None:
    """Throw away what the server recorded, which would otherwise be most of the growth."""
    while True:
        time.sleep(1.0)
        server.requests.clear()


def _report(asked: argparse.Namespace, times: list[float], sizes: list[tuple[float, float]], *, sessions: int) -> None:
    settled = [each for each in sizes if each[0] >= asked.minutes * 60 * SETTLED_SHARE] or sizes
    (first_at, first), (last_at, last) = settled[0], settled[-1]
    hours = max(1e-9, (last_at - first_at) / 3600)
    tenth = max(1, len(times) // 10)
    print(f"soak of {asked.minutes:g} minutes, provider {asked.provider or 'none'}, window {asked.window:,} tokens")
    print(f"  {len(times):,} turns in {sessions} sessions of one conversation ({sessions - 1} compactions)")
    print(f"  turn p50: first tenth {_ms(times[:tenth])}, last tenth {_ms(times[-tenth:])}")
    print(f"  resident: {sizes[0][1]:.1f} MB at first, {first:.1f} MB settled, {last:.1f} MB at the end")
    print(f"  growth after settling: {last - first:+.1f} MB over {len(settled) and hours * 60:.1f} minutes")
    print(f"  growth per 1,000 turns: {(last - first) / max(1, len(times) * (1 - SETTLED_SHARE)) * 1000:+.2f} MB")
    if asked.most_mb_per_hour is not None and (last - first) / hours > asked.most_mb_per_hour:
        sys.exit(f"grew by more than {asked.most_mb_per_hour:g} MB per hour")


def _ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.1f} ms"


if __name__ == "__main__":
    main()
