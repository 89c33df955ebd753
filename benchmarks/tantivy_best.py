"""Candidates chosen by tantivy: the best messages, and the best blocks of 32 messages, by BM25; see `engines.py`.

A message's neighbours and its session count in kept's ranking, of which BM25 of single messages knows nothing. So
blocks are indexed as well, as documents of their own, in a second index.
"""

from pathlib import Path

import tantivy
from benchmarks.tantivy_index import BLOCK_BITS, IMPORT_BATCH, IMPORT_HEAP_BYTES, TantivyIndex, TantivyPostings

from wellkept.sessions.search.analysis import prepare
from wellkept.sessions.search.postings import AllOf, AnyOf, Lookup, Word
from wellkept.sessions.search.query import Any, Kind, Query
from wellkept.sessions.sqlite import index as fts5_index
from wellkept.storage.sqlite import Connection

MOST_TERMS = 20
"""Terms whose bits fit the score of a hit."""
_MUST, _SHOULD = tantivy.Occur.Must, tantivy.Occur.Should


class BlockIndex:
    """An index whose documents are blocks of messages."""

    def __init__(self, folder: Path, messages: TantivyIndex) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        builder = tantivy.SchemaBuilder()
        builder.add_integer_field("block", indexed=True, fast=True)
        builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
        self._schema, self._messages = builder.build(), messages
        self._index = tantivy.Index(self._schema, path=str(folder))
        if self._index.searcher().num_docs == 0:
            self._fill()

    def _fill(self) -> None:
        writer, tokens, last = self._index.writer(IMPORT_HEAP_BYTES, 1), self._messages.analyzer.tokens, 0
        blocks: dict[int, list[str]] = {}
        while rows := self._messages.read_after(last, IMPORT_BATCH):
            for text in fts5_index.texts(rows):
                ready = prepare(text)
                said = [*tokens(ready.words), *tokens(ready.marks)]
                blocks.setdefault(text.message_id >> BLOCK_BITS, []).append(" ".join(said))
            last = int(str(rows[-1][0]))
            for block in sorted(blocks)[: None if len(rows) < IMPORT_BATCH else -1]:
                writer.add_document(tantivy.Document(block=block, words=" ".join(blocks.pop(block))))
        writer.commit()
        writer.wait_merging_threads()
        self._index.reload()

    def best(self, tokens: list[str], limit: int) -> list[int]:
        """Return the blocks with the highest BM25."""
        terms = [tantivy.Query.term_query(self._schema, "words", token, "freq") for token in tokens]
        searcher = self._index.searcher()
        hits = searcher.search(
            tantivy.Query.boolean_query([(_SHOULD, term) for term in terms]), limit, count=False
        ).hits
        return [int(block or 0) for block in searcher.fast_field_values("block", [place for _, place in hits])]


class BestPostings(TantivyPostings):
    """Lists of plain words only as far as they are near the best messages by BM25: tantivy chooses the candidates.

    Explicit conditions and prefixes are answered from whole lists.
    """

    def __init__(
        self,
        index: TantivyIndex,
        blocks: BlockIndex,
        connection: Connection,
        query: Query,
        limits: tuple[int, int, int],
    ) -> None:
        super().__init__(index, connection)
        self._blocks, self._limits = blocks, limits
        self._lists: dict[str, list[int]] = {}
        if query.condition is None or isinstance(query.condition, Any):
            self._read_near(query)

    def _read_near(self, query: Query) -> None:
        """Read which terms the messages around the best ones contain: a score of 2 to the power of its number each."""
        words = [self.tokens(term.text) for term in query.terms if term.kind is Kind.WORD]
        tokens = list(dict.fromkeys(token for found in words for token in found))[:MOST_TERMS]
        messages, around, most = self._limits
        hits = self.best(self.ask(query), messages)
        blocks = list(dict.fromkeys(hit >> BLOCK_BITS for hit in hits))[:around]
        if most:
            blocks = list(dict.fromkeys([*self._blocks.best(tokens, most), *blocks]))
        # a set of terms takes three times as long
        near = [tantivy.Query.term_query(self._schema, "block", block, "basic") for block in blocks]
        held = []
        for bit, token in enumerate(tokens):
            term = tantivy.Query.term_query(self._schema, "words", token, "basic")
            held.append((_SHOULD, tantivy.Query.const_score_query(term, float(1 << bit))))
        inside = tantivy.Query.boolean_query([(_SHOULD, block) for block in near])
        both = [(_MUST, tantivy.Query.const_score_query(inside, 0.0)), (_MUST, tantivy.Query.boolean_query(held))]
        limit = max(1, len(blocks) << BLOCK_BITS)
        found = self.searcher.search(tantivy.Query.boolean_query(both), limit, count=False)
        numbers = self.searcher.fast_field_values("id", [place for _, place in found.hits])
        masks = [(int(number or 0), int(score)) for number, (score, _) in zip(numbers, found.hits, strict=True)]
        masks.sort()
        for bit, token in enumerate(tokens):
            self._lists[token] = [number for number, mask in masks if mask >> bit & 1]

    def _find_near(self, lookup: Lookup) -> list[int] | None:
        match lookup:
            case Word(text):
                return self._lists.get(self.stem(text))
            case AllOf(parts) | AnyOf(parts):
                lists = [self._find_near(part) for part in parts]
                known = [set(found) for found in lists if found is not None]
                if len(known) < len(lists) or not known:
                    return None
                return sorted(set.intersection(*known) if isinstance(lookup, AllOf) else set.union(*known))
            case _:
                return None

    def ids(self, lookup: Lookup) -> list[int]:
        """Return the matching messages near the best ones, of other lookups all."""
        near = self._find_near(lookup)
        return super().ids(lookup) if near is None else near

    def newest_ids(self, lookup: Lookup, limit: int, *, below: int | None = None) -> list[int]:
        """Return the newest matching messages near the best ones, of other lookups the newest."""
        near = self._find_near(lookup) if below is None else None
        return super().newest_ids(lookup, limit, below=below) if near is None else near[-limit:]
