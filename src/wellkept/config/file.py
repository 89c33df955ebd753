"""Edits of the settings file that keep its comments and order."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wellkept.config.home import Home
from wellkept.config.load import from_text, parse_yaml, put, read_document
from wellkept.config.settings import Settings, find_default, find_guard_of, known_keys, nearest
from wellkept.core.agency import refuse_decision
from wellkept.core.errors import ConfigError, UsageError
from wellkept.core.settings import InvalidSetting, build, fields
from wellkept.core.text import dumps, is_encodable
from wellkept.storage.files import make_folder, read_bytes, write_atomically
from wellkept.storage.locks import hold_lock


def set_value(home: Home, key: str, text: str, *, why_no_person: str) -> Any:
    """Write `key` to the settings file and return its value; an invalid value changes nothing.

    Raises NotAllowed for a value that protects the person less than the present one, unless `why_no_person` is empty.
    """
    _check_key(key)
    value = from_text(key, text)
    values: dict[str, Any] = {}
    put(values, key, value)
    try:
        build(Settings, values)
    except InvalidSetting as invalid:
        raise ConfigError(str(invalid), f"accepted: {invalid.accepted}") from None
    if not is_encodable(dumps(value)):
        raise ConfigError(f"{key} cannot contain a lone surrogate", "accepted: text in UTF-8")
    with _lock_document(home) as (path, document):
        _check_guard(document, key, value, why_no_person)
        put(document, key, value)
        _write(path, document)
    return value


def unset_value(home: Home, key: str, *, why_no_person: str) -> bool:
    """Remove `key` from the settings file; return whether it was set. `why_no_person` is as in `set_value`."""
    _check_key(key)
    with _lock_document(home) as (path, document):
        *sections, name = key.split(".")
        node: Any = document
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if not isinstance(node, dict) or name not in node:
            return False
        _check_guard(document, key, find_default(key), why_no_person)
        place = _place_of(node, name)
        del node[name]
        text = (read_bytes(path) or b"").decode("utf-8-sig")
        shorter = _without(text, *place) if place is not None else text
        if _same(shorter, document):
            write_atomically(path, shorter.encode())
        else:
            _write(path, document)
    return True


def _place_of(node: Any, name: str) -> tuple[int, int] | None:
    """Return the line and column of a setting, or None if it comes from a YAML merge."""
    return node.lc.key(name) if name in (node.lc.data or {}) else None


def _without(text: str, line: int, column: int) -> str:
    """Return the text without the lines of one setting; comments around it stay, because they may belong to others."""
    lines = text.splitlines(keepends=True)
    end = line + 1
    while end < len(lines) and (_is_comment(lines[end]) or _is_below(lines[end], column)):
        end += 1
    while end - 1 > line and _is_comment(lines[end - 1]):
        end -= 1
    return "".join(lines[:line] + lines[end:])


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _is_below(line: str, column: int) -> bool:
    """Whether a line continues a setting that begins at `column`; a list may be indented like its key."""
    indent = len(line) - len(line.lstrip())
    return indent > column or (indent == column and line.lstrip().startswith("- "))


def _same(text: str, document: Any) -> bool:
    """Whether the text has the same contents as the document, apart from empty sections."""
    try:
        return bool(_without_empty(parse_yaml(text)) == _without_empty(document))
    except ConfigError:
        return False


def _without_empty(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {name: inner for name, value in node.items() if (inner := _without_empty(value)) not in ({}, None)}


def _check_guard(document: Any, key: str, value: Any, why_no_person: str) -> None:
    """Raise NotAllowed if the change protects the person less, and no person asks for it."""
    guard = find_guard_of(key) if why_no_person else None
    if guard is None:
        return
    node = document
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    if guard.loosens(find_default(key) if node is None else node, value):
        raise refuse_decision(f"{key} protects you, and {why_no_person}", f"`kept config set {key} VALUE`")


def _check_key(key: str) -> None:
    keys = list(known_keys())
    inside = next((known for known in keys if known.startswith(f"{key}.")), None)
    if inside is not None:
        raise UsageError(
            f"{key!r} is a section", f"name a setting in it, like {inside}; `kept config show {key}` lists them"
        )
    if key not in keys and not any(key.startswith(f"{known}.") and _is_mapping(known) for known in keys):
        raise UsageError(f"there is no setting {key!r}{nearest(key, keys)}", "`kept config show` lists all settings")


def _is_mapping(key: str) -> bool:
    """Whether a setting is a mapping with arbitrary keys."""
    annotation: Any = Settings
    for part in key.split("."):
        annotation = fields(annotation)[part]
    return "dict[" in str(annotation).lower()


@contextmanager
def _lock_document(home: Home) -> Iterator[tuple[Path, Any]]:
    path = home.config_file
    make_folder(home.path)
    with hold_lock(path.with_name(f"{path.name}.lock")):
        document = read_document(path)
        if document is None:
            from ruamel.yaml.comments import CommentedMap

            document = CommentedMap()
        yield path, document


def _write(path: Path, document: Any) -> None:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    stream = io.StringIO()
    if document:
        yaml.dump(document, stream)
    # a file with only comments has no node that could carry them
    write_atomically(path, _keep_line_ends(path, _text_without_keys(path) + stream.getvalue()).encode())


def _keep_line_ends(path: Path, text: str) -> str:
    """Return the text with the line ends of the file: CRLF if it contains any."""
    lines = text.replace("\r\n", "\n")
    return lines.replace("\n", "\r\n") if b"\r\n" in (read_bytes(path) or b"") else lines


def _text_without_keys(path: Path) -> str:
    """Return the text of the file if it has only comments, else an empty string."""
    lines = (read_bytes(path) or b"").decode("utf-8-sig").splitlines(keepends=True)
    return "".join(lines) if all(_is_comment(line) for line in lines) else ""
