"""The port of a transcript reader: what it yields, where it stands, and how it finds its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kept.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kept.core.messages import Message, Origin, Usage
    from kept.core.text import JSON


class Unusable(UsageError):
    """A transcript cannot be read: missing, no permission, of another user, or not a file."""


class Kind(StrEnum):
    """Who led a conversation."""

    PERSON = "person"
    HEADLESS = "headless"
    """A program sent the prompts: `claude -p`, `codex exec`, an SDK."""
    SUBAGENT = "subagent"
    """Another agent sent the prompts; hangs under its parent."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a source says about one conversation; yielded again when a fact changes."""

    external_id: str
    kind: Kind = Kind.PERSON
    folder: str | None = None
    """The working folder; its repository becomes the project."""
    model: str | None = None
    title: str | None = None
    parent: str | None = None
    """The external id of the conversation that this one was delegated by, or forked from."""
    metadata: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """One message. The external id is stable over forks, copies and later versions of the file."""

    conversation: str
    external_id: str
    message: Message
    timestamp: float
    origin: Origin
    token_count: int | None = None
    turn: str | None = None
    """The source's id of the turn that a person's message began, if it has one."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The person took back the last turns of a conversation, with everything after them."""

    conversation: str
    external_id: str
    turns: int


@dataclass(frozen=True, slots=True)
class Spent:
    """The tokens of one model call; the external id makes sure that it is counted once."""

    conversation: str
    external_id: str
    model: str
    usage: Usage
    timestamp: float


@dataclass(frozen=True, slots=True)
class Left:
    """Something that was left out, and why in one or two words."""

    why: str


Item: TypeAlias = Conversation | Said | Withdrawn | Spent | Left


@dataclass(frozen=True, slots=True)
class Position:
    """How far a transcript was read: what is before it is stored."""

    offset: int = 0
    check: str = ""
    """A hash of the bytes before the offset; another one means that the file was rewritten."""
    state: Mapping[str, JSON] = field(default_factory=dict)
    """What the reader needs to know to continue from here."""


START = Position()


class Reading(Protocol):
    """One transcript that is being read."""

    was_rewritten: bool
    """Whether the stored position did not fit any more, so that reading began again."""

    def __iter__(self) -> Iterator[Item]:
        """Yield what the transcript holds after the position, in order."""
        ...

    def position(self) -> Position:
        """Return the position after what was yielded so far."""
        ...

    def waiting_bytes(self) -> int:
        """Return how much of the transcript lies after the position."""
        ...

    def close(self) -> None:
        """Close the transcript."""
        ...


class Reader(Protocol):
    """Reads the transcripts of one program."""

    client: str

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the folders or files in which the program keeps its history on this machine, existing or not."""
        ...

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return the transcripts below a root, the oldest first; a root may be one transcript."""
        ...

    def list_related(self, path: Path) -> list[Path]:
        """Return the transcripts of sub-agents that belong to this one."""
        ...

    def open(self, path: Path, position: Position) -> Reading:
        """Open a transcript at a position; raise Unusable if it cannot be read."""
        ...
