"""What vectors cost as history grows: reading them in, one question, a whole search; and what the short forms lose.

python benchmarks/vectors.py FOLDER [--model MODEL]

FOLDER holds a `state.db`, as `benchmarks/scale.py 100000 --keep FOLDER` leaves one; it is copied, never written.
Messages get made-up vectors with the spread of a sentence model's (real ones would take hours at a million). With a
model the time of a question's own vector is printed, too.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wellkept.core.search import SearchRequest
from wellkept.sessions.rows import vectors
from wellkept.sessions.rows.semantic import compare
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import Connection, open_state

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.baseline import reference_loop_processor_seconds

WIDTH = 384
PASSAGES = 2.5
ROUNDS = 40
TOPICS = 4_000
QUESTION = "When did we talk about the garden, the budget and the flight to {}?"


class MadeUp:
    """Gives every text a vector of its own, near one of many topics."""

    name = "made-up"

    def __init__(self) -> None:
        chance = np.random.default_rng(1)
        # sentence models use their directions unevenly: a few tell most texts apart
        self._spread = (np.arange(1, WIDTH + 1) ** -0.35).astype(np.float32)
        self._topics = chance.normal(size=(TOPICS, WIDTH)).astype(np.float32) * self._spread
        self._chance = chance

    def rows(self, count: int) -> Any:
        """Return so many vectors."""
        near = self._topics[self._chance.integers(0, TOPICS, count)]
        return near + 0.7 * self._chance.normal(size=(count, WIDTH)).astype(np.float32) * self._spread

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, whatever it says."""
        rows: list[list[float]] = self.rows(len(texts)).tolist()
        return rows


def fill(connection: Connection, model: MadeUp) -> int:
    vectors.begin(connection, vectors.mark(model.name))
    numbers = [
        number for (number,) in connection.execute("SELECT id FROM messages WHERE role IN ('user', 'assistant')")
    ]
    chance = np.random.default_rng(2)
    for start in range(0, len(numbers), 4_000):
        part = numbers[start : start + 4_000]
        counts = 1 + chance.poisson(PASSAGES - 1, len(part))
        rows = np.split(model.rows(int(counts.sum())), np.cumsum(counts)[:-1])
        connection.executemany(
            "INSERT INTO message_vectors (message_id, vectors) VALUES (?, ?)",
            [(number, vectors.pack(own)) for number, own in zip(part, rows, strict=True)],
        )
    return len(numbers)


def timed(name: str, act: Callable[[int], object]) -> None:
    act(0)
    used, clock = [], []
    for number in range(1, ROUNDS + 1):
        begun, start = time.process_time(), time.perf_counter()
        act(number)
        used.append((time.process_time() - begun) * 1e3)
        clock.append((time.perf_counter() - start) * 1e3)
    middle, late = ROUNDS // 2, int(ROUNDS * 0.95)
    used.sort()
    clock.sort()
    print(
        f"  {name:28} processor p50 {used[middle]:7.2f}  p95 {used[late]:7.2f} ms   clock p50 {clock[middle]:7.2f} ms"
    )


def lost(connection: Connection, meaning: FileVectors, numbers: Sequence[int]) -> float:
    """Return the share of the best 50 messages that the short forms keep, over some questions."""
    shares = []
    for number in range(5):
        asked = meaning.embed_question(connection, QUESTION.format(number))
        assert asked is not None
        exact = compare(connection, asked.vector, numbers)
        best = set(sorted(exact, key=exact.__getitem__, reverse=True)[:50])
        shares.append(len(best & set(asked.nearest(None))) / len(best))
    return sum(shares) / len(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", help="a local model by path or name, to time the vector of a question")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = next(options.folder.rglob("state.db"))
        database = open_state(Path(shutil.copy(place, Path(scratch) / "state.db")))
        model = MadeUp()
        with database.writing() as connection:
            count = fill(connection, model)
        settings = EmbeddingSettings(provider="local", background=False)
        meaning = FileVectors(database, settings, model=lambda: model, sink=print)
        store = SqliteSessionStore(database)
        print(f"{count:,} messages (reference loop {reference_loop_processor_seconds():.3f} s)")
        begun = time.process_time()
        meaning.embed_question(database.connection, "the first question")
        print(f"  read in, put on file         {time.process_time() - begun:.2f} s")
        begun, start = time.process_time(), time.perf_counter()
        meaning = FileVectors(database, settings, model=lambda: model, sink=print)
        asked = meaning.embed_question(database.connection, "the first question")
        assert asked is not None
        asked.nearest(None)
        spent = f"{time.process_time() - begun:.2f} s, {time.perf_counter() - start:.2f} s by the clock"
        print(f"  a process after that         {spent}", flush=True)
        timed("search by words alone", lambda number: store.search(SearchRequest(QUESTION.format(number))))
        timed("nearest vectors", lambda number: meaning.embed_question(database.connection, str(number)).nearest(None))  # type: ignore[union-attr] # it has vectors
        store.meaning = meaning
        timed("search with vectors", lambda number: store.search(SearchRequest(QUESTION.format(number))))
        if options.model:
            from wellkept.sessions.embedding.local import local_model

            local = local_model(None if options.model == "auto" else options.model, os.environ)
            timed("vector of a question", lambda number: local.embed([QUESTION.format(number)]))
        print(
            f"  memory                       {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB at most"
        )
        size = database.connection.execute("SELECT sum(length(vectors)) FROM message_vectors").fetchall()[0][0]
        print(f"  size                         {size / count:.0f} B a message")  # type: ignore[operator] # a sum of lengths
        numbers = [number for (number,) in database.connection.execute("SELECT message_id FROM message_vectors")]
        print(f"  short forms keep             {lost(database.connection, meaning, numbers):.3f} of the best 50")
        database.close()


if __name__ == "__main__":
    main()
