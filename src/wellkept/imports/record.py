"""The records of captures and imports: what was stored from which transcript, and what else each import created."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from wellkept.core.clock import from_epoch, iso_moment
from wellkept.core.ids import MessageId, SessionId, UserId, blake2b
from wellkept.core.messages import Message, Usage
from wellkept.core.text import JSON, dumps
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wellkept.core.ports import UnitOfWork
    from wellkept.formats.port import Item, Position, Said, Spent
    from wellkept.sessions.reports import UsageRow

SQL = statements("wellkept.imports", "record.sql")
_MOST_KINDS = 100
Known: TypeAlias = dict[bytes, tuple[MessageId, int]]
"""The stored message and the mark of each key."""


def mark_of(message: Message) -> int:
    """Return 32 bits of a hash of a message's content: enough to notice a change, too few to guess a secret from."""
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    whole = f"{message.role.value}\0{message.text}\0{calls}"
    return int.from_bytes(_digest(whole, 4), "big")


def _digest(text: str, size: int) -> bytes:

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()


@lru_cache(maxsize=4_096)
def _key(user: UserId, client: str, external_id: str) -> bytes:
    return _digest(f"{user}\0{client}\0{external_id}", 12)  # cached: it is needed three times per message


def _first(rows: Iterable[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    return next(iter(rows), None)


def words_mark(text: str) -> int:
    """Return 32 bits of a hash of a prompt, regardless of white space."""
    return int.from_bytes(_digest(" ".join(text.split()), 4), "big")


class KnownSession(Struct, frozen=True):
    """The session of a conversation elsewhere, with the last title that it had there."""

    session_id: SessionId
    title: str | None


class EventTurn(Struct, frozen=True):
    """A turn that is stored from the texts of an event, until a transcript has it."""

    turn: str
    prompt: int
    messages: tuple[MessageId, ...]


class Tally(Struct):
    """What a capture did so far."""

    sessions: dict[SessionId, None] = field(default_factory=dict)
    """The sessions that the transcripts belong to, the newest last."""
    created: set[SessionId] = field(default_factory=set)
    grown: set[SessionId] = field(default_factory=set)
    """The sessions that got new messages."""
    added: int = 0
    replaced: int = 0
    known: int = 0
    conflicts: list[tuple[str, str]] = field(default_factory=list)
    """Messages that the source changed after they were stored, and that stay as they are."""
    left: dict[str, int] = field(default_factory=dict)
    """How many rows were left out, by reason."""
    unknown: dict[str, int] = field(default_factory=dict)
    """How many parts of transcripts no reader knows, by kind; the first hundred kinds."""
    roles: dict[str, int] = field(default_factory=dict)
    """How many messages were added, by role."""
    tool_calls: int = 0
    waiting_bytes: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    """What the readers could not read: where, and why."""

    def count(self, item: Said) -> None:
        """Count a message that was added."""
        role = item.message.role.value
        self.added += 1
        self.roles[role] = self.roles.get(role, 0) + 1
        self.tool_calls += len(item.message.tool_calls)

    def note(self, item: Item) -> None:
        """Count what a reader left out, and keep its problems."""
        from wellkept.formats.port import Left, Problem

        if isinstance(item, Left):
            self.leave(item.why)
            if item.kind and (item.kind in self.unknown or len(self.unknown) < _MOST_KINDS):
                self.unknown[item.kind] = self.unknown.get(item.kind, 0) + 1
        elif isinstance(item, Problem):
            self.problems.append((item.where, item.what))

    def leave(self, why: str, count: int = 1) -> None:
        """Count something that was left out."""
        if count:
            self.left[why] = self.left.get(why, 0) + count


def list_clients(unit: UnitOfWork, user: UserId) -> list[str]:
    """Return the clients whose transcripts were read for a user."""
    return [str(row[0]) for row in unit.execute(SQL.clients, {"user": user})]


def find_sessions(unit: UnitOfWork, user: UserId) -> dict[tuple[str, str], str]:
    """Return the sessions that stand for conversations elsewhere, by client and id there."""
    return {
        (str(client), str(external)): str(row[0])
        for client, external, *row in unit.execute(SQL.of_user, {"user": user})
    }


def copy_captures(source: UnitOfWork, target: UnitOfWork, user: UserId, ids: Mapping[int, int]) -> None:
    """Copy the record of what a backup had captured, so that an import does not store it again.

    `ids` gives the ids here of the messages that were restored.
    """
    for client, external, session_id, title, captured in source.execute(SQL.of_user, {"user": user}):
        bindings = {"user": user, "client": client, "external": external, "session": session_id}
        target.execute(SQL.take_session, {**bindings, "title": title, "now": captured})
    for key, message_id, mark in source.execute(SQL.messages_of_user, {"user": user}):
        if int(str(message_id)) in ids:
            target.execute(SQL.take_message, (key, ids[int(str(message_id))], mark))


class Captures:
    """What one user has captured from one client; every call takes the open unit of work."""

    def __init__(self, user: UserId, client: str, import_number: int | None = None) -> None:
        self._user = user
        self.client = client
        self.import_number = import_number
        """The import that what is stored now belongs to; None for captures of events."""

    def _scope(self, **more: object) -> dict[str, Any]:
        return {"user": self._user, "client": self.client, **more}

    def key(self, external_id: str) -> bytes:
        """Return the key of a message: unique by user, client and external id."""
        return _key(self._user, self.client, external_id)

    def find_known(self, unit: UnitOfWork, keys: Iterable[bytes]) -> Known:
        """Return the stored message and the mark of each key that is known."""
        listed = dumps([key.hex() for key in keys])
        rows: Iterable[tuple[Any, ...]] = unit.execute(SQL.known, (listed,))
        return {key: (MessageId(number), mark) for key, number, mark in rows}

    def remember(self, unit: UnitOfWork, key: bytes, message_id: int, mark: int, *, is_own: bool = True) -> None:
        """Store the message and the mark of a key; one that was here before does not belong to the import."""
        unit.execute(SQL.remember, (key, message_id, mark, self.import_number if is_own else None))

    def session(self, unit: UnitOfWork, external_id: str) -> KnownSession | None:
        """Return the session of a conversation, or None."""
        row = _first(unit.execute(SQL.session, self._scope(external=external_id)))
        return None if row is None else KnownSession(SessionId(row[0]), row[1])

    def add_session(  # noqa: PLR0913 # the columns of a row
        self,
        unit: UnitOfWork,
        external_id: str,
        session_id: SessionId,
        *,
        waits_for: str | None,
        title: str | None,
        now: float,
        is_own: bool = True,
    ) -> list[SessionId]:
        """Store the session of a conversation; return the sessions that waited for it as their parent.

        A session that was here before does not belong to the import, so an undo leaves it.
        """
        bindings = self._scope(
            external=external_id, session=session_id, waits_for=waits_for, title=title, now=now,
            **{"import": self.import_number if is_own else None},
        )  # fmt: skip
        unit.execute(SQL.add_session, bindings)
        waiting = unit.execute(SQL.waiting_children, self._scope(external=external_id))
        return [SessionId(str(row[0])) for row in waiting]

    def count_usage(self, unit: UnitOfWork, session_id: SessionId, spent: Spent) -> None:
        """Record a model call that an import counted, so that an undo can subtract it."""
        if self.import_number is None:
            return
        usage = spent.usage
        tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        day = f"{from_epoch(spent.timestamp):%Y-%m-%d}"
        unit.execute(SQL.count_usage, (self.import_number, session_id, day, spent.model, self.client, *tokens))

    def set_title(self, unit: UnitOfWork, external_id: str, title: str) -> None:
        """Store the last title that the source gave."""
        unit.execute(SQL.set_title, self._scope(external=external_id, title=title))

    def touch_session(self, unit: UnitOfWork, external_id: str, *, now: float) -> None:
        """Store when something of the conversation was last captured."""
        unit.execute(SQL.touch_session, self._scope(external=external_id, now=now))

    def event_turns(self, unit: UnitOfWork, external_id: str) -> list[EventTurn]:
        """Return the turns of a conversation that only events gave so far."""
        found: Iterable[tuple[Any, ...]] = unit.execute(SQL.turns, self._scope(external=external_id))
        return [
            EventTurn(turn, prompt, tuple(MessageId(number) for number in json.loads(ids)))
            for turn, prompt, ids in found
        ]

    def has_turn(self, unit: UnitOfWork, external_id: str, turn: str) -> bool:
        """Whether the turn is stored, from an event or a transcript."""
        return _first(unit.execute(SQL.turn, self._scope(external=external_id, turn=turn))) is not None

    def write_turn(
        self, unit: UnitOfWork, external_id: str, turn: str, *, prompt: int, messages: Sequence[MessageId]
    ) -> None:
        """Store a turn with the messages that an event gave; none if they came from a transcript."""
        ids = dumps([int(number) for number in messages])
        unit.execute(SQL.write_turn, self._scope(external=external_id, turn=turn, prompt=prompt, messages=ids))

    def position(self, unit: UnitOfWork, path: str) -> Position:
        """Return where reading of a transcript stopped."""
        from wellkept.formats.port import START, Position

        row = _first(unit.execute(SQL.position, self._scope(path=path)))
        return START if row is None else Position(row[0], row[1], json.loads(row[2]))

    def read_times(self, unit: UnitOfWork) -> dict[str, float]:
        """Return when each transcript was last read."""
        return {str(path): float(str(moment)) for path, moment in unit.execute(SQL.read_times, self._scope())}

    def save_position(self, unit: UnitOfWork, path: str, position: Position, *, waiting: int, now: float) -> None:
        """Store where reading of a transcript stopped, and how many bytes wait."""
        bindings = self._scope(
            path=path, position=position.offset, check=position.check, state=dumps(position.state), waiting=waiting,
            now=now,
        )  # fmt: skip
        unit.execute(SQL.save_position, bindings)


class ImportRun(Struct, frozen=True):
    """One import of one source."""

    number: int
    id: str
    source: str
    started: float
    finished: float | None
    undone: float | None
    counts: Mapping[str, JSON]
    folder: str | None

    def as_json(self) -> dict[str, JSON]:
        """Return it as `kept import list --json` prints it."""
        return {
            "import_id": self.id,
            "source": self.source,
            "started": iso_moment(self.started),
            "finished": iso_moment(self.finished),
            "undone": iso_moment(self.undone),
            **self.counts,
            "folder": self.folder,
        }


class Part(Struct, frozen=True):
    """One thing that an import brought: an entry of a memory file, or a whole skill, setting or document."""

    kind: str
    name: str
    part: int
    mark: str
    """A short hash of the content as it was imported."""
    state: str
    place: str = ""
    import_number: int = 0


class Journal:
    """The imports of one user; every call takes the open unit of work."""

    def __init__(self, user: UserId) -> None:
        self._user = user

    def begin(self, unit: UnitOfWork, import_id: str, source: str, *, now: float) -> int:
        """Record that an import begins; return its number."""
        bindings = {"id": import_id, "user": self._user, "source": source, "now": now}
        return next(int(row[0]) for row in _rows(unit.execute(SQL.begin, bindings)))

    def finish(
        self, unit: UnitOfWork, number: int, *, counts: Mapping[str, JSON], folder: str | None, now: float
    ) -> None:
        """Record what an import did."""
        unit.execute(SQL.finish, {"number": number, "counts": dumps(counts), "folder": folder, "now": now})

    def discard(self, unit: UnitOfWork, number: int) -> None:
        """Remove an import that stored nothing."""
        unit.execute(SQL.discard, {"number": number})

    def runs(self, unit: UnitOfWork) -> list[ImportRun]:
        """Return all imports, the newest first."""
        found = _rows(unit.execute(SQL.imports, {"user": self._user}))
        return [
            ImportRun(number, key, source, started, finished, undone, json.loads(counts), folder)
            for number, key, source, started, finished, undone, counts, folder in found
        ]

    def set_undone(self, unit: UnitOfWork, number: int, *, now: float) -> None:
        """Record that an import was undone."""
        unit.execute(SQL.set_undone, {"number": number, "now": now})

    # everything besides conversations

    def parts(self, unit: UnitOfWork, source: str) -> list[Part]:
        """Return what the imports of a source brought, in the order of the files."""
        return [Part(*row) for row in _rows(unit.execute(SQL.items, {"user": self._user, "source": source}))]

    def put(self, unit: UnitOfWork, source: str, kind: str, name: str, parts: Sequence[Part]) -> None:
        """Replace what is known of one file or item."""
        key = {"user": self._user, "source": source, "kind": kind, "name": name}
        unit.execute(SQL.drop_parts, key)
        for number, part in enumerate(parts):
            unit.execute(
                SQL.put,
                {**key, "part": number, "mark": part.mark, "state": part.state, "place": part.place,
                 "number": part.import_number},
            )  # fmt: skip

    def drop_parts(self, unit: UnitOfWork, number: int) -> None:
        """Forget what an import brought, so that another one brings it again."""
        unit.execute(SQL.drop_items, {"user": self._user, "number": number})

    # conversations

    def count_messages(self, unit: UnitOfWork, number: int) -> int:
        """Return how many messages of an import are still stored."""
        return next(int(row[0]) for row in _rows(unit.execute(SQL.count_messages, {"number": number})))

    def sessions(self, unit: UnitOfWork, number: int) -> list[SessionId]:
        """Return the sessions that an import created."""
        found = _rows(unit.execute(SQL.sessions, {"user": self._user, "number": number}))
        return [SessionId(row[0]) for row in found]

    def take_messages(
        self, unit: UnitOfWork, number: int, *, after: bytes, limit: int
    ) -> tuple[list[MessageId], bytes]:
        """Return some messages of an import and the last key, and forget the keys, so that they can come again."""
        found = list(_rows(unit.execute(SQL.some_messages, {"number": number, "after": after, "limit": limit})))
        unit.execute(SQL.drop_keys, (dumps([row[0].hex() for row in found]),))
        return [MessageId(row[1]) for row in found], found[-1][0] if found else after

    def take_usage(self, unit: UnitOfWork, number: int) -> list[UsageRow]:
        """Return the model calls that an import counted and forget them."""
        from wellkept.sessions.reports import UsageRow

        found = _rows(unit.execute(SQL.usage, {"number": number}))
        rows = [
            UsageRow(day, model, task, session_id, calls, Usage(*tokens), None)
            for day, model, task, session_id, calls, *tokens in found
        ]
        unit.execute(SQL.drop_usage, {"number": number})
        unit.execute(SQL.drop_usage_keys, {"number": number})
        return rows

    def release(self, unit: UnitOfWork, source: str, sessions: Sequence[SessionId]) -> None:
        """Forget which conversations some sessions stood for, and read all transcripts from their beginning again."""
        scope = {"user": self._user, "source": source, "listed": dumps(list(sessions))}
        unit.execute(SQL.drop_turns, scope)
        unit.execute(SQL.drop_sessions, {"user": self._user, "listed": scope["listed"]})
        unit.execute(SQL.reset_positions, {"user": self._user, "source": source})


def _rows(rows: Iterable[tuple[object, ...]]) -> Iterable[tuple[Any, ...]]:
    return rows
