"""Copying the rows of a home between files and a PostgreSQL server, user by user and table by table."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wellkept.core.events import Progressed
from wellkept.core.ids import OWNER
from wellkept.core.ports import ignore
from wellkept.core.regular_files import load_bytes
from wellkept.storage.documents import FolderDocuments, RowDocuments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wellkept.config.home import Home
    from wellkept.core.ids import UserId
    from wellkept.core.ports import Database, EventSink, UnitOfWork
    from wellkept.storage.postgres.database import PostgresServer
    from wellkept.storage.postgres.rows import Copied, Side

_HOME_TABLES = ("tokens", "platform_people", "pairing_codes", "platform_messages", "moved_chats")
_NOT_MOVED = frozenset({"leases", *_HOME_TABLES})
"""Leases expire; the other tables belong to the home, not to a user."""
_ALL = "1=1"
_VECTORS = "message_vectors"
_SHARED = frozenset({"blobs", "captured_messages", "prompts", "sources", "state_meta", "tombstones"})
"""Tables that a file has once for all users, and a server once for each user."""
_SEQUENCES = {
    "nodes": ("id", "nodes_id_seq"), "receipts": ("id", "receipts_id_seq"), "outbox": ("id", "outbox_id_seq"),
    "provider_calls": ("id", "provider_calls_id_seq"), "imports": ("number", "imports_number_seq"),
}  # fmt: skip


_DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "skills": (".usage.json", ".outcomes.jsonl"),
    "pending/memory": (),
    "pending/skills": (),
    "pending/forget": (),
}
"""Folders of a user whose documents the hosts share; without names, all of them."""


class Move:
    """The migration of one user's data between a server and files: database, pages and ledger."""

    def __init__(self, server: PostgresServer, user: UserId, memories: Path, sink: EventSink = ignore) -> None:
        from wellkept.storage.postgres.rows import ServerTables

        self._user = user
        self._memories = memories
        self._sink = sink
        self._rows = server.for_user(user)
        self._tables = ServerTables(self._rows)
        self._done: list[Copied] = []

    def run_forward(self, database: Database) -> list[Copied]:
        """Copy the rows of the files to the server, and build the search index there."""
        from wellkept.app.store_care import open_sessions_at
        from wellkept.storage.postgres.rows import FileTables, advance_message_ids, advance_sequences

        with database.writing() as unit:
            rows = list_conditions()
            source = FileTables(unit, self._user, rows)
            for table in rows:
                self._copy(source, self._tables, table, exact=True)
            self._copy_vectors(unit, to_files=False)
            highest = next(int(str(number)) for (number,) in unit.execute(_HIGHEST_ID))
        self.copy_pages_forward()
        self._copy_documents(to_files=False)
        with self._rows.writing() as server:
            server.execute(_NOTE_USER, (self._user,))
        advance_sequences(self._rows, _SEQUENCES)
        # a file numbers the messages of all its users together: only the owner continues after its highest id
        advance_message_ids(self._rows, highest, goes_on=self._user == OWNER)
        if self._is_index_due():
            open_sessions_at(self._rows.server, self._user).upkeep.reindex()
        return self._done

    def copy_pages_forward(self) -> None:
        """Copy pages and ledger to the server."""
        from wellkept.storage.postgres.rows import FileTables

        with self._open_ledger() as ledger, ledger.writing() as unit:
            self._copy(FileTables(unit, self._user, {"edits": _ALL}), self._tables, "edits", exact=True)
        self._copy_pages(to_files=False)
        with self._rows.writing() as server:
            server.execute(_COUNT_LEDGER)

    def _is_index_due(self) -> bool:
        return any(one.table == "messages" and one.rows for one in self._done)

    def run_back(self, database: Database) -> list[Copied]:
        """Copy a consistent snapshot of the server's rows to files; the next search indexes them."""
        from wellkept.storage.postgres.rows import FileTables

        rows = list_conditions() | dict.fromkeys(_SHARED, _ALL)
        with self._rows.reading(), database.writing() as unit:
            target = FileTables(unit, self._user, rows)
            for table in rows:
                self._copy(self._tables, target, table, exact=table not in _SHARED)
            self._copy_vectors(unit, to_files=True)
            with self._open_ledger() as ledger, ledger.writing() as ledger_unit:
                target = FileTables(ledger_unit, self._user, {"edits": _ALL})
                self._copy(self._tables, target, "edits", exact=True)
            self._copy_pages(to_files=True)
            self._copy_documents(to_files=True)
        return self._done

    def _copy_vectors(self, file: UnitOfWork, *, to_files: bool) -> None:
        """Copy the vectors of messages with the name of their model; on the way back the first user's model counts."""
        from wellkept.app.places import MESSAGES_OF_USER
        from wellkept.app.store_care import prepare_vectors
        from wellkept.storage.postgres.rows import FileTables

        files = FileTables(file, self._user, {_VECTORS: MESSAGES_OF_USER})
        if to_files:
            with self._rows.reading() as server:
                if prepare_vectors(server, file, may_replace=False):
                    self._copy(self._tables, files, _VECTORS, exact=True)
            return
        with self._rows.writing() as server:
            is_due = prepare_vectors(file, server, may_replace=True)
        if is_due:
            self._copy(files, self._tables, _VECTORS, exact=True)

    def _copy_pages(self, *, to_files: bool) -> None:
        from wellkept.memory.postgres import FolderPages

        folder = FolderPages(self._memories)
        for table in ("pages", "page_copies"):
            source, target = (self._tables, folder) if to_files else (folder, self._tables)
            self._copy(source, target, table, exact=True)

    def _copy_documents(self, *, to_files: bool) -> None:
        """Copy pending writes and usage counters of skills to the other side."""
        for folder, names in _DOCUMENTS.items():
            files, rows = FolderDocuments(self._memories.parent / folder), RowDocuments(self._rows, folder)
            source, target = (rows, files) if to_files else (files, rows)
            for name in () if names else set(target.names(".json")).difference(source.names(".json")):
                target.remove(name)
            for name in names or source.names(".json"):
                data = source.read(name)
                if data is not None and target.read(name) != data:
                    target.write(name, data)

    def _copy(self, source: Side, target: Side, table: str, *, exact: bool) -> None:
        from wellkept.storage.postgres.rows import copy_table

        def report(done: int) -> None:
            self._sink(Progressed(f"{self._user}: {table}", done, None))

        self._done.append(copy_table(source, target, table, exact=exact, report=report))

    @contextmanager
    def _open_ledger(self) -> Iterator[Database]:
        from wellkept.storage.connections import sql_migrations
        from wellkept.storage.files import APPLICATION_ID, make_folder
        from wellkept.storage.sqlite import Database

        make_folder(self._memories)
        path, migrations = self._memories / "ledger.db", sql_migrations("wellkept.memory")
        with closing(Database(path, application_id=APPLICATION_ID, migrations=migrations, durability="full")) as opened:
            yield opened


_HIGHEST_ID = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'"
_NOTE_USER = (
    "INSERT INTO users (tenant, user_id, id) SELECT :tenant, :user, ? "
    "WHERE EXISTS (SELECT 1 FROM sessions WHERE tenant = :tenant AND user_id = :user) ON CONFLICT DO NOTHING"
)
_COUNT_LEDGER = (
    "INSERT INTO ledger_numbers (tenant, user_id, edit_id, write_id) "
    "SELECT :tenant, :user, max(id), max(write_id) FROM edits WHERE tenant = :tenant AND user_id = :user "
    "HAVING max(id) IS NOT NULL "
    "ON CONFLICT (tenant, user_id) DO UPDATE SET edit_id = excluded.edit_id, write_id = excluded.write_id"
)


def list_conditions() -> dict[str, str]:
    """Return the tables of a user in an order in which rows can be inserted, each with the condition for them."""
    from wellkept.app.places import BLOBS_OF_USER, ROWS_OF_USER

    rows = {table: ROWS_OF_USER[table] for table in reversed(ROWS_OF_USER) if table not in _NOT_MOVED}
    # keys of removed messages name no user; they are hashes that prevent a message from being imported again
    captured = " OR ".join((rows["captured_messages"], "message_id NOT IN (SELECT id FROM messages)"))
    notes = "key IN ('tombstone_salt', 'rewind_run') OR substr(key, -length(:user) - 1) = ':' || :user"
    return {
        **rows,
        "captured_messages": captured,
        "blobs": BLOBS_OF_USER,
        "tombstones": _ALL,
        "state_meta": notes,
    }


def copy_home(server: PostgresServer, database: Database, *, to_files: bool) -> list[Copied]:
    """Copy the tables that belong to the home as a whole."""
    from wellkept.storage.postgres.rows import FileTables, ServerTables, copy_table

    tables = ServerTables(server.for_tenant())
    with database.writing() as unit:
        files = FileTables(unit, OWNER, dict.fromkeys(_HOME_TABLES, "1"))
        source, target = (tables, files) if to_files else (files, tables)
        return [copy_table(source, target, table, exact=True, report=lambda _: None) for table in _HOME_TABLES]


def is_unused(server: PostgresServer, user: UserId) -> bool:
    """Whether a server has neither conversations nor pages of a user."""
    with server.for_user(user).reading() as unit:
        own = "WHERE tenant = :tenant AND user_id = :user LIMIT 1"
        tables = ("sessions", "pages", "edits")
        return not any(list(unit.execute(f"SELECT 1 FROM {table} {own}")) for table in tables)  # noqa: S608 - constants


def remove_documents(memories: Path) -> None:
    """Remove the files of documents that a server has, beside a folder of pages."""
    for folder, names in _DOCUMENTS.items():
        files = FolderDocuments(memories.parent / folder)
        for name in names or files.names(".json"):
            (memories.parent / folder / name).unlink(missing_ok=True)


def restore_documents(server: PostgresServer, user: UserId, own: Path) -> None:
    """Move the pending writes that a restore has placed in a user's folder to the server."""
    for folder in (name for name in _DOCUMENTS if name.startswith("pending/")):
        target = RowDocuments(server.for_user(user), folder)
        for path in sorted((own / folder).glob("*.json")):
            if target.read(path.name) is None:
                target.write(path.name, load_bytes(path))
            path.unlink()


def copy_to_files(server: PostgresServer, users: Iterable[UserId], home: Home, sink: EventSink) -> None:
    """Write the server's data of these users as the files of a home; for the owner, including that of the home."""
    from wellkept.storage.sqlite import open_state

    chosen = list(users)
    with closing(open_state(home.database)) as database:
        for user in chosen:
            Move(server, user, home.for_user(user).memories, sink).run_back(database)
        if OWNER in chosen:
            copy_home(server, database, to_files=True)
