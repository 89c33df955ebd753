"""Texts for Telegram: parts that fit a message, and Markdown converted to the HTML of the Bot API.

Telegram counts UTF-16 units after parsing the markup. A text is never longer as parsed HTML than as Markdown, so it
is enough to measure the Markdown.
"""

from __future__ import annotations

import html
import itertools
import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_UNITS = 4_096
"""The longest text of a message."""
_LEAST_SHARE = 3
"""A part is not cut in its first third, so that a text does not fall into many small parts."""
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})([^\n]*)")
_MOST_FENCE_UNITS = 200
"""A longer line is treated as text, not as a fence."""


def count_units(text: str) -> int:
    """Return how long a text is for Telegram: characters beyond the basic plane count twice."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class _Fence(Struct, frozen=True):
    """The line that opens a code block."""

    indent: str
    mark: str
    language: str

    @property
    def opening(self) -> str:
        return f"{self.indent}{self.mark}{self.language}\n"

    @property
    def closing(self) -> str:
        return f"\n{self.indent}{self.mark}"

    def is_closed_by(self, line: str) -> bool:
        stripped = line.strip(" \t")
        return len(stripped) >= len(self.mark) and set(stripped) == {self.mark[0]}


def _read_fence(line: str) -> _Fence | None:
    match = _FENCE.fullmatch(line)
    if match is None or len(line) > _MOST_FENCE_UNITS or "`" in match[3]:
        return None
    return _Fence(match[1], match[2], match[3].rstrip())


def _follow(fence: _Fence | None, line: str) -> _Fence | None:
    """Return the code block that is open after a line."""
    if fence is None:
        return _read_fence(line)
    return None if fence.is_closed_by(line) else fence


def split_text(text: str, most: int = MOST_UNITS) -> list[str]:
    """Return a text in parts of at most `most` units, cut between paragraphs, lines or words.

    A code block that must be cut is closed at the end of its part and opened again in the next one.
    """
    parts, rest = [], text.strip("\n")
    while len(rest) > most or count_units(rest) > most:
        place, fence = _find_cut(rest, most)
        head, rest = rest[:place], rest[place:]
        if fence is None:
            head, rest = head.rstrip(), rest.lstrip("\n")
        else:
            head, rest = head.removesuffix("\n") + fence.closing, fence.opening + rest
        if head.strip():
            parts.append(head)
    if rest.strip():
        parts.append(rest)
    return parts


class _Cuts(Struct):
    """The last place of each kind at which a text can be cut; a better kind is taken even if it is earlier."""

    paragraph: int = 0
    line: int = 0
    code: tuple[int, _Fence] | None = None
    """Between two lines of a code block, which is closed and opened again."""

    def add(self, text: str, place: int, fence: _Fence | None, most: int) -> None:
        if fence is None and text[:place].endswith("\n\n"):
            self.paragraph = place
        elif fence is None:
            self.line = place
        elif place <= len(fence.opening):
            return  # the rest would be as long as before
        elif count_units(text[:place].removesuffix("\n")) + count_units(fence.closing) <= most:
            self.code = (place, fence)


def _find_cut(text: str, most: int) -> tuple[int, _Fence | None]:
    """Return where to cut, and the code block that is open there."""
    cuts, fence, end = _Cuts(), None, _index_at(text, most)
    least = end // _LEAST_SHARE
    for start, line in _lines(text, end):
        if start >= max(least, 1):
            cuts.add(text, start, fence, most)
        if start + len(line) <= end:
            fence = _follow(fence, line)
    if cuts.paragraph or cuts.line:
        return cuts.paragraph or cuts.line, None
    if cuts.code is not None:
        return cuts.code
    return _cut_line(text, most, fence)


def _lines(text: str, end: int) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin before `end`, with their place."""
    start = 0
    while start < end:
        stop = text.find("\n", start)
        stop = len(text) if stop < 0 else stop
        yield start, text[start:stop]
        start = stop + 1


def _index_at(text: str, units: int) -> int:
    """Return how many characters of a text fit into `units` UTF-16 units."""
    used = 0
    for place, character in enumerate(text):
        used += 2 if ord(character) > 0xFFFF else 1
        if used > units:
            return place
    return len(text)


def _cut_line(text: str, most: int, fence: _Fence | None) -> tuple[int, _Fence | None]:
    """Return where to cut a line that is longer than a part: at a space, or anywhere."""
    if fence is not None:
        end = _index_at(text, most - count_units(fence.closing))
        if end > len(fence.opening):
            return end, fence
    end = _index_at(text, most)
    space = max(text.rfind(" ", end // _LEAST_SHARE, end), text.rfind("\n", end // _LEAST_SHARE, end))
    return (space + 1 if space > 0 else end), None


# Markdown as HTML

_INLINE = re.compile(
    r"\0(?P<code>\d+)\0"
    r"|\[(?P<label>[^\[\]\n]+)\]\((?P<url>[^\s()<>\0]+(?:\([^\s()<>\0]*\)[^\s()<>\0]*)*)\)"
    r"|(?P<strong>\*\*|__)(?=\S)(?P<bold>.{1,500}?)(?<=\S)(?P=strong)"
    r"|~~(?=\S)(?P<struck>.{1,500}?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<italic>[^*\n]+?)(?<=[^\s*])\*(?![\w*])"
    r"|(?<![\w_])_(?=[^\s_])(?P<slanted>[^_\n]+?)(?<=[^\s_])_(?![\w_])",
    re.DOTALL,
)
"""Styles. Lengths are bounded, and code spans are removed first, so that matching is fast for every text."""
_TICKS = re.compile("`+")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_BULLET = re.compile(r"([ \t]*)[-*+] (.*)")
_DASHES = re.compile(":?-+:?")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")
_LINKS = ("http://", "https://", "tg://", "mailto:")
_TAGS = {"bold": "b", "struck": "s", "italic": "i", "slanted": "i"}
_MOST_DEPTH = 4
"""How deep styles are nested; deeper marks are text."""


def has_table(text: str) -> bool:
    """Whether a text has a Markdown table, which only a rich message can show as one."""
    lines = text.splitlines()
    return any(_is_row(one) and _is_rule(two) for one, two in itertools.pairwise(lines))


def _is_row(line: str) -> bool:
    stripped = line.strip()
    return len(stripped) > 1 and stripped[0] == stripped[-1] == "|"


def _is_rule(line: str) -> bool:
    cells = line.strip().strip("|").split("|")
    return "|" in line and all(_DASHES.fullmatch(cell.strip()) for cell in cells)


def to_html(text: str) -> str:
    """Return Markdown as Telegram's HTML; unknown markup stays as it is, and tags are always closed."""
    lines, made, place = text.split("\n"), [], 0
    while place < len(lines):
        fence = _read_fence(lines[place])
        if fence is not None:
            stop = _find_end(lines, place + 1, fence)
            made.append(_code_block(lines[place + 1 : stop], fence.language.strip()))
            place = stop + 1
        elif _is_row(lines[place]):
            stop = _skip(lines, place, _is_row)
            made.append(_code_block(lines[place:stop], ""))
            place = stop
        elif lines[place].startswith(">"):
            stop = _skip(lines, place, lambda line: line.startswith(">"))
            quoted = "\n".join(line[1:].removeprefix(" ") for line in lines[place:stop])
            made.append(f"<blockquote>{_inline(quoted)}</blockquote>" if quoted.strip() else "")
            place = stop
        else:
            stop = _skip(lines, place, _is_plain)
            made.append("\n".join(_line(line) for line in _paragraphs(lines[place:stop])))
            place = stop
    return "\n".join(made)


def _find_end(lines: list[str], place: int, fence: _Fence) -> int:
    return next((number for number in range(place, len(lines)) if fence.is_closed_by(lines[number])), len(lines))


def _skip(lines: list[str], place: int, matches: Callable[[str], bool]) -> int:
    while place < len(lines) and matches(lines[place]):
        place += 1
    return place


def _is_plain(line: str) -> bool:
    return _read_fence(line) is None and not _is_row(line) and not line.startswith(">")


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield lines that belong together: a style may reach over a line end, but not over headings and bullets."""
    held: list[str] = []
    for line in lines:
        if not line.strip() or _HEADING.fullmatch(line) or _BULLET.fullmatch(line):
            if held:
                yield "\n".join(held)
            held = []
            yield line
        else:
            held.append(line)
    if held:
        yield "\n".join(held)


def _line(text: str) -> str:
    heading = _HEADING.fullmatch(text)
    if heading is not None:
        return f"<b>{_inline(heading[1].rstrip(' #'), bold=True)}</b>"
    bullet = _BULLET.fullmatch(text)
    if bullet is not None:
        return f"{bullet[1]}• {_inline(bullet[2])}"
    return _inline(text)


def _code_block(lines: list[str], language: str) -> str:
    code = html.escape("\n".join(lines), quote=False)
    if not code.strip():
        return code
    if _LANGUAGE.fullmatch(language):
        return f'<pre><code class="language-{html.escape(language)}">{code}</code></pre>'
    return f"<pre>{code}</pre>"


def _inline(text: str, *, bold: bool = False) -> str:
    """Return a text with its styles as tags; code spans are removed first, because they contain no styles."""
    found, codes = _take_codes(text.replace("\0", ""))
    return _put_styles(found, codes, bold=bold, depth=0)


def _take_codes(text: str) -> tuple[str, list[str]]:
    """Return a text with a mark in place of each code span, and the contents of the spans."""
    runs = list(_TICKS.finditer(text))
    last = {len(run[0]): number for number, run in enumerate(runs)}
    made, codes, place, number = "", [], 0, 0
    while number < len(runs):
        opening = runs[number]
        number += 1
        if last[len(opening[0])] < number:  # no run of this length follows
            continue
        end = next(each for each in range(number, len(runs)) if len(runs[each][0]) == len(opening[0]))
        codes.append(text[opening.end() : runs[end].start()])
        made += f"{text[place : opening.start()]}\0{len(codes) - 1}\0"
        place, number = runs[end].end(), end + 1
    return made + text[place:], codes


def _put_styles(text: str, codes: list[str], *, bold: bool, depth: int) -> str:
    made, place = [], 0
    for found in _INLINE.finditer(text):
        made.append(html.escape(text[place : found.start()], quote=False))
        made.append(_style(found, codes, bold=bold, depth=depth))
        place = found.end()
    made.append(html.escape(text[place:], quote=False))
    return "".join(made)


def _style(found: re.Match[str], codes: list[str], *, bold: bool, depth: int) -> str:
    if found["code"] is not None:
        return f"<code>{html.escape(codes[int(found['code'])], quote=False)}</code>"
    kind, deeper = found.lastgroup, depth + 1
    if depth < _MOST_DEPTH and found["url"] is not None and found["url"].startswith(_LINKS):
        label = _put_styles(found["label"], codes, bold=bold, depth=deeper)
        return f'<a href="{html.escape(found["url"])}">{label}</a>'
    tag = _TAGS.get(kind or "")
    if depth >= _MOST_DEPTH or tag is None:
        pieces = found[0].split("\0")
        for place in range(1, len(pieces), 2):
            pieces[place] = f"<code>{html.escape(codes[int(pieces[place])], quote=False)}</code>"
        pieces[::2] = (html.escape(piece, quote=False) for piece in pieces[::2])
        return "".join(pieces)
    inner = _put_styles(found[kind or 0], codes, bold=bold or tag == "b", depth=deeper)
    return inner if tag == "b" and bold else f"<{tag}>{inner}</{tag}>"
