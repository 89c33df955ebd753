"""Semantic search gives the same results on every session store."""

import random

import pytest

from wellkept.core.ids import UserId
from wellkept.core.search import SearchRequest
from wellkept.sessions.settings import EmbeddingSettings
from wellkept.sessions.sqlite.semantic import FileVectors
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.testing.vectors_contract import Topical, VectorsContract, find, say

pytest.importorskip("numpy")


class TestSqlite(VectorsContract):
    @pytest.fixture(autouse=True)
    def file(self, tmp_path):
        self.store = SqliteSessionStore(tmp_path / "state.db")
        yield
        self.store.close()

    def open(self, settings, model, sink):
        self.store.meaning = FileVectors(self.store.database, settings, model=lambda: model, sink=sink)
        return self.store, self.store.meaning


class TestPostgres(VectorsContract):
    @pytest.fixture(autouse=True)
    def tenant(self, postgres_server):
        from wellkept.storage.postgres.database import PostgresServer

        self.server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
        yield
        self.server.close()

    def open(self, settings, model, sink):
        from wellkept.sessions.postgres.semantic import ServerVectors
        from wellkept.sessions.postgres.store import PostgresSessionStore

        vectors = ServerVectors(self.server, settings, model=lambda: model, sink=sink)
        return PostgresSessionStore(self.server, meaning=vectors), vectors

    def test_users_have_vectors_of_their_own(self):
        """One run computes those of all users; nobody finds another user's, and each may have another model."""
        with self.equip() as (store, vectors):
            (hound,) = say(store, "a", "we took the hound outside")
            ann = store.for_user(UserId("ann"))
            (puppy,) = say(ann, "b", "a puppy ran away")

            assert vectors.embed_all() == 2

            assert (find(store, "dog"), find(ann, "dog")) == ([hound], [puppy])
            with ann.rows.reading() as unit:
                assert unit.connection.execute("SELECT message_id FROM message_vectors").fetchall() == [(puppy,)]

    def test_vectors_of_many_users_leave_the_memory(self, monkeypatch):
        """The vectors of users who searched longest ago are dropped, and read again when needed."""
        from wellkept.sessions.postgres import semantic

        monkeypatch.setattr(semantic, "_MOST_USERS", 1)
        with self.equip() as (store, vectors):
            say(store, "a", "we took the hound outside")
            ann = store.for_user(UserId("ann"))
            say(ann, "b", "a puppy ran away")
            vectors.embed_all()

            found = [(len(find(store, "dog")), len(find(ann, "dog"))) for _ in range(2)]

            assert found == [(1, 1), (1, 1)]
            assert (len(store.meaning._caches), len(ann.meaning._caches)) == (0, 1)


class Chance(Topical):
    """A model whose vectors differ for every text."""

    def embed(self, texts):
        found = []
        for text in texts:
            numbers = random.Random(" ".join(text.lower().split()[:3]))
            found.append([numbers.gauss(0, 1) for _ in range(24)])
        return found


def test_both_databases_give_the_same_list(tmp_path, postgres_server):
    """Several hundred messages, more than are compared exactly, with and without vectors: scores and order."""
    words = ["harbour", "lantern", "walk", "violin", "coffee", "concert", "bicycle", "mountain", "painting", "sunrise"]
    chance = random.Random(7)
    talk = [" ".join(chance.choice(words) for _ in range(9)) + ". It went well today." for _ in range(450)]
    sides = TestSqlite(), TestPostgres()
    fixtures = sides[0].file.__wrapped__(sides[0], tmp_path), sides[1].tenant.__wrapped__(sides[1], postgres_server)
    for fixture in fixtures:
        next(fixture)
    asked = [SearchRequest(" ".join(chance.choice(words) for _ in range(3)), limit=20) for _ in range(12)]
    lists = []
    for side in sides:
        store, vectors = side.open(EmbeddingSettings(provider="local", background=False), Chance("chance"), print)
        numbers = {number: place for place, number in enumerate(say(store, "a", *talk))}
        for is_embedded in (False, True):
            if is_embedded:
                vectors.embed_all()
            found = [store.search(request).messages for request in asked]
            lists.append([[(numbers[hit.message_id], pytest.approx(hit.score)) for hit in hits] for hits in found])

    assert lists[0] == lists[2]
    assert lists[1] == lists[3]
    assert lists[0] != lists[1]
    for fixture in fixtures:
        next(fixture, None)
