"""A home on a PostgreSQL server: moved there and back, used, forgotten in, and without the server."""

import json
import threading
from urllib.parse import urlsplit

import pytest

from wellkept.app import open_app
from wellkept.app.store_care import check_store
from wellkept.config.settings import set_value
from wellkept.core.errors import ConfigError, Refused, StorageError, UsageError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.forgetting.forget import forget, plan_forget_user, plan_forget_words
from wellkept.gateway.state.platform_messages import Chat, PlatformMessage, accept_message, find_entry
from wellkept.memory.page import Add, Author, Remove, Target, replay
from wellkept.operations import storage
from wellkept.operations.doctor import Health, check_everything
from wellkept.operations.profiles import show_settings
from wellkept.operations.users import create_user, list_users
from wellkept.sessions.rows import vectors

ANN = UserId("ann")


@pytest.fixture
def url(postgres_server):
    """An empty tenant of the shared database, as environment variables of an app."""
    return {"KEPT_STORAGE__URL": postgres_server.shared_url, "KEPT_STORAGE__TENANT": postgres_server.make_tenant()}


def fill(app):
    for user in (OWNER, ANN):
        space = app.space(user)
        space.sessions.create(Session(id=f"s-{user}", source="cli", started=1.0))
        said = [
            NewMessage(Message(Role.USER, f"words of {user} about the heron {n}"), 2.0 + n, Origin.PERSON)
            for n in range(30)
        ]
        space.sessions.append(f"s-{user}", said)
        space.memory.apply("memory", Add(f"a fact of {user}"))
        space.memory.apply("user", Add(f"about {user}"))


def export(app, user):
    return [json.dumps(line, sort_keys=True) for line in app.space(user).sessions.transfer.export(raw=True)]


def add_vectors(app):
    """Give some messages of everybody vectors of one model."""
    with app.state_file.writing() as unit:
        vectors.begin(unit, vectors.mark("letters"))
        rows = unit.execute("SELECT id, content FROM messages WHERE id % 3 = 0").fetchall()
        assert vectors.put(unit, vectors.mark("letters"), [(number, text, b"%d" % number) for number, text in rows])


def read_vectors(app, user):
    """Return the name of the model, and what each message of the user has."""
    store = app.space(user).sessions
    ids = [one.id for one in store.messages(f"s-{user}")]
    with store.database.reading() as unit:
        found = sorted(vectors.of_messages(unit, ids))
        assert len(found) == 10
        return vectors.stored_model(unit), found


@pytest.fixture
def filled(tmp_path, postgres_server):
    """A home with two users in files, and the tenant that it will move to."""
    environ = {"KEPT_STORAGE__TENANT": postgres_server.make_tenant()}
    app = open_app(str(tmp_path / "home"), environ=environ)
    fill(app)
    yield app
    app.close()


def reopen(app, environ=None):
    app.close()
    return open_app(str(app.home.root), environ=environ or app.environ)


def test_a_home_moves_to_a_server_and_back(filled, postgres_server):
    """Exports and pages are the same bytes at each place; nobody's rows are at another user."""
    before = {user: export(filled, user) for user in (OWNER, ANN)}
    add_vectors(filled)
    made = {user: read_vectors(filled, user) for user in before}
    pages = {user: filled.space(user).memory.pages.read(Target.MEMORY).raw for user in (OWNER, ANN)}
    rows = filled.owner.memory.ledger.rows()

    filled.owner.approvals.stage(Target.MEMORY, [Add("waits")], Author(), why="asked")
    moved = storage.move_storage(filled.caller(), postgres_server.shared_url)
    there = reopen(filled)

    assert moved.as_json()["rows"] > 60
    there.owner.approvals.approve(there.owner.approvals.waiting()[0].id)
    there.owner.memory.apply("memory", Remove("waits"))
    rows = there.owner.memory.ledger.rows()
    assert there.server is not None
    assert {user: export(there, user) for user in before} == before
    assert {user: read_vectors(there, user) for user in before} == made
    assert {user: there.space(user).memory.pages.read(Target.MEMORY).raw for user in pages} == pages
    assert there.owner.memory.ledger.rows()[:2] == rows[:2]
    assert [hit.session_id for hit in there.space(ANN).sessions.search(_query("heron")).sessions] == ["s-ann"]
    assert there.owner.memory.apply("memory", Add("written there")).ledger_ids == (rows[-1].id + 1,)

    back = storage.move_storage(there.caller(), storage.FILES)
    here = reopen(there)

    assert not isinstance(back, Refused)
    assert here.server is None
    assert {user: export(here, user) for user in before} == before
    assert {user: read_vectors(here, user) for user in before} == made
    assert here.owner.memory.entries("memory") == ["a fact of owner", "written there"]
    assert [hit.session_id for hit in here.owner.sessions.search(_query("heron")).sessions] == ["s-owner"]
    assert here.owner.sessions.upkeep.check() == []
    assert here.owner.approvals.waiting() == []  # although its file was left when the home moved
    here.close()


def test_sessions_keep_their_order(filled, postgres_server):
    """Export lists sessions as they were begun, wherever a database puts a row that was changed later."""

    def begin(app, *names):
        for name in names:
            app.owner.sessions.create(Session(id=name, source="cli", started=1.0))

    def go_on(app, *names):
        for moment, name in enumerate(names, start=100):
            new = NewMessage(Message(Role.USER, f"more of {name}"), float(moment), Origin.PERSON)
            app.owner.sessions.append(name, [new])

    begin(filled, "b", "a", "c")
    go_on(filled, "c", "b", "s-owner", "a")
    before = export(filled, OWNER)
    storage.move_storage(filled.caller(), postgres_server.shared_url)
    there = reopen(filled)
    assert export(there, OWNER) == before

    begin(there, "z", "d")
    go_on(there, "d", "a", "s-owner", "c")
    before = export(there, OWNER)
    storage.move_storage(there.caller(), storage.FILES)
    here = reopen(there)
    assert export(here, OWNER) == before
    here.close()


def _query(words):
    from wellkept.core.search import SearchRequest

    return SearchRequest(words)


def test_an_interrupted_move_is_completed_without_a_duplicate(filled, postgres_server, monkeypatch):
    """Whatever was copied before the process died stays, and the rest follows."""
    from wellkept.storage.postgres import rows

    before = {user: export(filled, user) for user in (OWNER, ANN)}
    written = rows.ServerTables.write
    for number in (1, 2, 3):
        left = iter(range(number))

        def die(self, table, columns, batch, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            written(self, table, columns, batch)

        with monkeypatch.context() as patch:
            patch.setattr(rows.ServerTables, "write", die)
            with pytest.raises(KeyboardInterrupt):
                storage.move_storage(filled.caller(), postgres_server.shared_url)
        assert filled.home.database.exists()

    storage.move_storage(filled.caller(), postgres_server.shared_url)
    there = reopen(filled)

    assert {user: export(there, user) for user in before} == before
    there.close()


def test_a_database_with_data_is_not_mixed_with_another_home(filled, postgres_server, tmp_path):
    """A tenant holds one home."""
    storage.move_storage(filled.caller(), postgres_server.shared_url)
    other = open_app(str(tmp_path / "other"), environ=filled.environ)
    fill(other)

    refused = storage.move_storage(other.caller(), postgres_server.shared_url)

    assert isinstance(refused, Refused)
    assert "another home" in refused.error
    assert "storage.tenant" in refused.remedy
    other.close()


def test_a_move_that_was_killed_at_its_end_is_finished(filled, postgres_server, monkeypatch):
    """The URL is written and the files are not set aside yet: the same command does that, and copies nothing."""

    def die(caller):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_set_aside", die)
        with pytest.raises(KeyboardInterrupt):
            storage.move_storage(filled.caller(), postgres_server.shared_url)
    there = reopen(filled)
    before = export(there, OWNER)
    assert there.home.database.exists()

    done = storage.move_storage(there.caller(), postgres_server.shared_url)
    again = reopen(there)
    refused = storage.move_storage(again.caller(), postgres_server.shared_url)

    assert not isinstance(done, Refused)
    assert not again.home.database.exists()
    assert export(again, OWNER) == before
    assert isinstance(refused, Refused)
    again.close()


def test_a_home_that_came_back_may_go_again(filled, postgres_server):
    """Its own copy on the server is brought up to date; one that others wrote to meanwhile is left alone."""
    storage.move_storage(filled.caller(), postgres_server.shared_url)
    there = reopen(filled)
    storage.move_storage(there.caller(), storage.FILES)
    here = reopen(there)
    here.owner.sessions.forgetting.carry_out(here.owner.sessions.forgetting.plan_sessions(["s-owner"]))
    here.owner.memory.apply("memory", Add("written in files"))

    moved = storage.move_storage(here.caller(), postgres_server.shared_url)
    again = reopen(here)

    assert not isinstance(moved, Refused)
    assert again.owner.memory.entries("memory") == ["a fact of owner", "written in files"]
    assert again.owner.sessions.totals() == (0, 0)
    assert again.space(ANN).sessions.totals() == (1, 30)

    again.owner.sessions.create(Session(id="s-new", source="cli", started=1.0))
    told = [NewMessage(Message(Role.USER, "said at the server"), 99.0, Origin.PERSON)]
    assert again.owner.sessions.append("s-new", told) == [61]  # it goes on after the ids of everybody in the file
    assert again.space(ANN).sessions.append("s-ann", told)[0] > 61  # which a file has room for once
    storage.move_storage(again.caller(), storage.FILES)
    fill_one = open_app(
        str(again.home.root), environ={**again.environ, "KEPT_STORAGE__URL": postgres_server.shared_url}
    )
    fill_one.owner.memory.apply("memory", Add("written by another host"))
    fill_one.close()
    last = reopen(again)
    refused = storage.move_storage(last.caller(), postgres_server.shared_url)

    assert isinstance(refused, Refused)
    assert "was written to" in refused.error
    assert [last.space(user).sessions.totals() for user in (OWNER, ANN)] == [(1, 1), (1, 31)]
    last.close()


def test_forget_reaches_the_server(tmp_path, url):
    """The words are gone from conversations, pages, ledger and copies of pages; another user keeps theirs."""
    app = open_app(str(tmp_path / "home"), environ=url)
    fill(app)
    app.owner.memory.apply("memory", Add("the zebra is striped"))
    app.owner.memory.pages.back_up(Target.MEMORY, b"the zebra is striped", epoch=1)
    app.space(ANN).memory.apply("memory", Add("her zebra"))
    app.owner.sessions.append("s-owner", [NewMessage(Message(Role.USER, "a zebra"), 90.0, Origin.PERSON)])
    caller = app.caller()

    report = forget(caller, plan_forget_words(caller, "zebra")).report

    assert (report.rows_left, report.entries_left) == (0, 0)
    assert app.owner.memory.entries("memory") == ["a fact of owner"]
    assert app.space(ANN).memory.entries("memory") == ["a fact of ann", "her zebra"]
    app.close()


@pytest.mark.parametrize("user", ["ann", "x" * 10_000, "ann\0"], ids=["plain", "long", "nul"])
def test_forget_reaches_messages_of_chat_platforms(tmp_path, url, user):
    """Their table belongs to the home, which names users by their ids, also where these are not keys."""
    app = open_app(str(tmp_path / "home"), environ=url)
    caller, other = app.caller(UserId(user)), app.caller(UserId("ben"))
    for one, number in ((caller, "1"), (other, "2")):
        accept_message(one, PlatformMessage(number, "the zebra is striped", Chat("webhook", "dm", "chat")))
        one.space.memory.apply("memory", Add("the zebra is striped"))

    report = forget(caller, plan_forget_words(caller, "zebra")).report

    assert report.rows_left == 0
    assert find_entry(caller, "webhook", "1") is None
    assert find_entry(other, "webhook", "2") is not None
    app.close()


def test_statistics_tell_nothing_of_what_others_store(tmp_path, url):
    app = open_app(str(tmp_path / "home"), environ=url)
    fill(app)
    before = app.space(ANN).sessions.upkeep.stats()
    app.owner.sessions.append("s-owner", [NewMessage(Message(Role.USER, "long " * 9_000), 9.0, Origin.PERSON)])

    assert before == app.space(ANN).sessions.upkeep.stats()
    assert before["tables"]["messages"] > 1_000
    assert before["file_bytes"] == sum(before["tables"].values()) < app.owner.sessions.upkeep.stats()["file_bytes"]
    app.close()


def test_a_user_who_is_forgotten_is_listed_no_more(tmp_path, url):
    """Neither here nor at another host of the same server."""
    app = open_app(str(tmp_path / "home"), environ=url)
    create_user(app.caller(), ANN)
    fill(app)

    forget(app.caller(ANN), plan_forget_user(app.caller(ANN)))

    other = open_app(str(tmp_path / "other"), environ=url)
    assert [[user.id for user in list_users(one.caller())] for one in (app, other)] == [[OWNER], [OWNER]]
    for one in (app, other):
        one.close()


def test_sixteen_writers_lose_no_edit(tmp_path, url):
    """Every accepted edit of one page is on it and in the ledger, whoever wrote at the same moment."""
    apps = [
        open_app(str(tmp_path / "home"), environ={**url, "KEPT_MEMORY__MEMORY_CHAR_LIMIT": "100000"}) for _ in range(2)
    ]
    stores = [app.owner.memory for app in apps]
    failed = []

    def write(writer):
        for number in range(12):
            outcome = stores[writer % 2].apply("memory", Add(f"writer {writer} edit {number}"))
            if isinstance(outcome, Refused):
                failed.append(outcome)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    entries, rows = stores[0].entries("memory"), stores[1].ledger.rows(Target.MEMORY)
    assert failed == []
    assert len(set(entries)) == len(entries) == 16 * 12
    assert replay(rows) == tuple(entries)
    assert [row.id for row in rows] == list(range(1, 16 * 12 + 1))
    for app in apps:
        app.close()


def test_the_password_is_never_shown(tmp_path):
    """Neither by the settings nor by an error."""
    address = "postgresql://kept:s3cr3t@127.0.0.1:1/none"
    app = open_app(str(tmp_path / "home"), environ={"KEPT_STORAGE__URL": address})
    with pytest.raises(StorageError) as error:
        app.owner.memory.entries("memory")

    assert "connection refused" in str(error.value)
    assert "s3cr3t" not in f"{error.value}{error.value.remedy}{show_settings(app.caller(), 'storage').as_json()}"
    app.close()


def set_read_only(owner, change):
    """Change the role that serves, and end its connections: a pool would continue with the old ones."""
    from wellkept.storage.postgres.database import connect_as_owner

    with connect_as_owner(owner) as unit:
        unit.execute(f"ALTER ROLE kept_serving {change}")
    with connect_as_owner(owner) as unit:
        unit.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'kept_serving'")


def test_a_read_only_server_is_a_finding_of_the_doctor(tmp_path, url, postgres_server):
    """Everything can be read, so that no other check would notice."""
    owner = postgres_server.owner_url(url["KEPT_STORAGE__URL"])
    set_read_only(owner, "SET default_transaction_read_only = on")
    app = open_app(str(tmp_path / "home"), environ=url)
    try:
        found = check_store(app)
    finally:
        set_read_only(owner, "RESET default_transaction_read_only")
        app.close()

    assert ["is read-only" in one.what for one in found] == [True]


def test_a_missing_right_is_a_finding_of_the_doctor(tmp_path, url, postgres_server):
    """The first message would be refused."""
    name = urlsplit(url["KEPT_STORAGE__URL"]).path.lstrip("/")
    app = open_app(str(tmp_path / "home"), environ=url)
    before = check_store(app)
    postgres_server.run_sql(name, "REVOKE INSERT ON kept.messages FROM kept_serving")
    try:
        found = check_store(app)
    finally:
        postgres_server.run_sql(name, "GRANT INSERT ON kept.messages TO kept_serving")
        app.close()

    assert before == []
    assert [one.what for one in found] == ["'kept_serving' may not read or change messages"]


def test_the_doctor_works_without_the_server(tmp_path):
    """It names what is wrong with the server, once, and checks the rest."""
    pytest.importorskip("psycopg")
    app = open_app(str(tmp_path / "home"), environ={"KEPT_STORAGE__URL": "postgresql://kept:s3cr3t@127.0.0.1:9/kept"})
    checks = list(check_everything(app.caller(), offline=True))
    app.close()

    assert [one.said for one in checks if one.health is Health.ERROR] == [
        "PostgreSQL at 127.0.0.1:9 does not answer: connection refused"
    ]
    assert {"scanner: an attack is blocked, a fact passes", "storage", "skills", "model"} <= {
        one.name for one in checks
    }


@pytest.mark.parametrize(
    ("address", "missing"),
    [("postgresql://kept@host", "database"), ("postgresql://@host/kept", "user"), ("postgresql://kept@/kept", "host")],
)
def test_an_address_that_lacks_a_part_is_refused(address, missing):
    """Before it is written to the settings, with the part that is missing."""
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match=f"names no {missing}"):
        storage.check_address(address)
    storage.check_address("")


def test_a_home_is_moved_by_its_owner(filled):
    """Another user has no right to, and what is in files already stays."""
    assert isinstance(storage.move_storage(filled.caller(), storage.FILES), Refused)
    with pytest.raises(UsageError):
        storage.move_storage(filled.caller(ANN, scopes=frozenset(filled.caller().scopes)), storage.FILES)


def test_the_role_that_serves_is_printed(filled, postgres_server):
    """Its statements give no right that row-level security would not bind."""
    owner = postgres_server.owner_url(postgres_server.shared_url)
    statements = "\n".join(storage.list_role_statements(filled.caller(), "served", owner))

    assert "NOSUPERUSER NOBYPASSRLS" in statements
    assert storage.update_tables(filled.caller(), owner) == []


@pytest.mark.parametrize(
    "user", ["a/b/../c", "x" * 10_000, "Ann", "аnn", "ann\0"], ids=["path", "long", "case", "alike", "nul"]
)
def test_any_user_id_has_rows_of_its_own(tmp_path, url, user):
    """Whatever an id looks like, it is stored, found again, and never another's."""
    app = open_app(str(tmp_path / "home"), environ=url)
    server = app.server
    from wellkept.providers.outbox import Outbox, Write

    for one in (ANN, UserId(user)):
        outbox = Outbox(server.for_user(one), user=one, clock=app.clock)
        outbox.add("p", [Write(hook="sync_turn", session_id="s", idempotency_key="k", payload={"of": one[:5]})])

    found = Outbox(server.for_user(UserId(user)), user=UserId(user), clock=app.clock).items()
    assert [item.payload["of"] for item in found] == [user[:5]]
    app.close()


def restore_into(root, environ, file):
    from wellkept.backup.restore import apply_restore, open_restore

    app = open_app(str(root), environ=environ)
    with open_restore(app.caller(), file) as restore:
        report = apply_restore(app.caller(), restore, backup=False)
    assert report.collect("conflicts") == []
    return app


def test_a_backup_holds_what_the_server_has(tmp_path, url, postgres_server):
    """It restores the same conversations, pages and ledgers into files, and into an empty server."""
    from wellkept.backup.backup import create_backup

    set_value(
        open_app(str(tmp_path / "home"), environ={}).home, "storage.url", url["KEPT_STORAGE__URL"], why_no_person=""
    )
    app = open_app(str(tmp_path / "home"), environ=url)
    fill(app)
    app.owner.approvals.stage(Target.MEMORY, [Add("waits")], Author(), why="asked")
    app.owner.skill_tools.library.usage.record_view("deploy", used=True)
    assert not any((tmp_path / "home" / name).exists() for name in ("pending", "skills/.usage.json", "memories"))
    before = {user: export(app, user) for user in (OWNER, ANN)}
    rows = app.space(ANN).memory.ledger.rows()

    made = create_backup(app.caller(), tmp_path / "b.kept.tar.gz")
    app.close()
    there = {**url, "KEPT_STORAGE__TENANT": postgres_server.make_tenant()}

    assert made.problems == ()
    assert made.parts["messages"] == 60
    for environ in ({}, there):
        other = restore_into(tmp_path / f"other{len(environ)}", environ, made.file)
        other = reopen(other)
        assert (other.server is None) == (environ == {})  # the settings of the backup name no server
        assert {user: export(other, user) for user in before} == before
        assert other.owner.memory.entries("memory") == ["a fact of owner"]
        assert [one.texts for one in other.owner.approvals.waiting()] == [["waits"]]
        assert other.owner.skill_tools.library.usage.of("deploy").use_count == 1
        assert other.space(ANN).memory.ledger.rows() == rows
        assert [hit.session_id for hit in other.space(ANN).sessions.search(_query("heron")).sessions] == ["s-ann"]
        assert other.space(ANN).memory.apply("memory", Add("one more")).ledger_ids == (rows[-1].id + 1,)
        other.close()


def test_a_backup_is_merged_into_a_server_that_is_in_use(tmp_path, url):
    """What is gone comes back, what is new stays, and a second restore changes nothing."""
    from wellkept.backup.backup import create_backup

    app = open_app(str(tmp_path / "home"), environ=url)
    fill(app)
    made = create_backup(app.caller(), tmp_path / "b.kept.tar.gz")
    app.owner.sessions.upkeep.delete(["s-owner"])
    app.owner.sessions.upkeep.sweep(days=0)
    app.owner.sessions.create(Session(id="new", source="cli", started=3.0))
    app.owner.memory.apply("memory", Add("added since"))
    app.close()

    for _ in range(2):
        other = restore_into(tmp_path / "home", url, made.file)
        assert sorted(one.id for one in other.owner.sessions.recent(limit=9)) == ["new", "s-owner"]
        assert other.owner.sessions.totals() == (2, 30)
        assert other.owner.memory.entries("memory") == ["a fact of owner", "added since"]
        other.close()


def test_a_user_backs_up_own_rows_only(tmp_path, url):
    """The archive of another user names neither the owner nor what the owner said."""
    import tarfile

    from wellkept.backup.backup import create_backup

    app = open_app(str(tmp_path / "home"), environ=url)
    fill(app)
    made = create_backup(app.caller(ANN), tmp_path / "ann.kept.tar.gz")
    app.close()
    with tarfile.open(made.file) as archive:
        content = b"".join(archive.extractfile(one).read() for one in archive.getmembers() if one.isfile())

    assert b"words of ann" in content
    assert b"words of owner" not in content
    assert b"a fact of owner" not in content
