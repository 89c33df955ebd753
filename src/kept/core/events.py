"""What happens while kept works: one closed union, told to one sink."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kept.core.ids import LedgerId, SessionId

if TYPE_CHECKING:
    from kept.core.messages import Usage  # a command that only reads pages needs no messages


@dataclass(frozen=True, slots=True)
class MemoryWritten:
    """One applied step on a page; a batch tells one per step."""

    ledger_id: LedgerId | None
    action: str
    target: str
    before: str | None
    after: str | None
    origin: str
    session_id: SessionId | None


@dataclass(frozen=True, slots=True)
class MemoryStaged:
    """A write waits for a person's approval."""

    pending_id: str
    target: str
    text: str
    origin: str = "agent"


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a person should know; the work goes on."""

    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Progressed:
    """Long work moved on; `total` is None while it is unknown."""

    task: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call has its answer."""

    call_id: str
    name: str
    ok: bool
    seconds: float
    answer: str


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """A model call ended; its usage is counted for `task` (main, compression, review, …)."""

    task: str
    model: str
    usage: "Usage"
    seconds: float


@dataclass(frozen=True, slots=True)
class Compacted:
    """The context was made smaller; the originals stay in the store."""

    session_id: SessionId
    before_tokens: int
    after_tokens: int
    messages_covered: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A background review ended; `saved` lists what it wrote, `group_id` undoes it."""

    group_id: str
    saved: tuple[str, ...]
    staged: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    """What it did to skills, in a sentence each with the command that takes it back."""


Event: TypeAlias = (
    MemoryWritten
    | MemoryStaged
    | Warned
    | Progressed
    | TextStreamed
    | ToolStarted
    | ToolFinished
    | ModelCalled
    | Compacted
    | Reviewed
)


def ignore(event: Event, /) -> None:
    """Hear an event and do nothing: the sink where nobody listens."""
