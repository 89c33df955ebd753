"""opencode's history: a SQLite file, or before that a folder of JSON files; call and result are one part."""

from __future__ import annotations

import json
import os
import re
from contextlib import AbstractContextManager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.errors import StorageError
from wellkept.core.messages import Message, Origin, Role, ToolCall, Usage
from wellkept.core.regular_files import load_bytes
from wellkept.formats.json_files import MOST_WHOLE_BYTES, UNEXPECTED, open_own
from wellkept.formats.messages import (
    MOST_CHARS,
    MOST_TOOL_CHARS,
    OUR_RESULT,
    PrivateSpans,
    as_count,
    as_objects,
    as_text,
    clean_answer,
    clean_arguments,
    clean_result,
    describe_block,
    is_our_tool,
    join_texts,
    remove_machine_blocks,
    result_text,
    shorten,
)
from wellkept.formats.port import (
    Asset,
    Conversation,
    Item,
    Kind,
    Left,
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.storage.foreign import ForeignTables

_PARTS = frozenset(
    (
        "agent", "compaction", "file", "patch", "reasoning", "retry", "snapshot", "step-finish", "step-start",
        "subtask", "text", "tool",
    )
)  # fmt: skip
_MOST_COPIED_BYTES = 200_000_000
_STALE_MILLISECONDS = 600_000
"""An answer that did not end within ten minutes of its last change was cut off, and is stored as it is."""


class Opencode(Source):
    """Finds and reads the history of opencode; sub-agents are sessions of the same database."""

    client = "opencode"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the database or the folder of opencode."""
        chosen = environ.get("OPENCODE_DB")
        if chosen:
            return [Path(chosen)]
        data = environ.get("XDG_DATA_HOME") or f"{environ.get('HOME') or '~'}/.local/share"
        return [Path(data).expanduser() / "opencode"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the databases below a folder, and the folder of JSON files if there is one; else its exports."""
        if root.is_file():
            return [root]
        found = sorted(root.glob("opencode*.db")) or sorted(path for path in root.glob("*.json") if _is_export(path))
        storage = root / "storage" if (root / "storage" / "session").is_dir() else root
        return [storage, *found] if (storage / "session").is_dir() else found

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the rules of the person and of each project, and the skills."""
        from wellkept.formats.agent_files import list_opencode_assets

        if root not in self.find_roots(request.environ):
            return iter(())  # one database; the rules belong to the program as it is installed
        return list_opencode_assets(request.environ, _list_folders(self.list_transcripts(root)))

    def open(self, path: Path, position: Position) -> Reading:
        """Open a database or a folder."""
        if path.is_dir():
            return _OpencodeReading(_FolderHistory(path), position)
        if path.suffix == ".json":
            return _OpencodeReading(_ExportHistory(path), position)
        open_own(path).close()
        from wellkept.storage.foreign import open_copy

        copied = open_copy(path, rescue=("session", "message", "part"))
        try:
            return _OpencodeReading(_DatabaseHistory(copied), position)
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error


def _is_export(path: Path) -> bool:
    """Whether a file begins as `opencode export` writes it; the program keeps credentials in others."""
    try:
        with open_own(path) as file:
            return re.match(rb'\s*\{\s*"info"\s*:', file.read(200)) is not None
    except (Unusable, OSError):
        return False


def _list_folders(transcripts: list[Path]) -> Iterator[str]:
    """Yield the working folders of all sessions; a large database would have to be copied for them."""
    from wellkept.storage.foreign import open_copy

    for path in transcripts:
        if path.is_dir():
            for file in path.glob("session/*/*.json"):
                with suppress(OSError, ValueError):
                    info = json.loads(load_bytes(file))
                    yield str(info.get("directory") or "") if isinstance(info, dict) else ""
        elif path.stat().st_size <= _MOST_COPIED_BYTES:
            with suppress(StorageError), open_copy(path) as tables:
                if "directory" in tables.columns("session"):
                    yield from (str(row[0] or "") for row in tables.rows("SELECT DISTINCT directory FROM session"))


class _History(Protocol):
    def sessions(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the sessions that changed since then with the time of their last change, in its order."""
        ...

    def messages(self, session_id: str, since: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], int]]:
        """Yield the messages of a session that changed since then, each with its parts and its last change."""
        ...

    def close(self) -> None:
        """Release the history."""
        ...


class _OpencodeReading(Reading):
    """Reads a history: the position is the time of the last change that was read."""

    def __init__(self, history: _History, position: Position) -> None:
        self._history = history
        self._since = position.offset
        self._done = position.offset
        self._is_waiting = False

    def __iter__(self) -> Iterator[Item]:
        """Yield the sessions that changed, the one that changed last at the end; damage ends it with a problem."""
        try:
            for info, changed in self._history.sessions(self._since):
                try:
                    yield from self._read_session(info)
                except UNEXPECTED:
                    yield unknown()
                if not self._is_waiting:
                    self._done = max(self._done, changed)
        except (StorageError, *UNEXPECTED) as error:
            yield Problem("opencode", f"the database is damaged: {error}")

    def position(self) -> Position:
        """Return the position: the last change of the sessions that were read whole."""
        return Position(self._done)

    def close(self) -> None:
        """Remove the copy."""
        self._history.close()

    def _read_session(self, info: dict[str, Any]) -> Iterator[Item]:
        session = str(info["id"])
        parent = info.get("parentID")
        spans = PrivateSpans()
        facts = Conversation(
            session,
            Kind.SUBAGENT if parent else Kind.PERSON,
            folder=info.get("directory"),
            title=_title(info.get("title")),
            parent=str(parent) if parent else None,
            metadata={"client_version": str(info.get("version") or "")},
        )
        yield facts
        is_hidden = False
        for message, listed, changed in self._history.messages(session, self._since):
            role = message.get("role")
            try:
                yield from (unknown(part, "part") for part in listed if _kind(part) not in _PARTS)
                parts = as_objects(listed)
                if role == "user":
                    is_hidden = any("<private>" in str(part).lower() for part in parts)
                    items = list(_read_prompt(message, parts, facts, spans))
                    is_hidden = is_hidden and not any(isinstance(item, Said) for item in items)
                    yield from items
                elif role != "assistant":
                    yield unknown(message, "message")
                elif not _is_finished(message, changed):
                    self._is_waiting = True
                    yield Left("not finished")
                    return
                elif is_hidden or spans.is_open:
                    yield Left("private")
                else:
                    facts = replace(facts, model=as_text(message.get("modelID")) or facts.model)
                    yield facts
                    yield from _read_answer(message, parts, session)
            except UNEXPECTED:
                yield unknown(message, "message")


def _kind(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else None


def _title(value: Any) -> str | None:
    """Return the title, None for the one that every session begins with."""
    return (
        value
        if isinstance(value, str) and value and not value.startswith(("New session - ", "Child session - "))
        else None
    )


def _is_finished(message: dict[str, Any], changed: int) -> bool:
    times = message.get("time") or {}
    return bool(times.get("completed") or message.get("error")) or changed < time() * 1_000 - _STALE_MILLISECONDS


def _read_prompt(
    message: dict[str, Any], parts: list[dict[str, Any]], facts: Conversation, spans: PrivateSpans
) -> Iterator[Item]:
    texts = []
    for part in parts:
        if part.get("synthetic") or part.get("ignored"):
            continue
        if part.get("type") == "text":
            texts.append(remove_machine_blocks(str(part.get("text") or "")))
        elif part.get("type") == "subtask" and part.get("command"):
            texts.append(f"/{part['command']} {part.get('prompt') or ''}"[:MOST_CHARS])
        elif part.get("type") == "file" and str(part.get("mime") or "").startswith(("image/", "application/pdf")):
            texts.append(
                describe_block({"type": "image", "source": {"media_type": part["mime"], "url": part.get("url")}})
            )
    text = join_texts(texts).strip()
    if facts.kind is not Kind.SUBAGENT:
        text = spans.remove(_unquote(text)).strip()
    if not text:
        yield Left("private" if texts else "machine text")
        return
    origin = Origin.SYNTHETIC if facts.kind is Kind.SUBAGENT else Origin.PERSON
    said = Message(Role.USER, shorten(text, MOST_CHARS))
    yield Said(facts.external_id, str(message["id"]), said, _creation_time(message), origin, turn=str(message["id"]))


def _unquote(text: str) -> str:
    """Return what was typed: `opencode run` puts a prompt with spaces in quotation marks."""
    inner = text[1:-1]
    return inner if len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner else text


def _read_answer(message: dict[str, Any], parts: list[dict[str, Any]], session: str) -> Iterator[Item]:
    tools = [(part, _call(part)) for part in parts if part.get("type") == "tool"]
    text = clean_answer(_join(parts, "text"))
    if message.get("summary") is True or not (text or tools):
        yield Left("machine text" if message.get("summary") is True else "empty")
        return
    name, moment = str(message["id"]), _creation_time(message)
    thinking = shorten(clean_answer(_join(parts, "reasoning")), MOST_TOOL_CHARS) or None
    answer = Message(Role.ASSISTANT, text, tuple(call for _, call in tools), reasoning=thinking)
    tokens = message.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    yield Said(session, name, answer, moment, Origin.MODEL, token_count=as_count(tokens, "output"))
    for part, call in tools:
        yield from _read_result(part, call, session, name, moment)
    if message.get("modelID") and any(isinstance(value, int) and value for value in tokens.values()):
        yield Spent(session, name, str(message["modelID"]), _usage(tokens), moment)


def _join(parts: list[dict[str, Any]], kind: str) -> str:
    own = (part for part in parts if part.get("type") == kind and not part.get("synthetic"))
    return join_texts(str(part.get("text") or "") for part in own)


def _read_result(part: dict[str, Any], call: ToolCall, session: str, name: str, moment: float) -> Iterator[Item]:
    state = part.get("state") or {}
    output = state.get("output") or state.get("error")
    if output is not None:
        text = OUR_RESULT if is_our_tool(call.name) else clean_result(result_text(output))
        result = Message(Role.TOOL, text, tool_call_id=call.id, tool_name=call.name)
        ended = from_program((state.get("time") or {}).get("end")) or moment
        yield Said(session, f"{name}:{part.get('id') or call.id}", result, ended, Origin.TOOL)


def _usage(tokens: Mapping[str, Any]) -> Usage:
    cache = tokens.get("cache") or {}
    output = as_count(tokens, "output") + as_count(tokens, "reasoning")
    return Usage(as_count(tokens, "input"), output, as_count(cache, "read"), as_count(cache, "write"))


def _call(part: dict[str, Any]) -> ToolCall:
    state = part.get("state") or {}
    return ToolCall(
        str(part.get("callID") or ""), str(part.get("tool") or "tool"), clean_arguments(state.get("input") or {})
    )


def _creation_time(message: dict[str, Any]) -> float:
    return from_program((message.get("time") or {}).get("created")) or 0.0


class _DatabaseHistory:
    """The tables session, message and part of a copy."""

    def __init__(self, copied: AbstractContextManager[ForeignTables]) -> None:
        self._copied = copied
        self._tables = copied.__enter__()
        if not {"id", "directory"} <= self._tables.columns("session") or not self._tables.columns("part"):
            self.close()
            raise Unusable("this is not a readable database of opencode", "give the path of opencode.db")

    def sessions(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the sessions that changed since then, in the order of their last change."""
        changed = """SELECT s.id, s.parent_id, s.directory, s.title, s.version, max(s.time_updated,
              coalesce((SELECT max(time_updated) FROM message WHERE session_id = s.id), 0),
              coalesce((SELECT max(time_updated) FROM part WHERE session_id = s.id), 0)) AS changed
            FROM session AS s WHERE changed >= :since ORDER BY changed"""
        for session_id, parent, directory, title, version, moment in list(self._tables.rows(changed, {"since": since})):
            info = {"id": session_id, "parentID": parent, "directory": directory, "title": title, "version": version}
            yield info, int(moment)

    def messages(self, session_id: str, since: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], int]]:
        """Yield the messages that changed since then with their parts."""
        del since  # spans of private text need the whole session, and what is known is skipped by its id
        # one statement, because a look-up of each message's parts reads the whole table where that has no index
        query = """SELECT m.id, m.data, m.time_updated, m.time_created, p.id, p.data, p.time_updated
            FROM message AS m LEFT JOIN part AS p ON p.message_id = m.id
            WHERE m.session_id = :session ORDER BY m.time_created, m.id, p.id"""
        rows = self._tables.rows(query, {"session": session_id})
        for (name, data, updated, created), group in groupby(rows, key=itemgetter(0, 1, 2, 3)):
            parts = [(number, _parse(text), moment) for *_, number, text, moment in group if number is not None]
            changed = max([updated, *(moment for _, _, moment in parts)])
            message = {"time": {"created": created}, **_parse(data), "id": name}
            yield message, [{**part, "id": number} for number, part, _ in parts], int(changed)

    def close(self) -> None:
        """Remove the copy."""
        self._copied.__exit__(None, None, None)


class _ExportHistory:
    """A session as `opencode export` prints it."""

    def __init__(self, path: Path) -> None:
        with open_own(path) as file:
            data = file.read(MOST_WHOLE_BYTES + 1)
        try:
            value = json.loads(data.decode("utf-8", "replace"))
            self._info: dict[str, Any] = value["info"]
            self._messages: list[dict[str, Any]] = value["messages"]
            self._changed = int(self._info["time"]["updated"])
        except UNEXPECTED as error:
            remedy = "give a file that `opencode export` printed"
            raise Unusable(f"{str(path)!r} is not a session of opencode", remedy) from error

    def sessions(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the session if it changed since then."""
        if self._changed >= since:
            yield self._info, self._changed

    def messages(self, session_id: str, since: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], int]]:
        """Yield every message with its parts."""
        del session_id, since
        for message in self._messages:
            parts = message.get("parts") if isinstance(message, dict) else None
            info = message.get("info") if isinstance(parts, list) else None
            yield (
                (info, parts, self._changed)
                if isinstance(info, dict) and parts is not None
                else ({}, [], self._changed)
            )

    def close(self) -> None:
        """Do nothing: the file is closed."""


class _FolderHistory:
    """The JSON files of opencode before 1.2."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
            raise Unusable(f"{str(folder)!r} belongs to another user", "let that user import it")

    def sessions(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the sessions that changed since then, in the order of their last change."""
        found = []
        for path in self._folder.glob("session/*/*.json"):
            messages = self._folder / "message" / path.stem
            changed = max(
                _modification_time(path),
                _modification_time(messages),
                *map(_modification_time, messages.glob("*.json")),
                0,
            )
            if changed >= since:
                found.append((changed, path))
        for changed, path in sorted(found):
            yield {**_load(path), "id": path.stem}, changed

    def messages(self, session_id: str, since: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], int]]:
        """Yield all messages of a session with their parts; ids are in the order of time."""
        del since
        for path in sorted((self._folder / "message" / session_id).glob("*.json")):
            places = sorted((self._folder / "part" / path.stem).glob("*.json"))
            parts = [{**_load(place), "id": place.stem} for place in places]
            yield (
                {**_load(path), "id": path.stem},
                parts,
                max([_modification_time(path), *map(_modification_time, places)]),
            )

    def close(self) -> None:
        """Do nothing: every file is closed after it was read."""


def _modification_time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _load(path: Path) -> dict[str, Any]:
    try:
        with open_own(path) as file:
            return _parse(file.read())
    except (Unusable, OSError):
        return {}


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
