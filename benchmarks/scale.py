"""How speed and size hold as history grows, on the real store with made-up conversations.

python benchmarks/scale.py 20000 100000 1000000 [--overlap 5] [--keep FOLDER]
"""

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path

from kept.core.ids import MessageId, SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import SearchRequest
from kept.sessions.sqlite.candidates import EXHAUSTIVE
from kept.sessions.sqlite.postings import Postings
from kept.sessions.sqlite.search import find
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.sessions.words import STOP_WORDS
from kept.storage.state import open_state

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_seconds
from benchmarks.corpus import SECONDS_BETWEEN, START, Corpus, Made

BATCH = 2_000
ROUNDS = 40
TARGETS = {"light": {100_000: 5.0, 1_000_000: 15.0}, "heavy": {100_000: 20.0, 1_000_000: 60.0}}


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


def build(store: SqliteSessionStore, count: int) -> tuple[int, float]:
    """Fill `store` and return the bytes of its text and the seconds that appending took."""
    text_bytes, seconds = 0, 0.0
    known: set[str] = set()
    for batch in batches(Corpus().messages(count)):
        text_bytes += sum(len(made.text.encode()) for made in batch)
        start = time.perf_counter()
        with store.database.writing():
            for name, group in groupby(batch, key=lambda made: made.session_id):
                items = list(group)
                if name not in known:
                    known.add(name)
                    store.create(Session(SessionId(name), "cli", items[0].timestamp))
                store.append(SessionId(name), [new(made) for made in items])
        seconds += time.perf_counter() - start
    return text_bytes, seconds


def shapes(store: SqliteSessionStore, count: int) -> list[Shape]:
    """Return the queries, made of words that the store holds as often as the shape asks for."""
    postings, corpus, chance = Postings(store.database.connection), Corpus(), random.Random(11)
    words = [word for word in corpus.words[:20_000] if word not in STOP_WORDS]
    share = {word: postings.holding(postings.stem(word)) / count for word in words[:400] + chance.sample(words, 1_500)}
    rare = [word for word, part in share.items() if 0 < part < 0.001]
    middle = [word for word, part in share.items() if 0.001 <= part < 0.02]
    common = [word for word, part in share.items() if part >= 0.02]
    pairs = [left + right for left, right in zip(corpus.characters[:60], corpus.characters[1:61], strict=True)]
    pairs = [pair for pair in pairs if postings.holding(pair)]
    end = START + count * SECONDS_BETWEEN

    def some(make: Callable[[], str], **filters: float) -> list[SearchRequest]:
        return [SearchRequest(make(), limit=10, **filters) for _ in range(ROUNDS)]  # type: ignore[arg-type]

    def question() -> str:
        one, two, three = chance.sample(middle, 3)
        return f"When did {one} go to the {two} with {chance.choice(common)} and {three}?"

    return [
        Shape("rare word", "light", some(lambda: chance.choice(rare))),
        Shape("Chinese, one", "light", some(lambda: chance.choice(corpus.characters[100:1_500]))),
        Shape("Chinese, two", "light", some(lambda: chance.choice(pairs))),
        Shape("substring", "light", some(lambda: chance.choice([word for word in rare if len(word) > 5])[1:-1])),
        Shape(
            "after/before",
            "light",
            some(lambda: chance.choice(middle), after=end - (end - START) * 0.02, before=end - (end - START) * 0.01),
        ),
        Shape("common word", "heavy", some(lambda: chance.choice(common))),
        Shape("five-word OR", "heavy", some(lambda: " OR ".join(chance.sample(common + middle, 5)))),
        Shape("whole question", "heavy", some(question)),
    ]


Times = tuple[float, float]
"""Wall and processor milliseconds."""


def timed(act: Callable[[], object]) -> Times:
    """Return how long `act` takes, by the clock and by the processor."""
    start, used = time.perf_counter(), time.process_time()
    act()
    return (time.perf_counter() - start) * 1e3, (time.process_time() - used) * 1e3


def report(name: str, times: Sequence[Times], reference: float, note: str = "") -> None:
    """Print one line of times, also as ratio to the reference loop; the processor's do not know of other work."""
    walls, used = sorted(wall for wall, _ in times), [cpu for _, cpu in times]
    p50, p95, p99 = (walls[min(len(walls) - 1, int(len(walls) * share))] for share in (0.5, 0.95, 0.99))
    print(
        f"  {name:16} p50 {p50:8.2f}  p95 {p95:8.2f}  p99 {p99:8.2f} ms  processor {statistics.median(used):7.2f} ms"
        f"  ratio {p50 / reference / 1e3:7.4f}  {note}",
        flush=True,
    )


def overlap(store: SqliteSessionStore, requests: Sequence[SearchRequest], now: float) -> str:
    """Return how many of the ten best by exhaustive scoring the bounded search gives, on average."""
    shares = []
    for request in requests:
        few = {hit.message_id for hit in find(store.database.connection, request, now=now).messages}
        every = find(store.database.connection, request, now=now, budget=EXHAUSTIVE).messages
        if every:
            shares.append(10 * sum(hit.message_id in few for hit in every) / len(every))
    return f"overlap {statistics.mean(shares):.1f} of 10 ({len(shares)} queries)" if shares else ""


def measure(path: Path, count: int, *, overlaps: int) -> None:
    """Build a store of `count` messages and print its figures."""
    reference = reference_loop_seconds()
    print(f"\n{count:,} messages (reference loop {reference:.3f} s)")
    database = open_state(path)
    store = SqliteSessionStore(database)
    if store.message(MessageId(count)) is None:
        text_bytes, seconds = build(store, count)
        print(
            f"  batches of {BATCH}: {count / seconds:,.0f} messages/s, "
            f"1,000 messages take {seconds / count * 1e3 / reference:.2f} reference loops"
        )
    else:
        text_bytes = _text_bytes(store)
    database.close()
    size = sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))
    allowed = 2.6 * text_bytes + 150 * count
    print(
        f"  size {size / text_bytes:.2f} x text ({text_bytes / count:.0f} B a message), "
        f"{size / allowed:.0%} of the budget"
    )
    opened = [timed(lambda: _open_once(path)) for _ in range(7)]
    report("open", opened, reference)
    store = SqliteSessionStore(open_state(path))
    now = START + count * SECONDS_BETWEEN
    _append_one(store, now, reference)
    report("browse", [timed(lambda: store.recent(limit=20)) for _ in range(ROUNDS)], reference)
    chance = random.Random(3)
    places = [MessageId(chance.randrange(1, count)) for _ in range(ROUNDS)]
    report("scroll", [timed(partial(store.window, place, before=5, after=5)) for place in places], reference)
    for shape in shapes(store, count):
        for request in shape.requests[:10]:
            find(store.database.connection, request, now=now)
        times = [timed(partial(store.search, request)) for request in shape.requests]
        target = TARGETS[shape.weight].get(count)
        note = f"target {target:g} ms  " if target else ""
        report(
            shape.name, times, reference, note + (overlap(store, shape.requests[:overlaps], now) if overlaps else "")
        )
    print(f"  memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")
    store.database.close()


def _text_bytes(store: SqliteSessionStore) -> int:
    """Return the bytes of the text in a store that an earlier run kept."""
    row = store.database.connection.execute("SELECT sum(octet_length(content)) FROM messages").fetchone()
    return int(row[0]) if row and isinstance(row[0], int) else 0


def _open_once(path: Path) -> None:
    database = open_state(path)
    SqliteSessionStore(database).recent(limit=1)
    database.close()


def _append_one(store: SqliteSessionStore, now: float, reference: float) -> None:
    name = SessionId("bench-append")
    if store.session(name) is None:
        store.create(Session(name, "cli", now))
    texts = [made.text for made in Corpus(seed=9).messages(300)]
    messages = [NewMessage(Message(Role.USER, text), now, Origin.PERSON) for text in texts]
    times = [timed(partial(store.append, name, [message])) for message in messages]
    report("append one", times, reference, "target 0.3 ms")


def main() -> None:
    """Measure the sizes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="*", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--overlap", type=int, default=3, help="queries per shape compared with exhaustive scoring")
    parser.add_argument("--keep", type=Path, help="folder in which the databases stay, and are used again")
    options = parser.parse_args()
    print(f"pid {os.getpid()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for size in options.sizes:
            measure(folder / f"scale-{size}" / "state.db", size, overlaps=options.overlap)


if __name__ == "__main__":
    main()
