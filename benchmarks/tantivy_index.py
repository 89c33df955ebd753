"""A prototype of the search port on tantivy: an index in a folder beside the database; `engines.py` measures it.

It needs the package `tantivy`, on which kept does not depend. Texts are prepared and cut into tokens by kept, so that
both engines hold the same terms. What tantivy lacks (texts, sessions) is read from the database.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import tantivy

from wellkept.sessions.records import Row
from wellkept.sessions.search.analysis import prepare
from wellkept.sessions.search.postings import AllOf, AnyOf, Lookup, Prefix, Without, Word, substring_pattern
from wellkept.sessions.search.query import All, Any, Kind, Node, Not, Query, Term
from wellkept.sessions.sqlite import index as fts5_index
from wellkept.sessions.sqlite.fts5 import Fts5Analyzer
from wellkept.sessions.sqlite.postings import SqlitePostings
from wellkept.storage.sqlite import Connection

HEAP_BYTES = 15_000_000
"""The least that a writer accepts; more is of use for imports only."""
IMPORT_HEAP_BYTES, IMPORT_BATCH = 100_000_000, 2_000
STALE_SHARE = 0.02
NARROW = 2_000
"""Ids of a span up to which their own lists are joined; of a wider one the column of ids is compared."""
BLOCK_BITS = 5
"""Messages with neighbouring ids, which are about as many as a session has: 32."""
_CHECKED = (400, 4_000)
"""Messages with all trigrams of a text that are read for it: at first, and where few of them contain it."""
_CONTAINING = """
SELECT m.id FROM json_each(?1) CROSS JOIN messages AS m ON m.id = value
WHERE instr(lower(m.content), ?2) OR (octet_length(m.content) <> length(m.content) AND m.content LIKE ?3)
"""
_MUST, _SHOULD, _NOT = tantivy.Occur.Must, tantivy.Occur.Should, tantivy.Occur.MustNot


class TantivyIndex:
    """The index of one folder, as one process has it open."""

    def __init__(self, folder: Path, connection: Connection, *, detail: str = "position", trigrams: str = "message"):
        folder.mkdir(parents=True, exist_ok=True)
        self._connection, self._lease, self._newest = connection, folder / "lease", folder / "newest"
        self._trigrams = trigrams
        builder = tantivy.SchemaBuilder()
        builder.add_integer_field("id", indexed=True, fast=True)
        builder.add_integer_field("block", indexed=True)
        builder.add_integer_field("length", fast=True)
        builder.add_text_field("words", tokenizer_name="whitespace", index_option=detail)
        builder.add_text_field("trigrams", tokenizer_name="three", index_option="basic")
        self.schema = builder.build()
        self._index = tantivy.Index(self.schema, path=str(folder))
        three = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(3, 3)).filter(tantivy.Filter.lowercase())
        self._index.register_tokenizer("three", three.build())
        # the other policy starts a thread that watches the folder
        self._index.config_reader("manual")
        self.analyzer = Fts5Analyzer(connection)
        self._writer: tantivy.IndexWriter | None = None
        self._mean = 0, 1.0

    def searcher(self) -> tantivy.Searcher:
        """Return the last committed state."""
        self._index.reload()
        return self._index.searcher()

    def mean_length(self, searcher: tantivy.Searcher) -> float:
        """Return the mean number of words; computed anew when the number of messages has changed by a small share."""
        documents, known = self._mean
        if abs(searcher.num_docs - documents) > STALE_SHARE * documents:
            found = searcher.aggregate(tantivy.Query.all_query(), {"mean": {"avg": {"field": "length"}}})
            known = float(found["mean"]["value"] or 1.0)
            self._mean = searcher.num_docs, known
        return known

    def newest(self) -> int:
        """Return the highest id that is indexed; a file has it, because tantivy would read the column of all ids."""
        return int(self._newest.read_text()) if self._newest.exists() else 0

    def fill(self) -> None:
        """Index all messages that are newer than the newest indexed one, as an import."""
        writer, last = self._index.writer(IMPORT_HEAP_BYTES, 1), self.newest()
        while rows := self.read_after(last, IMPORT_BATCH):
            self._add(writer, rows)
            last = int(str(rows[-1][0]))
        writer.commit()
        self._newest.write_text(str(last))
        writer.wait_merging_threads()

    def catch_up(self, *, keeps_writer: bool = False) -> int:
        """Index what is newer, under the lease of all processes; return how many messages.

        A process that waited for the lease often finds its message indexed by the one before. With `keeps_writer` no
        other process can write until `close`.
        """
        with self._hold_lease():
            last = self.newest()
            rows = self.read_after(last, IMPORT_BATCH)
            if not rows:
                return 0
            writer = self._writer or self._index.writer(HEAP_BYTES, 1)
            self._add(writer, rows)
            writer.commit()
            self._newest.write_text(str(rows[-1][0]))
            if keeps_writer:
                self._writer = writer
            else:
                writer.wait_merging_threads()  # a writer that is dropped ends its merges, and segments pile up
        return len(rows)

    def remove(self, message_id: int) -> None:
        """Remove one message, as thoroughly as the package can: it cannot be told to merge segments."""
        with self._hold_lease():
            writer = self._writer or self._index.writer(HEAP_BYTES, 1)
            writer.delete_documents_by_term("id", message_id)
            writer.commit()
            writer.garbage_collect_files()
            writer.wait_merging_threads()
            self._writer = None

    def close(self) -> None:
        """End the merges of a writer that was kept, and let others write."""
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def read_after(self, last: int, most: int) -> list[Row]:
        """Return messages that are newer than `last`."""
        return self._connection.execute(fts5_index.SQL.texts_after, (last, most)).fetchall()

    def _add(self, writer: tantivy.IndexWriter, rows: Iterable[Row]) -> None:
        tokens = self.analyzer.tokens
        for text in fts5_index.texts(rows):
            ready = prepare(text)
            said = tokens(ready.words)
            number = text.message_id
            row: dict[str, int | str] = {"id": number, "block": number >> BLOCK_BITS, "length": len(said)}
            row["words"] = " ".join([*said, *tokens(ready.marks)])
            if self._trigrams:
                row["trigrams"] = ready.spelled
            writer.add_document(tantivy.Document.from_dict(row, self.schema))

    @contextmanager
    def _hold_lease(self) -> Iterator[None]:
        descriptor = os.open(self._lease, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class TantivyPostings:
    """The index during one search; implements `search.postings.Postings`."""

    def __init__(self, index: TantivyIndex, connection: Connection) -> None:
        self._connection, self._schema = connection, index.schema
        self.searcher = index.searcher()
        self.documents = self.searcher.num_docs
        self.mean_length = index.mean_length(self.searcher)
        self.tokens = index.analyzer.tokens
        self.stem = index.analyzer.stem
        self.stop_tokens = index.analyzer.stop_tokens

    @cached_property
    def _rows(self) -> SqlitePostings:
        return SqlitePostings(self._connection)

    def mean_session(self) -> float:
        """Return the mean number of messages in a session."""
        return self._rows.mean_session()

    def expect(self, words: Sequence[str]) -> None:
        """Do nothing: every list is near."""

    def frequency(self, word: str) -> int:
        """Return how many messages contain the word, with those that were removed since the last merge."""
        token = self.stem(word)
        return self.searcher.doc_freq("words", token) if token else 0

    def vocabulary(self, start: str) -> list[tuple[str, int]]:
        """Return the tokens that start with `start`, each with its frequency."""
        return list(self.searcher.terms_with_prefix("words", start))

    def ids(self, lookup: Lookup) -> list[int]:
        """Return the matching messages in ascending order: a hit of tantivy for each, sorted by the column of ids."""
        return self._list(self._translate(lookup), self.documents)[::-1]

    def ids_between(self, lookup: Lookup, first: int, last: int) -> list[int]:
        """Return the matching messages from `first` to `last` in ascending order."""
        return self._list(self._restrict(self._translate(lookup), first, last), self.documents)[::-1]

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        """Return the newest matching messages in ascending order; tantivy reads the whole list for them."""
        query = self._translate(lookup)
        if below is not None:
            query = self._restrict(query, 0, below - 1)
        return self._list(query, limit)[::-1]

    def newest_containing(self, text: str, limit: int) -> list[int]:
        """Return the newest messages that contain `text`, of those that have all of its trigrams."""
        query, found = self.contain(text), list[int]()
        if query is None:
            return found
        for page_size in _CHECKED:
            page = self._list(query, page_size)
            # trigrams do not say where they are, and what is left out here would be read for nothing
            rows = self._connection.execute(_CONTAINING, (json.dumps(page), text, substring_pattern(text))).fetchall()
            found = sorted((int(str(number)) for (number,) in rows), reverse=True)
            if len(found) >= limit or len(page) < page_size:
                break
        return found[:limit]

    def talk_before(self, below: int | None, limit: int) -> list[tuple[int, str]]:
        """Return id and text of what people and models said, newest first."""
        return self._rows.talk_before(below, limit)

    def lengths(self, ids: Iterable[int]) -> Mapping[int, int]:
        """Return the number of words of each message from a table of the database, which takes less time."""
        return self._rows.lengths(ids)

    def read_lengths(self, ids: Sequence[int]) -> dict[int, int]:
        """Return the lengths from tantivy: the place of each message is looked up, then a column is read."""
        query = tantivy.Query.term_set_query(self._schema, "id", list(ids))
        hits = self.searcher.search(query, len(ids), count=False, order_by_field="id").hits
        lengths = self.searcher.fast_field_values("length", [address for _, address in hits])
        return {int(hit[0]): int(length or 1) for hit, length in zip(hits, lengths, strict=True)}

    def texts(self, ids: Sequence[int], *, holding: str = "") -> dict[int, str]:
        """Return the text of each message."""
        return self._rows.texts(ids, holding=holding)

    def best(self, query: tantivy.Query, limit: int) -> list[int]:
        """Return the best messages by tantivy's own BM25, which no method of the port asks for."""
        hits = self.searcher.search(query, limit, count=False).hits
        return [int(number or 0) for number in self.searcher.fast_field_values("id", [place for _, place in hits])]

    def ask(self, query: Query) -> tantivy.Query:
        """Return a parsed query in tantivy's own form, to rank by BM25."""
        if query.condition is not None:
            return self._translate_node(query.condition)
        return tantivy.Query.boolean_query([(_SHOULD, self._translate_node(term)) for term in query.terms])

    def contain(self, text: str) -> tantivy.Query | None:
        """Return what finds all trigrams of `text`; None if it has none."""
        three = dict.fromkeys(text[place : place + 3] for place in range(len(text) - 2))
        terms = [tantivy.Query.term_query(self._schema, "trigrams", one.lower(), "basic") for one in three]
        return tantivy.Query.boolean_query([(_MUST, term) for term in terms]) if terms else None

    def _translate_node(self, node: Node) -> tantivy.Query:
        match node:
            case Term(text, kind):
                if kind is Kind.PREFIX:
                    return self._translate(Prefix(text))
                tokens = list(self.tokens(text))
                if kind is Kind.PHRASE and len(tokens) > 1:
                    return tantivy.Query.phrase_query(self._schema, "words", list(tokens))
                return self._every(tokens, "freq")
            case All(nodes):
                parts = [(_NOT, one.node) if isinstance(one, Not) else (_MUST, one) for one in nodes]
                return tantivy.Query.boolean_query([(occur, self._translate_node(one)) for occur, one in parts])
            case Any(nodes):
                return tantivy.Query.boolean_query([(_SHOULD, self._translate_node(one)) for one in nodes])
            case Not(inner):
                every = (_MUST, tantivy.Query.all_query())
                return tantivy.Query.boolean_query([every, (_NOT, self._translate_node(inner))])

    def _translate(self, lookup: Lookup) -> tantivy.Query:
        """Return a lookup in tantivy's form, without scores."""
        match lookup:
            case Word(text):
                return self._every(list(self.tokens(text)), "basic")
            case Prefix(text):
                return tantivy.Query.regex_query(self._schema, "words", re.escape(self.stem(text)) + ".*")
            case AllOf(parts):
                return tantivy.Query.boolean_query([(_MUST, self._translate(part)) for part in parts])
            case AnyOf(parts):
                return tantivy.Query.boolean_query([(_SHOULD, self._translate(part)) for part in parts])
            case Without(wanted, unwanted):
                return tantivy.Query.boolean_query(
                    [(_MUST, self._translate(wanted)), (_NOT, self._translate(unwanted))]
                )

    def _every(self, tokens: Sequence[str], detail: str) -> tantivy.Query:
        terms = [tantivy.Query.term_query(self._schema, "words", token, detail) for token in tokens]
        return terms[0] if len(terms) == 1 else tantivy.Query.boolean_query([(_MUST, term) for term in terms])

    def _restrict(self, query: tantivy.Query, first: int, last: int) -> tantivy.Query:
        kind, is_narrow = tantivy.FieldType.Integer, last - first <= NARROW
        span = tantivy.Query.range_query(self._schema, "id", kind, first, last, use_inverted_index=is_narrow)
        return tantivy.Query.boolean_query([(_MUST, query), (_MUST, span)])

    def _list(self, query: tantivy.Query, limit: int) -> list[int]:
        """Return the ids of at most `limit` matching messages, newest first."""
        if limit <= 0:
            return []
        return [number for number, _ in self.searcher.search(query, limit, count=False, order_by_field="id").hits]
