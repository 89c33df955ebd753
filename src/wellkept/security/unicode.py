"""Folding of look-alike text to plain letters, and the characters a reader cannot see."""

import binascii
import codecs
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from urllib.parse import unquote

from wellkept.core.text import expression, resource_text

_UNLISTED = "бbґrдdзzиuкkлlмmпnфfцuчrшwщwъbьbыbэeюlяrєeђhβbδdεeζzκkλlμuξeπnςcφfχxψyωwɴnƅbեt"
"""Letters that Unicode does not list as look-alikes, and the Latin letters they replace in disguised words.

With them every letter of the Russian and the Greek alphabet folds, so that a word of these languages stays one word.
"""
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
_EMBEDDING = frozenset("\u202a\u202b\u202c\u2066\u2067\u2068\u2069")
_SUSPECT = expression(f"([{_ALWAYS_INVISIBLE}{_JOINERS}])\\1*")
_FLAG = expression("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,8}\U000e007f")
_SOFT = frozenset("\u115f\u1160\u3164\uffa0\u17b4\u17b5\u180e\u034f")
"""Invisible but ordinary in some scripts: suspicious only inside a Latin word."""
_DIRECTION_MARKS = frozenset("\u200e\u200f\u061c")
_RIGHT_TO_LEFT = expression("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_ARTEFACTS = frozenset("\u200b\u2060\ufeff")
"""Copying from a web page leaves these between lines; inside or beside a word they are an attack."""
_LIST_MARK = expression(r"(?:^|\n)\s{0,4}(?:\d{1,3}[.)]|[-*\u2022])\s{0,2}$")
"""Messengers put such a character between the mark of a list item and its text."""
_SOFT_HYPHEN = "\u00ad"
"""Ordinary in text copied from the web; folding removes it, so it hides nothing."""
_CONTROL = expression("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
"""Without tab, line ends and form feed."""
_ASCII = bytes(range(0x80))
_NOT_ASCII = expression(r"[^\x00-\x7f]+")
_VIRAMA = 9
_FEW = 48
"""Up to this many distinct characters are replaced one by one, which is faster than translating the whole text."""
_FOREIGN = expression("[\u0370-\u03ff\u0400-\u052f\u0531-\u058f]")
_WORD = expression("[A-Za-z\u0370-\u03ff\u0400-\u052f\u0531-\u058f]{2,40}")
_LATIN = expression("[A-Za-z]")
_CURSIVE = ("ARABIC", "SYRIAC", "MONGOLIAN", "N'KO", "MANDAIC")


def fold(text: str, among: frozenset[str] | None = None) -> str:
    """Return `text` in lower case, without marks and invisible characters, look-alikes replaced by Latin letters.

    `among` are its `foreign` characters, if the caller knows them already.
    """
    if text.isascii():
        return text.lower()
    distinct = foreign(text) if among is None else among
    if len(text) > 1 and not _lookalikes().capital_i.isdisjoint(distinct):
        text = _capital_i_runs().sub(_read_capital_i, text)
    if len(distinct) <= _FEW:
        for char in distinct:
            text = text.replace(char, _fold_char(char))
    elif len(text) - len(text.encode("ascii", "ignore")) > len(text) // 8:
        return _fold_foreign(text).lower()
    else:
        text = _NOT_ASCII.sub(_fold_run, text)
    # only ASCII letters still need lower case, and bytes are the fastest way
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def foreign(text: str) -> frozenset[str]:
    """Return the characters of `text` that are not ASCII."""
    # deleting the ASCII bytes, most of a text, is faster than looking at each character
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


def _fold_run(run: re.Match[str]) -> str:
    """Fold a run of characters outside ASCII."""
    return _fold_char(run[0]) if len(run[0]) == 1 else _fold_foreign(run[0])


def _fold_foreign(run: str) -> str:
    plain = run.translate(_first_pass())
    if plain.isascii():
        return plain.lower()
    return unicodedata.normalize("NFKD", plain).lower().translate(_second_pass())


_fold_char = lru_cache(maxsize=2048)(_fold_foreign)


def _read_capital_i(run: re.Match[str]) -> str:
    """Return `i` or `l` for letters that look like both: a capital at the start of a word or beside other capitals."""
    text, start, end = run.string, run.start(), run.end()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    is_capital = not before.isalpha() or before.isupper() or after.isupper()
    return ("i" if is_capital else "l") * len(run[0])


class _Lookalikes:
    """The shipped table of Unicode's confusables; read when the first text outside ASCII is folded."""

    def __init__(self, source: str) -> None:
        """Read rows of a Latin letter, a tab and its look-alikes: a block of close ones, then one of distant ones."""
        close, distant = source.split("\n\n")
        self.letters = dict(zip(_UNLISTED[::2], _UNLISTED[1::2], strict=True)) | _rows(distant)
        rows = _rows(close)
        self.capital_i = frozenset(letter for letter, latin in rows.items() if latin == "I")
        self.twins = frozenset(filter(_FOREIGN.match, rows))
        """Letters of the scripts of `_FOREIGN` that look exactly like Latin ones."""
        self.letters |= rows | dict.fromkeys(self.capital_i, "l")


def _rows(block: str) -> dict[str, str]:
    rows = (line.split("\t") for line in block.splitlines() if "\t" in line)
    return {look: latin for latin, looks in rows for look in looks}


@cache
def _lookalikes() -> _Lookalikes:
    return _Lookalikes(resource_text("wellkept.security", "confusables.txt"))


@cache
def _capital_i_runs() -> re.Pattern[str]:
    return re.compile(f"[{''.join(sorted(_lookalikes().capital_i))}]+")


@cache
def _first_pass() -> dict[int, str | None]:
    """Return what is replaced before decomposition, which loses the case and makes long phrases of ligatures."""
    table: dict[int, str | None] = {ord(char): text for char, text in _PUNCTUATION.items()}
    table |= {ord(look): latin for look, latin in _lookalikes().letters.items()}
    table |= dict.fromkeys((*range(65008, 65022), *range(13056, 13311)), " ")
    return table | dict.fromkeys(_invisible_points())


@cache
def _second_pass() -> dict[int, str | None]:
    """Return what is replaced after decomposition and lower-casing: marks, and the letters they were on."""
    table: dict[int, str | None] = dict.fromkeys(range(0x300, 0x370))
    table |= {ord(look): latin for look, latin in _lookalikes().letters.items()}
    return table | {ord(letter): text for letter, text in _SPELLED_OUT.items()}


@cache
def _suspects() -> frozenset[str]:
    return frozenset(map(chr, _invisible_points()))


def _invisible_points() -> Iterator[int]:
    for low, dash, high in re.findall(r"(.)(?:(-)(.))?", _ALWAYS_INVISIBLE + _JOINERS, re.DOTALL):
        yield from range(ord(low), ord(high) + 1) if dash else (ord(low),)


def controls(text: str) -> tuple[str, ...]:
    """Return each control character that no text file needs; a terminal obeys some of them."""
    return tuple(f"U+{ord(char):04X}" for char in sorted(set(_CONTROL.findall(text))))


def invisible(text: str, among: frozenset[str] | None = None) -> tuple[tuple[str, bool], ...]:
    """Return each hidden code point that the script does not need, and whether it can only be meant to deceive."""
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
    """Whether the hidden character can only be meant to deceive; other texts are held for a person."""
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
    """Whether the script around `place` needs the hidden character there."""
    char = text[place]
    before, after = around
    if char == "\u200d":
        return (_is_pictograph(before) and _is_pictograph(after)) or _needs_joiner(before)
    if char == "\u200c":
        joins = _needs_joiner(before) or _needs_joiner(after) or _is_right_to_left(before)
        return joins and not any(each.isascii() and each.isalnum() for each in around)
    if char in _DIRECTION_MARKS:
        return _near_right_to_left(text, place)
    if char in _ARTEFACTS:
        return _LIST_MARK.search(text, max(0, place - 12), place) is not None
    return char in _SOFT and not (_is_latin(before) and _is_latin(after))


def _is_right_to_left(char: str) -> bool:
    return bool(char) and _RIGHT_TO_LEFT.match(char) is not None


def _is_pictograph(char: str) -> bool:
    return bool(char) and (char in "\ufe0f\u20e3" or unicodedata.category(char) in {"So", "Sk"})


def _needs_joiner(char: str) -> bool:
    """Whether `char` is of a script whose letters join or stack."""
    if not char or char.isascii():
        return False
    if unicodedata.combining(char) == _VIRAMA:
        return True
    return unicodedata.name(char, "").startswith(_CURSIVE) or "\u0900" <= char <= "\u0dff"


def _is_latin(char: str) -> bool:
    return char.isalpha() and unicodedata.name(char, "").startswith("LATIN")


def lookalike_words(text: str, among: frozenset[str] | None = None) -> Iterator[tuple[str, bool]]:
    """Yield suspicious words with Cyrillic, Greek or Armenian letters: folded, and whether they mix in Latin ones."""
    letters = set(filter(_FOREIGN.match, foreign(text) if among is None else among))
    if not letters:
        return
    native = not letters <= _lookalikes().twins
    pieces = " ".join([piece for piece in set(text.split()) if not piece.isascii()])
    words = {word: _LATIN.search(word) is not None for word in _WORD.findall(pieces) if not word.isascii()}
    suspects = [word for word, mixed in words.items() if mixed or not native]
    yield from zip(fold("\n".join(suspects)).split("\n"), map(words.__getitem__, suspects), strict=False)


_BASE64 = expression(r"[A-Za-z0-9+/_-]{20,}")
_HEX = expression(r"(?:[0-9a-fA-F]{2}){16,}")
_ESCAPES = expression(r"(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}){6,}")
_PERCENT = expression(r"[A-Za-z0-9]{0,24}(?:%[0-9a-fA-F]{2}[A-Za-z0-9.+-]{0,24}){3,}")
_ENTITY = expression(r"(?:&#x?[0-9a-fA-F]{2,6};){4,}")
_ENCODED_WORD = expression(r"\w+")
_URL_SAFE = str.maketrans("-_", "+/")
_SHORTEST = 20
_TEXT_SHARE = 0.7


def payloads(text: str) -> Iterator[str]:
    """Yield the texts that encoded runs of `text` decode to, one joined text per encoding."""
    long_words = " ".join([word for word in text.split() if len(word) >= _SHORTEST])
    if not long_words:
        return
    plain = (_decode_runs(_BASE64, long_words, _base64), _decode_runs(_HEX, long_words, _hex))
    for decoded in (*plain, *_decode_escapes(long_words)):
        if decoded:
            yield decoded


def undisguise(text: str) -> Iterator[str]:
    """Yield `text` reversed, with each word reversed, and decoded as rot13."""
    yield text[::-1]
    yield _ENCODED_WORD.sub(lambda word: word[0][::-1], text)
    yield codecs.decode(text, "rot13")


def _decode_escapes(text: str) -> Iterator[str]:
    if "\\x" in text or "\\u" in text:
        yield _decode_runs(_ESCAPES, text, _unescape)
    if "%" in text:
        yield _decode_runs(_PERCENT, text, lambda run: unquote(run.replace("+", " "), errors="replace"))
    if "&#" in text and _ENTITY.search(text):
        from html import unescape  # its table of entities takes 5 ms

        yield unescape(text)


def _decode_runs(shape: re.Pattern[str], text: str, decode: Callable[[str], str]) -> str:
    found = (decode(run) for run in shape.findall(text))
    return "\n\n".join(plain for plain in found if plain and _reads_as_text(plain))


def _reads_as_text(plain: str) -> bool:
    sample = plain[:120]
    if " " not in sample:
        return False
    return sum(char.isalpha() or char == " " for char in sample) > len(sample) * _TEXT_SHARE


def _base64(run: str) -> str:
    plain = run.translate(_URL_SAFE) if "-" in run or "_" in run else run
    whole = plain[: len(run) - (len(run) % 4 == 1)]
    try:
        return binascii.a2b_base64(whole + "=" * (-len(whole) % 4)).decode("utf-8", "ignore")
    except binascii.Error:
        return ""


def _hex(run: str) -> str:
    digits = run.replace(" ", "").replace(":", "")
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "ignore")


def _unescape(run: str) -> str:
    return run.encode("ascii").decode("unicode_escape")
