"""Two fences between users: row-level security on the server, and conditions in every statement."""

import pytest

from wellkept.core.errors import StorageError
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, Usage
from wellkept.core.search import SearchRequest
from wellkept.sessions.postgres import index
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.sessions.receipts import NewReceipt, ShownMessage
from wellkept.storage.postgres.database import PostgresServer, connect_as_owner

ANNA, BEN = UserId("anna"), UserId("ben")
TALK = SessionId("talk")
SHARED = {"users", "session_owners", "migrations"}
"""Tables that say which users and ids there are, and no more."""


@pytest.fixture
def both(postgres_server, monkeypatch):
    """Anna with a row in every table of sessions, and Ben with nothing."""
    monkeypatch.setattr(index, "FRESH_MOST", 4)
    monkeypatch.setattr(index, "_LOOK_EVERY", 1)
    server = PostgresServer(postgres_server.shared_url, tenant=postgres_server.make_tenant())
    yield fill(server)
    server.close()


def fill(server):
    """Store something of Anna in every table of sessions; return her store, Ben's, and the ids of her messages."""
    anna = PostgresSessionStore(server, user=ANNA)
    anna.create(Session(TALK, "cli", 1.0), system_prompt="a quiet prompt")
    texts = [NewMessage(Message(Role.USER, f"okapi {place}"), 1.0, Origin.PERSON) for place in range(9)]
    ids = anna.append(TALK, texts)
    picture = (TextPart("a picture"), ImagePart("image/png", "aGVsbG8=" * 500))
    anna.append(TALK, [NewMessage(Message(Role.USER, picture), 2.0, Origin.PERSON, source="web:https://x.example")])
    anna.add_usage(TALK, task="turn", model="m", usage=Usage(1, 2, 3, 4), cost=0.1)
    anna.note(TALK, "wish", "okapi")
    anna.add_node(TALK, depth=0, text="okapi", children=ids[:2])
    anna.lease("turn", holder="h", seconds=60)
    shown = (ShownMessage(ids[0], TALK, 1.0, {}),)
    receipt = NewReceipt(
        kind="tool", client="kept", query="okapi", shown=shown, candidates=1, tokens=1, milliseconds=1.0
    )
    anna.receipts.add(receipt)
    anna.branch(TALK, at=ids[3], new=Session(SessionId("branch"), "cli", 3.0))
    anna.forgetting.carry_out(anna.forgetting.plan_query("okapi 8"))
    return anna, anna.for_user(BEN), ids


def list_tables(server, url):
    """Return the tables whose rows belong to users."""
    with connect_as_owner(server.owner_url(url)) as unit:
        rows = unit.execute(
            "SELECT relname::text FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'user_id'"
            " WHERE relnamespace = 'kept'::regnamespace AND relkind = 'r'"
        )
        return sorted({name for (name,) in rows} - SHARED)


def count(store, table):
    """Count rows as the server shows them: a statement that does not pass our conditions."""
    with store.rows.reading() as unit:
        ((number,),) = unit.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return number


def test_no_table_shows_rows_of_another_user(both, postgres_server):
    """By own SQL through the pool, without any condition; and Anna does see hers."""
    anna, ben, _ = both
    tables = list_tables(postgres_server, postgres_server.shared_url)

    assert {table: count(ben, table) for table in tables} == dict.fromkeys(tables, 0)
    filled = {table for table in tables if count(anna, table)}
    assert filled >= {
        "sessions", "messages", "carried", "blobs", "blob_uses", "sources", "usage", "notes", "nodes", "leases",
        "tombstones", "receipts", "receipt_items", "prompts", "segments", "postings", "state_meta",
    }  # fmt: skip


def test_no_statement_changes_rows_of_another_user(both, postgres_server):
    """Neither do UPDATE and DELETE without a condition reach them, nor can a row be given away."""
    anna, ben, _ = both
    tables = list_tables(postgres_server, postgres_server.shared_url)
    before = {table: count(anna, table) for table in tables}

    with ben.rows.writing() as unit:
        for table in tables:
            assert unit.connection.execute(f"DELETE FROM {table}").rowcount == 0
            assert unit.connection.execute(f"UPDATE {table} SET user_id = 'ben'").rowcount == 0

    assert {table: count(anna, table) for table in tables} == before
    with pytest.raises(StorageError, match="row-level security"), anna.rows.writing() as unit:
        unit.connection.execute("UPDATE messages SET user_id = 'ben'")


@pytest.fixture(scope="module")
def unprotected(postgres_server):
    """A database that shows every row to everybody: only the conditions of our statements are left."""
    url = postgres_server.create_database()
    with connect_as_owner(postgres_server.owner_url(url)) as unit:
        for table in list_tables(postgres_server, url):
            unit.execute(f"ALTER TABLE kept.{table} DISABLE ROW LEVEL SECURITY")
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def unfenced(unprotected, postgres_server, monkeypatch):
    """Anna and Ben, without row-level security."""
    monkeypatch.setattr(index, "FRESH_MOST", 4)
    monkeypatch.setattr(index, "_LOOK_EVERY", 1)
    server = PostgresServer(unprotected, tenant=postgres_server.make_tenant())
    yield fill(server)
    server.close()


def test_functions_of_the_server_are_limited_to_the_user_by_themselves(unfenced, unprotected, postgres_server):
    """Without row-level security they read and change nothing of another user or tenant."""
    anna, ben, ids = unfenced
    tables = list_tables(postgres_server, unprotected)
    assert all(count(ben, table) == count(anna, table) for table in tables)
    elsewhere = PostgresSessionStore(PostgresServer(unprotected, tenant=postgres_server.make_tenant()), user=ANNA)

    for other in (ben, elsewhere):
        with other.rows.writing() as unit:
            assert unit.execute("SELECT * FROM open_search()").fetchall() == [(None, None, None, None, None, 0)]
            assert unit.execute("SELECT * FROM find_messages(:ids, 99)", {"ids": ids}).fetchall() == []
            assert unit.execute("SELECT * FROM list_messages(:names)", {"names": [TALK]}).fetchall() == []
            assert unit.execute("SELECT * FROM read_postings(:ids, :ids)", {"ids": [*range(99)]}).fetchall() == []
            assert unit.execute("SELECT begin_append(1, 1.0, :name)", {"name": TALK}).fetchall() == []
    elsewhere.close()
    _check_nothing_is_found(anna, ben, ids)


def test_a_search_of_another_user_finds_nothing(both):
    _check_nothing_is_found(*both)


def _check_nothing_is_found(anna, ben, ids):
    assert anna.search(SearchRequest("okapi")).messages
    assert ben.search(SearchRequest("okapi")).messages == ()
    assert ben.search(SearchRequest("kapi")).messages == ()
    assert ben.messages_by_id(ids) == []
    with ben.rows.reading() as unit:
        postings, _ = ben.open_index(unit)
        assert (postings.documents, postings.vocabulary("ok"), postings.vocabulary("o")) == (0, [], [])
    assert (ben.totals(), ben.recent(limit=9), list(ben.transfer.export())) == ((0, 0), [], [])
    assert (ben.usage(), ben.receipts.recent(limit=9)) == ([], [])


def test_a_plan_uses_the_index_of_the_user(both):
    """The conditions of the policy are part of the index condition, so that no row of another user is read."""
    anna, _, ids = both
    with anna.rows.writing() as unit:
        unit.execute("SET LOCAL enable_seqscan = off")
        sql = "EXPLAIN SELECT content FROM messages WHERE tenant = :tenant AND user_id = :user AND id = ?"
        plan = unit.execute(sql, (ids[0],)).fetchall()

    (condition,) = [line for (line,) in plan if "Index Cond" in line]
    assert all(name in condition for name in ("tenant", "user_id", "id ="))


@pytest.mark.parametrize(
    "user", ["a/b", "../..", "a\0b", "x" * 10_000, "ANNA", "аnna", "'; DROP TABLE messages", "~sha256:"]
)
def test_users_of_every_shape_are_kept_apart(both, user):
    anna, _, _ = both
    other = anna.for_user(UserId(user))
    other.create(Session(SessionId("other"), "cli", 1.0))
    other.append(SessionId("other"), [NewMessage(Message(Role.USER, "a lantern"), 1.0, Origin.PERSON)])

    assert [one.id for one in other.recent(limit=9)] == ["other"]
    assert len(other.search(SearchRequest("lantern")).messages) == 1
    assert anna.search(SearchRequest("lantern")).messages == ()
    assert user in anna.users()
