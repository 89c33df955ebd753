"""The session store of both databases, bound to one user; every method is one short transaction."""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from msgspec.structs import asdict, replace

from wellkept.core.clock import from_epoch
from wellkept.core.errors import Unreadable
from wellkept.core.ids import MessageId, SessionId, UserId, new_session_id
from wellkept.core.messages import Link, NewMessage, Origin, Passage, Session, State, StoredMessage, Usage
from wellkept.core.ports import Compacting, EventSink, UnitOfWork
from wellkept.core.search import Found, SearchRequest
from wellkept.core.text import JSON
from wellkept.sessions.records import mark, number_of, parse, storable, text_of
from wellkept.sessions.rows import message_rows, session_rows
from wellkept.sessions.rows.database import Connection, Database, OpenStore
from wellkept.storage.connections import DamagedText

if TYPE_CHECKING:
    from wellkept.sessions.reports import UsageRow
    from wellkept.sessions.rows.forgetting import RowForgetting
    from wellkept.sessions.rows.receipts import RowReceipts
    from wellkept.sessions.rows.semantic import SemanticSearch
    from wellkept.sessions.search.postings import Similarity

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="RowStore")
_SHOWN = (State.ACTIVE, State.COMPACTED)


def retry_after_rebuild(act: "Callable[Concatenate[S, P], T]") -> "Callable[Concatenate[S, P], T]":
    """Rebuild a corrupt index and retry once."""

    @wraps(act)
    def retrying(store: "S", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return act(store, *args, **kwargs)
        except (Unreadable, UnicodeDecodeError):  # a damaged page may not even decode as text
            if not store.file.rebuild_damaged():
                raise
            return act(store, *args, **kwargs)

    return retrying


class RowStore:
    """Stores and finds the conversations of one user; implements `sessions.ports.Sessions` with its subclasses.

    They inherit because every rule is the same; what opens, indexes and searches differs.
    """

    file: OpenStore
    database: Database
    sink: EventSink
    """Receives the events of this user's sessions; the store reports to the sink that it was opened with."""
    user: UserId
    """The user of these sessions; sessions of other users do not exist for this store."""
    meaning: "SemanticSearch | None"
    """Semantic search; None without vectors."""

    @abstractmethod
    def for_user(self, user: UserId, *, sink: EventSink | None = None) -> "RowStore":
        """Return the sessions of a user in the same database; closing one closes all."""

    def users(self) -> list[UserId]:
        """Return every user who has a session in this database."""
        with self.database.reading() as connection:
            return [UserId(name) for (name,) in connection.execute(session_rows.SQL.users)]

    def close(self) -> None:
        """Tidy and close the database; a caller that shares it with others closes it there instead."""
        self.file.close()

    def unit(self) -> AbstractContextManager[UnitOfWork]:
        return cast(AbstractContextManager[UnitOfWork], self.database.writing())

    # sessions
    def create(self, session: Session, *, system_prompt: str | None = None) -> None:
        """Begin a session of this store's user; its id must be new in the whole file."""
        with self.file.writing() as connection:
            session_rows.create(connection, self.file.redaction.session(replace(session, user_id=self.user)))
            if system_prompt is not None:
                session_rows.set_prompt(connection, session.id, self.file.redaction.text(system_prompt))

    @retry_after_rebuild
    def session(self, session_id: SessionId) -> Session | None:
        with self.database.reading() as connection:
            return session_rows.find(connection, session_id, user=self.user)

    def resolve(self, name: str) -> SessionId:
        with self.database.reading() as connection:
            return session_rows.resolve(connection, name, user=self.user)

    @retry_after_rebuild
    def recent(
        self, *, limit: int, source: str | None = None, project: str | None = None, archived: bool = False
    ) -> list[Session]:
        with self.database.reading() as connection:
            return session_rows.read_recent(
                connection, user=self.user, limit=limit, source=source, project=project, archived=archived
            )

    def totals(self) -> tuple[int, int]:
        with self.database.reading() as connection:
            ((sessions, messages),) = connection.execute(session_rows.SQL.totals, (self.user,))
        return int(sessions), int(messages)

    def end(self, session_id: SessionId, reason: str) -> None:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            connection.execute(session_rows.SQL.end, (self.file.now(), reason, session_id))

    def reopen(self, session_id: SessionId) -> None:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            connection.execute(session_rows.SQL.reopen, (session_id,))

    def rename(self, session_id: SessionId, title: str) -> str:
        with self.file.writing() as connection:
            return session_rows.rename(connection, session_id, self.file.redaction.text(title), user=self.user)

    def system_prompt(self, session_id: SessionId) -> str | None:
        """Return the prompt that was stored when the session was first built."""
        with self.database.reading() as connection:
            session_rows.require(connection, session_id, user=self.user)
            return session_rows.read_prompt(connection, session_id)

    def set_system_prompt(self, session_id: SessionId, prompt: str) -> None:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            session_rows.set_prompt(connection, session_id, self.file.redaction.text(prompt))

    # messages
    @retry_after_rebuild
    def append(
        self, session_id: SessionId, messages: Sequence[NewMessage], *, unit: UnitOfWork | None = None
    ) -> list[MessageId]:
        safe = self.file.redaction.messages(messages)
        if self.meaning is not None:
            self.meaning.wake()
        with self.file.writing(unit, with_checksums=False) as connection:  # messages compute their own
            return message_rows.append(connection, session_id, safe, user=self.user)

    def set_sent_text(self, message_id: MessageId, text: str) -> None:
        """Store what a model is sent in place of a message."""
        with self.file.writing() as connection:
            message_rows.set_sent_text(connection, message_id, self.file.redaction.text(text), user=self.user)

    @retry_after_rebuild
    def messages(self, session_id: SessionId, *, states: Sequence[State] = _SHOWN) -> list[StoredMessage]:
        """Return the session's own messages in order; rewound ones never."""
        shown = [state for state in states if state is not State.REWOUND]
        with self.database.reading() as connection:
            session_rows.require(connection, session_id, user=self.user)
            return message_rows.read_session(connection, session_id, states=shown)

    @retry_after_rebuild
    def context(self, session_id: SessionId) -> list[StoredMessage]:
        """Return what the model would be sent: active messages, carried ones of the parent included."""
        with self.database.reading() as connection:
            session_rows.require(connection, session_id, user=self.user)
            carried, own = (
                message_rows.load(connection, connection.execute(statement, (session_id,)))
                for statement in (message_rows.SQL.carried, message_rows.SQL.own)
            )
        # a carried message is active here, whatever its state in its own session
        return [replace(message, state=State.ACTIVE) for message in carried] + own

    @retry_after_rebuild
    def window(self, message_id: MessageId, *, before: int, after: int) -> list[StoredMessage]:
        with self.database.reading() as connection:
            anchor = message_rows.find_message(connection, message_id, user=self.user)
            if anchor is None:
                raise message_rows.no_message(message_id)
            return message_rows.read_window(connection, anchor, before=before, after=after)

    @retry_after_rebuild
    def passage(self, message_id: MessageId, *, window: int, bookend: int = 0) -> Passage | None:
        with self.database.reading() as connection:
            return message_rows.read_passage(connection, message_id, user=self.user, window=window, bookend=bookend)

    @retry_after_rebuild
    def message(self, message_id: MessageId) -> StoredMessage | None:
        with self.database.reading() as connection:
            return message_rows.find_message(connection, message_id, user=self.user)

    def messages_by_id(self, message_ids: Sequence[MessageId]) -> list[StoredMessage]:
        """Return those messages that can be shown, in order of their ids, by one query."""
        with self.database.reading() as connection:
            return message_rows.find_messages(connection, message_ids, user=self.user)

    def hidden_because(self, message_id: MessageId) -> str | None:
        with self.database.reading() as connection:
            if not 0 <= message_id <= message_rows.NEWEST_ID:
                return None
            row = connection.execute(message_rows.SQL.hidden, (message_id, self.user)).fetchone()
        return None if row is None else "trashed" if row[0] is not None else "rewound"

    def edges(self, session_id: SessionId, *, first: int, last: int) -> tuple[list[StoredMessage], list[StoredMessage]]:
        with self.database.reading() as connection:
            if not self._has(connection, session_id):
                return [], []
            head = connection.execute(message_rows.SQL.after, (session_id, 0, first))
            messages = message_rows.load(connection, head)
            tail = list(connection.execute(message_rows.SQL.before, (session_id, message_rows.NEWEST_ID, last)))
            return messages, message_rows.load(connection, reversed(tail))

    def count_before(self, session_id: SessionId, message_id: MessageId) -> int:
        with self.database.reading() as connection:
            bindings = (session_id, message_id, self.user)
            (count,) = connection.execute(message_rows.SQL.count_before, bindings).fetchone() or (0,)
        return int(count)

    def context_ids(self, session_id: SessionId) -> list[MessageId]:
        with self.database.reading() as connection:
            context = message_rows.read_context_ids(connection, session_id) if self._has(connection, session_id) else ()
        return [number for number, _ in context]

    def preview(self, session_id: SessionId) -> str:
        with self.database.reading() as connection:
            has = self._has(connection, session_id)
            row = connection.execute(message_rows.SQL.preview, (session_id,)).fetchone() if has else None
        text = "" if row is None else str(row[0])
        return str(mark(text)) if row is not None and isinstance(row[0], DamagedText) else text

    def _has(self, connection: Connection, session_id: SessionId) -> bool:
        return session_rows.find(connection, session_id, user=self.user) is not None

    def rewind(self, session_id: SessionId, from_message: MessageId) -> int:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            return message_rows.rewind(connection, session_id, from_message, user=self.user)

    def restore_rewound(self, session_id: SessionId) -> int:
        """Bring back the newest rewound run; return how many."""
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            return message_rows.restore_rewound(connection, session_id)

    # lineage
    def branch(self, session_id: SessionId, *, at: MessageId | None, new: Session) -> None:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            carried = message_rows.read_context_up_to(connection, session_id, at, user=self.user)
            branch = replace(new, user_id=self.user, parent_session_id=session_id, link=Link.BRANCH)
            session_rows.create(connection, self.file.redaction.session(branch))
            message_rows.carry(connection, new.id, carried, own_from=max(carried, default=0))

    def tip(self, session_id: SessionId) -> SessionId:
        with self.database.reading() as connection:
            session_rows.require(connection, session_id, user=self.user)
            return message_rows.lineage(connection, user=self.user).tip(session_id)

    def compact(self, session_id: SessionId, compaction: Compacting, *, unit: UnitOfWork | None = None) -> SessionId:
        summary = NewMessage(compaction.summary, compaction.timestamp, Origin.SYNTHETIC, source=compaction.source)
        with self.file.writing(unit) as connection:
            parent = session_rows.require(connection, session_id, user=self.user)
            target = parent.id
            if not compaction.in_place:
                target = compaction.new_session_id or new_session_id(self.file.clock.now())
                session_rows.continue_as(connection, parent, target, started=compaction.timestamp)
            message_rows.mark_compacted(connection, parent.id, compaction.covered, user=self.user)
            (summary_id,) = message_rows.append(
                connection, target, [self.file.redaction.message(summary)], user=self.user
            )
            carried = [*compaction.kept_head, summary_id, *compaction.kept_tail]
            message_rows.carry(connection, target, carried, own_from=summary_id)
        return target

    # notes, usage, leases and nodes

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
        moment = self.file.clock.now() if when is None else from_epoch(when)
        with self.file.writing(unit) as connection:
            named = {
                "user": self.user,
                "session": session_id,
                "day": f"{moment:%Y-%m-%d}",
                "model": model,
                "task": task,
            }
            connection.execute(session_rows.SQL.add_usage, {**named, **asdict(usage), "cost": cost})

    def usage(self, *, session_id: SessionId | None = None, since: str = "") -> "list[UsageRow]":
        from wellkept.sessions.reports import UsageRow  # only usage needs the reports

        with self.database.reading() as connection:
            named = {"user": self.user, "session": session_id, "since": since}
            rows = connection.execute(session_rows.SQL.usage, named).fetchall()
        return [
            UsageRow(day, model, task, session, calls, Usage(sent, received, read, written), cost)
            for day, model, task, session, calls, sent, received, read, written, cost in rows
        ]

    def note(self, session_id: SessionId, key: str, value: JSON) -> None:
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            session_rows.write_note(connection, session_id, key, self.file.redaction.value(value))

    def read_note(self, session_id: SessionId, key: str) -> JSON:
        """Return the value that `note` stored, or None."""
        with self.database.reading() as connection:
            return session_rows.read_note(connection, session_id, key) if self._has(connection, session_id) else None

    def lease(self, name: str, *, holder: str, seconds: float) -> bool:
        """Take or renew a lease across processes; False when another holder has it."""
        with self.file.writing() as connection:
            return session_rows.take_lease(connection, name, holder=holder, now=self.file.now(), seconds=seconds)

    def release(self, name: str, *, holder: str) -> None:
        with self.file.writing() as connection:
            session_rows.release_lease(connection, name, holder=holder)

    def add_node(self, session_id: SessionId, *, depth: int, text: str, children: Sequence[int]) -> int:
        safe = self.file.redaction.text(text)
        with self.file.writing() as connection:
            session_rows.require(connection, session_id, user=self.user)
            bindings = (session_id, depth, storable(safe), json.dumps(list(children)), self.file.now())
            ((number,),) = connection.execute(session_rows.SQL.add_node, bindings).fetchall()
        return int(str(number))

    def nodes(self, session_id: SessionId) -> list[tuple[int, int, str, tuple[int, ...]]]:
        with self.database.reading() as connection:
            has = self._has(connection, session_id)
            rows = connection.execute(session_rows.SQL.nodes, (session_id,)).fetchall() if has else []
        return [
            (int(number_of(number)), int(number_of(depth)), text_of(text), tuple(children))
            for number, depth, text, json_text in rows
            if isinstance(children := parse(json_text), list)  # a damaged row can hold anything
        ]

    # search
    @abstractmethod
    def search(self, request: SearchRequest) -> Found:
        """Return ranked sessions and messages; no query raises."""

    def _embed(self, connection: Connection) -> "Callable[[str], Similarity | None] | None":
        meaning = self.meaning
        return None if meaning is None else lambda text: meaning.embed_question(connection, text)

    # parts, each loaded at its first use
    @cached_property
    def forgetting(self) -> "RowForgetting":
        from wellkept.sessions.rows.forgetting import RowForgetting

        return RowForgetting(self)

    @cached_property
    def receipts(self) -> "RowReceipts":
        from wellkept.sessions.rows.receipts import RowReceipts

        return RowReceipts(self)
