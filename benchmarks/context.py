"""Simulates 2,000 turns of coding under each engine: convergence, recall, cache share, tokens and money.

    python benchmarks/context.py [--turns 2000] [--json FILE] [--chart docs/context.svg]

The store, the engines, the search and the token estimate are the real ones; the chat model and the
summary model follow a script, and the prompt cache is simulated by its published rules.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field

from wellkept.core.values import asdict

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.baseline import reference_loop_seconds
from benchmarks.context_cache import Cache
from benchmarks.context_chart import chart
from benchmarks.context_talk import SYSTEM_TOKENS, TOOL_TOKENS, conversation, facts

from wellkept.context.boundaries import Window
from wellkept.context.engine import Compaction, ContextEngine, Pruned, Setup
from wellkept.context.lossless import Lossless
from wellkept.context.messages import faults, prune_as_marked, request_messages
from wellkept.context.settings import CompressionSettings
from wellkept.context.summarising import Compressor
from wellkept.context.summary import find_citations, is_summary
from wellkept.core.clock import FixedClock
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session, StoredMessage, Usage
from wellkept.core.search import SearchRequest
from wellkept.core.text import dumps
from wellkept.core.tools import ToolContext
from wellkept.llm.tokens import message_tokens, price_of, text_tokens
from wellkept.security.secrets import redact
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
WINDOW = 200_000
MODEL = "anthropic/claude-sonnet-4-5"
PLANNING_LIMIT_SECONDS = 0.050
LEAST_CACHE_SHARE = 0.90
ORIGINS = {Role.USER: Origin.PERSON, Role.ASSISTANT: Origin.MODEL, Role.TOOL: Origin.TOOL}


class ScriptedSummary:
    """A summary model that quotes what it is shown, with ids, in the sections asked for."""

    name = "scripted/summary"
    context_length = WINDOW

    def __init__(self) -> None:
        self.usage = Usage()
        self.calls = 0

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Quote evenly spread lines of what is shown."""
        said = re.findall(r"^#(\d+) (user|assistant): (.{1,160})", prompt, re.MULTILINE)
        kept = re.findall(r"^- .+\[#.+\]$", prompt, re.MULTILINE)[-40:]
        lines = [f"- {who}: {text} [#{one}]" for one, who, text in said[:: max(1, len(said) // 40)]]
        if "## Goal" in system:
            answer = "## Goal\n- keep the code base healthy\n## Progress\n### Done\n" + "\n".join([*kept, *lines])
            answer += "\n## Next Steps\n- go on with the next request\n"
        else:
            answer = "\n".join([*kept[:6], *lines[:12]]) or "- nothing"
        answer = answer[: max_output_tokens * 4]
        self.calls += 1
        self.usage += Usage(
            input_tokens=message_tokens(Message(Role.USER, system + prompt)),
            output_tokens=message_tokens(Message(Role.ASSISTANT, answer)),
        )
        return answer


class Result(Struct):
    """What one way of working came to."""

    name: str
    turns: int = 0
    requests: int = 0
    compactions: int = 0
    prunings: int = 0
    largest_prompt: int = 0
    largest_after_compaction: int = 0
    invalid_requests: int = 0
    last_user_lost: int = 0
    usage: Usage = field(default_factory=Usage)
    between: Usage = field(default_factory=Usage)
    """Without the first request after each compaction or pruning."""
    summary_calls: int = 0
    summary_usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0
    facts_found: int = 0
    facts_read_back: int = 0
    facts_by_tools: int | None = None
    dead_citations: int = 0
    seconds: float = 0.0
    sizes: list[int] = field(default_factory=list)

    @property
    def cache_share(self) -> float:
        """Return the share of all prompt tokens that came from the cache."""
        return self.usage.cache_read_tokens / max(1, self.usage.prompt_tokens)

    @property
    def cache_share_between(self) -> float:
        """Return the share between compactions."""
        return self.between.cache_read_tokens / max(1, self.between.prompt_tokens)


class Run:
    """One simulated conversation over a real store."""

    def __init__(
        self, name: str, engine: ContextEngine | None, store: SqliteSessionStore, *, rebuilt: bool = False
    ) -> None:
        self.result = Result(name)
        self.clock = FixedClock(START)
        self.summary = ScriptedSummary()
        self.store, self.engine, self.rebuilt = store, engine, rebuilt
        self.session_id = SessionId(f"bench_{re.sub('[^a-z]', '_', name)}")
        store.create(Session(self.session_id, "cli", self.clock.now().timestamp()))
        self.cache, self.system, self.rows = Cache(), f"system of {name}", list[StoredMessage]()
        self.sizes: dict[int, int] = {}
        self.alive: list[Message] = []
        self.fresh = False
        if engine is not None:
            engine.prepare(
                Setup(
                    window=Window(WINDOW, SYSTEM_TOKENS + TOOL_TOKENS),
                    count=self.size,
                    clock=self.clock,
                    redact=redact,
                    settings=CompressionSettings(),
                    model=self.summary,
                    nodes=store,
                    originals=self.originals,
                )
            )
            engine.on_session_start(self.session_id)

    def size(self, message: Message) -> int:
        """Return the estimate for a message, counted once."""
        known = self.sizes.get(id(message))
        if known is None:
            known = self.sizes[id(message)] = message_tokens(message)
            self.alive.append(message)
        return known

    def originals(self, ids: Sequence[MessageId]) -> list[StoredMessage]:
        """Read messages back from the store."""
        return [row for one in ids if (row := self.store.message(one)) is not None]

    def go(self, turns: int) -> Result:
        """Talk until the turns are over or the window is."""
        start = time.perf_counter()
        for turn in conversation(turns):
            self.clock.forward(seconds=turn.pause_seconds)
            if self.rebuilt:
                self.system = f"system of turn {turn.number}"
            for new in turn.rounds[:-1]:
                self.append(new)
                self.clock.forward(seconds=8)
                if not self.request():
                    self.result.seconds = time.perf_counter() - start
                    return self.result
            self.append(turn.rounds[-1])
            self.result.turns += 1
            self.result.sizes.append(self.prompt_tokens())
        self.result.seconds = time.perf_counter() - start
        return self.result

    def append(self, messages: Sequence[Message]) -> None:
        """Store what was said."""
        now = self.clock.now().timestamp()
        ids = self.store.append(self.session_id, [NewMessage(one, now, ORIGINS[one.role]) for one in messages])
        self.rows += [
            StoredMessage(number, self.session_id, one, now, ORIGINS[one.role])
            for number, one in zip(ids, messages, strict=True)
        ]

    def prompt_tokens(self) -> int:
        """Return the size of the next request."""
        return SYSTEM_TOKENS + TOOL_TOKENS + sum(self.size(row.message) for row in self.rows)

    def request(self) -> bool:
        """Send one request; False when it exceeds the window."""
        self.compact()
        messages = request_messages(self.rows)
        self.check(messages)
        usage = self.cache.request(
            self.system,
            SYSTEM_TOKENS + TOOL_TOKENS,
            messages,
            sizes=[self.size(message) for message in messages],
            now=self.clock.now().timestamp(),
        )
        if usage.prompt_tokens > WINDOW:
            return False
        self.result.requests += 1
        self.result.usage += Usage(0, 150, usage.cache_read_tokens, usage.cache_write_tokens)
        if not self.fresh:
            self.result.between += usage
        self.fresh = False
        self.result.largest_prompt = max(self.result.largest_prompt, usage.prompt_tokens)
        if self.engine is not None:
            self.engine.update_from_response(usage)
        return True

    def check(self, messages: Sequence[Message]) -> None:
        """Count what an API would refuse."""
        self.result.invalid_requests += bool(faults(messages[-40:]) and faults(messages))
        last = next(row.message for row in reversed(self.rows) if row.message.role is Role.USER)
        self.result.last_user_lost += not any(last.text in one.text for one in messages if one.role is Role.USER)

    def compact(self) -> None:
        """Do what the agent does when the engine asks for it."""
        tokens = self.prompt_tokens()
        if self.engine is None or not self.engine.should_compress(tokens):
            return
        match self.engine.compress(self.rows, current_tokens=tokens):
            case Compaction() as done:
                child = SessionId(f"{self.result.name.split()[0]}_{self.result.compactions}_{id(self)}")
                placed = done.into_session(timestamp=self.clock.now().timestamp(), child=child)
                self.session_id = self.store.compact(self.session_id, placed)
                self.rows = self.store.context(self.session_id)
                self.result.compactions += 1
                after = self.prompt_tokens()
                self.result.largest_after_compaction = max(self.result.largest_after_compaction, after)
            case Pruned() as small:
                self.rows = prune_as_marked(self.rows, small.mark)
                self.result.prunings += 1
            case _:
                return
        self.fresh = True

    def recall(self, turns: int) -> None:
        """Ask for every fact from inside the session: the active context is left out of the search."""
        active = {row.id: row.message.text for row in self.rows}
        originals = {one.said: one for one in facts(turns).values()}
        by_tools = 0
        for fact in originals.values():
            found = self.store.search(
                SearchRequest(fact.question, limit=5, exclude_messages=frozenset(int(one) for one in active))
            )
            rows = [self.store.message(hit.message_id) for hit in found.messages[:5]]
            texts = [row.message.text for row in rows if row is not None]
            in_context = any(fact.answer in text for text in active.values())
            self.result.facts_found += in_context or any(fact.answer in text for text in texts)
            self.result.facts_read_back += any(fact.said in text for text in (*active.values(), *texts))
            by_tools += in_context or self.found_by_tools(fact.said)
        if isinstance(self.engine, Lossless):
            self.result.facts_by_tools = by_tools
        ids = {one for row in self.rows if is_summary(row.message) for one in find_citations(row.message.text)}
        self.result.dead_citations = sum(self.store.message(MessageId(one)) is None for one in ids)

    def found_by_tools(self, said: str) -> bool:
        """Whether the engine's own tools bring the fact back."""
        if not isinstance(self.engine, Lossless):
            return False
        found = self.engine.handle_tool_call(
            "context_grep", {"pattern": said.split(" is ", maxsplit=1)[0]}, ToolContext()
        )
        matches = found.get("matches")
        assert isinstance(matches, list)
        ids = [one["message_id"] for one in matches]
        opened = self.engine.handle_tool_call("context_expand", {"message_ids": ids}, ToolContext())
        return said in dumps(opened)

    def settle(self) -> None:
        """Count the money."""
        price = price_of(MODEL)
        assert price is not None
        self.result.summary_calls, self.result.summary_usage = self.summary.calls, self.summary.usage
        self.result.dollars = price.cost(self.result.usage) + price.cost(self.summary.usage)


def planning_seconds(*, cold: bool) -> float:
    """Return the best of five times that planning 2,000 messages takes, without a model.

    Cold: no message was counted before, as after a restart; the estimate remembers texts, so its
    memory is cleared before every round. Warm: the history was counted for an earlier request.
    """
    messages = [one for turn in conversation(600) for new in turn.rounds for one in new][:2_000]
    rows = [
        StoredMessage(MessageId(place), SessionId("plan"), one, 0.0, ORIGINS[one.role])
        for place, one in enumerate(messages, start=1)
    ]
    engine = Compressor()
    engine.prepare(Setup(window=Window(WINDOW, 8_000), count=message_tokens, clock=FixedClock(START), redact=redact))
    best = float("inf")
    for _ in range(5):
        if cold:
            text_tokens.forget()
        start = time.perf_counter()
        preview = engine.preview(rows)
        best = min(best, time.perf_counter() - start)
        assert preview is not None
    return best


def run_all(turns: int, folder: Path) -> list[Result]:
    ways: list[tuple[str, ContextEngine | None, bool]] = [
        ("compressor", Compressor(), False),
        ("lossless", Lossless(), False),
        ("prompt rebuilt every turn", Compressor(), True),
        ("no compaction", None, False),
    ]
    results = []
    for place, (name, engine, rebuilt) in enumerate(ways):
        database = open_state(folder / f"{place}.db")
        run = Run(name, engine, SqliteSessionStore(database), rebuilt=rebuilt)
        run.go(turns)
        run.settle()
        if engine is not None:
            run.recall(turns)
        results.append(run.result)
        print(shown(run.result), flush=True)
    return results


def shown(result: Result) -> str:
    found = f"{result.facts_found}/200 facts found, {result.facts_read_back} word for word"
    tools = "" if result.facts_by_tools is None else f", {result.facts_by_tools} by its own tools"
    lines = [
        (
            f"{result.name}: {result.turns} turns, {result.requests} requests, {result.compactions} compactions, "
            f"{result.prunings} prunings"
        ),
        f"largest prompt {result.largest_prompt:,}, after a compaction at most {result.largest_after_compaction:,}",
        f"cache share between compactions {result.cache_share_between:.3f}, overall {result.cache_share:.3f}",
        (
            f"{result.usage.prompt_tokens / 1e6:.1f} M prompt tokens; ${result.dollars:.2f}, "
            f"{result.summary_calls} summary calls of {result.summary_usage.input_tokens / 1e6:.2f} M tokens included"
        ),
        f"{found}{tools}; {result.dead_citations} dead citations",
        (
            f"{result.invalid_requests} invalid requests, {result.last_user_lost} without the last user message; "
            f"simulated in {result.seconds:.0f} s"
        ),
    ]
    return "\n  ".join(lines)


def holds(results: Sequence[Result], planning: float) -> list[str]:
    """Return which promises are broken."""
    broken = [] if planning <= PLANNING_LIMIT_SECONDS else [f"planning took {planning * 1000:.0f} ms"]
    for result in results[:2]:
        checks = {
            "cache share": result.cache_share_between >= LEAST_CACHE_SHARE,
            "converges": result.largest_after_compaction < WINDOW // 2,
            "facts": result.facts_found == 200 and result.facts_read_back == 200,
            "valid": result.invalid_requests == result.last_user_lost == result.dead_citations == 0,
        }
        broken += [f"{result.name}: {name}" for name, ok in checks.items() if not ok]
    return broken


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=2_000)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--chart", type=Path)
    given = arguments.parse_args()
    reference = reference_loop_seconds()
    planning, warm = planning_seconds(cold=True), planning_seconds(cold=False)
    print(f"planning 2,000 messages: {planning * 1000:.1f} ms = {planning / reference:.2f} reference loops")
    print(f"  with every text counted before: {warm * 1000:.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        results = run_all(given.turns, Path(folder))
    if given.json:
        rows = [{key: value for key, value in asdict(one).items() if key != "sizes"} for one in results]
        given.json.write_text(json.dumps({"planning_seconds": planning, "results": rows}, indent=1) + "\n")
    if given.chart:
        drawn = [one for one in results if one.name != "prompt rebuilt every turn"]
        notes = {
            one.name: f"{one.compactions} compactions, ${one.dollars:.0f}\ncache share {one.cache_share_between:.3f}"
            + ("" if one.turns >= given.turns else f"\nends at turn {one.turns:,}")
            for one in drawn
        }
        lines = {one.name: one.sizes for one in drawn}
        given.chart.write_text(chart(lines, notes, turns=given.turns, threshold=WINDOW // 2, window=WINDOW))
    broken = holds(results, planning)
    print("all promises hold" if not broken else "broken: " + "; ".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
