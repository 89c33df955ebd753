"""Where a home is stored: what is there, the move to a PostgreSQL server and back, and the role that serves there."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kept.app.caller import Scope
from kept.core.errors import Reason, Refused, UsageError
from kept.core.events import Progressed
from kept.core.ids import OWNER
from kept.core.values import dataclass, field
from kept.operations.profiles import hide_password
from kept.operations.users import add_account, list_users, write_card

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kept.app.caller import Caller, UserSpace
    from kept.core.ids import UserId
    from kept.core.ports import Database
    from kept.core.text import JSON
    from kept.storage.postgres.database import PostgresServer
    from kept.storage.postgres.rows import Copied, Side

FILES = "sqlite"
"""The name of the files of a home as the aim of a move."""
_MARK = "moving"
_READ_MARK = "SELECT value FROM state_meta WHERE key = ?"
_PUT_MARK = "INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
_DROP_MARK = "DELETE FROM state_meta WHERE key = ?"
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


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """Where the data of a home is, and how much."""

    kind: str
    """`files` or `postgresql`."""
    place: str
    facts: Mapping[str, JSON] = field(default_factory=dict)

    def as_json(self) -> dict[str, JSON]:
        """Return the place and the facts."""
        return {"kind": self.kind, "place": self.place, **self.facts}


@dataclass(frozen=True, slots=True)
class MoveReport:
    """A finished move: what was copied for each user, verified table by table."""

    to: str
    users: Mapping[UserId, Sequence[Copied]]
    setting: str
    """Where `storage.url` was written, or what was done with it."""

    @property
    def rows(self) -> int:
        """Return how many rows there are now."""
        return sum(table.rows for tables in self.users.values() for table in tables)

    def as_json(self) -> dict[str, JSON]:
        """Return counts and checksums."""
        users: dict[str, JSON] = {
            user: [{"table": one.table, "rows": one.rows, "checksum": one.checksum} for one in tables if one.rows]
            for user, tables in self.users.items()
        }
        return {"to": self.to, "rows": self.rows, "setting": self.setting, "users": users}


def show_storage(caller: Caller) -> StorageStatus:
    """Return where the home is stored; raises StorageError if a server cannot be reached or used."""
    caller.require(Scope.ADMIN)
    sessions, messages = caller.space.sessions.totals() if caller.app.has_database else (0, 0)
    facts: dict[str, JSON] = {"sessions": sessions, "messages": messages, "users": len(list_users(caller))}
    server = caller.app.server
    if server is None:
        file = caller.app.home.database
        return StorageStatus("files", str(file), {**facts, "bytes": file.stat().st_size if file.exists() else 0})
    from kept.storage.postgres.schema import describe_server

    place = f"{server.place}, database {server.place.database!r}"
    told = describe_server(server)
    return StorageStatus("postgresql", place, {**facts, **told, "tenant": server.tenant, "role": server.place.role})


def list_role_statements(caller: Caller, role: str, url: str) -> Sequence[str]:
    """Return the statements that create the serving role, for the owner of the tables to run."""
    caller.require(Scope.ADMIN)
    from kept.storage.postgres.database import parse_url
    from kept.storage.postgres.schema import role_statements

    return role_statements(role, database=parse_url(url)[1].database)


def create_role(caller: Caller, role: str, url: str, *, password: str | None = None) -> None:
    """Create or update the tables and the serving role, as the owner that `url` names."""
    caller.require(Scope.ADMIN)
    from kept.storage.postgres import schema

    schema.migrate(url)
    schema.create_role(url, role, password=password)


def update_tables(caller: Caller, url: str) -> list[int]:
    """Create or update the tables as the owner that `url` names; return the numbers of the migrations that ran."""
    caller.require(Scope.ADMIN)
    from kept.storage.postgres.schema import migrate

    return migrate(url)


def move_storage(caller: Caller, to: str) -> MoveReport | Refused:
    """Copy everything of a home to a server, or back to files, verify it, and close the app.

    The copy is used when the home is opened again.
    An interrupted move is continued by the same call. Files that are left are renamed; a server that is left stays as
    it was.
    """
    caller.require(Scope.ADMIN)
    if not caller.is_owner:
        raise UsageError("a home is moved as a whole", "run it as the owner")
    if to == FILES:
        return _move_to_files(caller)
    app = caller.app
    if app.server is not None:
        return Refused(Reason.PRESENT, f"the home is stored at {app.server.place} already", "`kept storage status`")
    from kept.storage.postgres.database import PostgresServer

    server = PostgresServer(to, tenant=app.settings.storage.tenant)
    app.on_close(server.close)
    everybody = list_users(caller)
    users = [user.id for user in everybody]
    with server.for_tenant().reading() as unit:
        is_continued = bool(list(unit.execute(_READ_MARK, (_MARK,))))
    if not is_continued and (taken := _find_taken(server, users)):
        what = f"{server.place} has data of {taken!r} already"
        return Refused(Reason.PRESENT, what, "use another database, or set another storage.tenant")
    with server.for_tenant().writing() as unit:
        unit.execute(_PUT_MARK, (_MARK, str(app.home.path)))
    with app.state_file.writing():  # nobody writes to the file meanwhile
        moved = {user: _Move(app.space(user), server).run_forward() for user in users}
        moved[OWNER] = [*moved[OWNER], *_copy_home(caller, server, to_files=False)]
    for user in everybody:
        if user.created is not None:
            add_account(server, user.id, user.created)
    with server.for_tenant().writing() as unit:
        unit.execute(_DROP_MARK, (_MARK,))
    report = MoveReport(str(hide_password(to)), moved, _write_url(caller, to))
    app.close()  # its files are closed, so that nothing writes to them under their new names
    _set_aside(caller)  # rows and pages that nobody changes any more must not be taken for the present ones
    return report


def _move_to_files(caller: Caller) -> MoveReport | Refused:
    app, server = caller.app, caller.app.server
    if server is None:
        return Refused(Reason.PRESENT, "the home is stored in files already", "`kept storage status`")
    from kept.storage.sqlite import open_state

    mark = app.home.path / "moving-to-files"
    if not mark.exists():
        _set_aside(caller)
        mark.write_text("the copy of a PostgreSQL database into these files is not complete\n", encoding="utf-8")
    everybody = list_users(caller)
    users = [user.id for user in everybody]
    for user in everybody:
        if user.created is not None:  # maybe at another host
            write_card(caller, user.id, user.created)
    database = open_state(app.home.database, sink=app.report)
    app.on_close(database.close)
    moved = {user: _Move(app.space(user), server).run_back(database) for user in users}
    moved[OWNER] = [*moved[OWNER], *_copy_home(caller, server, to_files=True, database=database)]
    setting = _drop_url(caller)
    mark.unlink()
    return MoveReport(FILES, moved, setting)


def _set_aside(caller: Caller) -> None:
    """Rename the files that a move replaces, in a form that `forget` knows as copies."""
    file, now = caller.app.home.database, caller.app.clock.now()
    stamp = f"{now:%Y%m%d-%H%M%S}"
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        if path.exists():
            path.rename(path.with_name(path.name.replace(file.name, f"{file.name}.before-{stamp}")))
    for ledger in caller.app.home.path.rglob("memories/ledger.db"):
        ledger.rename(ledger.with_name(f"ledger.db.before-{stamp}"))
        for page in [*ledger.parent.glob("*.md"), *ledger.parent.glob("projects/*/*.md")]:
            page.rename(page.with_name(f"{page.name}.bak.{int(now.timestamp())}"))


def _find_taken(server: PostgresServer, users: Sequence[UserId]) -> str:
    for user in users:
        with server.for_user(user).reading() as unit:
            for table in ("sessions", "pages", "edits"):
                if list(unit.execute(f"SELECT 1 FROM {table} LIMIT 1")):  # noqa: S608 - constants
                    return user
    return ""


class _Move:
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
            rows = _list_conditions()
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

        rows = _list_conditions() | dict.fromkeys(_SHARED, _ALL)
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


def _list_conditions() -> dict[str, str]:
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


def _copy_home(
    caller: Caller, server: PostgresServer, *, to_files: bool, database: Database | None = None
) -> list[Copied]:
    """Copy the tables that belong to the home as a whole."""
    from kept.storage.postgres.rows import FileTables, ServerTables, copy_table

    tables = ServerTables(server.for_tenant())
    with (database or caller.app.state_file).writing() as unit:
        files = FileTables(unit, OWNER, dict.fromkeys(_HOME_TABLES, "1"))
        source, target = (tables, files) if to_files else (files, tables)
        return [copy_table(source, target, table, exact=True, tell=lambda _: None) for table in _HOME_TABLES]


def _write_url(caller: Caller, url: str) -> str:
    """Write `storage.url`, to the file of secrets if it has a password."""
    from kept.config.file import set_value
    from kept.config.load import set_secret

    home = caller.app.home
    if hide_password(url) == url:
        set_value(home, "storage.url", url)
        return str(home.config_file)
    set_secret(home.env_file, "KEPT_STORAGE__URL", url)
    return str(home.env_file)


def _drop_url(caller: Caller) -> str:
    from kept.config.file import unset_value
    from kept.config.load import unset_secret

    home = caller.app.home
    unset_value(home, "storage.url")
    unset_secret(home.env_file, "KEPT_STORAGE__URL")
    return "storage.url was removed"
