"""Recall of the holographic provider beside session search: every line of the data is a fact and a message.

python benchmarks/holographic.py LOCOMO.json
python benchmarks/holographic.py MESSAGES.jsonl QUESTIONS.jsonl (only what people said, the way facts are stated)
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from wellkept.core.search import SearchRequest
from wellkept.core.text import JSON
from wellkept.providers.holographic import HolographicProvider
from wellkept.sessions.sqlite.postings import find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.recall import Pool, fill, locomo, pooled

DEPTHS = (1, 5, 10, 20)
MOST_CHARS = 4_000
"""The longest fact that the store takes."""


@dataclass
class Tally:
    """The place of the first right line for every question, and the seconds that each search took."""

    places: list[int | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, found: Sequence[str], wanted: frozenset[str], seconds: float) -> None:
        """Count one answer."""
        places = [place for place, line in enumerate(found, 1) if line in wanted]
        self.places.append(places[0] if places else None)
        self.seconds.append(seconds)

    def line(self, name: str) -> str:
        """Return the row of a table."""
        asked = len(self.places)
        hits = [sum(place is not None and place <= depth for place in self.places) / asked for depth in DEPTHS]
        mean = sum(1 / place for place in self.places if place) / asked
        p50 = sorted(self.seconds)[asked // 2] * 1_000
        return f"{name:24}{asked:>6}" + "".join(f"{hit:>9.3f}" for hit in (*hits, mean)) + f"{p50:>10.1f}"


@dataclass
class LineClock:
    """A clock that stands at the moment of the line that is told, as it would have."""

    moment: float = 0.0

    def now(self) -> datetime:
        """Return that moment."""
        return datetime.fromtimestamp(self.moment, UTC)


def as_facts(pool: Pool, tally: Tally, home: str) -> None:
    """Store every line as a fact, at the moment when it was said, and ask every question a day after the last."""
    clock = LineClock()
    provider = HolographicProvider(clock=clock)
    provider.initialize("benchmark", kept_home=home)
    ids: dict[int, set[str]] = {}
    for item in pool.said:
        clock.moment = item.timestamp
        call = {"action": "add", "content": item.text[:MOST_CHARS]}
        answer = json.loads(provider.handle_tool_call("fact_store", call, session_id=item.session_id))
        ids.setdefault(answer.get("fact_id", -1), set()).add(item.external_id)
    clock.moment = max(item.timestamp for item in pool.said) + 86_400
    for question in pool.questions:
        begun = time.perf_counter()
        asked: dict[str, JSON] = {"action": "search", "query": question.text, "limit": max(DEPTHS)}
        found = json.loads(provider.handle_tool_call("fact_store", asked))["results"]
        seconds = time.perf_counter() - begun
        # the same words said twice are one fact, which is right when one of the lines is
        lines = [next(iter(ids[hit["fact_id"]] & question.turns or ids[hit["fact_id"]])) for hit in found]
        tally.add(lines, question.turns, seconds)
    provider.shutdown()


def as_messages(pool: Pool, tally: Tally, home: str) -> None:
    """Store every line as a message and ask every question."""
    database = open_state(Path(home) / "messages.db")
    fill(SqliteSessionStore(database), pool)
    now = max(item.timestamp for item in pool.said) + 86_400
    for question in pool.questions:
        begun = time.perf_counter()
        found = find(database.connection, SearchRequest(question.text, limit=50), now=now)
        lines = [item.external_id or "" for item in found.messages][: max(DEPTHS)]
        tally.add(lines, question.turns, time.perf_counter() - begun)
    database.close()


def stated(pools: Sequence[Pool]) -> Iterator[Pool]:
    """Yield the pools with what people said only, and the questions that it answers."""
    for pool in pools:
        said = [item for item in pool.said if item.role == "user"]
        known = {item.external_id for item in said}
        asked = [replace(each, turns=each.turns & known) for each in pool.questions if each.turns & known]
        yield Pool(pool.name, said, asked)


def main() -> None:
    """Print how often each finds the line that answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="a LoCoMo file, or messages and questions as JSONL")
    asked = parser.parse_args()
    pools = list(stated(locomo(asked.data[0]) if len(asked.data) == 1 else pooled(*asked.data)))
    print(f"{'':24}{'n':>6}" + "".join(f"{f'hit@{depth}':>9}" for depth in DEPTHS) + f"{'MRR':>9}{'p50 ms':>10}")
    facts, messages = Tally(), Tally()
    for pool in pools:
        mine, theirs = Tally(), Tally()
        with tempfile.TemporaryDirectory() as home:
            as_facts(pool, mine, home)
            as_messages(pool, theirs, home)
        for whole, part, name in ((facts, mine, "holographic"), (messages, theirs, "session search")):
            whole.places += part.places
            whole.seconds += part.seconds
            if len(pools) > 1:
                print(part.line(f"{pool.name} {name}"), flush=True)
    print(facts.line("holographic"))
    print(messages.line("session search"))


if __name__ == "__main__":
    main()
