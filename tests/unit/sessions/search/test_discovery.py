"""One search for every surface: conversations in their final order, or the reason why there are none."""

from wellkept.core.ids import SessionId
from wellkept.core.messages import Link, Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.sessions.search.discovery import Conversations, find_conversations
from wellkept.sessions.sqlite.store import SqliteSessionStore

NOW = 1_700_000_000.0


def say(store: SqliteSessionStore, name: str, texts: list[str], *, parent: str | None = None, at: float = NOW) -> None:
    link = Link.COMPRESSION if parent is not None else None
    store.create(
        Session(SessionId(name), "cli", at, parent_session_id=None if parent is None else SessionId(parent), link=link)
    )
    store.append(SessionId(name), [NewMessage(Message(Role.USER, text), at, Origin.PERSON) for text in texts])


def names(conversations: Conversations) -> list[str]:
    return [match.session.id for match in conversations.matches]


def test_a_long_lineage_does_not_crowd_out_other_conversations(store: SqliteSessionStore) -> None:
    """More sessions are ranked than are asked for, so that three of one lineage leave room for another conversation."""
    say(store, "a1", ["the violin concert, the violin lesson"])
    say(store, "a2", ["the violin concert, the violin lesson"], parent="a1")
    say(store, "a3", ["the violin concert, the violin lesson"], parent="a2")
    say(store, "b", ["somebody mentioned a violin while we were all cooking a long and elaborate dinner for nine"])

    found = find_conversations(store, SearchRequest("violin", limit=2))

    assert len(names(found)) == 2
    assert names(found)[0].startswith("a")
    assert names(found)[1] == "b"


def test_a_lineage_that_takes_all_places_is_asked_past(store: SqliteSessionStore) -> None:
    """Where nearly all that was ranked is one conversation, more is ranked."""
    for number in range(9):
        parent = f"a{number - 1}" if number else None
        say(store, f"a{number}", ["the violin concert, the violin lesson"], parent=parent)
    say(store, "b", ["somebody mentioned a violin while we were all cooking a long and elaborate dinner for nine"])

    found = find_conversations(store, SearchRequest("violin", limit=2))

    assert names(found)[1:] == ["b"]


def test_order_by_time_ranks_more_sessions_than_are_shown(store: SqliteSessionStore) -> None:
    """The newest match is found even where it is not among the best of the rank."""
    for number in range(12):
        say(store, f"old{number}", ["the violin concert, the violin lesson"], at=NOW + number)
    say(store, "new", ["somebody mentioned a violin while we were all cooking a long dinner"], at=NOW + 9_999)

    assert names(find_conversations(store, SearchRequest("violin", limit=1), sort="newest")) == ["new"]
    assert names(find_conversations(store, SearchRequest("violin", limit=1), sort="oldest")) == ["old0"]


def test_inside_one_session_every_message_is_a_match(store: SqliteSessionStore) -> None:
    """A search inside a session returns its messages, not the session once."""
    say(store, "a", ["violin lesson", "tea", "violin concert"])

    found = find_conversations(store, SearchRequest("violin", session_id=SessionId("a")))

    assert {match.message.message.text for match in found.matches} >= {"violin lesson", "violin concert"}


def test_an_empty_answer_says_what_the_filters_excluded(store: SqliteSessionStore) -> None:
    """The reason names the filters and how many hits there are without them."""
    say(store, "a", ["violin lesson"])

    found = find_conversations(store, SearchRequest("violin", sources=("telegram",)))

    assert found.matches == ()
    assert found.reason == "the filters (source) excluded 1 hit: widen or drop them"


def test_what_is_not_good_enough_is_named_as_nearest(store: SqliteSessionStore) -> None:
    """Where the search abstains, the closest conversations are named once each."""
    say(store, "a1", ["a violin"])
    say(store, "a2", ["a violin"], parent="a1")

    found = find_conversations(store, SearchRequest("violin zither bassoon oboe clarinet trumpet?"))

    assert found.matches == ()
    assert len(found.nearest) == 1
    assert found.reason is not None


def test_an_order_by_time_holds_only_what_is_about_the_question(store: SqliteSessionStore) -> None:
    """Otherwise the oldest of forty weak matches would come first; an explicit query keeps all that fulfil it."""
    say(store, "weak", ["A violin was mentioned among many other things that were found in the attic."], at=NOW)
    say(store, "first", ["Violin lessons with Marta begin in May."], at=NOW + 100)
    say(store, "second", ["The violin lessons with Marta moved to June."], at=NOW + 200)

    timeline = find_conversations(store, SearchRequest("violin lessons Marta", limit=3), sort="oldest")
    explicit = find_conversations(store, SearchRequest('"violin" OR attic', limit=3), sort="oldest")

    assert names(timeline) == ["first", "second"]
    assert names(explicit) == ["weak", "first", "second"]
