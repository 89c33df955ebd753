"""Codex: where it keeps its rollouts, and how each generation of them is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kept.importers.codex_rollout import RolloutParser
from kept.importers.jsonl import JsonlReading
from kept.importers.port import Option, Position, Reading, Request, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kept.importers.assets import Asset

_TITLES_BYTES = 2_000_000


class Codex:
    """Finds and reads the rollouts of Codex."""

    client = "codex"
    options: tuple[Option, ...] = ()

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folder of Codex."""
        chosen = environ.get("CODEX_HOME")
        return [Path(chosen) if chosen else Path(environ.get("HOME") or "~").expanduser() / ".codex"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every rollout below a folder, the oldest first by their names, then the database of items."""
        if root.is_file():
            return [root]
        folders = [root / name for name in ("sessions", "archived_sessions")]
        bases = [folder for folder in folders if folder.is_dir()] or [root]
        found = [path for base in bases for path in base.rglob("rollout-*") if path.name.endswith((".jsonl", ".zst"))]
        return [*sorted(found, key=lambda path: path.name), *sorted(root.glob("thread_history_*.sqlite"))]

    def list_related(self, path: Path) -> list[Path]:
        """Return nothing: threads of sub-agents are rollouts like all others."""
        del path
        return []

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield AGENTS.md and memories of the person and of each project, and the skills."""
        from kept.importers.agent_files import list_codex_assets

        del request
        return list_codex_assets(root) if root.is_dir() else iter(())

    def open(self, path: Path, position: Position) -> Reading:
        """Open a rollout."""
        if path.suffix == ".sqlite":
            from kept.importers.codex_history import CodexHistoryReading

            return CodexHistoryReading(path, position)
        if path.suffix == ".zst":
            raise Unusable(f"{str(path)!r} is compressed", "unpack it with `zstd -d`, or open the session in Codex")
        titles = _read_titles(path)
        return JsonlReading(path, position, lambda state: RolloutParser(state, titles))


def _read_titles(path: Path) -> dict[str, str]:
    """Return the names of threads, which rollouts do not hold; the last line of a thread wins."""
    titles: dict[str, str] = {}
    folder = next((one for one in path.parents if one.name in {"sessions", "archived_sessions"}), None)
    if folder is None:
        return titles
    try:
        data = (folder.parent / "session_index.jsonl").read_bytes()[-_TITLES_BYTES:]
    except OSError:
        return titles
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("thread_name"), str) and row["thread_name"]:
            titles[str(row.get("id"))] = row["thread_name"]
    return titles
