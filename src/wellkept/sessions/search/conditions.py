"""The condition of an explicit query: as a lookup in the index, and as a test of the text."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from wellkept.core.text import WORD
from wellkept.sessions.search.analysis import clean, split
from wellkept.sessions.search.postings import AllOf, Analyzer, AnyOf, Lookup, Postings, Without, Word
from wellkept.sessions.search.query import All, Any, Kind, Node, Not, Query, Term
from wellkept.sessions.search.terms import WordForms, prefix_lookup

_PAGE = 500
_MOST_MESSAGES = 3_000
_MOST_CHARACTERS = 750_000
"""Text that is read for a phrase of common words: about 20 ms, and far more than most phrases need."""
_COMMON = 1_500
"""If the rarest word of a phrase is in more messages, its stop words are looked up as well."""
_FEW_TEXTS = 20
"""Reading this many texts is faster than reading the long list of a second word."""
_SHORT_LIST = 400
"""A list up to this length was read when it was counted, so it narrows the texts at no cost."""
_SHORT_LISTS = 200_000
"""In stores up to this size, the list of a stop word is read faster than the texts with a common word."""
_TELLING = 3
"""How many words of a phrase are looked up at most: the rarest ones decide."""
_FIRST = 6_000
_PRINTABLE = bytes(range(0x20, 0x7F))
_ENOUGH = 600
"""After this many matches of a phrase no older texts are read: the phrase is too common to identify a message."""
_ENOUGH_OF_STOP_WORDS = 3
"""The same for a phrase of stop words alone, for each message that the answer shows."""


class Condition(Struct, frozen=True):
    """What a message must fulfil."""

    node: Node
    """What must be tested against the text; what the lookup decides is left out."""
    lookup: Lookup
    """Matches every message that may fulfil it, and no others unless `has_phrase`."""
    has_phrase: bool
    required: str
    """The longest phrase that must occur, folded; empty when there is none."""
    is_common: bool = False
    """Whether it is one phrase of nothing but stop words."""


def compile_condition(postings: Postings, node: Node) -> Condition | None:
    """Return `node` with its lookup, or None when it only excludes messages."""
    lookup = _lookup(postings, node)
    if lookup is None:
        return None
    required = _fold(_required_phrase(node))
    is_common = isinstance(node, Term) and postings.stop_tokens.issuperset(postings.tokens(required))
    left = tuple(child for child in node.nodes if _has_phrase(child)) if isinstance(node, All) else ()
    return Condition(All(left) if left else node, lookup, _has_phrase(node), required, is_common)


def add_forms(query: Query, forms: WordForms) -> Query:
    """Return a query whose condition accepts every form of a word; phrases and prefixes stay literal."""
    if query.condition is None or not forms.languages:
        return query
    return Query(query.terms, _add_forms(query.condition, forms), query.dates)


def _add_forms(node: Node, forms: WordForms) -> Node:
    match node:
        case Term(text, Kind.WORD):
            words = forms.find(text)
            return Any(tuple(map(Term, words))) if words else node
        case Term():
            return node
        case All(nodes):
            return All(tuple(_add_forms(child, forms) for child in nodes))
        case Any(nodes):
            return Any(tuple(_add_forms(child, forms) for child in nodes))
        case Not(child):
            return Not(_add_forms(child, forms))


def find_matching(
    postings: Postings, condition: Condition, *, allowed: Collection[int] | None, limit: int, wanted: int
) -> tuple[set[int], int]:
    """Return the messages that fulfil `condition`, and a lower bound of the older ones that were not tested.

    `wanted` is how many the answer shows.
    """
    if not condition.has_phrase:
        newest = postings.newest_ids(condition.lookup, limit)
        matching = {message_id for message_id in newest if allowed is None or message_id in allowed}
        return matching, int(len(newest) >= limit and _has_older(allowed, newest[0]))
    enough = min(_ENOUGH, _ENOUGH_OF_STOP_WORDS * wanted) if condition.is_common else _ENOUGH
    phrases, below = _PhraseSearch(postings, condition, enough), None
    for size in (min(_FIRST, limit), limit - _FIRST):
        newest = postings.newest_ids(condition.lookup, size, below=below)
        phrases.read([message_id for message_id in newest if allowed is None or message_id in allowed])
        if len(newest) < size:
            return phrases.found, phrases.unread
        below = newest[0]
        if phrases.has_enough:
            break
    assert below is not None
    return phrases.found, phrases.unread + _has_older(allowed, below)


def _has_older(allowed: Collection[int] | None, message_id: int) -> bool:
    """Whether messages older than this one may be returned: those of other users must not be counted."""
    return allowed is None or any(other < message_id for other in allowed)


class _PhraseSearch:
    """Tests the texts of candidates, newest first, within limits."""

    def __init__(self, postings: Postings, condition: Condition, enough: int) -> None:
        self._postings = postings
        self._condition = condition
        self._enough = enough
        self._messages = 0
        self._characters = 0
        self.found: set[int] = set()
        self.unread = 0

    @property
    def has_enough(self) -> bool:
        """Whether enough messages were found or read."""
        has_read = self._messages >= _MOST_MESSAGES or self._characters >= _MOST_CHARACTERS
        return has_read or len(self.found) >= self._enough

    def read(self, candidates: Sequence[int]) -> None:
        """Test the candidates, given in ascending order, from the newest on until enough are found or read."""
        left = len(candidates)
        while left and not self.has_enough:
            start = max(0, left - _PAGE)
            self._test(candidates[start:left])
            left = start
        self.unread += left

    def _test(self, message_ids: Sequence[int]) -> None:
        self._messages += len(message_ids)
        for message_id, text in self._postings.texts(message_ids, holding=self._condition.required).items():
            self._characters += len(text)
            if _fulfils(self._postings, self._condition, text):
                self.found.add(message_id)


def is_any(node: Node) -> bool:
    """Return whether one word of several is enough to fulfil `node`."""
    match node:
        case Term():
            return node.kind is not Kind.PHRASE
        case Any(nodes):
            return all(is_any(child) for child in nodes)
        case _:
            return False


def _required_phrase(node: Node) -> str:
    match node:
        case Term(text, Kind.PHRASE):
            return text
        case All(nodes):
            return max((_required_phrase(child) for child in nodes), key=len, default="")
        case _:
            return ""


def _has_word(node: Node) -> bool:
    match node:
        case Term():
            return node.kind is not Kind.PHRASE
        case All(nodes) | Any(nodes):
            return any(_has_word(child) for child in nodes)
        case Not(child):
            return _has_word(child)


def _has_phrase(node: Node) -> bool:
    match node:
        case Term():
            return node.kind is Kind.PHRASE
        case All(nodes) | Any(nodes):
            return any(_has_phrase(child) for child in nodes)
        case Not(child):
            return _has_phrase(child)


def _lookup(postings: Postings, node: Node) -> Lookup | None:
    """Return a lookup that matches at least every message which fulfils `node`."""
    match node:
        case Term():
            return _term_lookup(postings, node)
        case Any(nodes):
            parts = [_lookup(postings, child) for child in nodes if not isinstance(child, Not)]
            lookups = tuple(lookup for lookup in parts if lookup is not None)
            return AnyOf(lookups) if lookups else None
        case All(nodes):
            return _all_lookup(postings, nodes)
        case Not():
            return None


def _all_lookup(postings: Postings, nodes: Sequence[Node]) -> Lookup | None:
    parts = [_lookup(postings, child) for child in nodes if not isinstance(child, Not)]
    wanted = tuple(lookup for lookup in parts if lookup is not None)
    if not wanted:
        return None
    lookup: Lookup = AllOf(wanted)
    for child in nodes:
        # the index knows a phrase by its words only, so its absence is left to the test of the text
        if isinstance(child, Not) and not _has_phrase(child.node):
            unwanted = _lookup(postings, child.node)
            if unwanted is not None:
                lookup = Without(lookup, unwanted)
    return lookup


def _term_lookup(postings: Postings, term: Term) -> Lookup | None:
    match term.kind:
        case Kind.PREFIX:
            return prefix_lookup(postings, term.text)
        case Kind.WORD:
            return Word(term.text) if postings.stem(term.text) else None
        case Kind.PHRASE:
            words, _ = split(clean(term.text))
            return _phrase_lookup(postings, [word for word in WORD.findall(words) if postings.stem(word)])


def _phrase_lookup(postings: Postings, words: Sequence[str]) -> Lookup | None:
    """Return a lookup of the rarest words of a phrase; the texts that it matches are tested for the phrase itself."""
    telling = [word for word in words if postings.stem(word) not in postings.stop_tokens]
    if not telling:  # every word is common
        return AllOf(tuple(map(Word, words))) if words else None
    counts = {word: postings.frequency(word) for word in telling}
    telling.sort(key=counts.__getitem__)
    least = counts[telling[0]]
    if least <= _FEW_TEXTS:
        telling = [word for word in telling if counts[word] <= _SHORT_LIST]
    elif least > _COMMON and postings.documents <= _SHORT_LISTS:
        # all words are common: looking up a stop word as well spares reading the texts of most messages
        telling += [word for word in words if word not in telling]
    return AllOf(tuple(map(Word, telling[:_TELLING])))


def _fulfils(analyzer: Analyzer, condition: Condition, text: str) -> bool:
    """Return whether a message that the lookup matches fulfils the condition."""
    if condition.required not in text.lower():
        # most texts have nothing but single spaces and printable ASCII, so that folding changes only their case;
        # deleting these characters takes a third of the time of `isprintable`
        is_plain = text.isascii() and "  " not in text and not text.encode().translate(None, _PRINTABLE)
        if is_plain:
            return False
    folded = _fold(text)
    if condition.required not in folded:
        return False
    tokens: frozenset[str] = frozenset()
    if _has_word(condition.node):
        words, marks = split(clean(text))
        tokens = frozenset(analyzer.tokens(f"{words} {' '.join(marks)}"))
    return _holds(analyzer, condition.node, tokens, folded)


def _fold(text: str) -> str:
    """Return `text` in one case, with single spaces."""
    return " ".join(clean(text).casefold().split())


def _holds(analyzer: Analyzer, node: Node, tokens: frozenset[str], folded: str) -> bool:
    match node:
        case Term():
            return _term_holds(analyzer, node, tokens, folded)
        case All(nodes):
            return all(_holds(analyzer, child, tokens, folded) for child in nodes)
        case Any(nodes):
            return any(_holds(analyzer, child, tokens, folded) for child in nodes)
        case Not(child):
            return not _holds(analyzer, child, tokens, folded)


def _term_holds(analyzer: Analyzer, term: Term, tokens: frozenset[str], folded: str) -> bool:
    match term.kind:
        case Kind.WORD:
            return analyzer.stem(term.text) in tokens
        case Kind.PREFIX:
            return any(token.startswith(term.text) for token in tokens)
        case Kind.PHRASE:
            return _holds_phrase(clean(term.text).casefold(), folded)


def _holds_phrase(phrase: str, folded: str) -> bool:
    """Whether a text holds a phrase as whole words.

    Without a regular expression: each phrase would need its own, and compiling one takes as long as a search.
    """
    first, last = phrase[:1], phrase[-1:]
    begins_word, ends_word = first.isascii() and first.isalnum(), last.isascii() and last.isalnum()
    start = folded.find(phrase)
    while start >= 0:
        before, after = folded[max(0, start - 1) : start], folded[start + len(phrase) :][:1]
        # a letter beside the phrase would make its first or last word a longer one
        is_start = not (begins_word and (before.isalnum() or before == "_"))
        if is_start and not (ends_word and (after.isalnum() or after == "_")):
            return True
        start = folded.find(phrase, start + 1)
    return False
