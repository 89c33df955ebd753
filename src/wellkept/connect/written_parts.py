"""The parts that kept writes into files: whole files of its own, members of JSON, tables and values of TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from wellkept.connect import jsonc, toml_text
from wellkept.core.text import JSON
from wellkept.core.values import asdict

COMMENT = "kept: memory for this agent; `kept disconnect` removes it"
"""The line above what is added to a TOML file."""


class NotEditable(ValueError):
    """A file whose content cannot be parsed, or not be changed without changing something else."""


class OwnFile(Struct, frozen=True):
    """A whole file that is kept's alone."""

    path: Path
    text: str


class JsonMember(Struct, frozen=True):
    """A value below `keys` of a JSON file."""

    path: Path
    keys: tuple[str, ...]
    value: JSON
    comments: bool = True
    """Whether the client accepts comments in this file."""


class JsonItem(Struct, frozen=True):
    """An item of the list below `keys` of a JSON file."""

    path: Path
    keys: tuple[str, ...]
    value: JSON
    comments: bool = True


class JsonDefault(Struct, frozen=True):
    """A value below `keys` that the file needs; one that is there already stays, and it is not taken out."""

    path: Path
    keys: tuple[str, ...]
    value: JSON
    comments: bool = True


class TomlTable(Struct, frozen=True):
    """A table of a TOML file."""

    path: Path
    keys: tuple[str, ...]
    values: Mapping[str, Any]


class TomlCommand(Struct, frozen=True):
    """A list of words below a root key of a TOML file: a command; one that was there is appended to it."""

    path: Path
    key: str
    words: tuple[str, ...]


Part: TypeAlias = OwnFile | JsonMember | JsonItem | JsonDefault | TomlTable | TomlCommand
_KINDS: Mapping[str, type] = {
    kind.__name__: kind for kind in (OwnFile, JsonMember, JsonItem, JsonDefault, TomlTable, TomlCommand)
}


def put_parts(text: str, parts: Sequence[Part]) -> str:
    """Return the text of a file with every part in it; raise NotEditable."""
    for part in parts:
        with _explain(part):
            text = _put(part, text)
    return text


def take_parts_out(text: str, parts: Sequence[Part], before: str) -> str:
    """Return the text of a file that was edited since, without the parts; `before` is how it was without them.

    Objects and lists that are empty now and were not there before are taken out too.
    """
    for part in reversed(parts):
        with _explain(part):
            text = _take_out(part, text, before)
    return text


def has_parts(text: str, parts: Sequence[Part]) -> bool:
    """Whether every part is in the text of a file as it would be written."""
    for part in parts:
        with _explain(part):
            if not _has(part, text):
                return False
    return True


@contextmanager
def _explain(part: Part) -> Iterator[None]:
    try:
        yield
    except (jsonc.NotJson, toml_text.NotToml) as error:
        raise NotEditable(f"{str(part.path)!r} cannot be edited: {error}") from error


def _put(part: Part, text: str) -> str:
    match part:
        case OwnFile(_, own):
            return own
        case JsonMember(_, keys, value, comments):
            return jsonc.set_member(text if text.strip() else "{}\n", keys, value, comments=comments)
        case JsonItem(_, keys, value, comments):
            start = text if text.strip() else "{}\n"
            return start if _has(part, start) else jsonc.append_item(start, keys, value, comments=comments)
        case JsonDefault(_, keys, value, comments):
            start = text if text.strip() else "{}\n"
            is_there = jsonc.find(jsonc.parse(start, comments=comments), keys) is not None
            return start if is_there else jsonc.set_member(start, keys, value, comments=comments)
        case TomlTable(_, keys, values):
            without = _without_table(text, keys)
            return toml_text.add_table(without, keys, values, comment=COMMENT)
        case TomlCommand(_, key, words):
            old = chained_command(toml_text.parse(text).get(key), words)
            return toml_text.set_value(text, key, [*words, *old], comment=COMMENT)
        case _:
            assert_never(part)


def _has(part: Part, text: str) -> bool:
    match part:
        case OwnFile(_, own):
            return text == own
        case JsonMember(_, keys, value, comments):
            node = jsonc.find(jsonc.parse(text, comments=comments), keys) if text.strip() else None
            return node is not None and node.value == value
        case JsonItem(_, keys, value, comments):
            node = jsonc.find(jsonc.parse(text, comments=comments), keys) if text.strip() else None
            return node is not None and isinstance(node.value, list) and value in node.value
        case JsonDefault(_, keys, _, comments):
            return bool(text.strip()) and jsonc.find(jsonc.parse(text, comments=comments), keys) is not None
        case TomlTable(_, keys, values):
            found = _toml_at(toml_text.parse(text), keys)
            return isinstance(found, dict) and all(found.get(name) == value for name, value in values.items())
        case TomlCommand(_, key, words):
            found = toml_text.parse(text).get(key)
            return isinstance(found, list) and tuple(found[: len(words)]) == words
        case _:
            assert_never(part)


def _take_out(part: Part, text: str, before: str) -> str:
    match part:
        case OwnFile():
            return before
        case JsonDefault(_, keys, _, comments):
            # a file that holds nothing else, and did not before, needs no default
            is_alone = list(jsonc.parse(text, comments=comments).members) == [keys[0]]
            return "{}\n" if is_alone and not _was_there(before, keys, comments=comments) else text
        case JsonMember(_, keys, _, comments):
            return _put_back_member(text, keys, before, comments=comments)
        case JsonItem(_, keys, value, comments):
            return _prune(jsonc.remove_item(text, keys, value, comments=comments), keys, before, comments=comments)
        case TomlTable(_, keys):
            return _without_table(text, keys)
        case TomlCommand(_, key, words):
            return _put_back_command(text, key, words)
        case _:
            assert_never(part)


def _put_back_command(text: str, key: str, words: tuple[str, ...]) -> str:
    found = toml_text.parse(text).get(key)
    if not isinstance(found, list) or tuple(found[: len(words)]) != words:
        return text  # somebody else has replaced it since
    old = found[len(words) :]
    return toml_text.set_value(text, key, old) if old else toml_text.remove_value(text, key, comment=COMMENT)


def chained_command(found: object, words: Sequence[str]) -> list[str]:
    """Return the command that was there before ours: an earlier form of ours (same word `hook`) is left out."""
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        return []
    if "hook" in found and words[-1] in found:
        return found[found.index(words[-1]) + 1 :]
    return found


def _without_table(text: str, keys: Sequence[str]) -> str:
    if _toml_at(toml_text.parse(text), keys) is None:
        return text
    return toml_text.remove_table(text, keys, comment=COMMENT)


def _toml_at(values: object, keys: Sequence[str]) -> object:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _put_back_member(text: str, keys: tuple[str, ...], before: str, *, comments: bool) -> str:
    """Return `text` with the value that `before` has below `keys`, or without the member."""
    old = jsonc.find(jsonc.parse(before, comments=comments), keys) if before.strip() else None
    if old is not None:
        return jsonc.set_member(text, keys, old.value, comments=comments)
    return _prune(jsonc.remove_member(text, keys, comments=comments), keys[:-1], before, comments=comments)


def _prune(text: str, keys: tuple[str, ...], before: str, *, comments: bool) -> str:
    while keys:
        node = jsonc.find(jsonc.parse(text, comments=comments), keys)
        if node is None or node.value not in ({}, []) or _was_there(before, keys, comments=comments):
            return text
        text = jsonc.remove_member(text, keys, comments=comments)
        keys = keys[:-1]
    return text


def _was_there(before: str, keys: Sequence[str], *, comments: bool) -> bool:
    return bool(before.strip()) and jsonc.find(jsonc.parse(before, comments=comments), keys) is not None


def part_as_json(part: Part) -> dict[str, JSON]:
    """Return a part as the record stores it."""
    return {"kind": type(part).__name__, **{key: _plain(value) for key, value in asdict(part).items()}}


def part_from_json(value: Mapping[str, Any]) -> Part:
    """Return a part from the record; raises TypeError or KeyError for anything else."""
    fields = {key: _restore_type(key, inner) for key, inner in value.items() if key != "kind"}
    part: Part = _KINDS[value["kind"]](**fields)
    return part


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _restore_type(key: str, value: Any) -> Any:
    if key == "path":
        return Path(value)
    return tuple(value) if key in {"keys", "words"} else value
