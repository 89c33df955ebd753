"""A long conversation on loopback models: whether the process stays small and the turns stay quick."""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from wellkept.agent.agent import Agent, Opening
from wellkept.app import App, open_app
from wellkept.core.errors import KeptError
from wellkept.core.events import Compacted, Event, Reviewed, Warned
from wellkept.core.ids import SessionId
from wellkept.core.threads import share_one_heap

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.soak_gauge import Bounds, Sample, sample, table, verdict
from benchmarks.soak_model import TURN, models

MAIN, VISITOR = "openai/loopback-model", "anthropic/loopback-model"


@dataclass(slots=True)
class Soak:
    """The run: what was done, and how the process looked meanwhile."""

    app: App
    agent: Agent
    home: Path
    counts: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    earlier: list[SessionId] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)

    def hear(self, event: Event, /) -> None:
        """Count what happens behind the turns."""
        if isinstance(event, Compacted | Reviewed | Warned):
            self.counts[type(event).__name__.lower()] += 1

    async def talk(self, *, seconds: float, turns_per_second: float, sample_seconds: float) -> None:
        """Take turns at an even pace until the time is over."""
        due = sampled = self.began
        while (now := time.monotonic()) - self.began < seconds:
            await self._turn(self.counts["turns"])
            await self._switch(self.counts["turns"])
            if self.counts["turns"] % 45 == 0:
                await self._visit()
            if now - sampled >= sample_seconds:
                sampled = now
                self._sample()
            due = max(due + 1 / turns_per_second, time.monotonic() - 5)
            await anyio.sleep(max(0.0, due - time.monotonic()))
        self._sample()

    def _sample(self) -> None:
        self.samples.append(sample(self.home, began=self.began, turns=self.counts["turns"]))
        if len(self.samples) % 15 == 0:
            so_far = [table(self.samples[-1:]), *verdict(self.samples, self.bounds)[0]]
            print("\n".join(so_far), file=sys.stderr, flush=True)

    async def _turn(self, number: int) -> None:
        slow = number % 37 == 36
        text = f"{TURN}{number} of the soak{', slowly' if slow else ''}: what was said about topic {number % 50}?"
        start = time.perf_counter()
        try:
            async with anyio.create_task_group() as group:
                if slow:
                    group.start_soon(self._interrupt)
                answer = await self.agent.turn(text)
            self.counts["interrupted"] += answer.interrupted
            self.counts["tool calls"] += len(answer.tool_calls)
        except* KeptError:
            self.counts["failed"] += 1
        if not slow:
            self.times.append(time.perf_counter() - start)
        self.counts["turns"] += 1
        await self.agent.after_turn()

    async def _interrupt(self) -> None:
        await anyio.sleep(0.15)
        self.agent.interrupt()

    async def _switch(self, number: int) -> None:
        """Go from one conversation to another, as people do."""
        if number % 160 == 0:
            self.earlier = [*self.earlier, self.agent.session.id][-20:]
            self.agent.new()
            self.counts["new"] += 1
        elif number % 160 == 60 and self.earlier:
            self.agent.resume(self.earlier[number % len(self.earlier)])
            self.counts["resumed"] += 1
        elif number % 160 == 110:
            self.agent.branch()
            self.counts["branched"] += 1
        elif number % 160 == 130:
            await self.agent.undo()
            self.counts["taken back"] += 1

    async def _visit(self) -> None:
        """Hold a short conversation beside the long one, with the other vendor, and close it."""
        visitor = self.app.owner.agent(Opening(), model_name=VISITOR)
        for _ in range(2):
            await visitor.turn(f"{TURN}{self.counts['turns']} of a visitor: what was said about topic 7?")
        await anyio.to_thread.run_sync(visitor.close)
        self.counts["visitors"] += 1


def main() -> None:
    """Run the soak, print what it did, and fail where something grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--turns-per-second", type=float, default=2.0)
    parser.add_argument("--provider", default="holographic", help="an external memory, or an empty word for none")
    parser.add_argument("--window", type=int, default=64_000, help="the model's window in tokens")
    parser.add_argument("--sample-seconds", type=float, default=20.0)
    parser.add_argument("--most-mb-per-hour", type=float, default=20.0)
    parser.add_argument("--most-sqlite-mb", type=float, default=200.0)
    parser.add_argument("--most-objects-per-hour", type=float, default=50_000.0)
    asked = parser.parse_args()
    share_one_heap()
    with tempfile.TemporaryDirectory() as folder, models() as variables:
        soak = _opened(folder, variables, asked)
        anyio.run(
            lambda: soak.talk(
                seconds=asked.minutes * 60,
                turns_per_second=asked.turns_per_second,
                sample_seconds=asked.sample_seconds,
            )
        )
        soak.agent.close()
        soak.app.close()
    sys.exit(_report(soak, asked))


def _opened(folder: str, variables: dict[str, str], asked: argparse.Namespace) -> Soak:
    home = Path(folder) / "home"
    environ = {
        "HOME": folder,
        **variables,
        "KEPT_MODEL__CONTEXT_LENGTH": str(asked.window),
        "KEPT_MEMORY__OVERFLOW": "archive",
        "KEPT_REVIEW__MAX_TOKENS_PER_DAY": "1000000000",
        **({"KEPT_MEMORY__PROVIDER": asked.provider} if asked.provider else {}),
    }
    app = open_app(str(home), environ=environ)
    app.folder = Path(folder)
    bounds = Bounds(
        mb_per_hour=asked.most_mb_per_hour,
        sqlite_mb=asked.most_sqlite_mb,
        objects_per_hour=asked.most_objects_per_hour,
    )
    soak = Soak(app, app.owner.agent(Opening(), model_name=MAIN), home, bounds=bounds)
    app.owner.listeners.add(soak.hear)
    return soak


def _report(soak: Soak, asked: argparse.Namespace) -> int:
    times, last = soak.times, soak.samples[-1]
    tenth = max(1, len(times) // 10)
    print(f"soak of {asked.minutes:g} minutes, provider {asked.provider or 'none'}, window {asked.window:,} tokens")
    print("  " + ", ".join(f"{count:,} {what}" for what, count in soak.counts.items()))
    print(f"  turn p50: first tenth {_ms(times[:tenth])}, last tenth {_ms(times[-tenth:])}")
    print(f"  processor: {last.processor_seconds / last.seconds:.0%} of one core")
    print(table(soak.samples))
    lines, is_bounded = verdict(soak.samples, soak.bounds)
    print("\n".join(lines))
    return 0 if is_bounded else 1


def _ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1000:.1f} ms"


if __name__ == "__main__":
    main()
