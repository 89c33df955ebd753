"""Storage of a home: its status, its copy to a PostgreSQL server and back row by row, and the serving role there."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Caller, Scope
from wellkept.core.agency import refuse_decision
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.events import Progressed
from wellkept.core.ids import OWNER, UserId, random_hex
from wellkept.core.ports import Database, EventSink, UnitOfWork, ignore
from wellkept.core.regular_files import load_bytes
from wellkept.operations.profiles import hide_password
from wellkept.operations.users import add_account, list_users, write_card
from wellkept.storage.connections import sql_migrations
from wellkept.storage.documents import FolderDocuments, RowDocuments
from wellkept.storage.files import APPLICATION_ID, make_folder, move, write_atomically
from wellkept.storage.sqlite import Database as SqliteDatabase
from wellkept.storage.sqlite import open_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wellkept.config.home import Home
    from wellkept.core.text import JSON
    from wellkept.storage.postgres.database import PostgresServer
    from wellkept.storage.postgres.rewrite import Rewritten
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
        if any(one.table == "messages" and one.rows for one in self._done):
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
        make_folder(self._memories)
        path, migrations = self._memories / "ledger.db", sql_migrations("wellkept.memory")
        with closing(
            SqliteDatabase(path, application_id=APPLICATION_ID, migrations=migrations, durability="full")
        ) as opened:
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
    chosen = list(users)
    with closing(open_state(home.database)) as database:
        for user in chosen:
            Move(server, user, home.for_user(user).memories, sink).run_back(database)
        if OWNER in chosen:
            copy_home(server, database, to_files=True)


_URL_VARIABLE = "KEPT_STORAGE__URL"
FILES = "sqlite"
"""The name that selects files as the target of a migration."""
_MARK = "moving"
_READ_MARK = "SELECT value FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?"
_PUT_MARK = (
    "INSERT INTO state_meta (/*! tenant, user_id, */ key, value) VALUES (/*! :tenant, :user, */ ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_DROP_MARK = "DELETE FROM state_meta WHERE /*! tenant = :tenant AND user_id = :user AND */ key = ?"
_HOME = "home"
"""The note with the id of the home that a tenant or a file belongs to; paths of two hosts may be the same."""
_LEFT = "left"
"""The note on a server that its home moved back to files, with its row counts then."""


class StorageStatus(Struct, frozen=True):
    """Where the data of a home is, and how much."""

    kind: str
    """`files` or `postgresql`."""
    place: str
    facts: Mapping[str, JSON] = field(default_factory=dict)

    def as_json(self) -> dict[str, JSON]:
        """Return the place and the facts."""
        return {"kind": self.kind, "place": self.place, **self.facts}


class MoveReport(Struct, frozen=True):
    """A finished migration: what was copied for each user, verified table by table."""

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
            user: [
                {"table": table.table, "rows": table.rows, "checksum": table.checksum} for table in tables if table.rows
            ]
            for user, tables in self.users.items()
        }
        return {"to": self.to, "rows": self.rows, "setting": self.setting, "users": users}


def check_address(url: str) -> None:
    """Raise ConfigError for an incomplete URL, naming the missing part; does not connect.

    Raises UsageError without the driver.
    """
    from wellkept.app.store_care import require_driver

    if url:
        require_driver()
        from wellkept.storage.postgres.database import parse_url

        parse_url(url)


def write_address(home: Home, url: str, *, why_no_person: str) -> Path:
    """Write `storage.url` and return the file: that of secrets if it has a password, else the settings file."""
    from wellkept.config.settings import set_secret, set_value, unset_secret, unset_value

    check_address(url)
    if why_no_person:
        raise refuse_decision(why_no_person, "`kept config set storage.url URL`")
    if hide_password(url) == url:
        set_value(home, "storage.url", url, why_no_person=why_no_person)
        unset_secret(home.env_file, _URL_VARIABLE)  # it would take precedence
        return home.config_file
    set_secret(home.env_file, _URL_VARIABLE, url)
    unset_value(home, "storage.url", why_no_person=why_no_person)
    return home.env_file


def drop_address(home: Home, *, why_no_person: str) -> Path | None:
    """Remove `storage.url` from the settings and the secrets; return the file that had it, None if none had."""
    from wellkept.config.settings import unset_secret, unset_value

    if why_no_person:
        raise refuse_decision(why_no_person, "`kept config unset storage.url`")
    was_set = unset_value(home, "storage.url", why_no_person=why_no_person)
    if unset_secret(home.env_file, _URL_VARIABLE):
        return home.env_file
    return home.config_file if was_set else None


def show_storage(caller: Caller) -> StorageStatus:
    """Return where the home is stored; raises StorageError if a server cannot be reached or used."""
    caller.require(Scope.ADMIN)
    sessions, messages = caller.space.sessions.totals() if caller.app.has_database else (0, 0)
    facts: dict[str, JSON] = {"sessions": sessions, "messages": messages, "users": len(list_users(caller))}
    server = caller.app.server
    if server is None:
        file = caller.app.home.database
        return StorageStatus("files", str(file), {**facts, "bytes": file.stat().st_size if file.exists() else 0})
    from wellkept.storage.postgres.schema import describe_server

    place = f"{server.place}, database {server.place.database!r}"
    told = describe_server(server)
    return StorageStatus("postgresql", place, {**facts, **told, "tenant": server.tenant, "role": server.place.role})


def list_role_statements(caller: Caller, role: str, url: str) -> Sequence[str]:
    """Return the statements that create the serving role, for the owner of the tables to run."""
    caller.require(Scope.ADMIN)
    from wellkept.storage.postgres.database import parse_url
    from wellkept.storage.postgres.schema import role_statements

    return role_statements(role, database=parse_url(url)[1].database)


def create_role(caller: Caller, role: str, url: str, *, password: str | None = None) -> None:
    """Create or update the tables and the serving role, as the owner that `url` names."""
    caller.require_person("`kept storage create-role`")
    caller.require(Scope.ADMIN)
    from wellkept.storage.postgres import schema

    schema.migrate(url)
    schema.create_role(url, role, password=password)


def update_tables(caller: Caller, url: str) -> list[int]:
    """Create or update the tables as the owner that `url` names; return the numbers of the migrations that ran."""
    caller.require(Scope.ADMIN)
    from wellkept.storage.postgres.schema import migrate

    return migrate(url)


def rewrite_tables(caller: Caller, url: str, *, words: str = "") -> Rewritten:
    """Write every table on the server anew, so that no deleted bytes stay in its files, and look for `words` there."""
    caller.require(Scope.ADMIN)
    from wellkept.app.store_care import require_driver

    require_driver()
    from wellkept.storage.postgres.rewrite import rewrite
    from wellkept.storage.texts import Texts

    return rewrite(url, Texts([words] if words.strip() else []))


def move_storage(caller: Caller, to: str) -> MoveReport | Refused:
    """Copy everything of a home to a server, or back to files, verify it, and close the app.

    The copy is used when the home is opened again. The same call continues an interrupted migration. Files that are no
    longer used are renamed; a server that is no longer used stays as it was.
    """
    caller.require_person("`kept storage migrate`")
    caller.require(Scope.ADMIN)
    if not caller.is_owner:
        raise UsageError("only the owner can migrate a home", "run it without --as")
    if to == FILES:
        return _move_to_files(caller)
    app = caller.app
    from wellkept.storage.postgres.database import PostgresServer

    server = PostgresServer(to, tenant=app.settings.storage.tenant)
    app.on_close(server.close)
    if app.server is not None:
        return _finish_move(caller, server)
    everybody = list_users(caller)
    users = [user.id for user in everybody]
    if refused := _refuse_taken(caller, server, users):
        return refused
    with server.for_tenant().writing() as unit:
        unit.execute(_PUT_MARK, (_MARK, _name_home(caller)))
        unit.execute(_PUT_MARK, (_HOME, _name_home(caller)))
        unit.execute(_DROP_MARK, (_LEFT,))
    with app.state_file.writing():  # nobody writes to the file meanwhile
        moved = {
            user: Move(server, user, app.home.for_user(user).memories, app.report).run_forward(app.state_file)
            for user in users
        }
        moved[OWNER] = [*moved[OWNER], *copy_home(server, app.state_file, to_files=False)]
    for user in everybody:
        if user.created is not None:
            add_account(server, user.id, user.created)
    report = MoveReport(
        str(hide_password(to)), moved, str(write_address(app.home, to, why_no_person=caller.why_no_person))
    )
    app.close()  # its files are closed, so that nothing writes to them under their new names
    _set_aside(caller)  # old rows and pages must not be mistaken for the current ones
    _drop_mark(server)
    return report


def _finish_move(caller: Caller, server: PostgresServer) -> MoveReport | Refused:
    """Set aside the files that an interrupted migration left after a finished copy; refuse anything else."""
    app = caller.app
    assert app.server is not None
    is_same = app.server.address == server.address
    if is_same and _read_mark(server, _MARK) and app.home.database.exists():
        app.close()
        _set_aside(caller)
        _drop_mark(server)
        return MoveReport(str(server.place), {}, "it was copied before")
    back = "" if is_same else "to move it to another server, first run `kept storage migrate --to sqlite`; "
    return Refused(
        Reason.PRESENT, f"the home is already stored at {app.server.place}", f"{back}`kept storage status` shows it"
    )


def _read_mark(server: PostgresServer, key: str) -> str:
    with server.for_tenant().reading() as unit:
        return next((str(value) for (value,) in unit.execute(_READ_MARK, (key,))), "")


def _drop_mark(server: PostgresServer) -> None:
    with server.for_tenant().writing() as unit:
        unit.execute(_DROP_MARK, (_MARK,))
    server.close()


def _name_home(caller: Caller) -> str:
    """Return the id of this home, which is created at its first migration and stays in its file."""
    with caller.app.state_file.writing() as unit:
        unit.execute(_PUT_MARK, (_HOME, random_hex(8)))
        return next(str(value) for (value,) in unit.execute(_READ_MARK, (_HOME,)))


def _refuse_taken(caller: Caller, server: PostgresServer, users: Sequence[UserId]) -> Refused | None:
    """Refuse a tenant with data of another home, or with changes made after this home left it."""
    moving = _read_mark(server, _MARK)
    if moving and moving in {_name_home(caller), str(caller.app.home.path)}:  # kept 0.9 named the home by its path
        return None
    left = _read_mark(server, _LEFT) if _read_mark(server, _HOME) == _name_home(caller) else ""
    if left and left == _count_rows(server, users):
        return None
    remedy = "use another database, or set another storage.tenant"
    if left:
        what = f"{server.place} was written to after this home had moved back to files"
        return Refused(Reason.PRESENT, what, f"{remedy}; what is there now is not in these files")
    with server.for_tenant().reading() as unit:
        others = [
            str(name) for (name,) in unit.execute("SELECT id FROM users WHERE tenant = :tenant ORDER BY id LIMIT 1")
        ]
    taken = moving or others or not all(is_unused(server, user) for user in users)
    return Refused(Reason.PRESENT, f"{server.place} already has data of another home", remedy) if taken else None


def _count_rows(server: PostgresServer, users: Sequence[UserId]) -> str:
    """Return the newest numbers of every user: they differ as soon as anything was written."""
    found = []
    for user in sorted(users):
        with server.for_user(user).reading() as unit:
            for table in ("messages", "edits"):
                own = f"{table} WHERE tenant = :tenant AND user_id = :user"
                rows = unit.execute(f"SELECT coalesce(max(id), 0), count(*) FROM {own}")  # noqa: S608 - constants
                found += [str(value) for row in rows for value in row]
    return " ".join(found)


def _move_to_files(caller: Caller) -> MoveReport | Refused:
    app, server = caller.app, caller.app.server
    if server is None:
        return Refused(Reason.PRESENT, "the home is already stored in files", "`kept storage status`")
    mark = app.home.path / "moving-to-files"
    if not mark.exists():
        _set_aside(caller)
        write_atomically(mark, b"the copy of a PostgreSQL database into these files is not complete\n")
    everybody = list_users(caller)
    users = [user.id for user in everybody]
    for user in everybody:
        if user.created is not None:  # maybe at another host
            write_card(caller, user.id, user.created)
    database = open_state(app.home.database, sink=app.report)
    app.on_close(database.close)
    moved = {
        user: Move(server, user, app.home.for_user(user).memories, app.report).run_back(database) for user in users
    }
    moved[OWNER] = [*moved[OWNER], *copy_home(server, database, to_files=True)]
    home = _read_mark(server, _HOME) or random_hex(8)
    with database.writing() as unit:
        unit.execute(_PUT_MARK, (_HOME, home))
    with server.for_tenant().writing() as unit:
        unit.execute(_PUT_MARK, (_HOME, home))
        unit.execute(_DROP_MARK, (_LEFT,))
        unit.execute(_PUT_MARK, (_LEFT, _count_rows(server, users)))
    drop_address(app.home, why_no_person=caller.why_no_person)
    mark.unlink()
    return MoveReport(FILES, moved, "storage.url was removed")


def _set_aside(caller: Caller) -> None:
    """Rename the files that a migration replaces, in a form that `forget` recognises as copies."""
    file, now = caller.app.home.database, caller.app.clock.now()
    stamp = f"{now:%Y%m%d-%H%M%S}"
    for path in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        if path.exists():
            move(path, path.with_name(path.name.replace(file.name, f"{file.name}.before-{stamp}")))
    for ledger in caller.app.home.path.rglob("memories/ledger.db"):
        move(ledger, ledger.with_name(f"ledger.db.before-{stamp}"))
        for page in [*ledger.parent.glob("*.md"), *ledger.parent.glob("projects/*/*.md")]:
            move(page, page.with_name(f"{page.name}.bak.{int(now.timestamp())}"))
        remove_documents(
            ledger.parent
        )  # the server has them, and a write that was decided must not become pending again
