"""OpenClaw, and Clawdbot and Moltbot before it: conversations of all agents, workspaces, skills and settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from wellkept.importers.jsonl import JsonlReading, open_own
from wellkept.importers.openclaw_config import FOLDERS
from wellkept.importers.openclaw_entries import EntryParser
from wellkept.importers.openclaw_sessions import AgentDatabase, SessionList, load_list
from wellkept.importers.port import Option, Position, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.importers.assets import Asset
    from wellkept.importers.port import Request

_TRANSCRIPT = re.compile(r"(?P<session>.+?)\.jsonl(?:\.reset\..+)?(?:\.zst)?")
_NOT_READ = re.compile(r"\.(?:checkpoint|trajectory|deleted|bak|lock)(?:[.-]|$)")
"""Copies, traces of runs, and sessions that were deleted."""


class OpenClaw:
    """Finds and reads everything of OpenClaw."""

    client = "openclaw"
    options: tuple[Option, ...] = (
        Option("preset", ("user-data", "full"), "full"),
        Option("workspace-target"),
        Option("migrate-secrets", ("yes",)),
    )

    def __init__(self) -> None:
        self._lists: dict[Path, SessionList] = {}

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the state folder, or the usual ones with those of profiles."""
        chosen = environ.get("OPENCLAW_STATE_DIR")
        if chosen:
            return [Path(chosen).expanduser()]
        home = Path(environ.get("HOME") or "~").expanduser()
        return [*(home / name for name in FOLDERS), *sorted(home.glob(".openclaw-*"))]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the transcripts and databases of all agents, the oldest first."""
        if root.is_file():
            return [root]
        agents = [root, *(root / "agents").glob("*")]
        files = (path for agent in agents for path in (agent / "sessions").glob("*.jsonl*") if is_transcript(path))
        databases = (agent / "agent" / "openclaw-agent.sqlite" for agent in agents)
        found = [*files, *(path for path in databases if path.is_file())]
        return sorted(found, key=lambda path: (path.stat().st_mtime, path.name))

    def list_related(self, path: Path) -> list[Path]:
        """Return nothing: sub-agents have sessions of their own in the same folder."""
        del path
        return []

    def open(self, path: Path, position: Position) -> Reading:
        """Open a transcript or a database."""
        if path.suffix == ".sqlite":
            open_own(path).close()
            return AgentDatabase(path, position)
        if path.parent not in self._lists:
            self._lists[path.parent] = load_list(path.parent)
        named = _TRANSCRIPT.fullmatch(path.name)
        facts, is_group = self._lists[path.parent].describe(named["session"] if named else path.stem)
        return JsonlReading(path, position, lambda state: EntryParser(state, facts, is_group=is_group))

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield memory, notes, persona and skills of all workspaces; with the preset `full` settings too."""
        from wellkept.importers.openclaw_workspace import list_openclaw

        if root.is_dir():
            yield from list_openclaw(root, request)


def is_transcript(path: Path) -> bool:
    """Whether a file in a folder of sessions is one, and neither a copy nor deleted."""
    return _TRANSCRIPT.fullmatch(path.name) is not None and _NOT_READ.search(path.name) is None
