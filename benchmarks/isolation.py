"""Measure what a process of its own costs a plugin, per turn and per start, against the same plugin inside kept.

    python benchmarks/isolation.py [TURNS]

A turn is what a conversation does with a provider: announce it, recall, queue the exchange, deliver it, warm the next
recall. The text of a turn has 2,000 characters and its recall 2,000.
"""

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from wellkept.providers.loading import PluginPolicy, load
from wellkept.providers.settings import Isolate
from wellkept.testing.provider_contract import Bench

PLUGIN = """
from wellkept.providers.base import MemoryProvider
class Measured(MemoryProvider):
    name = "measured"
    def is_available(self): return True
    def initialize(self, session_id, **context): self.lines = []
    def get_tool_schemas(self): return []
    def handle_tool_call(self, name, args, **context): return "{}"
    def on_turn_start(self, turn, message, **context): pass
    def prefetch(self, query, *, session_id=""): return "recalled text " * 140
    def queue_prefetch(self, query, *, session_id=""): pass
    def sync_turn(self, user, assistant, *, session_id="", messages=()): self.lines.append(user)
"""
TEXT = "What did we decide about the deploy day? " * 50
MESSAGES = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}]


def processor_seconds() -> float:
    """Return what this process and its finished children have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Measured(NamedTuple):
    """The seconds of one way to run a plugin."""

    start: float
    recalls: list[float]
    wholes: list[float]
    used: float


def measure(isolate: Isolate, turns: int) -> Measured:
    """Return the seconds of the start, of each recall (which a turn waits for), of each turn, and of processor."""
    used = processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "plugins" / "measured").mkdir(parents=True)
        (home / "plugins" / "measured" / "__init__.py").write_text(PLUGIN)
        bench = Bench(home)
        began = time.perf_counter()
        provider = load("measured", home / "plugins", {}, PluginPolicy(isolate=isolate, start_seconds=60))
        manager = bench.manager(provider, start_timeout_seconds=60)
        start = time.perf_counter() - began
        recalls, wholes = [], []
        for number in range(turns):
            began = time.perf_counter()
            manager.recall(TEXT, session_id="s1", turn=number + 1)
            recalls.append(time.perf_counter() - began)
            manager.turn_finished(TEXT, TEXT, session_id="s1", messages=MESSAGES)
            manager.writes.wait_for("s1", seconds=60)
            wholes.append(time.perf_counter() - began)
        bench.close()
        if provider_process := getattr(provider, "_process", None):
            provider_process.program.wait()
    return Measured(start, recalls, wholes, processor_seconds() - used)


def main() -> None:
    """Print the medians of both ways and their differences."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    ways: tuple[Isolate, ...] = ("off", "on")
    found = {isolate: measure(isolate, turns) for isolate in ways}
    used = {isolate: 1_000 * (found[isolate].used - measure(isolate, 1).used) / turns for isolate in ways}
    for isolate, (start, recalls, wholes, _) in found.items():
        recall, whole = (1_000 * statistics.median(times) for times in (recalls, wholes))
        slow = 1_000 * sorted(wholes)[int(turns * 0.95)]
        print(f"isolate {isolate:3}: start {1_000 * start:6.0f} ms, recall p50 {recall:6.2f} ms", end=", ")
        print(f"turn p50 {whole:6.2f} ms, p95 {slow:6.2f} ms, processor {used[isolate]:5.2f} ms a turn")
    off, on = found["off"], found["on"]
    pairs = ((on.recalls, off.recalls), (on.wholes, off.wholes))
    recall, whole = (1_000 * (statistics.median(one) - statistics.median(other)) for one, other in pairs)
    print(f"a process of its own costs {recall:.2f} ms of recall, {whole:.2f} ms of a whole turn (bar: 20 ms)", end="")
    print(f" and {used['on'] - used['off']:.2f} ms of processor a turn")


if __name__ == "__main__":
    main()
