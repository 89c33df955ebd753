"""Explicit queries and bounded reading: what must hold is checked, and what was not read is told."""

from collections.abc import Sequence

import pytest

from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.search import candidates, conditions
from wellkept.sessions.search.candidates import EXHAUSTIVE, choose_budget
from wellkept.sessions.search.conditions import compile_condition
from wellkept.sessions.search.postings import AllOf, Word
from wellkept.sessions.search.query import asks, parse
from wellkept.sessions.sqlite.postings import SqlitePostings, find
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.sessions.tool import Asked, Asker, discover

NOW = 1_700_000_000.0


def say(store: SqliteSessionStore, name: str, texts: Sequence[str], started: float = NOW - 86_400.0) -> list[int]:
    store.create(Session(SessionId(name), "cli", started))
    return list(
        store.append(
            SessionId(name),
            [NewMessage(Message(Role.USER, text), started + place, Origin.PERSON) for place, text in enumerate(texts)],
        )
    )


def search(store: SqliteSessionStore, query: str, **request: object) -> Found:
    store.file.catch_up()
    return find(store.database.connection, SearchRequest(query, **request), now=NOW)  # type: ignore[arg-type]


def texts(store: SqliteSessionStore, found: Found) -> list[str]:
    messages = [store.message(hit.message_id) for hit in found.messages]
    return [message.message.text for message in messages if message is not None]


def test_the_oldest_message_with_a_phrase_is_found_among_many_with_its_words(store: SqliteSessionStore) -> None:
    """More messages than one look reads hold the words, and only the first of all holds the phrase."""
    say(store, "a", ["green red blue", *(f"red and then green {number}" for number in range(2_100))])

    found = search(store, '"green red"')

    assert texts(store, found) == ["green red blue"]
    assert found.unchecked == 0


@pytest.mark.parametrize(
    "text", ["GREEN\nRed", "so green   red.", "green\tred ü", "ＧＲＥＥＮ red", "green\0red", "(green red)"]
)
def test_a_phrase_is_found_in_any_form(store: SqliteSessionStore, text: str) -> None:
    """The database leaves out only texts that cannot hold it."""
    say(store, "a", [text, "red and green", "evergreen redder"])

    assert texts(store, search(store, '"Green red"')) == [text]


def test_a_stop_word_of_a_phrase_narrows_what_is_read_beside_a_common_word(store: SqliteSessionStore) -> None:
    """The only telling word is in every message, so the texts are read of those alone that have the stop words too."""
    say(store, "a", ["of kettle so", *(f"kettle {number}" for number in range(1_600)), "so of kettle"])

    found = search(store, '"of kettle so"')
    lookup = compile_condition(SqlitePostings(store.database.connection), parse('"of kettle so"').condition)

    assert texts(store, found) == ["of kettle so"]
    assert lookup is not None
    assert lookup.lookup == AllOf((Word("kettle"), Word("of"), Word("so")))


@pytest.mark.parametrize("query", ['"have not seen"', '"was wir haben"'])
def test_a_phrase_in_quotes_is_no_question_whatever_it_begins_with(store: SqliteSessionStore, query: str) -> None:
    """What is quoted is looked for as it stands, also among messages that ask."""
    say(store, "a", ["have not seen it?", "was wir haben?", "something else"])

    assert texts(store, search(store, query)) == ["have not seen it?" if "seen" in query else "was wir haben?"]
    assert not asks(query)
    assert asks(query.strip('"'))
    assert asks('where is "have not seen"?')


def test_what_was_too_much_to_read_is_told(store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are checked first; how many were left is in the answer."""
    monkeypatch.setattr(conditions, "_MOST_MESSAGES", 500)
    say(store, "a", ["green red blue", *(f"red and then green {number}" for number in range(1_100)), "green red new"])

    found = search(store, '"green red" then*')

    assert texts(store, search(store, '"green red"')) == ["green red new"]
    assert found.unchecked == 602


def test_a_phrase_can_be_excluded(store: SqliteSessionStore) -> None:
    """The words may be there, the phrase not."""
    say(store, "a", ["tea with cold milk", "tea with milk, cold", "coffee with cold milk"])

    assert texts(store, search(store, 'tea NOT "cold milk"')) == ["tea with milk, cold"]


@pytest.mark.parametrize(
    "query", ["apple AND pear", "apple NOT pear", "(apple OR plum) AND pear", '"apple pear" OR plum']
)
def test_a_condition_finds_the_same_however_much_is_read(
    store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Considering all that was asked for and filtering what the terms give are one answer."""
    fruits = ("apple", "pear", "plum", "apple pear", "pear plum", "plum apple pear", "fig")
    for number in range(12):
        say(store, f"s{number}", [f"{fruit} {number}" for fruit in fruits[number % 4 :]])

    few = search(store, query)
    monkeypatch.setattr(candidates, "ALL_MATCHING", 0)
    connection = store.database.connection
    every = find(connection, SearchRequest(query), now=NOW, budget=EXHAUSTIVE)

    assert few.messages
    assert {hit.score for hit in few.messages} == {hit.score for hit in every.messages}


def test_a_common_word_counts_for_the_best_even_where_its_list_was_not_read(
    store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which messages hold it is seen where it stands with a rarer word, and in the texts of the best."""
    say(store, "a", ["harbour lantern walk", "harbour", "lantern", *(f"walk {number}" for number in range(40))])
    whole = search(store, "harbour lantern walk")
    monkeypatch.setattr(candidates, "_TOO_LONG", 5)

    short = find(
        store.database.connection,
        SearchRequest("harbour lantern walk"),
        now=NOW,
        budget=choose_budget(10, 43)._replace(per_list=5),
    )

    assert texts(store, short)[0] == texts(store, whole)[0] == "harbour lantern walk"
    assert short.messages[0].parts["words"] == pytest.approx(whole.messages[0].parts["words"])


def test_inside_a_very_long_session_only_its_own_messages_are_found(
    store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids are not read one by one; those of others that lie between are left out."""
    monkeypatch.setattr(candidates, "_LISTED", 3)
    say(store, "long", ["kite one", "two", "three"])
    say(store, "other", ["kite between"])
    store.append(SessionId("long"), [NewMessage(Message(Role.USER, "kite last"), NOW, Origin.PERSON)])

    found = search(store, "kite", session_id=SessionId("long"))

    assert {text for text in texts(store, found) if "kite" in text} == {"kite one", "kite last"}
    assert {hit.session_id for hit in found.messages} == {"long"}


def test_a_date_in_words_counts_like_a_date_of_sending(store: SqliteSessionStore) -> None:
    """Asked for a birthday in December, the message that says so comes before any that was sent then."""
    december = 1_701_600_000.0
    say(store, "sent", ["Igor's birthday is the 23rd of May"], started=december)
    say(store, "said", ["Igor's birthday is the 16th of December"], started=december - 150 * 86_400.0)

    store.file.catch_up()
    found = find(
        store.database.connection, SearchRequest("When in December is Igor's birthday?"), now=december + 10 * 86_400.0
    )

    assert texts(store, found)[0] == "Igor's birthday is the 16th of December"


def test_a_message_with_every_word_comes_before_a_session_with_all_of_them(store: SqliteSessionStore) -> None:
    """What was remembered in these words is one message, however much a session says of each."""
    say(store, "spread", [f"{word} again and again" for word in ("harbour", "lantern", "walk") * 5])
    say(store, "one", ["hello", "a walk to the harbour with a lantern, late in the evening", "good night"])

    assert texts(store, search(store, "harbour lantern walk"))[0].startswith("a walk")
    assert search(store, "harbour lantern walk").sessions[0].session_id == "one"


def test_the_tool_says_that_a_phrase_was_not_looked_for_everywhere(
    store: SqliteSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that may not be all says so, found or not."""
    monkeypatch.setattr(conditions, "_MOST_MESSAGES", 500)
    say(store, "a", ["green red blue", *(f"red and then green {number}" for number in range(1_100))])
    asker = Asker(frozenset())

    value = discover(store, Asked(query='"green red"'), asker, budget=4_000).value

    assert value["results"] == []
    assert "at least 601 older messages" in str(value["unchecked"])
    assert "unchecked" not in discover(store, Asked(query="green"), asker, budget=4_000).value
