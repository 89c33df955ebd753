"""Markdown as entries: each list item and paragraph on its own with its heading path, code blocks whole."""

from __future__ import annotations

import re

from msgspec import Struct, field

SEPARATOR = " › "
"""Between the headings of a path."""
_FRONT_MATTER = re.compile(r"\A---[^\S\n]*\n.*?^(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^ {0,3}(#{1,6})[^\S\n]+(.*?)[^\S\n]*#*[^\S\n]*$")
_FILE_TITLE = re.compile(
    r"\W*(?:[\w-]+\.md\b.*|(?:long[- ]term )?memory|memories|user(?: profile)?|about the user)\W*$", re.IGNORECASE
)
"""A title that says nothing about what follows."""
_UNDERLINE = re.compile(r"^ {0,3}(=+|-{2,})[^\S\n]*$")
_RULE = re.compile(r"^ {0,3}(?:(?:-[^\S\n]*){3,}|(?:\*[^\S\n]*){3,}|(?:_[^\S\n]*){3,}|§)$")
_ITEM = re.compile(r"^([^\S\n]*)(?:[-*+•]|\d{1,9}[.)])[^\S\n]+(.*)$")
_FENCE = re.compile(r"^([^\S\n]*)(`{3,}|~{3,})")
_CHECKBOX = re.compile(r"^\[[ xX]\][^\S\n]+")
_IMPORT = re.compile(r"^@[^\s@]+$")
_TAB_SPACES = 4
_MOST_PATH_CHARS = 200
"""A path is there to give a fact its meaning; a longer one would fill the page."""


class _Item(Struct):
    """A list item that is still open: its indent, and its text as the parent of nested items."""

    indent: int
    text: str


class _Parser(Struct):
    heading: str
    entries: list[str] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    items: list[_Item] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The lines of the paragraph or item that is being read."""
    is_item: bool = False
    is_table: bool = False

    def flush(self) -> None:
        """End the paragraph or item that is being read."""
        text = ("\n" if self.is_table else " ").join(line.strip() for line in self.lines).strip()
        self.lines, self.is_table = [], False
        if self.is_item:
            self.is_item = False
            text = _CHECKBOX.sub("", text)
            self.items[-1].text = text
            if text.endswith(":"):
                return  # means nothing without what follows; nested items have it in their path
        if text:
            self.add(text, skip_item=True)

    def add(self, text: str, *, skip_item: bool = False) -> None:
        """Add an entry below the headings and list items that are open."""
        parents = [item.text.rstrip(":").strip() for item in self.items]
        if skip_item and self.items and self.items[-1].text == text:
            parents.pop()
        path = [self.heading, *(title for _, title in self.headings), *parents]
        prefix = SEPARATOR.join(part for part in path if part)[:_MOST_PATH_CHARS]
        between = ":\n" if text.startswith(("```", "~~~")) else ": "
        entry = f"{prefix}{between}{text}" if prefix else text
        if entry not in self.entries:
            self.entries.append(entry)

    def take_heading(self, level: int, title: str) -> None:
        """Open a heading and close those of the same or a lower level; one that only names the file is left out."""
        self.flush()
        if level == 1 and not (self.entries or self.headings) and _FILE_TITLE.match(title):
            return
        self.items.clear()
        while self.headings and self.headings[-1][0] >= level:
            self.headings.pop()
        self.headings.append((level, title.strip()))

    def take_item(self, indent: int, text: str) -> None:
        """Begin a list item, nested below the last one that is indented less."""
        self.flush()
        self._close_items(indent)
        if _IMPORT.match(text):
            return
        self.items.append(_Item(indent, ""))
        self.is_item = True
        self.lines = [text]

    def _close_items(self, indent: int) -> None:
        while self.items and self.items[-1].indent >= indent:
            self.items.pop()

    def take_line(self, line: str) -> None:
        """Take a line of text: it continues what is open, or begins a paragraph."""
        stripped = line.strip()
        if _IMPORT.match(stripped):
            self.flush()
            return
        is_row = stripped.startswith("|")
        if self.lines and is_row != self.is_table:
            self.flush()
        if not self.lines and self.items and _indent(line) <= self.items[0].indent:
            self.items.clear()  # text at the margin after a blank line ends the list
        self.is_table = is_row
        self.lines.append(stripped.lstrip("> ") if stripped.startswith(">") else stripped)

    def take_code(self, block: str, indent: int) -> None:
        """Add a code block whole, with the line that introduces it, below the item that it is indented under."""
        introduction = ""
        if self.lines and not self.is_item and self.lines[-1].rstrip().endswith(":"):
            introduction = " ".join(self.lines)
            self.lines = []
        self.flush()
        self._close_items(indent)
        if introduction:
            self.add(f"{introduction}\n{block}", skip_item=True)
        else:
            self.add(block)


def parse_entries(text: str, heading: str = "") -> list[str]:
    """Return the distinct entries of a text in order; `heading` precedes the heading path of each.

    Front matter, comments, rules and lines that only import another file (`@path`) are left out.
    """
    whole = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = _COMMENT.sub("", _FRONT_MATTER.sub("", whole)).split("\n")
    parser = _Parser(heading)
    number = 0
    while number < len(lines):
        number += _take(parser, lines, number)
    parser.flush()
    return parser.entries


def _take(parser: _Parser, lines: list[str], number: int) -> int:
    """Take the line with this number; return how many lines belong to it."""
    line = lines[number]
    fence = _FENCE.match(line)
    if fence is not None:
        count = _count_code(lines, number, fence)
        parser.take_code(_dedent(lines[number : number + count], len(fence[1])), _indent(line))
        return count
    following = lines[number + 1] if number + 1 < len(lines) else ""
    if not line.strip():
        parser.flush()  # a list continues if the next line is indented
    elif (found := _HEADING.match(line)) is not None:
        parser.take_heading(len(found[1]), found[2])
    elif _is_title(parser, line, following):
        parser.take_heading(1 if following.lstrip().startswith("=") else 2, line)
        return 2
    elif _RULE.match(line):
        parser.flush()
        parser.items.clear()
    elif (found := _ITEM.match(line)) is not None:
        parser.take_item(_indent(line), found[2])
    else:
        parser.take_line(line)
    return 1


def _is_title(parser: _Parser, line: str, following: str) -> bool:
    """Whether a line is a heading because the next one underlines it."""
    is_plain = not parser.lines and not line.startswith((" ", "\t", "|", ">")) and _ITEM.match(line) is None
    return is_plain and _UNDERLINE.match(following) is not None


def _count_code(lines: list[str], number: int, fence: re.Match[str]) -> int:
    """Return how many lines a code block has; one that is not closed ends with the text."""
    for end in range(number + 1, len(lines)):
        stripped = lines[end].strip()
        if stripped.startswith(fence[2]) and not stripped.strip(fence[2][0]):
            return end - number + 1
    return len(lines) - number


def _dedent(lines: list[str], indent: int) -> str:
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines).rstrip()


def _indent(line: str) -> int:
    expanded = line.expandtabs(_TAB_SPACES)
    return len(expanded) - len(expanded.lstrip())
