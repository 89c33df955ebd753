"""The terms of a question as posting lists: looked up in all their forms and spellings, corrected and counted.

The index holds English stems. Forms of a word in other languages ("Häuser" of "Haus") are found when the word is looked
up, with the stemmer of that language. So the index needs to know no language, and a new language finds old messages.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from msgspec import Struct

from wellkept.core.search import TermMatch
from wellkept.core.text import WORD, strip_accents
from wellkept.languages.language import (
    STOP_WORDS,
    find_languages,
    list_languages,
    list_markers,
    list_pairs,
    stop_words_by_language,
)
from wellkept.languages.stems import STEMMERS, load_stemmer
from wellkept.sessions.search.analysis import SPEAKER, STRONG, WHOLE, clean, find_words, list_related
from wellkept.sessions.search.postings import Analyzer, AnyOf, Lookup, Postings, Prefix, Word
from wellkept.sessions.search.query import Kind, Query, Term
from wellkept.sessions.search.ranking import Scored

SUBSTRING_LIMIT = 160
"""How many messages are read for a word that occurs only inside of other words."""
MISSPELT_WEIGHT = 0.6
_LEAST_INSIDE = 5
"""Shorter words are looked for only at the edges of others: "era" is in "several" by chance."""
_SAME_START = 3
"""How many first letters a misspelt word must share with the right one; this narrows the vocabulary to compare."""
_LEAST_TRANSCRIBED = 5
"""In shorter words "ue" is not tried as "u", because it is rarely an umlaut there."""
_LEAST_HYPHENATED, _MOST_HYPHENATED = 4, 24
_ENGLISH_SHARE: Final = 0.05
"""From this share of messages with "the" on, keywords may be English: about one message in eight is, then."""
_LEAST_STEM: Final = 3
_MOST_ENDING: Final = 6
"""How many letters a form may be longer than its stem."""
_CHANGED: Final = 1
"""How many letters at the end of a stem its forms may change ("cheval", "chevaux")."""
_MOST_FORMS: Final = 12
_CUT_ENDINGS: Final = ("", "e", "s", "es", "ing")
"""Endings that the English stemmer of the index may have cut off a word of another language."""
_ARTICLES: Final = {"ar": ("ال",)}
"""Articles that are written together with their noun."""
PREFIX_LIMIT = 40_000
"""The posting list of a prefix is cut to this many of the newest messages."""
SPEAKER_WEIGHT = 0.5
_SHORT_PREFIX = 3
_MANY_DOCUMENTS = 20_000
"""In larger stores, joining the lists of all words with a short prefix takes too long."""
_PAGE = 500
_ENOUGH = 1_500
"""After this many messages with a common prefix no older texts are read: candidates are chosen from them."""
_MOST_CHARACTERS = 750_000
"""Text that is read for a common prefix: about 20 ms."""
_SHORT_LISTS = 500
"""Up to this many messages with forms of one word, their lists are read to count the messages."""
_COMMON_SHARE = 0.04
"""If a smaller share of the newest messages has the prefix, its posting list is as fast to read as the texts."""
_LEAST_SHARE = 0.01
"""From this share of messages with marker words of a language on, the store is in that language too."""
_FEW_MESSAGES = 100
"""In stores up to this size, the texts tell the languages: so few messages need not contain a marker word."""
_READ_CHARACTERS = 400
_MOST_LANGUAGES = 3


class Spelling(NamedTuple):
    """Another spelling of a word that messages contain."""

    text: str
    frequency: int
    factor: float = 1.0
    """Its weight relative to the word itself."""
    ids: list[int] | None = None
    """The messages, where they were read."""


def find_spelling(
    postings: Postings, word: str, stem: str, *, may_be_part: bool, is_date: bool = False
) -> Spelling | None:
    """Look for a word that no message contains: in other spellings, as a part of words, and as a typing error."""
    spelling = _find_first_held(postings, _list_spellings(word))
    if spelling is not None or WHOLE in word or is_date:
        return spelling
    inside = _find_containing(postings, word, may_be_part=may_be_part)
    if inside:
        return Spelling(word, len(inside), ids=inside)
    if word.isalpha() and _LEAST_HYPHENATED <= len(word) <= _MOST_HYPHENATED:
        hyphenated = (f"{word[:cut]}{WHOLE}{word[cut:]}" for cut in range(1, len(word) - 1))
        spelling = _find_first_held(postings, hyphenated)
    return spelling or _correct(postings, stem)


def _find_first_held(postings: Postings, spellings: Iterator[str]) -> Spelling | None:
    """Return the first of the spellings that some message contains."""
    counted = ((other, postings.frequency(other)) for other in spellings)
    return next((Spelling(other, count) for other, count in counted if count), None)


def _find_containing(postings: Postings, text: str, *, may_be_part: bool) -> list[int]:
    """Return the newest messages whose text contains `text` inside of a word, case ignored.

    A short text must begin or end the word: "boot" is in "Hausboot", but not in "reboots". Only the single word of a
    query may be anywhere in a word, because the search looks for nothing else then.
    """
    folded = text.lower()
    ids = postings.newest_containing(folded, SUBSTRING_LIMIT)
    texts = postings.texts(ids)
    hits = [message_id for message_id in ids if folded in texts.get(message_id, "").lower()]
    if hits and not may_be_part and len(folded) < _LEAST_INSIDE and folded.isascii() and folded.isalpha():
        at_edge = re.compile(rf"(?<![^\W_]){folded}|{folded}(?![^\W_])")
        hits = [message_id for message_id in hits if at_edge.search(texts[message_id].lower())]
    return sorted(hits)


def _list_spellings(word: str) -> Iterator[str]:
    """Yield other ways to write a word: without its hyphen, with ß or ss, with ü or ue."""
    if WHOLE in word:
        yield word.replace(WHOLE, "")
        return
    for language in list_languages():
        spellings = language.list_pairs("spellings")
        yield from (word.replace(written, other) for written, other in spellings if written in word)
        plain = word
        for written, letter in language.list_pairs("transcribed"):
            plain = plain.replace(written, letter)
        if plain != word and len(word) >= _LEAST_TRANSCRIBED:
            yield plain
            yield from (plain.replace(written, other) for written, other in spellings if written in plain)


def _correct(postings: Postings, stem: str) -> Spelling | None:
    """Return the token that `stem` is most likely a misspelling of.

    A word of the dictionary is not corrected to another word ("store", "story"), only to another form of itself
    ("decision", "decide").
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
        close = [candidate for candidate in close if candidate[2] in forms]
    if not close:
        return None
    _, count, word = min(close)
    return Spelling(word, -count, MISSPELT_WEIGHT)


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


def join_forms(forms: Iterable[str]) -> AnyOf:
    """Return the lookup of messages with any of the forms of a word."""
    return AnyOf(tuple(map(Word, sorted(forms))))


def find_written(analyzer: Analyzer, forms: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Return the words of the texts that are one of the forms, as they are written there, in lower case."""
    wanted = frozenset(map(analyzer.stem, forms))
    beginnings = {token[:1] for token in wanted}
    words = {word for text in texts for word in WORD.findall(clean(text).lower())}
    return {word for word in words if strip_accents(word[0]) in beginnings and analyzer.stem(word) in wanted}


def _is_word(text: str) -> bool:
    """Return whether a text is one word without digits; the vowels of some scripts are no letters for Python."""
    return WORD.fullmatch(text) is not None and not any(map(str.isdigit, text))


def list_forms(
    postings: Postings, word: str, languages: Sequence[str], *, may_be_english: bool = False
) -> dict[str, int]:
    """Return the words of the store with the stem of this one, as the index cuts them; empty if it is the only one.

    Where the word may be English, two words that English keeps apart are not joined: "corner" and "corn".
    """
    if not _is_word(word):
        return {}
    forms: dict[str, tuple[str, int]] = {}
    for language in languages:
        for token, (form, frequency) in _list_stem(postings, word, language).items():
            forms.setdefault(token, (form, frequency))
    own = postings.stem(word)
    if (
        may_be_english
        and list_related(own) is not None
        and postings.frequency("the") >= _ENGLISH_SHARE * postings.documents
    ):
        forms = {token: form for token, form in forms.items() if token == own or list_related(token) is None}
    if not forms.keys() - {own}:
        return {}
    others = sorted((token for token in forms if token != own), key=lambda token: forms[token][1], reverse=True)
    listed = [*(token for token in (own,) if token in forms), *others[:_MOST_FORMS]]
    return dict(forms[token] for token in listed)


def _list_stem(postings: Postings, word: str, language: str) -> dict[str, tuple[str, int]]:
    """Return the tokens of the store that one language joins with a word, each as a written form and its frequency."""
    stems = _Stems(language)
    own, plain = postings.stem(word), strip_accents(word)
    wanted = stems.of(word) | stems.of(plain)
    size = min(map(len, wanted))
    if size < _LEAST_STEM:
        return {}
    longest = max(map(len, wanted)) + _MOST_ENDING
    nearby = {
        token: count
        for start in stems.list_starts(own, wanted)
        for token, count in postings.vocabulary(start)
        if len(token) <= longest and (token.isalpha() or (not token.isascii() and _is_word(token)))
    }
    forms = {own: (word, nearby[own])} if own in nearby else {}
    for token, form in stems.select([token for token in nearby if token != own], wanted, postings).items():
        if size > _LEAST_STEM or stems.may_join_short(word, form, token, wanted):
            forms[token] = form, nearby[token]
    return forms


class _Stems:
    """The stemmer of one language, for words of questions and for tokens of the index."""

    def __init__(self, language: str) -> None:
        self._cut_all = load_stemmer(language).stemWords
        # plurals that a stemmer does not join with their singulars, without accents: "luces", "luz"; "ações", "ação"
        self._plurals = list_pairs(language, "plurals")
        self._articles = _ARTICLES.get(language, ())

    def of(self, word: str) -> set[str]:
        """Return the stem of a word, as it is and without accents."""
        (stem,) = self._cut_all([self._join_plural(word)])
        return {stem, strip_accents(stem)} if not stem.isascii() else {stem}

    def list_starts(self, own: str, wanted: set[str]) -> set[str]:
        """Return the beginnings of all forms of a word with these stems; `own` is its token, which keeps its accents.

        A stem may begin otherwise than its word ("baca" of "membaca").
        """
        size = max(_LEAST_STEM, min(map(len, wanted)) - _CHANGED)
        starts = {strip_accents(stem)[:size] for stem in wanted}
        return starts | {own[:size]} | {article + start for article in self._articles for start in starts}

    def may_join_short(self, word: str, form: str, token: str, wanted: set[str]) -> bool:
        """Return whether a short stem joins two words: one of them must be the stem, and the other no English word.

        "Tag" is joined with "Tage", but Spanish "casa" not with "caso", and "Rat" not with the English "rate".
        """
        if self._join_plural(word) == self._join_plural(form):
            return True
        plain = strip_accents(word)
        return (plain in wanted and list_related(token) is None) or (token in wanted and list_related(plain) is None)

    def select(self, tokens: Sequence[str], wanted: set[str], analyzer: Analyzer) -> dict[str, str]:
        """Return those of the tokens that were cut off a word with one of the stems, each with such a word."""
        words = [token + ending for ending in _CUT_ENDINGS for token in tokens]
        stems = self._cut_all([self._join_plural(word) for word in words] if self._plurals else words)
        if not "".join(stems).isascii():
            stems = list(map(strip_accents, stems))
        forms: dict[str, str] = {}
        for index in [index for index, stem in enumerate(stems) if stem in wanted]:
            token = tokens[index % len(tokens)]
            if token not in forms and analyzer.stem(words[index]) == token:
                forms[token] = words[index]
        return forms

    def _join_plural(self, word: str) -> str:
        """Return the singular of a word with one of these plural endings, and any other word as it is."""
        plain = strip_accents(word) if self._plurals else word
        for ending, singular in self._plurals:
            if plain.endswith((ending, singular)):
                return plain.removesuffix(singular).removesuffix(ending) + singular
        return word


class PostingList(Struct):
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
    is_word: bool = True
    """Whether the index has the term itself; if not, `ids` are messages with words that contain it."""
    forms: Collection[str] = ()
    """The forms of the word that messages contain; empty if it was looked up as it is."""
    _members: frozenset[int] | None = None

    @property
    def members(self) -> frozenset[int]:
        """The messages that contain the term, as far as they were read."""
        ids = self.ids or self.partial or ()
        if self._members is None or len(self._members) != len(ids):
            self._members = frozenset(ids)
        return self._members

    @property
    def in_short_messages(self) -> Lookup:
        """What finds the term in short messages only."""
        match self.lookup:
            case Word(text):
                return Word(STRONG + text)
            case Prefix(text):
                return Prefix(STRONG + text)
            case AnyOf():
                return AnyOf(tuple(Word(STRONG + form) for form in self.forms))
            case _:
                raise AssertionError(f"{self.lookup!r} is not a single term")

    def between(self, postings: Postings, first: int, last: int) -> Sequence[int]:
        """Return the messages from `first` to `last` that contain the term."""
        ids = self.ids if self.ids is not None else self.partial
        if ids is None:
            return postings.ids_between(self.lookup, first, last)
        return ids[bisect_left(ids, first) : bisect_right(ids, last)]


class WordForms:
    """The forms of the words of one search, in the languages of its question or else of its store."""

    def __init__(self, postings: Postings, languages: Sequence[str] = (), *, may_be_english: bool = True) -> None:
        self.postings = postings
        self.languages = languages
        self._may_be_english = may_be_english
        self._cache: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}

    @classmethod
    def choose(cls, postings: Postings, query: Query, question: str) -> "WordForms":
        """Return the forms for one question; none for a phrase or a prefix alone, which is looked for as it is."""
        if isinstance(query.condition, Term):
            return cls(postings)
        # without its operators, which are no English words
        text = question if query.condition is None else " ".join([term.text for term in query.terms])
        words = find_words(text)
        asked = [language for language in find_languages(words) if language in STEMMERS]
        if len(asked) > 1:
            asked = [language for language in asked if language in postings.languages] or asked
        if asked:
            return cls(postings, asked[:_MOST_LANGUAGES], may_be_english=False)
        return cls(postings, _choose_languages(postings, STOP_WORDS.intersection(words)))

    def find(self, word: str, *, is_unknown: bool = False) -> Mapping[str, int]:
        """Return the forms of a word that messages contain, each with its frequency; empty without another form.

        A word that no message contains may be of any language of the store, whatever the others are.
        """
        languages = self.postings.languages if is_unknown else self.languages
        if not languages:
            return {}
        key = (word, tuple(languages))
        if key not in self._cache:
            self._cache[key] = list_forms(self.postings, word, languages, may_be_english=self._may_be_english)
        return self._cache[key]

    def key(self, word: str) -> str:
        """Return the same key for all words that are forms of one: the first token of its forms, or else its own."""
        forms = self.find(word) if self.languages else ()
        return min(map(self.postings.stem, forms), default=self.postings.stem(word))


def _choose_languages(postings: Postings, english: AbstractSet[str]) -> Sequence[str]:
    """Return the languages of the store in which words may be asked for, given the English stop words beside them.

    None for a question in English: it has an English stop word that no language of the store shares.
    """
    if not english:
        return postings.languages[:_MOST_LANGUAGES]
    tables = stop_words_by_language()
    if not any(english <= tables[language] for language in STEMMERS):
        return ()
    return [language for language in postings.languages if english <= tables[language]][:_MOST_LANGUAGES]


def recognise_languages(
    postings: Postings, count_each: Callable[[Sequence[str]], Mapping[str, int]]
) -> tuple[str, ...]:
    """Return the languages other than English in which part of a store is written, the most common first.

    `count_each` returns how many messages contain each of some words; words that none contains may be left out.
    """
    hits, least = Counter[str](), 1.0
    if postings.documents <= _FEW_MESSAGES:
        for _, text in postings.talk_before(None, _FEW_MESSAGES):
            hits.update(find_languages(find_words(clean(text[:_READ_CHARACTERS])))[:1])
    else:
        least = _LEAST_SHARE * postings.documents
        markers = {word: language for language in STEMMERS for word in list_markers(language)}
        for word, count in count_each(list(markers)).items():
            hits[markers[word]] += count
    return tuple(language for language, count in hits.most_common() if count >= least and language in STEMMERS)


def look_up_terms(postings: Postings, query: Query, forms: WordForms, *, is_asked: bool) -> list[PostingList]:
    """Return the terms of the question that occur in some message, forms of one word once.

    Phrases rank by their words, which are terms too.
    """
    lists: dict[Lookup, PostingList] = {}
    postings.expect([marked for term in query.terms for marked in (term.text, SPEAKER + term.text)])
    for term in _list_distinct(forms, query):
        if term.kind is Kind.PHRASE:
            continue
        if term.kind is Kind.PREFIX:
            listed: PostingList | None = _look_up_prefix(postings, term)
        else:
            listed = _look_up_word(postings, term, forms, may_be_part=not is_asked and len(query.terms) == 1)
        if listed is not None and (listed.lookup not in lists or lists[listed.lookup].weight < listed.weight):
            lists[listed.lookup] = listed
    terms = [term for term in lists.values() if term.frequency or term.speaker_frequency]
    if terms and all(term.speaker_frequency for term in terms):
        # the question consists of names: messages by these people count too, less than messages about them
        for name in list(terms):
            marked = SPEAKER + name.text
            weight = name.weight * SPEAKER_WEIGHT
            terms.append(PostingList(marked, Word(marked), weight, postings.frequency(marked)))
    return [term for term in terms if term.frequency or term.speaker_frequency]


def _list_distinct(forms: WordForms, query: Query) -> Iterable[Term]:
    """Return the terms of a query; of plain words that are forms of one ("days", "day") the heaviest."""
    if query.condition is not None or len(query.terms) < 2:
        return query.terms
    heaviest: dict[tuple[str, Kind], Term] = {}
    for term in query.terms:
        key = (forms.key(term.text), term.kind)
        best = heaviest.get(key)
        if best is None or best.weight < term.weight:
            heaviest[key] = term
    return heaviest.values()


def unknown_weight(forms: WordForms, query: Query, terms: Sequence[PostingList]) -> float:
    """Return the weight of the question's words that no message contains."""
    words = _list_distinct(forms, query)
    asked_weight = sum(term.weight for term in words if term.kind is Kind.WORD and WHOLE not in term.text)
    known_weight = sum(term.weight for term in terms if WHOLE not in term.text and not term.text.startswith(SPEAKER))
    return max(0.0, asked_weight - known_weight)


def find_speakers(terms: Sequence[PostingList]) -> PostingList | None:
    """Return the list of messages said by people whom the question names, or None when it names none."""
    names = [term for term in terms if term.speaker_frequency]
    if not names:
        return None
    lookup = AnyOf(tuple(Word(SPEAKER + term.text) for term in names))
    return PostingList("", lookup, 0.0, sum(term.speaker_frequency for term in names))


def list_shown(terms: Sequence[PostingList], asked: Sequence[Term], masks: Iterable[int]) -> Iterator[str]:
    """Yield the words of the question, and corrected spellings only if a result contains them, as its mask tells.

    A correction comes from the words of all messages, which other users may have written.
    """
    words = {term.text for term in asked}
    shown = reduce(or_, masks, 0)
    for bit, term in enumerate(terms):
        if term.text in words or shown >> bit & 1:
            yield term.text


def list_found_forms(postings: Postings, terms: Sequence[PostingList], results: Iterable[Scored]) -> list[str]:
    """Return the forms of the question's words that the results contain, as they are written there.

    The index joins some forms itself, with and without accents ("canción", "canciones").
    """
    forms = {form for term in terms for form in term.forms}
    forms.update(term.text for term in terms if not term.text.isascii() and strip_accents(term.text).isascii())
    if not forms:
        return []
    texts = postings.texts(list({item.line.message_id for item in results if item.line.mask}))
    return sorted(find_written(postings, forms, texts.values()).difference(term.text for term in terms))


def remove_names(query: str, terms: Sequence[PostingList]) -> str:
    """Return the question without the names of speakers; a name is similar to everything that its person says."""
    names = [re.escape(term.text) for term in terms if term.speaker_frequency and not term.text.startswith(SPEAKER)]
    if not names:
        return query
    rest = re.sub(rf"\b(?:{'|'.join(names)})\b(?:['’]s\b)?", " ", query, flags=re.IGNORECASE)
    return " ".join(rest.split()) if re.search(r"\w", rest) else query


def mask_messages(
    postings: Postings, terms: Sequence[PostingList], ids: Sequence[int]
) -> tuple[dict[int, int], list[int]]:
    """Return which terms the messages of a session contain, as bits by index, and how many contain each term."""
    masks: dict[int, int] = {}
    counts = [0] * len(terms)
    first, last = ids[0], ids[-1]
    for bit, term in enumerate(terms):
        hits = term.between(postings, first, last)
        if type(ids) is range:
            indices = [message_id - first for message_id in hits]
        else:  # ids in between may be of another session
            positions = ((bisect_left(ids, message_id), message_id) for message_id in hits)
            indices = [index for index, message_id in positions if ids[index] == message_id]
        for index in indices:
            masks[index] = masks.get(index, 0) | 1 << bit
        counts[bit] = len(indices)
    return masks, counts


def match_terms(
    postings: Postings, terms: Sequence[PostingList], weights: Sequence[float], asked: Sequence[Term], message_id: int
) -> Iterator[TermMatch]:
    """Yield the words of the question, and corrected spellings that the message contains."""
    words = {term.text for term in asked}
    for term, weight in zip(terms, weights, strict=True):
        is_held = bool(term.between(postings, message_id, message_id))
        if is_held or term.text in words:
            yield TermMatch(term.text, weight, is_held)


def prefix_lookup(analyzer: Analyzer, text: str) -> Prefix:
    """Return the lookup for words that start with `text`.

    Tokens are stems: `deploy*` must find the token `deploi`, so only the start that text and stem share is used.
    """
    stem = analyzer.stem(text)
    shared = next((index for index in range(min(len(stem), len(text))) if stem[index] != text[index]), len(stem))
    return Prefix(text[:shared] or text)


def _look_up_prefix(postings: Postings, term: Term) -> PostingList:
    lookup = prefix_lookup(postings, term.text)
    if len(term.text) <= _SHORT_PREFIX and term.text.isascii() and postings.documents > _MANY_DOCUMENTS:
        # the index would join the lists of thousands of words, only to be cut to the newest again
        newest = newest_with_prefix(postings, term.text)
        if newest is not None:
            return PostingList(term.text, lookup, term.weight, PREFIX_LIMIT, newest=newest)
    ids = postings.newest_ids(lookup, PREFIX_LIMIT)
    return PostingList(term.text, lookup, term.weight, len(ids), ids=ids)


def _look_up_word(postings: Postings, term: Term, forms: WordForms, *, may_be_part: bool) -> PostingList | None:
    stem = postings.stem(term.text)
    if not stem:
        return None
    listed = PostingList(
        term.text, Word(term.text), term.weight, postings.frequency(term.text), names_date=term.names_date
    )
    listed.speaker_frequency = postings.frequency(SPEAKER + term.text)
    if not listed.speaker_frequency and not term.names_date:
        found_forms = forms.find(term.text) if forms.languages else None
        if not found_forms and not listed.frequency:
            found_forms = forms.find(term.text, is_unknown=True)
        if found_forms:
            return _join(postings, listed, found_forms)
    if listed.frequency or listed.speaker_frequency:
        return listed
    other = find_spelling(postings, term.text, stem, may_be_part=may_be_part, is_date=term.names_date)
    if other is None:
        return listed
    weight = term.weight * other.factor
    listed = PostingList(other.text, Word(other.text), weight, other.frequency, ids=other.ids)
    listed.names_date, listed.is_word = term.names_date, other.ids is None
    return listed


def _join(postings: Postings, listed: PostingList, forms: Mapping[str, int]) -> PostingList:
    """Return the list of all forms of a word, as one term."""
    listed.lookup, listed.forms = join_forms(forms), forms.keys()
    listed.frequency = min(postings.documents, sum(forms.values()))
    if listed.frequency <= _SHORT_LISTS:  # a message with two forms counts once; of long lists few do
        listed.ids = postings.ids(listed.lookup)
        listed.frequency = len(listed.ids)
    return listed


def newest_with_prefix(postings: Postings, prefix: str) -> list[int] | None:
    """Return the newest messages in which a word starts with `prefix`, in ascending order; None where few do.

    It reads texts, which for a very common prefix is faster than joining the lists of thousands of words.
    """
    prefix = prefix.lower()
    # the plain search for a space and the prefix settles most texts
    spaced, anywhere = f" {prefix}", re.compile(rf"(?<![^\W_]){re.escape(prefix)}")
    hits: list[int] = []
    below: int | None = None
    read = characters = 0
    while len(hits) < _ENOUGH and characters < _MOST_CHARACTERS:
        page = [(message_id, text.lower()) for message_id, text in postings.talk_before(below, _PAGE)]
        hits += [
            message_id
            for message_id, text in page
            if prefix in text and (spaced in text or anywhere.search(text) is not None)
        ]
        read += len(page)
        characters += sum([len(text) for _, text in page])
        if len(hits) < _COMMON_SHARE * read:
            return None
        if len(page) < _PAGE:
            break
        below = page[-1][0]
    return hits[:_ENOUGH][::-1]
