"""The page reader: on healthy files it reads what SQLite reads; on damaged ones, every cell that is whole."""

import random
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.salvage.pages import PageFile
from wellkept.salvage.rows import Salvage, describe_shapes
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database, state_migrations
from wellkept.storage.versions import find_version

SCHEMA = """
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, person TEXT NOT NULL, text TEXT, weight REAL, data BLOB);
CREATE INDEX notes_person ON notes (person);
CREATE TABLE pairs (person TEXT NOT NULL, place INTEGER NOT NULL, text TEXT, PRIMARY KEY (person, place)) WITHOUT ROWID;
CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
TABLES = ("notes", "pairs", "blobs", "sqlite_sequence")


def open_file(path, page_bytes=1_024, *, wal=False):
    connection = apsw.Connection(str(path))
    connection.pragma("page_size", page_bytes)
    if wal:
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", 0)
    connection.execute(SCHEMA)
    return connection


def fill(connection, seed, count, *, numbers=(None, None, -1, 2**40)):
    choose = random.Random(seed)

    def text(most):
        return "".join(choose.choices("abcäöß🙂 \0", k=choose.randrange(most)))

    with connection:
        for number in range(count):
            most = 40 if choose.random() < 0.9 else 6_000
            weight = choose.choice([None, 1.5, float(number), -3.0, 1e300])
            blob = choose.randbytes(choose.randrange(most))
            first = choose.choice(numbers)
            numbered = (first and first * (number + 1), text(9), text(most), weight, blob)
            connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?, ?, ?, ?)", numbered)
            connection.execute("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?)", (text(most // 4 + 2), number, text(20)))
            connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (f"{number:064}", blob))


def salvage_of(path, connection):
    return Salvage(PageFile(path), describe_shapes(connection))


def read(salvage, table):
    columns = salvage.shapes[table].columns
    return sorted((tuple(row.values[name] for name in columns) for row in salvage.rows(table)), key=repr)


def wanted(connection, salvage, table):
    columns = ", ".join(salvage.shapes[table].columns)
    return sorted((tuple(row) for row in connection.execute(f"SELECT {columns} FROM {table}")), key=repr)


@settings(max_examples=settings.default.max_examples // 3)
@given(
    seed=st.integers(0, 2**32),
    page_bytes=st.sampled_from([512 << power for power in range(8)]),
    count=st.integers(0, 120),
    wal=st.booleans(),
    steps=st.lists(st.sampled_from(["delete", "update", "vacuum", "checkpoint", "fill"]), max_size=4),
)
def test_a_healthy_file_is_read_as_sqlite_reads_it(tmp_path_factory, seed, page_bytes, count, wal, steps):
    """Any page size, rows of any length, deletions, a vacuum, a log that was not copied back: the same rows."""
    path = tmp_path_factory.mktemp("healthy") / "a.db"
    connection = open_file(path, page_bytes, wal=wal)
    fill(connection, seed, count)
    for step in steps:
        match step:
            case "delete":
                connection.execute("DELETE FROM notes WHERE id % 3 = 0; DELETE FROM pairs WHERE place % 4 = 1")
            case "update":
                connection.execute("UPDATE notes SET text = text || text WHERE id % 5 = 0")
            case "vacuum":
                connection.execute("VACUUM")
            case "checkpoint":
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            case "fill":
                fill(connection, seed + 1, count // 2)

    salvage = salvage_of(path, connection)

    assert salvage.file.page_bytes == page_bytes
    for table in TABLES:
        assert read(salvage, table) == wanted(connection, salvage, table), table
        assert all(row.damage == "" and row.is_reached for row in salvage.rows(table))
        assert salvage.extents[table].is_complete, table
    connection.close()
    shutil.rmtree(path.parent)


@pytest.fixture
def healthy(tmp_path):
    """A file with a few hundred rows, and what SQLite reads from it."""
    path = tmp_path / "a.db"
    connection = open_file(path)
    fill(connection, 5, 200, numbers=(None,))
    yield path, connection
    connection.close()


def damage(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def pages_of(connection, name, kind):
    rows = connection.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ?", (name, kind))
    return [int(row[0]) for row in rows.fetchall()]


@pytest.mark.parametrize("bytes_lost", [16, 100])
def test_without_its_header_a_file_is_read_completely(healthy, bytes_lost):
    """Page size and roots are found without the first hundred bytes."""
    path, connection = healthy
    salvage = salvage_of(path, connection)
    before = {table: wanted(connection, salvage, table) for table in TABLES}
    shapes = describe_shapes(connection)
    damage(path, 0, bytes(bytes_lost))

    salvage = Salvage(PageFile(path), shapes)

    assert {table: read(salvage, table) for table in TABLES} == before


@pytest.mark.parametrize("page", ["root", "schema"])
def test_leaves_are_found_without_the_pages_that_lead_to_them(healthy, page):
    """A zeroed root, or a zeroed schema page: every row is still there, found by the form of its page."""
    path, connection = healthy
    salvage = salvage_of(path, connection)
    before = {table: wanted(connection, salvage, table) for table in ("notes", "blobs")}
    shapes = describe_shapes(connection)
    root = pages_of(connection, "notes", "internal")[0] if page == "root" else 1
    damage(path, (root - 1) * 1_024, bytes(1_024))

    salvage = Salvage(PageFile(path), shapes)

    assert {table: read(salvage, table) for table in ("notes", "blobs")} == before


@pytest.mark.parametrize("offset", [0, 1, 3, 5, 8, 9])
def test_a_cell_is_found_although_the_header_of_its_page_is_damaged(healthy, offset):
    """Kind, cell count, content area or a pointer of a leaf: its cells are whole and are read."""
    path, connection = healthy
    salvage = salvage_of(path, connection)
    before = wanted(connection, salvage, "notes")
    shapes = describe_shapes(connection)
    leaf = pages_of(connection, "notes", "leaf")[2]
    damage(path, (leaf - 1) * 1_024 + offset, b"\xff")

    salvage = Salvage(PageFile(path), shapes)
    found = {row.number: tuple(row.values.values()) for row in salvage.rows("notes") if not row.damage}

    assert sorted(found.values(), key=repr) == before


def test_a_file_that_is_cut_inside_a_page_gives_the_cells_before_the_cut(healthy):
    """The tree does not lead to the page any more, and most of its cells are gone; the others are whole."""
    path, connection = healthy
    shapes = describe_shapes(connection)
    leaf = pages_of(connection, "notes", "leaf")[-1]
    tree = PageFile(path).tree(leaf)
    first = min(tree.cells, key=lambda cell: cell.start)
    with path.open("r+b") as file:
        file.truncate((leaf - 1) * 1_024 + first.end)

    rows = Salvage(PageFile(path), shapes).rows("notes")

    assert first.rowid in {row.number for row in rows if not row.damage}


def test_a_broken_chain_is_reported(healthy):
    """A row whose overflow pages lead astray is given with what can be read, and called damaged."""
    path, connection = healthy
    shapes = describe_shapes(connection)
    page = pages_of(connection, "notes", "overflow")[0]
    damage(path, (page - 1) * 1_024, b"\xff\xff\xff\xff")

    rows = list(Salvage(PageFile(path), shapes).rows("notes"))

    assert [row.damage for row in rows if row.damage] == ["its overflow pages are damaged"]
    assert len(rows) == len({row.number for row in rows}) > 150


def test_deleted_rows_stay_deleted(healthy):
    """Rows on free pages and in free blocks are not brought back, also when a tree is damaged."""
    path, connection = healthy
    connection.execute("DELETE FROM notes WHERE id BETWEEN 40 AND 150")
    left = {row[0] for row in connection.execute("SELECT id FROM notes")}
    shapes = describe_shapes(connection)
    root = pages_of(connection, "notes", "internal")[0]
    damage(path, (root - 1) * 1_024, bytes(1_024))

    rows = list(Salvage(PageFile(path), shapes).rows("notes"))

    assert {row.number for row in rows} == left


def copy_with_log(path: Path, folder: Path) -> Path:
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", folder / f"a.db{suffix}")
    return folder / "a.db"


def test_frames_after_a_damaged_one_are_read(tmp_path):
    """SQLite ignores the log from a damaged frame on; what was committed later is still found."""
    path = tmp_path / "a.db"
    connection = open_file(path, wal=True)
    for number in range(30):
        connection.execute("INSERT INTO notes (person, text) VALUES (?, ?)", (f"p{number}", "words " * 150))
    shapes = describe_shapes(connection)
    copy = copy_with_log(path, tmp_path / "copy")
    log = copy.with_name("a.db-wal")
    healthy = PageFile(copy)
    # the frame of a leaf that no later frame replaces: only its own row may suffer
    damage(log, 32 + 24 + 12 * (1_024 + 24), b"\xff" * 10)

    file = PageFile(copy)
    found = {row.values["person"] for row in Salvage(file, shapes).rows("notes") if not row.damage}

    assert not healthy.log.is_damaged
    assert file.log.is_damaged
    assert len(found) >= 28
    connection.close()


def test_a_log_longer_than_its_content_is_not_damaged(tmp_path):
    """A log keeps the frames of the round before, and its length may be no multiple of a frame."""
    path = tmp_path / "a.db"
    connection = open_file(path, wal=True)
    fill(connection, 3, 100)
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute("INSERT INTO notes (person) VALUES ('late')")
    with path.with_name("a.db-wal").open("ab") as log:
        log.write(bytes(500))

    file = PageFile(path)

    assert (file.log.is_damaged, file.log.is_cut) == (False, False)
    assert "late" in {row.values["person"] for row in salvage_of(path, connection).rows("notes")}
    connection.close()


ALIKE = """
CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER) WITHOUT ROWID;
"""


def test_a_row_that_proves_its_table_decides_between_alike_ones(tmp_path):
    """Without the schema a number looks like a time; the table that a row recognises is right."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(ALIKE)
        connection.execute("INSERT INTO settings VALUES ('colour', 'green', 7)")
        shapes = describe_shapes(connection)
        page_bytes = int(str(connection.pragma("page_size")))
    damage(path, 100, bytes(page_bytes - 100))
    salvage = Salvage(PageFile(path))

    salvage.use(shapes, recognise=lambda table, row: table == "settings" and row.values.get("checksum") == 7)

    assert read(salvage, "settings") == [("colour", "green", 7)]
    assert read(salvage, "leases") == []


def test_the_version_is_found_although_declarations_are_lost(tmp_path):
    """A lost page of the schema is not a sign of an older version."""
    version = state_migrations()[-2].version
    path = tmp_path / "state.db"
    steps = [step for step in state_migrations() if step.version <= version]
    Database(path, application_id=APPLICATION_ID, migrations=steps).close()
    with closing(apsw.Connection(str(path))) as connection:
        leaves = pages_of(connection, "sqlite_schema", "leaf")
        page_bytes = int(str(connection.pragma("page_size")))
    healthy = path.read_bytes()

    for kept in (leaves[0], leaves[len(leaves) // 2], leaves[-1]):
        path.write_bytes(healthy)
        for page in set(leaves) - {kept}:
            damage(path, (page - 1) * page_bytes, bytes(page_bytes))
        assert find_version(Salvage(PageFile(path)), state_migrations()) == version, kept
