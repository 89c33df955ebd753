"""Word forms of languages that inflect in the Cyrillic script, brought to what they have in common by their endings."""

import re
from functools import lru_cache
from typing import Final

CYRILLIC: Final = re.compile("[\u0400-\u04ff]")
_LEAST: Final = 3
"""Letters that are left of a word; less would join what has nothing in common."""
_REFLEXIVE: Final = ("ся", "сь")
_NOUNS: Final = (
    "иями ьями ями ами иях ях ах иям ьям ям ам ией ием ия ие ии ию ья ье ьи ью ьев ов ев а я о е ы и у ю й ь"
)
_ADJECTIVES: Final = "ыми ими ого его ому ему ая яя ую юю ое ее ые ие ый ий ой ей ых их ым им ом ем ою ею"
_VERBS: Final = "ешь ишь ете ите ут ют ат ят ет ит ем им ти"
_PAST: Final = "ть л ла ло ли в вши"
_PRESENT: Final = "ет ем ете ют ю ешь й йте"
_ENDINGS: Final = frozenset(
    {
        *f"{_NOUNS} {_ADJECTIVES} {_VERBS}".split(),
        *(vowel + ending for vowel in "аяеиыу" for ending in _PAST.split()),
        *(vowel + ending for vowel in "аяуе" for ending in _PRESENT.split()),
    }
)
_LONGEST: Final = max(map(len, _ENDINGS))


def base(word: str) -> str:
    """Return what the forms of a lower-case word have in common; a word of another script is its own base."""
    return _cyrillic(word) if len(word) > _LEAST and CYRILLIC.match(word) else word


@lru_cache(maxsize=20_000)
def _cyrillic(word: str) -> str:
    word = word.replace("ё", "е")
    if word.endswith(_REFLEXIVE) and len(word) > _LEAST + 2:
        word = word[:-2]
    for size in range(min(_LONGEST, len(word) - _LEAST), 0, -1):
        if word[-size:] in _ENDINGS:
            return word[:-size]
    return word
