"""Factory Droid's sessions: a JSONL file per session, with the messages of the Anthropic API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from wellkept.core.clock import from_program
from wellkept.core.regular_files import load_text
from wellkept.core.text import JSON
from wellkept.formats.agent_files import SessionFolder
from wellkept.formats.json_files import JsonlReading, RowParser
from wellkept.formats.messages import Speech, as_blocks, as_text, speak_answer, speak_prompt
from wellkept.formats.port import Conversation, Item, Kind, Left, Position, Reading, unknown

_WITHOUT_MESSAGES = frozenset(("todo_state", "compaction_state", "session_end"))


class Droid(SessionFolder):
    """Finds and reads the sessions of Droid; sub-agents have sessions of their own in the same folder."""

    client = "droid"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of sessions."""
        home = Path(environ.get("HOME") or "~").expanduser()
        return [home / ".factory" / "sessions"]

    def open(self, path: Path, position: Position) -> Reading:
        """Open a session."""
        return JsonlReading(path, position, lambda state: _Parser(state, path))


class _Parser(RowParser):
    """Parses the rows of a session."""

    def __init__(self, state: Mapping[str, Any], path: Path) -> None:
        parent = as_text(state.get("parent"))
        self._facts = Conversation(
            as_text(state.get("session")) or path.stem,
            Kind.SUBAGENT if parent else Kind.PERSON,
            folder=as_text(state.get("folder")),
            title=as_text(state.get("title")),
            model=_read_model(path),
            parent=parent,
        )
        self._speech = Speech(self._facts.external_id, state.get("speech") or {}, is_delegate=parent is not None)
        self._is_told = False

    def state(self) -> Mapping[str, JSON]:
        """Return the facts of the session, and what the next message needs to know."""
        facts = self._facts
        return {
            "session": facts.external_id,
            "parent": facts.parent,
            "folder": facts.folder,
            "title": facts.title,
            "speech": self._speech.state(),
        }

    def take(self, row: dict[str, Any], start: int) -> Iterator[Item]:
        """Yield what a row says."""
        del start
        kind, message = row.get("type"), row.get("message")
        if kind == "session_start":
            self._take_header(row)
        elif kind == "message" and isinstance(message, dict) and isinstance(row.get("id"), str):
            yield from self._take_message(row, message)
        else:
            yield Left("no message") if kind in _WITHOUT_MESSAGES else unknown(row)

    def _take_header(self, row: Mapping[str, Any]) -> None:
        session, parent = as_text(row.get("id")) or self._facts.external_id, as_text(row.get("callingSessionId"))
        title = as_text(row.get("sessionTitle")) or as_text(row.get("title"))
        self._facts = replace(
            self._facts,
            external_id=session,
            kind=Kind.SUBAGENT if parent else Kind.PERSON,
            folder=as_text(row.get("cwd")),
            title=title if title != "New Session" else None,
            parent=parent or as_text(row.get("parent")),
        )
        self._speech = Speech(session, self._speech.state(), is_delegate=parent is not None)

    def _take_message(self, row: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[Item]:
        name, moment = str(row["id"]), from_program(row.get("timestamp"))
        blocks = as_blocks(message["content"])
        source = row.get("userMessageSource") or message.get("userMessageSource")
        if message.get("role") == "user" and source not in {None, "user"}:
            yield Left("machine text")
            return
        if not self._is_told:
            self._is_told = True
            yield self._facts
        if message.get("role") == "user":
            yield from speak_prompt(self._speech, name, blocks, moment)
        elif message.get("role") == "assistant":
            yield from speak_answer(self._speech, name, blocks, moment)
        else:
            yield unknown(message, "message")


def _read_model(path: Path) -> str | None:
    """Return the model of a session, which the file beside it names."""
    try:
        value = json.loads(load_text(path.with_suffix(".settings.json")))
    except (OSError, ValueError, RecursionError):
        return None
    return as_text(value.get("model")) if isinstance(value, dict) else None
