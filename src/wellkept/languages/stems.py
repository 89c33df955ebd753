"""Forms of a word: Snowball's stemmers, and the irregular forms that they do not join."""

from functools import cache
from typing import Any, Final

from wellkept.languages.language import list_languages

STEMMERS: Final = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "eo": "esperanto",
    "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish",
    "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian",
    "sr": "serbian", "st": "sesotho", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Snowball's name of each language; Russian stems are in the index already (`sessions.search.analysis.base`)."""
_FORMS: Final = [
    line.split()
    for language in list_languages()
    for line in language.read_file("forms.txt").splitlines()
    if line and not line.startswith("#")
]
CANONICAL: Final = {form: word for word, *forms in _FORMS for form in forms}
"""Irregular forms and everyday short forms, each with the word under which it is found as well."""


@cache
def load_stemmer(language: str) -> Any:
    """Return the stemmer of a language by its code; English for one that has none."""
    import Stemmer  # 3 ms, and most searches are in English and need none

    # its cache takes longer than the few words of a search
    return Stemmer.Stemmer(STEMMERS.get(language, "english"), 0)
