"""The rows of a home on their way between files and a PostgreSQL server, user by user and table by table."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kept.core.events import Progressed
from kept.core.ids import OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kept.app.caller import Caller, UserSpace
    from kept.core.ports import Database
    from kept.storage.postgres.database import PostgresServer
    from kept.storage.postgres.rows import Copied, Side

_HOME_TABLES = ("tokens", "platform_people", "pairing_codes", "platform_messages", "moved_chats")
_NOT_MOVED = frozenset({"leases", *_HOME_TABLES})
"""Leases end by themselves; the others belong to the home, not to a user."""
_ALL = "1=1"
_SHARED = frozenset({"blobs", "captured_messages", "prompts", "sources", "state_meta", "tombstones"})
"""Tables in which a file stores for all users once what a server stores for each."""
_SEQUENCES = {
    "messages": ("id", "message_ids"), "nodes": ("id", "nodes_id_seq"), "receipts": ("id", "receipts_id_seq"),
    "outbox": ("id", "outbox_id_seq"), "provider_calls": ("id", "provider_calls_id_seq"),
    "imports": ("number", "imports_number_seq"),
}  # fmt: skip


class Move:
    """The data of one user on its way."""

    def __init__(self, space: UserSpace, server: PostgresServer) -> None:
        from kept.storage.postgres.rows import ServerTables

        self._space = space
        self._database = server.for_user(space.user)
        self._tables = ServerTables(self._database)
        self._done: list[Copied] = []

    def run_forward(self) -> list[Copied]:
        """Copy the rows of the files to the server, and build the search index there."""
        from kept.app.store_care import open_sessions_at
        from kept.storage.postgres.rows import FileTables, advance_sequences

        with self._space.app.state_file.writing() as unit:
            rows = list_conditions()
            source = FileTables(unit, self._space.user, rows)
            for table in rows:
                self._copy(source, self._tables, table, exact=True)
        with self._open_ledger() as ledger, ledger.writing() as unit:
            self._copy(FileTables(unit, self._space.user, {"edits": _ALL}), self._tables, "edits", exact=True)
        self._copy_pages(to_files=False)
        with self._database.writing() as server:
            server.execute(_COUNT_LEDGER)
            server.execute(_NOTE_USER, (self._database.key, self._space.user))
        advance_sequences(self._database, _SEQUENCES)
        if self._is_index_due():
            open_sessions_at(self._database.server, self._space.user).upkeep.reindex()
        return self._done

    def _is_index_due(self) -> bool:
        return any(one.table == "messages" and one.rows for one in self._done)

    def run_back(self, database: Database) -> list[Copied]:
        """Copy the rows of the server to files; the next search indexes them."""
        from kept.storage.postgres.rows import FileTables

        rows = list_conditions() | dict.fromkeys(_SHARED, _ALL)
        with database.writing() as unit:
            target = FileTables(unit, self._space.user, rows)
            for table in rows:
                self._copy(self._tables, target, table, exact=table not in _SHARED)
        with self._open_ledger() as ledger, ledger.writing() as unit:
            target = FileTables(unit, self._space.user, {"edits": _ALL})
            self._copy(self._tables, target, "edits", exact=True)
        self._copy_pages(to_files=True)
        return self._done

    def _copy_pages(self, *, to_files: bool) -> None:
        from kept.memory.postgres import FolderPages

        folder = FolderPages(self._space.home.memories)
        for table in ("pages", "page_copies"):
            source, target = (self._tables, folder) if to_files else (folder, self._tables)
            self._copy(source, target, table, exact=True)

    def _copy(self, source: Side, target: Side, table: str, *, exact: bool) -> None:
        from kept.storage.postgres.rows import copy_table

        def tell(done: int) -> None:
            self._space.app.report(Progressed(f"{self._space.user}: {table}", done, None))

        self._done.append(copy_table(source, target, table, exact=exact, tell=tell))

    @contextmanager
    def _open_ledger(self) -> Iterator[Database]:
        from kept.storage.connections import sql_migrations
        from kept.storage.files import APPLICATION_ID, make_folder
        from kept.storage.sqlite import Database

        make_folder(self._space.home.memories)
        path, migrations = self._space.home.memories / "ledger.db", sql_migrations("kept.memory")
        with closing(Database(path, application_id=APPLICATION_ID, migrations=migrations, durability="full")) as opened:
            yield opened


_NOTE_USER = "INSERT INTO users (user_id, id) SELECT ?, ? WHERE EXISTS (SELECT 1 FROM sessions) ON CONFLICT DO NOTHING"
_COUNT_LEDGER = (
    "INSERT INTO ledger_numbers (edit_id, write_id) "
    "SELECT max(id), max(write_id) FROM edits HAVING max(id) IS NOT NULL "
    "ON CONFLICT (tenant, user_id) DO UPDATE SET edit_id = excluded.edit_id, write_id = excluded.write_id"
)


def list_conditions() -> dict[str, str]:
    """Return the tables of a user in an order in which rows can be inserted, each with the condition for them."""
    from kept.app.places import BLOBS_OF_USER, ROWS_OF_USER

    rows = {table: ROWS_OF_USER[table] for table in reversed(ROWS_OF_USER) if table not in _NOT_MOVED}
    # keys of removed messages name no user; they are hashes, and keep a message from coming back
    captured = " OR ".join((rows["captured_messages"], "message_id NOT IN (SELECT id FROM messages)"))
    notes = "key IN ('tombstone_salt', 'rewind_run') OR substr(key, -length(:user) - 1) = ':' || :user"
    return {
        **rows,
        "captured_messages": captured,
        "blobs": BLOBS_OF_USER,
        "tombstones": _ALL,
        "state_meta": notes,
    }


def copy_home(
    caller: Caller, server: PostgresServer, *, to_files: bool, database: Database | None = None
) -> list[Copied]:
    """Copy the tables that belong to the home as a whole."""
    from kept.storage.postgres.rows import FileTables, ServerTables, copy_table

    tables = ServerTables(server.for_tenant())
    with (database or caller.app.state_file).writing() as unit:
        files = FileTables(unit, OWNER, dict.fromkeys(_HOME_TABLES, "1"))
        source, target = (tables, files) if to_files else (files, tables)
        return [copy_table(source, target, table, exact=True, tell=lambda _: None) for table in _HOME_TABLES]
