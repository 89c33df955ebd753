"""pi's sessions: a JSONL file per session, with the entries that OpenClaw has from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from msgspec.structs import replace

from wellkept.core.messages import Message, Origin, Role
from wellkept.formats.agent_files import SessionFolder
from wellkept.formats.json_files import JsonlReading
from wellkept.formats.messages import MOST_CHARS, as_text, shorten
from wellkept.formats.openclaw_entries import EntryParser
from wellkept.formats.port import Conversation, Item, Position, Reading

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Pi(SessionFolder):
    """Finds and reads the sessions of pi; pi has no sub-agents."""

    client = "pi"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of sessions."""
        chosen = environ.get("PI_CODING_AGENT_SESSION_DIR")
        if chosen:
            return [Path(chosen).expanduser()]
        folder = environ.get("PI_CODING_AGENT_DIR") or f"{environ.get('HOME') or '~'}/.pi/agent"
        return [Path(folder).expanduser() / "sessions"]

    def open(self, path: Path, position: Position) -> Reading:
        """Open a session."""
        facts = Conversation(_find_id(path.name) or path.stem)
        return JsonlReading(path, position, lambda state: _Parser(state, facts))


def _find_id(name: str) -> str | None:
    match = _ID.search(name)
    return match[0] if match else None


class _Parser(EntryParser):
    """The entries as pi writes them: the header has the id, and the person can run commands."""

    def _take_header(self, row: Mapping[str, Any]) -> None:
        parent = as_text(row.get("parentSession"))
        self._facts = replace(
            self._facts,
            external_id=as_text(row.get("id")) or self._facts.external_id,
            folder=as_text(row.get("cwd")) or self._facts.folder,
            parent=(_find_id(PurePath(parent).name) or PurePath(parent).stem) if parent else self._facts.parent,
        )

    def _take_message(self, row: Mapping[str, Any], message: dict[str, Any]) -> Iterator[Item]:
        command = as_text(message.get("command"))
        if message.get("role") == "bashExecution" and command:
            said = Message(Role.USER, shorten(f"! {command}", MOST_CHARS))
            yield from self._store(row, said, Origin.PERSON)
        else:
            yield from super()._take_message(row, message)
