"""Edits of the settings file that keep its comments and its order."""

import io
from pathlib import Path
from typing import Any

from kept.config.home import Home
from kept.config.load import from_text, known_keys, load, nearest, place, read_document
from kept.config.settings import Settings
from kept.core.errors import ConfigError, UsageError
from kept.storage.files import make_folder, read_bytes, write_atomically
from kept.storage.locks import locked


def set_value(home: Home, key: str, text: str) -> Any:
    """Write `key` to the settings file and return its value; a value that is not accepted changes nothing."""
    _check_key(key)
    value = from_text(text)
    _check_value(key, value)
    with _locked_document(home) as (path, document):
        place(document, key, value)
        _write(path, document)
    return value


def unset_value(home: Home, key: str) -> bool:
    """Remove `key` from the settings file; return whether it stood there."""
    _check_key(key)
    with _locked_document(home) as (path, document):
        *sections, name = key.split(".")
        node = document
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
            if node is None:
                return False
        if name not in node:
            return False
        del node[name]
        _write(path, document)
    return True


def _check_key(key: str) -> None:
    keys = list(known_keys())
    if key not in keys and not any(key.startswith(f"{known}.") for known in _open_keys()):
        raise UsageError(f"there is no setting {key!r}{nearest(key, keys)}", "`kept config show` lists all settings")


def _open_keys() -> list[str]:
    """Return the keys that hold a free mapping, below which any name may stand."""
    return [key for key in known_keys() if "dict" in str(_annotation(key)).lower()]


def _annotation(key: str) -> Any:
    model: Any = Settings
    for part in key.split("."):
        model = model.model_fields[part].annotation
    return model


def _check_value(key: str, value: Any) -> None:
    from pydantic import ValidationError

    values: dict[str, Any] = {}
    place(values, key, value)
    try:
        Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        expected = first.get("ctx", {}).get("expected")
        raise ConfigError(
            f"{key} cannot be {value!r}: {first['msg'].lower()}",
            f"accepted: {expected}" if expected else "see docs/configuration.md",
        ) from None


class _locked_document:  # noqa: N801 - used like a function, in a with statement
    """The settings document under its lock, created where there is none."""

    def __init__(self, home: Home) -> None:
        self._path = home.config_file
        make_folder(home.path)
        self._lock = locked(self._path.with_name(f"{self._path.name}.lock"))

    def __enter__(self) -> tuple[Path, Any]:
        self._lock.__enter__()
        try:
            document = read_document(self._path)
            if document is None:
                from ruamel.yaml.comments import CommentedMap

                document = CommentedMap()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self._path, document

    def __exit__(self, *exc: object) -> None:
        self._lock.__exit__(None, None, None)


def _write(path: Path, document: Any) -> None:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    stream = io.StringIO()
    if document:
        yaml.dump(document, stream)
    elif (comments := _only_comments(path)) is not None:
        stream.write(comments)
    write_atomically(path, stream.getvalue().encode())


def _only_comments(path: Path) -> str | None:
    raw = read_bytes(path)
    if raw is None:
        return None
    lines = raw.decode("utf-8-sig").splitlines(keepends=True)
    return "".join(line for line in lines if line.lstrip().startswith("#"))


__all__ = ["load", "set_value", "unset_value"]
