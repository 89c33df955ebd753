"""The tables of the search index: posting lists, derived from the rows.

Storing a message does not touch the index: `indexing.py` covers new messages with segments later, in batches.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from kept.core.errors import Unreadable
from kept.sessions.records import Row
from kept.sessions.search.analysis import IndexedText, indexed_text
from kept.storage.connections import statements
from kept.storage.sqlite import Connection

VERSION = 4
"""Increase it when the text analysis changes; older segments are built again one by one, and serve until then."""

SQL = statements("kept.sessions.sqlite", "index.sql")
TABLES = ("message_terms", "message_segments", "message_postings", "message_sessions")
CHUNK = 65_536
"""Ids in the largest segment; the number of a message in a list is the lower half of its id."""
BITMAP_FROM = 4_096
"""Size from which on long lists are bitmaps; below, a list takes little room in either form."""
WORD_BITS = 40
"""Bits of the hash by which a word is found: among a million words, two share a list with a chance of one half."""
WORDS = (1 << WORD_BITS) - 1


def create(connection: Connection) -> None:
    """Create the tables of the index, where they do not exist."""
    for sql in (SQL.create_terms, SQL.create_segments, SQL.create_postings, SQL.create_sessions):
        connection.execute(sql)


def drop(connection: Connection) -> None:
    """Drop the tables of the index."""
    for sql in (SQL.drop_terms, SQL.drop_segments, SQL.drop_postings, SQL.drop_sessions):
        connection.execute(sql)


def make_ready(connection: Connection) -> None:
    """Create the tables if they are missing; `catch_up` replaces what other versions made."""
    create(connection)
    connection.execute(SQL.set_version, (str(VERSION),))


def is_ready(connection: Connection) -> bool:
    """Whether this version made the tables."""
    row = connection.execute(SQL.version).fetchone()
    return row is not None and row[0] == str(VERSION)


def queue(connection: Connection, message_ids: Sequence[int]) -> None:
    """Queue messages to be indexed again in their new state; until then searches read their rows."""
    connection.executemany(SQL.again, [(number,) for number in message_ids])


def recount(connection: Connection, session_ids: Iterable[str]) -> None:
    """Set the message count and the last activity of sessions from their rows."""
    connection.executemany(SQL.recount, [(session_id,) for session_id in session_ids])


def is_behind(connection: Connection) -> bool:
    """Whether there is anything to do for the index; a quick look that every search and command can afford."""
    ((found,),) = connection.execute(SQL.is_behind, (VERSION,)).fetchall()
    return bool(found)


class Segment(NamedTuple):
    """A segment as the database registers it."""

    id: int
    first: int
    size: int
    revision: int
    """How often the lists were changed in place."""
    documents: int
    words: int
    """The sum of the lengths of its messages."""
    version: int
    """Of the text analysis that made it."""
    languages: str
    """A JSON object: how many messages are in each language."""

    @property
    def end(self) -> int:
        """The first id after it."""
        return self.first + self.size


def hash_word(word: str) -> int:
    """Return the lower part of the keys of a word's lists."""
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=WORD_BITS // 8).digest(), "little")


def key_range(segment_id: int) -> tuple[int, int]:
    """Return the first and the last key of a segment's lists."""
    return segment_id << WORD_BITS, (segment_id << WORD_BITS) + WORDS


def is_bitmap(data: bytes, size: int) -> bool:
    """Whether a list is stored as a bitmap."""
    return size >= BITMAP_FROM and 8 * len(data) == size


def read_segments(connection: Connection) -> list[Segment]:
    """Return the segments that searches read, in order of their ids."""
    return [Segment._make(row) for row in connection.execute(SQL.active)]


def read_columns(connection: Connection, segment: Segment) -> tuple[bytes, bytes]:
    """Return the lengths and the sessions of a segment; raise Unreadable if they are damaged."""
    row = connection.execute(SQL.columns, (segment.id,)).fetchone()
    lengths, sessions = row or (None, None)
    if not isinstance(lengths, bytes) or not isinstance(sessions, bytes):
        lengths, sessions = b"", b""  # damage can change types
    if (len(lengths), len(sessions)) == (2 * segment.size, 4 * segment.size):
        return lengths, sessions
    raise Unreadable(f"segment {segment.id} of the search index is damaged", "run `kept sessions repair`")


def texts(rows: Iterable[Row]) -> list[IndexedText]:
    """Return what is indexed of rows with id, role, content, origin and tool columns."""
    return [
        indexed_text(number, role, content=content or "", origin=origin, tool_name=tool_name, tool_calls=tool_calls)
        for number, role, content, origin, tool_name, tool_calls in rows
    ]
