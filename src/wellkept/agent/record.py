"""The record of a conversation, in memory and (as soon as it can be written) in the store."""

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.context.engine import Compaction
from wellkept.core.errors import NotFound, StorageError
from wellkept.core.events import Warned
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session, StoredMessage
from wellkept.core.ports import EventSink, SessionStore, UnitOfWork
from wellkept.core.provenance import find_loaded_skill, find_recalling_provider, least_trusted
from wellkept.core.text import JSON
from wellkept.security.fence import split_blocks
from wellkept.security.taint import Context, ContextReader, Surroundings

log = logging.getLogger(__name__)

InTransaction = Callable[[UnitOfWork, Sequence[MessageId]], None]
"""Writes what must commit together with new messages; it gets the transaction and their ids."""


class Record(Struct):
    """The messages of the context, each with its stored id, or a negative id until it is stored.

    A store that fails (full disk, lock, damage) never ends the chat: messages stay in memory and are
    stored in order as soon as writing works again.
    """

    session: Session
    store: SessionStore | None
    sink: EventSink
    prompt: str | None = None
    rows: list[StoredMessage] = field(default_factory=list)
    surroundings: Surroundings = field(default_factory=Surroundings)
    """The texts of others that are in the prompt."""
    pruning: JSON = None
    """The pruning mark of the session; see `context.outcome.Pruned`."""
    exists: bool = False
    trouble: str = ""
    _waiting: list[NewMessage] = field(default_factory=list)
    _attached: list[tuple[int, InTransaction]] = field(default_factory=list)
    """Writes that commit together with unstored messages, each with how many of those come before it."""
    _read: tuple[list[StoredMessage], int, ContextReader | None] = field(default_factory=lambda: ([], 0, None))
    """The list of rows, how many of them were read, and the context that they make."""

    def read_context(self) -> Context:
        """Return what the model has in its context: texts of sources, and the person's words."""
        rows, count, reader = self._read
        # a compaction or an undo creates a new list; otherwise rows are only added
        if reader is None or rows is not self.rows:
            count, reader = 0, ContextReader(surroundings=self.surroundings)
        for row in self.rows[count:]:
            for piece, fenced in split_blocks((row.api_content or "").removeprefix(row.message.text)):
                source = find_recalling_provider(piece) if fenced else find_loaded_skill(piece)
                if source is not None:
                    reader.take(source, piece, is_person=False)
            is_person = row.origin.is_person(row.message.role)
            reader.take(row.source, row.message.text, is_person=is_person, is_whole=is_person or not row.message.images)
        self._read = (self.rows, len(self.rows), reader)
        return reader.context()

    def set_surroundings(self, surroundings: Surroundings) -> None:
        """Replace the texts of others that are in the prompt."""
        self.surroundings, self._read = surroundings, ([], 0, None)

    @property
    def ids(self) -> tuple[int, ...]:
        """Return the ids of the messages in the context."""
        return tuple(row.id for row in self.rows if row.id > 0)

    def list_whole_turns(self) -> list[Message]:
        """Return the messages of the context without those of interrupted turns."""
        turns: list[list[StoredMessage]] = [[]]
        for row in self.rows:
            if row.message.role is Role.USER:
                turns.append([])
            turns[-1].append(row)
        return [row.message for rows in turns if not any(row.interrupted for row in rows) for row in rows]

    def add(self, messages: Sequence[NewMessage], *, in_transaction: InTransaction | None = None) -> None:
        """Add messages; `in_transaction` writes what must commit together with them, even if that happens later."""
        for new in messages:
            self.rows.append(_row(self.session, new, MessageId(-len(self.rows) - 1)))
        if self.store is None:
            return
        self._waiting.extend(messages)
        if in_transaction is not None:
            self._attached.append((len(self._waiting), in_transaction))
        try:
            ids = self._store()
        except StorageError as error:
            self._warn(error)
            return
        if self.trouble:
            self.trouble = ""
            self.sink(Warned("writing works again: the whole conversation is stored"))
        for index, message_id in enumerate(ids, start=len(self.rows) - len(ids)):
            self.rows[index] = replace(self.rows[index], id=message_id)

    def set_sent_text(self, text: str) -> None:
        """Set the text sent to the model in place of the newest message, in memory and in the store."""
        row = self.rows[-1]
        self.rows[-1] = replace(row, api_content=text)
        if self._read[1] >= len(self.rows):
            self._read = ([], 0, None)
        if self._waiting:
            self._waiting[-1] = replace(self._waiting[-1], api_content=text)
        elif self.store is not None and row.id > 0:
            try:
                self.store.set_sent_text(row.id, text)
            except (StorageError, NotFound) as error:
                log.warning("recalled text not stored: %s", error)

    def retry(self) -> None:
        """Store unstored messages, if writing works by now; called at the end of a conversation."""
        if self._waiting:
            self.add(())

    def _store(self) -> list[MessageId]:
        assert self.store is not None
        with self.store.unit() as unit:
            # after a failure the session may exist: a commit may have succeeded although its answer was lost
            if not self.exists and not (self.trouble and self.store.session(self.session.id)):
                self.store.create(self.session, system_prompt=self.prompt)
            self._follow_tip()
            stored_ids = self._find_stored() if self.trouble else []
            ids = [*stored_ids, *self.store.append(self.session.id, self._waiting[len(stored_ids) :], unit=unit)]
            for end, write in self._attached:
                if end > len(stored_ids):  # writes of stored messages were committed with them
                    write(unit, ids[:end])
        self.exists = True
        self._waiting.clear()
        self._attached.clear()
        return ids

    def _find_stored(self) -> list[MessageId]:
        """Return the ids of messages that are already stored: a commit may succeed although its answer is lost."""
        assert self.store is not None
        newest = max((row.id for row in self.rows), default=MessageId(0))
        rows = (row for row in self.store.context(self.session.id) if row.id > newest)
        stored = {(row.message.role, row.timestamp): row.id for row in rows}
        ids: list[MessageId] = []
        for new in self._waiting:
            number = stored.get((new.message.role, new.timestamp))
            if number is None:
                break
            ids.append(number)
        return ids

    def _follow_tip(self) -> None:
        """Switch to the session another process has compacted to; messages not yet stored stay at the end."""
        assert self.store is not None
        if self.store.tip(self.session.id) != self.session.id:
            unstored = self.rows[len(self.rows) - len(self._waiting) :]
            self._switch_to(self.store.tip(self.session.id))
            self.rows += unstored

    def _warn(self, error: StorageError) -> None:
        is_known, self.trouble = self.trouble == error.message, error.message
        if is_known:  # the user was warned when it began, and the chat repeats it after each turn
            return
        log.warning("turn not stored: %s", error.message)
        self.sink(Warned(f"this conversation is not being stored: {error.message}", error.remedy))

    def apply_compaction(self, compaction: Compaction) -> None:
        """Replace the covered messages by their summary, in memory and in the store."""
        by_id = {row.id: row for row in self.rows}
        covered = (by_id[number].source for number in compaction.covered if number in by_id)
        compaction = replace(compaction, source=least_trusted(covered))
        session_id = compaction.new_session_id or self.session.id
        if self.store is not None and self.exists and not self.trouble:
            with self.store.unit() as unit:
                late = [row.id for row in self.store.context(self.session.id) if row.id not in by_id]
                self.store.compact(self.session.id, self._keep_late_messages(compaction, late), unit=unit)
            self.rows = self._prefer_originals(self.store.context(session_id), by_id)
            return
        new = NewMessage(compaction.summary, compaction.timestamp, Origin.SYNTHETIC, source=compaction.source)
        # far below the negative ids of messages that are not stored yet, so that they cannot collide
        summary = _row(self.session, new, MessageId(-len(self.rows) - 1_000_000))
        head, tail = (
            [by_id[message_id] for message_id in kept] for kept in (compaction.kept_head, compaction.kept_tail)
        )
        self.rows = [*head, summary, *tail]

    def _keep_late_messages(self, compaction: Compaction, late: Sequence[MessageId]) -> Compaction:
        """Add messages that other processes stored meanwhile to the tail, before a question that is still open."""
        if not late:
            return compaction
        last = self.rows[-1].message
        is_open = last.role is not Role.ASSISTANT or bool(last.tool_calls)
        question = next((row.id for row in reversed(self.rows) if row.message.role is Role.USER), None)
        tail = list(compaction.kept_tail)
        index = tail.index(question) if is_open and question in tail else len(tail)
        return replace(compaction, kept_tail=(*tail[:index], *late, *tail[index:]))

    def catch_up(self) -> bool:
        """Switch to the context that another process compacted; return False when none has."""
        if self.store is None or not self.exists or self.trouble:
            return False
        tip = self.store.tip(self.session.id)
        stored_ids = {row.id for row in self.store.context(tip)}
        if tip == self.session.id and all(row.id in stored_ids for row in self.rows):
            return False
        self._switch_to(tip)
        return True

    def _switch_to(self, tip: SessionId) -> None:
        assert self.store is not None
        self.session = self.store.session(tip) or self.session
        self.prompt = self.store.system_prompt(tip)
        self.pruning = self.read_note(tip, "pruned")
        self.rows = self._prefer_originals(self.store.context(tip), {row.id: row for row in self.rows})

    @staticmethod
    def _prefer_originals(
        rows: Sequence[StoredMessage], by_id: Mapping[MessageId, StoredMessage]
    ) -> list[StoredMessage]:
        """Prefer the rows in memory: the store redacts credentials, and the prompt prefix must not change."""
        return [by_id.get(row.id, row) for row in rows]

    def note(self, session_id: SessionId, key: str, value: JSON) -> None:
        """Store a small value with a session, best effort."""
        if self.store is None or not self.exists:
            return
        for is_last in (False, True):  # the next message refers to it, and many failures pass
            try:
                self.store.note(session_id, key, value)
            except (StorageError, NotFound) as error:
                if is_last:
                    log.warning("note %s not stored: %s", key, error)
            else:
                return

    def read_note(self, session_id: SessionId, key: str) -> JSON:
        """Return a stored value, or None."""
        if self.store is None or not self.exists:
            return None
        try:
            return self.store.read_note(session_id, key)
        except (StorageError, NotFound):
            return None

    def set_prompt(self, prompt: str) -> None:
        """Set and store the prompt that the session reuses from now on."""
        self.prompt = prompt
        if self.store is not None and self.exists:
            try:
                self.store.set_system_prompt(self.session.id, prompt)
            except (StorageError, NotFound) as error:
                log.warning("prompt not stored: %s", error)


def _row(session: Session, new: NewMessage, message_id: MessageId) -> StoredMessage:
    return StoredMessage(
        id=message_id,
        session_id=session.id,
        message=new.message,
        timestamp=new.timestamp,
        origin=new.origin,
        api_content=new.api_content,
        token_count=new.token_count,
        external_id=new.external_id,
        interrupted=new.interrupted,
        source=new.source,
    )
