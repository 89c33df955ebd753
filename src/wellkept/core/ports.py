"""All ports on one page, named for what their callers need.

Plugin base classes with default hooks are in their packages, because plugins inherit from them:
`providers/base.py` (MemoryProvider) and `context/engine.py` (ContextEngine). Ports that only one package uses are in
that package; a new session store implements `sessions/ports.py` (Sessions, which includes SessionStore and NodeStore).
"""

from __future__ import annotations  # a port is imported for its name: the values that it mentions are not needed

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from wellkept.core.events import Event
    from wellkept.core.ids import MessageId, SessionId, SourceName
    from wellkept.core.messages import ChatRequest, Delta, Message, NewMessage, Session, State, StoredMessage, Usage
    from wellkept.core.search import Found, SearchRequest
    from wellkept.core.text import JSON
    from wellkept.core.tools import Tool


class Clock(Protocol):
    """The time; tests can choose it."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...


class EventSink(Protocol):
    """Receives events. Never raises and returns at once."""

    def __call__(self, event: Event, /) -> None:
        """Receive `event`."""
        ...


def ignore(event: Event, /) -> None:
    """Discard an event: the sink for callers that do not listen."""


class UnitOfWork(Protocol):
    """One open write transaction; what several tiers write through it commits together or not at all."""

    def execute(self, sql: str, bindings: Sequence[object] | Mapping[str, object] = ()) -> Iterable[tuple[object, ...]]:
        """Run one statement and return its rows."""
        ...


class Database(Protocol):
    """A database that a tier stores rows in, without knowing its driver.

    It is opened for one user, or for what belongs to the home as a whole: tokens, paired people, messages of chat
    platforms. SQLite relies on the conditions of each statement; PostgreSQL also refuses the rows of other users.
    Statements are written so that both understand them.
    """

    @property
    def is_read_only(self) -> bool:
        """Whether this thread can only read."""
        ...

    def reading(self) -> AbstractContextManager[UnitOfWork]:
        """Open a unit of work for reads."""
        ...

    def writing(self) -> AbstractContextManager[UnitOfWork]:
        """Open one write transaction, committed at the end or rolled back as a whole.

        A write transaction that is already open on this thread is joined, so that several tiers commit together.
        """
        ...

    def limit_wait(self, seconds: float) -> AbstractContextManager[object]:
        """Inside the block, wait no longer than `seconds` for other writers on this thread, then raise Busy."""
        ...

    def sync(self) -> None:
        """Make every transaction that was committed through this object survive power loss."""
        ...


class ChatModel(Protocol):
    """Answers a request as a stream whose last item is the whole response.

    Raises ModelRefused, ModelBusy or ContextOverflow; retries and fallbacks are wrapped around it.
    """

    name: str
    """`adapter/model`, as the configuration writes it."""
    context_length: int

    def stream(self, request: ChatRequest) -> AsyncIterator[Delta]:
        """Send `request` and yield the answer."""
        ...


class Completes(Protocol):
    """A model for auxiliary tasks (summary, review, title), without streaming."""

    name: str
    context_length: int

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        """Return the answer to `prompt`, or raise a ModelError."""
        ...


class Embeds(Protocol):
    """Turns texts into vectors of one length."""

    name: str

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order."""
        ...


class OffersTools(Protocol):
    """A component that provides tools for the agent."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools that are available now, in a fixed order."""
        ...


class SessionStore(Protocol):
    """Stores conversations and searches them, in SQLite or PostgreSQL.

    A store is opened for one user. Ids of another user's sessions and messages are unknown to it.
    Every method is one transaction unless a `unit` is passed. `messages` and `context` never
    return rewound messages. Unknown ids raise NotFound.
    """

    def unit(self) -> AbstractContextManager[UnitOfWork]:
        """Open one write transaction that several tiers may share."""
        ...

    def create(self, session: Session, *, system_prompt: str | None = None) -> None:
        """Begin a session; its id must be new."""
        ...

    def session(self, session_id: SessionId) -> Session | None:
        """Return the session, or None."""
        ...

    def append(
        self, session_id: SessionId, messages: Sequence[NewMessage], *, unit: UnitOfWork | None = None
    ) -> list[MessageId]:
        """Store `messages` in order, redacted and indexed, and return their ids."""
        ...

    def set_sent_text(self, message_id: MessageId, text: str) -> None:
        """Store what a model is sent in place of a message: its text with recalled memory, for instance."""
        ...

    def messages(self, session_id: SessionId, *, states: Sequence[State] = ...) -> list[StoredMessage]:
        """Return the session's own messages in order; without `states` the active and the compacted ones."""
        ...

    def context(self, session_id: SessionId) -> list[StoredMessage]:
        """Return the messages that the model would receive: active ones, with those carried over from the parent."""
        ...

    def system_prompt(self, session_id: SessionId) -> str | None:
        """Return the prompt that was stored when the session began."""
        ...

    def set_system_prompt(self, session_id: SessionId, prompt: str) -> None:
        """Store the prompt that the session reuses verbatim from now on."""
        ...

    def end(self, session_id: SessionId, reason: str) -> None:
        """Mark the session as ended; the first reason wins."""
        ...

    def reopen(self, session_id: SessionId) -> None:
        """Mark an ended session as open again."""
        ...

    def rename(self, session_id: SessionId, title: str) -> str:
        """Set the title, made unique with ` #N`, and return it."""
        ...

    def rewind(self, session_id: SessionId, from_message: MessageId) -> int:
        """Rewind that message and all after it; return how many."""
        ...

    def restore_rewound(self, session_id: SessionId) -> int:
        """Restore the newest rewound messages; return how many."""
        ...

    def branch(self, session_id: SessionId, *, at: MessageId | None, new: Session) -> None:
        """Begin `new` as a branch that carries the context up to `at`."""
        ...

    def tip(self, session_id: SessionId) -> SessionId:
        """Return the end of the chain of compressions that starts at `session_id`."""
        ...

    def add_usage(  # noqa: PLR0913 # what is counted, for whom and when
        self,
        session_id: SessionId,
        *,
        task: str,
        model: str,
        usage: Usage,
        cost: float | None,
        when: float | None = None,
        unit: UnitOfWork | None = None,
    ) -> None:
        """Count one model call of the session, made now or at `when`."""
        ...

    def compact(self, session_id: SessionId, compaction: Compacting, *, unit: UnitOfWork | None = None) -> SessionId:
        """Archive what a compaction covered, in place or into a child session; return the session that continues."""
        ...

    def note(self, session_id: SessionId, key: str, value: JSON) -> None:
        """Store a small value with the session (cooldowns, counters, calibration)."""
        ...

    def read_note(self, session_id: SessionId, key: str) -> JSON:
        """Return a value stored by `note`, or None."""
        ...

    def lease(self, name: str, *, holder: str, seconds: float) -> bool:
        """Acquire or renew a lease across processes; return False if another holder has it."""
        ...

    def release(self, name: str, *, holder: str) -> None:
        """Release a lease."""
        ...

    def search(self, request: SearchRequest) -> Found:
        """Return ranked sessions and messages; no query raises."""
        ...

    def recent(self, *, limit: int, source: str | None = None) -> list[Session]:
        """Return the sessions that were last active, newest first."""
        ...

    def window(self, message_id: MessageId, *, before: int, after: int) -> list[StoredMessage]:
        """Return the messages around one, in its session, in order."""
        ...


class Compacting(Protocol):
    """A compaction, as the store needs to know it."""

    @property
    def summary(self) -> Message:
        """Return the message that replaces the covered messages."""
        ...

    @property
    def covered(self) -> Sequence[MessageId]:
        """Return the messages that leave the context; they stay stored and searchable."""
        ...

    @property
    def kept_head(self) -> Sequence[MessageId]:
        """Return the messages that stay before the summary, in order."""
        ...

    @property
    def kept_tail(self) -> Sequence[MessageId]:
        """Return the messages that stay after the summary, in order; not always consecutive."""
        ...

    @property
    def in_place(self) -> bool:
        """Return whether the conversation keeps its session id."""
        ...

    @property
    def new_session_id(self) -> SessionId | None:
        """Return the id of the child session, or None."""
        ...

    @property
    def timestamp(self) -> float:
        """Return the time of the compaction in epoch seconds."""
        ...

    @property
    def source(self) -> SourceName | None:
        """Return the least trusted source of what the summary covers."""
        ...


class Documents(Protocol):
    """Named texts of one user that are replaced as a whole: files of a folder, or rows of a server."""

    def names(self, suffix: str) -> list[str]:
        """Return the names that end with `suffix`, sorted; without documents that were moved into a folder below."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a document, None if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a document as a whole."""
        ...

    def append(self, name: str, lines: bytes) -> None:
        """Add complete lines at the end."""
        ...

    def move(self, name: str, new: str) -> None:
        """Give a document another name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a document, also one that was moved into a folder below."""
        ...

    def lock(self, name: str, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Keep other writers of a document out until the end of the block, or raise Busy after the timeout."""
        ...


class NodeStore(Protocol):
    """Stores the lossless engine's tree of summaries."""

    def add_node(self, session_id: SessionId, *, depth: int, text: str, children: Sequence[int]) -> int:
        """Store a node over message ids (depth 0) or node ids, and return its id."""
        ...

    def nodes(self, session_id: SessionId) -> list[tuple[int, int, str, tuple[int, ...]]]:
        """Return (id, depth, text, children) of every node, oldest first."""
        ...
