"""Readable text hidden in base64, hexadecimal, escapes, rot13 or reversed words."""

import binascii
import codecs
import re
from collections.abc import Callable, Iterator
from html import unescape
from urllib.parse import unquote

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){16,}")
_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}){6,}")
_PERCENT = re.compile(r"[A-Za-z0-9]{0,24}(?:%[0-9a-fA-F]{2}[A-Za-z0-9.+-]{0,24}){3,}")
_ENTITY = re.compile(r"(?:&#x?[0-9a-fA-F]{2,6};){4,}")
_WORD = re.compile(r"\w+")
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
    yield _WORD.sub(lambda word: word[0][::-1], text)
    yield codecs.decode(text, "rot13")


def _decode_escapes(text: str) -> Iterator[str]:
    if "\\x" in text or "\\u" in text:
        yield _decode_runs(_ESCAPES, text, _unescape)
    if "%" in text:
        yield _decode_runs(_PERCENT, text, lambda run: unquote(run.replace("+", " "), errors="replace"))
    if "&#" in text and _ENTITY.search(text):
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
