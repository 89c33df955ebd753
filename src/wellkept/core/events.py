"""Events: one closed union of what kept reports while it works; a sink (`core/ports.py`) receives them."""

from typing import TYPE_CHECKING, TypeAlias

from wellkept.core.ids import OWNER, LedgerId, SessionId, UserId
from wellkept.core.values import dataclass

if TYPE_CHECKING:
    from wellkept.core.messages import Usage  # lazy: commands that only read pages do not need messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """Fields of every event: its user, and its session, or None if it belongs to no session."""

    user_id: UserId = OWNER
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True)
class MemoryWritten(_Event):
    """One edit of a page; a batch reports one event per step."""

    ledger_id: LedgerId | None
    action: str
    target: str
    before: str | None
    after: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class MemoryStaged(_Event):
    """A write waits for approval."""

    pending_id: str
    target: str
    text: str
    origin: str = "agent"


@dataclass(frozen=True, slots=True)
class Warned(_Event):
    """A warning for the user; work continues."""

    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Progressed(_Event):
    """Progress of a long task; `total` is None if it is unknown."""

    task: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class TextStreamed(_Event):
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted(_Event):
    """A tool call begins."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished(_Event):
    """A tool call ended."""

    call_id: str
    name: str
    ok: bool
    seconds: float
    answer: str


@dataclass(frozen=True, slots=True)
class ModelCalled(_Event):
    """A model call ended; its usage counts for `task` (main, compression, review, …)."""

    task: str
    model: str
    usage: "Usage"
    seconds: float


@dataclass(frozen=True, slots=True)
class Compacted(_Event):
    """The context was compacted; the original messages stay in the store."""

    before_tokens: int
    after_tokens: int
    messages_covered: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reviewed(_Event):
    """A background review ended; `saved` lists its writes, which `group_id` can undo."""

    group_id: str
    saved: tuple[str, ...]
    staged: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    """Its changes to skills, one sentence each, with the command that undoes it."""


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
