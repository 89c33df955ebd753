"""Export and import of JSONL: one line for the session, then one per message; each line is stored once."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from wellkept.core.events import Progressed
from wellkept.core.ids import OWNER, MessageId, SessionId, SourceName, UserId
from wellkept.core.messages import NewMessage, Session, State
from wellkept.core.ports import EventSink, UnitOfWork, ignore
from wellkept.core.text import JSON
from wellkept.sessions.lines import (
    DEFAULT_SOURCE,
    BadLine,
    Line,
    MessageLine,
    NoConversation,
    SessionLine,
    distrust,
    message_line,
    parse,
    parse_all,
    session_line,
)
from wellkept.sessions.records import (
    SALVAGED,
    Blob,
    MessageRow,
    Print,
    fingerprint,
    message_row,
    number_of,
    session_from,
    session_row,
    text_of,
)
from wellkept.sessions.records import parse as parse_json
from wellkept.sessions.reports import ImportReport, UsageRow
from wellkept.sessions.rows import message_rows, removal, session_rows
from wellkept.sessions.rows.database import Connection, OpenStore
from wellkept.storage.connections import statements

THIS_IMPORT = MessageId(0)
"""Stands for the id of a message that the same import has just read and not stored yet."""


class Stored(Struct):
    """The messages of one session, and the position of an import in it.

    A line with an external id is stored if the id is. Any other line is stored if the message at its position has its
    role and content, or if the store has the same message with the same time at least as often as the import.
    """

    external: dict[str, MessageId] = field(default_factory=dict)
    order: list[tuple[Print, MessageId]] = field(default_factory=list)
    moments: dict[tuple[Print, float], list[MessageId]] = field(default_factory=dict)
    _place: int = 0
    _seen: dict[tuple[Print, float], int] = field(default_factory=dict)

    def remember(self, message_id: MessageId, external_id: str | None, *, mark: Print, moment: float) -> None:
        """Add a message that the store holds."""
        if external_id is not None:
            self.external[external_id] = message_id
        self.order.append((mark, message_id))
        self.moments.setdefault((mark, moment), []).append(message_id)

    def find(self, external_id: str | None, mark: Print, moment: float) -> MessageId | None:
        """Return the id under which the next line is stored, or None if it is new."""
        place, self._place = self._place, self._place + 1
        seen = self._seen.get((mark, moment), 0)
        self._seen[mark, moment] = seen + 1
        if external_id is not None:
            return self.external.get(external_id)
        if place < len(self.order) and self.order[place][0] == mark:
            return self.order[place][1]
        same = self.moments.get((mark, moment), [])
        return same[seen] if seen < len(same) else None


TASK = "importing messages"
BATCH = 2_000
"""Lines per transaction, a fifth of a second; with fewer, the index would be merged more often."""
IMPORTING = "importing"
"""The note of a session that an unfinished import has created; the next import of the file completes the session."""


class _ReadyMessage(Struct, frozen=True):
    """A message line with its row prepared outside the transaction."""

    line: MessageLine
    row: MessageRow
    blobs: list[Blob]
    mark: Print


class Importing:
    """One import: remembers what each session holds, so that every line is stored once."""

    def __init__(self, file: OpenStore, *, user: UserId, source: str, sink: EventSink, is_own: bool = False) -> None:
        self._file = file
        self._provenance = None if is_own else SourceName(f"import:{source.removeprefix('import:')}")
        """The source of every text that names none itself, whoever its author is in the file."""
        self._user = user
        self._sink = sink
        self._source = source
        self._stored: dict[SessionId, Stored | None] = {}
        """None marks a session that was forgotten."""
        self._new_ids: dict[int, MessageId] = {}
        self._carried: list[SessionLine] = []
        self._created: set[SessionId] = set()
        self._marked: set[SessionId] = set()
        self._users: dict[SessionId, UserId] = {}
        self.report = ImportReport()

    def run(self, raw_lines: Iterable[bytes], *, total: int | None = None) -> ImportReport:
        """Store every line; report bad ones with their number and skip them.

        Each batch is one transaction, and the last one also links the sessions: a short import happens at once, and a
        long one that was killed is completed by importing the file again.
        """
        numbered = enumerate(raw_lines, start=1)
        is_last = False
        while not is_last:
            batch = list(islice(numbered, BATCH))
            is_last = len(batch) < BATCH
            ready = self._prepare(batch)
            with self._file.database.writing() as connection:
                self._salt = removal.find_salt(connection) if removal.has_marks(connection) else None
                self._take(connection, ready)
                self._finish(connection) if is_last else self._mark(connection)
            self.report.lines += len(batch)
            self._sink(Progressed(TASK, self.report.lines, total))
        self.report.problems.sort()
        self.report.ids = self._new_ids
        return self.report

    def _prepare(self, batch: Iterable[tuple[int, bytes]]) -> list[tuple[int, SessionLine | _ReadyMessage]]:
        lines: list[tuple[int, Line]] = []
        now = self._file.clock.now().timestamp()
        for number, raw in batch:
            if not raw.strip():
                continue
            try:
                lines += self._parse(number, now, raw.removeprefix(b"\xef\xbb\xbf"))
            except BadLine as bad:
                self.report.refuse(number, str(bad))
        safe = iter(self._file.redaction.messages([line.new for _, line in lines if isinstance(line, MessageLine)]))
        return [
            (number, line if isinstance(line, SessionLine) else self._prepare_line(line, next(safe)))
            for number, line in lines
        ]

    def _parse(self, number: int, now: float, raw: bytes) -> Iterator[tuple[int, Line]]:
        for line in parse_all(raw, source=self._source, now=now, imported=self._provenance):
            if not isinstance(line, BadLine):
                yield number, line if self._provenance is None else distrust(line, source=self._source, now=now)
            elif not isinstance(line, NoConversation):
                self.report.refuse(number, str(line))

    def _prepare_line(self, line: MessageLine, safe: NewMessage) -> _ReadyMessage:
        if safe is not line.new:
            line = MessageLine(line.session, safe, line.state, line.exported_id)
        row, blobs = message_row(line.session.id, safe)
        if line.state is not State.ACTIVE:
            row = row._replace(state=line.state.value)
        return _ReadyMessage(line, row, blobs, fingerprint(row.role, row.content, row.parts, row.tool_calls))

    def _take(self, connection: Connection, ready: Iterable[tuple[int, SessionLine | _ReadyMessage]]) -> None:
        fresh: list[_ReadyMessage] = []
        for number, item in ready:
            session = item.session if isinstance(item, SessionLine) else item.line.session
            if self._is_foreign(connection, session):
                self.report.refuse(number, f"session {session.id!r} belongs to another user")
            elif isinstance(item, SessionLine):
                self._take_session(connection, item)
            elif self._is_new(connection, item):
                fresh.append(item)
        if not fresh:
            return
        message_rows.write_sources(connection, [item.line.new for item in fresh])
        with self._file.writing(with_checksums=False):  # messages compute their own
            ids = message_rows.insert(connection, [(item.row, item.blobs) for item in fresh])
        for message_id, item in zip(ids, fresh, strict=True):
            if item.line.exported_id is not None:
                self._new_ids[item.line.exported_id] = message_id
        self.report.messages += len(fresh)
        self._touch(connection, fresh)

    def _take_session(self, connection: Connection, line: SessionLine) -> None:
        if self._known(connection, line.session) is None:
            return
        if line.session.id in self._created:
            if line.system_prompt is not None:
                session_rows.set_prompt(connection, line.session.id, self._file.redaction.text(line.system_prompt))
            for key, value in line.notes.items():
                session_rows.write_note(connection, line.session.id, key, self._file.redaction.value(value))
            if line.carried:
                self._carried.append(line)

    def _is_foreign(self, connection: Connection, session: Session) -> bool:
        """Whether the session is stored already as somebody else's; the first line of each session decides."""
        if session.id not in self._users:
            user = UserId(session.user_id) if self._user == OWNER else self._user
            row = connection.execute(SQL.owner, (session.id,)).fetchone()
            if row is not None and row[0] != user:
                return True
            self._users[session.id] = user
        return False

    def _known(self, connection: Connection, session: Session) -> Stored | None:
        """Return what the session holds, creating it if needed; None if it was forgotten."""
        if session.id in self._stored:
            return self._stored[session.id]
        stored: Stored | None = Stored()
        if connection.execute(session_rows.SQL.exists, (session.id,)).fetchone() is not None:
            stored = _read_stored(connection, session.id)
            if session_rows.read_note(connection, session.id, IMPORTING) is not None:
                self._created.add(session.id)  # by an import that was killed
        elif self._session_was_forgotten(connection, session.id):
            stored = None
        else:
            own = replace(session, user_id=self._users[session.id])
            session_rows.create(connection, self._file.redaction.session(own))
            self._created.add(session.id)
            self.report.sessions += 1
        self._stored[session.id] = stored
        return stored

    def _is_new(self, connection: Connection, item: _ReadyMessage) -> bool:
        stored = self._known(connection, item.line.session)
        if stored is None:
            self.report.forgotten += 1
            return False
        external, moment = item.row.external_id, item.row.timestamp
        known = stored.find(external, item.mark, moment)
        if known is not None:
            self.report.known += 1
            if item.line.exported_id is not None and known != THIS_IMPORT:
                self._new_ids[item.line.exported_id] = known
            return False
        if self._salt is not None and self._was_forgotten(connection, item):
            self.report.forgotten += 1
            return False
        if external is not None:
            stored.external[external] = THIS_IMPORT  # the same id twice in one file is one message
        return True

    def was_forgotten(self, connection: Connection, raw: bytes) -> bool:
        """Whether a line or its session was forgotten."""
        self._salt = removal.find_salt(connection)
        line = parse(raw, source=self._source, imported=self._provenance)
        user = UserId(line.session.user_id) if self._user == OWNER else self._user
        self._users.setdefault(line.session.id, user)
        if isinstance(line, SessionLine) or self._session_was_forgotten(connection, line.session.id):
            return self._session_was_forgotten(connection, line.session.id)
        return self._was_forgotten(connection, self._prepare_line(line, self._file.redaction.message(line.new)))

    def _scopes(self, session_id: SessionId) -> set[str]:
        """Return the names that the session may have in marks; marks of earlier versions have no user."""
        own = removal.mark_scope(session_id, self._users[session_id])
        return {own, session_id} if self._user == OWNER else {own}

    def _session_was_forgotten(self, connection: Connection, session_id: SessionId) -> bool:
        if self._salt is None:
            return False
        marks = {removal.session_mark(self._salt, scope) for scope in self._scopes(session_id)}
        return any(removal.has_mark(connection, mark) for mark in marks)

    def _was_forgotten(self, connection: Connection, item: _ReadyMessage) -> bool:
        marks = {
            removal.message_mark(self._salt or "", scope, external_id=external, mark=item.mark)
            for external in (item.row.external_id, None)
            for scope in self._scopes(item.line.session.id)
        }
        return any(removal.has_mark(connection, mark) for mark in marks)

    def _touch(self, connection: Connection, fresh: list[_ReadyMessage]) -> None:
        counts: Counter[SessionId] = Counter()
        latest: dict[SessionId, float] = {}
        first: dict[SessionId, float] = {}
        titles: dict[SessionId, Session] = {}
        for item in fresh:
            session_id, moment = item.line.session.id, item.row.timestamp
            counts[session_id] += 1
            latest[session_id] = max(latest.get(session_id, moment), moment)
            first[session_id] = min(first.get(session_id, moment), moment)
            if item.line.session.title is not None and session_id in self._created:
                titles[session_id] = item.line.session
        for session_id, count in counts.items():
            connection.execute(message_rows.SQL.touch, (count, latest[session_id], session_id, self._users[session_id]))
            if session_id in self._created:
                connection.execute(SQL.begun_earlier, (first[session_id], session_id))
        for session_id, session in titles.items():
            self._add_title(connection, session_id, session)

    def _add_title(self, connection: Connection, session_id: SessionId, session: Session) -> None:
        existing = session_rows.find(connection, session_id, user=self._users[session_id])
        if existing is not None and existing.title is None and session.title is not None:
            title = self._file.redaction.text(session.title)
            unique = session_rows.make_title_unique(connection, title, user_id=existing.user_id, session_id=session_id)
            connection.execute(SQL.add_title, (unique or None, session_id))

    def _mark(self, connection: Connection) -> None:
        """Mark the sessions that this import has not completed yet."""
        for session_id in self._created - self._marked:
            session_rows.write_note(connection, session_id, IMPORTING, value=True)
        self._marked |= self._created

    def _finish(self, connection: Connection) -> None:
        """Restore the carried messages of continued sessions, under their new ids, and remove the marks."""
        for line in self._carried:
            carried = [self._new_ids[number] for number in line.carried if number in self._new_ids]
            own_from = self._new_ids.get(line.context_from, MessageId(0))
            message_rows.carry(connection, line.session.id, carried, own_from=own_from)
        for session_id in self._created:
            session_rows.write_note(connection, session_id, IMPORTING, value=None)


def _read_stored(connection: Connection, session_id: SessionId) -> Stored:
    stored = Stored()
    for number, external, role, content, parts, calls, moment in connection.execute(SQL.known, (session_id,)):
        mark = fingerprint(role, content, parts, calls)
        stored.remember(MessageId(number), external, mark=mark, moment=moment)
    return stored


SQL = statements("wellkept.sessions.rows", "transfer.sql")
_PAGE = 1_000


class RowTransfer:
    """Implements `sessions.ports.Transfer`."""

    def __init__(self, file: OpenStore, *, user: UserId, sink: EventSink = ignore) -> None:
        self._file = file
        self._user = user
        self._sink = sink

    def export(self, *, session_id: SessionId | None = None, raw: bool = False) -> Iterator[dict[str, JSON]]:
        with self._file.database.reading() as connection:
            found = list(connection.execute(SQL.sessions, {"user": self._user, "session": session_id}))
        for row in found:
            session = session_from(row[:-1])
            with self._file.database.reading() as connection:
                yield session_line(_line(connection, row, raw=raw))
            yield from self._messages(session.id, raw=raw)

    def _messages(self, session_id: SessionId, *, raw: bool) -> Iterator[dict[str, JSON]]:
        last = 0
        while True:
            with self._file.database.reading() as connection:
                page = message_rows.read_session(
                    connection, session_id, states=(State.ACTIVE, State.COMPACTED), after=last, limit=_PAGE
                )
            yield from (message_line(message, raw=raw) for message in page)
            if len(page) < _PAGE:
                return
            last = page[-1].id

    def import_lines(
        self,
        lines: Iterable[bytes],
        *,
        source: str = DEFAULT_SOURCE,
        total: int | None = None,
        is_own: bool = False,
    ) -> ImportReport:
        """Store every line once; report bad ones with their number and skip them.

        `is_own` says that this home wrote the lines; in any other file nobody is the person.
        """
        importing = Importing(self._file, user=self._user, source=source, sink=self._sink, is_own=is_own)
        return importing.run(lines, total=total)

    def was_forgotten(self, line: bytes) -> bool:
        with self._file.database.reading() as connection:
            if not removal.has_marks(connection):
                return False
            importing = Importing(self._file, user=self._user, source=DEFAULT_SOURCE, sink=ignore)
            return importing.was_forgotten(connection, line)

    def drop_messages(self, message_ids: Sequence[MessageId], *, unit: UnitOfWork | None = None) -> None:
        with self._file.writing(unit) as connection:
            found = message_rows.find_messages(connection, message_ids, user=self._user)
            removal.purge_messages(connection, [message.id for message in found])
            session_rows.recount(connection, {message.session_id for message in found})

    def overwrite(self, message_id: MessageId, new: NewMessage, *, unit: UnitOfWork | None = None) -> None:
        with self._file.writing(unit) as connection:
            for found in message_rows.find_messages(connection, [message_id], user=self._user):
                safe = self._file.redaction.message(new)
                message_rows.write_sources(connection, [safe])
                message_rows.overwrite(connection, message_id, message_row(found.session_id, safe))

    def undo_import(
        self,
        message_ids: Sequence[MessageId],
        *,
        sessions: Sequence[SessionId] = (),
        usage: Sequence[UsageRow] = (),
        unit: UnitOfWork | None = None,
    ) -> list[SessionId]:
        """Remove messages of an import that is undone, its usage, and `sessions` that are empty then; return those."""
        with self._file.writing(unit) as connection:
            own = list(connection.execute(SQL.own_messages, (json.dumps(list(message_ids)), self._user)))
            removal.purge_messages(connection, [number for number, _ in own])
            session_rows.recount(connection, {session_id for _, session_id in own})
            for row in usage:
                counts = (row.calls, *astuple(row.usage))
                connection.execute(SQL.less_usage, (*counts, self._user, row.session_id, row.day, row.model, row.task))
            connection.execute(SQL.drop_no_usage, (self._user,))
            found = connection.execute(SQL.empty_sessions, (json.dumps(list(sessions)), self._user)).fetchall()
            empty = [SessionId(text_of(session_id)) for (session_id,) in found]
            for session_id in empty:
                removal.purge_empty(connection, session_id)
        return empty

    def fill_in(
        self,
        session_id: SessionId,
        *,
        model: str | None = None,
        parent: SessionId | None = None,
        unit: UnitOfWork | None = None,
    ) -> None:
        with self._file.writing(unit) as connection:
            session_rows.require(connection, session_id, user=self._user)
            connection.execute(SQL.fill_in, {"session": session_id, "model": model, "parent": parent})

    def describe_salvaged(self, session: Session, *, unit: UnitOfWork | None = None) -> None:
        with self._file.writing(unit) as connection:
            stored = session_rows.require(connection, session.id, user=self._user)
            if stored.source != SALVAGED:
                return
            session = self._file.redaction.session(replace(session, user_id=self._user))
            title = stored.title
            if session.title is not None:
                title = session_rows.make_title_unique(
                    connection, session.title, user_id=session.user_id, session_id=session.id
                )
            *_, metadata = session_row(session)
            connection.execute(
                SQL.describe_salvaged,
                {
                    "session": session.id, "source": session.source, "project": session.project, "model": session.model,
                    "title": title or None, "parent": session.parent_session_id or stored.parent_session_id,
                    "link": session.link or stored.link, "metadata": metadata,
                },
            )  # fmt: skip


def _line(connection: Connection, row: tuple[object, ...], *, raw: bool) -> SessionLine:
    session = session_from(row[:-1])
    return SessionLine(
        session,
        system_prompt=session_rows.read_prompt(connection, session.id) if raw else None,
        carried=tuple(number for (number,) in connection.execute(SQL.carried, (session.id,))),
        context_from=int(number_of(row[-1])),
        notes={text_of(key): parse_json(value) for key, value in connection.execute(SQL.notes, (session.id,))},
    )
