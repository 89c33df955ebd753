"""PostgreSQL connections: one user at a time, errors in our words, and a server that goes away and comes back."""

import threading
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from wellkept.core.errors import Busy, ConfigError, KeptError, NewerDatabase, StorageError, UsageError
from wellkept.core.ids import UserId
from wellkept.storage.postgres import database as postgres
from wellkept.storage.postgres import schema
from wellkept.storage.postgres.database import PostgresServer, connect_as_owner, make_key, parse_url
from wellkept.storage.postgres.unit import escape, unescape
from wellkept.testing.postgres_server import EmbeddedServer

ANNA, BEN = UserId("anna"), UserId("ben")
NOTES = """
CREATE TABLE kept.things (
  tenant text COLLATE "C" NOT NULL, user_id text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, user_id, name)
);
SET search_path = kept;
SELECT protect_user_table('things');
"""


@pytest.fixture(scope="module")
def url(postgres_server):
    """One database with a table of things; each test has a tenant of its own in it."""
    made = postgres_server.create_database()
    with connect_as_owner(postgres_server.owner_url(made)) as unit:
        unit.connection.execute(NOTES.encode())
    return made


@pytest.fixture
def server(url, postgres_server):
    opened = PostgresServer(url, tenant=postgres_server.make_tenant())
    yield opened
    opened.close()


def store(server, user, name):
    with server.for_user(user).writing() as unit:
        unit.execute("INSERT INTO things (name) VALUES (?)", (name,))


def names(server, user):
    with server.for_user(user).reading() as unit:
        return [name for (name,) in unit.execute("SELECT name FROM things ORDER BY name")]


# users


def test_a_user_sees_only_own_rows_even_without_a_filter(server):
    store(server, ANNA, "of anna")
    store(server, BEN, "of ben")

    assert names(server, ANNA) == ["of anna"]
    assert names(server, BEN) == ["of ben"]


def test_nobody_sees_no_rows(server):
    """A transaction without a user, and a setting that was reset, match nothing."""
    store(server, ANNA, "of anna")

    with server.for_tenant().reading() as unit:
        assert unit.execute("SELECT * FROM things").fetchall() == []


def test_a_row_of_another_user_cannot_be_written(server):
    with pytest.raises(StorageError, match="row-level security"), server.for_user(ANNA).writing() as unit:
        unit.execute("INSERT INTO things (user_id, name) VALUES (?, ?)", ("ben", "forged"))

    assert names(server, BEN) == []


def test_another_tenant_sees_nothing(server, url):
    store(server, ANNA, "of anna")

    assert names(PostgresServer(url, tenant="other"), ANNA) == []


def test_the_user_ends_with_the_transaction(server):
    """What a pool hands to the next transaction knows no user."""
    store(server, ANNA, "of anna")
    with server.for_user(ANNA).reading() as unit:
        connection = unit.connection

    # never set on this connection is NULL, set and ended is empty; neither is a user
    assert connection.execute(b"SELECT nullif(current_setting('kept.user', true), '')").fetchone() == (None,)


odd_ids = st.text(min_size=1, max_size=400) | st.sampled_from(
    ["a/b", "../x", "a\0b", "x" * 10_000, "ANNA", "аnna", "'; --"]
)


@given(odd_ids, odd_ids)
def test_two_users_never_share_a_key(one, other):
    """Keys fit an index, hold no NUL, and are as different as the ids."""
    assert (make_key(one) == make_key(other)) == (one == other)
    assert len(make_key(one).encode()) < 500
    assert "\0" not in make_key(one)


@pytest.mark.parametrize(
    "identity", ["a/b", "../..", "a\0b", "x" * 10_000, "ANNA", "аnna", "'; DROP TABLE things", "%s ? :x"]
)
def test_users_of_every_shape_are_stored_apart(server, identity):
    store(server, ANNA, "of anna")
    store(server, UserId(identity), "of the other")

    assert names(server, UserId(identity)) == ["of the other"]
    assert names(server, ANNA) == ["of anna"]


# transactions


def fail_after(database, act):
    with database.writing() as unit:
        act(unit)
        raise ZeroDivisionError


def test_an_error_rolls_the_whole_transaction_back(server):
    with pytest.raises(ZeroDivisionError):
        fail_after(server.for_user(ANNA), lambda unit: unit.execute("INSERT INTO things (name) VALUES ('a')"))

    assert names(server, ANNA) == []


def test_an_inner_transaction_joins_the_outer_one(server):
    seen = []

    def act(unit):
        store(server, ANNA, "inner")
        seen.extend(names(server, ANNA))

    with pytest.raises(ZeroDivisionError):
        fail_after(server.for_user(ANNA), act)

    assert seen == ["inner"]
    assert names(server, ANNA) == []


def test_a_read_transaction_cannot_write(server):
    with pytest.raises(StorageError, match="read-only"), server.for_user(ANNA).reading() as unit:
        unit.execute("INSERT INTO things (name) VALUES ('a')")


def test_many_rows_go_in_one_exchange_and_changes_are_counted(server):
    with server.for_user(ANNA).writing() as unit:
        unit.executemany("INSERT INTO things (name) VALUES (?)", [(f"{n:04}",) for n in range(1_200)])
        unit.execute("DELETE FROM things WHERE name < ?", ("0100",))

        assert unit.changes() == 100
    assert len(names(server, ANNA)) == 1_100


# statements


@given(st.text(alphabet=st.characters() | st.sampled_from("\0\ufdd001")))
def test_escaped_text_comes_back(text):
    assert unescape(escape(text)) == text
    assert "\0" not in escape(text)


@pytest.mark.parametrize("text", ["a\0b", "\ufdd0", "\ufdd00\0", "\\x00 '' \\", "100 % ?:x", "𝄞 \U0010ffff"])
def test_texts_come_back_as_they_were_stored(server, text):
    store(server, ANNA, text)

    assert names(server, ANNA) == [text]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1],
        [3, -4, 2**62],
        ["a"],
        ["", "NULL", 'a"b', "c\\d", "{e,f}", " g ", "it's", "a\0b", "\ufdd0", "%s", "ä\n"],
    ],
)
def test_lists_come_back_as_they_were_bound(server, values):
    kind = "bigint" if values and isinstance(values[0], int) else "text"

    with server.for_user(ANNA).reading() as unit:
        found = unit.execute(f"SELECT item FROM unnest(:values::{kind}[]) AS item", {"values": values}).fetchall()
        any_of = unit.execute(f"SELECT :wanted::{kind} = ANY(:values)", {"wanted": (*values, "")[0], "values": values})

    assert [item for (item,) in found] == values
    assert any_of.fetchall() == [(bool(values),)]


# addresses


@pytest.mark.parametrize(
    ("url", "missing"),
    [
        ("postgresql://anna:secret@/kept", "host"),
        ("postgresql://db.example/kept", "user"),
        ("postgresql://anna:secret@db.example", "database"),
        ("postgresql://anna:secret@db.example/", "database"),
        ("mysql://anna:secret@db.example/kept", "'mysql'"),
        ("db.example", "'db.example'"),
        ("postgresql://anna:secret@db.example:port/kept", "port"),
        ("postgresql://anna:secret/more@db.example/kept", "port"),
        ("postgresql://anna:secret@db.example/kept?sslmod=require", "unknown option: 'sslmod'"),
        ("", "''"),
    ],
)
def test_a_url_with_a_missing_part_names_the_part(url, missing):
    with pytest.raises(ConfigError, match=missing) as caught:
        parse_url(url)

    assert "secret" not in str(caught.value)


def test_a_socket_folder_is_a_host():
    address, place = parse_url("postgresql://anna@/kept?host=%2Frun%2Fpostgresql")

    assert (place.host, place.role, place.database) == ("/run/postgresql", "anna", "kept")
    assert conninfo_to_dict(address)["host"] == "/run/postgresql"


@pytest.mark.parametrize("password", ["p@ss", "p%40ss", "100%", "a b", "a:b"])
def test_a_password_may_contain_what_ends_it_for_the_driver(password):
    found = conninfo_to_dict(parse_url(f"postgresql://anna:{password}@db.example/my%20data")[0])

    assert (found["user"], found["password"]) == ("anna", unquote(password))
    assert (found["host"], found["dbname"]) == ("db.example", "my data")


def test_several_hosts_are_a_primary_and_its_standbys():
    """The one that can be written to is used, unless the URL says otherwise."""
    address, place = parse_url("postgresql://anna:secret@db1.example:6000,db2.example/kept")
    found = conninfo_to_dict(address)

    assert (place.host, place.port) == ("db1.example,db2.example", "6000,5432")
    assert (found["host"], found["port"]) == ("db1.example,db2.example", "6000,")
    assert found["target_session_attrs"] == "read-write"
    assert "target_session_attrs=any" in parse_url(f"{address}".replace("read-write", "any"))[0]
    assert "target_session_attrs" not in parse_url("postgresql://anna@db1.example/kept")[0]
    with pytest.raises(ConfigError, match="port"):
        parse_url("postgresql://anna@db1.example:x,db2.example/kept")


# faults


def reason_of(url, **options):
    """Return the type and the text of the error that a first use of `url` gives."""
    with pytest.raises(KeptError) as caught, PostgresServer(url, **options).for_user(ANNA).reading():
        pass
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    return type(caught.value), str(caught.value)


def test_a_server_that_is_down_is_named_at_once(tmp_path):
    kind, text = reason_of("postgresql://anna:secret@127.0.0.1:9/kept")

    assert kind is StorageError
    assert "127.0.0.1:9 does not answer: connection refused" in text
    assert "secret" not in text


def test_a_wrong_password_is_named(postgres_server, url):
    postgres_server.run_sql("postgres", "CREATE ROLE kept_password LOGIN PASSWORD 'right'")

    kind, text = reason_of(url.replace("kept_serving@", "kept_password:wrong-one@"))

    assert kind is StorageError  # a chat goes on without storing
    assert "refused the password of 'kept_password'" in text
    assert "wrong-one" not in text


def test_a_missing_database_or_role_is_named(postgres_server):
    assert "has no database 'absent'" in reason_of(postgres_server.url("absent"))[1]
    assert "'stranger'" in reason_of(postgres_server.url("postgres", role="stranger"))[1]


def test_a_database_without_tables_names_the_next_step(postgres_server):
    postgres_server.run_sql("postgres", "CREATE DATABASE bare")

    assert "kept storage migrate" in reason_of(postgres_server.url("bare"))[1]


def test_rights_that_are_missing_are_named(postgres_server, url, server):
    owner = postgres_server.owner_url(url)
    with connect_as_owner(owner) as unit:
        unit.execute("REVOKE INSERT ON kept.things FROM kept_serving")
    try:
        with pytest.raises(StorageError, match=r"may not do this.*create-role"):
            store(server, ANNA, "x")
    finally:
        schema.create_role(owner, "kept_serving")

    store(server, ANNA, "x")


def test_a_read_only_server_is_named_and_left(postgres_server, url, server):
    store(server, ANNA, "before")
    with connect_as_owner(postgres_server.owner_url(url)) as unit:
        unit.execute("ALTER ROLE kept_serving SET default_transaction_read_only = on")
    try:
        with pytest.raises(StorageError, match="is read-only"), PostgresServer(url).for_user(ANNA).writing() as unit:
            unit.execute("INSERT INTO things (name) VALUES ('x')")
    finally:
        with connect_as_owner(postgres_server.owner_url(url)) as unit:
            unit.execute("ALTER ROLE kept_serving RESET default_transaction_read_only")

    assert names(server, ANNA) == ["before"]


def test_connections_that_the_server_ended_are_replaced(postgres_server, url, server):
    """Nothing was sent on an idle connection, so the next one is tried and the caller sees no error."""
    store(server, ANNA, "before")
    with connect_as_owner(postgres_server.owner_url(url)) as unit:
        unit.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'kept_serving'")

    assert names(server, ANNA) == ["before"]


def test_a_connection_that_is_lost_in_a_transaction_is_one_error(postgres_server, server):
    def lose():
        with server.for_user(ANNA).writing() as unit:
            unit.execute("INSERT INTO things (name) VALUES ('lost')")
            (pid,) = unit.execute("SELECT pg_backend_pid()").fetchone()
            postgres_server.run_sql("postgres", f"SELECT pg_terminate_backend({pid})")
            unit.execute("SELECT 1")

    with pytest.raises(StorageError, match="ended by the server"):
        lose()

    assert names(server, ANNA) == []


def test_a_server_that_restarts_is_used_again():
    with EmbeddedServer() as embedded:
        server = PostgresServer(embedded.create_database()).for_user(ANNA)
        with server.reading() as unit:
            unit.execute("SELECT 1")
        embedded.stop()
        with pytest.raises(StorageError, match="connection refused"), server.reading():
            pass
        embedded.start()

        with server.reading() as unit:
            assert unit.execute("SELECT 1").fetchone() == (1,)


def test_a_process_that_uses_all_its_connections_waits_then_says_so(url, monkeypatch):
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 0.1)
    server = PostgresServer(url, most=1)

    with server.for_user(ANNA).reading() as unit:
        unit.execute("SELECT 1")
        with pytest.raises(Busy, match="in use"), server.for_user(BEN).reading():
            pass
    server.close()


def test_a_role_without_rights_is_reported(postgres_server, url):
    postgres_server.run_sql("postgres", "CREATE ROLE nobody_here LOGIN")
    try:
        kind, text = reason_of(url.replace("kept_serving", "nobody_here"))
    finally:
        postgres_server.run_sql("postgres", "DROP ROLE nobody_here")

    assert kind is StorageError
    assert "nobody_here" in text
    assert "create-role" in text


def test_a_server_out_of_connections_is_busy(postgres_server, url):
    postgres_server.run_sql("postgres", "CREATE ROLE few LOGIN IN ROLE kept_serving CONNECTION LIMIT 1")
    try:
        few = url.replace("kept_serving", "few")
        with PostgresServer(few).for_user(ANNA).reading() as unit:
            unit.execute("SELECT 1")
            kind, text = reason_of(few)
    finally:
        postgres_server.run_sql("postgres", "DROP ROLE few")

    assert kind is Busy
    assert "out of connections" in text


def test_a_lock_that_is_held_too_long_is_busy(server, url, monkeypatch):
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 0.1)
    store(server, ANNA, "x")
    caught = []

    def change():
        with pytest.raises(Busy), server.for_user(ANNA).writing() as unit:
            unit.execute("UPDATE things SET name = 'z'")
        caught.append(True)

    with server.for_user(ANNA).writing() as unit:
        unit.execute("UPDATE things SET name = 'y'")
        thread = threading.Thread(target=change)
        thread.start()
        thread.join(30)

    assert caught == [True]
    assert names(server, ANNA) == ["y"]


def test_an_id_that_no_index_holds_is_named(server):
    with pytest.raises(UsageError, match="too long"):
        store(server, ANNA, "".join(chr(300 + place * 7 % 9_000) for place in range(9_000)))


# roles and migrations


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("ALTER ROLE bad SUPERUSER", "is a superuser"),
        ("ALTER ROLE bad BYPASSRLS", "has BYPASSRLS"),
        ("GRANT kept_owner TO bad", "is a member of their owner"),
    ],
)
def test_a_role_that_row_level_security_does_not_bind_is_refused(postgres_server, url, change, fault):
    postgres_server.run_sql("postgres", f"CREATE ROLE bad LOGIN; {change}")
    try:
        kind, text = reason_of(url.replace("kept_serving@", "bad@"))
    finally:
        postgres_server.run_sql("postgres", "DROP ROLE bad")

    assert kind is StorageError
    assert fault in text
    assert "create-role" in text


def test_migrations_run_once_also_from_two_processes_at_once(postgres_server):
    postgres_server.run_sql("postgres", "CREATE DATABASE twice")
    url = postgres_server.url("twice", role="kept_owner")
    assert schema.list_waiting(url) == list(schema.list_migrations())
    ran = []
    threads = [threading.Thread(target=lambda: ran.extend(schema.migrate(url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert ran == list(schema.list_migrations())
    assert schema.migrate(url) == schema.list_waiting(url) == []


def test_a_database_of_a_newer_kept_is_not_touched(postgres_server, postgres_url):
    with connect_as_owner(postgres_server.owner_url(postgres_url)) as unit:
        unit.execute("INSERT INTO kept.migrations (number) VALUES (9999)")

    assert reason_of(postgres_url)[0] is NewerDatabase
    with pytest.raises(NewerDatabase, match="9999"):
        schema.migrate(postgres_server.owner_url(postgres_url))


def test_every_table_is_protected_and_its_key_begins_with_tenant_and_user(postgres_server, postgres_url):
    with connect_as_owner(postgres_server.owner_url(postgres_url)) as unit:
        tables = unit.execute(
            "SELECT relname, relforcerowsecurity, (SELECT array_agg(attname::text ORDER BY place) FROM pg_index,"
            " unnest(indkey) WITH ORDINALITY AS k (number, place), pg_attribute AS a WHERE indrelid = c.oid AND indisprimary"
            " AND a.attrelid = c.oid AND a.attnum = k.number AND place <= 2) FROM pg_class AS c"
            " WHERE relnamespace = 'kept'::regnamespace AND relkind = 'r' AND relname <> 'migrations'"
        ).fetchall()

    assert tables
    for name, is_forced, key in tables:
        assert is_forced, f"{name} is without FORCE ROW LEVEL SECURITY"
        assert key[0] == "tenant", name


@pytest.mark.parametrize("name", ["", "a b", 'x"; DROP ROLE kept', "Ä", "x" * 70])
def test_only_plain_names_of_roles_are_written_into_statements(name):
    with pytest.raises(UsageError, match="is not a valid name for a role"):
        schema.role_statements(name, database="kept")
