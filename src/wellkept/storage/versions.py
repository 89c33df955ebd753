"""The header of a database, and the version of its schema, found by declarations where the header cannot be trusted."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw

from wellkept.salvage.pages import PageFile
from wellkept.salvage.rows import Row, Salvage
from wellkept.storage.connections import Migration, migrate
from wellkept.storage.files import APPLICATION_MARK, HEADER_BYTES, MAGIC, read_header

_COMMENT = re.compile("--[^\n]*")
_DERIVED = ("sqlite_", "message_", "next_", "vector")
"""Tables that no migration makes: indexes of texts and vectors."""


def build_reference(migrations: Sequence[Migration], version: int) -> apsw.Connection:
    """Return an empty database in memory with the schema of that version."""
    connection = apsw.Connection(":memory:")
    migrate(connection, [step for step in migrations if step.version <= version], None)
    return connection


def find_version(salvage: Salvage, migrations: Sequence[Migration]) -> int:
    """Return the version whose schema has most in common with the readable declarations of a file."""
    declared = _declarations(salvage.declarations)
    schemas = _list_schemas(migrations)
    in_header = int.from_bytes(salvage.file.header[60:64], "big")
    newest = migrations[-1].version

    def score(version: int) -> tuple[int, bool, int]:
        known = schemas[version]
        same = sum(known.get(name) == sql for name, sql in declared.items())
        other = sum(known.get(name) != sql and not name.startswith(_DERIVED) for name, sql in declared.items())
        # a declaration that cannot be read says nothing about the version
        missing = sum(name not in declared for name in known) if salvage.is_schema_complete else 0
        return same - other - missing, version == in_header, version

    if not declared and not 0 < in_header <= newest:
        return newest
    return max((step.version for step in migrations), key=score)


def _list_schemas(migrations: Sequence[Migration]) -> dict[int, dict[str, str]]:
    """Return the declarations of each version."""
    connection, found = apsw.Connection(":memory:"), {}
    for number, step in enumerate(migrations, start=1):
        migrate(connection, migrations[:number], None)
        found[step.version] = _schema(connection)
    return found


def is_schema_of(path: Path, migrations: Sequence[Migration]) -> bool:
    """Whether a file has exactly the schema of the newest migration, whatever its header says."""
    declared = _declarations(Salvage(PageFile(path)).declarations)
    known = _schema(build_reference(migrations, migrations[-1].version))
    unknown = [name for name in declared if name not in known and not name.startswith(_DERIVED)]
    return not unknown and all(declared.get(name) == sql for name, sql in known.items())


def is_of_another_program(salvage: Salvage, migrations: Sequence[Migration]) -> bool:
    """Whether a file declares tables, and most of them are none of ours."""
    declared = _declarations(salvage.declarations)
    known = _schema(build_reference(migrations, migrations[-1].version))
    ours = sum(name in known or name.startswith(_DERIVED) for name in declared)
    return len(declared) > 2 * ours


def is_schema_whole(connection: apsw.Connection, migrations: Sequence[Migration]) -> bool:
    """Whether an open database of the newest version declares what the migrations declare."""
    known = _entries(build_reference(migrations, migrations[-1].version))
    return known <= _entries(connection)


def holds_later_tables(connection: apsw.Connection, migrations: Sequence[Migration], version: int) -> bool:
    """Whether a database declares what only a later version than the one in its header makes."""
    later = set(_schema(build_reference(migrations, migrations[-1].version)))
    later -= set(_schema(build_reference(migrations, version)))
    return any(name in later for name in _schema(connection))


def _declarations(rows: Iterable[Row]) -> dict[str, str]:
    declarations: dict[str, str] = {}
    for row in rows:
        name, sql = row.values.get("name"), row.values.get("sql")
        if isinstance(name, str) and isinstance(sql, str) and not row.damage:
            declarations.setdefault(name, _normal(sql))
    return declarations


def _schema(connection: apsw.Connection) -> dict[str, str]:
    return {name: sql for _, _, name, sql in _entries(connection)}


def _entries(connection: apsw.Connection) -> set[tuple[str, str, str, str]]:
    """Return the kind, table, name and declaration of everything that is declared.

    SQLite uses a declaration whose kind or table is damaged, and VACUUM or DROP then lose it.
    """
    rows = connection.execute(
        "SELECT type, tbl_name, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'"
    )
    return {(str(kind), str(table), str(name), _normal(str(sql))) for kind, table, name, sql in rows}


def _normal(sql: str) -> str:
    """Return a declaration without comments, quotes and line breaks, which differ between versions of SQLite."""
    return " ".join(_COMMENT.sub(" ", sql).replace('"', "").split())


def find_header_fault(path: Path) -> str | None:
    """Return what is wrong with the header of one of our files, None if nothing is."""
    header = read_header(path)
    if not header:
        return None
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        return "the file does not begin as an SQLite database"
    if header[68:72] != APPLICATION_MARK and header[40:44] != bytes(4):
        return "the mark of kept in the header is damaged"
    # values that SQLite always writes, and which it does not all check
    expected = {21: b"\x40\x20\x20", 64: bytes(4), 72: bytes(20)}
    if any(header[at : at + len(value)] != value for at, value in expected.items()):
        return "fields of the header are damaged"
    return None
