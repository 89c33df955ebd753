"""Index engines side by side: today's FTS5 index, tantivy beside the database, and lists in ordinary tables.

pip install tantivy
python benchmarks/engines.py 20000 100000 1000000 [--lists CHECKOUT] --keep FOLDER
python benchmarks/engines.py 100000 1000000 --costs --keep FOLDER

All engines have the same messages, and the first two the same terms. A search runs with either of them behind the port
`Postings`; the queries are those of `scale.py`, asked in turns, in both orders. Printed are processor milliseconds (the
median of all queries) and the ratio to FTS5 of whole blocks of queries (median, lowest and highest).

A second table has what only tantivy offers, its own best messages by BM25: the time they take alone, the time of a
search whose lists are limited to blocks of 32 messages around the best ones or with the highest BM25 themselves
(`tantivy_best.py`), and how many of the ten best by exhaustive scoring are found (of substrings, exhaustive scoring
itself sees only what FTS5 lists). With `--lists` a checkout that had lists in ordinary tables (the commit before
570a85cd; it needs numpy and PyStemmer) answers the same queries with its own search. `--costs` prints what an engine
costs beside queries (`engine_costs.py`): new messages, sizes, start, memory, several processes, what a removal leaves
on the disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, cast
from unittest.mock import patch

from wellkept.core.ids import OWNER, MessageId
from wellkept.core.search import SearchRequest
from wellkept.sessions.search import engine
from wellkept.sessions.search.candidates import find_candidates
from wellkept.sessions.search.postings import Postings
from wellkept.sessions.search.query import parse
from wellkept.sessions.sqlite.postings import SqliteCatalog, SqlitePostings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.connections import Snapshot
from wellkept.storage.sqlite import open_state

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import SECONDS_BETWEEN, START
from benchmarks.engine_costs import print_costs
from benchmarks.scale import Exact, Shape, build, shapes
from benchmarks.tantivy_best import BestPostings, BlockIndex
from benchmarks.tantivy_index import TantivyIndex, TantivyPostings

ASKED = (
    "rare word", "common word", "AND, NOT", "phrase", "five-word OR", "whole question", "Chinese, one", "Chinese, two",
    "substring", "prefix", "short prefix",
)  # fmt: skip
INDEX_METHODS = frozenset(
    {"frequency", "vocabulary", "ids", "ids_between", "newest_ids", "newest_containing", "lengths"}
)
"""What the port asks of an index; tokens come from kept, texts and sessions from the database in both cases."""
FEW, MANY = 10, 400
"""How many of the best messages by BM25 are asked for: those that are shown, and enough to rank again."""
LIMITED = {"400 best": (400, 150, 0), "3,000 best": (3_000, 600, 0), "200 best and 200 blocks": (200, 200, 200)}
"""To what the lists of a search are limited: messages by BM25, blocks around the first of them, blocks by BM25."""
QUERIES, REPETITIONS, COMPARED = 6, 3, 10
"""Queries of a block; blocks in each order; queries of a shape whose best are compared with exhaustive scoring."""
LISTS = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from benchmarks.scale import build
from wellkept.core.ids import MessageId
from wellkept.core.search import SearchRequest
from wellkept.connect.hooks import catch_up
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state
store = SqliteSessionStore(open_state(Path(sys.argv[2])))
if store.message(MessageId(int(sys.argv[3]))) is None:
    build(store, int(sys.argv[3]))
catch_up(store.database, seconds=float("inf"))
for line in sys.stdin:
    used = time.process_time()
    store.search(SearchRequest(json.loads(line), limit=10))
    print(time.process_time() - used, flush=True)
"""
"""What runs in the interpreter of the checkout."""


class Metered:
    """A port that adds up the processor time of what is asked of the index, by method."""

    def __init__(self, make: Callable[[], Any]) -> None:
        start = time.process_time()
        self._port = make()
        self.calls: dict[str, list[float]] = defaultdict(list)
        self.calls["open"].append(time.process_time() - start)

    def __getattr__(self, name: str) -> object:
        found = getattr(self._port, name)
        if name not in INDEX_METHODS:
            return found
        calls = self.calls[name]

        def ask(*values: object, **named: object) -> object:
            start = time.process_time()
            answer = found(*values, **named)
            calls.append(time.process_time() - start)
            return answer

        setattr(self, name, ask)
        return ask

    def seconds(self) -> float:
        """Return the time that the index has taken."""
        return sum(sum(times) for times in self.calls.values())


@dataclass(slots=True)
class Asked:
    """The processor seconds of one search: the whole, the index alone, and choosing candidates without the index."""

    whole: float
    index: float
    choosing: float
    best: list[tuple[int, float]]


@dataclass(slots=True)
class Row:
    """The times of one shape by engine, a list for each block."""

    shape: str
    blocks: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    same: list[bool] = field(default_factory=list)
    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def milliseconds(self, name: str) -> str:
        """Return the median of one query."""
        times = [one for block in self.blocks[name] for one in block]
        return f"{1e3 * median(times):.2f}" if times else "–"

    def ratio(self, name: str, base: str) -> str:
        """Return the time of blocks divided by that of another engine: median, lowest and highest."""
        pairs = zip(self.blocks[name], self.blocks[base], strict=True)
        ratios = sorted(sum(ours) / sum(theirs) for ours, theirs in pairs) if self.blocks[name] else []
        return f"{median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})" if ratios else "–"

    def line_of_port(self) -> str:
        """Return the row of the first table."""
        cells = [
            self.shape,
            f"{self.milliseconds('index, FTS5')} / {self.milliseconds('index, tantivy')}",
            self.ratio("index, tantivy", "index, FTS5"),
            f"{self.milliseconds('FTS5')} / {self.milliseconds('tantivy')} / {self.milliseconds('lists')}",
            self.ratio("tantivy", "FTS5"),
            self.ratio("lists", "FTS5"),
            f"{sum(self.same)} of {len(self.same)}",
        ]
        return "| " + " | ".join(cells) + " |"

    def line_of_best(self) -> str:
        """Return the row of the second table."""
        chosen = [self.milliseconds(name) for name in ("index, FTS5", "choosing")]
        found = (mean(self.found[name]) if self.found[name] else 10.0 for name in ("BM25", "FTS5", *LIMITED))
        cells = [
            self.shape,
            f"{self.milliseconds('best 10')} / {self.milliseconds('best 400')}",
            " + ".join(chosen),
            " / ".join(self.milliseconds(name) for name in ("FTS5", *LIMITED)),
            *(self.ratio(name, "FTS5") for name in LIMITED),
            " / ".join(f"{one:.1f}" for one in found),
        ]
        return "| " + " | ".join(cells) + " |"


PORT_HEAD = (
    "| shape | index alone, FTS5 / tantivy | ratio | whole search, FTS5 / tantivy / lists | ratio, tantivy "
    "| ratio, lists | same answer |\n|---|---|---|---|---|---|---|"
)
BEST_HEAD = (
    "| shape | best 10 / 400 by BM25 | FTS5: index + choosing | whole search, FTS5 / "
    + " / ".join(LIMITED)
    + " | ratio" * len(LIMITED)
    + " | of the ten best: BM25 alone / FTS5 / "
    + " / ".join(LIMITED)
    + " |\n"
    + "|---" * (5 + len(LIMITED))
    + "|"
)


class Comparison:
    """One store with all engines open."""

    def __init__(self, folder: Path, count: int, checkout: Path | None) -> None:
        self.count = count
        self.now = START + count * SECONDS_BETWEEN
        self.store = SqliteSessionStore(open_state(folder / "state.db"))
        if self.store.message(MessageId(count)) is None:
            build(self.store, count)
        self.store.file.catch_up()
        self.connection = self.store.database.connection
        self.index = TantivyIndex(folder / "tantivy", self.connection)
        used, start = time.process_time(), time.perf_counter()
        if not self.index.newest():
            self.index.fill()
            seconds = time.process_time() - used, time.perf_counter() - start
            print(f"tantivy filled in {seconds[0]:.1f} s of the processor, {seconds[1]:.1f} s by the clock")
        self.blocks = BlockIndex(folder / "tantivy-blocks", self.index)
        self.calls: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._lists = self._start_lists(folder / "lists", checkout) if checkout is not None else None

    def _start_lists(self, folder: Path, checkout: Path) -> "subprocess.Popen[str]":
        folder.mkdir(exist_ok=True)
        run = [sys.executable, "-c", LISTS, str(checkout), str(folder / "state.db"), str(self.count)]
        paths = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        return subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=paths)

    def close(self) -> None:
        """Close everything."""
        if self._lists is not None:
            self._lists.communicate()
        self.store.database.close()

    def run(self, shape: Shape, repetitions: int, compared: int, exact: Exact) -> Row:
        """Ask the queries of one shape in turns."""
        row = Row(shape.name)
        for request in shape.requests[-3:]:  # not measured
            for name in ("FTS5", "tantivy", *LIMITED):
                self._ask(request, name)
        for number in range(2 * repetitions):
            first = number * QUERIES % len(shape.requests)
            requests = shape.requests[first : first + QUERIES]
            sides: list[Callable[[Row, Sequence[SearchRequest]], None]] = [
                self._time_searches, self._time_best, self._time_lists,
            ]  # fmt: skip
            for side in sides if number % 2 == 0 else reversed(sides):
                side(row, requests)
        for request in shape.requests[:compared]:
            self._compare(row, request, exact)
        return row

    def _open_port(self, request: SearchRequest, name: str) -> object:
        if name == "FTS5":
            return SqlitePostings(self.connection)
        if name == "tantivy":
            return TantivyPostings(self.index, self.connection)
        query = parse(request.query, self.now)
        return BestPostings(self.index, self.blocks, self.connection, query, LIMITED[name])

    def _ask(self, request: SearchRequest, name: str) -> Asked:
        with Snapshot(self.connection), _time_choosing() as choosing:
            start = time.process_time()
            port = Metered(lambda: self._open_port(request, name))
            catalog = SqliteCatalog(self.connection, user=OWNER)
            found = engine.search(cast(Postings, port), catalog, request, now=self.now)
            whole = time.process_time() - start
        for method, times in port.calls.items():
            self.calls[name][method] += times
        best = [(int(hit.message_id), round(hit.score, 6)) for hit in found.messages]
        return Asked(whole, port.seconds(), sum(choosing), best)

    def _time_searches(self, row: Row, requests: Sequence[SearchRequest]) -> None:
        names = ["FTS5", "tantivy", *LIMITED]
        if len(row.blocks["FTS5"]) % 2:
            names.reverse()
        asked = {name: [self._ask(request, name) for request in requests] for name in names}
        for name, some in asked.items():
            row.blocks[name].append([one.whole for one in some])
            row.blocks[f"index, {name}"].append([one.index for one in some])
        row.blocks["choosing"].append([one.choosing for one in asked["FTS5"]])
        pairs = zip(asked["FTS5"], asked["tantivy"], strict=True)
        row.same += [sorted(one.best) == sorted(other.best) for one, other in pairs]

    def _best(self, shape: str, request: SearchRequest, limit: int) -> tuple[float, list[int]]:
        """Return the best messages by BM25, and the processor time that tantivy takes for them."""
        query, port = parse(request.query, self.now), TantivyPostings(self.index, self.connection)
        start = time.process_time()
        asked = port.contain(request.query) if shape == "substring" else port.ask(query)
        best = port.best(asked, limit) if asked is not None else []
        return time.process_time() - start, best

    def _time_best(self, row: Row, requests: Sequence[SearchRequest]) -> None:
        for limit in (FEW, MANY):
            times = [self._best(row.shape, request, limit)[0] for request in requests]
            row.blocks[f"best {limit}"].append(times)

    def _time_lists(self, row: Row, requests: Sequence[SearchRequest]) -> None:
        if self._lists is None or self._lists.stdin is None or self._lists.stdout is None:
            return
        times = []
        for request in requests:
            self._lists.stdin.write(json.dumps(request.query) + "\n")
            self._lists.stdin.flush()
            times.append(float(self._lists.stdout.readline()))
        row.blocks["lists"].append(times)

    def _compare(self, row: Row, request: SearchRequest, exact: Exact) -> None:
        """Count how many of the ten best by exhaustive scoring an engine has among its own."""
        wanted = exact.answer(self.store, request, self.now)
        if not wanted:
            return
        found = {name: [number for number, _ in self._ask(request, name).best] for name in ("FTS5", *LIMITED)}
        found["BM25"] = self._best(row.shape, request, FEW)[1]
        for name, best in found.items():
            row.found[name].append(10 * len(set(wanted).intersection(best)) / len(wanted))


@contextmanager
def _time_choosing() -> Iterator[list[float]]:
    """Collect the processor time in which candidates are chosen, without what the index takes meanwhile."""
    times: list[float] = []

    def time_one(postings: Metered, *values: object, **named: object) -> object:
        start, asked = time.process_time(), postings.seconds()
        found = find_candidates(postings, *values, **named)  # type: ignore[arg-type] # passed on as they came
        times.append(time.process_time() - start - (postings.seconds() - asked))
        return found

    with patch.object(engine, "find_candidates", time_one):
        yield times


def print_methods(calls: dict[str, dict[str, list[float]]]) -> None:
    """Print what each method of the port took in all searches."""
    print("\n| method of the port | calls | µs a call, FTS5 / tantivy | ratio |\n|---|---|---|---|")
    for method in sorted(calls["FTS5"]):
        ours, theirs = calls["FTS5"][method], calls["tantivy"][method]
        if ours and theirs:
            times = f"{1e6 * mean(ours):.0f} / {1e6 * mean(theirs):.0f}"
            print(f"| {method} | {len(theirs)} | {times} | {mean(theirs) / mean(ours):.2f} |")


def compare(folder: Path, count: int, options: argparse.Namespace) -> None:
    """Print the table of one size."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"\n## {count:,} messages, load {os.getloadavg()[0]:.1f}")
    comparison = Comparison(folder, count, options.lists)
    exact = Exact(folder / "exact.json")
    asked = [shape for shape in shapes(comparison.store, count) if shape.name in (options.shapes or ASKED)]
    rows = [comparison.run(shape, options.repetitions, options.compared, exact) for shape in asked]
    print("", PORT_HEAD, *(row.line_of_port() for row in rows), sep="\n")
    print("", BEST_HEAD, *(row.line_of_best() for row in rows), sep="\n")
    print_methods(comparison.calls)
    comparison.close()


def main() -> None:
    """Compare the engines at the sizes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="each in both orders")
    parser.add_argument("--compared", type=int, default=COMPARED, help="queries compared with exhaustive scoring")
    parser.add_argument("--shapes", nargs="+", choices=ASKED, default=[])
    parser.add_argument("--lists", type=Path, help="a checkout with posting lists in ordinary tables")
    parser.add_argument("--costs", action="store_true", help="print what engines cost beside queries, and no queries")
    parser.add_argument("--keep", type=Path, help="folder in which the stores stay, and are used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for count in options.sizes:
            folder = (options.keep or Path(scratch)) / f"scale-{count}"
            if options.costs:
                print_costs(folder)
            else:
                compare(folder, count, options)


if __name__ == "__main__":
    main()
