"""Folding of look-alike text to plain letters, and the characters a reader cannot see."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

_LOOKALIKES = (
    # Cyrillic
    "аaбbвbгrдdеeѐeёeзzиuіiїiјjкkлlмmнhоoпnрpсcтtуyўyфfхxцuчrшwщwъbьbыbэeюlяrѕsԁdԛqԝwҫcһhӏlґrєeћhђh"
    # Greek
    "αaβbγyδdεeζzηnθoιiκkλlμuνvξeοoπnρpσoςcτtυuφfχxψyωw"
    # Latin letters that decomposition leaves alone, and Armenian
    "ıiɩiƖlɑaɡgɢgʀrʟlɴnɪiʏyʜhᴀaᴄcᴅdᴇeᴊjᴋkᴍmᴏoᴘpᴛtᴜuᴠvᴡwᴢzøołlđdħhŧtƅbԍgօoսuոnհhցgեt"
)
_SPELLED_OUT = {"ß": "ss", "æ": "ae", "œ": "oe"}
_PUNCTUATION = {
    "\u2018": "'", "\u2019": "'", "\u02bc": "'", "\uff07": "'", "\u3002": ". ", "\uff0e": ". ",
    "\uff01": "! ", "\uff1f": "? ", "\uff1b": "; ", "\uff1a": ": ", "\u201c": '"', "\u201d": '"',
    "\U0001f513": " lockmark ", "\U0001f512": " lockmark ",
    "\u300c": '"', "\u300d": '"', "\u300e": '"', "\u300f": '"', "\u00ab": '"', "\u00bb": '"', "\u201e": '"',
    "\u2013": "-", "\u2014": " - ", "\u2011": "-", "\u00a0": " ", "\u2026": ". ", "\u00bf": " ", "\u00a1": " ",
}  # fmt: skip
_ALWAYS_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_JOINERS = "\u200c\u200d"
_TWINS = frozenset("аеорсухіјѕԁԛԝһӏАВЕКМНОРСТХУІЈЅԌոսօαονρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
"""Letters that cannot be told from Latin ones by eye."""
_EMBEDDING = frozenset("\u202a\u202b\u202c\u2066\u2067\u2068\u2069")
_SUSPECT = re.compile(f"([{_ALWAYS_INVISIBLE}{_JOINERS}])\\1*")
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,8}\U000e007f")
_SOFT = frozenset("\u115f\u1160\u3164\uffa0\u17b4\u17b5\u180e\u034f")
"""Invisible but ordinary in some scripts: suspicious only inside a Latin word."""
_DIRECTION_MARKS = frozenset("\u200e\u200f\u061c")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_ARTEFACTS = frozenset("\u200b\u2060\ufeff")
"""What copying from a web page leaves between lines; inside or beside a word it is an attack."""
_SOFT_HYPHEN = "\u00ad"
"""Ordinary in text copied from the web; folding removes it, so it hides nothing."""
_ASCII = bytes(range(0x80))
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_VIRAMA = 9
_FEW = 48
"""So many kinds of characters are replaced one after the other; more are translated together."""
_FOREIGN = re.compile("[\u0370-\u03ff\u0400-\u052f\u0531-\u058f]")
_WORD = re.compile("[A-Za-z\u0370-\u03ff\u0400-\u052f\u0531-\u058f]{2,40}")
_LATIN = re.compile("[A-Za-z]")
_CURSIVE = ("ARABIC", "SYRIAC", "MONGOLIAN", "N'KO", "MANDAIC")


def fold(text: str, among: frozenset[str] | None = None) -> str:
    """Return `text` lower-cased, without marks, invisible characters and look-alikes.

    `among` are its `foreign` characters, where they are known already.
    """
    if text.isascii():
        return text.lower()
    distinct = foreign(text) if among is None else among
    if len(distinct) <= _FEW:
        for char in distinct:
            text = text.replace(char, _folded_char(char))
    elif len(text) - len(text.encode("ascii", "ignore")) > len(text) // 8:
        return _folded(text).lower()
    else:
        text = _NOT_ASCII.sub(_folded_run, text)
    # what is not ASCII is lower-cased by now, and the rest of it quickest as bytes
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def foreign(text: str) -> frozenset[str]:
    """Return the characters of `text` that are not ASCII."""
    # as bytes, because those that go are most of a text
    utf8 = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return frozenset(utf8.decode("utf-8", "surrogatepass"))


def visible(text: str, among: frozenset[str]) -> str:
    """Return `text` without the characters that a reader cannot see."""
    hidden = among & _suspects()
    if len(hidden) > _FEW:
        return text.translate(dict.fromkeys(map(ord, hidden)))
    for char in hidden:
        text = text.replace(char, "")
    return text


def _folded_run(run: re.Match[str]) -> str:
    """Fold what is not ASCII; the rest of a text needs no table, which keeps folding quick."""
    return _folded_char(run[0]) if len(run[0]) == 1 else _folded(run[0])


def _folded(run: str) -> str:
    plain = run.translate(_first_pass())
    if plain.isascii():
        return plain.lower()
    return unicodedata.normalize("NFKD", plain).lower().translate(_second_pass())


_folded_char = lru_cache(maxsize=2048)(_folded)


@cache
def _first_pass() -> dict[int, str | None]:
    """Map what needs no decomposition; the ligature phrases would grow eighteenfold in it."""
    table: dict[int, str | None] = {ord(char): text for char, text in _PUNCTUATION.items()}
    table |= dict.fromkeys((*range(65008, 65022), *range(13056, 13311)), " ")
    return table | dict.fromkeys(_invisible_points())


@cache
def _second_pass() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(range(0x300, 0x370))
    for shape, letter in zip(_LOOKALIKES[::2], _LOOKALIKES[1::2], strict=True):
        table[ord(shape)] = letter
    return table | {ord(letter): text for letter, text in _SPELLED_OUT.items()}


@cache
def _suspects() -> frozenset[str]:
    return frozenset(map(chr, _invisible_points()))


def _invisible_points() -> Iterator[int]:
    for low, dash, high in re.findall(r"(.)(?:(-)(.))?", _ALWAYS_INVISIBLE + _JOINERS, re.DOTALL):
        yield from range(ord(low), ord(high) + 1) if dash else (ord(low),)


def invisible(text: str, among: frozenset[str] | None = None) -> tuple[tuple[str, bool], ...]:
    """Return each hidden code point that the script does not need, and whether it touches a word."""
    if text.isascii() or _suspects().isdisjoint(foreign(text) if among is None else among):
        return ()
    text = text.removeprefix("\ufeff")
    if "\U000e007f" in text:
        text = _FLAG.sub("\U0001f3f4", text)
    found: dict[str, bool] = {}
    for run in _SUSPECT.finditer(text):
        char = run[1]
        around = text[max(0, run.start() - 1) : run.start()], text[run.end() : run.end() + 1]
        if not found.get(char, False) and (len(run[0]) > 1 or not _belongs(text, run.start(), around)):
            found[char] = _is_grave(text, run.start(), around)
    return tuple((f"U+{ord(char):04X}", found[char]) for char in sorted(found) if char != _SOFT_HYPHEN)


def _is_grave(text: str, place: int, around: tuple[str, str]) -> bool:
    """Tell whether the hidden character can only be meant to deceive; else a person may look."""
    char = text[place]
    if char in _EMBEDDING:
        return not _near_right_to_left(text, place)
    if char not in _ARTEFACTS:
        return True
    # machine translation leaves them between letters of scripts without spaces
    return any(each.isalnum() and (each.isascii() or _is_latin(each)) for each in around) or (
        all(map(str.isalnum, around)) and not all("\u3040" <= each <= "\u9fff" for each in around)
    )


def _near_right_to_left(text: str, place: int) -> bool:
    return _RIGHT_TO_LEFT.search(text, max(0, place - 80), place + 80) is not None


def _belongs(text: str, place: int, around: tuple[str, str]) -> bool:
    """Tell whether the hidden character at `place` does its proper work there."""
    char = text[place]
    before, after = around
    if char == "\u200d":
        return (_is_pictograph(before) and _is_pictograph(after)) or _needs_joiner(before)
    if char == "\u200c":
        joins = _needs_joiner(before) or _needs_joiner(after) or _is_right_to_left(before)
        return joins and not any(each.isascii() and each.isalnum() for each in around)
    if char in _DIRECTION_MARKS:
        return _near_right_to_left(text, place)
    return char in _SOFT and not (_is_latin(before) and _is_latin(after))


def _is_right_to_left(char: str) -> bool:
    return bool(char) and _RIGHT_TO_LEFT.match(char) is not None


def _is_pictograph(char: str) -> bool:
    return bool(char) and (char in "\ufe0f\u20e3" or unicodedata.category(char) in {"So", "Sk"})


def _needs_joiner(char: str) -> bool:
    """Tell whether `char` is of a script whose letters join or stack."""
    if not char or char.isascii():
        return False
    if unicodedata.combining(char) == _VIRAMA:
        return True
    return unicodedata.name(char, "").startswith(_CURSIVE) or "\u0900" <= char <= "\u0dff"


def _is_latin(char: str) -> bool:
    return char.isalpha() and unicodedata.name(char, "").startswith("LATIN")


def lookalike_words(text: str, among: frozenset[str] | None = None) -> Iterator[tuple[str, bool]]:
    """Yield words with Cyrillic, Greek or Armenian letters: folded, and whether Latin is mixed in."""
    letters = set(filter(_FOREIGN.match, foreign(text) if among is None else among))
    if not letters:
        return
    native = not letters <= _TWINS
    pieces = " ".join([piece for piece in set(text.split()) if not piece.isascii()])
    words = {word: _LATIN.search(word) is not None for word in _WORD.findall(pieces) if not word.isascii()}
    told = [word for word, mixed in words.items() if mixed or not native]
    yield from zip(fold("\n".join(told)).split("\n"), map(words.__getitem__, told), strict=False)
