"""What a source has besides conversations: memory files, skills, settings, documents, and leftovers.

A source yields these values from `Source.list_assets`; it never writes. The engine (`importing/run.py`) shows
them in the preview, applies them through the tiers' own operations, remembers what it applied, and can undo it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from wellkept.core.values import hide
from wellkept.importers.port import Problem
from wellkept.memory.page import Target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from wellkept.core.text import JSON

__all__ = ["Asset", "Caution", "Document", "Leftover", "MemoryFile", "Problem", "Secret", "Setting", "SkillFolder"]


class MemoryFile(Struct, frozen=True):
    """A text of the source that becomes entries of one page.

    The engine parses it, scans, deduplicates and fits the entries to the page; what does not fit goes to the archive. A
    later import compares its entries with those of the last one under the same name.
    """

    name: str
    """Its name within the source, the same at every import: the path below the root, or an id. Shown to people."""
    target: Target
    text: str = ""
    """Markdown with or without front matter, parsed by `importers.markdown.parse_entries`."""
    entries: tuple[str, ...] | None = None
    """Entries that are separate already (Hermes' `§` pages, observations of a graph); the text is then ignored."""
    folder: str | None = None
    """The working folder, for `Target.PROJECT`; its repository decides which page that is."""
    heading: str = ""
    """What precedes the heading path of each parsed entry, such as the date of a daily note."""
    is_archive: bool = False
    """Whether the entries go to the searchable archive only, and never on the page: daily notes, old summaries."""


class SkillFolder(Struct, frozen=True):
    """A skill: a folder with a `SKILL.md`, which the engine copies through the guard.

    What happens to a skill whose name is taken is the engine's business: `--skill-conflict skip | overwrite | rename`.
    """

    name: str
    folder: Path
    category: str = ""
    use: Mapping[str, JSON] = field(default_factory=dict)
    """Counters by the names of `skills.usage.Use` (`use_count`, `last_used_at`, …), as far as the source has them."""


class Setting(Struct, frozen=True):
    """A setting of ours that the source has a value for; one that is set here already is a conflict."""

    key: str
    """As `kept config set` takes it, such as `model.default`."""
    value: str
    origin: str
    """Where the value comes from, for the preview and the report."""


class Secret(Struct, frozen=True):
    """A credential for `.env`. Yield it only with the option `migrate-secrets`, and only from an allow-list.

    The preview and the report name it; no output ever contains the value.
    """

    name: str
    value: str
    origin: str

    __repr__ = hide("value")


class Document(Struct, frozen=True):
    """A whole file that is copied as it is: `SOUL.md` into the home, `AGENTS.md` into a workspace."""

    name: str
    """Its name within the source, the same at every import."""
    text: str
    path: Path
    """Where it goes; `Request.home` is the folder of kept's home. A file with other content there is a conflict."""


class Leftover(Struct, frozen=True):
    """Something without a place here: stored in `migration/<source>/<stamp>/archive/` and listed in the report."""

    name: str
    """The path below `archive/`."""
    content: bytes | Path
    """Its bytes, or the file or folder to copy. Never credentials."""
    why: str

    __repr__ = hide("content")


class Caution(Struct, frozen=True):
    """One sentence that the preview shows before anything is applied, such as that the source is running."""

    text: str


Asset: TypeAlias = MemoryFile | SkillFolder | Setting | Secret | Document | Leftover | Caution | Problem
