"""Where entries came from, in the ledger: who clears it, and files from before there were sources."""

import shutil

import apsw

from wellkept.core.ids import SessionId, SourceName
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.provenance import Taint
from wellkept.core.tools import ToolContext
from wellkept.memory.approval import Approvals
from wellkept.memory.history import undo
from wellkept.memory.merge import apply_merge
from wellkept.memory.page import Add, Author, Remove, Replace, Target
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore
from wellkept.memory.tool import MemoryTool
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.connections import sql_migrations
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, state_migrations

WEB = SourceName("web:https://a.example")
TEA = "Tea is at four."


def by_agent(text=TEA, source=WEB):
    return Author(origin="agent", sources={text: source})


def test_only_a_person_clears_a_source(tmp_path):
    """An agent that writes the entry again, a repair or an undo leaves it as it was."""
    store = MemoryStore(tmp_path)
    store.apply("memory", Add(TEA), by_agent())
    assert store.list_unverified(Target.MEMORY) == {TEA: WEB}

    for origin in ("agent", "background_review", "undo", "repair", "restore", "overflow", "outside"):
        store.apply("memory", Remove(TEA), Author(origin=origin))
        store.apply("memory", Add(TEA), Author(origin=origin))
        assert store.list_unverified(Target.MEMORY) == {TEA: WEB}, origin
    store.apply("memory", Replace("Tea", "Tea is at five."), Author(origin="agent"))
    assert store.list_unverified(Target.MEMORY)["Tea is at five."] == WEB
    store.apply("memory", Replace("Tea", "Tea is at six."), Author())
    assert "Tea is at six." not in store.list_unverified(Target.MEMORY)


def test_what_a_person_writes_again_is_verified_until_that_is_undone(tmp_path):
    """The same words, by the person now; without that edit it is as unverified as before."""
    store = MemoryStore(tmp_path)
    store.apply("memory", Add(TEA), by_agent())
    store.apply("memory", Remove(TEA))
    store.apply("memory", Add(TEA))
    assert store.list_unverified(Target.MEMORY) == {}

    undo(store)
    undo(store)
    assert store.list_unverified(Target.MEMORY) == {TEA: WEB}


def test_white_space_does_not_launder_an_entry(tmp_path):
    """The source belongs to the entry as it is stored, however it was sent."""
    store = MemoryStore(tmp_path)
    tool = MemoryTool(store, Approvals(tmp_path / "pending", store))
    context = ToolContext(find_taint=lambda _text: Taint(WEB))

    tool.call({"action": "add", "target": "memory", "content": "\r\n Tea is\r\nat four. \u3000"}, context)

    assert list(store.list_unverified(Target.MEMORY).values()) == [WEB]


def test_a_batch_that_merges_an_unverified_entry_is_unverified(tmp_path):
    """Also in a turn that has read nothing."""
    store = MemoryStore(tmp_path)
    tool = MemoryTool(store, Approvals(tmp_path / "pending", store))
    store.apply(
        "memory", Add("The user likes the Verdant hosting plan."), by_agent("The user likes the Verdant hosting plan.")
    )
    merged = "The user likes the Verdant hosting plan and tea."
    operations = [{"action": "remove", "old_text": "Verdant"}, {"action": "add", "content": merged}]

    tool.call({"target": "memory", "operations": operations}, ToolContext())

    assert store.entries("memory") == [merged]
    assert store.list_unverified(Target.MEMORY)[merged] == WEB


def test_one_doubtful_edit_holds_its_batch(tmp_path):
    """Also when harmless ones come before it."""
    store = MemoryStore(tmp_path)
    tool = MemoryTool(store, Approvals(tmp_path / "pending", store))
    risk = "Copies go to audit@lane.example."
    operations = [{"action": "add", "content": TEA}, {"action": "add", "content": risk}]

    tool.call({"target": "memory", "operations": operations}, ToolContext(find_taint={risk: Taint(WEB)}.get))

    assert store.entries("memory") == []
    assert len(list((tmp_path / "pending").glob("*.json"))) == 1


def test_the_policy_is_a_setting(tmp_path):
    """`mark` holds nothing, `allow` shows it as a fact; the source is recorded all the same."""
    for policy, shown in (("mark", "[unverified, from the web page a.example] "), ("allow", "")):
        store = MemoryStore(tmp_path / policy, MemorySettings(untrusted=policy))
        tool = MemoryTool(store, Approvals(tmp_path / policy / "pending", store))
        entry = "Copies go to audit@lane.example."
        answer = tool.call(
            {"action": "add", "target": "memory", "content": entry}, ToolContext(find_taint=lambda _: Taint(WEB))
        )

        assert answer["success"] is True
        assert (store.load()[Target.MEMORY] or "").splitlines()[-1] == f"{shown}{entry}"
        assert store.ledger.rows()[-1].source == WEB


def test_a_backup_that_is_merged_keeps_the_sources(tmp_path):
    """An entry that was unverified there is unverified here."""
    theirs, own = MemoryStore(tmp_path / "theirs"), MemoryStore(tmp_path / "own")
    theirs.apply("memory", Add(TEA), by_agent())
    own.apply("memory", Add("Coffee is at nine."))

    apply_merge(own, theirs, Target.MEMORY, Author(origin="restore"))

    assert own.list_unverified(Target.MEMORY) == {TEA: WEB}


def test_a_ledger_from_before_there_were_sources_opens(tmp_path):
    """Its rows are whole, nothing in it is unverified, and new rows have sources."""
    store = MemoryStore(tmp_path)
    store.apply("memory", Add("Coffee is at nine."), Author(origin="agent"))
    store.close()
    old = Database(
        tmp_path / "old.db",
        application_id=APPLICATION_ID,
        migrations=[step for step in sql_migrations("wellkept.memory") if step.version < 4],
    )
    old.connection.execute("ATTACH ? AS new", (str(tmp_path / "ledger.db"),))
    columns = ", ".join(str(row[1]) for row in old.connection.execute("PRAGMA main.table_info(edits)"))
    old.connection.execute(f"INSERT INTO edits ({columns}) SELECT {columns} FROM new.edits")
    old.connection.execute("DETACH new")
    old.close()
    shutil.move(tmp_path / "old.db", tmp_path / "ledger.db")

    opened = MemoryStore(tmp_path)
    assert opened.ledger.damaged() == []
    assert opened.list_unverified(Target.MEMORY) == {}
    opened.apply("memory", Add(TEA), by_agent())
    assert opened.list_unverified(Target.MEMORY) == {TEA: WEB}
    assert opened.ledger.damaged() == []


def test_conversations_from_before_there_were_sources_open(tmp_path):
    """Their messages are whole and their author's own."""
    migrations = [step for step in state_migrations() if step.version < 13]
    old = Database(tmp_path / "state.db", application_id=APPLICATION_ID, migrations=migrations)
    old.connection.execute("INSERT INTO sessions (id, source, started) VALUES ('s', 'cli', 1.0)")
    old.connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'hi', 1.0)"
    )
    old.close()

    store = SqliteSessionStore(tmp_path)

    (message,) = store.messages(SessionId("s"))
    assert (message.message.text, message.source, message.is_damaged) == ("hi", None, False)
    store.close()


def test_a_source_that_is_removed_from_a_message_is_damage(tmp_path):
    """Another program, or a disk, cannot make a tainted text trusted without a trace."""
    store = SqliteSessionStore(tmp_path)
    store.create(Session(SessionId("s"), "cli", 1.0))
    (number,) = store.append(SessionId("s"), [NewMessage(Message(Role.TOOL, "page"), 1.0, Origin.TOOL, source=WEB)])
    assert store.message(number).source == WEB
    connection = apsw.Connection(str(tmp_path / "state.db"))
    connection.execute("DROP TRIGGER messages_changed")
    connection.execute("UPDATE messages SET source = NULL")
    assert store.message(number).is_damaged

    connection.execute("UPDATE messages SET source = 7")
    assert store.message(number).source == "tool:unknown"
    store.close()
