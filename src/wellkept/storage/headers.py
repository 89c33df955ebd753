"""The first bytes of a database file: whether it is ours, without loading SQLite."""

from pathlib import Path

from wellkept.core.regular_files import open_regular

APPLICATION_MARK = b"KEPT"
"""Application id in the header of each of our databases."""
APPLICATION_ID = int.from_bytes(APPLICATION_MARK, "big")
HEADER_BYTES = 100
MAGIC = b"SQLite format 3\0"
_MARKS = (
    b"CREATE TABLE index_queue",
    b"CREATE TABLE tombstones",
    b"CREATE TABLE blob_uses",
    b"CREATE TABLE carried",
    b"CREATE TRIGGER messages_added",
    b"CREATE TABLE state_meta",
)
"""Declarations in every version of our schema, and in no other program that we know of."""
_ENOUGH = 3
_SEARCHED_BYTES = 4_000_000
"""The schema is among the first pages: it is written before anything else, also by a VACUUM."""


def read_header(path: Path) -> bytes:
    """Return the first hundred bytes of a file; fewer if it is shorter or cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(HEADER_BYTES)
    except OSError:
        return b""


def is_foreign(path: Path) -> bool:
    """Whether an SQLite file with content belongs to another program.

    The mark alone does not decide: one damaged bit in it must not make our file a foreign one.
    """
    header = read_header(path)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC[:15]):
        return False
    has_schema = header[40:44] != bytes(4)
    return has_schema and header[68:72] != APPLICATION_MARK and not declares_our_tables(path)


def declares_our_tables(path: Path) -> bool:
    """Whether the beginning of a file or of its log declares tables of ours."""
    found: set[bytes] = set()
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            with open_regular(file) as opened:
                beginning = opened.read(_SEARCHED_BYTES)
        except OSError:
            continue
        found |= {mark for mark in _MARKS if mark in beginning}
    return len(found) >= _ENOUGH
