"""The sessions of OpenClaw's agents: files and databases of all its eras, each session with what is known about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wellkept.core.errors import StorageError
from wellkept.core.messages import Link
from wellkept.core.regular_files import load_bytes
from wellkept.importers.jsonl import UNEXPECTED, unpack
from wellkept.importers.openclaw_entries import EntryParser
from wellkept.importers.openclaw_typed_text import Key
from wellkept.importers.port import START, Conversation, Item, Kind, Left, Position, Problem, Unusable, unknown
from wellkept.importers.typed_text import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from wellkept.core.text import JSON

_EVENTS, _ARCHIVES, _COLD = "transcript_events", "session_transcript_archives", "session_transcript_cold_archives"
_LISTS = ("session_entries", "sessions", "session_nodes", "session_windows")
"""Tables that describe sessions, older ones first: what a later one says counts."""
_MOST_UNPACKED = 2_000_000_000
_LINKS = {"fork": Link.BRANCH, "rewind": Link.BRANCH, "compaction": Link.COMPRESSION}
"""Why a session window follows another one; after a reset a new conversation begins."""


class SessionList(Struct):
    """What an agent's lists say about its sessions."""

    agent: str
    _facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By session id."""
    _sessions: dict[str, list[str]] = field(default_factory=dict)
    """The sessions of each key, the newest last."""

    def add(self, session: str, key: str | None, facts: Mapping[str, Any]) -> None:
        """Add what a list says about a session."""
        known = self._facts.setdefault(session, {})
        known.update({name: value for name, value in facts.items() if value not in (None, "")})
        if key:
            known["session_key"] = key
            sessions = self._sessions.setdefault(key, [])
            if session not in sessions:
                sessions.append(session)

    def describe(self, session: str) -> tuple[Conversation, bool]:
        """Return a session as far as the lists know it, and whether several people talk in it."""
        facts = self._facts.get(session, {})
        text = as_text(facts.get("session_key")) or ""
        key = Key.parse(text)
        kind = key.kind
        if kind is Kind.PERSON and facts.get("created_via") == "cron":
            kind = Kind.HEADLESS
        parent, link = self._find_parent(facts, kind)
        about: dict[str, JSON] = {
            "agent": self.agent,
            "route": text,  # a name with "key" in it is redacted
            "channel": as_text(facts.get("channel")) or key.channel,
        }
        conversation = Conversation(
            self.name(session),
            kind,
            model=as_text(facts.get("model")),
            title=as_text(facts.get("label"))
            or as_text(facts.get("displayName"))
            or as_text(facts.get("display_name")),
            parent=None if parent is None else self.name(parent),
            link=link,
            metadata={name: value for name, value in about.items() if value},
        )
        is_group = key.is_group or facts.get("chatType", facts.get("chat_type")) in {"group", "channel"}
        return conversation, is_group

    def _find_parent(self, facts: Mapping[str, Any], kind: Kind) -> tuple[str | None, Link | None]:
        if kind is Kind.SUBAGENT:
            spawner = facts.get("spawnedBy") or facts.get("spawned_by") or facts.get("parent_session_key")
            return self._find_session(str(spawner), _began(facts)), None
        link = _LINKS.get(str(facts.get("reason")))
        previous = as_text(facts.get("fork_source_session_id")) or as_text(facts.get("previous_session_id"))
        return (previous, link) if link is not None and previous else (None, None)

    def _find_session(self, key: str, moment: float) -> str | None:
        """Return the session of a key at a moment: after a reset the key leads to a newer one."""
        began = ((_began(self._facts[session]), session) for session in self._sessions.get(key, ()))
        earlier = [(start, session) for start, session in began if not (start and moment) or start <= moment]
        return max(earlier)[1] if earlier else None

    def name(self, session: str) -> str:
        """Return the id of a conversation; ids that people chose are the same in several agents."""
        return session if len(session) == 36 and session.count("-") >= 4 else f"{self.agent}/{session}"


def _began(facts: Mapping[str, Any]) -> float:
    """Return when a session began; 0 if its list does not say."""
    names = ("sessionStartedAt", "startedAt", "created_at")
    return next((float(facts[name]) for name in names if isinstance(facts.get(name), int | float)), 0.0)


def load_list(folder: Path) -> SessionList:
    """Return what `sessions.json` in a folder of transcripts says; nothing if it cannot be read."""
    found = SessionList(folder.parent.name)
    try:
        value = json.loads(load_bytes(folder / "sessions.json").decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return found
    for key, entry in value.items() if isinstance(value, dict) else ():
        session = entry.get("sessionId") if isinstance(entry, dict) else None
        if isinstance(session, str):
            found.add(session, key, entry)
    return found


class AgentDatabase:
    """Implements `port.Reading` on an agent's database: the position is the time of the newest entry."""

    def __init__(self, path: Path, position: Position) -> None:
        from wellkept.storage.foreign import open_copy

        self._path = path
        self._copied = open_copy(path, rescue=(_EVENTS, _ARCHIVES, _COLD, *_LISTS))
        try:
            self._tables = self._copied.__enter__()
            self._columns = {name: self._tables.columns(name) for name in (_EVENTS, _ARCHIVES, _COLD, *_LISTS)}
            self._has_sessions = {"session_id", "seq", "event_json", "created_at"} <= self._columns[_EVENTS]
            if not self._has_sessions and not self._tables.columns("schema_meta"):
                self.close()
                raise Unusable(f"{str(path)!r} is not a readable database of OpenClaw", "give its folder")
            last = self._find_last()
            self._list = self._load_list()
        except StorageError as error:
            raise Unusable(error.message, error.remedy) from error
        self.was_rewritten = position.offset > last
        self._since = (START if self.was_rewritten else position).offset
        self._last = last
        self._is_done = False

    def _find_last(self) -> int:
        if not self._has_sessions:
            return 0  # the first version had none, and was beside files that did
        ((last,),) = self._tables.rows("SELECT coalesce(max(created_at), 0) FROM transcript_events")
        return int(last)

    def __iter__(self) -> Iterator[Item]:
        """Yield the archived sessions, then those that have new entries, the one that began first at the beginning."""
        if self._tables.damage:
            yield Problem(str(self._path), self._tables.damage)
        yield from self._read_archives()
        if not self._has_sessions:
            return
        query = """SELECT session_id FROM transcript_events GROUP BY session_id HAVING max(created_at) >= :since
            ORDER BY min(created_at), session_id"""
        for (session,) in list(self._tables.rows(query, {"since": self._since})):
            yield from self._parse(str(session), self._load_events(str(session)))
        self._is_done = True

    def position(self) -> Position:
        """Return the position: the newest entry, once everything was read."""
        return Position(self._last if self._is_done and not self._tables.damage else self._since)

    def waiting_bytes(self) -> int:
        """Return 0: the copy holds all that there was."""
        return 0

    def close(self) -> None:
        """Remove the copy."""
        self._copied.__exit__(None, None, None)

    def _parse(self, session: str, rows: Iterator[dict[str, Any] | None]) -> Iterator[Item]:
        facts, is_group = self._list.describe(session)
        parser = EntryParser({}, facts, is_group=is_group)
        for row in rows:
            if row is None:
                yield Left("cannot be read")
                continue
            try:
                yield from parser.take(row, 0)
            except UNEXPECTED:
                yield unknown(row)

    def _load_events(self, session: str) -> Iterator[dict[str, Any] | None]:
        packed = "event_zstd" if "event_zstd" in self._columns[_EVENTS] else "NULL"
        query = f"SELECT event_json, {packed} FROM transcript_events WHERE session_id = :session ORDER BY seq"  # noqa: S608
        for text, data in self._tables.rows(query, {"session": session}):
            yield _load(text if text is not None else data)

    def _read_archives(self) -> Iterator[Item]:
        """Yield the sessions that were reset or put aside; those that the person deleted stay deleted."""
        for table, moment in ((_ARCHIVES, "created_at"), (_COLD, "archived_at")):
            columns = self._columns[table]
            if not {"session_id", moment, "archive_name", "archive_blob"} <= columns:
                continue
            chosen = "WHERE reason = 'reset'" if "reason" in columns else ""
            query = f"SELECT session_id, archive_name, archive_blob, {moment} FROM {table} {chosen} ORDER BY {moment}"  # noqa: S608
            for session, name, data, when in self._tables.rows(query):
                if int(when) >= self._since:
                    yield from self._read_archive(str(session), str(name), data)

    def _read_archive(self, session: str, name: str, data: bytes | None) -> Iterator[Item]:
        try:
            whole = self._find_file(name) if data is None else data
            lines = unpack(whole, _MOST_UNPACKED).splitlines()
        except (OSError, ValueError) as error:
            yield Problem(f"{self._path}: {name}", f"an archived session cannot be read: {error}")
            return
        yield from self._parse(session, (_load(line) for line in lines if line.strip()))

    def _find_file(self, name: str) -> bytes:
        agent = self._path.parent.parent
        for path in agent.rglob(name):
            return load_bytes(path)
        raise FileNotFoundError(f"there is no file {name!r} below {str(agent)!r}")

    def _load_list(self) -> SessionList:
        found = SessionList(self._path.parent.parent.name)
        for table in (name for name in _LISTS if self._columns[name]):
            names = sorted(self._columns[table])
            query = f"SELECT {', '.join(names)} FROM {table}"  # noqa: S608
            for row in self._tables.rows(query):
                facts = dict(zip(names, row, strict=True))
                entry = _load(facts.pop("entry_json", None)) or {}
                key = as_text(facts.get("session_key"))
                current = facts.get("current_session_id") or facts.get("session_id") or entry.get("sessionId")
                if isinstance(current, str):
                    found.add(current, key, {**entry, **facts})
        return found


def _load(data: str | bytes | None) -> dict[str, Any] | None:
    """Return an entry from JSON, compressed or not; None if it cannot be read."""
    try:
        text = data if isinstance(data, str) else unpack(data or b"", _MOST_UNPACKED).decode("utf-8", "replace")
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
