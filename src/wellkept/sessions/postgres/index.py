"""The search index on PostgreSQL: new texts wait, hundreds of them become a segment, segments are merged.

Writers add the terms of a message to `fresh_words` and its text to `fresh_substrings`. `merge` writes segments of them
(`segments.py`): 256 texts, 4,096, 65,536. A message that is indexed again waits among the fresh ones,
which win over a segment that still names it; one that was removed is listed in `gone_messages` until `rewrite` has
written the segments without it.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, Protocol, cast

from wellkept.sessions.postgres import segments
from wellkept.sessions.postgres.segments import MOST_DOCUMENTS, SUBSTRING, Draft
from wellkept.sessions.records import MessageRow, Row
from wellkept.sessions.rows import message_rows
from wellkept.sessions.rows.database import TextIndex, find_index
from wellkept.sessions.search.analysis import IndexedText, indexed_text, prepare
from wellkept.storage.connections import statements
from wellkept.storage.postgres.unit import Unit

SQL = statements("wellkept.sessions.postgres", "index.sql")
FRESH_MOST = 256
"""Texts that a search reads one by one."""
_SMALL = 4_096
_PARTS = 16
"""How many segments of one size are merged into one of the next."""
_BATCH = 500
_LOOK_EVERY = 32
"""Ids between two checks of how many texts wait, because each check is a query."""
WORDS_TOKENIZER = ("porter", "unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc So")
_SUBSTRINGS_TOKENIZER = ("trigram", "remove_diacritics", "1")
_FLAGS = 0x0004
"""FTS5_TOKENIZE_DOCUMENT."""


class _Tokenize(Protocol):
    def __call__(
        self, utf8: bytes, flags: int, locale: str | None, *, include_offsets: bool, include_colocated: bool
    ) -> Iterable[object]: ...


_local = threading.local()


def _tokenizer(name: str, arguments: Sequence[str]) -> _Tokenize:
    """Return a tokenizer of SQLite, one for each thread: both databases must cut texts alike."""
    known: dict[str, _Tokenize] = _local.__dict__.setdefault("tokenizers", {})
    if name not in known:
        from wellkept.storage.versions import build_reference

        if "memory" not in _local.__dict__:
            _local.memory = build_reference((), 0)
        known[name] = _local.memory.fts5_tokenizer(name, list(arguments))
    return known[name]


def cut_text(tokenizer: Sequence[str], text: str) -> list[str]:
    """Return the tokens of `text`; the stemmer may cut a character in two, and such a word has none."""
    tokenize = _tokenizer(tokenizer[0], tokenizer[1:])

    def run(part: str) -> list[str]:
        utf8 = part.encode("utf-8", "replace")
        return cast("list[str]", tokenize(utf8, _FLAGS, None, include_offsets=False, include_colocated=False))

    try:
        return run(text)
    except UnicodeDecodeError:
        found: list[str] = []
        for word in text.split():
            try:
                found += run(word)
            except UnicodeDecodeError:
                continue
        return found


def cut_words(words: str, marks: str) -> tuple[int, frozenset[str]]:
    """Return the length of a message and its terms."""
    own = cut_text(WORDS_TOKENIZER, words)
    return len(own), frozenset(own).union(cut_text(WORDS_TOKENIZER, marks))


@lru_cache(maxsize=1_024)
def cut_substrings(text: str) -> frozenset[str]:
    """Return the terms of three characters each that a text contains."""
    return frozenset(SUBSTRING + token for token in cut_text(_SUBSTRINGS_TOKENIZER, text))


class UnitIndex:
    """The index as one transaction changes it."""

    most_queued = 0

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.is_queued = False
        self.user_statements: dict[str, None] = {}
        """What brings the list of users up to date, each statement once, in order."""
        self.is_merge_due = False
        """Whether to call `merge` once this transaction is committed."""

    def add(self, rows: Sequence[tuple[int, MessageRow]]) -> None:
        """Index inserted rows, each given with its id."""
        read = ((number, row.role, row.content, row.origin, row.tool_name, row.tool_calls) for number, row in rows)
        self.add_texts(list(_texts(read)))

    def add_texts(self, texts: Sequence[IndexedText]) -> None:
        """Index texts, or index them again."""
        for start in range(0, len(texts), _BATCH):  # the server ends a transaction that pauses for seconds
            ready = [prepare(text) for text in texts[start : start + _BATCH]]
            cut = [(row, *cut_words(row.words, row.marks)) for row in ready]
            rows = [(row.message_id, length, "\n".join(terms), row.spelled) for row, length, terms in cut]
            self._unit.executemany(SQL.add_text, rows)
            if len(ready) > _LOOK_EVERY:  # the few rows of a turn are sent in one round trip with the commit
                self._unit.flush()
            self.is_merge_due |= len(ready) > _LOOK_EVERY or any(row.message_id % _LOOK_EVERY == 0 for row in ready)

    def remove(self, message_ids: Sequence[int]) -> None:
        if message_ids:
            named = {"ids": list(message_ids)}
            for statement in (SQL.drop_words, SQL.drop_substrings, SQL.set_gone, SQL.done):
                self._unit.execute(statement, named)

    def queue(self, message_ids: Sequence[int]) -> None:
        """Index messages again, in their new state, before the transaction ends."""
        self.is_queued = True
        if message_ids:
            self._unit.execute(SQL.queue, {"ids": list(message_ids)})

    def note_changes(self) -> None:
        self.is_queued = True

    def note_session(self, *, is_removed: bool = False) -> None:
        self.user_statements.setdefault(SQL.drop_user if is_removed else SQL.add_user)

    def finish(self) -> None:
        """Index the messages that this transaction has queued or changed; call it before the commit."""
        if self.is_queued:
            while waiting := self._unit.execute(SQL.waiting, {"limit": _BATCH}).fetchall():
                there: list[Row] = [row for row in waiting if row[1] is not None]
                self.remove([int(str(row[0])) for row in waiting if row[1] is None])
                self.add_texts(list(_texts(row[:1] + row[2:] for row in there)))
                ids = [int(str(row[0])) for row in there]
                # a message that was removed before came back
                self._unit.execute(SQL.not_gone, {"ids": ids})
                message_rows.update_checksums(self._unit, ids)
                self._unit.execute(SQL.done, {"ids": [int(str(row[0])) for row in waiting]})


@find_index.register(Unit)
def _find_unit_index(unit: Unit) -> TextIndex:
    assert isinstance(unit.text_index, UnitIndex), "the store opens every transaction that changes sessions"
    return unit.text_index


def _texts(rows: Iterable[Row]) -> Iterable[IndexedText]:
    for number, role, content, origin, tool_name, tool_calls in rows:
        yield indexed_text(
            number, role, content=content or "", origin=origin, tool_name=tool_name, tool_calls=tool_calls
        )


class Stored(NamedTuple):
    """A segment as it is stored, without its lists."""

    id: int
    draft: Draft
    """Messages and lengths; the lists are empty."""


def merge(unit: Unit, *, everything: bool = False) -> None:
    """Write fresh texts to segments and merge small segments, unless another process is doing so.

    With `everything`, merge even a few texts, rewrite segments without removed messages, and wait for the other
    process; raise Busy if that takes too long.
    """
    if everything:
        unit.execute(SQL.wait_for_lock)
    elif max(_count_waiting(unit)) < FRESH_MOST or unit.execute(SQL.lock).fetchone() != (True,):
        return
    unit.execute(SQL.allow_pauses)
    waiting, _ = _count_waiting(unit)
    while waiting >= (1 if everything else FRESH_MOST):
        stored = _store_fresh(unit)
        # 0 if another transaction has removed them meanwhile
        waiting = waiting - stored if stored else 0
    small = [one for one in read_stored(unit) if one.draft.documents < _SMALL]
    _merge_small(unit, small, _SMALL)
    large = [one for one in read_stored(unit) if _SMALL <= one.draft.documents < MOST_DOCUMENTS]
    _merge_small(unit, large, MOST_DOCUMENTS)
    gone = {int(str(number)) for (number,) in unit.execute(SQL.gone)}
    if gone and (everything or len(gone) >= FRESH_MOST):
        rewrite(unit, gone)
        # only these: another transaction may have added some since
        unit.execute(SQL.not_gone, {"ids": list(gone)})


def _count_waiting(unit: Unit) -> tuple[int, int]:
    """Return how many texts are in no segment, and how many messages of segments are gone."""
    ((fresh, gone),) = unit.execute(SQL.count_waiting).fetchall()
    return int(str(fresh)), int(str(gone))


def _store_fresh(unit: Unit) -> int:
    """Write the oldest fresh texts to one segment, and return how many there were."""
    fresh = unit.execute(SQL.fresh, {"limit": _SMALL}).fetchall()
    ids = [int(str(row[0])) for row in fresh]
    if not ids:
        return 0
    rewrite(unit, set(ids))  # the older text of a message that was indexed again
    texts = []
    for number, length, terms, substrings in fresh:
        own = filter(None, str(terms).split("\n"))
        texts.append((int(str(number)), int(str(length)), cut_substrings(str(substrings)).union(own)))
    _write(unit, segments.build(texts))
    named = {"ids": ids}
    unit.execute(SQL.drop_words, named)
    unit.execute(SQL.drop_substrings, named)
    return len(ids)


def _merge_small(unit: Unit, small: Sequence[Stored], size: int) -> None:
    if len(small) < _PARTS and sum(one.draft.documents for one in small) < size:
        return
    chosen: list[Stored] = []
    for one in small:
        if sum(each.draft.documents for each in chosen) + one.draft.documents > MOST_DOCUMENTS:
            break
        chosen.append(one)
    if len(chosen) > 1:
        _write(unit, segments.merge([_load(unit, one) for one in chosen]))
        for one in chosen:
            _drop(unit, one.id)


def rewrite(unit: Unit, message_ids: set[int]) -> int:
    """Rewrite the segments that contain any of these messages without them; return how many."""
    count = 0
    for one in read_stored(unit):
        if message_ids.isdisjoint(one.draft.messages):
            continue
        count += 1
        left = segments.merge([_load(unit, one)], without=frozenset(message_ids))
        _drop(unit, one.id)
        if left.documents:
            _write(unit, left)
    return count


def rebuild(unit: Unit) -> int:
    """Index every message of the user again, and return how many; the old index counts until the commit."""
    unit.execute(SQL.allow_pauses)
    for statement in (SQL.drop_all, SQL.drop_all_buckets, SQL.drop_all_fresh, SQL.drop_all_fresh_substrings):
        unit.execute(statement)
    unit.execute(SQL.clear_gone)
    texts, count = _cut_all(unit), 0
    while (draft := segments.build(islice(texts, MOST_DOCUMENTS))).documents:
        _write(unit, draft)
        count += draft.documents
    return count


def _cut_all(unit: Unit) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Yield every message of the user with its length and its terms, and remove it from the queue."""
    after = 0
    while rows := unit.execute(SQL.rows_after, {"after": after, "limit": _BATCH}).fetchall():
        after = int(str(rows[-1][0]))
        for row in map(prepare, _texts(rows)):
            length, terms = cut_words(row.words, row.marks)
            yield row.message_id, length, cut_substrings(row.spelled).union(terms)
        unit.execute(SQL.done, {"ids": [int(str(row[0])) for row in rows]})


def read_stored(unit: Unit) -> list[Stored]:
    """Return the user's segments without their lists, the oldest first."""
    return [
        Stored(
            int(str(number)),
            Draft(segments.from_bytes("q", _bytes(messages)), segments.from_bytes("H", _bytes(lengths)), {}),
        )
        for number, _, messages, lengths in unit.execute(SQL.segments)
    ]


def _load(unit: Unit, one: Stored) -> Draft:
    rows = unit.execute(SQL.buckets, {"segment": one.id}).fetchall()
    return segments.read(one.draft.messages, one.draft.lengths, (_bytes(row[0]) for row in rows))


def _write(unit: Unit, draft: Draft) -> None:
    buckets = draft.write_buckets()
    head = (draft.documents, sum(draft.lengths), len(buckets))
    columns = (segments.to_bytes(draft.messages), segments.to_bytes(draft.lengths))
    ((number,),) = unit.execute(SQL.add_segment, (*head, *columns)).fetchall()
    unit.executemany(SQL.add_bucket, [(number, place, data) for place, data in enumerate(buckets)])


def _drop(unit: Unit, segment: int) -> None:
    for statement in (SQL.drop_segment, SQL.drop_buckets):
        unit.execute(statement, {"segment": segment})


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
