"""Pages in the wrong place, lost declarations and what indexes say: rows find their table by what they hold."""

from contextlib import closing

import apsw
import pytest

from wellkept.salvage.pages import PageFile
from wellkept.salvage.rows import Extent, Row, Salvage, describe_shapes, gather_evidence, insert_row, key_of

SIZE = 512
SCHEMA = """
CREATE TABLE cats (id INTEGER PRIMARY KEY, name TEXT NOT NULL, proof TEXT);
CREATE TABLE dogs (id INTEGER PRIMARY KEY, name TEXT NOT NULL, proof TEXT);
CREATE TABLE none (id INTEGER PRIMARY KEY, name TEXT NOT NULL, proof TEXT);
CREATE TABLE pairs (a TEXT, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE INDEX dogs_name ON dogs (name);
CREATE INDEX dogs_some ON dogs (proof) WHERE id > 3;
"""
TABLES = ("cats", "dogs", "pairs")


@pytest.fixture
def made(tmp_path):
    """A file with pages of three tables, the first page of each tree, and the shapes."""
    path = tmp_path / "a.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("page_size", SIZE)
        with connection:
            connection.execute(SCHEMA)
            for table in ("cats", "dogs"):
                rows = [(n, f"{table} {n}", table) for n in range(1, 7)]
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
            connection.executemany("INSERT INTO pairs VALUES (?, ?)", [("x", n) for n in range(5)])
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema").fetchall())
        return path, roots, describe_shapes(connection)


def prove(table, row):
    """Whether a row belongs to a table for certain."""
    return row.values.get("proof") == table


def open_salvage(path, shapes, recognise=prove):
    salvage = Salvage(PageFile(path))
    salvage.use(shapes, recognise=recognise)
    return salvage


def names(salvage, table):
    return sorted(str(row.values.get("name")) for row in salvage.rows(table) if not row.damage)


def expected(table):
    return [f"{table} {n}" for n in range(1, 7)]


def swap(path, one, two):
    data = bytearray(path.read_bytes())
    first, second = (slice((page - 1) * SIZE, page * SIZE) for page in (one, two))
    data[first], data[second] = bytes(data[second]), bytes(data[first])
    path.write_bytes(data)


def overwrite(path, at, new):
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def test_a_healthy_file_has_everything_in_its_place(made):
    """Every tree is complete, nothing is misplaced or lost."""
    path, _, shapes = made
    salvage = open_salvage(path, shapes)

    assert (names(salvage, "cats"), names(salvage, "dogs"), names(salvage, "none")) == (expected("cats"), expected("dogs"), [])  # fmt: skip
    assert salvage.find_misplaced() == []
    assert salvage.is_schema_complete
    for name in (*TABLES, "none", "dogs_name", "dogs_some"):
        assert salvage.extents[name].is_complete
        assert salvage.find_lost_pages(name) == []
    assert all(row.is_reached and row.is_of_table for name in TABLES for row in salvage.rows(name))


def test_pages_of_two_tables_that_changed_places_are_changed_back(made):
    """By their types each fits the other tree; what the rows prove decides, and they are not copies left behind."""
    path, roots, shapes = made
    swap(path, roots["cats"], roots["dogs"])

    salvage = open_salvage(path, shapes)

    assert sorted(salvage.find_misplaced()) == [("cats", "dogs"), ("dogs", "cats")]
    assert (names(salvage, "cats"), names(salvage, "dogs")) == (expected("cats"), expected("dogs"))
    assert all(row.is_reached for row in salvage.rows("cats"))
    assert salvage.extents["cats"].gaps


def test_without_proof_nothing_is_moved(made):
    """The trees are believed."""
    path, roots, shapes = made
    swap(path, roots["cats"], roots["dogs"])

    salvage = open_salvage(path, shapes, recognise=None)

    assert salvage.find_misplaced() == []
    assert (names(salvage, "cats"), names(salvage, "dogs")) == (expected("dogs"), expected("cats"))


@pytest.mark.parametrize("table", ["cats", "dogs"])
def test_rows_in_the_place_of_an_empty_table_are_found(made, table):
    """No tree contradicts itself, and one table seems to have no rows."""
    path, roots, shapes = made
    swap(path, roots["none"], roots[table])

    salvage = open_salvage(path, shapes)

    assert salvage.find_misplaced() == [("none", table)]
    assert names(salvage, table) == expected(table)
    assert names(salvage, "none") == []


def test_a_page_of_a_table_and_one_of_another_kind_that_changed_places(made):
    """Neither fits the tree of the other, so both are gaps; the rows are found all the same."""
    path, roots, shapes = made
    swap(path, roots["cats"], roots["pairs"])

    salvage = open_salvage(path, shapes)

    assert names(salvage, "cats") == expected("cats")
    assert sorted(row.values["b"] for row in salvage.rows("pairs") if not row.damage) == list(range(5))


@pytest.mark.parametrize("named", [b"caxscats", b"catscaxs"])
def test_a_table_whose_name_is_damaged_is_known_by_its_declaration(made, named):
    """The schema names it three times; the tree belongs to it and to nothing else."""
    path, roots, shapes = made
    path.write_bytes(path.read_bytes().replace(b"tablecatscats", b"table" + named))

    salvage = open_salvage(path, shapes)

    assert names(salvage, "cats") == expected("cats")
    assert salvage.extents["cats"].pages == [roots["cats"]]
    assert "caxs" not in salvage.extents


def test_a_table_without_its_declaration_is_found_by_its_rows(made):
    """All that belong to nothing could be its pages, if nothing can be read of them."""
    path, roots, shapes = made
    while (at := path.read_bytes().find(b"tablecatscats")) > 0:  # SQLite leaves copies behind
        overwrite(path, at - 6, b"\xff" * 40)
    salvage = open_salvage(path, shapes)
    assert names(salvage, "cats") == expected("cats")
    assert not any(row.is_reached for row in salvage.rows("cats"))

    overwrite(path, (roots["cats"] - 1) * SIZE, b"\xee" * SIZE)
    salvage = open_salvage(path, shapes)
    assert names(salvage, "cats") == []
    assert salvage.find_lost_pages("cats") == []  # nothing says that there was such a table
    overwrite(path, 100, b"\xff" * 8)  # now something of the schema is lost too
    salvage = open_salvage(path, shapes)
    assert not salvage.is_schema_complete
    assert salvage.find_lost_pages("dogs") == []
    assert roots["cats"] in salvage.find_lost_pages("cats")


def test_a_lost_page_is_named_and_its_cells_are_looked_for(made):
    """A page whose first bytes are gone is a gap of the tree; the rows in it are whole."""
    path, roots, shapes = made
    overwrite(path, (roots["dogs"] - 1) * SIZE, b"\xff" * 8)

    salvage = open_salvage(path, shapes)

    assert salvage.find_lost_pages("dogs") == [roots["dogs"]]
    assert not salvage.extents["dogs"].is_complete
    assert names(salvage, "dogs") == expected("dogs")
    assert not any(row.is_reached for row in salvage.rows("dogs"))


def test_the_overflow_pages_of_rows_are_not_lost_pages(made):
    """They belong to their rows, also where the declaration of another table is lost."""
    path, _, shapes = made
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("INSERT INTO dogs VALUES (50, ?, 'dogs')", ("long " * 600,))
    while (at := path.read_bytes().find(b"tablecatscats")) > 0:
        overwrite(path, at - 6, b"\xff" * 40)
    overwrite(path, 100, b"\xff" * 8)

    salvage = open_salvage(path, shapes)

    assert not salvage.is_schema_complete
    assert not any(b"long long" in salvage.file.page(number) for number in salvage.find_lost_pages("cats"))


def test_the_cells_of_a_torn_page_are_given_once(made):
    """Those that a pointer leads to, and then those that none leads to any more."""
    path, roots, shapes = made
    overwrite(path, (roots["dogs"] - 1) * SIZE + 8, b"\x00\x04")  # the first pointer leads into the header

    salvage = open_salvage(path, shapes)

    assert salvage.extents["dogs"].torn == [roots["dogs"]]
    found = [row.values["name"] for row in salvage.rows("dogs") if not row.damage]
    assert sorted(found) == expected("dogs")
    assert sum(row.is_reached for row in salvage.rows("dogs")) == 5


def test_a_record_that_does_not_fit_its_table_is_damaged(made):
    """What can be read of it is given, and that it may be made of any bytes."""
    path, _, shapes = made
    data = path.read_bytes()
    overwrite(path, data.index(b"cats 3cats") - 2, b"\x18")  # the name is a blob by its type

    rows = [row for row in open_salvage(path, shapes).rows("cats") if row.damage]

    assert {(row.number, row.is_of_table, row.damage) for row in rows} >= {(3, False, "its record does not fit the table")}  # fmt: skip


@pytest.mark.parametrize(
    ("extent", "is_complete"),
    [
        (Extent([1]), True),
        (Extent(), False),
        (Extent([1], gaps=[2]), False),
        (Extent([1], torn=[1]), False),
        (Extent([1], orphans=[3]), True),
    ],
)
def test_a_tree_is_complete_without_gaps_and_torn_pages(extent, is_complete):
    """Pages that look like a part of it do not matter."""
    assert extent.is_complete is is_complete


# what indexes say


def test_indexes_say_which_rows_there_were(made):
    """One whole index of all rows is enough; what it repeats of a row is known."""
    path, _, shapes = made
    found = gather_evidence(open_salvage(path, shapes), "dogs")

    assert found.expected == set(range(1, 7))
    assert found.complete == {"dogs_name", "dogs_some"}
    assert found.is_certain
    assert found.columns[2] == {"name": "dogs 2"}
    assert found.columns[5] == {"name": "dogs 5", "proof": "dogs"}
    left = Row(9, {}, "", 4, is_reached=False)
    assert found.is_stale(left, 9)
    assert not found.is_stale(left, 2)
    assert not found.is_stale(Row(9, {}, "", 4), 9)


def test_a_damaged_entry_of_an_index_says_nothing(made):
    """Its number could be any; the others count, but the index is not a complete list."""
    path, _, shapes = made
    data = path.read_bytes()
    at = data.index(b"dogs 3\x03")
    overwrite(path, at - 2, b"\x18")  # the name is a blob by its type

    found = gather_evidence(open_salvage(path, shapes), "dogs")

    assert 3 not in found.expected
    assert found.columns[2] == {"name": "dogs 2"}


def test_without_an_index_nothing_is_certain(made):
    """And a table with as many rows, of the same numbers, counts as one."""
    path, _, shapes = made
    salvage = open_salvage(path, shapes)

    alone = gather_evidence(salvage, "cats")
    assert (alone.is_certain, alone.expected, alone.complete) == (False, set(), set())
    assert not alone.is_stale(Row(9, {}, "", 4, is_reached=False), 9)
    beside = gather_evidence(salvage, "cats", ("dogs", "absent"))
    assert (beside.is_certain, beside.expected, beside.columns[1]) == (True, set(range(1, 7)), {})


def test_two_lists_have_to_agree(made):
    """A row that only one of two whole lists has may be a copy that was left in it."""
    path, _, shapes = made
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("INSERT INTO none VALUES (2, 'x', 'none'), (77, 'y', 'none')")
    found = gather_evidence(open_salvage(path, shapes), "dogs", ("none",))

    assert found.expected == {2}
    assert 77 in found.columns


def test_a_row_is_known_by_its_number_or_by_its_whole_key(made):
    """Half a key identifies nothing."""
    shapes = {shape.name: shape for shape in made[2]}

    assert key_of(shapes["dogs"], Row(5, {}, "", 1)) == 5
    assert key_of(shapes["dogs_name"], Row(None, {"name": "x", "rowid": 6}, "", 1)) == 6
    assert key_of(shapes["pairs"], Row(None, {"a": "x", "b": 1}, "", 1)) == ("x", 1)
    assert key_of(shapes["pairs"], Row(None, {"a": "x"}, "", 1)) is None


@pytest.fixture
def target():
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, size INTEGER NOT NULL CHECK (size < 100),"
            " weight REAL, more TEXT CHECK (more <> 'bad') DEFAULT 'usual', raw BLOB NOT NULL)"
        )
        (shape,) = describe_shapes(connection)
        yield connection, shape


def stored(connection):
    return connection.execute("SELECT * FROM t").fetchall()


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ({"id": 1, "name": "a", "size": 2, "weight": 1.5, "more": None, "raw": b"x"}, (1, "a", 2, 1.5, None, b"x")),
        ({"id": 1, "name": None, "size": None, "raw": None}, (1, "", 0, None, "usual", b"")),
        ({"id": 1}, (1, "", 0, None, "usual", b"")),
        ({"id": 1, "name": 7, "size": "x", "weight": b"y", "raw": b"x"}, (1, "7", 0, None, "usual", b"x")),
        ({"id": 1, "name": b"a\xff", "size": 1, "weight": 3, "raw": b""}, (1, "a\ufffd", 1, 3.0, "usual", b"")),
        ({"id": 1, "name": "a", "size": 1, "more": "bad", "raw": b""}, (1, "a", 1, None, "usual", b"")),
    ],
)
def test_a_row_is_inserted_as_far_as_its_table_allows(target, values, row):
    """Values of another type are converted or left out, required ones filled, refused ones get their default."""
    connection, shape = target

    assert insert_row(connection, shape, values)
    assert stored(connection) == [row]


def test_a_row_that_no_default_makes_right_is_refused(target):
    """It is told, not half inserted; so is a second row with the same key."""
    connection, shape = target

    assert not insert_row(connection, shape, {"id": 1, "name": "a", "size": 200, "raw": b""})
    assert stored(connection) == []
    connection.execute("CREATE TABLE pairs (a TEXT PRIMARY KEY, b TEXT) WITHOUT ROWID")
    pairs = describe_shapes(connection)[-1]
    assert insert_row(connection, pairs, {"a": "x", "b": "first"})
    assert not insert_row(connection, pairs, {"a": "x", "b": "second"})
    assert connection.execute("SELECT * FROM pairs").fetchall() == [("x", "first")]
