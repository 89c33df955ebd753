"""Events: one closed union of what kept reports while it works; a sink (`core/ports.py`) receives them."""

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wellkept.core.ids import OWNER, LedgerId, SessionId, UserId

if TYPE_CHECKING:
    from wellkept.core.messages import Usage  # lazy: commands that only read pages do not need messages


class _Event(Struct, frozen=True, kw_only=True):
    """Fields of every event: its user, and its session, or None if it belongs to no session."""

    user_id: UserId = OWNER
    session_id: SessionId | None = None


class MemoryWritten(_Event, frozen=True):
    """One edit of a page; a batch reports one event per step."""

    ledger_id: LedgerId | None
    action: str
    target: str
    before: str | None
    after: str | None
    origin: str


class MemoryStaged(_Event, frozen=True):
    """A write waits for approval."""

    pending_id: str
    target: str
    text: str
    origin: str = "agent"


class Warned(_Event, frozen=True):
    """A warning for the user; work continues."""

    message: str
    remedy: str = ""


class Progressed(_Event, frozen=True):
    """Progress of a long task; `total` is None if it is unknown."""

    task: str
    done: int
    total: int | None


class TextStreamed(_Event, frozen=True):
    """A piece of the answer."""

    text: str


class ToolStarted(_Event, frozen=True):
    """A tool call begins."""

    call_id: str
    name: str
    arguments: str


class ToolFinished(_Event, frozen=True):
    """A tool call ended."""

    call_id: str
    name: str
    ok: bool
    seconds: float
    answer: str


class ModelCalled(_Event, frozen=True):
    """A model call ended; its usage counts for `task` (main, compression, review, …)."""

    task: str
    model: str
    usage: "Usage"
    seconds: float


class Compacted(_Event, frozen=True):
    """The context was compacted; the original messages stay in the store."""

    before_tokens: int
    after_tokens: int
    messages_covered: int
    note: str = ""


class Reviewed(_Event, frozen=True):
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
