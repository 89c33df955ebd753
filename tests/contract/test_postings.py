"""The search port: SQLite, PostgreSQL and plain memory give the same lists, so that the ranked answers are the same."""

import random
from dataclasses import dataclass

import pytest

from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import Found, SearchRequest
from wellkept.sessions.postgres import index
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.sessions.search.candidates import EXHAUSTIVE
from wellkept.sessions.search.engine import search
from wellkept.sessions.search.postings import (
    AllOf,
    AnyOf,
    Catalog,
    Postings,
    Prefix,
    SessionFilter,
    SessionHead,
    TimeFilter,
    Without,
    Word,
)
from wellkept.sessions.sqlite.fts5 import Fts5Analyzer
from wellkept.sessions.sqlite.postings import SqliteCatalog, SqlitePostings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.postgres.database import PostgresServer
from wellkept.storage.sqlite import open_state
from wellkept.storage.versions import build_reference
from wellkept.testing.memory_postings import MemoryCatalog, MemoryMessage, MemoryPostings, MemorySession
from wellkept.testing.postgres_server import EmbeddedServer

NOW = 1_700_000_000.0
DAY = 86_400.0
ANN = UserId("ann")
_WORDS = [
    "violin",
    "concert",
    "lesson",
    "harbour",
    "lantern",
    "walk",
    "deployed",
    "deploys",
    "running",
    "header",
    "parser",
    "coffee",
    "bicycle",
    "children",
    "mountain",
    "painting",
    "sunrise",
    "kubernetes",
    "postgres",
    "config",
    "birthday",
    "December",
    "camping",
    "weather",
    "support",
    "group",
    "race",
]
_LINES = (
    "Ann: I bought src/kept/main.py v1.2.3 yesterday",
    "Ben: the mice ate the cheese, didn't they?",
    "今天天气很好，我们去爬山",
    "昨日は東京でとても楽しかったです",
    "parse_header and getUserName are slow",
    "Мы переносили серверы в Хельсинки",
    "Die Straße ist überschwemmt",
    "to be or not to be",
    "what is the point of it all",
)
_FOREIGN = (
    "Die Häuser am See sind nicht verkauft, und das Haus im Dorf auch nicht",
    "Cuando la canción fue nueva, las canciones eran largas",
    "Le cheval est avec vous, les chevaux sont dans le pré",
    "Das Haus ist verkauft",
    "Un cheval et une chanson",
)
QUERIES = (
    "violin", "violin concert", "who walked with the lantern?", "deploy", "deploying the parser", "Ann", "Ann Ben",
    "what did Ben say about mice?", "天气", "東京", "parse header", "getUserName", "src/kept/main.py", "1.2.3",
    "сервера Хельсинки", "strasse", "ueberschwemmt", "vilin", "lanter", "oncert", "to be or not to be", "the of and",
    '"violin concert"', '"to be or not"', '"天气很好"', "violin AND coffee", "violin OR coffee", "violin NOT coffee",
    "(harbour OR lantern) AND walk", '"Ann:" OR mice', 'walk NOT "lantern walk"', "conc*", "d*", "dep* AND parser",
    "NOT violin", "birthday in December", "camping last week", "kid", "db config", "nothingmatches", "", "???",
    "Hauses", "Häuser Dörfer", "Wo sind die Häuser?", "Hauses AND Seen", "Hauses NOT violin", "Hauses OR chevaux",
    '"Haus im Dorf" AND Häusern', "nueva canciones", "¿Dónde están las canciones?", "chevaux", "où sont les chevaux?",
    "the lantern of the Hauses",
)  # fmt: skip
REQUESTS = (
    SearchRequest("", limit=10),
    SearchRequest("", limit=40),
    SearchRequest("", project="x"),
    SearchRequest("", sources=("cron",)),
    SearchRequest("", roles=("assistant",)),
    SearchRequest("", after=NOW - 20 * DAY, before=NOW - 5 * DAY),
    SearchRequest("", session_id=SessionId("s3")),
    SearchRequest("", exclude_messages=frozenset(range(1, 120))),
)


@dataclass
class Stores:
    """The same messages in a database and in memory."""

    store: SqliteSessionStore
    messages: list[MemoryMessage]
    sessions: list[MemorySession]

    def sqlite(self, user: UserId) -> tuple[Postings, Catalog]:
        connection = self.store.database.connection
        return SqlitePostings(connection), SqliteCatalog(connection, user=user)

    def memory(self, user: UserId) -> tuple[Postings, Catalog]:
        return self._memory(self.messages, self.sessions, user)

    def memory_of_one(self, user: UserId) -> tuple[Postings, Catalog]:
        """What PostgreSQL must equal: a server shows nothing of other users, so that its statistics are the user's."""
        own = [one for one in self.sessions if one.user == user]
        names = {one.id for one in own}
        return self._memory([one for one in self.messages if one.session_id in names], own, user)

    def _memory(
        self, messages: list[MemoryMessage], sessions: list[MemorySession], user: UserId
    ) -> tuple[Postings, Catalog]:
        analyzer = Fts5Analyzer(build_reference((), 0))
        catalog = MemoryCatalog(messages, sessions, user=user)
        return MemoryPostings(messages, len(sessions), analyzer=analyzer), catalog


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory):
    """Forty sessions of two users: words of a small vocabulary, several scripts, names, identifiers."""
    database = open_state(tmp_path_factory.mktemp("postings") / "state.db")
    yield fill(SqliteSessionStore(database))
    database.close()


@pytest.fixture(scope="module")
def on_postgres(postgres_server: EmbeddedServer):
    """The same on PostgreSQL, in segments of several sizes and some texts that wait."""
    server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FRESH_MOST", 16), ("_SMALL", 48), ("_PARTS", 8), ("_LOOK_EVERY", 1)):
            patch.setattr(index, name, value)
        yield fill(PostgresSessionStore(server))
    server.close()


def fill(store: SqliteSessionStore) -> Stores:
    chance = random.Random(5)
    messages: list[MemoryMessage] = []
    sessions: list[MemorySession] = []
    for number in range(40):
        user, name, started = (ANN if number % 4 == 3 else OWNER), f"s{number}", NOW - (40 - number) * DAY
        own = store.for_user(user)
        source, project = ("cron" if number % 5 == 4 else "cli"), ("x" if number % 3 == 0 else None)
        own.create(Session(SessionId(name), source, started, project=project, user_id=user))
        roles = [Role.USER if place % 2 == 0 else Role.ASSISTANT for place in range(chance.randint(3, 14))]
        texts = [
            chance.choice(_LINES)
            if chance.random() < 0.3
            else " ".join(chance.choices(_WORDS, k=chance.randint(1, 25)))
            for _ in roles
        ]
        for place in range(number % 6, len(texts), 6):
            texts[place] = _FOREIGN[(number + place) % len(_FOREIGN)]
        new = [
            NewMessage(Message(role, text), started + place, Origin.PERSON)
            for place, (role, text) in enumerate(zip(roles, texts, strict=True))
        ]
        ids = own.append(SessionId(name), new)
        messages += [
            MemoryMessage(int(one), name, role.value, text, started + place)
            for place, (one, role, text) in enumerate(zip(ids, roles, texts, strict=True))
        ]
        head = SessionHead(source, project, started, started + len(ids) - 1, len(ids))
        sessions.append(MemorySession(name, head, user))
    store.file.catch_up()
    return Stores(store, messages, sessions)


@pytest.fixture(params=["sqlite", "memory"])
def both(request: pytest.FixtureRequest, stores: Stores) -> tuple[Postings, Catalog]:
    """Each implementation in turn, for Ann."""
    built: tuple[Postings, Catalog] = getattr(stores, request.param)(ANN)
    return built


def plain(found: Found) -> object:
    return (
        [(hit.message_id, round(hit.score, 9)) for hit in found.messages],
        [(hit.session_id, hit.best_message_id, round(hit.score, 9)) for hit in found.sessions],
        (found.abstained, found.terms, dict(found.excluded), found.unchecked),
    )


@pytest.mark.parametrize("user", [OWNER, ANN])
@pytest.mark.parametrize("query", QUERIES)
def test_both_answer_every_query_alike(stores: Stores, query: str, user: UserId) -> None:
    """The same question gives the same ranked messages, sessions and scores: nothing depends on the database."""
    from msgspec.structs import replace

    sqlite, memory = stores.sqlite(user), stores.memory(user)
    for request in REQUESTS:
        asked = replace(request, query=query)
        for budget in (None, EXHAUSTIVE):
            one = search(*sqlite, asked, now=NOW, budget=budget)
            other = search(*memory, asked, now=NOW, budget=budget)

            assert plain(one) == plain(other), asked


@pytest.mark.parametrize("user", [OWNER, ANN])
@pytest.mark.parametrize("query", QUERIES)
def test_postgres_answers_every_query_alike(on_postgres: Stores, query: str, user: UserId) -> None:
    """Segments and texts that wait give the same ranked messages, sessions and scores as plain sets."""
    from msgspec.structs import replace

    store = on_postgres.store.for_user(user)
    assert isinstance(store, PostgresSessionStore)
    memory = on_postgres.memory_of_one(user)
    with store.rows.reading() as unit:
        postgres = store.open_index(unit)
        for request in (REQUESTS[1], REQUESTS[5], REQUESTS[7]):
            asked = replace(request, query=query)
            one = search(*postgres, asked, now=NOW)
            other = search(*memory, asked, now=NOW)

            assert plain(one) == plain(other), asked


def test_postgres_has_segments_of_several_sizes_and_texts_that_wait(on_postgres: Stores) -> None:
    """The comparison covers segments of every size and texts in none."""
    store = on_postgres.store.for_user(OWNER)
    assert isinstance(store, PostgresSessionStore)
    with store.rows.reading() as unit:
        sizes = [one.draft.documents for one in index.read_stored(unit)]
        ((waiting, _),) = unit.execute(index.SQL.count_waiting, {"user": OWNER}).fetchall()

    assert len(sizes) > 1
    assert max(sizes) >= 48
    assert waiting > 0


def test_most_queries_find_something(stores: Stores) -> None:
    """The comparison does not compare empty lists."""
    found = [search(*stores.sqlite(OWNER), SearchRequest(query), now=NOW) for query in QUERIES]

    assert sum(bool(one.messages) for one in found) > 0.8 * len(QUERIES)


def test_lists_are_ascending_and_lookups_are_sets(both: tuple[Postings, Catalog]) -> None:
    """Parts combine as sets; every list is in ascending order."""
    postings, _ = both
    violin, coffee = set(postings.ids(Word("violin"))), set(postings.ids(Word("coffee")))

    assert postings.ids(Word("violin")) == sorted(violin)
    assert set(postings.ids(AllOf((Word("violin"), Word("coffee"))))) == violin & coffee
    assert set(postings.ids(AnyOf((Word("violin"), Word("coffee"))))) == violin | coffee
    assert set(postings.ids(Without(Word("violin"), Word("coffee")))) == violin - coffee
    assert set(postings.ids(Prefix("viol"))) >= violin
    assert postings.frequency("violin") == len(violin)
    assert violin & coffee


def test_newest_and_between_cut_the_list(both: tuple[Postings, Catalog]) -> None:
    """`newest` takes from the end, below an id where given; `between` includes both ends."""
    postings, _ = both
    ids = postings.ids(Word("violin"))

    assert postings.newest_ids(Word("violin"), 3) == ids[-3:]
    assert postings.newest_ids(Word("violin"), 3, below=ids[-1]) == ids[-4:-1]
    assert postings.ids_between(Word("violin"), ids[1], ids[3]) == ids[1:4]


def test_counting_words_changes_no_list(both: tuple[Postings, Catalog]) -> None:
    """A database may answer with what it read to count a word; the lists must be the same as without a count."""
    postings, _ = both
    violin, coffee = Word("violin"), Word("coffee")
    last = postings.ids(violin)[-1]

    def read() -> list[list[int]]:
        return [
            postings.ids(violin),
            postings.ids(AllOf((violin, coffee))),
            postings.ids(AllOf((violin, Word("absentword")))),
            postings.newest_ids(violin, 2),
            postings.newest_ids(AllOf((coffee, violin)), 5, below=last),
        ]

    before = read()
    counts = [postings.frequency(word) for word in ("violin", "coffee", "absentword")]

    assert read() == before
    assert counts == [len(postings.ids(violin)), len(postings.ids(coffee)), 0]


def test_substrings_are_never_missed(both: tuple[Postings, Catalog], stores: Stores) -> None:
    """More may be returned than contain the text, never less."""
    postings, _ = both
    inside = {message.id for message in stores.messages if "anter" in message.text}

    assert inside
    assert inside <= set(postings.newest_containing("anter", 10_000))
    assert postings.newest_containing("an", 10) == []


def test_the_catalog_knows_one_user_only(both: tuple[Postings, Catalog], stores: Stores) -> None:
    """No method lists or describes sessions of other users."""
    _, catalog = both
    mine = {one.id for one in stores.sessions if one.user == ANN}
    every = [one.id for one in stores.sessions]
    theirs = next(name for name in every if name not in mine)

    assert set(catalog.session_ids(SessionFilter(), 100)) == mine
    assert set(catalog.sessions(every)) == mine
    assert catalog.span([theirs]) is None
    assert catalog.has_other_users


def test_the_sessions_of_a_time_have_messages_of_it(both: tuple[Postings, Catalog], stores: Stores) -> None:
    """Each with the first message of a person in that time, of this user only, counted beyond the limit."""
    _, catalog = both
    mine = {one.id for one in stores.sessions if one.user == ANN}
    after, before = NOW - 20 * DAY, NOW - 5 * DAY
    said = [one for one in stores.messages if one.session_id in mine and after <= one.timestamp < before]
    first = {name: min(one.id for one in said if one.session_id == name) for name in {one.session_id for one in said}}

    total, rows = catalog.timeline(TimeFilter(after, before), 1_000)
    hidden = frozenset(one.id for one in said if one.session_id == rows[0][0])
    fewer, _ = catalog.timeline(TimeFilter(after, before, exclude_messages=hidden), 1_000)
    _, oldest = catalog.timeline(TimeFilter(after, before), 1, is_oldest_first=True)
    heads = catalog.messages([number for _, number in rows])

    assert total == len(rows) == len(first)
    assert {name: heads[number].session_id for name, number in rows} == {name: name for name in first}
    assert fewer == total - 1
    assert heads[oldest[0][1]].timestamp == min(head.timestamp for head in heads.values())
    assert all(after <= head.timestamp < before for head in heads.values())


def test_sessions_are_filtered_by_source_project_and_time(both: tuple[Postings, Catalog], stores: Stores) -> None:
    """Each condition narrows the list."""
    _, catalog = both
    mine = {one.id: one.head for one in stores.sessions if one.user == ANN}
    after, before = NOW - 20 * DAY, NOW - 5 * DAY

    def listed(**conditions: object) -> set[str]:
        return set(catalog.session_ids(SessionFilter(**conditions), 100))  # type: ignore[arg-type]

    assert listed(sources=("cron",)) == {name for name, head in mine.items() if head.source == "cron"}
    assert listed(project="x") == {name for name, head in mine.items() if head.project == "x"}
    assert listed(after=after) == {name for name, head in mine.items() if head.last_active >= after}
    assert listed(before=before) == {name for name, head in mine.items() if head.started < before}
