"""Cursor's history: chats in its state databases, and the transcripts of its agents."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.errors import StorageError
from wellkept.importers.assets import MemoryFile
from wellkept.importers.blocks import name_unknown
from wellkept.importers.cursor_database import DatabaseReading, StateDatabase, find_place, read_stamp
from wellkept.importers.jsonl import JsonlReading, open_own
from wellkept.importers.message_sequence import Speech
from wellkept.importers.port import (
    Conversation,
    Item,
    Kind,
    Left,
    Option,
    Position,
    Reading,
    Request,
    Unusable,
    unknown,
)
from wellkept.importers.typed_text import as_blocks, as_text, describe_block, join_texts
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.core.text import JSON
    from wellkept.importers.assets import Asset

_DATABASE = "state.vscdb"
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_RULES = "aicontext.personalContext"
_MOST_RULE_BYTES = 1_000_000
_MOST_COPIED_BYTES = 500_000_000
"""A larger database is not copied only to look for the person's rules."""


class Cursor:
    """Finds and reads the history of Cursor."""

    client = "cursor"
    options: tuple[Option, ...] = ()

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of the editor on each system, and that of the agents."""
        home = Path(environ.get("HOME") or "~").expanduser()
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        places = [config / "Cursor", home / "Library" / "Application Support" / "Cursor"]
        if environ.get("APPDATA"):
            places.append(Path(environ["APPDATA"]) / "Cursor")
        return [*(place / "User" for place in places), home / ".cursor"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the database of all chats, those of the workspaces, and the transcripts of agents."""
        if root.is_file():
            return [root]
        base = root / "User" if (root / "User").is_dir() else root
        databases = [base / "globalStorage" / _DATABASE, *sorted((base / "workspaceStorage").glob(f"*/{_DATABASE}"))]
        transcripts = [path for path in base.glob("projects/*/agent-transcripts/**/*.jsonl") if path.is_file()]
        found = [path for path in databases if path.is_file()]
        return [*found, *sorted(transcripts, key=lambda path: ("subagents" in path.parts, path.stat().st_mtime))]

    def list_related(self, path: Path) -> list[Path]:
        """Return the transcripts of the sub-agents of a transcript."""
        return sorted(path.parent.glob("subagents/*.jsonl")) if path.suffix == ".jsonl" else []

    def open(self, path: Path, position: Position) -> Reading:
        """Open a database or a transcript."""
        if path.suffix == ".jsonl":
            return JsonlReading(path, position, lambda state: _Parser(state, path))
        folder = _find_workspace(path.parent)
        folders = _map_folders(path.parents[1] / "workspaceStorage") if path.parent.name == "globalStorage" else {}
        return DatabaseReading(path, position, folders, folder)

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the rules of the person, and those of the projects that were opened."""
        del request
        base = root / "User" if (root / "User").is_dir() else root
        database = base / "globalStorage" / _DATABASE
        rules = _read_rules(database, read_stamp(database)) if database.is_file() else ""
        if rules:
            yield MemoryFile("user rules", Target.USER, text=rules)
        folders = {
            _find_workspace(path.parent) for path in sorted((base / "workspaceStorage").glob("*/workspace.json"))
        }
        for folder in sorted(folder for folder in folders if folder):
            place = Path(folder)
            for path in (place / ".cursorrules", *sorted((place / ".cursor" / "rules").glob("*.md*"))):
                text = _read_text(path)
                if text:
                    yield MemoryFile(str(path), Target.PROJECT, text=text, folder=folder)


def _read_text(path: Path) -> str:
    try:
        with open_own(path) as file:
            return file.read(_MOST_RULE_BYTES).decode("utf-8", "replace").strip()
    except (Unusable, OSError):
        return ""


def _find_workspace(folder: Path) -> str | None:
    """Return the folder that a workspace opened."""
    try:
        value = json.loads(_read_text(folder / "workspace.json") or "{}")
    except (ValueError, RecursionError):
        return None
    return find_place(value.get("folder")) if isinstance(value, dict) else None


@lru_cache(maxsize=4)
def _read_rules(database: Path, stamp: str) -> str:
    """Return the rules that the person wrote for all projects."""
    del stamp  # part of the key: a changed database is read again
    try:
        if database.stat().st_size > _MOST_COPIED_BYTES:
            return ""
        opened = StateDatabase(database)
    except (Unusable, OSError):
        return ""
    try:
        value = opened.value("ItemTable", _RULES)
    except StorageError:
        return ""
    finally:
        opened.close()
    return value.strip() if isinstance(value, str) else ""


def _map_folders(storage: Path) -> dict[str, str]:
    """Return the folder of each chat: only the workspaces know which chats were theirs."""
    folders: dict[str, str] = {}
    for path in sorted(storage.glob(f"*/{_DATABASE}")):
        folder = _find_workspace(path.parent)
        if folder is not None:
            folders |= dict.fromkeys(_list_composers(path, read_stamp(path)), folder)
    return folders


@lru_cache(maxsize=512)
def _list_composers(path: Path, stamp: str) -> tuple[str, ...]:
    del stamp
    try:
        database = StateDatabase(path)
    except Unusable:
        return ()  # reported where it is read itself
    try:
        found = [
            *(one.get("composerId") for one in database.old_composers()),
            *(name for name, _ in database.composers()),
        ]
    except StorageError:
        return ()
    finally:
        database.close()
    return tuple(name for name in found if isinstance(name, str))


@lru_cache(maxsize=4)
def _list_chats(database: Path, stamp: str) -> frozenset[str]:
    return frozenset(_list_composers(database, stamp))


class _Parser:
    """Implements `jsonl.RowParser` for the transcript of an agent, which has neither ids nor times."""

    def __init__(self, state: Mapping[str, Any], path: Path) -> None:
        self.held: int | None = None
        session = path.stem
        is_delegate = "subagents" in path.parts
        parent = path.parents[1].name if is_delegate else None
        self._facts = Conversation(
            session,
            Kind.SUBAGENT if is_delegate else Kind.PERSON,
            folder=_find_project(path),
            parent=parent,
            is_tree=True,
        )
        self._speech = Speech(session, state.get("speech") or {}, is_delegate=is_delegate)
        self._moment = path.stat().st_mtime
        self._last = str(state.get("last") or session)
        """The id of the last row. Ids derive from the previous id and the content, so that copies have the same."""
        self._is_told = False
        self._is_known = session in _find_database_chats(path)
        """Whether a database has the same chat, with times and results."""

    def state(self) -> Mapping[str, JSON]:
        """Return what the next row needs to know."""
        return {"last": self._last, "speech": self._speech.state()}

    def flush(self) -> Iterator[Item]:
        """Yield nothing: every row is whole."""
        return iter(())

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield a message."""
        del start
        role, message = row.get("role"), row.get("message")
        blocks = as_blocks(message.get("content")) if isinstance(message, dict) else []
        if self._is_known or role not in {"user", "assistant"} or not blocks:
            yield Left("copy") if self._is_known else unknown(row)
            return
        whole = f"{self._last}\0{role}\0{json.dumps(blocks, sort_keys=True)}"
        self._last = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        if not self._is_told:
            self._is_told = True
            yield self._facts
        yield from name_unknown(blocks)
        text = join_texts(map(describe_block, blocks))
        if role == "user":
            yield from self._speech.prompt(self._last, self._find_words(text), self._moment)
            return
        tools = [block for block in blocks if block.get("type") == "tool_use"]
        calls = [
            (
                str(block.get("id") or f"{self._last}:{place}"),
                str(block.get("name") or "tool"),
                block.get("input") or {},
            )
            for place, block in enumerate(tools)
        ]
        yield from self._speech.answer(self._last, text, self._moment, calls=calls)

    def _find_words(self, text: str) -> str:
        """Return what the person typed; the rest of the text is what the editor added."""
        typed = _QUERY.findall(text)
        if typed:
            return join_texts(typed)
        is_machine = text.lstrip().startswith("<") and self._facts.kind is not Kind.SUBAGENT
        return "" if is_machine else text


def _find_project(path: Path) -> str | None:
    """Return the folder of a project: its slug cannot be decoded, but a file beside the transcripts may name it."""
    folder = next((parent.parent for parent in path.parents if parent.name == "agent-transcripts"), None)
    if folder is None:
        return None
    try:
        value = json.loads(_read_text(folder / ".workspace-trusted") or "{}")
    except (ValueError, RecursionError):
        return None
    return as_text(value.get("workspacePath")) if isinstance(value, dict) else None


def _find_database_chats(path: Path) -> frozenset[str]:
    """Return the chats in the database of the same person; the editor writes a transcript of each as well."""
    home = next((parent.parent for parent in path.parents if parent.name == ".cursor"), None)
    places = ((".config",), ("Library", "Application Support"), ("AppData", "Roaming"))
    for parts in places if home is not None else ():
        database = home.joinpath(*parts, "Cursor", "User", "globalStorage", _DATABASE) if home else path
        if database.is_file():
            return _list_chats(database, read_stamp(database))
    return frozenset()
