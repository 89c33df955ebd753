"""Vectors beside the words: optional, derived, fused."""

from collections.abc import Sequence

import pytest

from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import SearchRequest
from kept.sessions.sqlite.search import find
from kept.sessions.sqlite.store import SqliteSessionStore
from kept.sessions.sqlite.vectors import Vectors

pytest.importorskip("numpy")

TOPICS = (("dog", "puppy", "hound"), ("car", "vehicle", "sedan"), ("rain", "storm", "weather"))


class Topical:
    """A model that knows three topics and the words of each."""

    name = "topical"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the share of each topic in each text."""
        return [
            [0.1 + float(sum(word in text.lower().split() for word in topic)) for topic in TOPICS] for text in texts
        ]


def fill(store: SqliteSessionStore) -> list[int]:
    store.create(Session(SessionId("a"), "cli", 1.0))
    store.create(Session(SessionId("b"), "cli", 1.0))
    texts = {"a": "we took the hound outside", "b": "the sedan needs oil"}
    return [
        store.append(SessionId(name), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON)])[0]
        for name, text in texts.items()
    ]


def test_a_message_is_found_by_its_meaning_where_no_word_matches(store: SqliteSessionStore) -> None:
    """ "puppy" finds the hound; without vectors nothing does."""
    hound, _ = fill(store)
    connection = store.database.connection
    vectors = Vectors(Topical())
    vectors.create(connection)
    while vectors.backfill(connection, limit=1):
        pass

    found = vectors.find(connection, SearchRequest("puppy"), now=2.0)

    assert found.messages[0].message_id == hound
    assert found.messages[0].parts["meaning"] > 0.0
    assert find(connection, SearchRequest("puppy"), now=2.0).messages == ()
    assert vectors.waiting(connection) == 0


def test_vectors_go_with_their_messages_and_are_made_anew(store: SqliteSessionStore) -> None:
    """A removed message leaves no vector; rebuilding makes the same ones."""
    fill(store)
    connection = store.database.connection
    vectors = Vectors(Topical())
    vectors.create(connection)

    assert vectors.rebuild(connection) == 2
    assert len(vectors.nearest(connection, "storm")) == 2
    connection.execute("DELETE FROM messages WHERE session_id = 'b'")

    assert len(vectors.nearest(connection, "storm")) == 1


def test_filters_hold_for_meaning_too(store: SqliteSessionStore) -> None:
    """What a filter excludes is not found by its meaning either."""
    fill(store)
    connection = store.database.connection
    vectors = Vectors(Topical())
    vectors.create(connection)
    vectors.rebuild(connection)

    found = vectors.find(connection, SearchRequest("puppy", session_id=SessionId("b")), now=2.0)

    assert all(hit.session_id == "b" for hit in found.messages)
