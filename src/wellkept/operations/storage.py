"""Storage of a home: its status, the migration to a PostgreSQL server and back, and the serving role there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.app.caller import Scope
from wellkept.core.agency import refuse_decision
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.ids import OWNER, random_hex
from wellkept.operations.profiles import hide_password
from wellkept.operations.storage_rows import Move, copy_home, is_unused, remove_documents
from wellkept.operations.users import add_account, list_users, write_card
from wellkept.storage.files import move, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from wellkept.app.caller import Caller
    from wellkept.config.home import Home
    from wellkept.core.ids import UserId
    from wellkept.core.ports import Database
    from wellkept.core.text import JSON
    from wellkept.storage.postgres.database import PostgresServer
    from wellkept.storage.postgres.rewrite import Rewritten
    from wellkept.storage.postgres.rows import Copied

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
            user: [{"table": one.table, "rows": one.rows, "checksum": one.checksum} for one in tables if one.rows]
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
    from wellkept.storage.sqlite import open_state

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
    _note_departure(server, database, users)
    drop_address(app.home, why_no_person=caller.why_no_person)
    mark.unlink()
    return MoveReport(FILES, moved, "storage.url was removed")


def _note_departure(server: PostgresServer, database: Database, users: Sequence[UserId]) -> None:
    """Record the departure, so that the home may return to this server as long as nobody else writes there."""
    home = _read_mark(server, _HOME) or random_hex(8)
    with database.writing() as unit:
        unit.execute(_PUT_MARK, (_HOME, home))
    with server.for_tenant().writing() as unit:
        unit.execute(_PUT_MARK, (_HOME, home))
        unit.execute(_DROP_MARK, (_LEFT,))
        unit.execute(_PUT_MARK, (_LEFT, _count_rows(server, users)))


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
