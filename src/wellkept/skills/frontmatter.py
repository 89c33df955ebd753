"""The YAML frontmatter of a SKILL.md: read leniently, written so that every reader accepts it."""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

Field: TypeAlias = "str | list[Field] | dict[str, Field]"
"""Scalars are always text, as in the reference reader: `on` does not become a boolean."""

_FENCE = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_PAIR = re.compile(r"( *)([A-Za-z_][\w.-]*):(?:[ ]+(.*?))?[ \t]*\Z")
_ITEM = re.compile(r"( *)- +(.*?)[ \t]*\Z")
# compiled on use: these wide character classes take milliseconds, and a warm start parses no frontmatter
_PLAIN = r"[A-Za-z0-9_(/.~$\u00a1-\u2027\u202a-\ud7ff\ue000-\ufefe\U00010000-\U0010ffff]"
_NOT_PLAIN = r": |:\Z| #|---|[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
_UNQUOTED_COLON = r"([A-Za-z_][\w.-]*): +([^\"'|>\[{&*!%@`\n].*:(?: .*)?)\Z"
_ESCAPE = "[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
_MOST_NODES = 2_000
_MOST_CHARS = 32_768


class Frontmatter(Struct, frozen=True):
    """The fields between the fences, and the text after them."""

    fields: Mapping[str, Field]
    body: str
    strict: bool
    """Whether the strictest reader of the format accepts it unchanged."""
    warnings: tuple[str, ...] = ()


class BadFrontmatter(Struct, frozen=True):
    """Why the frontmatter cannot be read, and how to fix it."""

    problem: str
    fix: str


def read_frontmatter(text: str) -> Frontmatter | BadFrontmatter:
    """Return the fields and body of a SKILL.md, or what is wrong with it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found = _FENCE.match(text)
    if found is None:
        opened = text.startswith("---")
        problem = "the frontmatter is not closed by a line ---" if opened else "there is no frontmatter"
        return BadFrontmatter(problem, "begin the file with ---, name: and description: lines, and ---")
    head, body = found[1], text[found.end() :]
    if len(head) > _MOST_CHARS:
        return BadFrontmatter(f"the frontmatter has {len(head):,} characters", f"keep it below {_MOST_CHARS:,}")
    quick = _SimpleParser(head.splitlines()).read()
    if quick is not None:
        fields, strict = quick
        return Frontmatter(fields, body, strict=strict and "---" not in head)
    return _read_yaml(head, body)


def _read_yaml(head: str, body: str) -> Frontmatter | BadFrontmatter:
    first = _load_yaml(head)
    if isinstance(first, dict):
        return Frontmatter(first, body, strict=False)
    quoted = "\n".join(_quote_colon(line) for line in head.split("\n"))
    again = _load_yaml(quoted) if quoted != head else first
    if isinstance(again, dict):
        warning = "a value with a colon has no quotes; it was read as if it had"
        return Frontmatter(again, body, strict=False, warnings=(warning,))
    return BadFrontmatter(
        f"the frontmatter is not valid YAML: {first}", "fix that line; put text with colons in quotes"
    )


def _quote_colon(line: str) -> str:
    found = re.match(_UNQUOTED_COLON, line)
    return f"{found[1]}: {json.dumps(found[2], ensure_ascii=False)}" if found else line


def _load_yaml(head: str) -> dict[str, Field] | str:
    """Parse `head` as YAML and return the mapping, or the error message."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reused anchors are harmless here
            value = YAML(typ="base", pure=True).load(head)
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        return f"line {mark.line + 2 if mark else 1}: {getattr(error, 'problem', None) or 'it cannot be read'}"
    except (RecursionError, ValueError, KeyError, AttributeError, AssertionError) as error:
        return f"it cannot be read ({type(error).__name__})"  # ruamel raises these on malformed input
    if not isinstance(value, dict):
        return "it is empty" if value is None else "it is not a list of `key: value` lines"
    budget = iter(range(_MOST_NODES))
    try:
        return {str(key): _to_field(item, budget) for key, item in value.items()}
    except (StopIteration, RecursionError):
        return f"it has more than {_MOST_NODES:,} values"  # aliases can expand exponentially


def _to_field(value: object, budget: Iterator[int]) -> Field:
    next(budget)
    match value:
        case dict():
            return {str(key): _to_field(item, budget) for key, item in value.items()}
        case list():
            return [_to_field(item, budget) for item in value]
        case None:
            return ""
        case _:
            return str(value)


class _SimpleParser:
    """Parses the simple YAML that nearly every skill uses, a hundred times faster; gives up on anything else."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._strict = True

    def read(self) -> tuple[dict[str, Field], bool] | None:
        """Return the fields and whether they are strict, None where a full YAML parser is needed."""
        fields = self._mapping(0)
        return (fields, self._strict) if fields and self._at == len(self._lines) else None

    def _peek(self) -> str | None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip(" ") and not line.lstrip(" ").startswith("#"):
                return line
            self._at += 1
        return None

    def _mapping(self, indent: int) -> dict[str, Field] | None:
        fields: dict[str, Field] = {}
        while (line := self._peek()) is not None:
            found = _PAIR.match(line)
            if found is None or len(found[1]) > indent or found[2] in fields:
                return None
            if len(found[1]) < indent:
                break
            self._at += 1
            value = self._value(found[3] or "", indent)
            if value is None:
                return None
            fields[found[2]] = value
        return fields

    def _value(self, text: str, indent: int) -> "Field | None":
        if text in {"|", ">", "|-", ">-"}:
            return self._block(text, indent)
        if text:
            return self._scalar(text)
        line = self._peek()
        deeper = 0 if line is None else len(line) - len(line.lstrip(" "))
        if line is None or (deeper <= indent and not line.lstrip(" ").startswith("- ")):
            return ""
        if line.lstrip(" ").startswith("- "):
            return self._list(deeper, indent) if deeper >= indent else None
        self._strict = self._strict and deeper == indent + 2
        return self._mapping(deeper)

    def _list(self, indent: int, parent: int) -> "Field | None":
        self._strict = self._strict and indent == parent + 2
        items: list[Field] = []
        while (line := self._peek()) is not None:
            found = _ITEM.match(line)
            if found is None or len(found[1]) != indent:
                if len(line) - len(line.lstrip(" ")) > parent or found is not None:
                    return None
                break
            item = self._scalar(found[2])
            if item is None or isinstance(item, list):
                return None
            self._at += 1
            items.append(item)
        return items

    def _scalar(self, text: str) -> "Field | None":
        if text[0] == text[-1] == '"' and len(text) > 1 and "\\" not in text and '"' not in text[1:-1]:
            return text[1:-1] if text[1:-1].isprintable() else None
        if text[0] == text[-1] == "'" and len(text) > 1 and "'" not in text[1:-1]:
            return text[1:-1] if text[1:-1].isprintable() else None
        if text[0] == "[" and text[-1] == "]":
            return self._flow(text[1:-1])
        return text if re.match(_PLAIN, text) and not re.search(_NOT_PLAIN, text) and text.isprintable() else None

    def _flow(self, inner: str) -> "Field | None":
        self._strict = False
        if not inner.strip(" ") or re.search(r"[\[\]{}:#\"'&*]", inner):
            return None
        items = [self._scalar(item.strip(" ")) if item.strip(" ") else None for item in inner.split(",")]
        return (
            None if any(not isinstance(item, str) for item in items) else [item for item in items if item is not None]
        )

    def _block(self, mark: str, indent: int) -> "Field | None":
        """Read a block scalar whose lines have the same indentation and no gaps."""
        lines: list[str] = []
        while self._at < len(self._lines) and self._lines[self._at][: indent + 2] == " " * (indent + 2):
            line = self._lines[self._at][indent + 2 :]
            if not line or line[0] in " \t" or line[-1] in " \t" or not line.isprintable():
                return None
            lines.append(line)
            self._at += 1
        if not lines or (self._at < len(self._lines) and not self._lines[self._at].strip(" ")):
            return None
        text = (" " if mark[0] == ">" else "\n").join(lines)
        return text if mark.endswith("-") else text + "\n"


def render_frontmatter(fields: Mapping[str, Field]) -> str:
    """Render `fields` with fences, in the strict YAML subset that every reader accepts."""
    return "---\n" + "".join(f"{line}\n" for line in _render_lines(fields, 0)) + "---\n"


def _render_lines(fields: Mapping[str, Field], indent: int) -> Iterator[str]:
    space = " " * indent
    for key, value in fields.items():
        match value:
            case dict() if value:
                yield f"{space}{_render_key(key)}:"
                yield from _render_lines(value, indent + 2)
            case list() if value:
                yield f"{space}{_render_key(key)}:"
                yield from (f"{space}  - {_render_scalar(item)}" for item in _texts(value))
            case _:
                yield f"{space}{_render_key(key)}: {_render_scalar(value if isinstance(value, str) else '')}"


def _texts(items: Sequence[Field]) -> Iterator[str]:
    """Yield list items as text; a mapping inside a list becomes JSON, which loses nothing."""
    for item in items:
        yield item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def _render_key(key: str) -> str:
    return (
        key
        if re.fullmatch(r"[A-Za-z_][\w.-]*", key, re.ASCII) and "---" not in key
        else _render_scalar(key, quote=True)
    )


def _render_scalar(text: str, *, quote: bool = False) -> str:
    plain = (
        text
        and text == text.strip()
        and text.isprintable()
        and re.match(_PLAIN, text)
        and not re.search(_NOT_PLAIN, text)
    )
    if plain and not quote:
        return text
    escaped = json.dumps(text, ensure_ascii=False)
    escaped = re.sub(_ESCAPE, lambda char: f"\\u{ord(char[0]):04x}", escaped)
    # the strictest reader splits the file at any three hyphens, even inside a value
    return escaped.replace("---", "\\x2d\\x2d\\x2d")
