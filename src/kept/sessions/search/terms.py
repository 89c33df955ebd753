"""The terms of a question as posting lists: looked up in all their forms, corrected where misspelt, counted."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kept.core.values import dataclass, field
from kept.sessions.search.analysis import (
    CANONICAL,
    ENGLISH,
    LONGEST_WORD,
    SPEAKER,
    WHOLE,
    fold,
    has_forms,
    languages_of,
    stem_word,
    stem_words,
)
from kept.sessions.search.postings import Postings
from kept.sessions.search.query import Kind, Query, Term

if TYPE_CHECKING:
    from kept.sessions.search.postings import Positions

MISSPELT_WEIGHT = 0.6
SPEAKER_WEIGHT = 0.5
_LEAST_SUBSTRING = 3
_LEAST_CORRECTED = 5
"""Letters from which on a word is looked for inside of other words, and corrected."""
_MOST_WORDS = 2_000
"""Words of the vocabulary that are compared with one word of the question; a longer list would take too long."""
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
"""Share of the newest messages below which the posting lists are as fast to read as the texts."""
_LEAST = 2
"""Letters that two forms of a word share at least; with fewer, too many words would be compared."""
_CHANGING = "eiy"
"""Last letters of a stem that its words may lack: hope, hoping; fly, flies."""
_MOST_FORMS = 40
"""Forms of one word that are looked up; no language needs more, and a stem that joins more joins too much."""
NONE: "Positions" = np.zeros(0, np.int64)


@dataclass(slots=True)
class PostingList:
    """A term of the question and the messages that contain it in any of its forms."""

    text: str
    weight: float
    words: Sequence[str] = ()
    """The words of the vocabulary that count as this term."""
    positions: "Positions" = field(default_factory=lambda: NONE)
    speakers: "Positions" = field(default_factory=lambda: NONE)
    """The messages by a speaker of this name."""
    names_date: bool = False

    @property
    def frequency(self) -> int:
        """How many messages contain the term."""
        return len(self.positions)

    @property
    def speaker_frequency(self) -> int:
        """How many messages are by a speaker of this name."""
        return len(self.speakers)

    @property
    def is_known(self) -> bool:
        """Whether any message contains it or is by a speaker of this name."""
        return bool(self.frequency or self.speaker_frequency)


def join_lists(lists: "Iterable[Positions]") -> "Positions":
    """Return the positions that at least one list contains."""
    found = [one for one in lists if len(one)]
    if len(found) < 2:
        return found[0] if found else NONE
    every = np.sort(np.concatenate(found), kind="stable")  # merges runs that are in order already
    return every[np.concatenate(([True], every[1:] != every[:-1]))]


class Vocabulary:
    """Looks up the words of one question; every list is read once."""

    def __init__(self, postings: Postings, *, is_filtered: bool = False) -> None:
        self._postings = postings
        self.is_filtered = is_filtered
        """Whether filters may exclude all of the newest messages, so that older ones must be known too."""
        self._lists: dict[str, Positions] = {}
        self._starting: dict[str, list[str]] = {}

    def load(self, words: Iterable[str]) -> None:
        """Read the lists of words together, which takes less time than one by one."""
        unknown = [word for word in dict.fromkeys(words) if word not in self._lists]
        if unknown:
            found = self._postings.read({word[:LONGEST_WORD] for word in unknown})
            self._lists |= {word: found.get(word[:LONGEST_WORD], NONE) for word in unknown}

    def join(self, words: Sequence[str]) -> "Positions":
        """Return the messages that contain one of `words`."""
        self.load(words)
        return join_lists(self._lists[word] for word in words)

    def starting(self, start: str) -> list[str]:
        """Return the words that start with `start`."""
        if start not in self._starting:
            self._starting[start] = self._postings.words_starting(start, _MOST_WORDS)
        return self._starting[start]

    def forms(self, word: str) -> list[str]:
        """Return the forms of a word that may occur, itself first."""
        return find_forms(word, self._postings.languages, self.starting)

    def names(self, word: str, words: Sequence[str]) -> list[str]:
        """Return the marks of speakers whose name is a form of `word`."""
        found = dict.fromkeys(SPEAKER + form for form in words)
        if not word.isascii():  # names are inflected in Slavic languages, and the plain form may occur as a mark only
            marks = find_forms(word, self._postings.languages, self._names_starting)
            found |= dict.fromkeys(SPEAKER + form for form in marks)
        return list(found)

    def _names_starting(self, start: str) -> list[str]:
        return [mark[len(SPEAKER) :] for mark in self.starting(SPEAKER + start)]


def look_up_terms(postings: Postings, query: Query, vocabulary: Vocabulary) -> list[PostingList]:
    """Return the terms of the question that occur in some message. Phrases rank by their words, which are terms too."""
    words = {term: vocabulary.forms(fold(term.text)) for term in query.terms if term.kind is Kind.WORD}
    names = {term: vocabulary.names(fold(term.text), forms) for term, forms in words.items()}
    vocabulary.load(word for each in (*words.values(), *names.values()) for word in each)
    found: dict[tuple[str, ...], PostingList] = {}
    for term in query.terms:
        listed = _look_up(postings, vocabulary, term, words.get(term, ()), names.get(term, ()))
        if listed is None or not listed.is_known:
            continue
        known = found.get(key := tuple(sorted(listed.words)))
        if known is None or known.weight < listed.weight:
            found[key] = listed
    terms = list(found.values())
    if terms and all(term.speaker_frequency for term in terms):
        # the question consists of names: messages by these people count too, less than messages about them
        terms += [PostingList(SPEAKER + term.text, term.weight * SPEAKER_WEIGHT, (), term.speakers) for term in terms]
    return terms


def unknown_weight(query: Query, terms: Sequence[PostingList]) -> float:
    """Return the weight of the question's words that no message contains."""
    asked = sum(term.weight for term in query.terms if term.kind is Kind.WORD and WHOLE not in term.text)
    known = sum(term.weight for term in terms if WHOLE not in term.text and not term.text.startswith(SPEAKER))
    return max(0.0, asked - known)


def find_speakers(terms: Sequence[PostingList]) -> "Positions | None":
    """Return the messages said by people whom the question names, or None when it names none."""
    names = [term.speakers for term in terms if term.speaker_frequency]
    return join_lists(names) if names else None


def _look_up(
    postings: Postings, vocabulary: Vocabulary, term: Term, words: Sequence[str], names: Sequence[str]
) -> PostingList | None:
    match term.kind:
        case Kind.PHRASE:
            return None
        case Kind.PREFIX:
            return _look_up_prefix(postings, vocabulary, term)
        case Kind.WORD:
            listed = PostingList(term.text, term.weight, words, names_date=term.names_date)
            listed.positions, listed.speakers = vocabulary.join(words), vocabulary.join(names)
            return listed if listed.is_known else _look_up_variants(postings, vocabulary, term)


def _look_up_prefix(postings: Postings, vocabulary: Vocabulary, term: Term) -> PostingList:
    prefix = fold(term.text)
    is_common = len(prefix) <= _SHORT_PREFIX and prefix.isascii() and postings.documents > _MANY_DOCUMENTS
    if is_common and not vocabulary.is_filtered:
        newest = newest_with_prefix(postings, prefix)
        if newest is not None:
            places = postings.positions(newest)
            return PostingList(term.text, term.weight, (f"{prefix}*",), np.sort(places[places >= 0]))
    words = vocabulary.starting(prefix)
    return PostingList(term.text, term.weight, (f"{prefix}*", *words), vocabulary.join(words))


def _look_up_variants(postings: Postings, vocabulary: Vocabulary, term: Term) -> PostingList | None:
    """Look for a word that no message contains in other spellings, as a part of words, and as a typing error."""
    word = fold(term.text)
    known = _first_known(vocabulary, term, _spelling_variants(term.text.lower()))
    if known is not None or WHOLE in word:
        return known
    if len(word) >= _LEAST_SUBSTRING:
        inside = postings.words_containing(word, _MOST_WORDS)
        if inside:
            return PostingList(term.text, term.weight, inside, vocabulary.join(inside))
    known = _first_known(vocabulary, term, _hyphenations(word))
    return known or _look_up_correction(vocabulary, term, word)


def _first_known(vocabulary: Vocabulary, term: Term, spellings: Iterator[str]) -> PostingList | None:
    words = {other: vocabulary.forms(fold(other)) for other in spellings}
    vocabulary.load(form for forms in words.values() for form in forms)
    for other, forms in words.items():
        positions = vocabulary.join(forms)
        if len(positions):
            return PostingList(other, term.weight, forms, positions, names_date=term.names_date)
    return None


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


def _look_up_correction(vocabulary: Vocabulary, term: Term, word: str) -> PostingList | None:
    """Return the list of the word that `word` is most likely a misspelling of: the most frequent one."""
    if len(word) < _LEAST_CORRECTED or not (word.isascii() and word.isalpha()):
        return None
    close = find_alike(word, [other for other in vocabulary.starting(word[:_SAME_START]) if other.isalpha()])
    if not close:
        return None
    vocabulary.load(close)
    best = min(close, key=lambda other: (-len(vocabulary.join([other])), other))
    forms = vocabulary.forms(best)
    return PostingList(best, term.weight * MISSPELT_WEIGHT, forms, vocabulary.join(forms))


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


def find_stems(word: str, languages: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return for each language its name, the stem of `word`, and the letters with which all its forms begin."""
    found = []
    for language in languages_of(word, languages):
        stem = stem_word(language, word)
        same = next((at for at, (one, other) in enumerate(zip(stem, word, strict=False)) if one != other), len(stem))
        shared = stem[:same]
        if len(shared) == len(stem) > _LEAST and stem[-1] in _CHANGING:
            shared = shared[:-1]
        if len(shared) >= _LEAST:
            found.append((language, stem, shared))
    return found


def find_forms(word: str, languages: Sequence[str], starting: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the forms of `word`, itself first; `starting` returns the words of the vocabulary that start so."""
    found = {word: None}
    for language, stem, shared in find_stems(word, languages):
        words = [one for one in starting(shared) if has_forms(one)]
        same = [one for one, other in zip(words, stem_words(language, words), strict=True) if other == stem]
        found |= dict.fromkeys(sorted(same, key=len)[:_MOST_FORMS])
        if language == ENGLISH:
            found |= dict.fromkeys(_variants_by_stem().get(stem, ()))
    return list(found)


def find_alike(word: str, words: Sequence[str]) -> list[str]:
    """Return those of these English words that differ from `word` by one letter, endings aside."""
    wanted = stem_word(ENGLISH, word)
    stems = zip(words, stem_words(ENGLISH, words), strict=True)
    return [one for one, stem in stems if abs(len(stem) - len(wanted)) <= 1 and edit_distance(wanted, stem) <= 1]


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


@cache
def _variants_by_stem() -> dict[str, list[str]]:
    """Return the irregular and short forms by the English stem of their word, so that "taking" finds "took"."""
    found: dict[str, list[str]] = {}
    for variant, base in CANONICAL.items():
        found.setdefault(stem_word(ENGLISH, base), []).append(variant)
    return found
