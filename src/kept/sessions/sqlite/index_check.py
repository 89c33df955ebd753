"""The check of the search index: its form, and a comparison with the stored messages.

The messages of a segment are indexed again in memory, and the stored lists must be the same. So damage that leaves
the index readable is found as well.
"""

import random
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kept.core.errors import Unreadable
from kept.sessions.search.analysis import IndexedText, cut
from kept.sessions.sqlite import index
from kept.sessions.sqlite.index import Segment, hash_word, key_range, read_columns, read_segments, texts
from kept.sessions.sqlite.segments import SIZES, Draft, unpack, without
from kept.storage.connections import statements
from kept.storage.sqlite import Connection

SQL = statements("kept.sessions.sqlite", "index_check.sql")
QUICK_CHARS = 4_000_000
"""Text that the doctor indexes again: one or two seconds. Of more text, a sample is compared."""
REPAIR_CHARS = 60_000_000
"""The same for a repair, which may take longer."""
_MOST_NAMED = 5
_HALF = 65_535


class Sample(NamedTuple):
    """The segments whose lists are compared."""

    segments: Sequence[Segment]
    is_all: bool


def find_faults(connection: Connection, *, most_chars: int = QUICK_CHARS, damaged: Collection[int] = ()) -> list[str]:
    """Return what is wrong with the index, each as one sentence; empty when it agrees with the rows.

    `most_chars` of text are compared, 0 for none. `damaged` are messages whose text is damaged: their words are
    others than those that were indexed.
    """
    there = {str(row[0]) for row in connection.execute(SQL.existing).fetchall()}
    wrong = [f"the table {table} of the index is missing" for table in index.TABLES if table not in there]
    if wrong:
        return wrong
    segments = read_segments(connection)
    wrong = list(_check_ranges(segments))
    if wrong:
        return wrong
    for one in segments:
        wrong += _check_columns(connection, one)
    if wrong or not most_chars:
        return wrong
    sample = choose_segments(connection, most_chars=most_chars)
    words: set[str] = set()
    for one in sample.segments:
        wrong += _compare(connection, one, damaged, words)
    if not wrong:
        wrong += _check_words(connection, words, is_all=sample.is_all and not damaged)
    return wrong


def _check_ranges(segments: Sequence[Segment]) -> Iterator[str]:
    end = None
    for one in segments:
        if one.size not in SIZES or one.first % one.size:
            yield f"segment {one.id} of the index has an impossible range"
        elif end is not None and one.first < end:
            yield f"segment {one.id} of the index overlaps with another"
        end = one.first + one.size


def _check_columns(connection: Connection, segment: Segment) -> Iterator[str]:
    """Yield what is wrong with the lengths and sessions of a segment, which tell what messages it contains."""
    try:
        lengths, sessions = read_columns(connection, segment)
    except Unreadable as error:
        yield error.message
        return
    numbers = array("I", sessions)
    found = {segment.first + place: number for place, number in enumerate(numbers) if number}
    rows = connection.execute(SQL.messages_between, (segment.first, segment.end)).fetchall()
    wanted = {int(str(number)): session for number, session in rows}
    missing, left = len(wanted.keys() - found.keys()), len(found.keys() - wanted.keys())
    if missing:
        yield f"{missing} messages are not in the index"
    if left:
        yield f"{left} entries of the index have no message"
    if any(found[number] != session for number, session in wanted.items() if number in found):
        yield f"segment {segment.id} of the index names other sessions than the messages"
    if segment.documents != len(found) or segment.words != sum(array("H", lengths)):
        yield f"segment {segment.id} of the index counts other words than there are"


def choose_segments(connection: Connection, *, most_chars: int) -> Sample:
    """Return the segments to compare, in any order: another sample in every check, so that each has its turn."""
    segments = read_segments(connection)
    random.shuffle(segments)
    chosen: list[Segment] = []
    room = most_chars
    for one in segments:
        ((chars,),) = connection.execute(SQL.chars_between, (one.first, one.end)).fetchall()
        if room < int(str(chars)) and chosen:
            continue
        chosen.append(one)
        room -= int(str(chars))
    return Sample(chosen, len(chosen) == len(segments))


def _compare(connection: Connection, segment: Segment, damaged: Collection[int], words: set[str]) -> Iterator[str]:
    """Yield what is wrong with the lists of a segment; add its words to `words`."""
    draft = Draft(segment.first, segment.size)
    for number, session_id, *rest in connection.execute(index.SQL.texts_between, (segment.first, segment.end)):
        if number not in damaged:
            (text,) = texts([(number, *rest)])
            draft.add(text, session_id)
    words.update(draft.lists)
    gone = {number & _HALF for number in damaged if segment.first <= number < segment.end}
    wanted = {key: set(offsets) for key, offsets in draft.by_key().items()}
    differing: set[int] = set()
    for key, data in connection.execute(index.SQL.lists, key_range(segment.id)):
        try:
            found = set(unpack(data, segment.first, segment.size)) - gone
        except (TypeError, ValueError):
            yield f"a list of segment {segment.id} of the index is damaged"
            return
        differing |= found ^ wanted.pop(key - key_range(segment.id)[0], set())
    differing = differing.union(*wanted.values())
    lengths, _ = read_columns(connection, segment)
    pairs = zip(array("H", lengths), draft.lengths, strict=True)
    ids = {segment.first + place for place, (one, other) in enumerate(pairs) if one != other}.difference(damaged)
    ids |= {(segment.first & ~_HALF) + offset for offset in differing}
    if ids:
        named = ", ".join(map(str, sorted(ids)[:_MOST_NAMED])) + (", …" if len(ids) > _MOST_NAMED else "")
        yield f"the index does not list {len(ids)} messages by the words that are stored: {named}"


def _check_words(connection: Connection, words: set[str], *, is_all: bool) -> Iterator[str]:
    there = {str(row[0]) for row in connection.execute(SQL.words)}
    if words - there:
        yield f"{len(words - there)} words are not in the vocabulary"
    if is_all and there - words:
        yield f"{len(there - words)} words of the vocabulary are in no message"
    if is_all and connection.execute(SQL.astray).fetchone() is not None:
        yield "the index has lists of no segment"


def find_unlisted(connection: Connection, messages: Sequence[IndexedText]) -> Iterator[int]:
    """Yield those of these messages that are in a segment which does not list them by their words."""
    segments = read_segments(connection)
    for text in messages:
        segment = next((one for one in segments if one.first <= text.message_id < one.end), None)
        if segment is None:
            continue
        for word in cut(text)[0]:
            key = key_range(segment.id)[0] + hash_word(word)
            row = connection.execute(index.SQL.list, (key,)).fetchone()
            if row is None or without(bytes(row[0]), segment, [text.message_id & _HALF]) is None:
                yield text.message_id
                break


def describe_sample(connection: Connection, *, most_chars: int) -> str:
    """Return which part of the messages a check compares; empty if it compares all."""
    if not index.is_ready(connection):
        return ""  # the next start begins an index
    sample = choose_segments(connection, most_chars=most_chars)
    if sample.is_all and most_chars:
        return ""
    ((total,),) = connection.execute(SQL.total).fetchall()
    compared = sum(one.documents for one in sample.segments) if most_chars else 20
    return f"the search index is compared for {compared:,} of {total:,} messages"
