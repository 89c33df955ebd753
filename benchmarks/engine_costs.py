"""What the FTS5 index and a tantivy index cost beside queries; `engines.py --costs` prints it.

New messages are stored in the database by both; measured is only what makes them findable afterwards: FTS5 indexes
what waits, tantivy catches up under a lease, commits and reloads. Everything happens in copies of a filled store.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from wellkept.core.ids import OWNER, MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.analysis import prepare
from wellkept.sessions.search.engine import search
from wellkept.sessions.search.postings import Word
from wellkept.sessions.sqlite.index import texts
from wellkept.sessions.sqlite.postings import SqliteCatalog, SqlitePostings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus
from benchmarks.peer import RUN_ALONE

FOLDER = str(Path(__file__).parent.parent)
ENGINES = ("FTS5", "tantivy")
ALONE, TOGETHER, WRITERS = 200, 100, 4
"""Messages of one writer; of each of several writers, and how many those are."""
BATCH = 600
"""Messages that wait for the index: with more of them, storing them would index some with FTS5."""
START_SECONDS = 4.0
"""After which several processes begin at the same moment: all have loaded by then."""
READING_SECONDS = 6.0
MANY_IDS, TAIL = 400, 100


class Side:
    """One engine on one store, as one process has it open."""

    def __init__(self, name: str, folder: Path, *, keeps_writer: bool = False) -> None:
        self.store = SqliteSessionStore(open_state(folder / "state.db"))
        self.connection = self.store.database.connection
        self._index: Any = None
        self._keeps_writer = keeps_writer
        if name.startswith("tantivy"):
            from benchmarks.tantivy_index import TantivyIndex, TantivyPostings  # not in the process of the other

            self._index, self._make = TantivyIndex(folder / "tantivy", self.connection), TantivyPostings

    def catch_up(self) -> None:
        """Make every stored message findable."""
        if self._index is None:
            self.store.file.catch_up()
        else:
            self._index.catch_up(keeps_writer=self._keeps_writer)

    def open_port(self) -> Any:
        """Return the port for one search."""
        return SqlitePostings(self.connection) if self._index is None else self._make(self._index, self.connection)

    def fill(self) -> None:
        """Index all messages with tantivy."""
        self._index.fill()

    def scan_tail(self, count: int) -> list[set[str]]:
        """Return the terms of the newest messages, which a search needs of those that are not indexed yet."""
        rows = self._index.read_after(self._index.newest() - count, count)
        return [{*self._index.analyzer.tokens(f"{one.words} {one.marks}")} for one in map(prepare, texts(rows))]

    def ask(self, query: str) -> int:
        """Search; return how many messages were found."""
        catalog = SqliteCatalog(self.connection, user=OWNER)
        found = search(self.open_port(), catalog, SearchRequest(query, limit=10), now=time.time())
        return len(found.messages)

    def close(self) -> None:
        """Close both without tidying up, which a process that stays open does not do either."""
        if self._index is not None:
            self._index.close()
        self.store.database.close()


@contextmanager
def _copy(folder: Path) -> Iterator[Path]:
    """Give a copy of the store and of both indexes."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        copied = Path(scratch) / "store"
        shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("lists", "exact.json", "tantivy-blocks"))
        yield copied


def _share(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def append_some(name: str, folder: Path, *, number: int, count: int, begin: float) -> list[tuple[float, float, float]]:
    """Append messages; return wall and processor ms until each is findable, and wall ms of storing it."""
    side = Side(name, folder, keeps_writer="kept open" in name)
    session, times = SessionId(f"bench-{os.getpid()}-{number}"), []
    side.store.create(Session(session, "cli", time.time()))
    side.catch_up()
    time.sleep(max(0.0, begin - time.time()))
    for place, made in enumerate(Corpus(seed=40 + number).messages(count)):
        word = f"w{os.getpid()}x{place}"
        start = time.perf_counter()
        (stored,) = side.store.append(
            session, [NewMessage(Message(Role.USER, f"{word} {made.text}"), time.time(), Origin.PERSON)]
        )
        middle, used = time.perf_counter(), time.process_time()
        side.catch_up()
        found = side.open_port().ids(Word(word))
        ended = time.perf_counter()
        assert found == [int(stored)], (name, word, found, stored)
        times.append(((ended - middle) * 1e3, (time.process_time() - used) * 1e3, (middle - start) * 1e3))
    side.close()
    return times


def print_appends(folder: Path) -> None:
    """Print how long a new message takes to be findable, with one and with several writers."""
    print("\n| new message findable | wall ms p50 / p99 | processor ms p50 | storing it, wall ms p50 / p99 |")
    print("|---|---|---|---|")
    for name in ("FTS5", "tantivy", "tantivy, writer kept open"):
        for writers in (1, WRITERS) if name in ENGINES else (1,):
            with _copy(folder) as copied, ProcessPoolExecutor(writers, mp_context=get_context("spawn")) as pool:
                begin = time.time() + START_SECONDS
                count = ALONE if writers == 1 else TOGETHER
                jobs = [
                    pool.submit(append_some, name, copied, number=number, count=count, begin=begin)
                    for number in range(writers)
                ]
                times = [one for job in jobs for one in job.result()]
            wall, used, stored = ([one[column] for one in times] for column in range(3))
            print(
                f"| {name}, {writers} writer{'s'[: writers - 1]} | {median(wall):.1f} / {_share(wall, 0.99):.1f} | "
                f"{median(used):.1f} | {median(stored):.2f} / {_share(stored, 0.99):.1f} |",
                flush=True,
            )


def print_batches(folder: Path) -> None:
    """Print how long a batch of stored messages takes to be indexed."""
    for name in ENGINES:
        with _copy(folder) as copied:
            side = Side(name, copied)
            side.catch_up()
            session = SessionId("bench-batch")
            side.store.create(Session(session, "cli", time.time()))
            made = Corpus(seed=60).messages(BATCH)
            while few := list(islice(made, 40)):  # more at once are an import, which FTS5 indexes as it is stored
                side.store.append(
                    session,
                    [NewMessage(Message(Role.USER, one.text), time.time(), Origin.PERSON) for one in few],
                )
            wall, used = _time(side.catch_up)
            print(f"{name}: {BATCH:,} messages caught up in {wall:.0f} ms by the clock, {used:.0f} of the processor")
            side.close()


def print_rebuilds(folder: Path) -> None:
    """Print how long indexing all stored messages anew takes."""
    with _copy(folder) as copied:
        ours = Side("FTS5", copied)
        wall, used = _time(ours.store.upkeep.reindex)
        print(f"FTS5: all messages indexed anew in {wall / 1e3:.1f} s by the clock, {used / 1e3:.1f} of the processor")
        ours.close()
        shutil.rmtree(copied / "tantivy")
        theirs = Side("tantivy", copied)
        wall, used = _time(theirs.fill)
        print(
            f"tantivy: all messages indexed anew in {wall / 1e3:.1f} s by the clock, {used / 1e3:.1f} of the processor"
        )
        theirs.close()


def _time(act: Callable[[], object]) -> tuple[float, float]:
    start, used = time.perf_counter(), time.process_time()
    act()
    return (time.perf_counter() - start) * 1e3, (time.process_time() - used) * 1e3


def read_while(name: str, folder: Path, begin: float, words: Sequence[str]) -> tuple[list[float], list[str]]:
    """Search for a while; return the wall times and the errors."""
    side, times, errors = Side(name, folder), list[float](), list[str]()
    time.sleep(max(0.0, begin - time.time()))
    while time.time() < begin + READING_SECONDS:
        word = words[len(times) % len(words)]
        try:
            times.append(_time(lambda word=word: side.ask(word))[0])  # type: ignore[misc] # the default binds it now
        except Exception as error:  # what a reader would see
            errors.append(f"{type(error).__name__}: {error}")
    side.close()
    return times, errors


def print_readers(folder: Path) -> None:
    """Print what two processes that search wait while a third makes one message after the other findable."""
    words = random.Random(5).sample(Corpus().words[200:4_000], 60)
    for name in ENGINES:
        for writes in (False, True):
            with _copy(folder) as copied, ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
                begin = time.time() + START_SECONDS
                readers = [pool.submit(read_while, name, copied, begin, words) for _ in range(2)]
                if writes:
                    pool.submit(append_some, name, copied, number=9, count=ALONE, begin=begin).result()
                done = [reader.result() for reader in readers]
            times = [one for reader, _ in done for one in reader]
            errors = [error for _, some in done for error in some]
            print(
                f"{name}, two readers {'and a writer' if writes else 'alone'}: {len(times)} searches, wall p50 "
                f"{median(times):.1f} p99 {_share(times, 0.99):.1f} ms, {len(errors)} errors {errors[:1]}"
            )


def report_memory(name: str, folder: str) -> None:
    """Print the resident memory of this process after some searches: its own, and mapped files."""
    side = Side(name, Path(folder))
    for word in random.Random(5).sample(Corpus().words[:4_000], 60):
        side.ask(word)
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own, files = (int(lines[key].split()[0]) / 1024 for key in ("RssAnon", "RssFile"))
    print(f"{name}: {own:.0f} MB of its own, {files:.0f} MB of mapped files")


def print_start(folder: Path) -> None:
    """Print what importing and opening costs, the memory of a process that searches, and the size of the package."""
    for code in ("pass", "import apsw", "import tantivy", "import numpy"):
        runs = []
        for _ in range(7):
            run = [sys.executable, "-c", RUN_ALONE, sys.executable, "-c", code]
            done = subprocess.run(run, capture_output=True, check=True)
            runs.append(float(done.stdout.split()[1]) * 1e3)
        print(f"python -c {code!r}: {median(runs):.0f} ms of the processor")
    for name in ENGINES:
        side = Side(name, folder)
        times = [_time(lambda: Side(name, folder).open_port())[1] for _ in range(7)]  # noqa: B023 # called at once
        print(f"{name}: database and index opened in {median(times):.2f} ms of the processor")
        side.close()
    for name in ENGINES:
        code = f"from benchmarks.engine_costs import report_memory; report_memory({name!r}, {str(folder)!r})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": FOLDER})
    files = metadata.files("tantivy") or []
    size = sum(Path(str(one.locate())).stat().st_size for one in files if Path(str(one.locate())).exists())
    print(f"package tantivy {metadata.version('tantivy')}: {size / 1e6:.1f} MB installed")


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def print_sizes(folder: Path, *, with_variants: bool) -> None:
    """Print the bytes of the indexes as multiples of the text."""
    side = Side("FTS5", folder)
    rows = side.connection.execute("SELECT sum(octet_length(content)) FROM messages").fetchall()
    text = int(str(rows[0][0]))
    for table in ("message_words", "message_spellings"):
        rows = side.connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name GLOB ?", (f"{table}*",)).fetchall()
        print(f"FTS5, {table}: {int(str(rows[0][0])) / text:.2f} x the text")
    print(f"database with FTS5: {_bytes_of_database(folder) / text:.2f} x the text ({text / 1e6:.0f} MB)")
    print(f"tantivy, positions and trigrams: {_bytes_of(folder / 'tantivy') / text:.2f} x the text")
    if with_variants:
        from benchmarks.tantivy_index import TantivyIndex

        for detail, trigrams in (("basic", ""), ("position", ""), ("basic", "message")):
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                TantivyIndex(Path(scratch) / "index", side.connection, detail=detail, trigrams=trigrams).fill()
                size = _bytes_of(Path(scratch) / "index")
            print(f"tantivy, {detail}, trigrams of each {trigrams or 'nothing'}: {size / text:.2f} x the text")
    side.close()


def _bytes_of_database(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("state.db*"))


def print_workarounds(folder: Path) -> None:
    """Print what tantivy takes for what it has no list or column of, on the most common word of people."""
    ours, theirs = Side("FTS5", folder), Side("tantivy", folder)
    port, other, word = theirs.open_port(), ours.open_port(), Word("the")
    count = other.frequency("the")  # a search asks for it first, too
    some = list(range(1, 20 * MANY_IDS, 20))
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        f"all {count:,} ids of one word": (lambda: other.ids(word), lambda: port.ids(word)),
        "its newest 300": (lambda: other.newest_ids(word, 300), lambda: port.newest_ids(word, 300)),
        f"lengths of {MANY_IDS} messages": (
            lambda: SqlitePostings(ours.connection).lengths(some),
            lambda: port.read_lengths(some),
        ),
        "tokens that start with sto": (lambda: other.vocabulary("sto"), lambda: port.vocabulary("sto")),
    }
    print("\n| asked of the index | FTS5 ms | tantivy ms |\n|---|---|---|")
    for name, acts in pairs.items():
        cells = [median(_time(act)[1] for _ in range(7)) for act in acts]
        print(f"| {name} | {cells[0]:.2f} | {cells[1]:.2f} |")
    used = median(_time(lambda: theirs.scan_tail(TAIL))[1] for _ in range(7))
    print(f"| terms of the newest {TAIL} messages, as if not indexed yet | – | {used:.2f} |")
    ours.close()
    theirs.close()


def print_forgetting(folder: Path) -> None:
    """Print where a word of a removed message still is: bytes of files, and words that the index lists."""
    with _copy(folder) as copied:
        ours, theirs = Side("FTS5", copied), Side("tantivy", copied)
        before = [one for start in "bcd" for one in ours.open_port().vocabulary(start)]
        token = next(one for one, count in before if count == 1 and one.isalpha() and len(one) > 7)
        (number,) = ours.open_port().ids(Word(token))
        text = ours.open_port().texts([number])[number]
        start = time.perf_counter()
        ours.store.forgetting.carry_out(ours.store.forgetting.plan_query(token))
        seconds = time.perf_counter() - start
        theirs._index.remove(MessageId(number))  # noqa: SLF001 # the prototype has no other user
        for name, side, files in (("FTS5", ours, "state.db*"), ("tantivy", theirs, "tantivy/*")):
            left = b"".join(path.read_bytes() for path in copied.glob(files)).lower()
            listed = [one for one, _ in side.open_port().vocabulary(token) if one == token]
            spelled = [form for form in (token, token[::-1]) if form.encode() in left]
            print(
                f"{name}: {token!r} ({'in' if token in text.lower() else 'not in'} the text) is removed; found "
                f"{len(side.open_port().ids(Word(token)))}, listed by the index {bool(listed)}, in its files {spelled}"
            )
        print(f"forgetting with FTS5 took {seconds:.1f} s")
        theirs.close()


def print_costs(folder: Path) -> None:
    """Print everything for the store in one folder, which a comparison of queries has filled."""
    if not (folder / "tantivy").exists():
        sys.exit(f"no filled stores in {folder}: compare queries first, with the same --keep")
    print(f"\n## Costs at {folder.name}, load {os.getloadavg()[0]:.1f}\n")
    print_sizes(folder, with_variants=_bytes_of_database(folder) < 100_000_000)
    print_start(folder)
    print_workarounds(folder)
    print_forgetting(folder)
    print_appends(folder)
    print()
    print_batches(folder)
    print_rebuilds(folder)
    print_readers(folder)
