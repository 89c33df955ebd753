"""The SKILL.md document and its YAML frontmatter: read leniently, written so that every reader accepts it."""

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.skills.roots import MAIN, read_regular

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


NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_NAME = 64
MOST_DESCRIPTION = 1_024
MOST_COMPATIBILITY = 500
MOST_CHARS = 100_000
"""The longest SKILL.md that kept writes."""
MOST_READ_CHARS = 400_000
"""The longest one that is read: published skills exceed what is wise to write."""
MOST_BYTES = MOST_READ_CHARS * 4
FIELDS = ("name", "description", "license", "compatibility", "allowed-tools", "metadata")
"""The fields of the public format, in the order in which they are written."""
DERIVED = "(derived: SKILL.md has no frontmatter)"
"""The mark of a description that the author did not write."""
_MOST_DERIVED = 300
_SENTENCE = re.compile(r".{1,240}?(?:[.!?](?=\s|$)|$)|.{1,240}")
_HEADING = re.compile(r"^#{1,4}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_NAME_REMEDY = "use 1 to 64 lowercase letters, digits and single hyphens, such as 'rotate-api-keys'"


class Document(Struct, frozen=True):
    """The parsed text of one skill."""

    name: str
    description: str
    body: str
    fields: Mapping[str, Field]
    warnings: tuple[str, ...] = ()
    strict: bool = True

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the Markdown headings of the body, levels one to four."""
        return tuple(found[1] for found in _HEADING.finditer(_without_code(self.body)))

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags, in whichever place the author's agent puts them."""
        return list_items(self.lookup("tags"))

    def lookup(self, key: str) -> Field:
        """Return a field from the top level, `metadata` or `metadata.hermes`; empty when absent."""
        metadata = self.fields.get("metadata")
        inner = metadata.get("hermes") if isinstance(metadata, dict) else None
        for place in (self.fields, metadata, inner):
            if isinstance(place, Mapping) and place.get(key):
                return place[key]
        return ""


def list_items(value: Field) -> tuple[str, ...]:
    """Return the items of a list field; the public format writes lists as one string, `a, b`."""
    match value:
        case list():
            return tuple(item.strip() for item in value if isinstance(item, str) and item.strip())
        case str():
            return tuple(item.strip() for item in value.strip("[]").split(",") if item.strip())
        case _:
            return ()


def parse(text: str, folder: str) -> Document | BadFrontmatter:
    """Parse the SKILL.md text of the folder named `folder`, or return why it cannot be loaded."""
    if len(text) > MOST_READ_CHARS:
        return BadFrontmatter(
            f"SKILL.md has {len(text):,} characters", f"keep it below {MOST_CHARS:,}: move parts to references/"
        )
    head = read_frontmatter(text)
    if isinstance(head, BadFrontmatter):
        return head if text.lstrip("\ufeff").startswith("---") else _derive(text, folder, head)
    name, description = _single_line(head.fields.get("name", "")), _single_line(head.fields.get("description", ""))
    if _is_empty(description):
        return BadFrontmatter("there is no description", "add `description:` with what it does and when to use it")
    warnings = [*head.warnings, *_deviations(name, description, folder)]
    if len(text) > MOST_CHARS:
        warnings.append(f"SKILL.md has {len(text):,} characters, which fill much of a context when it is loaded")
    return Document(
        name if NAME.fullmatch(name) and len(name) <= MOST_NAME else folder,
        description[:MOST_DESCRIPTION],
        head.body.lstrip("\n"),
        head.fields,
        warnings=tuple(warnings),
        strict=head.strict,
    )


def _derive(text: str, folder: str, missing: BadFrontmatter) -> Document | BadFrontmatter:
    """Return a skill without frontmatter under the name of its folder, described by its title and first sentence."""
    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip()
    plain = _without_code(body)
    title = next(iter(_HEADING.findall(plain)), "")
    prose = next((line for line in plain.split("\n") if _is_prose(line)), "")
    sentence = _SENTENCE.match(_single_line(prose))
    parts = [part for part in (title, sentence[0] if sentence else "") if part]
    if not parts or not NAME.fullmatch(folder):
        return missing
    description = f"{': '.join(parts)[:_MOST_DERIVED]} {DERIVED}"
    warning = "there is no frontmatter; name and description are derived from the folder and the text"
    return Document(folder, description, body, {}, warnings=(warning,), strict=False)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and line.lstrip()[0] not in "#>|<![`-*+=_"


def read_skill(folder: Path) -> Document | BadFrontmatter:
    """Read the SKILL.md in `folder`, or return why it cannot be loaded."""
    data = read_regular(folder / MAIN, most_bytes=MOST_BYTES)
    if data is None:
        return BadFrontmatter("SKILL.md cannot be read", "check the file's owner and permissions")
    try:
        return parse(data.decode("utf-8-sig"), folder.name)
    except UnicodeDecodeError as error:
        return BadFrontmatter(f"SKILL.md is not UTF-8 (byte {error.start:,})", "save it as UTF-8")


def _deviations(name: str, description: str, folder: str) -> list[str]:
    """Return deviations from the format that can still be read."""
    found = []
    if not name:
        found.append(f"there is no name; the folder name {folder!r} is used")
    elif not NAME.fullmatch(name) or len(name) > MOST_NAME:
        found.append(f"the name {name[:80]!r} is not valid; the folder name {folder!r} is used")
    elif name != folder:
        found.append(f"the name {name!r} differs from the folder {folder!r}")
    if len(description) > MOST_DESCRIPTION:
        found.append(f"the description has {len(description):,} characters; {MOST_DESCRIPTION:,} are read")
    return found


def _single_line(value: Field) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _without_code(body: str) -> str:
    if "```" not in body:
        return body
    return "\n".join(part for place, part in enumerate(body.split("```")) if place % 2 == 0)


def refuse_name(name: str) -> Refused | None:
    """Return why `name` is not a valid skill name, or None when it is."""
    if len(name) <= MOST_NAME and NAME.fullmatch(name) and not _is_device(name):
        return None
    return Refused(Reason.INVALID, f"{name[:80]!r} cannot be the name of a skill", _NAME_REMEDY)


def _is_device(name: str) -> bool:
    from wellkept.security.paths import inside

    try:
        inside(Path("/nowhere"), name)
    except UsageError:
        return True
    return False


def normalize(text: str, name: str) -> str | Refused:
    """Return `text` as a SKILL.md for `name` that every reader of the format accepts.

    Frontmatter that is already strict keeps its bytes. Other frontmatter is rendered again, with
    fields that the format does not define moved below `metadata`.
    """
    if len(text) > MOST_CHARS:
        remedy = f"keep SKILL.md below {MOST_CHARS:,} characters: move parts to files under references/ with write_file"
        return Refused(Reason.OVER_BUDGET, f"SKILL.md would have {len(text):,} characters", remedy)
    head = read_frontmatter(text)
    if isinstance(head, BadFrontmatter):
        return Refused(Reason.INVALID, head.problem, head.fix)
    wrong = _refuse_fields(head.fields, name)
    if wrong is not None:
        return wrong
    if not head.body.strip():
        return Refused(Reason.EMPTY, "the skill has no body", "write the steps below the frontmatter, in Markdown")
    fields = _public_fields(head.fields, name)
    body = "\n" + head.body.lstrip("\n").rstrip() + "\n"
    if head.strict and dict(fields) == dict(head.fields) and not text.startswith("\ufeff") and "\r" not in text:
        return text if text.endswith("\n") else text + "\n"
    return render_frontmatter(fields) + body


def _is_empty(description: str) -> bool:
    """Whether a description is empty; YAML's null values count as empty."""
    return not description or description in {"~", "null"}


def _refuse_fields(fields: Mapping[str, Field], name: str) -> Refused | None:
    given, description = _single_line(fields.get("name", "")), fields.get("description", "")
    if given and given != name:
        remedy = f"write `name: {name}`; a skill is renamed by creating it under the new name and deleting the old one"
        return Refused(Reason.INVALID, f"the frontmatter names {given[:80]!r}, the skill is {name!r}", remedy)
    if not isinstance(description, str) or _is_empty(description.strip()):
        return Refused(
            Reason.INVALID, "there is no description", "add `description:` with what it does and when to use it"
        )
    if len(description.strip()) > MOST_DESCRIPTION:
        error = f"the description has {len(description.strip()):,} characters"
        return Refused(Reason.OVER_BUDGET, error, f"say what it does and when to use it in {MOST_DESCRIPTION:,}")
    compatibility = fields.get("compatibility", "")
    if not isinstance(compatibility, str) or len(compatibility) > MOST_COMPATIBILITY:
        return Refused(
            Reason.INVALID, "compatibility is too long or no text", f"use at most {MOST_COMPATIBILITY} characters"
        )
    return None


def _public_fields(fields: Mapping[str, Field], name: str) -> dict[str, Field]:
    """Return `fields` with only fields of the format at the top level."""
    given = {**fields, "name": name, "description": str(fields["description"]).strip()}
    metadata = given.get("metadata")
    moved: dict[str, Field] = dict(metadata) if isinstance(metadata, dict) else {}
    for key, value in given.items():
        if key not in FIELDS and value != "":
            moved.setdefault(key, value)
    given["metadata"] = moved
    tools = given.get("allowed-tools")
    if isinstance(tools, list):
        given["allowed-tools"] = " ".join(item for item in tools if isinstance(item, str))
    return {key: given[key] for key in FIELDS if given.get(key)}


def compose(name: str, description: str, body: str) -> str:
    """Build a SKILL.md from its parts."""
    return render_frontmatter({"name": name, "description": " ".join(description.split())}) + "\n" + body.strip() + "\n"
