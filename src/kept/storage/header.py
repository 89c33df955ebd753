"""The header of a database file, read without SQLite: whose file it is, and whether its fields can be right."""

from pathlib import Path

from kept.storage.files import APPLICATION_MARK, open_regular

HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_MARKS = (
    b"CREATE TABLE index_queue",
    b"CREATE TABLE tombstones",
    b"CREATE TABLE blob_uses",
    b"CREATE TABLE carried",
    b"CREATE TRIGGER messages_added",
    b"CREATE TABLE state_meta",
)
"""Declarations of ours from the first version on that no other program is known to make."""
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
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC[:15]):
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


def find_fault(path: Path) -> str | None:
    """Return what is wrong with the header of one of our files, None if nothing is."""
    header = read_header(path)
    if not header:
        return None
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        return "the file does not begin as an SQLite database"
    if header[68:72] != APPLICATION_MARK and header[40:44] != bytes(4):
        return "the mark of kept in the header is damaged"
    # values that SQLite always writes, and which it does not all check
    expected = {21: b"\x40\x20\x20", 64: bytes(4), 72: bytes(20)}
    if any(header[at : at + len(value)] != value for at, value in expected.items()):
        return "fields of the header are damaged"
    return None
