"""The short forms on file: as good as those in memory, and never of another state of the table."""

import stat

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.sessions.rows import vectors
from wellkept.sessions.rows.semantic import VectorCache
from wellkept.sessions.sqlite.semantic import FEWEST, VectorFile, remove_file
from wellkept.sessions.sqlite.store import erase

np = pytest.importorskip("numpy")

WIDTH = 96
EACH = 25


@pytest.fixture
def chance():
    return np.random.default_rng(3)


def add(store, chance, count, *, owner="model"):
    """Add messages, each with many vectors."""
    if store.session(SessionId("a")) is None:
        store.create(Session(SessionId("a"), "cli", 1.0))
    new = [NewMessage(Message(Role.USER, f"number {one}"), 1.0, Origin.PERSON) for one in range(count)]
    ids = store.append(SessionId("a"), new)
    with store.database.writing() as connection:
        vectors.begin(connection, owner)
        made = [
            (number, message.message.content, vectors.pack(chance.normal(size=(EACH, WIDTH))))
            for number, message in zip(ids, new, strict=True)
        ]
        assert vectors.put(connection, owner, made)
    return ids


def cache(store, *, owner="model", on_file=True):
    place = VectorFile(store.database.path, owner, may_write=True) if on_file else None
    made = VectorCache(WIDTH, place)
    made.follow(store.database.connection)
    return made


def file_of(store):
    return store.database.path.with_name("state.db-vectors")


def question(chance):
    asked = chance.normal(size=WIDTH).astype(np.float32)
    return asked / np.linalg.norm(asked)


def test_what_is_mapped_answers_as_what_was_read(store, chance):
    """A second process takes the short forms from the file and finds the same messages, within filters too."""
    ids = add(store, chance, FEWEST // EACH + 10)
    read = cache(store, on_file=False)
    cache(store)
    later = add(store, chance, 30)  # too few to write the file anew: they are read from the table
    before = file_of(store).stat().st_mtime_ns
    mapped = cache(store)
    read.follow(store.database.connection)

    assert file_of(store).stat().st_mtime_ns == before
    assert stat.S_IMODE(file_of(store).stat().st_mode) == 0o600
    for allowed in (None, set(ids[5:300]), set(later)):
        asked = question(chance)
        assert set(mapped.nearest_candidates(asked, allowed)) == set(read.nearest_candidates(asked, allowed))


def test_few_vectors_need_no_file(store, chance):
    """A small store has its short forms in memory alone."""
    add(store, chance, 200)
    cache(store)

    assert not file_of(store).exists()


def test_a_file_of_another_state_is_not_used(store, chance):
    """Another model's, or one from before all vectors were made anew, is replaced."""
    add(store, chance, FEWEST // EACH + 10)
    cache(store)
    place = VectorFile(store.database.path, "model", may_write=True)
    assert place.load(store.database.connection, WIDTH) is not None

    assert VectorFile(store.database.path, "another", may_write=True).load(store.database.connection, WIDTH) is None
    with store.database.writing() as connection:
        vectors.drop(connection)
    assert place.load(store.database.connection, WIDTH) is None


@pytest.mark.parametrize("bytes_left", [0, 10, 4_096, 60_000])
def test_a_broken_file_costs_time_only(store, chance, bytes_left):
    """A file that was cut off is made anew from the table."""
    add(store, chance, FEWEST // EACH + 10)
    cache(store)
    whole = file_of(store).read_bytes()
    file_of(store).write_bytes(whole[:bytes_left])

    found = cache(store).nearest_candidates(question(chance), None)

    assert found
    assert len(file_of(store).read_bytes()) == len(whole)


def test_forgetting_takes_the_file_away(store, chance):
    """What is forgotten is not left in the file: it goes, and is made anew from what is left."""
    add(store, chance, FEWEST // EACH + 10)
    cache(store)
    assert file_of(store).exists()

    erase(store.database)

    assert not file_of(store).exists()
    remove_file(store.database.path)  # a second time there is nothing to do
