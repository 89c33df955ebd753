"""What the records of our tables and indexes look like, so that pages without an owner can be assigned."""

from collections.abc import Sequence

import apsw
from msgspec import Struct


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
        places = enumerate(zip(types, self.affinities, self.required, strict=False))
        return all(
            kind == 0 if place == self.alias else _is_of(kind, affinity, required=required)
            for place, (kind, affinity, required) in places
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
    found = list(tables.values())
    for kind, name, table in rows:
        shape = tables[str(table)]
        if kind == "index" and (shape.has_numbers or not _is_primary(connection, str(name), shape)):
            found.append(_describe_index(connection, str(name), shape))
    return found


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
        tuple(details[column][1] and place != alias for place, column in enumerate(columns)),
        has_numbers=not without,
        alias=alias,
        key=tuple(keys) if without else ("rowid",),
    )


def _is_primary(connection: apsw.Connection, index: str, shape: Shape) -> bool:
    return _index_facts(connection, index, shape)[0] == "pk"


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
