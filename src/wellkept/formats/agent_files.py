"""Memory files of coding agents: CLAUDE.md, AGENTS.md, rules, memories that they wrote themselves, and their skills."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wellkept.core.regular_files import open_regular
from wellkept.formats.json_files import modification_time, open_own
from wellkept.formats.port import Asset, MemoryFile, Problem, Request, SkillFolder, Source, Unusable
from wellkept.memory.page import Target

MOST_BYTES = 1_000_000
"""A longer file was not curated by anybody; it is reported and left out."""
_MOST_FOLDERS = 2_000
_FIRST_BYTES = 400_000
"""How much of a transcript is read to find its working folder; Codex puts its whole instructions before it."""
_IMPORT = re.compile(r"^[^\S\n]*(?:[-*+][^\S\n]+)?@(?!\s)([^\s@]+)[^\S\n]*$", re.MULTILINE)
_MOST_DEPTH = 5
_INDEX_LINE = re.compile(r"^[^\S\n]*[-*+][^\S\n]+\[[^\]]*\]\([^)]+\.md\).*$", re.MULTILINE)
_FRONT_MATTER_TYPE = re.compile(r"^[^\S\n]*type:[^\S\n]*[\"']?(\w+)", re.MULTILINE)


class SessionFolder(Source):
    """A program with a folder of sessions, beside which it keeps the instructions of the person and the skills."""

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return every session below a folder, the oldest first."""
        if root.is_file():
            return [root]
        base = root / "sessions" if (root / "sessions").is_dir() else root
        return sorted(base.rglob("*.jsonl"), key=lambda path: (modification_time(path), path.name))

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the instructions of the person, and the skills."""
        del request
        if root.name == "sessions":
            yield from read_memory(root.parent / "AGENTS.md", "AGENTS.md", Target.MEMORY)
            yield from list_skills(root.parent / "skills")


def read_text(path: Path) -> str | Problem | None:
    """Return the text of a small file of this user, None if there is none, or why it cannot be read."""
    if not path.is_file():
        return None
    try:
        with open_own(path) as file:
            data = file.read(MOST_BYTES + 1)
    except Unusable as error:
        return Problem(str(path), error.message)
    except OSError as error:
        return Problem(str(path), str(error.strerror))
    if len(data) > MOST_BYTES:
        return Problem(str(path), f"longer than {MOST_BYTES:,} bytes")
    return data.decode("utf-8-sig", "replace")


def read_memory(path: Path, name: str, target: Target, **more: Any) -> Iterator[Asset]:
    """Yield a Markdown file as a memory file, or the problem; nothing if there is none, or if it is empty."""
    text = read_text(path)
    if isinstance(text, Problem):
        yield text
    elif text is not None and text.strip():
        yield MemoryFile(name, target, text, **more)


def list_skills(folder: Path) -> Iterator[SkillFolder]:
    """Yield the skills in a folder; hidden ones belong to the program."""
    for main in sorted(folder.glob("*/SKILL.md")):
        if not main.parent.name.startswith("."):
            yield SkillFolder(main.parent.name, main.parent)


# Claude Code


def list_claude_assets(root: Path) -> Iterator[Asset]:
    """Yield what Claude Code remembers: for the person, for each project, and what it wrote itself."""
    config = root.parent if root.name == "projects" else root
    if not (config / "projects").is_dir() and root.name != "projects":
        return
    for path in (config / "CLAUDE.md", *sorted((config / "rules").rglob("*.md"))):
        yield from _read_claude(path, path.relative_to(config).as_posix(), Target.MEMORY, within=config)
    for slug in sorted(path for path in (config / "projects").iterdir() if path.is_dir()):
        folder = find_folder(sorted(slug.glob("*.jsonl"), reverse=True)[:5])
        if folder is not None:
            yield from _list_project(Path(folder))
        yield from _list_auto_memory(slug, folder)
    yield from list_skills(config / "skills")


def _list_project(folder: Path) -> Iterator[Asset]:
    own = folder / ".claude"
    names = [
        folder / "CLAUDE.md",
        folder / "CLAUDE.local.md",
        own / "CLAUDE.md",
        *sorted((own / "rules").rglob("*.md")),
    ]
    for path in names:
        yield from _read_claude(path, str(path), Target.PROJECT, within=folder, folder=str(folder))


def _read_claude(path: Path, name: str, target: Target, *, within: Path, folder: str | None = None) -> Iterator[Asset]:
    for asset in read_memory(path, name, target, folder=folder):
        if isinstance(asset, MemoryFile):
            text = expand_imports(asset.text, path.parent, within)
            yield MemoryFile(name, target, text, folder=folder)
        else:
            yield asset


def expand_imports(text: str, folder: Path, within: Path, depth: int = _MOST_DEPTH) -> str:
    """Return the text with the files that lines of their own import (`@path`), as long as they are inside `within`.

    A path that leads outside, also through a link, may be anybody's file; it is left out.
    """

    def insert(found: re.Match[str]) -> str:
        path = Path(found[1])
        path = (path if path.is_absolute() else folder / path).resolve()
        if depth == 0 or not path.is_relative_to(within.resolve()):
            return ""
        text = read_text(path)
        return expand_imports(text, path.parent, within, depth - 1) if isinstance(text, str) else ""

    return _IMPORT.sub(insert, text)


def _list_auto_memory(slug: Path, folder: str | None) -> Iterator[Asset]:
    """Yield the memories that Claude Code wrote about a project; those about the person go to their page."""
    for path in sorted((slug / "memory").rglob("*.md")):
        name = path.relative_to(slug.parent.parent).as_posix()
        for asset in read_memory(path, name, Target.MEMORY):
            if not isinstance(asset, MemoryFile):
                yield asset
                continue
            head = asset.text.partition("\n---")[0] if asset.text.startswith("---") else ""
            kind = _FRONT_MATTER_TYPE.findall(head)
            target = Target.USER if kind[-1:] == ["user"] else Target.PROJECT if folder else Target.MEMORY
            # the index only lists the other files; its own sections may be facts
            text = _INDEX_LINE.sub("", asset.text) if path.name == "MEMORY.md" else asset.text
            yield MemoryFile(name, target, text, folder=folder)


# Codex


def list_codex_assets(root: Path) -> Iterator[Asset]:
    """Yield what Codex remembers: its instructions, the memories it wrote itself, and those of each project."""
    if not any((root / name).is_dir() for name in ("sessions", "archived_sessions", "memories")):
        return
    override = root / "AGENTS.override.md"
    own = override if override.is_file() else root / "AGENTS.md"
    yield from read_memory(own, "AGENTS.md", Target.MEMORY)
    memories = root / "memories"
    yield from read_memory(memories / "MEMORY.md", "memories/MEMORY.md", Target.MEMORY)
    derived = [memories / "memory_summary.md", memories / "raw_memories.md"]
    for path in (*derived, *sorted((memories / "rollout_summaries").glob("*.md"))):
        yield from read_memory(path, path.relative_to(root).as_posix(), Target.MEMORY, is_archive=True)
    rollouts = sorted((root / "sessions").rglob("rollout-*.jsonl"), reverse=True)[:_MOST_FOLDERS]
    yield from list_project_rules(find_folder([path]) for path in rollouts)
    for folder in (root / "skills", memories / "skills"):
        yield from list_skills(folder)


# opencode


def list_opencode_assets(environ: Mapping[str, str], folders: Iterable[str | None]) -> Iterator[Asset]:
    """Yield the rules of opencode: those of the person, and those of each project."""
    config = Path(environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or '~'}/.config").expanduser() / "opencode"
    yield from read_memory(config / "AGENTS.md", "AGENTS.md", Target.MEMORY)
    yield from list_project_rules(folders)
    for folder in (config / "skill", config / "skills"):
        yield from list_skills(folder)


def list_project_rules(folders: Iterable[str | None], name: str = "AGENTS.md") -> Iterator[Asset]:
    """Yield the file with rules of each project once, in the order of their paths."""
    for folder in sorted({one for one in folders if one}):
        path = Path(folder) / name
        yield from read_memory(path, str(path), Target.PROJECT, folder=folder)


def find_folder(transcripts: Iterable[Path]) -> str | None:
    """Return the working folder that the first of these transcripts names, if it still exists."""
    for path in transcripts:
        try:
            with open_regular(path) as file:
                lines = file.read(_FIRST_BYTES).split(b"\n")
        except OSError:
            continue
        for line in lines:
            folder = _find_cwd(line) if b'"cwd"' in line else None
            if folder is not None:
                return folder if Path(folder).is_dir() else None
    return None


def _find_cwd(line: bytes) -> str | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    places = (row, row.get("payload")) if isinstance(row, dict) else ()
    found = (place.get("cwd") for place in places if isinstance(place, dict))
    return next((one for one in found if isinstance(one, str) and one), None)
