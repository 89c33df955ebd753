"""The one runner of schema migrations: ordered, one transaction each, forward only."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import apsw

from kept.core.text import resource_path

Step: TypeAlias = str | Callable[[apsw.Connection], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema; `rewrites` asks for a copy of the file before it runs."""

    version: int
    step: Step
    rewrites: bool = False


def sql_migrations(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    """Return the migrations of `package`, files `NNNN_name.sql`; a first line `-- rewrites` asks for a backup."""
    found = []
    for file in resource_path(package, folder).iterdir():
        number, _, rest = file.name.partition("_")
        if number.isdigit() and rest.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(number), text, rewrites=text.startswith("-- rewrites")))
    return tuple(sorted(found, key=lambda migration: migration.version))


def migrate(connection: apsw.Connection, migrations: Sequence[Migration], path: Path | None) -> None:
    """Bring the file behind `connection` up to date; each step commits alone, with its version.

    Without a `path` there is no file, and nothing is backed up.
    """
    newest = migrations[-1].version if migrations else 0
    if _version(connection) >= newest:
        return
    for migration in migrations:
        if _version(connection) >= migration.version:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            _apply(connection, migration, path)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):  # a full disk may have rolled back already
                connection.execute("ROLLBACK")
            raise


def _apply(connection: apsw.Connection, migration: Migration, path: Path | None) -> None:
    if _version(connection) >= migration.version:
        return  # another process was first; the lock made us wait for it
    if migration.rewrites and path is not None:
        _back_up(path, path.with_name(f"{path.name}.before-{migration.version}"))
    if callable(migration.step):
        migration.step(connection)
    else:
        connection.execute(migration.step)
    connection.pragma("user_version", migration.version)


def _version(connection: apsw.Connection) -> int:
    version = connection.pragma("user_version")
    assert isinstance(version, int)
    return version


def _back_up(path: Path, target: Path) -> None:
    """Copy the file through a reader of its own: the connection that holds the write lock may not be copied."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT, 0o600))
    source, copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY), apsw.Connection(str(target))
    with copy.backup("main", source, "main") as backup:
        backup.step()
    copy.close()
    source.close()
