"""The indexes built anew: what is found afterwards is what was found before."""

from kept.core.clock import SystemClock
from kept.core.ids import SessionId
from kept.core.messages import Message, NewMessage, Origin, Role, Session
from kept.core.search import Found, SearchRequest
from kept.sessions.sqlite import index, index_check
from kept.sessions.sqlite.postings import find
from kept.sessions.sqlite.store import SqliteSessionStore

NOW = 1_700_000_000.0
SAID = (
    "Ann: I went to the parseHttpHeader talk in src/kept/main.py",
    "Ben: the mice ate v1.2.3 of the cheese",
    "今天天气很好",
    "sure",
)
ASKED = ("Ann go", "parse header", "src/kept/main.py", "mouse", "天", "what did Ben say", "1.2.3", "sure")


def answers(store: SqliteSessionStore) -> list[Found]:
    return [find(store.database.connection, SearchRequest(query), now=NOW) for query in ASKED]


def test_a_rebuilt_index_answers_as_before(store: SqliteSessionStore) -> None:
    """Base forms, parts of identifiers, speakers and single characters are in the new index as in the old."""
    name = SessionId("s")
    store.create(Session(name, "cli", NOW))
    store.append(name, [NewMessage(Message(Role.USER, text), NOW, Origin.PERSON) for text in SAID])
    before = answers(store)
    assert [query for query, found in zip(ASKED, before, strict=True) if not found.messages] == []
    assert index.rebuild(store.database, sink=lambda _: None, clock=SystemClock()) == len(SAID)
    assert answers(store) == before
    assert index_check.find_faults(store.database.connection) == []
