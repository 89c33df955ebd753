"""Damage in ledger.db: the pages stay usable, the row is named, and repair rebuilds or marks it."""

import random
from contextlib import closing

import apsw
import pytest

from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.ids import SessionId
from wellkept.memory.approval import Approvals
from wellkept.memory.history import History, read_log, undo
from wellkept.memory.ledger import Ledger, LedgerRow
from wellkept.memory.page import Add, Author, LedgerRepair, Remove, Replace, Target, replay
from wellkept.memory.rewrite import repair_ledger
from wellkept.memory.store import MemoryStore
from wellkept.storage.sqlite import PAGE_BYTES

EDITS = 6


@pytest.fixture
def folder(tmp_path):
    """Pages with five edits, closed: an entry, one replaced, one removed, one of a session, one of the other page."""
    with closing(MemoryStore(tmp_path / "memories")) as store:
        store.apply("memory", Add("the walrus keeps its tusk"))
        store.apply("memory", Add("a plain penguin"))
        store.apply("memory", Replace("penguin", "a fancy gannet"))
        store.apply(
            "memory", Add("zebra of a session"), Author(session_id=SessionId("s1"), allow=frozenset({"persona"}))
        )
        store.apply("memory", Remove("zebra"))
        store.apply("user", Add("prefers herons"))
    return tmp_path / "memories"


def _flip(folder, text, at=1, mask=0x80):
    path = folder / "ledger.db"
    data = bytearray(path.read_bytes())
    data[data.index(text.encode()) + at] ^= mask
    path.write_bytes(data)


def _open(folder):
    return closing(MemoryStore(folder))


@pytest.mark.parametrize("mask", [0x80, 0x01])
@pytest.mark.parametrize("text", ["walrus", "plain penguin", "zebra of", "herons"])
def test_one_flipped_bit_stops_nothing(folder, text, mask):
    """Adding, listing, searching, undoing and forgetting work; the row is known as damaged and allows nothing."""
    _flip(folder, text, mask=mask)

    with _open(folder) as store:
        (damaged,) = store.ledger.damaged()
        assert not isinstance(store.apply("memory", Add("a new fact")), Refused)
        assert store.entries("memory") == ["the walrus keeps its tusk", "a fancy gannet", "a new fact"]
        shown = next(row for row in read_log(store).records if row.id == damaged)
        assert (shown.is_damaged, shown.allowed, shown.as_json()["damaged"]) == (True, frozenset(), True)
        assert (shown.step.before or "").startswith("[damaged: ")
        assert not isinstance(undo(store), Refused)
        assert store.entries("memory") == ["the walrus keeps its tusk", "a fancy gannet"]
        store.ledger.forget_words(["gannet"])
        store.ledger.forget_session(SessionId("s1"))
        History(store).archive("zebra")
        assert len(store.ledger.damaged()) <= 1


@pytest.mark.parametrize("text", ["walrus", "plain penguin", "herons"])
def test_repair_rebuilds_a_flipped_bit(folder, text):
    """The checksum proves what was written, so the row is as before."""
    with _open(folder) as store:
        before = store.ledger.rows()
    _flip(folder, text)

    with _open(folder) as store:
        repaired = repair_ledger(store)

        assert (len(repaired.rebuilt), repaired.marked) == (1, ())
        assert store.ledger.rows() == before
        assert store.ledger.damaged() == []


def test_a_flipped_bit_is_found_in_a_text_that_is_nowhere_else(folder):
    """Of a rejected write the ledger has the only copy."""
    with _open(folder) as store:
        approvals = Approvals(folder / "pending", store)
        approvals.reject(approvals.stage(Target.MEMORY, (Add("a lonely ibex"),), Author(), why="x").id)
    _flip(folder, "lonely ibex")

    with _open(folder) as store:
        assert len(repair_ledger(store).rebuilt) == 1
        assert "a lonely ibex" in {row.step.before for row in store.ledger.rows()}


def test_repair_marks_what_it_cannot_rebuild(folder):
    """The row says that it is damaged, keeps what can be read, and is whole from then on."""
    _damage_row(folder, 2, after=b"a pl\xff\xffn penguin")
    _damage_row(folder, 3, before=b"a \xff\xffain penguin")

    with _open(folder) as store:
        assert repair_ledger(store).marked == (2, 3)
        assert store.ledger.damaged() == []
        row = History(store).row(2)
        assert (row.step.action, row.is_damaged, row.reason) == ("archive", False, "damaged on the disk")
        assert row.step.before == "[damaged: a pl\ufffd\ufffdn penguin]"
        assert not isinstance(store.apply("memory", Add("after")), Refused)
        assert not isinstance(undo(store), Refused)


def _damage_row(folder, number, **columns):
    """Change columns of a row as damage would, without its checksum; bytes become text."""
    with closing(apsw.Connection(str(folder / "ledger.db"))) as connection:
        for name, value in columns.items():
            what = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
            connection.execute(f"UPDATE edits SET {name} = {what} WHERE id = ?", (value, number))


def test_undo_of_a_damaged_edit_is_refused(folder):
    """It goes no further back by itself, and names the next step."""
    with _open(folder) as store:
        store.apply("memory", Add("newest of all"))
    _flip(folder, "newest of all", mask=0x01)

    with _open(folder) as store:
        refused = undo(store)

        assert refused.reason is Reason.MOVED_ON
        assert "edit 7" in refused.error.lower()
        assert "repair" in refused.remedy
        assert "newest of all" in store.entries("memory")


@pytest.mark.parametrize("value", [b"\xff", "text", 7, 1.5, None])
def test_columns_of_any_value_are_read(folder, value):
    """Damage in the head of a row changes types; reading, writing, undoing and repairing cope with them."""
    with closing(apsw.Connection(str(folder / "ledger.db"))) as connection:
        # a table without constraints, as damage does not respect them
        columns = ", ".join(LedgerRow._fields)
        connection.execute(f"CREATE TABLE loose AS SELECT {columns} FROM edits")
        connection.execute("DROP TABLE edits")
        others = ", ".join(LedgerRow._fields[1:])
        connection.execute(f"CREATE TABLE edits (id INTEGER PRIMARY KEY AUTOINCREMENT, {others}, voided DEFAULT 0)")
        connection.execute(f"INSERT INTO edits ({columns}) SELECT {columns} FROM loose")
    whole = (folder / "ledger.db").read_bytes()
    for column in LedgerRow._fields[1:-1]:
        (folder / "ledger.db").write_bytes(whole)
        _damage_row(folder, 3, **{column: value})
        with _open(folder) as store:
            read_log(store)
            assert not isinstance(store.apply("memory", Add("a new fact")), Refused), column
            assert not isinstance(undo(store), Refused), column
            assert store.entries("memory") == ["the walrus keeps its tusk", "a fancy gannet"], column
            repair_ledger(store)
            assert store.ledger.damaged() == [], column
            store.ledger.forget_words(["gannet"])


def test_the_page_stays_when_its_newest_row_is_damaged(folder):
    """The ledger records the page as it is; nothing is voided and nothing is lost."""
    _damage_row(folder, 5, page_after=b"\xff", before=b"\xff")

    with _open(folder) as store:
        store.apply("memory", Add("later"))

        assert store.entries("memory") == ["the walrus keeps its tusk", "a fancy gannet", "later"]
        assert replay(store.ledger.rows(Target.MEMORY)) == ("the walrus keeps its tusk", "a fancy gannet", "later")


def test_rows_of_an_older_version_get_their_checksum_with_the_next_edit(folder):
    """Reading writes nothing; the next write fills in what is missing."""
    with closing(apsw.Connection(str(folder / "ledger.db"))) as connection:
        connection.execute("UPDATE edits SET checksum = NULL")

    with _open(folder) as store:
        assert store.ledger.damaged() == []
        store.apply("memory", Add("later"))
    with closing(apsw.Connection(str(folder / "ledger.db"))) as connection:
        assert connection.execute("SELECT count(*) FROM edits WHERE checksum IS NULL").fetchall() == [(0,)]


def test_blanked_rows_are_whole(folder):
    """Forgetting changes texts and their checksums together."""
    with _open(folder) as store:
        assert store.ledger.forget_session(SessionId("s1"))
        assert store.ledger.forget_entry(Target.MEMORY, "a fancy gannet")
        assert store.ledger.forget_words(["walrus"])

        assert store.ledger.damaged() == []


def test_the_checksum_of_a_row_is_recorded():
    """It is in people's files: the same with every version."""
    row = LedgerRow(
        1, 1, "g", 1.7e9, "memory", "add", None, "ünï", 0, "user", None, "owner", None, None, None, "a", "b", 5
    )

    assert row.with_checksum().checksum == 3_742_348_914


def test_random_damage_never_raises_a_bug(folder):
    """Whatever bytes of the rows' page change: either SQLite says so, or every row is read."""
    whole = (folder / "ledger.db").read_bytes()
    start = whole.index(b"prefers herons") & ~0x7FF
    chance = random.Random(5)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[start + chance.randrange(2_048)] ^= 1 << chance.randrange(8)
        (folder / "ledger.db").write_bytes(data)
        ledger = Ledger(folder / "ledger.db")
        try:
            ledger.rows()
            ledger.damaged()
            ledger.newest(Target.MEMORY)
        except StorageError:
            continue
        finally:
            ledger.close()


DAMAGED_PAGES = {"header": (0, 100), "an index": (3 * PAGE_BYTES, PAGE_BYTES), "schema": (0, PAGE_BYTES)}


@pytest.mark.parametrize("place", DAMAGED_PAGES)
def test_a_damaged_file_is_replaced_by_the_edits_that_can_be_read(folder, place):
    """The old file stays beside it, undo works again, and nothing is left to repair."""
    start, size = DAMAGED_PAGES[place]
    with (folder / "ledger.db").open("r+b") as file:
        file.seek(start)
        file.write(bytes(size))

    with _open(folder) as store:
        with pytest.raises(StorageError):
            store.ledger.damaged()
        done = repair_ledger(store)
        again = repair_ledger(store)
        whole = len(read_log(store).records)
        assert not isinstance(store.apply("memory", Add("a new fact")), Refused)
        assert not isinstance(undo(store), Refused)

    assert [path.name for path in folder.glob("ledger.db.damaged-*[0-9]")] == [done.put_aside]
    assert done.saved == whole == (0 if place == "schema" else EDITS)
    assert again == LedgerRepair()
