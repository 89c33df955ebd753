"""Codex: where it keeps its rollouts, and how each generation of them is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wellkept.core.regular_files import load_bytes
from wellkept.importers.codex_rollout import RolloutParser
from wellkept.importers.jsonl import JsonlReading, WholeReading, read_row
from wellkept.importers.port import Item, Option, Position, Reading, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wellkept.importers.assets import Asset

_TITLES_BYTES = 2_000_000
_ENDINGS = (".jsonl", ".jsonl.zst", ".json")
"""Of rollouts: JSONL, the same after a week without use, and one JSON object as the first versions wrote it."""


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
        found = [path for base in bases for path in base.rglob("rollout-*") if path.name.endswith(_ENDINGS)]
        return [*sorted(found, key=lambda path: path.name), *sorted(root.glob("thread_history_*.sqlite"))]

    def list_related(self, path: Path) -> list[Path]:
        """Return nothing: threads of sub-agents are rollouts like all others."""
        del path
        return []

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield AGENTS.md and memories of the person and of each project, and the skills."""
        from wellkept.importers.agent_files import list_codex_assets

        del request
        return list_codex_assets(root) if root.is_dir() else iter(())

    def open(self, path: Path, position: Position) -> Reading:
        """Open a rollout of any generation; a compressed one is unpacked into a temporary file."""
        if path.suffix == ".sqlite":
            from wellkept.importers.codex_history import CodexHistoryReading

            return CodexHistoryReading(path, position)
        titles = _read_titles(path)
        if path.suffix == ".json":
            return WholeReading(path, position, lambda value: _read_whole(value, RolloutParser({}, titles)))
        return JsonlReading(path, position, lambda state: RolloutParser(state, titles))


def _read_whole(value: Any, parser: RolloutParser) -> Iterator[Item]:
    """Yield the items of a rollout of early 2025: one object, whose items have the time at which the session began."""
    for row in [value["session"], *value["items"]]:
        yield from read_row(lambda one: parser.take(one, 0), row, "row")


def _read_titles(path: Path) -> dict[str, str]:
    """Return the names of threads, which rollouts do not hold; the last line of a thread wins."""
    titles: dict[str, str] = {}
    folder = next((one for one in path.parents if one.name in {"sessions", "archived_sessions"}), None)
    if folder is None:
        return titles
    try:
        data = load_bytes(folder.parent / "session_index.jsonl")[-_TITLES_BYTES:]
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
