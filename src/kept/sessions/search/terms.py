"""The terms of a question as posting lists: looked up, corrected where misspelt, counted."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

from kept.core.search import TermMatch
from kept.core.values import dataclass
from kept.sessions.search.analysis import SPEAKER, STRONG, WHOLE, list_related
from kept.sessions.search.postings import Analyzer, AnyOf, Lookup, Postings, Prefix, Word
from kept.sessions.search.query import Kind, Query, Term

SUBSTRING_LIMIT = 160
"""Messages that are read for a word which occurs only inside of other words."""
PREFIX_LIMIT = 40_000
"""Length at which the posting list of a prefix is cut to the newest."""
MISSPELT_WEIGHT = 0.6
SPEAKER_WEIGHT = 0.5
_LEAST_INSIDE = 5
"""Letters from which on a word is looked for anywhere inside of others; "era" is in "several" by chance."""
_SAME_START = 3
"""Letters that a misspelt word must share with the right one; they narrow the vocabulary that is compared."""
_UMLAUTS = (("ä", "ae"), ("ö", "oe"), ("ü", "ue"))
_LEAST_GERMAN = 5
"""Letters from which on "ue" is tried as "u"; in shorter words it is rarely an umlaut."""
_LEAST_HYPHENATED, _MOST_HYPHENATED = 4, 24
_SHORT_PREFIX = 3
_MANY_DOCUMENTS = 20_000
"""Messages from which on the list of a short prefix takes too long to join."""
_PAGE = 500
_ENOUGH = 1_500
"""Messages with a common prefix after which no older texts are read: candidates are chosen from this many."""
_MOST_CHARACTERS = 750_000
"""Text that is read for a common prefix: about 20 ms."""
_COMMON_SHARE = 0.04
"""Share of the newest messages below which the posting list is as fast to read as the texts."""


@dataclass(slots=True)
class PostingList:
    """A term of the question, how many messages contain it, and their ids once they were read."""

    text: str
    lookup: Lookup
    weight: float
    frequency: int
    speaker_frequency: int = 0
    """How many messages are by a speaker of this name."""
    ids: list[int] | None = None
    partial: list[int] | None = None
    """The messages that contain a rarer term of the question as well, where the whole list is too long to read."""
    newest: list[int] | None = None
    """The newest messages with a short prefix that is too common to read its whole list."""
    names_date: bool = False
    _members: frozenset[int] | None = None

    @property
    def members(self) -> frozenset[int]:
        """The messages that contain the term, as far as they were read."""
        known = self.ids or self.partial or ()
        if self._members is None or len(self._members) != len(known):
            self._members = frozenset(known)
        return self._members

    @property
    def in_short_messages(self) -> Lookup:
        """What finds the term in short messages only."""
        match self.lookup:
            case Word(text):
                return Word(STRONG + text)
            case Prefix(text):
                return Prefix(STRONG + text)
            case _:
                raise AssertionError(f"{self.lookup!r} is not a single term")

    def between(self, postings: Postings, first: int, last: int) -> Sequence[int]:
        """Return the messages from `first` to `last` that contain the term."""
        known = self.ids if self.ids is not None else self.partial
        if known is None:
            return postings.ids_between(self.lookup, first, last)
        return known[bisect_left(known, first) : bisect_right(known, last)]


def look_up_terms(postings: Postings, query: Query, *, is_asked: bool) -> list[PostingList]:
    """Return the terms of the question that occur in some message, forms of one word once.

    Phrases rank by their words, which are terms too.
    """
    found: dict[Lookup, PostingList] = {}
    postings.expect([marked for term in query.terms for marked in (term.text, SPEAKER + term.text)])
    for term in _list_distinct(postings, query):
        listed = _look_up(postings, term, may_be_part=not is_asked and len(query.terms) == 1)
        if listed is None:
            continue
        known = found.get(listed.lookup)
        if known is None or known.weight < listed.weight:
            found[listed.lookup] = listed
    terms = [term for term in found.values() if term.frequency or term.speaker_frequency]
    if terms and all(term.speaker_frequency for term in terms):
        # the question consists of names: messages by these people count too, less than messages about them
        terms += [_spoken_by(postings, term) for term in terms]
    return [term for term in terms if term.frequency or term.speaker_frequency]


def _list_distinct(analyzer: Analyzer, query: Query) -> Iterable[Term]:
    """Return the terms of a query; of plain words that are forms of one ("days", "day") the heaviest."""
    if query.condition is not None or len(query.terms) < 2:
        return query.terms
    heaviest: dict[tuple[str, Kind], Term] = {}
    for term in query.terms:
        key = (analyzer.stem(term.text), term.kind)
        known = heaviest.get(key)
        if known is None or known.weight < term.weight:
            heaviest[key] = term
    return heaviest.values()


def unknown_weight(analyzer: Analyzer, query: Query, terms: Sequence[PostingList]) -> float:
    """Return the weight of the question's words that no message contains."""
    words = _list_distinct(analyzer, query)
    asked = sum(term.weight for term in words if term.kind is Kind.WORD and WHOLE not in term.text)
    known = sum(term.weight for term in terms if WHOLE not in term.text and not term.text.startswith(SPEAKER))
    return max(0.0, asked - known)


def find_speakers(terms: Sequence[PostingList]) -> PostingList | None:
    """Return the list of messages said by people whom the question names, or None when it names none."""
    names = [term for term in terms if term.speaker_frequency]
    if not names:
        return None
    lookup = AnyOf(tuple(Word(SPEAKER + term.text) for term in names))
    return PostingList("", lookup, 0.0, sum(term.speaker_frequency for term in names))


def list_shown(terms: Sequence[PostingList], asked: Sequence[Term], masks: Iterable[int]) -> Iterator[str]:
    """Yield the words of the question, and corrected spellings only if a result, given by its mask, contains them.

    A correction comes from the words of all messages, which other users may have written.
    """
    words = {term.text for term in asked}
    shown = reduce(or_, masks, 0)
    for bit, term in enumerate(terms):
        if term.text in words or shown >> bit & 1:
            yield term.text


def remove_names(query: str, terms: Sequence[PostingList]) -> str:
    """Return the question without the names of speakers; a name is similar to everything that its person says."""
    names = [re.escape(term.text) for term in terms if term.speaker_frequency and not term.text.startswith(SPEAKER)]
    if not names:
        return query
    rest = re.sub(rf"\b(?:{'|'.join(names)})\b(?:['’]s\b)?", " ", query, flags=re.IGNORECASE)
    return " ".join(rest.split()) if re.search(r"\w", rest) else query


def mask_places(
    postings: Postings, terms: Sequence[PostingList], ids: Sequence[int]
) -> tuple[dict[int, int], list[int]]:
    """Return which terms the messages of a session contain, as bits by place, and how many contain each term."""
    masks: dict[int, int] = {}
    counts = [0] * len(terms)
    first, last = ids[0], ids[-1]
    for bit, term in enumerate(terms):
        hits = term.between(postings, first, last)
        places = [number - first for number in hits] if type(ids) is range else _find_places(ids, hits)
        for index in places:
            masks[index] = masks.get(index, 0) | 1 << bit
        counts[bit] = len(places)
    return masks, counts


def _find_places(ids: Sequence[int], hits: Iterable[int]) -> list[int]:
    """Return where those of the hits are that belong to the session; ids in between may be of another."""
    found = [(bisect_left(ids, number), number) for number in hits]
    return [index for index, number in found if ids[index] == number]


def match_terms(
    postings: Postings, terms: Sequence[PostingList], weights: Sequence[float], asked: Sequence[Term], number: int
) -> Iterator[TermMatch]:
    """Yield the words of the question, and corrected spellings that the message contains."""
    words = {term.text for term in asked}
    for term, weight in zip(terms, weights, strict=True):
        is_held = bool(term.between(postings, number, number))
        if is_held or term.text in words:
            yield TermMatch(term.text, weight, is_held)


def prefix_lookup(analyzer: Analyzer, text: str) -> Prefix:
    """Return the lookup for words that start with `text`.

    Tokens are stems: `deploy*` must find the token `deploi`, so only the start that text and stem share is used.
    """
    stem = analyzer.stem(text)
    shared = next((place for place in range(min(len(stem), len(text))) if stem[place] != text[place]), len(stem))
    return Prefix(text[:shared] or text)


def _look_up(postings: Postings, term: Term, *, may_be_part: bool) -> PostingList | None:
    match term.kind:
        case Kind.PHRASE:
            return None
        case Kind.PREFIX:
            return _look_up_prefix(postings, term)
        case Kind.WORD:
            return _look_up_word(postings, term, may_be_part=may_be_part)


def _look_up_prefix(postings: Postings, term: Term) -> PostingList:
    lookup = prefix_lookup(postings, term.text)
    if len(term.text) <= _SHORT_PREFIX and term.text.isascii() and postings.documents > _MANY_DOCUMENTS:
        # the index would join the lists of thousands of words, only to be cut to the newest again
        newest = newest_with_prefix(postings, term.text)
        if newest is not None:
            return PostingList(term.text, lookup, term.weight, PREFIX_LIMIT, newest=newest)
    ids = postings.newest_ids(lookup, PREFIX_LIMIT)
    return PostingList(term.text, lookup, term.weight, len(ids), ids=ids)


def _look_up_word(postings: Postings, term: Term, *, may_be_part: bool) -> PostingList | None:
    stem = postings.stem(term.text)
    if not stem:
        return None
    listed = PostingList(
        term.text, Word(term.text), term.weight, postings.frequency(term.text), names_date=term.names_date
    )
    listed.speaker_frequency = postings.frequency(SPEAKER + term.text)
    if listed.frequency or listed.speaker_frequency:
        return listed
    return _look_up_variants(postings, term, stem, may_be_part=may_be_part) or listed


def _look_up_variants(postings: Postings, term: Term, stem: str, *, may_be_part: bool) -> PostingList | None:
    """Look for a word that no message contains in other spellings, as a part of words, and as a typing error."""
    known = _first_known(postings, term, _spelling_variants(term.text))
    if known is not None or WHOLE in term.text or term.names_date:
        return known
    inside = _containing(postings, term.text, may_be_part=may_be_part)
    if inside:
        return PostingList(term.text, Word(term.text), term.weight, len(inside), ids=inside)
    known = _first_known(postings, term, _hyphenations(term.text))
    if known is not None:
        return known
    correction = _correct(postings, stem)
    if correction is None:
        return None
    return PostingList(correction[0], Word(correction[0]), term.weight * MISSPELT_WEIGHT, correction[1])


def _first_known(postings: Postings, term: Term, spellings: Iterator[str]) -> PostingList | None:
    for other in spellings:
        count = postings.frequency(other)
        if count:
            return PostingList(other, Word(other), term.weight, count, names_date=term.names_date)
    return None


def _containing(postings: Postings, text: str, *, may_be_part: bool) -> list[int]:
    """Return the newest messages whose text contains `text` inside of a word, case ignored.

    A short one must begin or end the word: "boot" is in "Hausboot", but not in "reboots". Only what is typed alone may
    be any part of a word, because nothing else is looked for.
    """
    folded = text.lower()
    ids = postings.newest_containing(folded, SUBSTRING_LIMIT)
    texts = postings.texts(ids)
    found = [number for number in ids if folded in texts.get(number, "").lower()]
    if found and not may_be_part and len(folded) < _LEAST_INSIDE and folded.isascii() and folded.isalpha():
        at_edge = re.compile(rf"(?<![^\W_]){folded}|{folded}(?![^\W_])")
        found = [number for number in found if at_edge.search(texts[number].lower())]
    return sorted(found)


def _spelling_variants(word: str) -> Iterator[str]:
    """Yield other ways to write a word: without its hyphen, with ß or ss, with ü or ue."""
    if WHOLE in word:
        yield word.replace(WHOLE, "")
        return
    for written, other in (("ss", "ß"), ("ß", "ss"), *_UMLAUTS):
        if written in word:
            yield word.replace(written, other)
    without = word
    for plain, written in (("a", "ae"), ("o", "oe"), ("u", "ue")):
        without = without.replace(written, plain)
    if without != word and len(word) >= _LEAST_GERMAN:
        yield without
        yield without.replace("ss", "ß")


def _hyphenations(word: str) -> Iterator[str]:
    """Yield the word with a hyphen at every place."""
    if word.isalpha() and _LEAST_HYPHENATED <= len(word) <= _MOST_HYPHENATED:
        yield from (f"{word[:cut]}{WHOLE}{word[cut:]}" for cut in range(1, len(word) - 1))


def _spoken_by(postings: Postings, name: PostingList) -> PostingList:
    marked = SPEAKER + name.text
    frequency = postings.frequency(marked)
    return PostingList(marked, Word(marked), name.weight * SPEAKER_WEIGHT, frequency)


def _correct(postings: Postings, stem: str) -> tuple[str, int] | None:
    """Return the token that `stem` is most likely a misspelling of, and its frequency.

    A known word is spelled as it should be: "store" is no "story", only another form of it may be meant ("decision"
    and "decide").
    """
    if len(stem) < 5 or not (stem.isascii() and stem.isalpha()):
        return None
    close = [
        (distance, -count, word)
        for word, count in postings.vocabulary(stem[:_SAME_START])
        if abs(len(word) - len(stem)) <= 1 and word.isalpha() and (distance := edit_distance(stem, word)) <= 1
    ]
    forms = list_related(stem) if close else None
    if forms is not None:
        close = [one for one in close if one[2] in forms]
    if not close:
        return None
    _, count, word = min(close)
    return word, -count


def edit_distance(left: str, right: str) -> int:
    """Return how many insertions, deletions, replacements or swaps of neighbours turn one word into the other."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        new = [i]
        for j, b in enumerate(right, 1):
            best = min(row[j] + 1, new[-1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            new.append(best)
        before, row = row, new
    return row[-1]


def newest_with_prefix(postings: Postings, prefix: str) -> list[int] | None:
    """Return those of the newest messages in which a word starts with `prefix`, in order; None where few do.

    It reads texts. For a very common prefix that is faster than joining the lists of thousands of words.
    """
    matches = _prefix_test(prefix.lower())
    found: list[int] = []
    below: int | None = None
    read = characters = 0
    while len(found) < _ENOUGH and characters < _MOST_CHARACTERS:
        page = postings.talk_before(below, _PAGE)
        found += [number for number, text in page if matches(text.lower())]
        read += len(page)
        characters += sum([len(text) for _, text in page])
        if len(found) < _COMMON_SHARE * read:
            return None
        if len(page) < _PAGE:
            break
        below = page[-1][0]
    return found[:_ENOUGH][::-1]


def _prefix_test(prefix: str) -> Callable[[str], bool]:
    """Return a test for lower-case texts; the plain search for a space and the prefix settles most of them."""
    spaced, anywhere = f" {prefix}", re.compile(rf"(?<![^\W_]){re.escape(prefix)}")
    return lambda text: prefix in text and (spaced in text or anywhere.search(text) is not None)
