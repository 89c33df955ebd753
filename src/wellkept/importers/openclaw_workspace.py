"""The workspaces of OpenClaw's agents: memory, daily notes, persona, skills, and what has no place here."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from wellkept.importers.agent_files import list_skills, read_text
from wellkept.importers.assets import Caution, Document, Leftover, MemoryFile, Problem
from wellkept.importers.openclaw_config import (
    SECRETS,
    find_running,
    find_workspaces,
    list_secrets,
    list_settings,
    load_config,
    name_home,
)
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wellkept.importers.assets import Asset
    from wellkept.importers.port import Request

_EMPTY_BLOCK = re.compile(r"^```[^\n`]*\n[^\w`]*```[^\S\n]*$", re.MULTILINE)
_EMPTY_FIELD = re.compile(r"^[^\S\n]*[-*][^\S\n]+\*\*[^*\n]{1,60}:\*\*[^\S\n]*(?:_\([^\n]*\)_)?[^\S\n]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CONFIG = "config.yaml"
_FIRST_CONFIG = "# Settings of kept: `kept config show` lists them all, `kept config set KEY VALUE` changes one.\n"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_OTHERS = ("TOOLS.md", "HEARTBEAT.md", "BOOT.md", "BOOTSTRAP.md")
"""Instructions for parts of OpenClaw that kept does not have."""
_MOST_BYTES = 100_000_000
"""A larger index of a memory backend stays where it is: it was derived from files that are imported."""


@cache
def _templates() -> frozenset[str]:
    text = resources.files("wellkept.importers").joinpath("openclaw_templates.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def hash_line(line: str) -> str:
    """Return the hash of a line, whatever its spaces and capitals."""
    return hashlib.blake2b(" ".join(line.split()).casefold().encode("utf-8", "replace"), digest_size=4).hexdigest()


def remove_template(text: str) -> str:
    """Return what people and agents wrote into a file, without the lines that OpenClaw had filled it with."""
    known = _templates()
    kept = "\n".join(line for line in text.splitlines() if hash_line(line) not in known)
    kept = _EMPTY_FIELD.sub("", _EMPTY_BLOCK.sub("", _COMMENT.sub("", kept)))
    return kept.strip() if re.search(r"\w", kept) else ""


def list_openclaw(root: Path, request: Request) -> Iterator[Asset]:
    """Yield everything of a state folder besides transcripts."""
    try:
        config = load_config(root)
    except (OSError, ValueError, RecursionError) as error:
        config = {}
        yield Problem("openclaw.json", f"cannot be read, so only the usual workspaces are: {error}")
    if (running := find_running(config)) is not None:
        yield Caution(f"{running}: stop it first, or what it writes meanwhile is left out")
    is_first = True
    for agent, folder in find_workspaces(root, config, name_home(request.environ)):
        name = _name_workspace(root, folder)
        yield from _list_memory(folder, name)
        yield from _list_persona(folder, name, agent, request, is_first=is_first)
        yield from list_skills(folder / "skills")
        is_first = False
    yield from list_skills(root / "skills")
    if request.options.get("preset") != "user-data":
        if not (request.home / _CONFIG).exists():
            yield Document(_CONFIG, _FIRST_CONFIG, request.home / _CONFIG)  # before the settings, which change it
        yield from list_settings(config)
        yield from _list_leftovers(root)
    if request.options.get("migrate-secrets"):
        secrets = list(list_secrets(root, config))
        taken = ", ".join(f"{one.name} from {one.origin}" for one in secrets) or "none was found"
        yield Caution(f"credentials that are copied: {taken}; only these names are searched for: {', '.join(SECRETS)}")
        yield from secrets


def _name_workspace(root: Path, folder: Path) -> str:
    try:
        return folder.relative_to(root.resolve()).as_posix()
    except ValueError:
        return f"elsewhere{folder.as_posix()}"


def _list_memory(folder: Path, name: str) -> Iterator[Asset]:
    """Yield what an agent knows: curated memory first, then notes, the newest first."""
    main = folder / "MEMORY.md"
    # on file systems that ignore case both names are one file
    yield from _read(main if main.is_file() else folder / "memory.md", f"{name}/MEMORY.md", Target.MEMORY)
    yield from _read(folder / "USER.md", f"{name}/USER.md", Target.USER)
    yield from _read(folder / "IDENTITY.md", f"{name}/IDENTITY.md", Target.MEMORY, heading="Identity of the assistant")
    notes = [path for path in (folder / "memory").rglob("*.md") if not _is_hidden(path.relative_to(folder))]
    for path in sorted(notes, key=lambda path: (_DATE.match(path.name) is not None, path.name), reverse=True):
        within = path.relative_to(folder).as_posix()
        yield from _read(path, f"{name}/{within}", Target.MEMORY, heading=path.stem)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts) or path.name == "DREAMS.md"


def _read(path: Path, name: str, target: Target, *, heading: str = "") -> Iterator[Asset]:
    text = read_text(path)
    if isinstance(text, Problem):
        yield text
    elif text is not None and (own := remove_template(text)):
        yield MemoryFile(name, target, own, heading=heading)


def _list_persona(folder: Path, name: str, agent: str, request: Request, *, is_first: bool) -> Iterator[Asset]:
    """Yield SOUL.md and AGENTS.md of the default agent as documents; those of others go to the archive."""
    target = request.options.get("workspace-target")
    places = {
        "SOUL.md": request.home / "SOUL.md",
        "AGENTS.md": Path(target).expanduser() / "AGENTS.md" if target else None,
    }
    for file in (*places, *_OTHERS):
        text = read_text(folder / file)
        if isinstance(text, Problem):
            yield text
        if not isinstance(text, str) or not remove_template(text):
            continue  # nobody changed it
        place = places.get(file)
        if is_first and place is not None:
            yield Document(f"{name}/{file}", text, place)
        elif file == "AGENTS.md" and is_first:
            yield Leftover(
                f"{name}/{file}", text.encode(), "--workspace-target FOLDER copies it into a folder of yours"
            )
        else:
            why = "has no counterpart here" if file in _OTHERS else f"of the agent {agent}; there is one per home"
            yield Leftover(f"{name}/{file}", text.encode(), why)


def _list_leftovers(root: Path) -> Iterator[Asset]:
    """Yield scheduled jobs and the indexes of memory backends."""
    from wellkept.security.secrets import redact

    jobs = read_text(root / "cron" / "jobs.json")
    if isinstance(jobs, str):
        yield Leftover("cron/jobs.json", redact(jobs).encode(), "scheduled jobs: add them to your scheduler")
    for path in [
        *sorted((root / "memory").glob("*.sqlite")),
        root / "lancedb",
        root / "memory" / "lancedb",
        root / "qmd",
    ]:
        if not path.exists():
            continue
        name = path.relative_to(root).as_posix()
        if _measure(path) <= _MOST_BYTES:
            yield Leftover(name, path, "the index of a memory backend; it was derived from files that are imported")
        else:
            yield Problem(name, f"the index of a memory backend is larger than {_MOST_BYTES:,} bytes and stays there")


def _measure(path: Path) -> int:
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files)
