"""Edits of a TOML text that keep every other byte; each result is checked with the parser before it is used."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

_HEADER = re.compile(r"[ \t]*\[")
_MAX_LINES = 200
"""A statement with more lines than this is not searched for its end."""


class NotToml(ValueError):
    """The text is not TOML, or cannot be edited without changing something else."""


def parse(text: str) -> dict[str, Any]:
    """Return the values of `text`; raise NotToml."""
    try:
        return tomllib.loads(_plain(text))
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from None


def add_table(text: str, keys: Sequence[str], values: Mapping[str, Any], *, comment: str) -> str:
    """Return `text` with a new table at its end."""
    newline = _newline(text)
    lines = [f"# {comment}", f"[{_join_keys(keys)}]", *(f"{name} = {render(value)}" for name, value in values.items())]
    head = text if not text or text.endswith("\n") else text + newline
    edited = head + (newline if head else "") + newline.join(lines) + newline
    return _check(text, edited, keys, dict(values))


def remove_table(text: str, keys: Sequence[str], *, comment: str) -> str:
    """Return `text` without a table and its sub-tables; the rest must stay as it is."""
    lines = text.splitlines(keepends=True)
    name = re.escape(_join_keys(keys))
    own = re.compile(rf"[ \t]*\[\[?[ \t]*{name}[ \t]*(?:\.[^\]]*)?\]")
    kept: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        # a line inside a text or a list may look like a header; the text before it is then not a complete document
        if _HEADER.match(line) and _values("".join(lines[:number])) is not None:
            inside = own.match(line) is not None
            if inside and kept and kept[-1].strip() == f"# {comment}":
                kept.pop()
                if kept and not kept[-1].strip():
                    kept.pop()
        if not inside:
            kept.append(line)
    return _check(text, "".join(kept), keys, None)


def set_value(text: str, key: str, value: Any, *, comment: str = "") -> str:
    """Return `text` with a value of the root table; a new one is put on the first line, before every table."""
    if key in parse(text):
        start, end = _find_statement(text, key)
        return _check(text, f"{text[:start]}{key} = {render(value)}{text[end:]}", (key,), value)
    newline = _newline(text)
    head = f"# {comment}{newline}" if comment else ""
    return _check(text, f"{head}{key} = {render(value)}{newline}{text}", (key,), value)


def remove_value(text: str, key: str, *, comment: str = "") -> str:
    """Return `text` without a value of the root table, its line, and the comment above it."""
    if key not in parse(text):
        return text
    start, end = _find_statement(text, key)
    head, rest = text[:start], text[end:].removeprefix("\r").removeprefix("\n")
    note = f"# {comment}{_newline(text)}"
    return _check(text, (head.removesuffix(note) if comment else head) + rest, (key,), None)


def render(value: Any) -> str:
    """Return a value as TOML; texts, numbers, flags and lists of them are all that is needed."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(render, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # a JSON text is a TOML basic string: the same quotes and escapes
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _find_statement(text: str, key: str) -> tuple[int, int]:
    """Return where the statement of a root key begins and ends, without its line end."""
    lines = text.splitlines(keepends=True)
    wanted = parse(text)[key]
    starts = re.compile(rf"""[ \t]*(?:{re.escape(key)}|"{re.escape(key)}"|'{re.escape(key)}')[ \t]*=""")
    offset = 0
    for number, line in enumerate(lines):
        if starts.match(line):
            for count in range(1, min(_MAX_LINES, len(lines) - number) + 1):
                statement = "".join(lines[number : number + count])
                if _values(statement) == {key: wanted}:
                    return offset, offset + len(statement.rstrip("\r\n"))
        offset += len(line)
    raise NotToml(f"the place of {key!r} was not found")


def _values(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(_plain(statement))
    except tomllib.TOMLDecodeError:
        return None


def _check(before: str, after: str, keys: Sequence[str], value: Any) -> str:
    """Return `after` if its values are those of `before` with `value` below `keys`; None means no value."""
    wanted, found = parse(before), parse(after)
    _assign(wanted, keys, value)
    if _drop_empty_tables(wanted) != _drop_empty_tables(found):
        raise NotToml(f"{_join_keys(keys)!r} cannot be changed without changing something else")
    return after


def _assign(values: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = values.setdefault(key, {})
        if not isinstance(inner, dict):
            raise NotToml(f"{key!r} is not a table")
        values = inner
    if value is None:
        values.pop(keys[-1], None)
    else:
        values[keys[-1]] = value


def _drop_empty_tables(values: Any) -> Any:
    """Return the values without empty tables: a table that is only the parent of another has no line of its own."""
    if not isinstance(values, dict):
        return values
    inner = {key: _drop_empty_tables(value) for key, value in values.items()}
    return {key: value for key, value in inner.items() if value != {}}


def _join_keys(keys: Sequence[str]) -> str:
    return ".".join(keys)


def _plain(text: str) -> str:
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").replace("\r\n", "\n")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
