"""The schema on a PostgreSQL server: migrations, the serving role, and the checks before it is used.

A migration is `migrations/NNNN_name.sql`, run once by the owner of the tables. Every table is created with
`tenant text, user_id text` as the first columns of its key and is given to `protect_user_table('NAME')`, which sets
the defaults of both columns, FORCE ROW LEVEL SECURITY and the policy; a table of the whole tenant, without users, to
`protect_tenant_table('NAME')`.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import psycopg
from msgspec import Struct

from wellkept.core.errors import NewerDatabase, StorageError, UsageError
from wellkept.core.text import JSON, resource_path
from wellkept.storage.postgres.database import SCHEMA, PostgresServer, connect_as_owner, parse_url
from wellkept.storage.postgres.errors import MIGRATE, Place
from wellkept.storage.postgres.unit import Unit

OLDEST_SERVER = 14
_LOCK = 0x6B657074  # "kept": two processes that migrate at once take turns
_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")
Driver: TypeAlias = psycopg.Connection[tuple[object, ...]]


@cache
def list_migrations() -> dict[int, str]:
    """Return every migration by its number, in order."""
    found = {}
    for file in sorted(resource_path("wellkept.storage.postgres", "migrations").glob("*.sql")):
        number = int(file.name.partition("_")[0])
        assert number not in found, f"two migrations have the number {number}"
        found[number] = file.read_text(encoding="utf-8")
    return found


@cache
def list_user_tables() -> frozenset[str]:
    """Return the tables whose rows belong to users, as the migrations protect them."""
    return _list_protected("protect_user_table")


@cache
def list_tenant_tables() -> frozenset[str]:
    """Return the tables whose rows belong to a tenant as a whole."""
    return _list_protected("protect_tenant_table")


def _list_protected(function: str) -> frozenset[str]:
    calls = (call for text in list_migrations().values() for call in re.findall(rf"SELECT {function}\(([^;]+);", text))
    return frozenset(name for call in calls for name in re.findall(r"'(\w+)'", call))


def migrate(url: str) -> list[int]:
    """Create or update the tables as the owner of them; return the numbers of the migrations that ran.

    All in one transaction, under a lock that ends with it.
    """
    with connect_as_owner(url) as unit:
        _refuse_old(unit.connection, parse_url(url)[1])
        unit.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
        # only where it is missing: CREATE SCHEMA needs a right that an owner of the tables may not have
        if not unit.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (SCHEMA,)).fetchone():
            unit.execute(f"CREATE SCHEMA {SCHEMA}")
        unit.execute(f"SET LOCAL search_path = {SCHEMA}")
        unit.execute(
            "CREATE TABLE IF NOT EXISTS migrations"
            " (number integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
        )
        applied = _read_applied(unit)
        _refuse_newer(applied, parse_url(url)[1])
        waiting = [number for number in list_migrations() if number not in applied]
        for number in waiting:
            unit.connection.execute(list_migrations()[number].encode())
            unit.execute("INSERT INTO migrations (number) VALUES (?)", (number,))
    return waiting


def list_waiting(url: str) -> list[int]:
    """Return the numbers of the migrations that have not run on that database."""
    with connect_as_owner(url) as unit:
        (exists,) = unit.execute("SELECT to_regclass(?)", (f"{SCHEMA}.migrations",)).fetchone() or (None,)
        if exists is None:
            return list(list_migrations())
        unit.execute(f"SET LOCAL search_path = {SCHEMA}")
        applied = _read_applied(unit)
    return [number for number in list_migrations() if number not in applied]


def _read_applied(unit: Unit) -> set[int]:
    return {int(str(number)) for (number,) in unit.execute("SELECT number FROM migrations")}


def _refuse_old(connection: Driver, place: Place) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise StorageError(f"{place} is version {version}", f"kept needs PostgreSQL {OLDEST_SERVER} or newer")


def _refuse_newer(applied: set[int], place: Place) -> None:
    unknown = sorted(applied - set(list_migrations()))
    if unknown:
        what = f"{place.database!r} has migration {unknown[-1]}, this kept knows {max(list_migrations())}"
        raise NewerDatabase(what, "update kept; the database was not touched")


class Role(Struct, frozen=True):
    """What a role may do that a serving role must not."""

    name: str
    is_superuser: bool
    bypasses: bool
    owns: bool

    @property
    def fault(self) -> str:
        """Return why this role must not serve; empty if it may."""
        if self.is_superuser:
            return "is a superuser"
        if self.bypasses:
            return "has BYPASSRLS"
        return "owns the tables of kept, or is a member of their owner" if self.owns else ""


_READ_ROLE = """
SELECT current_user, rolsuper, rolbypassrls, EXISTS (
  SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind IN ('r', 'p')
    AND pg_has_role(current_user, relowner, 'MEMBER')
) FROM pg_roles WHERE rolname = current_user
"""


_MISSING_RIGHTS = """
SELECT tablename FROM pg_tables, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
WHERE schemaname = :schema AND NOT has_table_privilege(format('%I.%I', schemaname, tablename), needed)
GROUP BY tablename ORDER BY tablename
"""


def read_role(connection: Driver) -> Role:
    """Return the role of a connection."""
    row = connection.execute(_READ_ROLE.encode(), {"schema": SCHEMA}).fetchone()
    assert row is not None
    name, is_superuser, bypasses, owns = row
    return Role(str(name), bool(is_superuser), bool(bypasses), bool(owns))


def check_server(connection: Driver, place: Place) -> None:
    """Raise StorageError unless version, role and schema are fit to serve.

    A role that row-level security does not bind would see the rows of every user.
    """
    _refuse_old(connection, place)
    role = read_role(connection)
    if role.fault:
        what = f"{role.name!r} {role.fault}: row-level security would not bind it"
        raise StorageError(what, "serve as another role: `kept storage create-role NAME` prints its statements")
    (exists, usable) = connection.execute(
        b"SELECT to_regclass(%(table)s), has_schema_privilege(to_regnamespace(%(schema)s), 'USAGE')",
        {"table": f"{SCHEMA}.migrations", "schema": SCHEMA},
    ).fetchone() or (None, None)
    if usable is False:
        raise StorageError(
            f"{role.name!r} may not use the tables of kept", "grant what `kept storage create-role` prints"
        )
    if exists is None:
        raise _lacks_tables(place)
    applied = {int(str(number)) for (number,) in connection.execute(b"SELECT number FROM kept.migrations")}
    _refuse_newer(applied, place)
    if set(list_migrations()) - applied:
        raise _lacks_tables(place)


def _lacks_tables(place: Place) -> StorageError:
    return StorageError(f"{place.database!r} lacks tables of this kept", MIGRATE)


def describe_server(server: PostgresServer) -> dict[str, JSON]:
    """Return version and size of the server's database, and how many migrations it has."""
    with server.for_tenant().reading() as unit:
        version = unit.connection.info.server_version
        (size, applied) = unit.execute(
            "SELECT pg_database_size(current_database()), (SELECT count(*) FROM migrations)"
        ).fetchone() or (0, 0)
    shown = f"{version // 10_000}.{version % 10_000}"
    return {"version": shown, "bytes": int(str(size)), "migrations": int(str(applied))}


def find_missing_rights(server: PostgresServer) -> list[str]:
    """Return the tables that the serving role may not read and change."""
    with server.for_tenant().reading() as unit:
        return [str(name) for (name,) in unit.execute(_MISSING_RIGHTS, {"schema": SCHEMA})]


def role_statements(role: str, *, database: str, password: str | None = None) -> Sequence[str]:
    """Return the statements that create or update the serving role, for the owner of the tables to run.

    Default privileges cover the tables of later migrations by the same owner.
    """
    if not _ROLE.fullmatch(role):
        raise UsageError(f"{role!r} is not a valid name for a role", "use lower-case letters, digits and underscores")
    name = database.replace('"', '""')
    secret = "" if password is None else " PASSWORD '" + password.replace("'", "''") + "'"
    exists = f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"  # noqa: S608 - the name was checked
    create = f"DO $$ BEGIN IF NOT EXISTS ({exists}) THEN CREATE ROLE {role} LOGIN; END IF; END $$"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    return (
        create,
        f"ALTER ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE{secret}",
        f'GRANT CONNECT ON DATABASE "{name}" TO {role}',
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}",
        f"GRANT {rights} ON ALL TABLES IN SCHEMA {SCHEMA} TO {role}",
        # UPDATE lets a move from files advance the sequences
        f"GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO {role}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA} GRANT {rights} ON TABLES TO {role}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA} GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO {role}",
    )


def create_role(url: str, role: str, *, password: str | None = None) -> None:
    """Run the statements of `role_statements` as the owner of the tables."""
    database = parse_url(url)[1].database
    with connect_as_owner(url) as unit:
        for statement in role_statements(role, database=database, password=password):
            unit.connection.execute(statement.encode())
