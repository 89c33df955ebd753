"""The port of a source: its transcripts, what reading them yields, what it has besides, and the table of all sources.

A new source is a class with the methods of `Source` in a module of its own, and one line in `SOURCES`. It reads and
never writes; it never raises on a row that it does not know. What it has besides conversations it yields from
`Source.list_assets`: the engine (`imports/run.py`) shows that in the preview, applies it through the tiers' own
operations, remembers what it applied, and can undo it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from wellkept.core.errors import UsageError
from wellkept.core.values import hide

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from wellkept.core.ids import SourceName
    from wellkept.core.messages import Link, Message, Origin, Usage
    from wellkept.core.text import JSON
    from wellkept.memory.page import Target


class Unusable(UsageError):
    """A transcript cannot be read: missing, no permission, of another user, or not a file."""


class Kind(StrEnum):
    """Who led a conversation."""

    PERSON = "person"
    HEADLESS = "headless"
    """A program sent the prompts: `claude -p`, `codex exec`, an SDK."""
    SUBAGENT = "subagent"
    """Another agent sent the prompts; the session is linked to its parent."""


class Conversation(Struct, frozen=True):
    """What a source says about one conversation; yielded again when a fact changes."""

    external_id: str
    kind: Kind = Kind.PERSON
    folder: str | None = None
    """The working folder; its repository becomes the project."""
    model: str | None = None
    title: str | None = None
    parent: str | None = None
    """The external id of the conversation that this one was delegated by, forked from, or continues."""
    link: Link | None = None
    """How it is linked to its parent; without it a sub-agent is a delegate, any other a branch."""
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    session_id: str | None = None
    """The id that the session should have here; if there is such a session, messages are added to it."""
    source: str | None = None
    """Where the conversation came from before it was exported; without it, the name of the source."""
    is_tree: bool = False
    """Whether a message follows the one yielded before it: where that is not the newest stored one, a branch begins."""


class Said(Struct, frozen=True):
    """One message. The external id is stable over forks, copies and later versions of the file."""

    conversation: str
    external_id: str
    message: Message
    timestamp: float
    origin: Origin
    token_count: int | None = None
    turn: str | None = None
    """The source's id of the turn that a person's message began, if it has one."""
    provenance: SourceName | None = None
    """Where the text came from, as far as the reader knows; what was read before is found from the messages."""


class Withdrawn(Struct, frozen=True):
    """The person withdrew the last turns of a conversation, with everything after them."""

    conversation: str
    external_id: str
    turns: int


class Spent(Struct, frozen=True):
    """The tokens of one model call; the external id makes sure that it is counted once."""

    conversation: str
    external_id: str
    model: str
    usage: Usage
    timestamp: float


class Left(Struct, frozen=True):
    """Something that was left out, and why in one or two words."""

    why: str
    kind: str = ""
    """What the source calls it, if the reader does not know it."""


UNKNOWN = "unknown row"
"""Why something was left out that no known version of a program writes."""
_MOST_KIND_CHARS = 40


def unknown(row: object = None, part: str = "row") -> Left:
    """Return a row, or another part of a transcript, that the reader does not know, under its own name for its kind."""
    fields = row if isinstance(row, dict) else {}
    kind = next((fields[name] for name in ("type", "role", "kind") if isinstance(fields.get(name), str | int)), None)
    return Left(UNKNOWN, part if kind is None else f"{part} {str(kind)[:_MOST_KIND_CHARS]!r}")


class Problem(Struct, frozen=True):
    """Something that could not be read, for the report: `where` names the file or record."""

    where: str
    what: str


Item: TypeAlias = Conversation | Said | Withdrawn | Spent | Left | Problem


class Position(Struct, frozen=True):
    """How far a transcript was read; everything before it is stored."""

    offset: int = 0
    check: str = ""
    """A hash of the bytes before the offset; another one means that the file was rewritten."""
    state: Mapping[str, JSON] = field(default_factory=dict)
    """What the reader needs to know to continue from here."""


START = Position()


class Reading:
    """One transcript that is being read; the base of all readings, with what holds for one that is read at once."""

    was_rewritten: bool = False
    """Whether the stored position was no longer valid, so that reading started over."""

    def __iter__(self) -> Iterator[Item]:
        """Yield what the transcript holds after the position, in order."""
        raise NotImplementedError

    def position(self) -> Position:
        """Return the position after what was yielded so far."""
        raise NotImplementedError

    def waiting_bytes(self) -> int:
        """Return how much of the transcript lies after the position."""
        return 0

    def close(self) -> None:
        """Close the transcript."""


class Option(Struct, frozen=True):
    """An option of `kept import` that only some sources know, such as `--preset` of openclaw.

    The command declares it in `cli/commands/imports.py`; a source that does not list it refuses it.
    """

    name: str
    """Without the dashes: `preset`, `migrate-secrets`."""
    choices: tuple[str, ...] = ()
    """The values that are allowed; none means any text. A flag has the value `yes`."""
    default: str = ""


class Request(Struct, frozen=True):
    """What a person asked of a source, for `Source.list_assets`."""

    environ: Mapping[str, str]
    home: Path
    """The folder of kept's home, for documents that belong there."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the source by name; one that was not given has its default."""


class Source:
    """One program, or one kind of export, whose conversations and memory can be imported; the base of all sources."""

    client: str
    """Its name in commands; also the `source` of its sessions."""
    options: tuple[Option, ...] = ()

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folders or files in which the program keeps its history on this machine, existing or not.

        Nothing for an export, which has no usual place: it needs `--source`.
        """
        del environ
        return []

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the transcripts below a root, the oldest first.

        A root may be one transcript, or an archive given with `--source export.zip`. An archive, like a database with
        many conversations, is one transcript: `open` reads it in place and yields the items of all conversations in it.
        """
        raise NotImplementedError

    def list_related(self, path: Path) -> list[Path]:
        """Return the transcripts of sub-agents that belong to this one."""
        del path
        return []

    def open(self, path: Path, position: Position) -> Reading:
        """Open a transcript at a position; raise Unusable if it cannot be read, with the reason and a remedy."""
        raise NotImplementedError

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield what the source has besides transcripts, in an order that does not change; raise nothing.

        Called for the list of what was found, for the preview and for the import, so it must be quick and read only.
        """
        del root, request
        return iter(())


SOURCES: Mapping[str, str] = {
    "claude-code": "claude_code.ClaudeCode",
    "codex": "codex.Codex",
    "opencode": "opencode.Opencode",
    "openclaw": "openclaw.OpenClaw",
    "hermes": "hermes.Hermes",
    "chatgpt": "chatgpt.ChatGpt",
    "claude": "claude_export.ClaudeExport",
    "gemini": "gemini.Gemini",
    "cursor": "cursor.Cursor",
    "cline": "cline.Cline",
    "copilot": "copilot.Copilot",
    "pi": "pi.Pi",
    "droid": "droid.Droid",
    "mcp-memory": "mcp_memory.McpMemory",
    "jsonl": "kept_lines.KeptLines",
}
"""Every source by its name, in the order in which they are listed: module and class, loaded when it is used."""


def find_source(name: str) -> Source | None:
    """Return the source with this name, or None."""
    from importlib import import_module

    place = SOURCES.get(name)
    if place is None:
        return None
    module, _, made = place.partition(".")
    source: Source = getattr(import_module(f"wellkept.formats.{module}"), made)()
    return source


class MemoryFile(Struct, frozen=True):
    """A text of the source that becomes entries of one page.

    The engine parses it, scans, deduplicates and fits the entries to the page; what does not fit goes to the archive. A
    later import compares its entries with those of the last one under the same name.
    """

    name: str
    """Its name within the source, the same at every import: the path below the root, or an id. Shown to people."""
    target: Target
    text: str = ""
    """Markdown with or without front matter, parsed by `markdown.parse_entries`."""
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
