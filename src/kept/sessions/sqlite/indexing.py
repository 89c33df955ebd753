"""Work on the search index: one process at a time, in short transactions, under a lease.

What a killed process left is removed by the next; searches read the segments that were complete, and messages that no
segment covers directly.
"""

import json
import time
from array import array
from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self

from kept.core.clock import SystemClock
from kept.core.errors import Busy
from kept.core.ports import Clock, EventSink, ignore
from kept.sessions.records import Row
from kept.sessions.sqlite import checksums, index, session_rows
from kept.sessions.sqlite.index import (
    CHUNK,
    SQL,
    VERSION,
    WORD_BITS,
    WORDS,
    Segment,
    hash_word,
    key_range,
    read_columns,
    read_segments,
    texts,
)
from kept.sessions.sqlite.segments import (
    LARGEST_BUILD,
    QUEUE_BATCH,
    Block,
    Draft,
    Leftovers,
    OldIndex,
    Queue,
    find_work,
    merge_lists,
    pack,
    place_columns,
    unpack,
    without,
)
from kept.storage.leases import new_holder
from kept.storage.sqlite import Connection, Database

TASK = "indexing messages"
LEASE = "reindex"
_LEASE_SECONDS = 120.0
_SLICE = 1_000
"""Lists that one transaction writes: two milliseconds, for which other writers wait."""
_POLL_SECONDS = 0.05


def catch_up(
    database: Database, *, seconds: float, sink: EventSink = ignore, clock: Clock | None = None, waits: bool = False
) -> int:
    """Index what is not indexed yet, newest first, for about the given time; return how many messages.

    While another process works on the index, it does nothing, or with `waits` waits for it.
    """
    deadline, done = time.monotonic() + seconds, 0
    while True:
        with database.reading() as connection:
            if not index.is_behind(connection):
                return done
        try:
            with _Indexing(database, sink=sink, clock=clock or SystemClock()) as indexing:
                while time.monotonic() < deadline and (count := indexing.step()) is not None:
                    done += count
        except Busy:
            if not waits:
                return done
            time.sleep(_POLL_SECONDS)
        if time.monotonic() >= deadline:
            return done


def is_erased(connection: Connection) -> bool:
    """Whether no list contains a message that was removed."""
    return not isinstance(find_work(connection), Queue | Leftovers)


def rebuild(database: Database, *, sink: EventSink, clock: Clock) -> int:
    """Build every segment again and return how many messages; searches use each old one until then."""
    with _Indexing(database, sink=sink, clock=clock) as indexing:
        indexing.rebuild()
    catch_up(database, seconds=float("inf"), sink=sink, clock=clock)
    with database.reading() as connection:
        ((count,),) = connection.execute(SQL.count_messages).fetchall()
        return int(str(count))


def recreate(database: Database, *, sink: EventSink, clock: Clock) -> int:
    """Build an index that cannot be trusted from nothing, and return how many messages it contains."""
    with _Indexing(database, sink=sink, clock=clock), database.writing() as connection:
        index.drop(connection)
        index.make_ready(connection)
    return catch_up(database, seconds=float("inf"), sink=sink, clock=clock)


class _Indexing:
    """Work on the index while this process holds the lease; raises Busy if another one does."""

    def __init__(self, database: Database, *, sink: EventSink, clock: Clock) -> None:
        self._database = database
        self._sink = sink
        self._clock = clock
        self._holder = new_holder()
        self._done = 0

    def __enter__(self) -> Self:
        with self._database.writing() as connection:
            self._hold(connection)
        return self

    def __exit__(self, *_: object) -> None:
        with self._database.writing() as connection:
            session_rows.release_lease(connection, LEASE, holder=self._holder)

    def _hold(self, connection: Connection) -> None:
        now = self._clock.now().timestamp()
        if not session_rows.take_lease(connection, LEASE, holder=self._holder, now=now, seconds=_LEASE_SECONDS):
            raise Busy("another process is working on the index", "wait until it has ended")

    def step(self) -> int | None:
        """Do what is most urgent and return how many messages were indexed; None if there is nothing to do."""
        with self._database.reading() as connection:
            work = find_work(connection)
        match work:
            case None:
                return None
            case Queue(rows):
                return self._apply_changes(rows)
            case Leftovers(segment_id):
                self._drop_segment(segment_id)
            case OldIndex(table):
                self._drop_old(table)
            case Block():
                return self._merge(work) if work.is_merge else self._build(work)
        return 0

    def rebuild(self) -> None:
        """Build every segment again; remove words and sessions that nothing contains."""
        with self._database.reading() as connection:
            segments = read_segments(connection)
        for one in reversed(segments):
            self._build(Block(one.first, one.size, (one,)))
        with self._database.writing() as connection:
            connection.execute(SQL.recount_all)
            connection.execute(SQL.gone_sessions)
        while True:
            with self._database.reading() as connection:
                left = connection.execute(SQL.unfinished).fetchone()
            if left is None:
                break
            self._drop_segment(int(str(left[0])))
        self._drop_unused_words()

    def _build(self, block: Block) -> int:
        """Index the messages of a range."""
        draft = Draft(block.first, block.size)
        with self._database.reading() as connection:
            for number, session_id, *rest in connection.execute(
                SQL.texts_between, (block.first, block.first + block.size)
            ):
                (text,) = texts([(number, *rest)])
                draft.add(text, session_id)
        segment = self._begin(block)
        self._write(SQL.add_term, ((word,) for word in sorted(draft.lists)))
        base = segment << WORD_BITS
        self._write(SQL.add_list, ((base + key, data) for key, data in draft.rows()))
        with self._database.writing(with_checksums=False) as connection:
            self._hold(connection)
            numbers = _number_sessions(connection, set(draft.sessions.values()))
            columns = draft.lengths.tobytes(), draft.number_sessions(numbers)
            languages = json.dumps(draft.languages)
            values = (draft.documents, draft.words, languages, *columns, segment)
            connection.execute(SQL.finish_segment, values)
            connection.executemany(SQL.end_segment, [(one.id,) for one in block.parts])
        self._done += draft.documents
        self._report(block.first)
        return draft.documents

    def _begin(self, block: Block) -> int:
        with self._database.writing(with_checksums=False) as connection:
            self._hold(connection)
            ((number,),) = connection.execute(SQL.begin_segment, (block.first, block.size, VERSION)).fetchall()
        return int(str(number))

    def _write(self, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Write rows in small steps, between which others write."""
        left = iter(rows)
        while page := list(islice(left, _SLICE)):
            with self._database.writing(with_checksums=False) as connection:
                self._hold(connection)
                connection.executemany(sql, page)

    def _merge(self, block: Block) -> int:
        """Join the lists of several segments."""
        lists: dict[int, list[tuple[bytes, Segment]]] = {}
        columns = []
        with self._database.reading() as connection:
            for part in block.parts:
                for key, data in connection.execute(SQL.lists, key_range(part.id)):
                    lists.setdefault(key & WORDS, []).append((data, part))
                columns.append((part, *read_columns(connection, part)))
        segment_id = self._begin(block)
        base = segment_id << WORD_BITS
        merged = ((base + key, merge_lists(lists[key], block.first, block.size)) for key in sorted(lists))
        self._write(SQL.add_list, merged)
        languages = _add_counts(part.languages for part in block.parts)
        documents, words = sum(one.documents for one in block.parts), sum(one.words for one in block.parts)
        segment = Segment(segment_id, block.first, block.size, 0, documents, words, VERSION, languages)
        lengths = place_columns(segment, [(part, one) for part, one, _ in columns], 2)
        sessions = place_columns(segment, [(part, one) for part, _, one in columns], 4)
        with self._database.writing(with_checksums=False) as connection:
            self._hold(connection)
            connection.execute(SQL.finish_segment, (documents, words, languages, lengths, sessions, segment_id))
            connection.executemany(SQL.end_segment, [(one.id,) for one in block.parts])
        return 0

    def _drop_segment(self, segment_id: int) -> None:
        """Remove a segment that no search reads, in small steps."""
        while True:
            with self._database.writing(with_checksums=False) as connection:
                self._hold(connection)
                connection.execute(SQL.drop_some_lists, (*key_range(segment_id), _SLICE))
                if connection.changes() < _SLICE:
                    connection.execute(SQL.drop_segment, (segment_id,))
                    return

    def _drop_old(self, table: str) -> None:
        """Remove an index of an earlier version; its pages first, because they take long to overwrite."""
        if table != "message_vocabulary":
            changes = _SLICE
            while changes >= _SLICE:
                with self._database.writing(with_checksums=False) as connection:
                    self._hold(connection)
                    connection.execute(SQL.drop_some_pages.replace("{index}", table), (_SLICE,))
                    changes = connection.changes()
        with self._database.writing(with_checksums=False) as connection:
            connection.execute(f"DROP TABLE {table}")

    def _apply_changes(self, waiting: Sequence[Row]) -> int:
        """Bring segments up to date with rows that changed or were removed."""
        ids = [int(row[0]) for row in waiting]
        with self._database.reading() as connection:
            covering = [one for one in read_segments(connection) if any(one.first <= each < one.end for each in ids)]
            changes = [_Change(connection, segment, waiting) for segment in covering]
        with self._database.writing() as connection:
            self._hold(connection)
            if connection.execute(SQL.waiting, (QUEUE_BATCH,)).fetchall()[: len(waiting)] != waiting:
                return 0  # changed once more meanwhile
            emptied = [word for change in changes for word in change.write(connection)]
            _drop_words(connection, emptied)
            there = [row for row in waiting if row[1] is not None]
            checksums.update(connection, [row[0] for row in there])
            connection.executemany(SQL.done, [(number,) for number in ids])
            index.recount(connection, {row[1] for row in there})
            if len(there) < len(waiting):  # rows were removed, and nothing says of which sessions
                connection.execute(SQL.recount_all)
                connection.execute(SQL.gone_sessions)
        return len(waiting)

    def _drop_unused_words(self) -> None:
        last = ""
        while True:
            with self._database.reading() as connection:
                page = [str(row[0]) for row in connection.execute(SQL.terms_after, (last, _SLICE))]
                keys = {hash_word(word): word for word in page}
                rows = connection.execute(SQL.unused_keys, (json.dumps(list(keys)),)).fetchall()
            self._write(SQL.drop_term, [(keys[int(str(row[0]))],) for row in rows])
            if len(page) < _SLICE:
                return
            last = page[-1]

    def _report(self, first: int) -> None:
        """Tell how far a long piece of work is; ids stand for the messages, which are not counted."""
        if self._done >= LARGEST_BUILD:
            from kept.core.events import Progressed

            self._sink(Progressed(TASK, self._done, self._done + max(0, first)))


class _Change:
    """The new lists of one segment, some of whose messages were changed or removed."""

    def __init__(self, connection: Connection, segment: Segment, waiting: Sequence[Row]) -> None:
        self._segment = segment
        inside = [row for row in waiting if segment.first <= row[0] < segment.end]
        gone = {row[0] % CHUNK for row in inside}
        self._lists: dict[int, bytes] = {}
        for key, data in connection.execute(SQL.lists, key_range(segment.id)):
            left = without(data, segment, gone)
            if left is not None:
                self._lists[key & WORDS] = left
        self._draft = Draft(segment.first, segment.size)
        for number, session_id, *rest in inside:
            if session_id is not None:
                (text,) = texts([(number, *rest)])
                self._draft.add(text, session_id)
        self._places = [row[0] - segment.first for row in inside]

    def write(self, connection: Connection) -> list[int]:
        """Store the lists; return the hashes of the words whose lists became empty."""
        segment, base = self._segment, self._segment.id << WORD_BITS
        connection.executemany(SQL.add_term, [(word,) for word in self._draft.lists])
        for key, added in self._draft.by_key().items():
            data = self._lists.get(key)
            if data is None:
                row = connection.execute(SQL.list, (base + key,)).fetchone()
                data = b"" if row is None else bytes(row[0])
            offsets = unpack(data, segment.first, segment.size)
            for offset in added:
                insort(offsets, offset)
            self._lists[key] = pack(offsets, segment.first, segment.size)
        connection.executemany(SQL.add_list, [(base + key, data) for key, data in self._lists.items() if data])
        emptied = [key for key, data in self._lists.items() if not data]
        connection.executemany(SQL.drop_list, [(base + key,) for key in emptied])
        self._write_columns(connection)
        return emptied

    def _write_columns(self, connection: Connection) -> None:
        segment, draft = self._segment, self._draft
        old_lengths, old_sessions = read_columns(connection, segment)
        lengths, sessions = array("H", old_lengths), array("I", old_sessions)
        numbers = _number_sessions(connection, set(draft.sessions.values()))
        documents, words = segment.documents, segment.words
        for place in self._places:
            documents += (place in draft.sessions) - bool(sessions[place])
            words += draft.lengths[place] - lengths[place]
            lengths[place] = draft.lengths[place]
            sessions[place] = numbers[draft.sessions[place]] if place in draft.sessions else 0
        values = (documents, words, lengths.tobytes(), sessions.tobytes(), segment.id)
        connection.execute(SQL.change_segment, values)


def _add_counts(counted: Iterable[str]) -> str:
    total: dict[str, int] = {}
    for one in counted:
        for name, count in json.loads(one).items():
            total[name] = total.get(name, 0) + count
    return json.dumps(total)


def _number_sessions(connection: Connection, session_ids: Iterable[str]) -> dict[str, int]:
    """Return the numbers of sessions; those that are new get one."""
    names = list(session_ids)
    connection.executemany(SQL.add_session, [(name,) for name in names])
    rows = connection.execute(SQL.session_numbers, (json.dumps(names),)).fetchall()
    return {str(name): int(str(number)) for name, number in rows}


def _drop_words(connection: Connection, keys: Sequence[int]) -> None:
    """Remove the words of these hashes that no list contains any more, so that nothing is left of a forgotten one."""
    unused = {int(str(row[0])) for row in connection.execute(SQL.unused_keys, (json.dumps(keys),))}
    last = ""
    while unused and (page := [str(row[0]) for row in connection.execute(SQL.terms_after, (last, _SLICE))]):
        connection.executemany(SQL.drop_term, [(word,) for word in page if hash_word(word) in unused])
        last = page[-1]
