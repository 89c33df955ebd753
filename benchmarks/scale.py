"""How speed and size hold as history grows, on the real store with made-up conversations.

python benchmarks/scale.py 20000 100000 1000000 [--overlap 15] [--shapes phrase …] [--keep FOLDER]
python benchmarks/scale.py 100000 1000000 --growth [--shapes phrase …] --keep FOLDER
python benchmarks/scale.py 1000000 --exact FILE --overlap 100 --seed 12 [--shapes phrase …] --keep FOLDER

Times are processor milliseconds, which other work on the machine moves little, and beside them those of the clock.
A target is met when the processor's p50 keeps it and p95 keeps four times as much. With `--growth` the same kinds of
queries are asked of two stores in turns, which the speed of the machine moves least, and the ratios are printed. With
`--exact` only the overlap is counted; exhaustive answers, seconds each, are kept in FILE, so that a run that was
stopped goes on where it was, and another state of the candidate search is compared with the same answers at once.
"""

import argparse
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice, pairwise
from multiprocessing import get_context
from pathlib import Path

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.search.candidates import EXHAUSTIVE, LARGE
from wellkept.sessions.sqlite.postings import SqlitePostings, find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_processor_seconds
from benchmarks.corpus import SECONDS_BETWEEN, START, Corpus, Made

BATCH = 2_000
ROUNDS = 40
SEED = 11
REFERENCE = EXHAUSTIVE._replace(pool=12_000, sessions=800, texts=1_500)
"""Chooses no candidates: estimates every message that matches, and ranks the best 12,000 of them with their sessions.

For 21 queries (common word, five words, whole question) at 1,000,000 messages the ten best are those of EXHAUSTIVE,
which takes ten times as long.
"""
WARM, GROWTH_ROUNDS = 10, 3
"""Queries that are not counted, and how often the others are asked, where two stores are compared."""
TARGETS = {"light": {100_000: 5.0, 1_000_000: 15.0}, "heavy": {100_000: 20.0, 1_000_000: 60.0}}
SPREAD = 4.0
"""How many times its target p95 may take."""
OPEN_TARGET, APPEND_TARGET, BATCH_TARGET, OVERLAP_TARGET = 50.0, 0.3, 10_000.0, 8.0
GROWTH_TARGET = 3.0
"""How many times as long a query may take in a store of ten times as many messages."""
WRITERS, APPENDED, WRITERS_TARGET = 4, 600, 5.0
"""Processes that append at once, how many messages each, and the largest wall time of 99 in 100 in milliseconds."""


@dataclass(frozen=True)
class Shape:
    """One kind of query: how it is asked, and which target it has."""

    name: str
    weight: str
    requests: list[SearchRequest]


def new(made: Made) -> NewMessage:
    """Return a made-up message as one to append."""
    return NewMessage(Message(Role(made.role), made.text), made.timestamp, Origin.PERSON)


def batches(messages: Iterator[Made]) -> Iterator[list[Made]]:
    """Yield the messages in batches."""
    while batch := list(islice(messages, BATCH)):
        yield batch


def build(store: SqliteSessionStore, count: int) -> tuple[int, float, float]:
    """Fill `store`; return the bytes of its text, and the seconds of clock and processor that appending took."""
    text_bytes, wall, used = 0, 0.0, 0.0
    known: set[str] = set()
    for batch in batches(Corpus().messages(count)):
        text_bytes += sum(len(made.text.encode()) for made in batch)
        start, begun = time.perf_counter(), time.process_time()
        with store.database.writing():
            for name, group in groupby(batch, key=lambda made: made.session_id):
                items = list(group)
                if name not in known:
                    known.add(name)
                    store.create(Session(SessionId(name), "cli", items[0].timestamp))
                store.append(SessionId(name), [new(made) for made in items])
        wall += time.perf_counter() - start
        used += time.process_time() - begun
    return text_bytes, wall, used


def shapes(store: SqliteSessionStore, count: int, rounds: int = ROUNDS, seed: int = SEED) -> list[Shape]:
    """Return distinct queries, made of words that the store holds as often as the shape asks for."""
    postings, corpus, chance = SqlitePostings(store.database.connection), Corpus(), random.Random(seed)
    words = [word for word in corpus.words[:20_000] if word not in STOP_WORDS]
    share = {word: postings.frequency(word) / count for word in words[:400] + chance.sample(words, 1_500)}
    rare = [word for word, part in share.items() if 0 < part < 0.001]
    middle = [word for word, part in share.items() if 0.001 <= part < 0.02]
    common = [word for word, part in share.items() if part >= 0.02]
    # 41 words are as common; for more queries than that, the next ones
    most_common = sorted(share, key=share.__getitem__, reverse=True)[: max(len(common), rounds)]
    known = corpus.characters[: 60 if rounds <= ROUNDS else 300]
    pairs = [pair for pair in map("".join, pairwise(known)) if postings.frequency(pair)]
    stops = [word for word in corpus.words[:60] if word in STOP_WORDS]
    end = START + count * SECONDS_BETWEEN

    def some(make: Callable[[], str], **filters: float) -> list[SearchRequest]:
        queries = islice(dict.fromkeys(make() for _ in range(20 * rounds)), rounds)
        return [SearchRequest(query, limit=10, **filters) for query in queries]  # type: ignore[arg-type]

    def question() -> str:
        one, two, three = chance.sample(middle, 3)
        return f"When did {one} go to the {two} with {chance.choice(common)} and {three}?"

    def phrase() -> str:
        message = store.message(MessageId(chance.randrange(1, count)))
        said = message.message.text.strip(".").split() if message is not None else []
        start = chance.randrange(max(1, len(said) - 3))
        return f'"{" ".join(said[start : start + 3])}"'

    window = {"after": end - (end - START) * 0.02, "before": end - (end - START) * 0.01}
    long = [word for word in rare if len(word) > 5]
    return [
        Shape("rare word", "light", some(lambda: chance.choice(rare))),
        Shape("Chinese, one", "light", some(lambda: chance.choice(corpus.characters[100:1_500]))),
        Shape("Chinese, two", "light", some(lambda: chance.choice(pairs))),
        Shape("substring", "light", some(lambda: chance.choice(long)[1:-1])),
        Shape("after/before", "light", some(lambda: chance.choice(middle), **window)),
        Shape("common word", "heavy", some(lambda: chance.choice(most_common))),
        Shape("five-word OR", "heavy", some(lambda: " OR ".join(chance.sample(common + middle, 5)))),
        Shape("whole question", "heavy", some(question)),
        Shape("phrase", "heavy", some(phrase)),
        Shape("AND, NOT", "heavy", some(lambda: "{} AND {} NOT {}".format(*chance.sample(common + middle, 3)))),
        Shape("prefix", "heavy", some(lambda: f"{chance.choice(middle)[:4]}*")),
        Shape("short prefix", "heavy", some(lambda: f"{chance.choice(middle)[: chance.choice((1, 2, 2))]}*")),
        Shape("stop words", "heavy", some(lambda: f'"{" ".join(chance.sample(stops, 2))}"')),
    ]


Times = tuple[float, float]
"""Wall and processor milliseconds."""


def timed(act: Callable[[], object]) -> Times:
    """Return how long `act` takes, by the clock and by the processor."""
    start, used = time.perf_counter(), time.process_time()
    act()
    return (time.perf_counter() - start) * 1e3, (time.process_time() - used) * 1e3


class Report:
    """Prints the lines of one size, and remembers which targets were missed."""

    def __init__(self, reference: float) -> None:
        self._reference = reference
        self.missed: list[str] = []

    def times(self, name: str, times: Sequence[Times], *, target: float | None = None, note: str = "") -> None:
        """Print one line of times, also as ratio to the reference loop."""
        walls, used = sorted(wall for wall, _ in times), sorted(cpu for _, cpu in times)
        p50, p95, p99 = (_share(used, share) for share in (0.5, 0.95, 0.99))
        told = ""
        if target is not None:
            told = f"target {target:g}: " + self.judged(name, p50 <= target and p95 <= SPREAD * target)
        print(
            f"  {name:15} processor p50 {p50:7.2f} p95 {p95:7.2f} p99 {p99:7.2f}  wall p50 {_share(walls, 0.5):7.2f} "
            f"p95 {_share(walls, 0.95):7.2f} ms  ratio {p50 / self._reference / 1e3:6.4f}  {told}  {note}",
            flush=True,
        )

    def judged(self, name: str, is_met: bool) -> str:
        """Return whether a target is met, in a word."""
        if not is_met:
            self.missed.append(name)
        return "met" if is_met else "NOT met"


def _share(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


class Exact:
    """The ten best messages of queries by exhaustive scoring, kept in a file where one is given."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, list[int]] = json.loads(file.read_text()) if file and file.exists() else {}

    def answer(self, store: SqliteSessionStore, request: SearchRequest, now: float) -> list[int]:
        """Return the best messages, computed if they are not known."""
        key = f"{request.query} {request.after} {request.before}"
        if key not in self._known:
            found = find(store.database.connection, request, now=now, budget=REFERENCE).messages
            self._known[key] = [int(hit.message_id) for hit in found]
            if self._file:
                self._file.write_text(json.dumps(self._known))
        return self._known[key]


def overlap(
    store: SqliteSessionStore, requests: Sequence[SearchRequest], now: float, exact: Exact
) -> tuple[float, int]:
    """Return how many of the ten best by exhaustive scoring the bounded search gives, and for how many queries."""
    shares = []
    for request in requests:
        few = {hit.message_id for hit in find(store.database.connection, request, now=now).messages}
        if every := exact.answer(store, request, now):
            shares.append(10 * sum(number in few for number in every) / len(every))
    return (statistics.mean(shares) if shares else 10.0), len(shares)


def count_overlaps(path: Path, count: int, exact: Exact, *, overlaps: int, seed: int, only: Sequence[str]) -> None:
    """Print the overlap of each kind of query in a store that an earlier run kept."""
    store = SqliteSessionStore(open_state(path))
    store.file.catch_up()
    for shape in shapes(store, count, overlaps, seed):
        if not only or shape.name in only:
            share, number = overlap(store, shape.requests, START + count * SECONDS_BETWEEN, exact)
            print(f"  {shape.name:15} overlap {share:.2f} of 10 ({number} queries)", flush=True)
    store.database.close()


def measure(path: Path, count: int, *, overlaps: int, only: Sequence[str]) -> None:
    """Build a store of `count` messages, or use the one that is there, and print its figures."""
    reference = reference_loop_processor_seconds()
    report = Report(reference)
    print(f"\n{count:,} messages (reference loop {reference:.3f} s of the processor)")
    _fill(path, count, report)
    report.times("open", [timed(lambda: _open_once(path)) for _ in range(7)], target=OPEN_TARGET)
    store = SqliteSessionStore(open_state(path))
    now = START + count * SECONDS_BETWEEN
    _append_one(store, now, report)
    _append_from_several(path, report)
    light = TARGETS["light"].get(count)
    report.times("browse", [timed(lambda: store.recent(limit=20)) for _ in range(ROUNDS)], target=light)
    chance = random.Random(3)
    places = [MessageId(chance.randrange(1, count)) for _ in range(ROUNDS)]
    report.times("scroll", [timed(partial(store.window, place, before=5, after=5)) for place in places], target=light)
    chosen = [shape for shape in shapes(store, count, max(ROUNDS, overlaps)) if not only or shape.name in only]
    for shape in chosen:
        _shape(store, shape, count, now=now, overlaps=overlaps, report=report)
    print(f"  memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")
    print(f"  targets missed: {', '.join(dict.fromkeys(report.missed)) or 'none'}", flush=True)
    store.database.close()


def compare(folder: Path, sizes: tuple[int, int], only: Sequence[str]) -> None:
    """Print how many times as long each kind of query takes in the larger of two stores, asked in turns."""
    stores = [_open_filled(folder, size) for size in sizes]
    asked = [shapes(store, size) for store, size in zip(stores, sizes, strict=True)]
    missed = []
    for small, large in zip(*asked, strict=True):
        if only and small.name not in only:
            continue
        times: list[list[float]] = [[], []]
        for number in range(WARM + GROWTH_ROUNDS * ROUNDS):
            for store, shape, taken in zip(stores, (small, large), times, strict=True):
                one = timed(partial(store.search, shape.requests[number % len(shape.requests)]))[1]
                if number >= WARM:
                    taken.append(one)
        before, after = (statistics.median(taken) for taken in times)
        means = [statistics.mean(taken) for taken in times]
        if after > GROWTH_TARGET * before:
            missed.append(small.name)
        print(
            f"  {small.name:15} p50 {before:6.2f} -> {after:6.2f} ms: {after / before:4.2f} times  "
            f"mean {means[0]:6.2f} -> {means[1]:6.2f} ms: {means[1] / means[0]:4.2f} times",
            flush=True,
        )
    print(f"  more than {GROWTH_TARGET:g} times: {', '.join(missed) or 'none'}")
    for store in stores:
        store.database.close()


def _open_filled(folder: Path, size: int) -> SqliteSessionStore:
    """Return the store that an earlier run filled."""
    store = SqliteSessionStore(open_state(folder / f"scale-{size}" / "state.db"))
    if store.message(MessageId(size)) is None:
        sys.exit(f"no store of {size:,} messages in {folder}: fill it first, with --shapes none instead of --growth")
    return store


def _fill(path: Path, count: int, report: Report) -> None:
    store = SqliteSessionStore(open_state(path))
    if store.message(MessageId(count)) is None:
        text_bytes, wall, used = build(store, count)
        is_met = report.judged("batches", count / used >= BATCH_TARGET)
        print(
            f"  batches of {BATCH}: {count / used:,.0f} messages/s of the processor, {count / wall:,.0f} by the clock, "
            f"target {BATCH_TARGET:,.0f}: {is_met}"
        )
    else:
        text_bytes = _text_bytes(store)
    store.close()
    size = sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
    allowed = 2.2 * text_bytes + 120 * count
    print(
        f"  size {size / text_bytes:.2f} x text ({text_bytes / count:.0f} B a message), {size / allowed:.0%} of the "
        f"budget: {report.judged('size', size <= allowed)}"
    )


def _shape(store: SqliteSessionStore, shape: Shape, count: int, *, now: float, overlaps: int, report: Report) -> None:
    for request in shape.requests[:10]:
        find(store.database.connection, request, now=now)
    times = [timed(partial(store.search, request)) for request in shape.requests]
    note = ""
    if overlaps:
        share, number = overlap(store, shape.requests[:overlaps], now, Exact())
        note = f"overlap {share:.1f} of 10 ({number} queries)"
        if count >= LARGE:
            note += f": {report.judged(f'{shape.name}, overlap', share >= OVERLAP_TARGET)}"
    report.times(shape.name, times, target=TARGETS[shape.weight].get(count), note=note)


def _text_bytes(store: SqliteSessionStore) -> int:
    """Return the bytes of the text in a store that an earlier run kept."""
    row = store.database.connection.execute("SELECT sum(octet_length(content)) FROM messages").fetchone()
    return int(row[0]) if row and isinstance(row[0], int) else 0


def _open_once(path: Path) -> None:
    database = open_state(path)
    SqliteSessionStore(database).recent(limit=1)
    database.close()


def _append_one(store: SqliteSessionStore, now: float, report: Report) -> None:
    name = SessionId("bench-append")
    if store.session(name) is None:
        store.create(Session(name, "cli", now))
    texts = [made.text for made in Corpus(seed=9).messages(300)]
    messages = [NewMessage(Message(Role.USER, text), now, Origin.PERSON) for text in texts]
    times = [timed(partial(store.append, name, [message])) for message in messages]
    report.times("append one", times, target=APPEND_TARGET)


def _append_from_several(path: Path, report: Report) -> None:
    """Print the wall time of appends while several processes append as fast as they can."""
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        times = sorted(one for some in pool.map(_append_some, [path] * WRITERS, range(WRITERS)) for one in some)
    p50, p99 = _share(times, 0.5), _share(times, 0.99)
    is_met = report.judged("append, four writers", p99 <= WRITERS_TARGET)
    print(f"  append, {WRITERS} writers: wall p50 {p50:.2f} p99 {p99:.2f} ms, target {WRITERS_TARGET:g}: {is_met}")


def _append_some(path: Path, number: int) -> list[float]:
    store, name = SqliteSessionStore(open_state(path)), SessionId(f"bench-writer-{os.getpid()}")
    store.create(Session(name, "cli", time.time()))
    texts = [made.text for made in Corpus(seed=20 + number).messages(APPENDED)]
    messages = [NewMessage(Message(Role.USER, text), time.time(), Origin.PERSON) for text in texts]
    times = [timed(partial(store.append, name, [message]))[0] for message in messages]
    store.database.close()
    return times


def main() -> None:
    """Measure the sizes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--overlap", type=int, default=15, help="queries per shape compared with exhaustive scoring")
    parser.add_argument("--exact", type=Path, help="count only the overlap, with exhaustive answers kept in this file")
    parser.add_argument("--seed", type=int, default=SEED, help="of the queries whose overlap --exact counts")
    parser.add_argument("--growth", action="store_true", help="compare the times of two stores that --keep kept")
    parser.add_argument("--keep", type=Path, help="folder in which the databases stay, and are used again")
    parser.add_argument("--shapes", nargs="+", default=[], help="kinds of queries, all of them by default")
    options = parser.parse_args()
    print(f"pid {os.getpid()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        if options.growth:
            compare(folder, (options.sizes[0], options.sizes[1]), options.shapes)
            return
        if options.exact:
            path, exact = folder / f"scale-{options.sizes[0]}" / "state.db", Exact(options.exact)
            count_overlaps(
                path, options.sizes[0], exact, overlaps=options.overlap, seed=options.seed, only=options.shapes
            )
            return
        for size in options.sizes:
            measure(folder / f"scale-{size}" / "state.db", size, overlaps=options.overlap, only=options.shapes)


if __name__ == "__main__":
    main()
