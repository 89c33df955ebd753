"""Forms of words in languages other than English: the words of the store that have the same Snowball stem.

The index knows English stems. Which other words of the store are forms of one that is asked for ("Häuser" of "Haus")
is decided when it is looked up, by the stemmer of the language. So the index needs no language, and messages that were
stored earlier are found as well.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from wellkept.core.text import WORD, strip_accents
from wellkept.languages.stop_words import list_pairs
from wellkept.sessions.search.analysis import clean, list_related
from wellkept.sessions.search.postings import Analyzer, AnyOf, Postings, Word

STEMMERS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "eo": "esperanto",
    "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish",
    "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian",
    "sr": "serbian", "st": "sesotho", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Snowball's name of each language; Russian stems are in the index already (`analysis.base`)."""
_ENGLISH_SHARE: Final = 0.05
"""Messages with "the", as a share of all, from which on keywords may be English: about one message in eight is."""
_LEAST_STEM: Final = 3
_MOST_ENDING: Final = 6
"""Letters by which a form may be longer than its stem."""
_CHANGED: Final = 1
"""Letters at the end of a stem that its forms may write in another way ("cheval", "chevaux")."""
_MOST_FORMS: Final = 12
_CUT_ENDINGS: Final = ("", "e", "s", "es", "ing")
"""What the English stemmer cuts off words of other languages: a token of the index may have ended with it."""
_ARTICLES: Final = {"ar": ("ال",)}
"""Articles that are written together with their noun."""


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


@cache
def _load_stemmer(language: str) -> Any:
    import Stemmer  # most searches are in English and need none

    return Stemmer.Stemmer(STEMMERS[language], 0)  # its cache takes longer than the few words of a search


def list_forms(
    postings: Postings, word: str, languages: Sequence[str], *, may_be_english: bool = False
) -> dict[str, int]:
    """Return the words of the store with the stem of this one, written as the index cuts them, if any is another.

    Where the word may be English, two words that English knows apart are none of one: "corner" and "corn".
    """
    if not _is_word(word):
        return {}
    found: dict[str, tuple[str, int]] = {}
    for language in languages:
        for token, (form, frequency) in _list_stem(postings, word, language).items():
            found.setdefault(token, (form, frequency))
    own = postings.stem(word)
    if may_be_english and list_related(own) is not None and _has_english(postings):
        found = {token: form for token, form in found.items() if token == own or list_related(token) is None}
    if not found.keys() - {own}:
        return {}
    others = sorted((token for token in found if token != own), key=lambda token: found[token][1], reverse=True)
    kept = [*(token for token in (own,) if token in found), *others[:_MOST_FORMS]]
    return dict(found[token] for token in kept)


def _has_english(postings: Postings) -> bool:
    """Return whether a part of the messages is in English."""
    return postings.frequency("the") >= _ENGLISH_SHARE * postings.documents


def _list_stem(postings: Postings, word: str, language: str) -> dict[str, tuple[str, int]]:
    """Return the tokens of the store that one language joins with a word, each as a written form and its frequency."""
    stems = _Stems(language)
    own, plain = postings.stem(word), strip_accents(word)
    wanted = stems.of(word) | stems.of(plain)
    size = min(map(len, wanted))
    if size < _LEAST_STEM:
        return {}
    longest = max(map(len, wanted)) + _MOST_ENDING
    near = {
        token: count
        for start in stems.list_starts(own, wanted)
        for token, count in postings.vocabulary(start)
        if len(token) <= longest and (token.isalpha() or (not token.isascii() and _is_word(token)))
    }
    found = {own: (word, near[own])} if own in near else {}
    for token, form in stems.select([token for token in near if token != own], wanted, postings).items():
        if size > _LEAST_STEM or stems.may_join_short(word, form, token, wanted):
            found[token] = form, near[token]
    return found


class _Stems:
    """The stemmer of one language, for words of questions and for tokens of the index."""

    def __init__(self, language: str) -> None:
        self._cut_all = _load_stemmer(language).stemWords
        # plurals that a stemmer does not join with their singulars, without accents: "luces", "luz"; "ações", "ação"
        self._plurals = list_pairs(language, "plurals")
        self._articles = _ARTICLES.get(language, ())

    def of(self, word: str) -> set[str]:
        """Return the stem of a word, as it is and without accents."""
        (stem,) = self._cut_all([self._join_plural(word)])
        return {stem, strip_accents(stem)} if not stem.isascii() else {stem}

    def list_starts(self, own: str, wanted: set[str]) -> set[str]:
        """Return what forms of a word with these stems begin with; `own` is its token, with the accents that it keeps.

        A stem may begin otherwise than its word ("baca" of "membaca").
        """
        size = max(_LEAST_STEM, min(map(len, wanted)) - _CHANGED)
        starts = {strip_accents(stem)[:size] for stem in wanted}
        return starts | {own[:size]} | {article + start for article in self._articles for start in starts}

    def may_join_short(self, word: str, form: str, token: str, wanted: set[str]) -> bool:
        """Return whether a short stem joins two words: one of them must be the stem, and no English word follows it.

        "Tag" is joined with "Tage", Spanish "casa" not with "caso", and "Rat" not with the English "rate".
        """
        if self._join_plural(word) == self._join_plural(form):
            return True
        plain = strip_accents(word)
        return (plain in wanted and list_related(token) is None) or (token in wanted and list_related(plain) is None)

    def select(self, tokens: Sequence[str], wanted: set[str], analyzer: Analyzer) -> dict[str, str]:
        """Return those of the tokens that were cut off a word with one of the stems, each with such a word."""
        written = [token + ending for ending in _CUT_ENDINGS for token in tokens]
        stems = self._cut_all([self._join_plural(word) for word in written] if self._plurals else written)
        if not "".join(stems).isascii():
            stems = list(map(strip_accents, stems))
        found: dict[str, str] = {}
        for place in [place for place, stem in enumerate(stems) if stem in wanted]:
            token = tokens[place % len(tokens)]
            if token not in found and analyzer.stem(written[place]) == token:
                found[token] = written[place]
        return found

    def _join_plural(self, word: str) -> str:
        """Return the singular of a word that has one of these plurals, and any other word as it is."""
        plain = strip_accents(word) if self._plurals else word
        for ending, singular in self._plurals:
            if plain.endswith((ending, singular)):
                return plain.removesuffix(singular).removesuffix(ending) + singular
        return word
