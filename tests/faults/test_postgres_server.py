"""A PostgreSQL server that fails during a chat: one clear line, the chat continues, nothing acknowledged is lost."""

import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import quote

import anyio
import pytest
from msgspec.structs import replace

from wellkept.agent.record import Record
from wellkept.agent.toolbox import deny
from wellkept.app import open_app
from wellkept.core.errors import KeptError, StorageError
from wellkept.core.events import Warned
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.memory.page import Add
from wellkept.operations import conversations
from wellkept.sessions.postgres.store import PostgresSessionStore
from wellkept.storage.postgres import database as postgres
from wellkept.storage.postgres import schema
from wellkept.storage.postgres.database import PostgresServer
from wellkept.storage.postgres.unit import Unit
from wellkept.testing.postgres_server import EmbeddedServer, Unavailable

ANN = UserId("ann")


@pytest.fixture(scope="module")
def embedded():
    """A server that these tests may break."""
    try:
        made = EmbeddedServer(durable=True)
    except Unavailable as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.fixture
def environ(embedded):
    return {"KEPT_STORAGE__URL": embedded.shared_url, "KEPT_STORAGE__TENANT": embedded.make_tenant()}


@contextmanager
def stopped(embedded):
    embedded.stop()
    try:
        yield
    finally:
        embedded.start()


@contextmanager
def changed(embedded, there, back):
    """Run a statement, and end the connections, which would not notice it."""
    embedded.run_sql("kept_1", there)
    embedded.run_sql(
        "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'kept_serving'"
    )
    try:
        yield
    finally:
        embedded.run_sql("kept_1", back)


@contextmanager
def paused(embedded):
    embedded.pause()
    try:
        yield
    finally:
        embedded.resume()


FAULTS = {
    "down": (stopped, "connection refused"),
    "slow": (paused, "does not answer in time"),
    "read-only": (
        lambda server: changed(
            server,
            "ALTER ROLE kept_serving SET default_transaction_read_only = on",
            "ALTER ROLE kept_serving RESET default_transaction_read_only",
        ),
        "is read-only",
    ),
    "out of connections": (
        lambda server: changed(
            server, "ALTER ROLE kept_serving CONNECTION LIMIT 0", "ALTER ROLE kept_serving CONNECTION LIMIT -1"
        ),
        "out of connections",
    ),
    "missing rights": (
        lambda server: changed(
            server,
            "REVOKE INSERT ON kept.messages FROM kept_serving",
            "GRANT INSERT ON kept.messages TO kept_serving",
        ),
        "may not do this",
    ),
    "no login": (
        lambda server: changed(server, "ALTER ROLE kept_serving NOLOGIN", "ALTER ROLE kept_serving LOGIN"),
        "does not let 'kept_serving' in",
    ),
}


class Talk:
    """A chat of the owner, with the lines that the person was shown."""

    def __init__(self, folder, environ):
        self.app = open_app(str(folder), environ=environ)
        self.lines = []
        caller = replace(self.app.caller(), sink=self._see)
        self.agent = conversations.open_conversation(caller, approve=deny)

    def _see(self, event):
        if isinstance(event, Warned):
            self.lines.append(event.message)

    def say(self, text):
        return anyio.run(self.agent.turn, text).text

    def stored(self):
        """Return what the person said, as another process finds it."""
        with_other = open_app(str(self.app.home.root), environ=self.app.environ)
        try:
            rows = with_other.owner.sessions.messages(self.agent.session.id)
            return [row.message.text for row in rows if row.message.role is Role.USER]
        finally:
            with_other.close()

    def close(self):
        self.agent.close()
        self.app.close()


def shorten_waits(monkeypatch):
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", 2)  # the driver takes no less
    monkeypatch.setattr(postgres, "_REST_SECONDS", 1.0)


def wait_for(server):
    """Wait until a server that hung is asked again."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(StorageError), server.for_user(OWNER).reading():
            return
        time.sleep(0.1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_chat_outlives_a_fault_of_its_server(tmp_path, embedded, environ, monkeypatch, fault):
    """It answers, gives the reason once in one line, and stores everything in order when the server is back."""
    shorten_waits(monkeypatch)
    breaks, reason = FAULTS[fault]
    talk = Talk(tmp_path / "home", environ)
    talk.say("the okapi lives in hall seven")
    with breaks(embedded):
        assert talk.say("the walrus lives in hall eight")
        told = [line for line in talk.lines if "not being stored" in line]
        assert len(told) == 1
        assert reason in told[0]
        assert "\n" not in told[0]
    wait_for(talk.app.server)
    talk.say("the pelican lives in hall nine")

    assert talk.lines[-1] == "writing works again: the whole conversation is stored"
    assert [text.split()[1] for text in talk.stored()] == ["okapi", "walrus", "pelican"]
    talk.close()


@pytest.mark.parametrize("fault", ["down", "out of connections", "no login"])
def test_a_chat_may_begin_while_its_server_cannot_be_used(tmp_path, embedded, environ, monkeypatch, fault):
    """It says so in one line; conversation and pages are there when the server is."""
    shorten_waits(monkeypatch)
    breaks, reason = FAULTS[fault]
    app = open_app(str(tmp_path / "home"), environ=environ)
    app.owner.memory.apply("memory", Add("the okapi lives in hall seven"))
    app.close()
    with breaks(embedded):
        talk = Talk(tmp_path / "home", environ)
        assert talk.say("the walrus lives in hall eight")
        assert [reason in line for line in talk.lines] == [True]
    wait_for(talk.app.server)
    talk.say("the pelican lives in hall nine")

    assert [text.split()[1] for text in talk.stored()] == ["walrus", "pelican"]
    assert talk.agent.conversation.frozen.reported  # the pages, as changes since the prompt was built
    talk.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_edit_that_a_fault_prevents_is_refused_and_never_half_done(tmp_path, embedded, environ, monkeypatch, fault):
    shorten_waits(monkeypatch)
    breaks, reason = FAULTS[fault]
    if fault == "missing rights":
        pytest.skip("the right to insert messages is not needed for pages")
    app = open_app(str(tmp_path / "home"), environ=environ)
    app.owner.memory.apply("memory", Add("before"))
    with breaks(embedded), pytest.raises(KeptError, match=reason) as caught:
        app.owner.memory.apply("memory", Add("meanwhile"))
    assert caught.value.remedy
    wait_for(app.server)
    app.owner.memory.apply("memory", Add("after"))

    assert app.owner.memory.entries("memory") == ["before", "after"]
    assert [row.id for row in app.owner.memory.ledger.rows()] == [1, 2]
    app.close()


def test_a_server_that_is_too_old_is_named(embedded, monkeypatch):
    monkeypatch.setattr(schema, "OLDEST_SERVER", 99)

    with pytest.raises(StorageError, match="kept needs PostgreSQL 99 or newer"):
        schema.migrate(embedded.owner_url(embedded.shared_url))
    with (
        pytest.raises(StorageError, match="kept needs PostgreSQL 99 or newer"),
        PostgresServer(embedded.shared_url).for_user(ANN).reading(),
    ):
        pass


def test_a_commit_whose_answer_is_lost_is_an_error_and_a_chat_stores_nothing_twice(embedded, monkeypatch):
    """Nobody can tell whether it succeeded: after a crash the server gives the number of a lost transaction again."""
    server = PostgresServer(embedded.shared_url, tenant=embedded.make_tenant())
    store, told = PostgresSessionStore(server), []
    record = Record(Session(SessionId("talk"), "cli", 1.0), store, told.append)
    real = Unit.commit

    def lose(unit):
        real(unit)
        embedded.run_sql("postgres", f"SELECT pg_terminate_backend({unit.connection.info.backend_pid})")
        unit.connection.execute(b"SELECT 1")

    def say(text, moment):
        record.add([NewMessage(Message(Role.USER, text), moment, Origin.PERSON)])

    for place, text in enumerate(["one", "two", "three", "four"]):  # the first one also begins the session
        monkeypatch.setattr(Unit, "commit", real if place % 2 else lose)
        say(text, float(place))
        assert sum("not being stored" in str(event) for event in told) == place // 2 + 1

    assert [one.message.text for one in store.messages(SessionId("talk"))] == ["one", "two", "three", "four"]
    server.close()


def test_a_conversation_of_which_nothing_can_be_stored_leaves_no_empty_session(
    tmp_path, embedded, environ, monkeypatch
):
    shorten_waits(monkeypatch)
    breaks, reason = FAULTS["missing rights"]
    with breaks(embedded):
        talk = Talk(tmp_path / "home", environ)
        assert talk.say("the okapi lives in hall seven")
        assert any(reason in line for line in talk.lines)

        assert talk.app.owner.sessions.recent(limit=10) == []
    talk.say("the walrus lives in hall eight")

    assert [text.split()[1] for text in talk.stored()] == ["okapi", "walrus"]
    talk.close()


def test_a_server_that_restarts_among_many_writers_loses_nothing(embedded):
    """Every edit that was accepted is on the page once, whatever the moment of the crash."""
    tenant, accepted = embedded.make_tenant(), []

    def write(writer):
        server = PostgresServer(embedded.shared_url, tenant=tenant)
        for number in range(40):
            name = f"{writer}-{number}"
            try:
                with server.for_user(OWNER).writing() as unit:
                    unit.execute(
                        "INSERT INTO state_meta (tenant, user_id, key, value) VALUES (:tenant, :user, ?, 'x')", (name,)
                    )
            except StorageError:
                continue
            accepted.append(name)
        server.close()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    while len(accepted) < 20:
        threads[0].join(0.001)
    embedded.stop()
    embedded.start()
    for thread in threads:
        thread.join()
    with PostgresServer(embedded.shared_url, tenant=tenant).for_user(OWNER).reading() as unit:
        stored = {
            str(key) for (key,) in unit.execute("SELECT key FROM state_meta WHERE tenant = :tenant AND user_id = :user")
        }

    assert set(accepted) <= stored


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_failover_loses_nothing(tmp_path):
    """The primary dies in the middle of a chat and its standby takes over: both are named in storage.url."""
    with EmbeddedServer(durable=True) as primary:
        primary.create_database()
        with primary.create_standby() as standby:
            hosts = ",".join(quote(str(one.folder), safe="") for one in (primary, standby))
            address = f"postgresql://kept_serving@/kept_1?host={hosts}&target_session_attrs=read-write"
            talk = Talk(tmp_path / "home", {"KEPT_STORAGE__URL": address})
            talk.say("the okapi lives in hall seven")
            primary.stop()
            assert talk.say("the walrus lives in hall eight")
            assert any("is read-only" in line for line in talk.lines)
            standby.promote()
            talk.say("the pelican lives in hall nine")

            assert [text.split()[1] for text in talk.stored()] == ["okapi", "walrus", "pelican"]
            talk.close()
