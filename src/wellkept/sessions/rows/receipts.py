"""Receipts, bound to one user: a receipt waits for other writers no longer than its caller can."""

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wellkept.core.errors import Busy, StorageError
from wellkept.core.ids import MessageId, SessionId, UserId
from wellkept.sessions.receipts import (
    Mark,
    NewReceipt,
    Receipt,
    ReceiptId,
    Shown,
    ShownMessage,
    ShownPage,
    ShownSession,
)
from wellkept.sessions.records import storable
from wellkept.sessions.rows.database import Connection
from wellkept.storage.connections import statements

if TYPE_CHECKING:
    from wellkept.sessions.rows.store import RowStore

SQL = statements("wellkept.sessions.rows", "receipts.sql")
log = logging.getLogger(__name__)

WAIT_SECONDS = 0.02
"""How long a receipt may wait for another writer; a busy one is kept in memory and written with the next."""
MOST_WAITING = 200
MOST_QUERY_CHARS = 2_000
"""A prompt may be a whole file; its beginning is enough to recognise it."""
_PRUNE_EVERY = 64
_PRUNED_AT_ONCE = 200
"""Bounds the time of the one write in `_PRUNE_EVERY` that also removes expired receipts."""
_WHOLE = 0
"""The message id of a mark that is about the receipt as a whole."""
_NEWEST = 2**63 - 1
_SECONDS_PER_DAY = 86_400


class RowReceipts:
    """Implements `sessions.ports.Receipts`."""

    def __init__(self, store: "RowStore") -> None:
        self._file = store.file
        self._user = store.user
        self._waiting: deque[tuple[float, NewReceipt]] = deque(maxlen=MOST_WAITING)
        self._lock = threading.Lock()

    def add(self, receipt: NewReceipt, *, wait_seconds: float = WAIT_SECONDS) -> ReceiptId | None:
        """Store a receipt and return its id; None while the file cannot be written, or if receipts are off."""
        if self._file.settings.receipt_days == 0:
            return None
        query = self._file.redaction.text(storable(receipt.query[:MOST_QUERY_CHARS]))
        try:
            with self._lock, self._file.database.limit_wait(wait_seconds):
                self._waiting.append((self._file.now(), replace(receipt, query=query)))
                return self._write_waiting()
        except Busy:
            return None
        except StorageError as error:
            log.warning("a receipt was not stored: %s", error.message)
            return None

    def _write_waiting(self) -> ReceiptId:
        number = 0
        with self._file.writing() as connection:
            for created, receipt in self._waiting:
                number = _insert(connection, receipt, user=self._user, created=created)
            if number % _PRUNE_EVERY == 0:
                self._prune(connection)
        self._waiting.clear()
        return ReceiptId(number)

    def _prune(self, connection: Connection) -> None:
        """Remove expired receipts of all users: this is maintenance of the file."""
        before = self._file.now() - self._file.settings.receipt_days * _SECONDS_PER_DAY
        drop(connection, [number for (number,) in connection.execute(SQL.expired, (before, _PRUNED_AT_ONCE))])

    def recent(
        self,
        *,
        limit: int,
        before: ReceiptId | None = None,
        kind: str | None = None,
        client: str | None = None,
        session_id: SessionId | None = None,
    ) -> list[Receipt]:
        named = {"user": self._user, "before": _NEWEST if before is None else before, "kind": kind}
        named |= {"client": client, "session": session_id, "limit": limit}
        with self._file.database.reading() as connection:
            return self._load(connection, connection.execute(SQL.list, named).fetchall())

    def find(self, receipt_id: ReceiptId) -> Receipt | None:
        if not 0 < receipt_id <= _NEWEST:
            return None
        with self._file.database.reading() as connection:
            found = self._load(connection, connection.execute(SQL.one, (self._user, receipt_id)).fetchall())
        return found[0] if found else None

    def _load(self, connection: Connection, rows: Sequence[tuple[object, ...]]) -> list[Receipt]:
        listed = json.dumps([row[0] for row in rows])
        shown: dict[int, list[Shown]] = {}
        for number, *item in connection.execute(SQL.items, (listed,)):
            shown.setdefault(int(number), []).append(_shown(item))
        marks: dict[int, dict[MessageId | None, Mark]] = {}
        for number, message, word in connection.execute(SQL.marks, (self._user, listed)):
            marks.setdefault(int(number), {})[MessageId(message) if message != _WHOLE else None] = Mark(word)
        return [_receipt(row, shown, marks) for row in rows]

    def mark(self, receipt_id: ReceiptId, message_ids: Sequence[MessageId], mark: Mark) -> None:
        named = {"user": self._user, "receipt": receipt_id, "mark": mark.value, "now": self._file.now()}
        rows = [{**named, "message": number} for number in message_ids or (_WHOLE,)]
        with self._file.writing() as connection:
            connection.executemany(SQL.mark, rows)

    def unmark(self, receipt_id: ReceiptId, message_id: MessageId | None = None) -> int:
        named = {"user": self._user, "receipt": receipt_id, "message": message_id}
        with self._file.writing() as connection:
            connection.execute(SQL.unmark, named)
            return connection.changes()

    def never_shown(self) -> frozenset[MessageId]:
        with self._file.database.reading() as connection:
            return frozenset(MessageId(number) for (number,) in connection.execute(SQL.never, (self._user,)))

    def forget_all(self) -> int:
        self._waiting.clear()
        with self._file.writing() as connection:
            numbers = [number for (number,) in connection.execute(SQL.of_user, (self._user,))]
            drop(connection, numbers)
            connection.execute(SQL.drop_all_marks, (self._user,))
        return len(numbers)


def _insert(connection: Connection, receipt: NewReceipt, *, user: UserId, created: float) -> int:
    named = {"user": user, "created": created, "kind": receipt.kind, "client": receipt.client, "query": receipt.query}
    named |= {"session": receipt.session_id, "project": receipt.project, "candidates": receipt.candidates}
    named |= {"tokens": receipt.tokens, "milliseconds": receipt.milliseconds}
    ((given,),) = connection.execute(SQL.add, named).fetchall()
    number = int(str(given))
    items = [(number, place, *_columns(shown)) for place, shown in enumerate(receipt.shown)]
    connection.executemany(SQL.add_item, items)
    return number


def _columns(shown: Shown) -> tuple[object, ...]:
    match shown:
        case ShownMessage(message_id, session_id, score, parts):
            rounded = json.dumps({name: round(value, 4) for name, value in parts.items()})
            return message_id, session_id, None, score, rounded if parts else None
        case ShownSession(session_id):
            return None, session_id, None, None, None
        case ShownPage(page):
            return None, None, page, None, None


def _shown(item: Sequence[object]) -> Shown:
    message_id, session_id, page, score, parts = item
    if message_id is not None:
        found = json.loads(str(parts)) if parts is not None else {}
        number = MessageId(int(str(message_id)))
        return ShownMessage(number, SessionId(str(session_id)), None if score is None else float(str(score)), found)
    return ShownPage(str(page)) if page is not None else ShownSession(SessionId(str(session_id)))


def _receipt(
    row: Sequence[object], shown: dict[int, list[Shown]], marks: dict[int, dict[MessageId | None, Mark]]
) -> Receipt:
    number, created, kind, client, query, session_id, project, candidates, tokens, milliseconds = row
    assert isinstance(number, int)
    content = NewReceipt(
        kind=kind,  # type: ignore[arg-type] # the column has a CHECK
        client=str(client),
        query=str(query),
        session_id=None if session_id is None else SessionId(str(session_id)),
        project=None if project is None else str(project),
        shown=tuple(shown.get(number, ())),
        candidates=int(str(candidates)),
        tokens=int(str(tokens)),
        milliseconds=float(str(milliseconds)),
    )
    return Receipt(ReceiptId(number), float(str(created)), content, marks.get(number, {}))


def drop(connection: Connection, numbers: Iterable[int]) -> None:
    """Remove receipts with their items; messages that must never be recalled stay marked."""
    listed = [(number,) for number in numbers]
    for sql in (SQL.drop_items, SQL.drop_marks, SQL.drop):
        connection.executemany(sql, listed)


def forget_messages(connection: Connection, numbers: Iterable[int]) -> None:
    """Remove messages that no longer exist from all receipts and marks."""
    listed = [(number,) for number in numbers]
    connection.executemany(SQL.drop_items_of_message, listed)
    connection.executemany(SQL.drop_marks_of_message, listed)


def forget_session(connection: Connection, session_id: SessionId) -> None:
    """Remove the receipts that a session was given, and the session from all others."""
    drop(connection, [number for (number,) in connection.execute(SQL.of_session, (session_id,))])
    connection.execute(SQL.drop_items_of_session, (session_id,))


def forget_words(connection: Connection, words: Sequence[str], *, user: UserId) -> int:
    """Remove the user's receipts whose query contains any of `words` (case-folded); return how many."""
    found = connection.execute(SQL.queries, (user,))
    numbers = [int(number) for number, query in found if any(word in query.casefold() for word in words)]
    drop(connection, numbers)
    return len(numbers)
