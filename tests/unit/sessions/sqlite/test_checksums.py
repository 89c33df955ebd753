"""Checksums of messages: damage on the disk is recognised, shown and named, and nothing else is."""

import base64
import json
import random
from contextlib import closing

import apsw
import pytest

from wellkept.context.engine import Compaction
from wellkept.core.clock import SystemClock
from wellkept.core.ids import SessionId
from wellkept.core.messages import (
    ImagePart,
    Message,
    NewMessage,
    Origin,
    Role,
    Session,
    State,
    TextPart,
    ToolCall,
)
from wellkept.core.search import SearchRequest
from wellkept.sessions.records import checksum
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite import checksums
from wellkept.sessions.sqlite.repair import BLOBS_DONE, Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, open_state, state_migrations

SESSION = SessionId("20260101_120000_aaaaaa")
OTHER = SessionId("20260101_130000_bbbbbb")
IMAGE = base64.b64encode(random.Random(1).randbytes(4_000)).decode()


def _new(text, role=Role.USER, **fields):
    return NewMessage(Message(role, text, **fields), 1.7e9, Origin.usual(role))


@pytest.fixture
def path(tmp_path):
    """A closed store: five messages of every kind in one session, one in another."""
    store = SqliteSessionStore(tmp_path / "state.db")
    store.create(Session(SESSION, "cli", 1.7e9))
    store.create(Session(OTHER, "cli", 1.7e9))
    call = ToolCall("call-1", "terminal", '{"command": "zebra crossing"}')
    store.append(
        SESSION,
        [
            _new("the walrus keeps its tusk"),
            _new("I will look", Role.ASSISTANT, tool_calls=(call,), reasoning="narwhal thoughts"),
            _new("plenty of output", Role.TOOL, tool_call_id="call-1", tool_name="terminal"),
            _new((TextPart("an image of a gannet"), ImagePart("image/png", IMAGE))),
            NewMessage(Message(Role.USER, "short"), 1.7e9, Origin.PERSON, api_content="short, with what was recalled"),
        ],
    )
    store.append(OTHER, [_new("a healthy penguin")])
    store.close()
    return tmp_path / "state.db"


def _flip(path, text, at=1, mask=0x80):
    data = bytearray(path.read_bytes())
    place = data.index(text.encode())
    data[place + at] ^= mask
    path.write_bytes(data)


def _open(path):
    return closing(SqliteSessionStore(path))


def test_a_healthy_store_has_no_damaged_message(path):
    """Every kind of message matches its checksum, and so it does after it was read again."""
    with _open(path) as store:
        assert list(checksums.check_rows(store.database.connection)) == []
        assert not any(message.is_damaged for message in store.messages(SESSION))
        assert store.upkeep.check() == []


@pytest.mark.parametrize("mask", [0x80, 0x01])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("walrus keeps", 1),
        ("zebra crossing", 2),
        ("narwhal thoughts", 2),
        ("terminalcall-1", 3),  # two columns, one after the other
        ("plenty of", 3),
        ("an image of a gannet", 4),
        ("with what was", 5),
    ],
)
def test_one_flipped_bit_is_shown_and_named(path, text, number, mask):
    """The message says that it is damaged, whatever column was hit; the other messages are as before."""
    with _open(path) as store:
        before = store.messages(SESSION)
    _flip(path, text, mask=mask)

    with _open(path) as store:
        shown = store.messages(SESSION)
        (found,) = store.upkeep.check()

    assert [message.id for message in shown if message.is_damaged] == [number]
    assert found.what.startswith(f"message {number} of session {SESSION} is damaged: ")
    assert [one for one in shown if one.id != number] == [one for one in before if one.id != number]
    assert shown[number - 1].message.text.startswith("[damaged: ")
    assert shown[number - 1].api_content is None


def _flip_at(path, at, mask):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def test_what_can_be_read_is_shown(path):
    """Unreadable bytes become U+FFFD, the rest of the text stays."""
    _flip(path, "walrus")

    with _open(path) as store:
        assert store.messages(SESSION)[0].message.content == "[damaged: the w\ufffdlrus keeps its tusk]"
        assert store.upkeep.check()[0].what.endswith("its text is not valid UTF-8")


def test_search_reading_export_reindex_and_forget_go_on(path):
    """Everything works around a damaged message, and it can be forgotten."""
    _flip(path, "walrus")

    with _open(path) as store:
        assert store.search(SearchRequest("tusk")).messages[0].message_id == 1
        assert store.search(SearchRequest("penguin")).messages[0].message_id == 6
        assert store.preview(SESSION) == "[damaged: the w\ufffdlrus keeps its tusk]"
        lines = list(store.transfer.export())
        assert [line.get("damaged") for line in lines if line.get("id")] == [True, *[None] * 5]
        assert store.context(SESSION)[0].is_damaged
        assert store.upkeep.reindex() == 6
        assert store.search(SearchRequest("tusk")).messages[0].message_id == 1
        plan = store.forgetting.plan_query("keeps its tusk")
        assert plan.messages == (1,)
        assert store.forgetting.carry_out(plan).still_found == 0
        assert store.upkeep.check() == []


def test_a_session_with_a_damaged_message_can_be_forgotten(path):
    """The whole session goes, as usual."""
    _flip(path, "walrus")

    with _open(path) as store:
        report = store.forgetting.carry_out(store.forgetting.plan_sessions([SESSION]))

        assert (report.messages, report.still_found) == (5, 0)


def test_a_damaged_export_can_be_imported(path, tmp_path):
    """The marked text is ordinary text in another store."""
    _flip(path, "walrus")

    with _open(path) as store:
        lines = [json.dumps(line).encode() for line in store.transfer.export()]
    with _open(tmp_path / "other.db") as other:
        assert other.transfer.import_lines(lines).problems == []
        assert other.messages(SESSION)[0].message.text == "[damaged: the w\ufffdlrus keeps its tusk]"
        assert other.upkeep.check() == []


def test_a_damaged_image_is_not_sent(path):
    """An image that does not match its hash is shown as text: an endpoint would refuse the whole request."""
    data = path.read_bytes()
    raw = base64.b64decode(IMAGE)
    _flip_at(path, data.index(raw[:40]) + 5, 0x01)

    with _open(path) as store:
        message = store.messages(SESSION)[3]
        (found,) = store.upkeep.check()

    assert message.is_damaged
    assert message.message.content == (TextPart("[damaged: an image of a gannet\n[an image of type image/png]]"),)
    assert found.what.startswith(f"message 4 of session {SESSION} is damaged: its image")


@pytest.mark.parametrize("column", ["content", "role", "tool_calls", "parts", "timestamp", "origin", "token_count"])
@pytest.mark.parametrize("value", [b"\x00\xff", "text", 7, 1.5])
def test_columns_of_the_wrong_type_are_read(path, column, value):
    """Damage in the head of a row changes types; every way of reading copes with them."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DROP TRIGGER messages_changed")
        connection.execute(f"UPDATE messages SET {column} = ? WHERE id = 2", (value,))

    with _open(path) as store:
        assert store.messages(SESSION)[1].is_damaged
        assert store.context(SESSION)[1].message.text.startswith("[damaged: ")
        assert store.search(SearchRequest("penguin")).messages[0].message_id == 6
        assert len(list(store.transfer.export())) == 8
        store.upkeep.reindex()
        store.search(SearchRequest("walrus text 7 1.5 look"))
        assert store.forgetting.plan_query("walrus").messages == (1,)
        assert store.forgetting.carry_out(store.forgetting.plan_sessions([SESSION])).messages == 5


def test_state_changes_keep_the_checksum(path):
    """Compaction and rewinding flip the state only: rows stay whole without a new checksum."""
    with _open(path) as store:
        before = _checksums(store)
        store.rewind(SESSION, store.messages(SESSION)[3].id)
        store.restore_rewound(SESSION)
        summary = Message(Role.USER, "a summary")
        ids = [message.id for message in store.messages(SESSION)]
        store.compact(
            SESSION,
            Compaction((), summary, ids[:3], (), ids[3:], 0, 0, in_place=True, timestamp=1.7e9),
        )

        after = _checksums(store)
        assert {number: after[number] for number in before} == before
        assert store.messages(SESSION)[0].state is State.COMPACTED
        assert store.upkeep.check() == []


def _checksums(store):
    return dict(store.database.connection.execute("SELECT id, checksum FROM messages"))


def test_rows_that_the_store_changes_are_whole(path):
    """Blanked and handed-over messages get a new checksum."""
    with _open(path) as store:
        store.branch(SESSION, at=store.messages(SESSION)[1].id, new=Session(SessionId("c" * 20), "cli", 1.7e9))
        store.upkeep.delete([SESSION])
        store.upkeep.sweep(days=-1)
        store.forgetting.scrub_entries(["nothing"])
        store.search(SearchRequest("walrus"))

        assert list(checksums.check_rows(store.database.connection)) == []
        assert None not in _checksums(store).values()


def test_what_another_program_writes_is_whole(path):
    """Its rows have no checksum until the next search; a changed row loses its own."""
    with closing(apsw.Connection(str(path))) as other:
        other.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'new', 5)", (OTHER,)
        )
        other.execute("UPDATE messages SET reasoning = 'other thoughts' WHERE id = 2")
        other.execute("UPDATE messages SET content = 'the seal keeps its tusk' WHERE id = 1")

    with _open(path) as store:
        assert not any(message.is_damaged for message in store.messages(SESSION))
        store.search(SearchRequest("seal"))
        assert None not in _checksums(store).values()
        assert store.upkeep.check() == []


def test_old_files_get_checksums_in_steps(tmp_path, monkeypatch):
    """Opening an old file computes nothing; closing after writes computes some, until every row has one."""
    old = Database(tmp_path / "state.db", application_id=APPLICATION_ID, migrations=state_migrations()[:4])
    with old.writing() as connection:
        connection.execute("INSERT INTO sessions (id, source, started) VALUES (?, 'cli', 1)", (SESSION,))
        rows = [(SESSION, f"message {number}") for number in range(25)]
        connection.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 1)", rows
        )
        connection.execute("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 7")
    old.close()
    monkeypatch.setattr(checksums, "_BATCH", 10)

    with _open(tmp_path / "state.db") as store:
        assert set(_checksums(store).values()) == {None}
        assert store.messages(SESSION)[6].message.content == "[damaged: a\ufffdb]"
        store.append(SESSION, [_new("one more")])
    with _open(tmp_path / "state.db") as store:
        without = [number for number, value in _checksums(store).items() if value is None]

        assert without == [7]  # a damaged row gets none: it would count as whole
        assert [finding.what for finding in store.upkeep.check()] == [
            f"message 7 of session {SESSION} is damaged: its text is not valid UTF-8"
        ]
        assert store.database.connection.execute(checksums.SQL.missing_to).fetchone() is None


def test_the_checksum_is_recorded():
    """These numbers are in people's files: they must be the same with every version of Python and of kept."""
    row = (7, "s", "user", "ünï \0 text", 1.7e9, None, "tool", None, None, None, "[]", 12, None, "x", 0)

    assert checksum((*row, "active", None, None)) == checksum((*row, "compacted", None, 1))
    assert checksum((*row, "active", None)) == 2_269_684_904


def test_every_flip_in_the_text_is_found(path):
    """Whatever bit of a stored text flips, the message is damaged, and no reading fails."""
    chance = random.Random(3)
    whole = path.read_bytes()
    start = whole.index(b"the walrus keeps its tusk")
    for _ in range(40):
        path.write_bytes(whole)
        _flip_at(path, start + chance.randrange(25), 1 << chance.randrange(8))
        with _open(path) as store:
            assert [message.is_damaged for message in store.messages(SESSION)] == [True, False, False, False, False]


def test_repair_names_a_damaged_message_and_leaves_the_file(path):
    """No repair can bring the text back, so nothing is set aside."""
    from wellkept.core.clock import SystemClock
    from wellkept.core.ports import ignore
    from wellkept.sessions.settings import SessionSettings
    from wellkept.sessions.sqlite.repair import Repair

    _flip(path, "walrus")

    report = Repair(path, SessionSettings(), clock=SystemClock(), sink=ignore).run()

    assert [finding.what for finding in report.left] == [
        f"message 1 of session {SESSION} is damaged: its text is not valid UTF-8"
    ]
    assert report.put_aside is None
    assert open_state(path).connection.execute("SELECT count(*) FROM messages").fetchone() == (6,)


def _change(path, *statements):
    """Change the file as damage does: without triggers, checksums and checks."""
    connection = apsw.Connection(str(path))
    for sql in statements:
        connection.execute(sql)
    connection.close()


def _findings(path):
    with closing(SqliteSessionStore(path)) as store:
        return [finding.what for finding in store.upkeep.check()]


def _repair(path):
    return Repair(path, SessionSettings(), clock=SystemClock(), sink=lambda event: None).run()


def _image_of(path):
    with closing(SqliteSessionStore(path)) as store:
        message = next(one for one in store.messages(SESSION) if isinstance(one.message.content, tuple))
        return next((part.data for part in message.message.content if isinstance(part, ImagePart)), None)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE blobs SET hash = 'f' || substr(hash, 2)",
        "UPDATE blob_uses SET hash = 'f' || substr(hash, 2)",
        "DELETE FROM blob_uses",
        "INSERT INTO blob_uses SELECT 1, hash FROM blobs",
    ],
)
def test_a_repair_gives_an_image_back_to_the_message_that_names_it(path, damage):
    """The message names the hash of its image, and the content of the image has that hash: both can be set right."""
    _change(path, damage)
    assert _findings(path) != []

    report = _repair(path)

    assert report.done == [BLOBS_DONE]
    assert (_findings(path), _image_of(path)) == ([], IMAGE)


def test_an_image_that_a_repair_named_anew_is_forgotten_with_its_message(path):
    """With a damaged list of uses the image would stay in the file for ever."""
    _change(path, "UPDATE blob_uses SET hash = 'f' || substr(hash, 2)")
    _repair(path)

    with closing(SqliteSessionStore(path)) as store:
        store.forgetting.carry_out(store.forgetting.plan_sessions([SESSION]))

    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM blobs").fetchall() == [(0,)]


def test_a_lost_image_is_named_with_its_message(path):
    """Nothing can bring it back, so the repair leaves everything as it is."""
    _change(path, "DELETE FROM blobs")

    report = _repair(path)

    told = [f"message 4 of session {SESSION} is damaged: its image or encoded data is lost"]
    assert ([one.what for one in report.found], [one.what for one in report.left], report.done) == (told, told, [])
