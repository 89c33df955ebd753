"""Cursor's history: chats in its state databases, in the tables of all versions, and transcripts of its agents."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.errors import StorageError
from wellkept.core.messages import Usage
from wellkept.core.text import JSON
from wellkept.formats.json_files import UNEXPECTED, JsonlReading, RowParser, open_own, read_row
from wellkept.formats.messages import (
    Speech,
    as_blocks,
    as_objects,
    as_text,
    describe_block,
    join_texts,
    name_unknown,
    result_text,
)
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Kind,
    Left,
    MemoryFile,
    Position,
    Problem,
    Reading,
    Request,
    Said,
    Source,
    Spent,
    Unusable,
    unknown,
)
from wellkept.memory.page import Target
from wellkept.storage.foreign import ForeignTables, open_copy

TABLES = ("cursorDiskKV", "ItemTable")
_USER, _ASSISTANT = 1, 2
_MOST_VALUE_BYTES = 64_000_000
"""A larger value is skipped: parsed, it would need several times its size in memory."""
_OLD_CHATS = "workbench.panel.aichat.view.aichat.chatdata"
_OLD_COMPOSERS = "composer.composerData"
_ALL_COMPOSERS = """SELECT substr(key, 14), length(value) FROM cursorDiskKV
    WHERE key >= 'composerData:' AND key < 'composerData;' ORDER BY rowid"""
_VALUE = "SELECT value FROM {table} WHERE key = :key AND length(value) <= :most"


def read_stamp(path: Path) -> str:
    """Return what changes when the program writes to the database or its log."""
    found = []
    for place in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = place.stat()
        except OSError:
            continue
        found.append(f"{status.st_size}:{status.st_mtime_ns}")
    return "/".join(found)


class StateDatabase:
    """A copy of one state database, whole or with the rows that could be read of a damaged one."""

    def __init__(self, path: Path) -> None:
        open_own(path).close()
        self._copied: AbstractContextManager[ForeignTables] = open_copy(path, rescue=TABLES)
        try:
            self._tables = self._copied.__enter__()
            self._known = {table for table in TABLES if {"key", "value"} <= self._tables.columns(table)}
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error
        self.damage = self._tables.damage
        if not self._known:
            self.close()
            raise Unusable(f"{str(path)!r} is not a readable database of Cursor", "give the path of state.vscdb")

    def close(self) -> None:
        """Remove the copy."""
        self._copied.__exit__(None, None, None)

    def value(self, table: str, key: str) -> Any:
        """Return the JSON value under a key, None if there is none or it is too large or broken."""
        if table not in self._known:
            return None
        bindings = {"key": key, "most": _MOST_VALUE_BYTES}
        for (value,) in self._tables.rows(_VALUE.format(table=table), bindings):
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            try:
                return json.loads(text)
            except (ValueError, TypeError, RecursionError):
                return text if isinstance(text, str) else None
        return None

    def composers(self) -> Iterator[tuple[str, int]]:
        """Yield the ids of the chats of today, and the size of what the database has of each."""
        if "cursorDiskKV" in self._known:
            for name, size in list(self._tables.rows(_ALL_COMPOSERS)):
                if isinstance(name, str):
                    yield name, int(size or 0)

    def old_composers(self) -> list[dict[str, Any]]:
        """Return what a workspace knows of its chats; before 2025 with their messages."""
        return as_objects(_field(self.value("ItemTable", _OLD_COMPOSERS), "allComposers"))

    def old_chats(self) -> list[dict[str, Any]]:
        """Return the chats of 2023 and 2024."""
        return as_objects(_field(self.value("ItemTable", _OLD_CHATS), "tabs"))


class DatabaseReading(Reading):
    """Reads chats that changed since the last one that was read."""

    def __init__(self, path: Path, position: Position, folders: Mapping[str, str], folder: str | None) -> None:
        self._path = path
        self._folders = folders
        self._folder = folder
        self._stamp = read_stamp(path)
        self._since = position.offset
        self._newest = position.offset
        self._is_done = position.check == self._stamp
        self._database = None if self._is_done else StateDatabase(path)

    def __iter__(self) -> Iterator[Item]:
        """Yield the chats of all generations."""
        database = self._database
        if database is None:
            return
        if database.damage:
            yield Problem(str(self._path), database.damage)
        try:
            yield from self._read_composers(database)
            for chat in database.old_chats():
                yield from self._guard(self._read_chat(chat))
        except StorageError as error:
            yield Problem(str(self._path), error.message)
        self._is_done = True

    def _read_composers(self, database: StateDatabase) -> Iterator[Item]:
        for name, size in database.composers():
            if size > _MOST_VALUE_BYTES:
                yield Problem(f"{self._path}, chat {name}", f"larger than {_MOST_VALUE_BYTES:,} bytes")
                continue
            composer = database.value("cursorDiskKV", f"composerData:{name}")
            yield from self._guard(self._read_composer(name, composer))
        for composer in database.old_composers():
            if isinstance(composer.get("conversation"), list):
                yield from self._guard(self._read_composer(str(composer.get("composerId") or ""), composer))

    def _guard(self, items: Iterator[Item]) -> Iterator[Item]:
        try:
            yield from items
        except UNEXPECTED:
            yield unknown()

    def position(self) -> Position:
        """Return the newest change that was read; the stamp only when all of it was."""
        return Position(self._newest, self._stamp) if self._is_done else Position(self._since)

    def close(self) -> None:
        """Remove the copy."""
        if self._database is not None:
            self._database.close()
            self._database = None

    # chats of today

    def _read_composer(self, name: str, composer: Any) -> Iterator[Item]:
        if not name or not isinstance(composer, dict):
            yield unknown(composer)
            return
        changed = composer.get("lastUpdatedAt") or composer.get("createdAt")
        changed = int(changed) if isinstance(changed, int | float) else 0
        if changed and changed < self._since:
            return
        bubbles = self._list_bubbles(name, composer)
        facts = self._describe(name, composer, bubbles)
        yield facts
        speech = Speech(
            name, {"moment": from_program(composer.get("createdAt"))}, is_delegate=facts.kind is Kind.SUBAGENT
        )
        for bubble in bubbles:
            model = as_text(_field(bubble.get("modelInfo"), "modelName"))
            if model is not None and model != facts.model:
                facts = replace(facts, model=model)
                yield facts
            yield from read_row(partial(read_bubble, facts=facts, speech=speech), bubble)
        self._newest = max(self._newest, changed)

    def _list_bubbles(self, name: str, composer: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages in order: named in headers and stored under keys of their own, or inside the chat."""
        headers = as_objects(composer.get("fullConversationHeadersOnly"))
        if not headers:
            inline = composer.get("conversation") or ()
            return [
                {"bubbleId": f"{name}:{place}", **(one if isinstance(one, dict) else {})}
                for place, one in enumerate(inline)
            ]
        bubbles = []
        for header in headers:
            bubble = (
                self._database.value("cursorDiskKV", f"bubbleId:{name}:{header.get('bubbleId')}")
                if self._database
                else None
            )
            if isinstance(bubble, dict):
                bubbles.append(
                    {
                        **bubble,
                        "bubbleId": str(header.get("bubbleId")),
                        "type": bubble.get("type") or header.get("type"),
                    }
                )
        return bubbles

    def _describe(self, name: str, composer: Mapping[str, Any], bubbles: list[dict[str, Any]]) -> Conversation:
        parent = as_text(_field(composer.get("subagentInfo"), "parentComposerId"))
        uris = next(
            (listed for bubble in bubbles if isinstance(listed := bubble.get("workspaceUris"), list) and listed), [None]
        )
        own = find_place(_field(composer.get("workspaceIdentifier"), "uri")) or find_place(uris[0])
        model = as_text(_field(composer.get("modelConfig"), "modelName"))
        return Conversation(
            name,
            Kind.SUBAGENT if parent else Kind.PERSON,
            folder=self._folders.get(name) or own or self._folder,
            model=None if model == "default" else model,
            title=as_text(composer.get("name")),
            parent=parent,
            is_tree=True,
        )

    # chats of 2023 and 2024

    def _read_chat(self, chat: Mapping[str, Any]) -> Iterator[Item]:
        name = as_text(chat.get("tabId"))
        if name is None:
            yield unknown(chat)
            return
        yield Conversation(name, folder=self._folder, title=as_text(chat.get("chatTitle")), is_tree=True)
        speech = Speech(name, {"moment": from_program(chat.get("lastSendTime"))})

        def take(bubble: dict[str, Any], place: int) -> Iterator[Item]:
            external = f"{name}:{bubble.get('id') or place}"
            text = as_text(bubble.get("rawText")) or as_text(bubble.get("text")) or ""
            if bubble.get("type") == "user":
                yield from speech.prompt(external, text, None)
            elif bubble.get("type") == "ai":
                yield from speech.answer(external, text, None)
            else:
                yield unknown(bubble)

        for place, bubble in enumerate(chat.get("bubbles") or ()):
            yield from read_row(partial(take, place=place), bubble)


def read_bubble(bubble: Mapping[str, Any], facts: Conversation, speech: Speech) -> Iterator[Item]:
    """Yield one message of a chat, with its tool call and the result of it."""
    name, kind = str(bubble["bubbleId"]), bubble.get("type")
    timing = _field(bubble.get("timingInfo"), "clientStartTime")
    moment = from_program(bubble.get("createdAt")) or (
        from_program(timing) if isinstance(timing, int) and timing > 1e12 else None
    )
    text = as_text(bubble.get("text")) or ""
    if kind == _USER:
        images = bubble.get("images")
        count = len(images) if isinstance(images, list) else 0
        yield from speech.prompt(name, join_texts((text, *["[image]"] * count)), moment)
        return
    if kind != _ASSISTANT:
        yield unknown()
        return
    speech.think(as_text(_field(bubble.get("thinking"), "text")) or "")
    tool = bubble.get("toolFormerData")
    tool = tool if isinstance(tool, dict) and (tool.get("name") or tool.get("toolCallId")) else None
    calls = [] if tool is None else [_describe_call(tool, name)]
    if not text and not calls:
        yield Left("empty")  # a step of the client, or a thought that the next answer takes
        return
    items = list(speech.answer(name, text, moment, calls=calls))
    yield from items
    if tool is not None and tool.get("result") and isinstance(items[-1], Said):
        result = _result(tool["result"])
        yield from speech.result(f"{name}:result", result, moment, call=calls[0][0], name=calls[0][1])
    yield from _count_tokens(name, bubble.get("tokenCount"), facts, moment or speech.moment)


def _describe_call(tool: Mapping[str, Any], name: str) -> tuple[str, str, Any]:
    arguments = tool.get("rawArgs") or tool.get("params") or {}
    return str(tool.get("toolCallId") or name), str(tool.get("name") or tool.get("tool")), arguments


def _result(value: Any) -> str:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return str(value)
    if isinstance(parsed, dict):
        text = next(
            (parsed[name] for name in ("output", "contents", "result", "text") if as_text(parsed.get(name))), None
        )
        return text or result_text(parsed)
    return result_text(parsed) if isinstance(parsed, list) else str(value)


def _count_tokens(name: str, counts: Any, facts: Conversation, moment: float) -> Iterator[Item]:
    used = [_field(counts, which) for which in ("inputTokens", "outputTokens")]
    tokens = [value if isinstance(value, int) and value > 0 else 0 for value in used]
    if any(tokens) and facts.model:
        yield Spent(facts.external_id, name, facts.model, Usage(*tokens), moment)


def find_place(uri: Any) -> str | None:
    """Return the folder that a URI names, None if it is on another machine or no folder."""
    if isinstance(uri, dict):
        return as_text(uri.get("fsPath")) or as_text(uri.get("path"))
    parts = urlsplit(uri) if isinstance(uri, str) else None
    return unquote(parts.path) or None if parts is not None and parts.scheme == "file" else None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


_DATABASE = "state.vscdb"
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_RULES = "aicontext.personalContext"
_MOST_RULE_BYTES = 1_000_000
_MOST_COPIED_BYTES = 500_000_000
"""A larger database is not copied only to look for the person's rules."""


class Cursor(Source):
    """Finds and reads the history of Cursor."""

    client = "cursor"

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
            *(composer.get("composerId") for composer in database.old_composers()),
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


class _Parser(RowParser):
    """Parses the transcript of an agent, which has neither ids nor times."""

    def __init__(self, state: Mapping[str, Any], path: Path) -> None:
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
