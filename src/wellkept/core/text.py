"""Text: JSON, control characters, words, resources of packages, and packages that load their modules on use."""

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, AnyStr, Final, TypeAlias, cast

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


class _Expression:
    """Compiles an expression on first use; its methods are those of the compiled expression."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._source, self._flags), name)  # `re` caches compiled expressions
        setattr(self, name, value)
        return value


def expression(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used, so that loading a module costs nothing."""
    return cast("re.Pattern[AnyStr]", _Expression(source, flags))


class Written(dict[str, "JSON"]):
    """A JSON object together with its serialised text, which was needed to measure it; must not be changed."""

    __slots__ = ("text",)

    def __init__(self, value: Mapping[str, "JSON"]) -> None:
        super().__init__(value)
        self.text = _encode_answer(self)


_encode = json.JSONEncoder(ensure_ascii=False).encode
_encode_answer = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
"""For values that we built ourselves, which cannot be circular: the check takes a fifth of the time."""


def dumps(value: JSON, *, indent: int | None = None) -> str:
    """Return `value` as JSON without ASCII escapes, keys in the given order."""
    if indent is not None:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    return value.text if type(value) is Written else _encode(value)


_SPACES = bytes(ord(" ") if chr(code).isspace() and code < 128 else ord("x") for code in range(256))


def has_long_word(text: str, length: int) -> bool:
    """Whether a run without spaces of ASCII has at least `length` bytes; takes a sixth of the time of splitting."""
    return b"x" * length in text.encode("utf-8", "surrogatepass").translate(_SPACES)


_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""Characters that a terminal may act on: C0 and C1 controls except tab and line break, and bidirectional controls."""
_DIRECTION_MARKS = "[\u061c\u200e\u200f]"
"""Ordinary in Arabic and Hebrew, and invisible: removed, because a replacement would disfigure the text."""
_LINE_SEPARATORS = "[\u2028\u2029]"
"""Replaced by a space: a line break here would escape the indent of the lines around it."""
_NOT_IN_JSON = "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def printable(text: str) -> str:
    """Return `text` with control characters replaced, so that it can neither control nor deceive a terminal.

    Every character is judged alone, so that a sequence in two pieces is as harmless as in one.
    """
    if text.isprintable():  # most texts are one line of ordinary characters
        return text
    text = re.sub(_LINE_SEPARATORS, " ", re.sub(_DIRECTION_MARKS, "", text.replace("\r\n", "\n")))
    return re.sub(_CONTROLS, "\N{REPLACEMENT CHARACTER}", text)


def printable_json(value: JSON, *, indent: int | None = None) -> str:
    """Return `value` as JSON in which every control character is escaped; it parses to the same value."""
    # JSON itself escapes only the C0 controls; all of these can occur in strings only
    return re.sub(_NOT_IN_JSON, lambda found: f"\\u{ord(found[0]):04x}", dumps(value, indent=indent))


def is_encodable(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8; a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def resource_path(package: str, *names: str) -> Path:
    """Return the path of a file or folder that ships in `package`.

    `importlib.resources` would also support packages inside archives, which kept never is, and adds 12 ms to each
    start.
    """
    module = sys.modules.get(package) or import_module(package)
    return Path(module.__path__[0], *names)


def resource_text(package: str, *names: str) -> str:
    """Return the text of a file that ships in `package`."""
    return resource_path(package, *names).read_text(encoding="utf-8")


_MARKS: Final = (
    "\u0300-\u036f"  # accents
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Arabic vowels
    # vowels of Devanagari, Bengali, Tamil and the other scripts of India, without their signs of currencies
    "\u0900-\u0963\u0971-\u09f1\u09f4-\u09fa\u09fc-\u0aef\u0af2-\u0bf8\u0bfa-\u0df3\u0df5-\u0dff"
)
WORD: Final = expression(rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*")
"""A word: letters, digits, and the signs above and between them that Python does not count as letters."""
UNSPACED: Final = expression("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f\uac00-\ud7af]+")
"""Runs of scripts that are searched by pairs of characters: kana, Han, Thai, Hangul."""


def split_words(text: str) -> list[str]:
    """Return the words of `text` in order, in lower case."""
    return WORD.findall(text.lower())


def strip_accents(text: str) -> str:
    """Return `text` without accents and other combining marks."""
    if text.isascii():
        return text
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


def split_pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters of `run`; a single character is its own pair."""
    return [run[place : place + 2] for place in range(max(1, len(run) - 1))]


def one_line(text: str, *, width: int) -> str:
    """Return the beginning of `text` on one line of at most `width` characters."""
    line = " ".join(text[: width * 4].split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def load_on_use(
    package: str, names: Sequence[str], *, former: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for a package: importing all modules would take a command a tenth of a second.

    `former` has names that modules had before, which programs of users may use, with those of today.
    """

    def load(name: str) -> ModuleType:
        name = former.get(name, name)
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
