"""The list of all words as messages spell them, for searches inside of words.

The word index stores stems, so it cannot tell which words contain a substring. This list has every word of every
indexed message once, as `cut_words` splits it, in 1,024 rows (buckets, by a hash of the word) with one word per line.
A search for a substring scans these rows and then gets the messages of the words from the word index.

When the last message with a word is removed, the word stays in the list until `index.remove_unused` runs.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from wellkept.sessions.search.analysis import SPEAKER, base
from wellkept.sessions.search.postings import substring_pattern
from wellkept.sessions.sqlite.fts5 import cut_words, quote
from wellkept.storage.connections import statements
from wellkept.storage.sqlite import Connection

SQL = statements("wellkept.sessions.sqlite", "spellings.sql")
TABLE = "message_spellings"
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


def create(connection: Connection, table: str = TABLE) -> None:
    """Create the empty list where it does not exist."""
    connection.execute(_for(SQL.create, table))


def add_texts(connection: Connection, texts: Iterable[str], table: str = TABLE) -> None:
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
        connection.executemany(_for(SQL.write, table), changed)


def collect(connection: Connection, texts: Iterable[str]) -> set[str]:
    """Return the words of prepared texts."""
    return set[str]().union(*(cut_words(connection, text) for text in texts))


def find_containing(connection: Connection, text: str) -> list[str]:
    """Return the words that contain `text`, a part of a word."""
    part = "".join(cut_words(connection, text))
    (listed,) = connection.execute(SQL.read_all).fetchone() or ("",)
    return list(_find_in(str(listed or ""), part)) if part else []


def find_messages(connection: Connection, text: str, limit: int, *, has_speakers: bool) -> list[int]:
    """Return the newest messages with a word that contains `text`, a part of a word in lower case; newest first.

    Messages whose words are not listed yet are read one after the other. `has_speakers` tells whether messages begin
    with the names of their speakers, which the word index marks.
    """
    if len(text) < _LEAST_PART:
        return []
    missing, is_there = connection.execute(SQL.missing_below).fetchone() or (None, 0)
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
        found += _numbers(connection.execute(SQL.messages_with, bindings).fetchall())
    if below and len(found) < limit:
        found += _read_below(connection, text, below, limit=limit)
    return sorted(set(found), reverse=True)[:limit]


def _read_below(connection: Connection, text: str, below: int, *, limit: int, most: int = -1) -> list[int]:
    """Return the newest messages below one that contain `text`; at most `most` are read."""
    bindings = (below, text, substring_pattern(text), limit, most)
    return _numbers(connection.execute(SQL.messages_below, bindings).fetchall())


def _numbers(rows: Sequence[Sequence[object]]) -> list[int]:
    """Return the numbers of a JSON array, in one row."""
    return [int(number) for number in json.loads(str(rows[0][0]))]


def find_missing(connection: Connection, words: Iterable[str]) -> list[str]:
    """Return those of the words that are not in the list."""
    found = list(words)
    listed = _read(connection, {_find_bucket(word) for word in found}, TABLE)
    return [word for word in found if f"\n{word}\n" not in listed.get(_find_bucket(word), "")]


def read_buckets(connection: Connection, buckets: Iterable[int]) -> dict[int, list[str]]:
    """Return the words of some buckets."""
    return {bucket: listed.split("\n")[1:-1] for bucket, listed in _read(connection, buckets, TABLE).items()}


def remove(connection: Connection, words: Iterable[str]) -> None:
    """Remove words from the list."""
    unwanted = set(words)
    for bucket, listed in read_buckets(connection, {_find_bucket(word) for word in unwanted}).items():
        left = [word for word in listed if word not in unwanted]
        connection.execute(_for(SQL.write, TABLE), (bucket, "\n".join(["", *left, ""])))


def _find_bucket(word: str) -> int:
    return crc32(word.encode("utf-8", "replace")) % BUCKETS


def _read(connection: Connection, buckets: Iterable[int], table: str) -> dict[int, str]:
    rows = connection.execute(_for(SQL.read, table), (json.dumps(list(buckets)),)).fetchall()
    return {int(str(bucket)): str(listed) for bucket, listed in rows}


def _find_in(listed: str, text: str) -> Iterator[str]:
    """Yield the words with `text`, without splitting the others."""
    place = listed.find(text)
    while place >= 0:
        end = listed.find("\n", place)
        yield listed[listed.rfind("\n", 0, place) + 1 : end]
        place = listed.find(text, end)


def _for(sql: str, table: str) -> str:
    return sql.replace(TABLE, table)
