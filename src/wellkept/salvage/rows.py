"""Rows of a damaged SQLite file: every cell that can be read, found page by page and assigned to its table."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

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
from wellkept.salvage.shapes import SCHEMA, Shape

_SAMPLE = 8
"""How many cells are examined to decide whether a page belongs to a table."""
_MOST_CARVED = 20_000
"""Pages that are searched byte by byte; a minute at most."""
_LEAST_CARVED_COLUMNS = 2
_LEAST_SHARE = 0.5
"""The share of a page's cells that must fit a table."""
_NOTHING = (0.0, 0, "")
_DECLARED = re.compile(r"CREATE (TABLE|INDEX) (\w+)")


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
            self._schema.orphans = [
                tree.number for tree in self._find_unclaimed() if tree.kind == TABLE_LEAF and self._is_schema(tree)
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

    def _is_schema(self, tree: Tree) -> bool:
        found = [self._row(SCHEMA, cell, tree.number) for cell in tree.cells]
        return bool(found) and all(row.values.get("type") in {"table", "index", "trigger", "view"} for row in found)

    def _read_roots(self) -> Iterator[tuple[list[str], int]]:
        """Yield the names that a declaration gives its tree, and the first page of it; a table is named three times."""
        for row in self._rows(SCHEMA, self._schema):
            name, root, sql = (row.values.get(column) for column in ("name", "rootpage", "sql"))
            if isinstance(name, str) and isinstance(root, int) and root in self.file:
                declared = _DECLARED.match(sql) if isinstance(sql, str) else None
                table = row.values.get("tbl_name") if declared and declared[1] == "TABLE" else None
                others = [table, declared[2] if declared else None]
                yield [name, *(one for one in others if isinstance(one, str))], root

    def _find_roots(self) -> dict[str, int]:
        """Return the first page of each tree; where a name is damaged, another one of the same declaration counts."""
        roots = {names[0]: root for names, root in reversed(self._declared)}
        for names, root in self._declared:
            known = next((name for name in names if name in self.shapes), None)
            if known is not None and known not in roots:
                roots[known] = root
                roots.pop(names[0])
        return roots

    @cached_property
    def extents(self) -> dict[str, Extent]:
        """The pages of every known table and index, and of the other trees that the schema names."""
        roots = self._find_roots()
        known = sorted(roots, key=lambda name: name not in self.shapes)
        found = {name: self._walk(self.shapes.get(name), roots[name]) for name in known}
        for name in self.shapes:
            found.setdefault(name, Extent())
        if self._recognise is not None:
            self._return_swapped(found)
        # an older copy replaces a page that lost its number; it points to fewer pages, and the tree shows no gap
        has_copies = len(self.file.numbers) > self.file.count
        wanted = [shape for name, shape in self.shapes.items() if has_copies or not found[name].is_complete]
        if wanted:
            self._assign_orphans(found, wanted)
        return found

    def _walk(self, shape: Shape | None, root: int) -> Extent:
        extent = Extent()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            tree = self.file.tree(number)
            if tree is None or number in self._owner or not self._fits(tree, shape):
                extent.gaps.append(number)
                continue
            self._owner[number] = "" if shape is None else shape.name
            extent.pages.append(number)
            if not tree.is_whole:
                extent.torn.append(number)
            waiting += reversed(tree.children)
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

    def _return_swapped(self, found: dict[str, Extent]) -> None:
        """Exchange pages that were swapped: the rows of one prove another table, whose tree leads to the other.

        By the types of its columns alone a page can fit a tree that is not its own.
        """
        claimed = [(name, number) for name, extent in found.items() for number in extent.pages]
        self._named = {number for extent in found.values() for number in (*extent.pages, *extent.gaps)}
        unclaimed = [("", tree.number) for tree in self._find_unclaimed()]
        for name, number in (*claimed, *unclaimed):
            owner = self._find_proven(number, self.shapes.get(name))
            if owner is None or (name and number not in found[name].pages):  # it came back with its counterpart
                continue
            torn = [one for one, extent in found.items() if extent.gaps and one in self.shapes]
            places = [name] if name in self.shapes else torn
            pairs = ((page, place) for page in found[owner].pages for place in places)
            swapped = next((pair for pair in pairs if self._is_foreign(pair[0], owner, self.shapes[pair[1]])), None)
            if swapped is not None:
                self._move(swapped[0], found[owner], found[swapped[1]], swapped[1])
            is_emptied = bool(places) and not any(map(self._holds_cells, found[owner].pages))
            if swapped is not None or name in self.shapes or is_emptied:
                self._move(number, found.get(name), found[owner], owner)

    def _holds_cells(self, number: int) -> bool:
        tree = self.file.tree(number)
        return tree is not None and bool(tree.cells)

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
        others = [one for one in self.shapes.values() if not one.is_index and one.has_numbers is tree.is_table]
        fitting = (one for one in others if one != shape and _accepts(one, tree.cells[0]))
        return next((one.name for one in fitting if self._is_recognised(one, tree)), None)

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

    def _assign_orphans(self, found: dict[str, Extent], wanted: Sequence[Shape]) -> None:
        for tree in self._find_unclaimed():
            if tree.is_table and not tree.is_leaf:
                continue  # it holds no rows, and its leaves are found by themselves
            same_kind = (shape for shape in wanted if shape.has_numbers is tree.is_table)
            ranked = sorted(((_share(one, tree), one.strictness, one.name) for one in same_kind), reverse=True)
            share, _, name = self._choose(tree, ranked)
            if share > _LEAST_SHARE:
                found[name].orphans.append(tree.number)
                self._owner[tree.number] = name

    def _choose(self, tree: Tree, ranked: Sequence[tuple[float, int, str]]) -> tuple[float, int, str]:
        """Return the table with a row that proves it; else the one that most cells fit, and of those the strictest."""
        for one in ranked:
            shape = self.shapes[one[2]]
            if one[0] > _LEAST_SHARE and not shape.is_index and self._is_recognised(shape, tree):
                return one
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
            found = list(decode_record(payload))
        except Malformed as error:
            return Row(cell.rowid, values, damage or str(error), page, is_reached, is_of_table=False)
        damage = damage if fits else damage or "its record does not fit the table"
        for place, (name, (value, is_complete)) in enumerate(zip(shape.columns, found, strict=False)):
            if not is_complete:
                damage = damage or f"{name} is damaged"
            values[name] = cell.rowid if place == shape.alias else _convert_types(value, shape.affinities[place])
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
        known = {cell.start: cell.end for cell in cells if _accepts(shape, cell)}
        at = HEADER_BYTES if number == 1 else 0
        while at < self.file.usable - 4:
            if at in known:
                at = known[at]
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


def _convert_types(value: Value, affinity: str) -> Value:
    return float(value) if affinity == "REAL" and isinstance(value, int) else value
