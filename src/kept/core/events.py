"""Events: one closed union of what kept reports while it works, and the sinks that receive them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from kept.core.ids import OWNER, LedgerId, SessionId, UserId

if TYPE_CHECKING:
    from kept.core.messages import Usage  # lazy: commands that only read pages do not need messages


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


def ignore(event: Event, /) -> None:
    """Discard an event: the sink for callers that do not listen."""


class Listeners:
    """The sinks of one user's callers. An event of a session reaches only the sinks that listen to that session.

    A sink added without a session receives all events of the user; an event without a session reaches all sinks.
    """

    def __init__(self, user: UserId = OWNER) -> None:
        self._user = user
        self._sinks: list[tuple[Callable[[Event], None], SessionId | None]] = []

    def __call__(self, event: Event, /) -> None:
        """Set the user of the event and pass it to every matching sink."""
        marked = event if event.user_id == self._user else replace(event, user_id=self._user)
        for sink, session_id in tuple(self._sinks):
            if session_id is None or marked.session_id in {None, session_id}:
                sink(marked)

    def __len__(self) -> int:
        return len(self._sinks)

    def add(self, sink: Callable[[Event], None], *, session_id: SessionId | None = None) -> Callable[[], None]:
        """Add a sink and return the function that removes it."""
        entry = (sink, session_id)
        self._sinks.append(entry)

        def remove() -> None:
            if entry in self._sinks:
                self._sinks.remove(entry)

        return remove
