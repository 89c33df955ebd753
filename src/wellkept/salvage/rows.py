"""Rows of a damaged SQLite file: what the records of each table look like, and every cell that still fits one.

`Shape` describes the records of a table, `Salvage` finds the rows page by page, and `Evidence` lists from the indexes
which rows a table had.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TypeAlias

import apsw
from msgspec import Struct, field

from wellkept.salvage.pages import (
    HEADER_BYTES,
    INDEX_LEAF,
    TABLE_LEAF,
    Cell,
    Malformed,
    PageFile,
    Tree,
    Value,
    decode_record,
    parse_cell,
    serial_types,
    value_bytes,
)

_SAMPLE = 8
"""How many cells are examined to decide whether a page belongs to a table."""
_MOST_CARVED = 20_000
"""Pages that are searched byte by byte; a minute at most."""
_LEAST_CARVED_COLUMNS = 2
_LEAST_SHARE = 0.5
"""The share of a page's cells that must fit a table."""
_NOTHING = (0.0, 0, "")
_DECLARED = re.compile(r"CREATE (TABLE|INDEX) (\w+)")
Key: TypeAlias = Value | tuple[Value, ...]
"""The number of a row, or the columns of its key."""
_FILLERS: Mapping[str, Value] = {"TEXT": "", "INTEGER": 0, "REAL": 0.0, "BLOB": b""}


class Shape(Struct, frozen=True):
    """What the records of a table or of an index look like."""

    name: str
    table: str
    columns: tuple[str, ...]
    """In the order of the record; an index ends with the key of its table."""
    affinities: tuple[str, ...]
    required: tuple[bool, ...]
    has_numbers: bool
    """Whether its rows have numbers (rowids)."""
    alias: int | None = None
    """The column that is another name of the row's number; it is stored as NULL."""
    key: tuple[str, ...] = ()
    """The columns that identify a row of the table."""
    is_partial: bool = False
    """Whether it is an index of some rows only."""

    @property
    def is_index(self) -> bool:
        """Whether it is an index, whose records repeat those of a table."""
        return self.name != self.table

    @property
    def strictness(self) -> int:
        """How much it asks of a record; of two that fit, the stricter one is the likelier."""
        return sum(self.required) + sum(affinity != "" for affinity in self.affinities)

    def accepts(self, types: Sequence[int]) -> bool:
        """Whether a record with these types can belong to it; older rows may lack the newest columns."""
        if not 0 < len(types) <= len(self.columns):
            return False
        columns = enumerate(zip(types, self.affinities, self.required, strict=False))
        return all(
            kind == 0 if index == self.alias else _is_of(kind, affinity, required=required)
            for index, (kind, affinity, required) in columns
        ) and not any(self.required[len(types) :])


def _is_of(kind: int, affinity: str, *, required: bool) -> bool:
    if kind == 0:
        return not required
    match affinity:
        case "TEXT":
            return kind >= 13 and kind % 2 == 1
        case "INTEGER":
            return kind in {1, 2, 3, 4, 5, 6, 8, 9}
        case "REAL":
            return kind < 10
        case "BLOB":
            return kind >= 12
    return True


def describe_shapes(connection: apsw.Connection) -> list[Shape]:
    """Return the shapes of all tables and indexes of a healthy database."""
    rows = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema WHERE rootpage > 0").fetchall()
    tables = {str(name): _describe_table(connection, str(name)) for kind, name, _ in rows if kind == "table"}
    shapes = list(tables.values())
    for kind, name, table in rows:
        shape = tables[str(table)]
        if kind == "index" and (shape.has_numbers or _index_facts(connection, str(name), shape)[0] != "pk"):
            shapes.append(_describe_index(connection, str(name), shape))
    return shapes


def _describe_table(connection: apsw.Connection, name: str) -> Shape:
    info = connection.execute(f"PRAGMA table_info({name})").fetchall()
    if name == "sqlite_sequence":  # declared without types
        info = [(*row[:2], kind, 1, *row[4:]) for row, kind in zip(info, ("TEXT", "INTEGER"), strict=True)]
    details = {
        str(column): (_affinity(str(kind)), bool(strict) and default is None)
        for _, column, kind, strict, default, _ in info
    }
    keys = [str(row[1]) for row in sorted(info, key=lambda row: int(str(row[5]))) if row[5]]
    columns = [str(row[1]) for row in info]
    ((without,),) = connection.execute("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (name,)).fetchall()
    alias = None
    if without:  # the record begins with the key
        columns = [*keys, *(column for column in columns if column not in keys)]
    elif len(keys) == 1 and str(info[columns.index(keys[0])][2]).upper() == "INTEGER":
        alias = columns.index(keys[0])
    return Shape(
        name,
        name,
        tuple(columns),
        tuple(details[column][0] for column in columns),
        tuple(details[column][1] and index != alias for index, column in enumerate(columns)),
        has_numbers=not without,
        alias=alias,
        key=tuple(keys) if without else ("rowid",),
    )


def _index_facts(connection: apsw.Connection, index: str, shape: Shape) -> tuple[str, bool]:
    sql = "SELECT origin, partial FROM pragma_index_list(?) WHERE name = ?"
    ((origin, partial),) = connection.execute(sql, (shape.name, index)).fetchall()
    return str(origin), bool(partial)


def _describe_index(connection: apsw.Connection, name: str, shape: Shape) -> Shape:
    columns = [str(row[2]) if row[1] >= 0 else "rowid" for row in connection.execute(f"PRAGMA index_xinfo({name})")]
    details = dict(zip(shape.columns, shape.affinities, strict=True)) | {"rowid": "INTEGER"}
    affinities = tuple(details[column] for column in columns)
    required = tuple(column in shape.key for column in columns)
    return Shape(
        name,
        shape.table,
        tuple(columns),
        affinities,
        required,
        has_numbers=False,
        key=shape.key,
        is_partial=_index_facts(connection, name, shape)[1],
    )


def _affinity(declared: str) -> str:
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "BLOB" if upper == "BLOB" else ""


SCHEMA = Shape(
    "sqlite_schema",
    "sqlite_schema",
    ("type", "name", "tbl_name", "rootpage", "sql"),
    ("TEXT", "TEXT", "TEXT", "INTEGER", "TEXT"),
    (True, True, True, False, False),
    has_numbers=True,
    key=("rowid",),
)


class Row(Struct, frozen=True):
    """One row as far as it can be read; `damage` is empty if its bytes contradict nothing."""

    number: int | None
    values: Mapping[str, Value]
    damage: str
    page: int
    is_reached: bool = True
    """Whether a tree leads to it; other rows may be copies that SQLite left behind."""
    is_of_table: bool = True
    """Whether it has the types of its table; if not, it may be arbitrary bytes."""


class Extent(Struct):
    """The pages of one table or index."""

    pages: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    """Pages that the tree names and that cannot be part of it."""
    torn: list[int] = field(default_factory=list)
    """Pages of the tree whose header or pointers contradict their cells."""
    orphans: list[int] = field(default_factory=list)
    """Pages that look like part of it, while the tree does not lead to them."""

    @property
    def is_complete(self) -> bool:
        """Whether the tree leads to all its pages, each without contradiction."""
        return bool(self.pages) and not self.gaps and not self.torn


class Salvage:
    """The readable rows of a file, by table.

    A page belongs to the table whose tree leads to it, if its records fit. Where a tree is damaged, pages that no
    tree leads to are assigned by the form of their records; pages on the list of free pages never are.
    """

    def __init__(self, file: PageFile, shapes: Iterable[Shape] = ()) -> None:
        self.file = file
        self._owner: dict[int, str] = {}
        self._schema = self._walk(SCHEMA, 1)
        if not self._schema.is_complete:
            kinds = {"table", "index", "trigger", "view"}
            self._schema.orphans = [
                tree.number
                for tree in self._find_unclaimed()
                if tree.kind == TABLE_LEAF
                and all(self._row(SCHEMA, cell, tree.number).values.get("type") in kinds for cell in tree.cells)
            ]
            self._owner |= dict.fromkeys(self._schema.orphans, SCHEMA.name)
        self._declared = list(self._read_roots())
        self.use(shapes)

    def use(self, shapes: Iterable[Shape], *, recognise: Callable[[str, Row], bool] | None = None) -> None:
        """Look for these tables and indexes; `recognise` says whether a row proves that it belongs to a table."""
        self.shapes = {shape.name: shape for shape in shapes}
        self._recognise = recognise

    @property
    def declarations(self) -> list[Row]:
        """The rows of the schema."""
        return list(self._rows(SCHEMA, self._schema))

    @property
    def is_schema_complete(self) -> bool:
        """Whether every page of the schema is there."""
        return self._schema.is_complete

    def _read_roots(self) -> Iterator[tuple[list[str], int]]:
        """Yield the names that a declaration gives its tree, and the first page of it; a table is named three times."""
        for row in self._rows(SCHEMA, self._schema):
            name, root, sql = (row.values.get(column) for column in ("name", "rootpage", "sql"))
            if isinstance(name, str) and isinstance(root, int) and root in self.file:
                declared = _DECLARED.match(sql) if isinstance(sql, str) else None
                table = row.values.get("tbl_name") if declared and declared[1] == "TABLE" else None
                others = [table, declared[2] if declared else None]
                yield [name, *(other for other in others if isinstance(other, str))], root

    def _find_roots(self) -> dict[str, int]:
        """Return the first page of each tree; where a name is damaged, another one of the same declaration counts."""
        roots = {names[0]: root for names, root in reversed(self._declared)}
        for names, root in self._declared:
            name = next((name for name in names if name in self.shapes), None)
            if name is not None and name not in roots:
                roots[name] = root
                roots.pop(names[0])
        return roots

    @cached_property
    def extents(self) -> dict[str, Extent]:
        """The pages of every known table and index, and of the other trees that the schema names."""
        roots = self._find_roots()
        names = sorted(roots, key=lambda name: name not in self.shapes)
        extents = {name: self._walk(self.shapes.get(name), roots[name]) for name in names}
        for name in self.shapes:
            extents.setdefault(name, Extent())
        if self._recognise is not None:
            self._return_swapped(extents)
        # an older copy replaces a page that lost its number; it points to fewer pages, and the tree shows no gap
        has_copies = len(self.file.numbers) > self.file.count
        wanted = [shape for name, shape in self.shapes.items() if has_copies or not extents[name].is_complete]
        if wanted:
            self._assign_orphans(extents, wanted)
        return extents

    def _walk(self, shape: Shape | None, root: int) -> Extent:
        extent = Extent()
        pending = [root]
        while pending:
            number = pending.pop()
            tree = self.file.tree(number)
            if tree is None or number in self._owner or not self._fits(tree, shape):
                extent.gaps.append(number)
                continue
            self._owner[number] = "" if shape is None else shape.name
            extent.pages.append(number)
            if not tree.is_whole:
                extent.torn.append(number)
            pending += reversed(tree.children)
        return extent

    def _fits(self, tree: Tree, shape: Shape | None) -> bool:
        """Whether most records of a page can belong to a table or index."""
        if shape is None:
            return True
        if tree.is_table is not shape.has_numbers:
            return False
        if tree.is_table and not tree.is_leaf:
            return all(child in self.file for child in tree.children)
        sample = tree.cells[:: max(1, len(tree.cells) // _SAMPLE)]
        return sum(_accepts(shape, cell) for cell in sample) * 2 >= len(sample)

    def _return_swapped(self, extents: dict[str, Extent]) -> None:
        """Exchange pages that were swapped: the rows of one prove another table, whose tree leads to the other.

        By the types of its columns alone a page can fit a tree that is not its own.
        """
        claimed = [(name, number) for name, extent in extents.items() for number in extent.pages]
        self._named = {number for extent in extents.values() for number in (*extent.pages, *extent.gaps)}
        unclaimed = [("", tree.number) for tree in self._find_unclaimed()]
        for name, number in (*claimed, *unclaimed):
            owner = self._find_proven(number, self.shapes.get(name))
            if owner is None or (name and number not in extents[name].pages):  # it came back with its counterpart
                continue
            torn = [other for other, extent in extents.items() if extent.gaps and other in self.shapes]
            tables = [name] if name in self.shapes else torn
            pairs = ((page, table) for page in extents[owner].pages for table in tables)
            swapped = next((pair for pair in pairs if self._is_foreign(pair[0], owner, self.shapes[pair[1]])), None)
            if swapped is not None:
                self._move(swapped[0], extents[owner], extents[swapped[1]], swapped[1])
            trees = (self.file.tree(page) for page in extents[owner].pages)
            is_emptied = bool(tables) and not any(tree is not None and tree.cells for tree in trees)
            if swapped is not None or name in self.shapes or is_emptied:
                self._move(number, extents.get(name), extents[owner], owner)

    def find_misplaced(self) -> list[tuple[str, str]]:
        """Return the tables whose first page holds rows of another table, each with that table.

        Swapped with the page of an empty table, rows are missing without any contradiction.
        """
        proven = ((name, self._find_proven(root, self.shapes.get(name))) for name, root in self._find_roots().items())
        return [(name, owner) for name, owner in proven if owner is not None]

    def _find_proven(self, number: int, shape: Shape | None) -> str | None:
        """Return another table to which a row of this page belongs for certain."""
        tree = self.file.tree(number)
        if tree is None or not tree.cells or (tree.is_table and not tree.is_leaf):
            return None
        if shape is not None and not shape.is_index and self._is_recognised(shape, tree):
            return None
        others = [other for other in self.shapes.values() if not other.is_index and other.has_numbers is tree.is_table]
        fitting = (other for other in others if other != shape and _accepts(other, tree.cells[0]))
        return next((other.name for other in fitting if self._is_recognised(other, tree)), None)

    def _is_foreign(self, number: int, owner: str, shape: Shape) -> bool:
        """Whether no row of a page proves its table, while its form is that of another one."""
        tree = self.file.tree(number)
        assert tree is not None
        return bool(tree.cells) and self._fits(tree, shape) and not self._is_recognised(self.shapes[owner], tree)

    def _move(self, number: int, source: Extent | None, target: Extent, name: str) -> None:
        if source is not None:
            source.pages.remove(number)
            source.gaps.append(number)
        # if a tree leads to it, its rows are not leftover copies
        (target.pages if number in self._named else target.orphans).append(number)
        self._owner[number] = name

    def _find_unclaimed(self) -> Iterator[Tree]:
        for number in self.file.numbers:
            if number not in self._owner and number not in self._free:
                tree = self.file.tree(number)
                if tree is not None and tree.cells:
                    yield tree

    @cached_property
    def _free(self) -> set[int]:
        return {number for number in self.file.free_pages() if number not in self._owner}

    def _assign_orphans(self, extents: dict[str, Extent], wanted: Sequence[Shape]) -> None:
        for tree in self._find_unclaimed():
            if tree.is_table and not tree.is_leaf:
                continue  # it holds no rows, and its leaves are found by themselves
            same_kind = (shape for shape in wanted if shape.has_numbers is tree.is_table)
            ranked = sorted(((_share(shape, tree), shape.strictness, shape.name) for shape in same_kind), reverse=True)
            share, _, name = self._choose(tree, ranked)
            if share > _LEAST_SHARE:
                extents[name].orphans.append(tree.number)
                self._owner[tree.number] = name

    def _choose(self, tree: Tree, ranked: Sequence[tuple[float, int, str]]) -> tuple[float, int, str]:
        """Return the table with a row that proves it; else the one that most cells fit, and of those the strictest."""
        for candidate in ranked:
            shape = self.shapes[candidate[2]]
            if candidate[0] > _LEAST_SHARE and not shape.is_index and self._is_recognised(shape, tree):
                return candidate
        return ranked[0] if ranked else _NOTHING

    def _is_recognised(self, shape: Shape, tree: Tree) -> bool:
        if self._recognise is None:
            return False
        rows = (self._row(shape, cell, tree.number) for cell in tree.cells[:_SAMPLE])
        return any(self._recognise(shape.name, row) for row in rows)

    # rows

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the rows of a table: those that its tree leads to, then those of other pages, then carved ones."""
        shape, extent = self.shapes[name], self.extents[name]
        yield from self._rows(shape, extent)
        if not extent.is_complete and not shape.is_index:
            yield from self._carve(shape, self._shapeless)

    def find_lost_pages(self, name: str) -> list[int]:
        """Return the pages of a table that cannot be read; if its declaration is lost, all that belong to nothing."""
        extent = self.extents[name]
        is_declared = bool(extent.pages or extent.gaps)
        return sorted(extent.gaps) if is_declared else [] if self.is_schema_complete else self._shapeless

    def _rows(self, shape: Shape, extent: Extent) -> Iterator[Row]:
        for number in extent.pages:
            yield from self._rows_of_page(shape, number, is_reached=True)
        for number in extent.orphans:
            yield from self._rows_of_page(shape, number, is_reached=False)
        lost = [number for number in extent.gaps if number not in self._owner]
        torn = [number for number in (*extent.torn, *extent.orphans) if not self._is_whole(number)]
        if not shape.is_index:
            yield from self._carve(shape, [*torn, *lost])

    def _rows_of_page(self, shape: Shape, number: int, *, is_reached: bool) -> Iterator[Row]:
        tree = self.file.tree(number)
        assert tree is not None
        if tree.is_table and not tree.is_leaf:
            return
        for cell in tree.cells:
            yield self._row(shape, cell, number, is_reached=is_reached)

    def _row(self, shape: Shape, cell: Cell, page: int, *, is_reached: bool = True) -> Row:
        payload, _, is_whole = self.file.payload(cell)
        damage = "" if is_whole else "its overflow pages are damaged"
        values: dict[str, Value] = {}
        try:
            types, start = serial_types(payload)
            fits = start + sum(value_bytes(kind) for kind in types) == cell.payload_bytes and shape.accepts(types)
            decoded = list(decode_record(payload))
        except Malformed as error:
            return Row(cell.rowid, values, damage or str(error), page, is_reached, is_of_table=False)
        damage = damage if fits else damage or "its record does not fit the table"
        for index, (name, (value, is_complete)) in enumerate(zip(shape.columns, decoded, strict=False)):
            if not is_complete:
                damage = damage or f"{name} is damaged"
            values[name] = cell.rowid if index == shape.alias else value
            if shape.affinities[index] == "REAL" and isinstance(value, int):
                values[name] = float(value)  # SQLite stores the whole numbers of such a column as integers
        return Row(cell.rowid, values, damage, page, is_reached, is_of_table=fits)

    def _carve(self, shape: Shape, pages: Iterable[int]) -> Iterator[Row]:
        """Yield the rows at any offset of damaged pages: a cell may be whole although nothing points to it."""
        if len(shape.columns) < _LEAST_CARVED_COLUMNS:
            return
        kind = TABLE_LEAF if shape.has_numbers else INDEX_LEAF
        for number in pages:
            if number in self.file.numbers:
                yield from self._carve_page(shape, number, kind)

    def _is_whole(self, number: int) -> bool:
        tree = self.file.tree(number)
        return tree is not None and tree.is_whole

    @cached_property
    def _shapeless(self) -> list[int]:
        """Pages that belong to nothing that is known and are not empty."""
        used = {number for name in self.shapes for number in self._overflow_pages(name)}
        used |= {number for extent in self.extents.values() for number in extent.gaps}
        rest = (
            number
            for number in self.file.numbers
            if number not in self._owner and number not in self._free and number not in used
        )
        # a page of a tree may hold copies of cells that were moved elsewhere
        lost = (number for number in rest if not self._is_whole(number) and self.file.page(number).strip(b"\0"))
        return list(islice(lost, _MOST_CARVED))

    def _overflow_pages(self, name: str) -> Iterator[int]:
        extent = self.extents[name]
        for number in [*extent.pages, *extent.orphans]:
            tree = self.file.tree(number)
            assert tree is not None
            for cell in tree.cells:
                if cell.overflow:
                    yield from self.file.payload(cell)[1]

    def _carve_page(self, shape: Shape, number: int, kind: int) -> Iterator[Row]:
        page, tree = self.file.page(number), self.file.tree(number)
        # the cells that pointers lead to were given already, if the page is one of the table
        cells = tree.cells if tree is not None and self._owner.get(number) == shape.name else ()
        cell_ends = {cell.start: cell.end for cell in cells if _accepts(shape, cell)}
        at = HEADER_BYTES if number == 1 else 0
        while at < self.file.usable - 4:
            if at in cell_ends:
                at = cell_ends[at]
                continue
            cell = self._cell_at(page, at, kind, shape)
            if cell is None:
                at += 1
                continue
            yield self._row(shape, cell, number, is_reached=False)
            at = cell.end

    def _cell_at(self, page: bytes, at: int, kind: int, shape: Shape) -> Cell | None:
        try:
            cell, _ = parse_cell(page, at, kind, self.file.usable)
            if cell.payload_bytes < len(shape.columns) or (cell.rowid or 0) < 0 or not _accepts(shape, cell):
                return None
            types, start = serial_types(cell.local)
        except Malformed:
            return None
        fits = start + sum(value_bytes(kind) for kind in types) == cell.payload_bytes
        return cell if fits and (not cell.overflow or cell.overflow in self.file) else None


def _accepts(shape: Shape, cell: Cell) -> bool:
    try:
        # arbitrary bytes may look like a record of thousands of columns
        return shape.accepts(serial_types(cell.local, len(shape.columns))[0])
    except Malformed:
        return False


def _share(shape: Shape, tree: Tree) -> float:
    """Return the share of a page's cells that fit, a little more where they have all the columns."""
    fitting = [cell for cell in tree.cells if _accepts(shape, cell)]
    complete = sum(len(serial_types(cell.local)[0]) == len(shape.columns) for cell in fitting)
    return (len(fitting) + complete / 100) / len(tree.cells)


class Evidence(Struct):
    """The rows of a table as its indexes list them."""

    columns: dict[Key, dict[str, Value]] = field(default_factory=dict)
    """The known columns of each row."""
    expected: set[Key] = field(default_factory=set)
    """The rows that certainly existed: two indexes list them, or there is only one index."""
    complete: set[str] = field(default_factory=set)
    """The indexes that could be read to the end."""
    is_certain: bool = False
    """Whether an index is complete, so that a row that no index lists did not exist."""

    def is_stale(self, row: Row, key: Key) -> bool:
        """Whether a row is a leftover copy: no page points to it, and no index lists it."""
        return not row.is_reached and self.is_certain and key not in self.columns


def gather_evidence(salvage: Salvage, table: str, companions: Sequence[str] = ()) -> Evidence:
    """Read the indexes of a table; each of its rows has one of the same number in one of the `companions`."""
    evidence = Evidence()
    votes: Counter[Key] = Counter()
    lists = 0
    indexes = [shape for shape in salvage.shapes.values() if shape.is_index and shape.table == table]
    others = [salvage.shapes[name] for name in companions if name in salvage.shapes]
    for shape in (*indexes, *others):
        is_complete = salvage.extents[shape.name].is_complete
        evidence.complete |= {shape.name} if is_complete else set()
        lists += is_complete and shape.is_index and not shape.is_partial
        for row in salvage.rows(shape.name):
            if not row.is_reached or row.damage:
                continue
            key = key_of(shape, row) if shape.is_index else row.number
            columns = evidence.columns.setdefault(key, {})
            if shape.is_index:
                columns |= {name: value for name, value in row.values.items() if name not in shape.key}
            votes[key] += not shape.is_partial
    lists += bool(others) and all(shape.name in evidence.complete for shape in others)
    evidence.is_certain = lists > 0
    evidence.expected = {key for key, count in votes.items() if count >= min(2, max(1, lists))}
    return evidence


def key_of(shape: Shape, row: Row) -> Key:
    """Return the key of a row, which may be given as an entry of an index; None if the key is lost."""
    if shape.key == ("rowid",):
        return row.values.get("rowid") if shape.is_index else row.number
    key = tuple(row.values.get(name) for name in shape.key)
    return None if None in key else key


def insert_row(connection: apsw.Connection, shape: Shape, values: Mapping[str, Value]) -> bool:
    """Insert a row; columns that a constraint refuses get their default value.

    Return whether it could be inserted.
    """
    affinities = dict(zip(shape.columns, shape.affinities, strict=True))
    filled = {name: _of_type(value, affinities.get(name, "")) for name, value in values.items()}
    for name, affinity, is_required in zip(shape.columns, shape.affinities, shape.required, strict=True):
        if is_required and filled.get(name) is None:
            filled[name] = _FILLERS.get(affinity, "")
    optional = [name for name in values if name in shape.columns and name not in shape.key]
    tries = [filled, *({name: value for name, value in filled.items() if name != column} for column in optional)]
    return any(_insert(connection, shape.table, attempt) for attempt in tries)


def _of_type(value: Value, affinity: str) -> Value:
    """Convert a value whose type was damaged to the type of its column."""
    if affinity == "TEXT" and value is not None and not isinstance(value, str):
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if affinity in {"INTEGER", "REAL"} and isinstance(value, str | bytes):
        return None
    return value


def _insert(connection: apsw.Connection, table: str, values: Mapping[str, Value]) -> bool:
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - names of our schema
    try:
        connection.execute(sql, tuple(values.values()))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    return True
