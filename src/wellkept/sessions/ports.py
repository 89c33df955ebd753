"""What a session store offers beyond the core's ports: reading, upkeep, forgetting, transfer.

`core.ports.SessionStore` is what an agent needs. `Sessions` is the complete port, used by commands: a new
store implements it, and `wellkept.testing` has the contract suites that it must pass.
"""

from __future__ import annotations  # types are not loaded by commands that only read

from typing import TYPE_CHECKING, Protocol

from wellkept.core.ports import NodeStore, SessionStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from wellkept.core.ids import MessageId, SessionId, SourceName, UserId
    from wellkept.core.messages import Lineage, NewMessage, Passage, Session, StoredMessage
    from wellkept.core.ports import EventSink, UnitOfWork
    from wellkept.core.search import Found, SearchRequest
    from wellkept.core.text import JSON
    from wellkept.sessions.receipts import Mark, NewReceipt, Receipt, ReceiptId
    from wellkept.sessions.reports import (
        Coverage,
        Finding,
        ForgetPlan,
        ForgetReport,
        ImportReport,
        Pruned,
        Removed,
        UsageRow,
    )


class Readable(Protocol):
    """What `session_search` needs of a store."""

    def session(self, session_id: SessionId) -> Session | None:
        """Return the session, or None."""
        ...

    def recent(
        self, *, limit: int, source: str | None = None, project: str | None = None, archived: bool = False
    ) -> list[Session]:
        """Return the sessions that were last active, newest first; `archived` shows hidden ones as well."""
        ...

    def totals(self) -> tuple[int, int]:
        """Return how many sessions and messages there are."""
        ...

    def search(self, request: SearchRequest) -> Found:
        """Return ranked sessions and messages."""
        ...

    def message(self, message_id: MessageId) -> StoredMessage | None:
        """Return one message that can be shown, or None."""
        ...

    def messages_by_id(self, message_ids: Sequence[MessageId]) -> list[StoredMessage]:
        """Return those messages that can be shown, in order of their ids."""
        ...

    def window(self, message_id: MessageId, *, before: int, after: int) -> list[StoredMessage]:
        """Return the messages around one, in its session, in order."""
        ...

    def passage(self, message_id: MessageId, *, window: int, bookend: int = 0) -> Passage | None:
        """Return a message that can be shown with `window` messages on each side and `bookend` at each end, or None."""
        ...

    def edges(self, session_id: SessionId, *, first: int, last: int) -> tuple[list[StoredMessage], list[StoredMessage]]:
        """Return the first and the last own messages, each in order; in a short session they overlap."""
        ...

    def count_before(self, session_id: SessionId, message_id: MessageId) -> int:
        """Return how many of the session's messages come before that one."""
        ...

    def context_ids(self, session_id: SessionId) -> list[MessageId]:
        """Return the ids of the messages that the model would be sent."""
        ...

    def preview(self, session_id: SessionId) -> str:
        """Return the beginning of what the person first said."""
        ...

    def lineage(self) -> Lineage:
        """Return the links between sessions."""
        ...

    def read_note(self, session_id: SessionId, key: str) -> JSON:
        """Return a value stored by `note`, or None."""
        ...


class Upkeep(Protocol):
    """Browse, archive, trash and prune conversations; measure, check and optimise the file."""

    def browse(
        self,
        *,
        limit: int,
        offset: int = 0,
        source: str | None = None,
        archived: bool = False,
        between: tuple[float, float] | None = None,
    ) -> list[Session]:
        """Return one page of the list of sessions, newest first; `between` bounds when they were last active."""
        ...

    def activity(self, since: float) -> list[tuple[str, str, int, int]]:
        """Return for each local day and source how many sessions and messages were last active on it."""
        ...

    def archive(self, session_id: SessionId, *, archived: bool = True) -> list[SessionId]:
        """Hide a conversation from lists, or show it again; search finds it either way."""
        ...

    def delete(self, session_ids: Sequence[SessionId]) -> list[SessionId]:
        """Move conversations to the trash, each with the whole chain of its compressions."""
        ...

    def restore(self, session_id: SessionId) -> list[SessionId]:
        """Bring a conversation back from the trash."""
        ...

    def trash(self) -> list[Session]:
        """Return what is in the trash, the latest first."""
        ...

    def sweep(self, *, days: float | None = None) -> Removed:
        """Remove for good what has been in the trash longer than the retention time, or than `days`.

        Sessions of other users are removed after the retention time only, and are not reported.
        """
        ...

    def prunable(self, *, days: float | None, source: str | None, most_bytes: int | None = None) -> Pruned:
        """Return what a prune would trash: idle for `days`, of `source`, the oldest until `most_bytes` are left."""
        ...

    def stats(self, *, months: int = 12, biggest: int = 10) -> dict[str, JSON]:
        """Return the user's counts, growth by month and biggest sessions, and the sizes of the file's tables."""
        ...

    def coverage(self) -> Coverage:
        """Return how many messages have vectors."""
        ...

    def check(self) -> list[Finding]:
        """Return every fault of the store; empty if there is none."""
        ...

    def quarantine(self) -> list[Session]:
        """Return the sessions that a repair found without an owner; no user sees them."""
        ...

    def give(self, session_ids: Sequence[SessionId], *, user: UserId) -> None:
        """Give sessions in quarantine to a user."""
        ...

    def reindex(self) -> int:
        """Rebuild the search index while others read and write; return the number of messages."""
        ...

    def optimize(self, *, vacuum: bool = False) -> dict[str, JSON]:
        """Make the store smaller and faster in small steps; return its bytes before and after."""
        ...


class Forgetting(Protocol):
    """Remove content for good, from rows, indexes and bytes: plan first, then carry out."""

    def plan_sessions(self, session_ids: Sequence[SessionId]) -> ForgetPlan:
        """Return what would be removed with those sessions, each with the whole chain of its compressions."""
        ...

    def plan_everything(self) -> ForgetPlan:
        """Return what would be removed with every session of this store's user."""
        ...

    def plan_source(self, source: str, *, project: str | None = None) -> ForgetPlan:
        """Return what would be removed with every session that came from `source`, in one project or in all."""
        ...

    def plan_query(self, query: str) -> ForgetPlan:
        """Return the messages that contain exactly these words, ignoring case."""
        ...

    def list_origins(self) -> list[SourceName]:
        """Return every source that messages of this store's user came from."""
        ...

    def plan_origin(self, names: Sequence[SourceName]) -> ForgetPlan:
        """Return what would be removed with every message that came from one of these sources."""
        ...

    def passages(self, plan: ForgetPlan) -> list[str]:
        """Return some long passages of what would be removed, to look for copies of them; never store or show them."""
        ...

    def carry_out(self, plan: ForgetPlan) -> ForgetReport:
        """Remove what was planned, then verify that no search finds it."""
        ...

    def prepare_neutral_ids(self) -> Callable[[str], str]:
        """Return the function that gives an id with forgotten words a neutral one: always the same, and no clue."""
        ...

    def scrub_entries(self, texts: Sequence[str]) -> int:
        """Drop prompts that show any of these memory entries, blank answers that quote one; return the prompts."""
        ...


class Transfer(Protocol):
    """Export and import conversations, as the lines of `sessions.lines`."""

    def export(self, *, session_id: SessionId | None = None, raw: bool = False) -> Iterator[dict[str, JSON]]:
        """Yield the lines of one session, or of all; `raw` adds what was sent to the model."""
        ...

    def import_lines(
        self, lines: Iterable[bytes], *, source: str, total: int | None = None, is_own: bool = False
    ) -> ImportReport:
        """Store every line once; report bad ones with their number and skip them.

        The owner's store keeps the users that the lines name (a restore); any other user's store
        assigns all lines to that user. A line of a session that belongs to somebody else is a bad line.
        """
        ...

    def was_forgotten(self, line: bytes) -> bool:
        """Whether a line, or the session that it names, was forgotten here, so that an import leaves it out."""
        ...

    def drop_messages(self, message_ids: Sequence[MessageId], *, unit: UnitOfWork | None = None) -> None:
        """Remove messages of this user that better ones are about to replace."""
        ...

    def overwrite(self, message_id: MessageId, new: NewMessage, *, unit: UnitOfWork | None = None) -> None:
        """Give a message of this user new content in its place."""
        ...

    def undo_import(
        self,
        message_ids: Sequence[MessageId],
        *,
        sessions: Sequence[SessionId] = (),
        usage: Sequence[UsageRow] = (),
        unit: UnitOfWork | None = None,
    ) -> list[SessionId]:
        """Remove messages of an import that is undone, its usage, and those of `sessions` that are empty then.

        Rewound messages and those in the trash go too. Return the sessions that were removed.
        """
        ...

    def fill_in(
        self,
        session_id: SessionId,
        *,
        model: str | None = None,
        parent: SessionId | None = None,
        unit: UnitOfWork | None = None,
    ) -> None:
        """Set the model of a session, and the session that delegated it if it has no parent yet."""
        ...

    def describe_salvaged(self, session: Session, *, unit: UnitOfWork | None = None) -> None:
        """Set what a repair could not know of a session whose row was lost; any other session is left alone."""
        ...


class Receipts(Protocol):
    """What models were shown, for one user; bounded by `sessions.receipt_days`."""

    def add(self, receipt: NewReceipt, *, wait_seconds: float = ...) -> ReceiptId | None:
        """Store a receipt and return its id; never raises, and None if it cannot be stored at once.

        `wait_seconds` is how long it may wait for another writer.
        """
        ...

    def recent(
        self,
        *,
        limit: int,
        before: ReceiptId | None = None,
        kind: str | None = None,
        client: str | None = None,
        session_id: SessionId | None = None,
    ) -> list[Receipt]:
        """Return the newest receipts, older than `before` where given."""
        ...

    def find(self, receipt_id: ReceiptId) -> Receipt | None:
        """Return one receipt, or None."""
        ...

    def mark(self, receipt_id: ReceiptId, message_ids: Sequence[MessageId], mark: Mark) -> None:
        """Mark messages of a receipt, or without any the receipt as a whole; an earlier mark is replaced."""
        ...

    def unmark(self, receipt_id: ReceiptId, message_id: MessageId | None = None) -> int:
        """Remove the marks of a receipt, or of one message in it; return how many."""
        ...

    def never_shown(self) -> frozenset[MessageId]:
        """Return the messages that automatic recall must leave out."""
        ...

    def forget_all(self) -> int:
        """Remove every receipt and mark of this user; return how many receipts."""
        ...


class Sessions(Readable, SessionStore, NodeStore, Protocol):
    """The complete port of a session store, used by commands; a store is opened for one user."""

    @property
    def user(self) -> UserId:
        """Whose sessions these are."""
        ...

    def for_user(self, user: UserId, *, sink: EventSink | None = None) -> Sessions:
        """Return the sessions of a user in the same database, reporting to `sink`; closing one closes all."""
        ...

    def users(self) -> list[UserId]:
        """Return every user who has a session in this database, for administration."""
        ...

    def resolve(self, name: str) -> SessionId:
        """Return the session that a person means by an id, a title, or the beginning of an id."""
        ...

    def hidden_because(self, message_id: MessageId) -> str | None:
        """Return why one of the user's messages cannot be shown: `trashed` or `rewound`; None for any other id."""
        ...

    def usage(self, *, session_id: SessionId | None = None, since: str = "") -> list[UsageRow]:
        """Return the counted calls since that day, of one session or of all."""
        ...

    @property
    def upkeep(self) -> Upkeep:
        """Archive, trash, prune, statistics, check."""
        ...

    @property
    def forgetting(self) -> Forgetting:
        """Removal for good."""
        ...

    @property
    def transfer(self) -> Transfer:
        """Export and import."""
        ...

    @property
    def receipts(self) -> Receipts:
        """What models were shown."""
        ...
