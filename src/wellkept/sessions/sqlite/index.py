"""The index of messages, derived from their rows: the word index and the list of all words as they are spelled.

Single rows wait in a queue, like those of other programs, until the next search or the end of the process: indexed
together they take a fifth of the time. A rebuild makes a new index beside the old one, in small steps, and swaps it in
at the end.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary
from zlib import crc32

from wellkept.core.errors import Busy, Unreadable
from wellkept.core.ports import Clock, EventSink
from wellkept.sessions.records import MessageRow, Row
from wellkept.sessions.rows import message_rows, session_rows
from wellkept.sessions.rows.database import find_index
from wellkept.sessions.search.analysis import SPEAKER, IndexedText, base, indexed_text, prepare, spell
from wellkept.sessions.search.postings import substring_pattern
from wellkept.sessions.sqlite.fts5 import cut_words, quote
from wellkept.storage import row_checksums
from wellkept.storage.connections import statements
from wellkept.storage.leases import new_holder
from wellkept.storage.sqlite import Connection, Database

SPELLINGS_SQL = statements("wellkept.sessions.sqlite", "spellings.sql")
SPELLINGS = "message_spellings"
_LEAST_PART = 3
"""Length of the shortest substring that is searched for."""
_MOST_WORDS = 100
"""Words that are looked up at a time; if more contain the substring, the newest messages are read first."""
_MOST_READ = 20_000
"""Messages whose texts are read for one such lookup: they may have a form of the word without the substring."""
_NEWEST_READ = 2_000
"""Newest messages that are read for a substring of many words."""
_NEWEST_ID = 2**62
BUCKETS = 1_024
"""With a million words a bucket has nine kilobytes; storing a new word writes one bucket."""


def create_spellings(connection: Connection, table: str = SPELLINGS) -> None:
    """Create the empty list where it does not exist."""
    connection.execute(_for(SPELLINGS_SQL.create, table))


def add_spellings(connection: Connection, texts: Iterable[str], table: str = SPELLINGS) -> None:
    """Add the words of prepared texts."""
    wanted: dict[int, list[str]] = {}
    for word in collect(connection, texts):
        wanted.setdefault(_find_bucket(word), []).append(word)
    listed = _read(connection, wanted, table)
    changed = []
    for bucket, some in wanted.items():
        known = listed.get(bucket, "\n")
        new = sorted([word for word in some if f"\n{word}\n" not in known])
        if new:
            changed.append((bucket, known + "".join([f"{word}\n" for word in new])))
    if changed:
        connection.executemany(_for(SPELLINGS_SQL.write, table), changed)


def collect(connection: Connection, texts: Iterable[str]) -> set[str]:
    """Return the words of prepared texts."""
    return set[str]().union(*(cut_words(connection, text) for text in texts))


def find_containing(connection: Connection, text: str) -> list[str]:
    """Return the words that contain `text`, a part of a word."""
    part = "".join(cut_words(connection, text))
    (listed,) = connection.execute(SPELLINGS_SQL.read_all).fetchone() or ("",)
    return list(_find_in(str(listed or ""), part)) if part else []


def find_messages(connection: Connection, text: str, limit: int, *, has_speakers: bool) -> list[int]:
    """Return the newest messages with a word that contains `text`, a part of a word in lower case; newest first.

    Messages whose words are not listed yet are read one after the other. `has_speakers` tells whether messages begin
    with the names of their speakers, which the word index marks.
    """
    if len(text) < _LEAST_PART:
        return []
    missing, is_there = connection.execute(SPELLINGS_SQL.missing_below).fetchone() or (None, 0)
    below = int(str(missing or 0)) if is_there else _NEWEST_ID
    words = find_containing(connection, text) if is_there else []
    found: list[int] = []
    if len(words) > _MOST_WORDS:
        found = _read_below(connection, text, _NEWEST_ID, limit=limit, most=_NEWEST_READ)
        if len(found) == limit:
            return found
    for start in range(0, len(words), _MOST_WORDS):
        some = words[start : start + _MOST_WORDS]
        spoken = [SPEAKER + base(word) for word in some] if has_speakers else []
        expression = " OR ".join(map(quote, [*some, *spoken]))
        bindings = (expression, text, substring_pattern(text), limit, _MOST_READ)
        found += _numbers(connection.execute(SPELLINGS_SQL.messages_with, bindings).fetchall())
    if below and len(found) < limit:
        found += _read_below(connection, text, below, limit=limit)
    return sorted(set(found), reverse=True)[:limit]


def _read_below(connection: Connection, text: str, below: int, *, limit: int, most: int = -1) -> list[int]:
    """Return the newest messages below one that contain `text`; at most `most` are read."""
    bindings = (below, text, substring_pattern(text), limit, most)
    return _numbers(connection.execute(SPELLINGS_SQL.messages_below, bindings).fetchall())


def _numbers(rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the numbers of a JSON array, in one row."""
    return [int(number) for number in json.loads(str(rows[0][0]))]


def find_missing(connection: Connection, words: Iterable[str]) -> list[str]:
    """Return those of the words that are not in the list."""
    found = list(words)
    listed = _read(connection, {_find_bucket(word) for word in found}, SPELLINGS)
    return [word for word in found if f"\n{word}\n" not in listed.get(_find_bucket(word), "")]


def read_buckets(connection: Connection, buckets: Iterable[int]) -> dict[int, list[str]]:
    """Return the words of some buckets."""
    return {bucket: listed.split("\n")[1:-1] for bucket, listed in _read(connection, buckets, SPELLINGS).items()}


def remove_spellings(connection: Connection, words: Iterable[str]) -> None:
    """Remove words from the list."""
    unwanted = set(words)
    for bucket, listed in read_buckets(connection, {_find_bucket(word) for word in unwanted}).items():
        left = [word for word in listed if word not in unwanted]
        connection.execute(_for(SPELLINGS_SQL.write, SPELLINGS), (bucket, "\n".join(["", *left, ""])))


def _find_bucket(word: str) -> int:
    return crc32(word.encode("utf-8", "replace")) % BUCKETS


def _read(connection: Connection, buckets: Iterable[int], table: str) -> dict[int, str]:
    rows = connection.execute(_for(SPELLINGS_SQL.read, table), (json.dumps(list(buckets)),)).fetchall()
    return {int(str(bucket)): str(listed) for bucket, listed in rows}


def _find_in(listed: str, text: str) -> Iterator[str]:
    """Yield the words with `text`, without splitting the others."""
    place = listed.find(text)
    while place >= 0:
        end = listed.find("\n", place)
        yield listed[listed.rfind("\n", 0, place) + 1 : end]
        place = listed.find(text, end)


def _for(sql: str, table: str) -> str:
    return sql.replace(SPELLINGS, table)


VERSION = 5
"""Increase it when the prepared text or the tables change; an older index is rebuilt."""
_WITH_SAME_WORDS = frozenset({"3", "4"})
"""Versions with the same word index, which had trigrams of messages instead of the list of words."""

SQL = statements("wellkept.sessions.sqlite", "index.sql")
TASK = "indexing messages"
LEASE = "reindex"
_LEASE_SECONDS = 120.0
FEW = 50
"""Rows of one call up to which they wait in the queue; more are an import, which is indexed as it is stored."""
MOST_WAITING_CHARS = 250_000
"""Text that a process stores before an append indexes what waits: a tenth of a second, once in some 900 messages.

All writers wait meanwhile: of four, one append in 220 is slow. In small pieces it would be more.
"""
ROW_CHARS = 100
"""What a row counts apart from its text, so that short messages are not too many either."""
_QUEUE_BATCH = 64
"""Rows that one transaction indexes: some milliseconds, during which nobody else can write."""
_QUEUE_CHARS = 1_000_000
"""Text of one batch, apart from its first message: about a second, during which nobody else can write."""
_REBUILD_BATCH = 2_000
_OLD_BATCH = 1_000
"""Messages of an old file whose words one transaction lists: about a fiftieth of a second."""
_NEWEST_CHECKED = 1_000
"""Newest messages that are read again before a word is removed: others may have stored it meanwhile."""
_SWEPT_BUCKETS = 64
"""Buckets of the list from which one transaction removes unused words."""
_stored: WeakKeyDictionary[Connection, tuple[int, int]] = WeakKeyDictionary()
"""How many rows, and how much text, each connection has stored since it last looked at the queue."""
_FOREIGN = (
    "rows of another table are in the place of the queue of messages to index",
    "run `kept sessions repair`; it puts them back",
)
"""A row of the queue is nothing but a number, so rows of a page that changed places with its own seem to be queued."""


def create(connection: Connection) -> None:
    """Create the index and the view of its tokens, where they do not exist."""
    for sql in (SQL.create_words, SQL.create_vocabulary):
        connection.execute(sql)
    create_spellings(connection)


def drop(connection: Connection) -> None:
    """Drop the index, whatever state it is in, and what earlier versions had."""
    for sql in (SQL.drop_vocabulary, SQL.drop_words, SQL.drop_trigrams, SQL.drop_substrings, SPELLINGS_SQL.drop):
        connection.execute(sql)


class SqliteIndex:
    """The index of a file as the open transaction changes it."""

    most_queued = FEW

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, rows: Sequence[tuple[int, MessageRow]]) -> None:
        """Index inserted rows, each given with its id, unless they are few: the trigger of the table queued those."""
        if len(rows) > FEW:
            read = ((number, row.role, row.content, row.origin, row.tool_name, row.tool_calls) for number, row in rows)
            add_texts(self._connection, texts(read))
            return
        count, chars = _stored.get(self._connection, (0, 0))
        count += len(rows)
        chars += sum([ROW_CHARS + len(row.content) for _, row in rows])
        if chars >= MOST_WAITING_CHARS:
            # of several processes that store, one indexes what all have left: the others find less than their own rows
            if self._connection.execute(SQL.are_more_waiting, (count // 2,)).fetchone() is not None:
                # twice as much, so that what the others store meanwhile does not pile up
                _drain_batch(self._connection, 2 * MOST_WAITING_CHARS // ROW_CHARS, chars=2 * MOST_WAITING_CHARS)
            count = chars = 0
        _stored[self._connection] = count, chars

    def remove(self, message_ids: Sequence[int]) -> None:
        """Remove deleted messages from the index and the queue; `merge` and `remove_unused` remove their bytes."""
        if self._connection.execute(SQL.is_foreign).fetchone() is not None:
            raise Unreadable(*_FOREIGN)
        _unindex(self._connection, message_ids)
        self._connection.executemany(SQL.done, [(number,) for number in message_ids])

    def queue(self, message_ids: Sequence[int]) -> None:
        """Queue messages to be indexed again, in their new state, before the next search."""
        self._connection.executemany(SQL.again, [(number,) for number in message_ids])

    def note_changes(self) -> None:
        """Do nothing: the next search looks for queued messages."""

    def note_session(self, *, is_removed: bool = False) -> None:
        """Do nothing: users are read from the sessions."""


find_index.register(Connection, SqliteIndex)


def add_texts(connection: Connection, texts: Iterable[IndexedText], *, name: str = "message_") -> None:
    """Index texts, or index them again, in the tables whose names begin with `name`."""
    ready = [prepare(text) for text in texts]
    with row_checksums.pause(connection):
        words = [(row.message_id, row.words, row.marks) for row in ready]
        connection.executemany(SQL.add_words.replace("message_", name), words)
        add_spellings(connection, [row.spelled for row in ready], f"{name}spellings")


def _unindex(connection: Connection, message_ids: Sequence[int]) -> None:
    if message_ids:
        connection.executemany(SQL.remove_words, [(number,) for number in message_ids])
        connection.execute(SQL.set_unused)


def drain(database: Database, *, seconds: float = 3.0) -> int:
    """Index the queued rows for at most the given time; return how many."""
    with database.reading() as connection:
        if connection.execute(SQL.is_waiting).fetchone() is None:
            return 0
    deadline = time.monotonic() + seconds
    done = 0
    while time.monotonic() < deadline:
        with database.writing() as connection:
            count = _drain_batch(connection, _QUEUE_BATCH)
        done += count
        if count == 0:
            break
    return done


def _read_batch(connection: Connection, most: int, chars: int) -> list[Row]:
    """Return the next queued rows, fewer than `most` if their texts have more than `chars` characters."""
    batch: list[Row] = []
    for row in connection.execute(SQL.waiting, (most,)):
        chars -= len(str(row[3] or ""))
        if batch and chars < 0:
            break
        batch.append(row)
    return batch


def _drain_batch(connection: Connection, most: int, *, chars: int = _QUEUE_CHARS) -> int:
    if connection.execute(SQL.is_foreign).fetchone() is not None:
        raise Unreadable(*_FOREIGN)
    waiting = _read_batch(connection, most, chars)
    there = [row for row in waiting if row[1] is not None]
    _unindex(connection, [row[0] for row in waiting if row[1] is None])
    add_texts(connection, texts((row[0], *row[2:-1]) for row in there))
    with row_checksums.pause(connection):
        if waiting:
            connection.execute(SQL.done_up_to, (waiting[-1][0],))
    foreign = [row for row in there if row[-1]]
    message_rows.update_checksums(connection, [row[0] for row in foreign])
    session_rows.recount(connection, {row[1] for row in foreign})
    if len(there) < len(waiting):  # another program removed rows, and nothing says of which sessions
        connection.execute(SQL.recount_all)
    return len(waiting)


def texts(rows: Iterable[Row]) -> list[IndexedText]:
    """Return what is indexed of rows with id, role, content, origin and tool columns."""
    return [
        indexed_text(number, role, content=content or "", origin=origin, tool_name=tool_name, tool_calls=tool_calls)
        for number, role, content, origin, tool_name, tool_calls in rows
    ]


def merge(connection: Connection, pages: int) -> bool:
    """Do one step of merging the segments of the word index, and return whether it changed anything.

    A negative number begins a merge of all segments.
    """
    before = connection.total_changes()
    connection.execute(SQL.merge_words, (pages,))
    return connection.total_changes() - before > 1  # a merge that finds nothing to do still counts as one change


def is_current(connection: Connection) -> bool:
    """Whether this version made the index."""
    return _version(connection) == str(VERSION)


def make_ready(database: Database, *, sink: EventSink, clock: Clock) -> None:
    """Create the index where it is missing; rebuild it when another version made it."""
    found = _version(database.connection)
    if found == str(VERSION):
        return
    if found is None:
        with database.writing() as connection:
            if _version(connection) is None and connection.execute(SQL.any_message).fetchone() is None:
                create(connection)
                _set_version(connection)
                return
    if found in _WITH_SAME_WORDS and _replace_trigrams(database):
        return
    try:
        rebuild(database, sink=sink, clock=clock)
    except Busy:
        return  # another process is rebuilding; until it has finished, searches use the old index


def _replace_trigrams(database: Database) -> bool:
    """Replace the trigrams of an earlier version by an empty list of words, which `fill_spellings` fills in steps."""
    with database.writing() as connection:
        if _version(connection) not in _WITH_SAME_WORDS:
            return is_current(connection)
        for sql in (SQL.drop_substrings, SQL.drop_trigrams, SQL.none_missing):
            connection.execute(sql)
        create(connection)
        ((last,),) = connection.execute(SQL.last_message).fetchall()
        if last is not None:
            connection.execute(SQL.set_missing_below, (str(int(last) + 1),))
        _set_version(connection)
        return True


def fill_spellings(database: Database, *, seconds: float, sink: EventSink) -> int:
    """List the words of messages that an earlier version indexed, the newest first, for about the given time.

    Returns how many messages that were.
    """
    deadline = time.monotonic() + seconds
    done = 0
    while True:
        with database.reading() as connection:
            if connection.execute(SQL.missing_below).fetchone() is None:
                return done
        from wellkept.core.events import Progressed  # few files are old, and a hook has no time for it

        with database.writing() as connection:
            done += _list_older(connection)
        sink(Progressed(TASK, done, None))
        if time.monotonic() >= deadline:
            return done


def _list_older(connection: Connection) -> int:
    (below,) = connection.execute(SQL.missing_below).fetchone() or (None,)
    if below is None:
        return 0  # another process has listed the last ones
    read = texts(connection.execute(SQL.texts_below, (below, _OLD_BATCH)))
    add_spellings(connection, map(spell, read))
    if len(read) < _OLD_BATCH:
        connection.execute(SQL.none_missing)
    else:
        connection.execute(SQL.set_missing_below, (str(read[-1].message_id),))
    return len(read)


def may_have_unused(connection: Connection) -> bool:
    """Whether messages were removed since the list of words was last swept."""
    return connection.execute(SQL.unused).fetchone() is not None


def remove_unused(database: Database) -> int:
    """Remove words that no message contains any more from the list, in short transactions; return how many.

    Words of messages that are stored meanwhile stay: the newest messages are read again before a word is removed.
    """
    (mark,) = database.connection.execute(SQL.unused).fetchone() or ("",)
    used = _collect_all(database)
    count = 0
    for start in range(0, BUCKETS, _SWEPT_BUCKETS):
        with database.writing() as connection:
            listed = read_buckets(connection, range(start, start + _SWEPT_BUCKETS))
            unread = [word for words in listed.values() for word in words if word not in used]
            unused = [word for word in unread if not _is_used(connection, word)]
            remove_spellings(connection, unused)
            count += len(unused)
    with database.writing() as connection:
        connection.execute(SQL.none_unused, (mark,))  # stays if messages were removed meanwhile
    return count


def _collect_all(database: Database) -> set[str]:
    """Return the words of all messages, read in short transactions."""
    used: set[str] = set()
    last = -(2**63)
    while True:
        with database.reading() as connection:
            read = texts(connection.execute(SQL.texts_after, (last, _REBUILD_BATCH)).fetchall())
        used |= collect(database.connection, map(spell, read))
        if len(read) < _REBUILD_BATCH:
            return used
        last = read[-1].message_id


def _is_used(connection: Connection, word: str) -> bool:
    """Whether one of the newest messages has a word: the index lists it with its other forms, so texts are read."""
    expression = f"{quote(word)} OR {quote(SPEAKER + base(word))}"
    found = texts(connection.execute(SQL.texts_with, (expression, _NEWEST_CHECKED)))
    return any(word in cut_words(connection, spell(text)) for text in found)


def rebuild(database: Database, *, sink: EventSink, clock: Clock) -> int:
    """Index every message again and return how many; others read, write and search the old index meanwhile."""
    holder = new_holder()
    try:
        total = _begin_rebuild(database, holder, clock)
        return _fill(database, holder, clock=clock, sink=sink, total=total)
    finally:
        with database.writing() as connection:
            session_rows.release_lease(connection, LEASE, holder=holder)


def _begin_rebuild(database: Database, holder: str, clock: Clock) -> int:
    with database.writing() as connection:
        _hold_lease(connection, holder, clock)
        for sql in (SQL.drop_next_words, SQL.drop_next_trigrams, SQL.drop_next_spellings):
            connection.execute(sql)
        for sql in (SQL.unfollow_queue, SQL.drop_next_queue):
            connection.execute(sql)
        connection.execute(SQL.create_next_queue)
        connection.execute(SQL.follow_queue)
        # the same declaration under another name, so that both indexes have one definition
        connection.execute(SQL.create_words.replace("message_words", "next_words"))
        create_spellings(connection, "next_spellings")
        ((count,),) = connection.execute(SQL.count_messages).fetchall()
        return int(str(count))


def _fill(database: Database, holder: str, *, clock: Clock, sink: EventSink, total: int) -> int:
    from wellkept.core.events import Progressed

    done = last = 0
    while True:
        with database.writing() as connection:
            _hold_lease(connection, holder, clock)
            last, count, is_end = _fill_batch(connection, last)
            done += count
            if is_end:
                _swap(connection)
        sink(Progressed(TASK, min(done, total), total))
        if is_end:
            return done


def _hold_lease(connection: Connection, holder: str, clock: Clock) -> None:
    if not session_rows.take_lease(
        connection, LEASE, holder=holder, now=clock.now().timestamp(), seconds=_LEASE_SECONDS
    ):
        raise Busy("another process is rebuilding the index", "wait until it has ended")


def _fill_batch(connection: Connection, last: int) -> tuple[int, int, bool]:
    """Index the messages after `last`; return the last of them, how many, and whether there are no more."""
    batch = texts(connection.execute(SQL.texts_after, (last, _REBUILD_BATCH)))
    add_texts(connection, batch, name="next_")
    return (batch[-1].message_id if batch else last), len(batch), len(batch) < _REBUILD_BATCH


def _swap(connection: Connection) -> None:
    drop(connection)
    connection.execute(SQL.rename_words)
    connection.execute(SQL.rename_spellings)
    create(connection)
    for sql in (SQL.unfollow_queue, SQL.queue_next, SQL.drop_next_queue, SQL.none_missing, SQL.recount_all):
        connection.execute(sql)
    connection.execute(SQL.none_unused, (None,))
    _set_version(connection)


def _version(connection: Connection) -> str | None:
    row = connection.execute(SQL.version).fetchone()
    return None if row is None else str(row[0])


def _set_version(connection: Connection) -> None:
    connection.execute(SQL.set_version, (str(VERSION),))
