"""Capture of one transcript into sessions: each message once, in batches that are stored whole with the position."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.core.errors import Busy
from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.messages import Message, NewMessage, Origin, Role, StoredMessage
from wellkept.formats.port import Conversation, Item, Left, Position, Problem, Reading, Said, Spent, Withdrawn
from wellkept.imports.conversations import EVENT_PREFIX, Conversations
from wellkept.imports.record import Captures, Known, Tally, mark_of, words_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wellkept.core.ports import Clock, Database, UnitOfWork
    from wellkept.sessions.ports import Sessions
    from wellkept.storage.leases import Lease

BATCH_MESSAGES = 50
"""A batch is one transaction; with a deadline it is small, so that the deadline is kept."""
LARGE_BATCH_MESSAGES = 1_000
BATCH_CHARS = 1_000_000
_SAME_MOMENT_SECONDS = 2.0
_SAME_TURN_SECONDS = 600.0
_LAST_MESSAGES = 100
"""How many messages of a session are compared with the prompt of an event."""
_RELEASE_SECONDS = 0.25
"""How long to wait for a lease: another capture, which has committed, is about to release it."""
_NO_MESSAGE = MessageId(0)
_TELLING_CHARS = 40
"""Shorter texts ("continue") are said more than once, so only their time shows whether two are the same."""


class Purpose(Struct, frozen=True):
    """Why a capture runs: an event, or an import that can be undone."""

    import_number: int | None = None
    overwrite: bool = False
    """Whether a message that the source has changed replaces the stored one, wherever it is."""


class Capture:
    """Stores what readings yield; opened for one user and one client."""

    def __init__(
        self,
        store: Sessions,
        database: Database,
        client: str,
        *,
        clock: Clock,
        is_excluded: Callable[[str | None], bool],
        purpose: Purpose | None = None,
    ) -> None:
        self._store = store
        self.open_lease: Callable[[SessionId], Lease] | None = None
        """Opens the lease of a conversation in which agents may answer; None if there is none to respect."""
        self._leases: dict[SessionId, Lease] = {}
        self._database = database
        self._clock = clock
        self._is_excluded = is_excluded
        self.tally = Tally()
        self._purpose = purpose or Purpose()
        self.captures = Captures(store.user, client, self._purpose.import_number)
        imported = SourceName(f"import:{client}") if self._purpose.import_number is not None else None
        self._conversations = Conversations(store, self.captures, clock, imported=imported)
        self._may_be_copies = False
        self._identified: set[MessageId] = set()
        """Stored messages that the file holds under their own ids; another row of it is no copy of them."""
        self._seen: set[bytes] = set()
        """Keys of messages that a preview has counted."""
        self._excluded: set[str] = set()

    def run(self, reading: Reading, path: str, *, is_first: bool, deadline: float | None = None) -> bool:
        """Store everything up to the deadline, at least one batch; return whether the end was reached.

        `is_first` says that the path was never read before.
        """
        self._may_be_copies = reading.was_rewritten or is_first
        self._excluded.clear()
        self._identified.clear()
        self._conversations.begin_file()
        batch: list[Item] = []
        size = 0
        most = LARGE_BATCH_MESSAGES if deadline is None else BATCH_MESSAGES
        for item in reading:
            if self._leave_excluded(item):
                continue
            batch.append(item)
            size += len(item.message.text) if isinstance(item, Said) else 100
            if len(batch) >= most or size >= BATCH_CHARS:
                self._store_batch(batch, reading, path)
                batch, size = [], 0
                if deadline is not None and time.monotonic() >= deadline:
                    self.tally.waiting_bytes += reading.waiting_bytes()
                    return False
        self._store_batch(batch, reading, path)
        self.tally.waiting_bytes += reading.waiting_bytes()
        return True

    def read_position(self, path: str) -> Position:
        """Return where reading of a transcript stopped."""
        with self._database.reading() as unit:
            return self.captures.position(unit, path)

    def store_event(self, conversation: Conversation, items: Sequence[Said], turn: str, prompt: int) -> None:
        """Store the messages of a turn that an event gave, unless the turn is stored already."""
        if self._is_excluded(conversation.folder):
            self.tally.leave("excluded project")
            return
        external = conversation.external_id
        with self._write() as unit:
            if self.captures.has_turn(unit, external, turn) or self._holds_prompt(unit, external, items[0]):
                self.tally.known += len(items)
                return
            self._take(unit, [conversation, *items])
            known = self.captures.find_known(unit, [self.captures.key(item.external_id) for item in items])
            ids = sorted(number for number, _ in known.values())
            self.captures.write_turn(unit, external, turn, prompt=prompt, messages=ids)

    def _holds_prompt(self, unit: UnitOfWork, external: str, prompt: Said) -> bool:
        """Whether a transcript, which may use other turn ids, contained this prompt in the last minutes."""
        session = self.captures.session(unit, external)
        if session is None:
            return False
        mark = words_mark(self._conversations.redact(prompt.message).text)
        return any(
            one.message.role is Role.USER
            and not (one.external_id or "").startswith(EVENT_PREFIX)
            and abs(one.timestamp - prompt.timestamp) <= _SAME_TURN_SECONDS
            and words_mark(one.message.text) == mark
            for one in self._store.edges(session.session_id, first=0, last=_LAST_MESSAGES)[1]
        )

    def _leave_excluded(self, item: Item) -> bool:
        """Whether an item belongs to a conversation in an excluded project."""
        if isinstance(item, Conversation):
            is_new = item.external_id not in self._excluded
            if is_new and self._is_excluded(item.folder):
                self._excluded.add(item.external_id)
                self.tally.leave("excluded project")
            return item.external_id in self._excluded
        return not isinstance(item, Left | Problem) and item.conversation in self._excluded

    def _store_batch(self, batch: Sequence[Item], reading: Reading, path: str) -> None:
        before = self.captures.position
        with self._write() as unit:
            self._take(unit, batch)
            position = reading.position()
            # messages that were left out for a temporary reason are read again later
            if not self._excluded and not self._conversations.has_trashed and (batch or before(unit, path) != position):
                now, waiting = self._clock.now().timestamp(), reading.waiting_bytes()
                self.captures.save_position(unit, path, position, waiting=waiting, now=now)

    @contextmanager
    def _write(self) -> Iterator[UnitOfWork]:
        """Open a transaction; the leases that it takes are held until it has committed."""
        try:
            with self._database.writing() as unit:
                yield unit
        finally:
            for lease in self._leases.values():
                lease.release()
            self._leases.clear()

    def _hold_lease(self, session_id: SessionId) -> None:
        """Raise Busy while an agent answers in a session, so that its turn is not divided."""
        if self.open_lease is None or session_id in self._leases:
            return
        lease, deadline = self.open_lease(session_id), time.monotonic() + _RELEASE_SECONDS
        while not lease.take():
            if time.monotonic() > deadline:
                raise Busy("another process is answering in this conversation", "what is captured is stored after that")
            time.sleep(_RELEASE_SECONDS / 50)
        self._leases[session_id] = lease

    def _take(self, unit: UnitOfWork, batch: Sequence[Item]) -> None:
        known = self.captures.find_known(unit, [key for item in batch for key in self.keys_of(item)])
        self._identified.update(message_id for message_id, _ in known.values())
        for item in batch:
            self.tally.note(item)
        # neighbouring messages of one conversation are stored together
        stored = (item for item in batch if not isinstance(item, Left | Problem))
        for conversation, items in groupby(stored, _belongs_to):
            self._take_run(unit, conversation, list(items), known)
        self._conversations.update(unit)
        self._count(unit, [item for item in batch if isinstance(item, Spent)], known)

    def _take_run(
        self,
        unit: UnitOfWork,
        conversation: str,
        items: Sequence[Conversation | Said | Withdrawn | Spent],
        known: Known,
    ) -> None:
        for item in items:
            if isinstance(item, Conversation):
                self._conversations.note_facts(item)
        for is_withdrawal, part in groupby(items, lambda item: isinstance(item, Withdrawn)):
            if is_withdrawal:
                self._withdraw(unit, [item for item in part if isinstance(item, Withdrawn)], known)
            else:
                self._append(unit, conversation, [item for item in part if isinstance(item, Said)], known)

    def keys_of(self, item: Item) -> list[bytes]:
        """Return the key under which an item is remembered; facts have none."""
        match item:
            case Said():
                return [self.captures.key(item.external_id)]
            case Withdrawn():
                return [self.captures.key(f"undo:{item.external_id}")]
            case Spent():
                return [self.captures.key(f"usage:{item.external_id}")]
            case _:
                return []

    # messages

    def _append(self, unit: UnitOfWork, external: str, run: Sequence[Said], known: Known) -> None:
        """Store the messages of one conversation that are not stored yet."""
        if not run:
            return
        fresh = self._choose_fresh(unit, run, known)
        opened = self._conversations.open(unit, external, fresh)
        if opened is None:
            self.tally.leave("removed here", len(fresh))
            return
        if opened.adopted:
            known.update(opened.adopted)
            fresh = [item for item in fresh if self.captures.key(item.external_id) not in known]
        if opened.is_new:
            self.tally.created.add(opened.session_id)
        elif self._may_be_copies and opened.may_hold_copies and fresh:
            fresh = self._leave_copies(unit, opened.session_id, fresh)
        self.tally.sessions.pop(opened.session_id, None)
        self.tally.sessions[opened.session_id] = None
        if fresh:
            self.tally.grown.add(opened.session_id)
            if not opened.is_new:
                self._hold_lease(opened.session_id)
            self._replace_event_turns(unit, external, fresh)
            self._insert(unit, opened.session_id, fresh, known)
            self.captures.touch_session(unit, external, now=self._clock.now().timestamp())

    def _choose_fresh(self, unit: UnitOfWork, run: Sequence[Said], known: Known) -> list[Said]:
        """Return the messages that must be stored: new ones, and those that have grown since they were stored."""
        fresh: dict[bytes, Said] = {}
        for item in run:
            key = self.captures.key(item.external_id)
            stored = known.get(key)
            if stored is None:
                fresh[key] = item  # of two rows with the same id, the later one is complete
            elif stored[1] != mark_of(item.message) and self._replace(unit, stored[0], item):
                known[key] = (stored[0], mark_of(item.message))
                self.captures.remember(unit, key, *known[key])
            else:
                self.tally.known += 1
                if not fresh:  # the messages that a branch shares with others precede its new ones
                    self._conversations.note_shared(item.conversation, stored[0])
        return list(fresh.values())

    def _replace(self, unit: UnitOfWork, message_id: MessageId, item: Said) -> bool:
        """Give a stored message the content that the source has now: if it has grown, or is still the newest.

        An earlier stage of the message, from an older copy of the file, changes nothing. Anything else may be the copy
        of a fork, so it is reported and stays, unless everything is overwritten.
        """
        stored = self._store.message(message_id)
        if stored is None:
            return False  # it was removed here, so it must not come back
        new = self._conversations.redact(item.message)
        if _is_stage(new, of=stored.message) and not self._purpose.overwrite:
            return False
        _, last = self._store.edges(stored.session_id, first=0, last=1)
        if not (_is_stage(stored.message, of=new) or last[0].id == message_id or self._purpose.overwrite):
            self.tally.conflicts.append((item.conversation, f"message {item.external_id} was changed in the source"))
            return False
        self._store.transfer.overwrite(message_id, self._as_new(item, stored.source), unit=unit)
        self.tally.replaced += 1
        self.tally.grown.add(stored.session_id)
        return True

    def _insert(self, unit: UnitOfWork, session_id: SessionId, fresh: Sequence[Said], known: Known) -> None:
        sources = self._conversations.find_sources(session_id, fresh)
        new = [self._as_new(item, source) for item, source in zip(fresh, sources, strict=True)]
        ids = self._store.append(session_id, new, unit=unit)
        for number, item in zip(ids, fresh, strict=True):
            key, mark = self.captures.key(item.external_id), mark_of(item.message)
            self.captures.remember(unit, key, number, mark)
            known[key] = (number, mark)
            self.tally.count(item)
            if item.turn is not None and item.origin is Origin.PERSON:
                prompt = words_mark(item.message.text)
                self.captures.write_turn(unit, item.conversation, item.turn, prompt=prompt, messages=())

    def _as_new(self, item: Said, source: SourceName | None) -> NewMessage:
        moment = item.timestamp or self._clock.now().timestamp()
        return NewMessage(
            item.message, moment, item.origin, token_count=item.token_count, external_id=item.external_id, source=source
        )

    def _leave_copies(self, unit: UnitOfWork, session_id: SessionId, fresh: Sequence[Said]) -> list[Said]:
        """Leave out messages that the session holds under other ids: the file was rewritten or converted."""
        stored = self._conversations.contents(session_id)
        left: list[Said] = []
        for item in fresh:
            redacted = self._conversations.redact(item.message)
            twins = stored.get(mark_of(redacted), [])
            twin = next((one for one in twins if one.id not in self._identified and _may_be_copy(item, one)), None)
            if twin is None:
                left.append(item)
                continue
            twins.remove(twin)
            key, mark = self.captures.key(item.external_id), mark_of(item.message)
            self.captures.remember(unit, key, twin.id, mark, is_own=False)
            self.tally.known += 1
        return left

    def _replace_event_turns(self, unit: UnitOfWork, external: str, fresh: Sequence[Said]) -> None:
        """Remove the texts of events whose turn the transcript now gives."""
        turns = self.captures.event_turns(unit, external)
        for item in fresh if turns else ():
            if item.message.role is not Role.USER or item.origin is not Origin.PERSON:
                continue
            prompt = words_mark(item.message.text)
            twin = next((turn for turn in turns if turn.turn == item.turn or turn.prompt == prompt), None)
            if twin is not None:
                turns.remove(twin)
                self._store.transfer.drop_messages(twin.messages, unit=unit)
                self.captures.write_turn(unit, external, twin.turn, prompt=twin.prompt, messages=())
                self.tally.replaced += len(twin.messages)
                self.tally.added -= len(twin.messages)

    # everything besides messages

    def _withdraw(self, unit: UnitOfWork, items: Sequence[Withdrawn], known: Known) -> None:
        """Rewind the turns that a person withdrew, once per withdrawal."""
        for item in items:
            key = self.captures.key(f"undo:{item.external_id}")
            session = self.captures.session(unit, item.conversation)
            if key in known or session is None or self._store.session(session.session_id) is None:
                continue
            said = [one for one in self._store.context(session.session_id) if one.origin is Origin.PERSON]
            first = said[-min(item.turns, len(said))].id if said else _NO_MESSAGE
            if said:
                self._store.rewind(session.session_id, first)
            # with the first message, so that an undone import that brings it again rewinds it again
            self._remember_once(unit, key, known, MessageId(-first))

    def _remember_once(self, unit: UnitOfWork, key: bytes, known: Known, message: MessageId = _NO_MESSAGE) -> None:
        """Record something other than a message, so that it is not done again."""
        self.captures.remember(unit, key, message, 0)
        known[key] = (message, 0)

    def _count(self, unit: UnitOfWork, items: Sequence[Spent], known: Known) -> None:
        """Count each model call once, under the session of its conversation."""
        sessions = {name: self.captures.session(unit, name) for name in {item.conversation for item in items}}
        for item in items:
            key = self.captures.key(f"usage:{item.external_id}")
            session = sessions[item.conversation]
            if key in known or session is None:
                continue
            self._store.add_usage(
                session.session_id,
                task=self.captures.client,
                model=item.model,
                usage=item.usage,
                cost=None,
                when=item.timestamp,
                unit=unit,
            )
            self.captures.count_usage(unit, session.session_id, item)
            self._remember_once(unit, key, known)


class Preview(Capture):
    """Counts what a capture would store, and stores nothing."""

    def _store_batch(self, batch: Sequence[Item], reading: Reading, path: str) -> None:
        del reading, path
        with self._database.reading() as unit:
            known = self.captures.find_known(unit, [key for item in batch for key in self.keys_of(item)])
            for item in batch:
                self.tally.note(item)
                if isinstance(item, Said):
                    self._weigh(unit, item, known)

    def _weigh(self, unit: UnitOfWork, item: Said, known: Known) -> None:
        key = self.captures.key(item.external_id)
        session = self.captures.session(unit, item.conversation)
        session_id = SessionId(item.conversation) if session is None else session.session_id
        if key in known or key in self._seen:
            self.tally.known += 1
            if session is not None:
                self.tally.sessions[session_id] = None
            return
        self._seen.add(key)
        self.tally.sessions[session_id] = None
        self.tally.count(item)
        self.tally.grown.add(session_id)
        if session is None:
            self.tally.created.add(session_id)


def _is_stage(message: Message, *, of: Message) -> bool:
    """Whether a message is what another one was while it was being written: its beginning, with its first calls."""
    calls = of.tool_calls[: len(message.tool_calls)]
    return message.role is of.role and of.text.startswith(message.text) and message.tool_calls == calls


def _may_be_copy(item: Said, stored: StoredMessage) -> bool:
    """Whether a message with the content of a stored one may be the same: said then, or too long to be said twice.

    Tools give the same answer to many calls, so results of different calls are the same only if they came then.
    """
    if abs(item.timestamp - stored.timestamp) <= _SAME_MOMENT_SECONDS:
        return True
    is_of_same_call = item.message.tool_call_id == stored.message.tool_call_id
    return is_of_same_call and len(item.message.text) >= _TELLING_CHARS


def _belongs_to(item: Conversation | Said | Withdrawn | Spent) -> str:
    """Return the conversation of an item."""
    return item.external_id if isinstance(item, Conversation) else item.conversation
