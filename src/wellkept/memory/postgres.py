"""Curated memory in PostgreSQL: pages as rows with versions, and the ledger beside them.

A write of a page is one transaction: the lock, the rows of the ledger and the page are committed together, so that
neither a killed process nor a lost connection leaves one without the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wellkept.core.errors import Busy, UsageError
from wellkept.core.ids import UserId
from wellkept.core.ports import Database, UnitOfWork
from wellkept.memory.ledger import Ledger
from wellkept.memory.page import PROJECT_PREFIX, StoredPage, Target, target_of
from wellkept.memory.store import ARCHIVE, BACKUPS_KEPT, FILE_NAMES, PROJECTS, Storage, nameless_folder
from wellkept.storage.connections import statements
from wellkept.storage.files import make_folder, read_bytes, write_atomically

SQL = statements("wellkept.memory", "postgres.sql")


class PostgresPages:
    """The pages of one user in the table `pages`; implements `Pages`."""

    def __init__(self, database: Database, user: str, *, project: str | None = None, part: str = "") -> None:
        self._database = database
        self._user = user
        self._project = project
        self._part = part

    def archive(self) -> "PostgresPages":
        """Return the archives of these pages: rows with a name of their own."""
        return PostgresPages(self._database, self._user, project=self._project, part=f"{ARCHIVE}/")

    def prepare(self) -> None:
        """Do nothing: the first write creates the row, and a killed writer leaves none."""

    def for_project(self, project: str | None) -> "PostgresPages":
        return PostgresPages(self._database, self._user, project=project)

    def projects(self) -> list[str]:
        with self._database.reading() as unit:
            return [str(name).removeprefix(PROJECT_PREFIX) for (name,) in self._run(unit, SQL.projects)]

    def find_project(self, project: str) -> str:
        """Return the name of a project's page, or its neutral name if the project's name was forgotten."""
        nameless = nameless_folder(project)
        with self._database.reading() as unit:
            rows = list(self._run(unit, SQL.read, name=target_of(Target.PROJECT, nameless)))
        return nameless if rows else project

    def rename_project(self, old: str, new: str) -> None:
        """Give the page of a project, and its archive, another name."""
        before, after = (target_of(Target.PROJECT, name) for name in (old, new))
        with self._database.writing() as unit:
            for sql in (SQL.rename_page, SQL.rename_copies):
                self._run(unit, sql, old=before, new=after)
            self._run(unit, SQL.rename_page, old=f"{ARCHIVE}/{before}", new=f"{ARCHIVE}/{after}")

    def name(self, target: Target) -> str:
        """Return the name of a page as that of its file would be."""
        if target is not Target.PROJECT:
            return f"{self._part}{FILE_NAMES[target]}"
        project = self._name_page(target).removeprefix(f"{self._part}{PROJECT_PREFIX}")
        return f"{self._part}{PROJECTS}/{project}/{FILE_NAMES[Target.MEMORY]}"

    def read(self, target: Target) -> StoredPage:
        """Return a page; a missing row is an empty page. The stamp is the version."""
        with self._database.reading() as unit:
            row = next(iter(self._run(unit, SQL.read, name=self._name_page(target))), (b"", 0))
        return StoredPage(self.name(target), target, bytes(row[0]), int(row[1]))

    @contextmanager
    def lock(self, target: Target, *, timeout_seconds: float) -> Iterator[None]:
        """Keep other writers of this page out until the end of the block, which is one transaction."""
        name = self._name_page(target)
        with self._database.limit_wait(timeout_seconds), self._database.writing() as unit:
            unit.execute(SQL.lock, (name,))
            yield

    def replace(self, target: Target, text: str, *, expected: StoredPage) -> None:
        """Replace the row if it still has the version that was read."""
        statement = SQL.replace if expected.stamp else SQL.create
        bindings = {"name": self._name_page(target), "raw": text.encode(), "expected": expected.stamp}
        with self._database.writing() as unit:
            if not list(self._run(unit, statement, **bindings)):
                raise Busy(f"{self.name(target)!r} was changed by another program at the same moment", "try again")

    def back_up(self, target: Target, raw: bytes, *, epoch: int) -> str:
        """Keep the raw bytes, once per distinct content, the newest ten; return the name of the copy."""
        name = self._name_page(target)
        with self._database.writing() as unit:
            copies = {int(number): bytes(data) for number, data in self._run(unit, SQL.copies, name=name)}
            found = next((number for number, data in copies.items() if data == raw), None)
            if found is None:
                found = epoch
                while found in copies:
                    found += 1
                self._run(unit, SQL.add_copy, name=name, epoch=found, raw=raw)
                for old in sorted(copies)[: max(0, len(copies) + 1 - BACKUPS_KEPT)]:
                    self._run(unit, SQL.drop_copy, name=name, epoch=old)
        return f"{Path(self.name(target)).name}.bak.{found}"

    def _name_page(self, target: Target) -> str:
        if target is Target.PROJECT and not self._project:
            raise UsageError("there is no project here", "run it in the folder of a project")
        return f"{self._part}{target_of(target, self._project)}"

    def _run(self, unit: UnitOfWork, statement: str, **bindings: object) -> Iterable[tuple[Any, ...]]:
        return unit.execute(statement, {"user": self._user, **bindings})


class PostgresLedger(Ledger):
    """The edits of one user in the table `edits`.

    It inherits because rows, checksums and statements are the same; only where they are stored differs.
    """

    def __init__(self, database: Database, user: str, *, project: str | None = None) -> None:
        super().__init__(Path(), user=UserId(user), project=project)
        self._database = database

    def for_project(self, project: str | None) -> "PostgresLedger":
        """Return the same ledger with the rows of a project's page."""
        return PostgresLedger(self._database, self._user, project=project)

    @property
    def _db(self) -> Database:
        return self._database

    @property
    def _exists(self) -> bool:
        return True

    def _allot(self, unit: UnitOfWork, count: int) -> tuple[int, int]:
        """Reserve ids for `count` new rows; return the first id and the number of the write."""
        numbers: Iterable[tuple[Any, ...]] = unit.execute(SQL.allot, {"user": self._user, "count": count})
        newest, write_id = next(iter(numbers))
        return int(newest) - count + 1, int(write_id)

    def is_watched(self) -> bool:
        """Whether a difference is an edit from outside: always true, because nobody edits rows of a server by hand."""
        return True

    def watch(self) -> None:
        """Do nothing: see `is_watched`."""

    def purge(self) -> bool:
        """Do nothing: the server's own vacuum removes old versions of rows."""
        return True

    def close(self) -> None:
        """Do nothing: connections belong to the server."""


class FolderPages:
    """The pages of a folder and their copies as rows of `pages` and `page_copies`, byte for byte."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def columns(self, table: str) -> list[str]:
        """Return the columns that a file has."""
        return ["name", "raw"] if table == "pages" else ["name", "epoch", "raw"]

    def read(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - as `columns` says
        """Yield the pages, or their copies."""
        for name, path in self._find_pages().items():
            if table == "pages" and (raw := read_bytes(path)) is not None:
                yield name, raw
            for copy in path.parent.glob(f"{path.name}.bak.*") if table != "pages" else ():
                if copy.suffix[1:].isdigit():
                    yield name, int(copy.suffix[1:]), read_bytes(copy) or b""

    def write(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:  # noqa: ARG002 - as above
        """Write pages, or copies of pages."""
        for name, *epoch, raw in rows:
            path = self._path(name)
            make_folder(path.parent)
            write_atomically(path.with_name(f"{path.name}.bak.{epoch[0]}") if epoch else path, bytes(raw))

    def clear(self, table: str) -> None:
        """Remove the files; they are about to be written."""
        for path in self._find_pages().values():
            for file in [path] if table == "pages" else list(path.parent.glob(f"{path.name}.bak.*")):
                file.unlink(missing_ok=True)

    def _find_pages(self) -> dict[str, Path]:
        projects = [path.name for path in sorted((self._folder / PROJECTS).glob("*")) if path.is_dir()]
        names = [*(target.value for target in FILE_NAMES), *(f"{PROJECT_PREFIX}{project}" for project in projects)]
        return {name: self._path(name) for name in (*names, *(f"{ARCHIVE}/{name}" for name in names))}

    def _path(self, name: str) -> Path:
        page = name.removeprefix(f"{ARCHIVE}/")
        folder = self._folder if page == name else self._folder / ARCHIVE
        if page.startswith(PROJECT_PREFIX):
            return folder / PROJECTS / page.removeprefix(PROJECT_PREFIX) / FILE_NAMES[Target.MEMORY]
        return folder / FILE_NAMES[Target(page)]


def open_storage(database: Database, user: str) -> Storage:
    """Return the pages and the ledger of a user, given by the name in the rows of `database`."""
    return Storage(PostgresPages(database, user), PostgresLedger(database, user))
