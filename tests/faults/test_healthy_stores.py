"""Healthy stores of odd shapes: the check finds nothing wrong with any of them, and a repair leaves them as they are.

Run it by hand over more seeds: KEPT_HEALTHY=500 python tests/faults/test_healthy_stores.py [first seed]
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from wellkept.core.clock import SystemClock
from wellkept.core.errors import KeptError
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, ToolCall
from wellkept.sessions.settings import EmbeddingSettings, SessionSettings
from wellkept.sessions.sqlite import store as session_file
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, open_state, state_migrations

TEXTS = (
    "lake",
    "the the the",
    "ß🙂漢字",
    "1234 5678",
    "",
    " \n\t",
    "a\0b",
    "\u202ertl",
    "x" * 30_000,
    "\x1b[31m",
    "that this with from",
)


class Letters:
    """A model that counts letters."""

    name = "letters"

    def embed(self, texts):
        """Return how often each of eight letters occurs in each text."""
        return [[0.1 + text.count(letter) for letter in "abcdefgh"] for text in texts]


def message(choose):
    text = (
        choose.choice(TEXTS)
        + " "
        + " ".join(choose.choices(["reed", "stone", "lamp", "Über", "naïve"], k=choose.randrange(9)))
    )
    match choose.randrange(5):
        case 0:
            return Message(Role.USER, (TextPart(text), ImagePart("image/png", choose.randbytes(3_000).hex())))
        case 1:
            return Message(Role.ASSISTANT, text, tool_calls=(ToolCall("1", "terminal", '{"a": 1}'),))
        case 2:
            return Message(Role.TOOL, text, tool_call_id="1", tool_name="terminal")
    return Message(choose.choice([Role.USER, Role.ASSISTANT]), text)


def append(store, name, choose, count):
    new = [NewMessage(one, 1.75e9, Origin.usual(one.role)) for one in (message(choose) for _ in range(count))]
    return store.append(name, new * choose.choice([1, 1, 1, 60]))


def fill(store, choose):
    for number in range(choose.randrange(6)):
        own = store.for_user(UserId(choose.choice(["owner", "alice", "Bob Ünal"])))
        name = SessionId(f"session{number}")
        own.create(Session(name, choose.choice(["cli", "subagent", "review"]), 1.75e9 + number, title=f"T {number}"))
        ids = append(own, name, choose, choose.randrange(1, 12))
        if choose.random() < 0.3:
            own.rewind(name, choose.choice(ids))
        if choose.random() < 0.3:
            own.branch(name, at=None, new=Session(SessionId(f"branch{number}"), "cli", 1.75e9))
        if choose.random() < 0.4:
            own.upkeep.delete([name])


def change(store, choose, database):
    """Do one of the odd things that leave a store healthy."""
    match choose.randrange(8):
        case 0:
            database.connection.execute("VACUUM")
        case 1:
            with database.writing() as connection:
                connection.execute("DELETE FROM messages WHERE id % 3 = 0")
        case 2:
            with database.writing() as connection:
                connection.execute(session_file.SQL.owe)  # an erasure that was interrupted
        case 3:
            with database.writing() as connection:  # another program
                sql = "INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', 'other', 1 FROM sessions"
                connection.execute(sql)
        case 4:
            settings = EmbeddingSettings(provider="local", background=False)
            FileVectors(database, settings, model=Letters, sink=print).embed_all()
        case 5:
            store.upkeep.sweep(days=0)
        case 6:
            store.upkeep.reindex()
        case _:
            store.upkeep.optimize(vacuum=choose.random() < 0.5)


def make(path, choose):
    """Make a store; return a database that stays open, None if it is closed."""
    if choose.random() < 0.15:  # an older version
        steps = state_migrations()[: choose.randrange(1, len(state_migrations()))]
        old = Database(path, application_id=APPLICATION_ID, migrations=steps)
        with old.writing() as connection:
            connection.execute("INSERT INTO sessions (id, source, started) VALUES ('old', 'cli', 1.0)")
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('old', 'user', 'a', 1)"
            )
        old.close()
        if choose.random() < 0.5:
            return None
    database = open_state(path)
    store = SqliteSessionStore(database)
    fill(store, choose)
    for _ in range(choose.randrange(4)):
        change(store, choose, database)
    if choose.random() < 0.4:
        return database  # a running process with a log
    (store.close if choose.random() < 0.5 else database.close)()
    return None


def judge(folder, seed):
    """Return the problems that are reported about a healthy store."""
    choose = random.Random(seed)
    path = folder / "state.db"
    running = make(path, choose)
    try:
        said = [finding.what for finding in check_file(path, clock=SystemClock())]
    finally:
        if running is not None:
            running.close()
    said += [finding.what for finding in check_file(path, clock=SystemClock())]
    report = Repair(path, SessionSettings(), clock=SystemClock(), sink=lambda event: None).run()
    return said + [finding.what for finding in report.found] + report.done


def judge_many(folder, seeds):
    """Judge one store for each seed; return those that are reported as damaged."""
    bad = []
    for seed in seeds:
        place = folder / str(seed)
        place.mkdir()
        try:
            said = judge(place, seed)
        except KeptError as error:
            said = [f"refused: {error}"]
        if said:
            bad.append((seed, said))
        shutil.rmtree(place)
    return bad


COUNT = int(os.environ.get("KEPT_HEALTHY", "500"))


@pytest.mark.timeout(600)  # seconds of work, and minutes on a busy machine
def test_a_few_odd_stores_are_healthy(tmp_path):
    """Empty, only trash, old versions, huge texts, deletions, a full log, interrupted erasures, vectors."""
    assert judge_many(tmp_path, range(1_000, 1_012)) == []


@pytest.mark.heavy
@pytest.mark.timeout(7_200)
def test_many_odd_stores_are_healthy(tmp_path):
    """The same at full size."""
    assert judge_many(tmp_path, range(COUNT)) == []


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with tempfile.TemporaryDirectory() as place:
        found = judge_many(Path(place), range(first, first + COUNT))
        for seed, said in found:
            print(seed, said)  # noqa: T201
        sys.exit(f"{len(found)} of {COUNT} are called ill" if found else 0)
