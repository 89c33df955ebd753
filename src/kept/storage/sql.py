"""SQL files: named statements, and schema migrations that run in order, forward only."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import apsw

from kept.core.text import resource_path, resource_text

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


class Statements:
    """The statements of one file, as attributes."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        pieces = _NAME.split(text)
        self._by_name = {name: body.strip().rstrip(";") for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}

    def __getattr__(self, name: str) -> str:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"no statement {name!r} in {self._source}") from None


@cache
def statements(package: str, file: str) -> Statements:
    """Return the statements of `file` in `package`, each after a line `-- name: NAME`."""
    return Statements(f"{package}/{file}", resource_text(package, file))


Step: TypeAlias = str | Callable[[apsw.Connection], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema; with `rewrites`, the file is backed up before the step runs."""

    version: int
    step: Step
    rewrites: bool = False


def sql_migrations(package: str, folder: str = "migrations") -> tuple[Migration, ...]:
    """Return the migrations of `package`, files `NNNN_name.sql`; a first line `-- rewrites` requests a backup."""
    found = []
    for file in resource_path(package, folder).iterdir():
        number, _, rest = file.name.partition("_")
        if number.isdigit() and rest.endswith(".sql"):
            text = file.read_text(encoding="utf-8")
            found.append(Migration(int(number), text, rewrites=text.startswith("-- rewrites")))
    return tuple(sorted(found, key=lambda migration: migration.version))


def migrate(connection: apsw.Connection, migrations: Sequence[Migration], path: Path | None) -> None:
    """Bring the database up to date; each step is one transaction and sets its version.

    `path` is None for an in-memory database, which is not backed up.
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
        return  # another process migrated while this one waited for the lock
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
    """Copy the file through a second connection: SQLite cannot back up the one that holds the write lock."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT, 0o600))
    source, copy = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY), apsw.Connection(str(target))
    with copy.backup("main", source, "main") as backup:
        backup.step()
    copy.close()
    source.close()
