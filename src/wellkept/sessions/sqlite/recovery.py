"""The rows of a damaged file, copied into a new one; counted, and named where they are damaged or lost.

A row is whole if its cell and overflow pages are readable and agree with its checksum or hash, where it has one. A
damaged row is copied as far as it can be read. A lost row is one that an index still lists.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from wellkept.core.errors import ForeignDatabase
from wellkept.core.events import Progressed
from wellkept.core.ids import SourceName
from wellkept.core.ports import EventSink
from wellkept.salvage.pages import PageFile, Value
from wellkept.salvage.rows import (
    Evidence,
    Key,
    Row,
    Salvage,
    Shape,
    describe_shapes,
    gather_evidence,
    insert_row,
    key_of,
)
from wellkept.sessions.records import MessageRow, checksum, hash_blob, is_damaged, source_id
from wellkept.sessions.reports import Salvaged
from wellkept.sessions.rows import vectors
from wellkept.sessions.rows.session_rows import NOBODY
from wellkept.sessions.sqlite import checksums, index
from wellkept.storage.connections import statements
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.row_checksums import contradicts, describe_key
from wellkept.storage.sqlite import Connection, Database, state_migrations
from wellkept.storage.versions import build_reference, find_version, is_of_another_program

SQL = statements("wellkept.sessions.sqlite", "recovery.sql")
_USERS_SINCE = 4
"""The first version whose other tables name the user of each row; a migration fills in the owner for older rows."""


class _Lost(Struct, frozen=True):
    id: str
    first: float
    last: float
    number: Key
    """The number of its row; None if no index knows it."""


class LostSessions:
    """The sessions that messages name and that have no row."""

    def __init__(self, salvage: Salvage, result: Salvaged, *, version: int) -> None:
        self._evidence: Evidence = gather_evidence(salvage, "sessions")
        self._result = result
        self._version = version

    def restore(self, connection: Connection) -> None:
        """Insert a row for each of them."""
        for lost in list(self._find(connection)):
            known = self._evidence.columns.get(lost.number, {})
            users = self._users(connection, lost, known)
            trashed = known.get("trashed")
            is_certain = len(users) == 1 and (trashed is not None or self._is_out_of_trash(connection, lost))
            user = users.pop() if is_certain else NOBODY
            self._insert(connection, lost, known if is_certain else {}, user=user)
            (self._result.restored if is_certain else self._result.quarantined).append(lost.id)

    def _find(self, connection: Connection) -> Iterator[_Lost]:
        numbers = {str(known["id"]): number for number, known in self._evidence.columns.items() if "id" in known}
        present = {str(row[0]) for row in connection.execute(SQL.session_ids)}
        for session_id, first, last in connection.execute(SQL.without_session).fetchall():
            present.add(str(session_id))
            yield _Lost(str(session_id), _moment(first), _moment(last), numbers.get(str(session_id)))
        for session_id, number in numbers.items():
            known = self._evidence.columns[number]
            if session_id not in present and number in self._evidence.expected and "user_id" in known:
                moment = _moment(known.get("last_active"))
                yield _Lost(session_id, moment, moment, number)

    def _users(self, connection: Connection, lost: _Lost, known: dict[str, Value]) -> set[str]:
        users = {str(known["user_id"])} if "user_id" in known else set()
        if self._version >= _USERS_SINCE:
            users |= {str(row[0]) for row in connection.execute(SQL.users_of_session, (lost.id,))}
        return users

    def _is_out_of_trash(self, connection: Connection, lost: _Lost) -> bool:
        """Whether the index of the trash, read to its end, does not list the session."""
        if "sessions_trashed" not in self._evidence.complete:
            return False
        if lost.number is not None:
            return True
        trashed = {number for number, known in self._evidence.columns.items() if "trashed" in known}
        named = {number for number, known in self._evidence.columns.items() if "id" in known}
        present = {int(str(row[0])) for row in connection.execute(SQL.session_numbers)}
        return trashed <= named | present

    def _insert(self, connection: Connection, lost: _Lost, known: dict[str, Value], *, user: str) -> None:
        title = known.get("title")
        if title is not None and connection.execute(SQL.title_taken, (user, title)).fetchone() is not None:
            title = None
        values = {
            "id": lost.id,
            "user": user,
            "title": title,
            "parent": known.get("parent_session_id"),
            "started": lost.first,
            "last_active": max(lost.last, _moment(known.get("last_active"))),
            "trashed": known.get("trashed"),
        }
        connection.execute(SQL.insert_session, values)


def _moment(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


log = logging.getLogger(__name__)

TASK = "salvaging rows"
DERIVED = ("sqlite_", "message_", "next_", "index_queue", "leases", "vector_state")
_COMPANIONS = {"messages": ("message_words_docsize", "index_queue")}
"""Tables of which one lists each row: a message is in the search index, or waits for it."""
_MOST_UNUSED = 1_000_000
"""Numbers that may have been given to rows that were deleted since; a larger distance is damage."""
_MESSAGE = ("id", *MessageRow._fields, "checksum")


class Recovery:
    """Reads one damaged file, and writes what it holds into new databases."""

    def __init__(self, path: Path, *, sink: EventSink) -> None:
        self._sink = sink
        self._salvage = Salvage(PageFile(path))
        migrations = state_migrations()
        if is_of_another_program(self._salvage, migrations):
            raise ForeignDatabase(f"{str(path)!r} belongs to another program", "it is left as it is")
        self._version = find_version(self._salvage, migrations)
        reference = build_reference(migrations, self._version)
        index.create(reference)
        for sql in (vectors.SQL.create_vectors, vectors.SQL.create_state):
            reference.execute(sql)
        self._salvage.use(describe_shapes(reference), recognise=is_recognised)
        self.result = Salvaged(missing_pages=self._salvage.file.missing)

    def copy_to(self, fresh: Path) -> None:
        """Create a file of the same version with every row that can be read, in one transaction."""
        migrations = tuple(step for step in state_migrations() if step.version <= self._version)
        target = Database(fresh, application_id=APPLICATION_ID, migrations=migrations)
        try:
            target.connection.execute("PRAGMA foreign_keys = OFF")
            with target.writing() as connection:
                for name, shape in self._salvage.shapes.items():
                    if not shape.is_index and not name.startswith(DERIVED):
                        _TableCopy(self._salvage, shape, self.result, self._sink).run(connection)
                self._set_sequences(connection)
                connection.execute(SQL.made_anew)
                connection.execute(SQL.unqueue)
        finally:
            target.close()

    def settle(self, database: Database) -> None:
        """Give every message a session, in the schema of this version; call it on the file that was copied."""
        with database.writing() as connection:
            LostSessions(self._salvage, self.result, version=self._version).restore(connection)
            _restore_source_names(connection)
            connection.execute(SQL.recount)
            connection.execute(SQL.drop_lost_carried)
            checksums.correct_blobs(connection)

    def _set_sequences(self, connection: Connection) -> None:
        """Keep the last number of each table, so that no number is given twice; a wild one is ignored."""
        for row in self._salvage.rows("sqlite_sequence"):
            name, last = row.values.get("name"), row.values.get("seq")
            if name not in self._salvage.shapes or not isinstance(last, int):
                continue
            ((highest,),) = connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {name}").fetchall()  # noqa: S608
            if int(str(highest)) < last <= int(str(highest)) + _MOST_UNUSED:
                connection.execute(SQL.forget_sequence, (name,))
                connection.execute(SQL.set_sequence, (name, last))


def _restore_source_names(connection: Connection) -> None:
    """Store the lost names of sources that the rest of the file still tells: a number is the hash of its name."""
    nameless = {number for (number,) in connection.execute(SQL.nameless_sources).fetchall()}
    if not nameless:
        return
    for (name,) in connection.execute(SQL.possible_sources).fetchall():
        number = source_id(SourceName(str(name)))
        if number in nameless:
            connection.execute(SQL.name_source, (number, name))


def find_misplaced(path: Path) -> list[tuple[str, str]]:
    """Return the tables of a file of this version whose place holds rows of another table, each with that table."""
    salvage = Salvage(PageFile(path))
    salvage.use(
        describe_shapes(build_reference(state_migrations(), state_migrations()[-1].version)), recognise=is_recognised
    )
    return salvage.find_misplaced()


def find_fault(table: str, row: Row) -> str:
    """Return what is wrong with a row; empty if nothing contradicts it."""
    if row.damage:
        return row.damage
    match table:
        case "messages" if is_damaged(tuple(row.values.get(name) for name in _MESSAGE)):
            return "it does not match its checksum"
        case "blobs" if hash_blob(row.values.get("data")) != row.values.get("hash"):
            return "its content does not match its hash"
        case "prompts" if hash_blob(str(row.values.get("text"))) != row.values.get("hash"):
            return "its text does not match its hash"
        case "sources" if source_id(SourceName(str(row.values.get("name")))) != row.values.get("id"):
            return "its name does not match its number"
    return "it does not match its checksum" if contradicts(table, row.values) else ""


def is_recognised(table: str, row: Row) -> bool:
    """Whether a row proves by its hash or checksum that it belongs to a table."""
    has_proof = table in {"blobs", "prompts", "sources"} or row.values.get("checksum") is not None
    return has_proof and not find_fault(table, row)


def find_number(table: str, row: Row, missing: Iterable[int]) -> int | None:
    """Return the number of a row whose own number was damaged: the one with which its checksum is right."""
    if table != "messages" or row.values.get("checksum") is None:
        return None
    rest = tuple(row.values.get(name) for name in _MESSAGE[1:])
    return next((number for number in missing if checksum((number, *rest)) == row.values["checksum"]), None)


def read_table(path: Path, table: str, declaration: str) -> Iterator[Row]:
    """Yield the rows of one table of a damaged file."""
    reference = build_reference((), 0)
    reference.execute(declaration)
    salvage = Salvage(PageFile(path), describe_shapes(reference))
    return salvage.rows(table)


class _TableCopy:
    """Copies one table."""

    def __init__(self, salvage: Salvage, shape: Shape, result: Salvaged, sink: EventSink) -> None:
        self._salvage = salvage
        self._shape = shape
        self._result = result
        self._sink = sink
        self._evidence = gather_evidence(salvage, shape.name, _COMPANIONS.get(shape.name, ()))
        self._whole: dict[Key, bool] = {}
        self._strays: list[Row] = []
        """Damaged rows whose number belongs to another row, or to none."""

    def run(self, connection: Connection) -> None:
        """Copy every row, and name those that are damaged or lost."""
        table = self._shape.name
        for row in self._salvage.rows(table):
            self._take(connection, row)
        dropped = {row.page for row in self._strays if not self._keep_stray(connection, row) and row.is_reached}
        lost = self._evidence.expected - self._whole.keys()
        self._result.rows[table] = len(self._whole)
        self._result.name_lost(table, (self._describe(key) for key in _sort(lost)))
        damaged = [key for key, is_whole in self._whole.items() if not is_whole]
        self._result.name_damaged(table, (self._describe(key) for key in _sort(damaged)))
        lost_pages = set(self._salvage.find_lost_pages(table))
        if not self._evidence.is_certain:  # nothing lists the rows of pages that are read in part
            lost_pages |= dropped.union(self._salvage.extents[table].torn)
        if lost_pages:
            self._result.pages[table] = sorted(lost_pages)

    def _take(self, connection: Connection, row: Row) -> None:
        key = key_of(self._shape, row)
        if self._evidence.is_stale(row, key):
            return
        # what stands in an older copy of a page may have changed since
        fault = find_fault(self._shape.name, row) or ("it is an older copy" if self._is_copy(row) else "")
        # without a number, and without a page that leads to it, it may as well be an entry of an index
        is_doubtful = bool(fault) and not (row.is_reached or self._shape.has_numbers)
        if key is None or not row.values or is_doubtful or (fault and self._is_unknown(key)):
            self._strays.append(row)
            return
        if key in self._whole:
            self._decide(connection, row, key, is_whole=not fault)
            return
        self._insert(connection, key, self._correct(row, key) if fault else row.values, is_whole=not fault)

    def _is_copy(self, row: Row) -> bool:
        return self._salvage.file.is_copy(row.page)

    def _is_unknown(self, key: Key) -> bool:
        return self._evidence.is_certain and key not in self._evidence.columns

    def _decide(self, connection: Connection, row: Row, key: Key, *, is_whole: bool) -> None:
        """Keep the better one of two rows with the same key."""
        if self._whole[key] or not is_whole:
            if not is_whole and row.is_reached:
                self._strays.append(row)
            return
        self._remove(connection, key)
        self._insert(connection, key, row.values, is_whole=True)

    def _correct(self, row: Row, key: Key) -> dict[str, Value]:
        """Return the values of a damaged row, with those columns that an index repeats taken from there."""
        known = self._evidence.columns.get(key, {})
        return dict(row.values) | {name: value for name, value in known.items() if name in self._shape.columns}

    def _insert(self, connection: Connection, key: Key, values: Mapping[str, Value], *, is_whole: bool) -> None:
        stored = dict(values)
        if self._shape.has_numbers and self._shape.alias is None and isinstance(key, int):
            stored["rowid"] = key
        if not insert_row(connection, self._shape, stored):
            log.warning("row %r of %s cannot be stored", key, self._shape.name)
            self._evidence.expected.add(key)  # counted as lost
            return
        self._whole[key] = is_whole
        if len(self._whole) % 10_000 == 1:
            self._sink(Progressed(f"{TASK} of {self._shape.name}", len(self._whole), None))

    def _remove(self, connection: Connection, key: Key) -> None:
        names = ["rowid"] if self._shape.has_numbers else list(self._shape.key)
        where = " AND ".join(f"{name} = ?" for name in names)
        values = key if isinstance(key, tuple) else (key,)
        connection.execute(f"DELETE FROM {self._shape.name} WHERE {where}", values)  # noqa: S608 - names of our schema
        del self._whole[key]

    def _keep_stray(self, connection: Connection, row: Row) -> bool:
        """Find the number of a row by its checksum among those that are missing; else give it the next one.

        Return whether it is of this table, and of one that numbers its rows.
        """
        if self._shape.alias is None or not row.is_of_table:
            return False
        missing = [key for key in self._evidence.expected - self._whole.keys() if isinstance(key, int)]
        number = find_number(self._shape.name, row, missing)
        if number is None:
            number = max((key for key in self._whole if isinstance(key, int)), default=0) + 1
        values = dict(row.values) | {self._shape.columns[self._shape.alias]: number}
        self._insert(connection, number, values, is_whole=False)
        return True

    def _describe(self, key: Key) -> str:
        known = self._evidence.columns.get(key, {})
        session = known.get("session_id")
        named = describe_key(key if isinstance(key, tuple) else (key,))
        if self._shape.name == "sessions" and isinstance(known.get("id"), str):
            named = str(known["id"])
        return f"{named} of session {session}" if isinstance(session, str) else named


def _sort(keys: Iterable[Key]) -> list[Key]:
    return sorted(keys, key=lambda key: (isinstance(key, int), key if isinstance(key, int) else 0, repr(key)))
