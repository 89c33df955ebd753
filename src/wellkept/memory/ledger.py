"""The ledger in SQLite: every accepted edit of a user's pages, in `ledger.db` next to them."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from wellkept.core.errors import StorageError, Unreadable
from wellkept.core.ids import OWNER, LedgerId, SessionId, SourceName, UserId, checksum
from wellkept.core.ports import Database, UnitOfWork
from wellkept.memory.page import (
    PROJECT_PREFIX,
    Author,
    Change,
    EditRecord,
    LedgerRepair,
    Step,
    Target,
    digest,
    list_clean,
    page_hash,
    page_of,
    split_digests,
    target_of,
)
from wellkept.storage.connections import sql_migrations, statements
from wellkept.storage.files import APPLICATION_ID, make_folder, resolve_link, write_atomically
from wellkept.storage.sqlite import Database as SqliteDatabase

_TABLE = "edits"
_MOST_BYTES = 4_096
"""Texts up to this length are searched for a flipped bit; entries are shorter, and the search grows with the square."""
SQL = statements("wellkept.memory", "ledger.sql")
REPAIR = "run `kept memory repair`; it saves the edits that can be read"
_HARMLESS = ("ok", "NULL value in ", "CHECK constraint failed")
"""Beginnings of findings that are about the values of a row, which its checksum covers."""
_WATCHED = ".watched"
"""An empty file: it exists once the pages were compared with the ledger. A new home needs no database for that."""


def check_copied_ledger(path: Path) -> list[str]:
    """Describe the damaged rows of a copied ledger, which no process writes."""
    migrations = sql_migrations("wellkept.memory")
    opened = SqliteDatabase(path, application_id=APPLICATION_ID, migrations=migrations, read_only=True)
    with closing(opened) as database, database.reading() as unit:
        if unit.pragma("user_version") != migrations[-1].version:
            return []
        rows = [LedgerRow(*row) for row in _rows(unit, SQL.whole, (0,))]
        return [f"edit {row.id} of the ledger is damaged" for row in rows if row.is_damaged]


class Ledger:
    """The edits of one user's pages, oldest first, in one sequence of ids; they are rows of a file.

    Writers call it under the lock of the page. The file is opened at the first use; a ledger that does not exist
    reads as empty and is created by the first write.
    """

    def __init__(self, path: Path, *, user: UserId = OWNER, project: str | None = None) -> None:
        self._path = path
        self._user = user
        self._project = project
        self._whole: Ledger | None = None
        """The ledger whose open file this one uses."""

    def for_project(self, project: str | None) -> "Ledger":
        """Return the same ledger with the rows of a project's page."""
        other = Ledger(self._path, user=self._user, project=project)
        other._whole = self._whole or self
        return other

    @property
    def _db(self) -> Database:
        """The rows of this user."""
        return self._open_database if self._whole is None else self._whole._open_database  # noqa: SLF001 - another view

    @cached_property
    def _open_database(self) -> SqliteDatabase:
        open_at = partial(
            SqliteDatabase,
            self._path,
            application_id=APPLICATION_ID,
            migrations=sql_migrations("wellkept.memory"),
            durability="full",
        )
        try:
            return open_at(read_only=False)
        except StorageError:
            if not self._path.is_file() or os.access(self._path.parent, os.W_OK):
                raise
            return open_at(read_only=True)

    @property
    def _exists(self) -> bool:
        return "_open_database" in self.__dict__ or self._path.exists()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._whole is not None:
            self._whole.close()
        elif "_open_database" in self.__dict__:
            self._open_database.close()
            del self.__dict__["_open_database"]

    def append(
        self,
        target: Target,
        change: Change,
        before: Sequence[str],
        *,
        author: Author,
        now: float,
        stamp: int | None = None,
    ) -> list[LedgerId]:
        """Append one write durably and return the ids of its rows, one per step."""
        of_write: dict[str, Any] = {
            "group_id": author.group_id,
            "time": float(now),
            "target": self._name(target),
            "session_id": author.session_id,
            "user_id": self._user,
            "reason": author.reason,
            "allowed": json.dumps(sorted(author.allow)) if author.allow else None,
            "page_before": page_hash(before),
            "page_after": page_hash(change.entries),
            "page_stamp": stamp,
        }
        ids = []
        steps = list(change.with_origins(author))
        with self._db.writing() as unit:
            first, write_id = self._allot(unit, len(steps))
            self._seal(unit, _numbers(unit, SQL.unchecked))
            for number, (step, origin) in enumerate(steps):
                of_step = {
                    "id": first + number,
                    "write_id": write_id,
                    "action": step.action,
                    "before": step.before,
                    "after": step.after,
                    "position": step.position,
                    "origin": origin,
                    "undoes": change.undoes[number] if change.undoes else None,
                    "source": author.find_source(step),
                }
                row = LedgerRow(**(of_write | of_step)).with_checksum()
                unit.execute(SQL.insert, {**row._asdict(), "user": row.user_id})
                ids.append(LedgerId(row.id))
            self._keep_clean(unit, target, change.entries)
        return ids

    def _allot(self, unit: UnitOfWork, count: int) -> tuple[int, int]:  # noqa: ARG002 - the file is locked until the commit
        """Reserve ids for `count` new rows; return the first id and the number of the write."""
        (write_id,), (newest,) = _numbers(unit, SQL.next_write), _numbers(unit, SQL.newest_id)
        return newest + 1, write_id

    def _keep_clean(self, unit: UnitOfWork, target: Target, entries: Sequence[str]) -> None:
        """Store which entries on the page are known to be clean."""
        names = {digest(entry) for entry in entries}
        clean = {*list_clean(names)}
        if len(clean) < len(names):
            clean |= self.clean_entries(target) & names
        unit.execute(SQL.keep_clean, (self._name(target), b"".join(sorted(clean))))

    def clean_entries(self, target: Target) -> frozenset[bytes]:
        """Return the digests (`page.digest`) of entries of a page that were clean when it was last written.

        Derived data, which may be missing at any time.
        """
        if not self._exists:
            return frozenset()
        with self._db.reading() as unit:
            return split_digests(_first(unit, SQL.clean, (self._name(target),)))

    def is_watched(self) -> bool:
        """Whether pages and rows have agreed before, so that a difference is an edit from outside."""
        return self._path.with_name(_WATCHED).exists()

    def watch(self) -> None:
        """Record that the pages agree with the rows; from now on a difference is an edit from outside."""
        marker = self._path.with_name(_WATCHED)
        make_folder(marker.parent)
        write_atomically(marker, b"")

    def _seal(self, unit: UnitOfWork, numbers: Iterable[int]) -> None:
        """Compute the checksums of changed rows, and of rows from older versions."""
        for number in numbers:
            for values in list(_rows(unit, SQL.one, (number,))):
                row = LedgerRow(*values)
                if not row.is_malformed:
                    unit.execute(SQL.set_checksum, (row.with_checksum().checksum, number))
                elif row.checksum is not None:  # it was damaged before it was blanked
                    unit.execute(SQL.set_row, report_damage(row).with_checksum()._asdict())

    def void(self, write_id: int) -> None:
        """Remove a write that never reached its page; no method returns its rows again."""
        with self._db.writing() as unit:
            unit.execute(SQL.void, (write_id,))

    def newest(self, target: Target) -> EditRecord | None:
        """Return the last row of a page."""
        if not self._exists:
            return None
        with self._db.reading() as unit:
            row = _first(unit, SQL.newest, (self._name(target),))
        return None if row is None else LedgerRow(*row).record()

    def _name(self, target: Target) -> str:
        return target_of(target, self._project)

    def rows(
        self, target: Target | None = None, *, after: int = 0, limit: int | None = None, everywhere: bool = False
    ) -> list[EditRecord]:
        """Return the rows with an id greater than `after`, oldest first; other projects' only with `everywhere`."""
        if not self._exists:
            return []
        bindings = {
            "target": None if target is None else self._name(target),
            "project": None if self._project is None else self._name(Target.PROJECT),
            "everywhere": everywhere,
            "after": after,
            "limit": _ALL if limit is None else limit,
        }
        with self._db.reading() as unit:
            return [_read_record(row) for row in _rows(unit, SQL.rows, bindings)]

    def contains(self, target: Target, entry: str, *, outside: bool = True) -> bool:
        """Whether a row wrote this entry; with `outside=False`, whether a write through kept did."""
        return self._exists and self._find(SQL.known_after if outside else SQL.written_after, target, entry) is not None

    def last_change(self, target: Target, entry: str) -> int:
        """Return the id of the last row that wrote this entry, 0 when none did."""
        return int(self._find(SQL.last_change, target, entry) or 0) if self._exists else 0

    def _find(self, statement: str, target: Target, entry: str) -> int | None:
        with self._db.reading() as unit:
            row = _first(unit, statement, (self._name(target), entry))
        return None if row is None or row[0] is None else int(row[0])

    def has_sources(self) -> bool:
        """Whether any row names a source."""
        if not self._exists:
            return False
        with self._db.reading() as unit:
            return _first(unit, SQL.has_sources) is not None

    def forget_session(self, session_id: SessionId) -> list[LedgerId]:
        """Blank the texts of a session's rows, keeping ids and hashes; return the rows."""
        return self._blank(SQL.blank_session, (session_id,))

    def forget_entry(self, target: Target, entry: str) -> list[LedgerId]:
        """Blank this entry in every row of its page; return the rows."""
        return self._blank(SQL.blank_entry, {"target": self._name(target), "entry": entry})

    def _blank(self, statement: str, bindings: Any) -> list[LedgerId]:
        if not self._exists:
            return []
        with self._db.writing() as unit:
            ids = [LedgerId(number) for number in sorted(_numbers(unit, statement, bindings))]
            self._seal(unit, ids)
        _read_record.cache_clear()
        return ids

    def forget_words(self, words: Sequence[str]) -> list[LedgerId]:
        """Blank every text that contains one of `words`, ignoring case; return the rows."""
        from wellkept.storage.texts import Texts  # loads every kind of archive

        wanted = Texts(words)
        if not self._exists or not wanted:
            return []
        with self._db.writing() as unit:
            # databases fold letters each in its own way, so the comparison is made here
            ids = list[LedgerId]()
            new_sources: dict[LedgerId, str] = {}
            for number, source, *texts in _rows(unit, SQL.texts):
                if any(wanted.are_in(str(text)) for text in texts if text):
                    ids.append(LedgerId(number))
                if source and wanted.are_in(str(source)):
                    kind, colon, _ = str(source).partition(":")
                    # the row still shows that there was a source
                    new_sources[LedgerId(number)] = f"{kind}:forgotten" if colon else "forgotten"
            for number in ids:
                unit.execute(SQL.blank_row, (number,))
            for number, name in new_sources.items():
                unit.execute(SQL.set_source, (name, number))
            self._seal(unit, sorted({*ids, *new_sources}))
        _read_record.cache_clear()
        return ids

    def rename_sessions(self, words: Sequence[str], neutral_id: Callable[[str], str]) -> list[LedgerId]:
        """Replace the id of every session that contains one of `words`; return the rows that named one."""
        from wellkept.storage.texts import Texts

        wanted = Texts(words)
        if not self._exists or not wanted:
            return []
        with self._db.writing() as unit:
            named = [(number, str(name)) for number, name in _rows(unit, SQL.sessions) if wanted.are_in(str(name))]
            for number, name in named:
                unit.execute(SQL.set_session, (neutral_id(name), number))
            self._seal(unit, [number for number, _ in named])
        _read_record.cache_clear()
        return [LedgerId(number) for number, _ in named]

    def rename_project(self, old: str, new: str) -> None:
        """Give the rows of a project's page the other name of the project."""
        if not self._exists:
            return
        before, after = (target_of(Target.PROJECT, name) for name in (old, new))
        with self._db.writing() as unit:
            numbers = [int(str(number)) for (number,) in unit.execute(SQL.of_target, (before,))]
            for number in numbers:
                unit.execute(SQL.set_target, (after, number))
            unit.execute(SQL.rename_clean, (after, before))
            self._seal(unit, numbers)
        _read_record.cache_clear()

    def damaged(self) -> list[LedgerId]:
        """Return the rows that are not as they were written; raise Unreadable if the file is damaged."""
        if not self._exists:
            return []
        self._check_file()
        with self._db.reading() as unit:
            rows = [LedgerRow(*row) for row in _rows(unit, SQL.whole, (0,))]
        return [LedgerId(row.id) for row in rows if row.is_damaged]

    def repair(self, texts: Iterable[str]) -> LedgerRepair:
        """Rebuild damaged rows where their checksum proves the text; mark the others as damaged for good.

        `texts` may be what a row wrote: the entries that are on the pages now. Of a damaged file the rows that can be
        read are copied into a new one first.
        """
        saved, put_aside = 0, ""
        try:
            self._check_file()
        except Unreadable:
            self.close()
            saved, put_aside = salvage(self._path, moment=time.strftime("%Y%m%d-%H%M%S"))
        with self._db.writing() as unit:
            rows = rebuild_rows(unit, texts)
        return LedgerRepair(rows.rebuilt, rows.marked, saved, put_aside)

    def _check_file(self) -> None:
        """Raise Unreadable if SQLite finds the file damaged, also in an index that no row is read through."""
        with self._db.reading() as unit:
            problems = [str(problem) for (problem,) in _rows(unit, SQL.check_file)]
        for problem in problems:
            if not problem.startswith(_HARMLESS):
                raise Unreadable(f"{str(self._path)!r} is damaged: {problem}", REPAIR)

    def purge(self) -> bool:
        """Truncate the write-ahead log, which may still hold blanked text; False while a reader prevents it."""
        if not self._exists:
            return True
        with self._db.reading() as unit:
            return all(busy == 0 for busy, *_ in _rows(unit, SQL.truncate_log))


Values: TypeAlias = tuple[Any, ...]
Bindings: TypeAlias = Sequence[object] | Mapping[str, object]
_ALL = 1 << 62


def _rows(unit: UnitOfWork, statement: str, bindings: Bindings = ()) -> Iterable[Values]:
    return unit.execute(statement, bindings)


def _first(unit: UnitOfWork, statement: str, bindings: Bindings = ()) -> Values | None:
    return next(iter(unit.execute(statement, bindings)), None)


def _numbers(unit: UnitOfWork, statement: str, bindings: Bindings = ()) -> list[int]:
    return [int(number) for (number,) in _rows(unit, statement, bindings)]


_ACTIONS = frozenset(("add", "replace", "remove", "archive"))


class LedgerRow(NamedTuple):
    """The columns of the selects, in their order."""

    id: int
    write_id: int
    group_id: str
    time: float
    target: str
    action: str
    before: str | None
    after: str | None
    position: int
    origin: str
    session_id: str | None
    user_id: str
    reason: str | None
    allowed: str | None
    undoes: int | None
    page_before: str
    page_after: str
    page_stamp: int | None
    source: str | None = None
    checksum: int | None = None

    def with_checksum(self) -> "LedgerRow":
        """Return the row with the checksum of its values."""
        return self._replace(checksum=self._compute_checksum())

    def _compute_checksum(self) -> int:
        """Return the checksum of the values; a row without a source has the checksum of older versions."""
        return checksum(self[:-2] if self.source is None else self[:-1])

    @property
    def is_damaged(self) -> bool:
        """Whether the row is not as it was written; without a checksum, whether it cannot be parsed."""
        return self.is_malformed if self.checksum is None else self.checksum != self._compute_checksum()

    @property
    def is_malformed(self) -> bool:
        """Whether the row cannot be parsed."""
        texts = (self.group_id, self.target, self.action, self.origin, self.user_id, self.page_before, self.page_after)
        optional = (self.before, self.after, self.session_id, self.reason, self.allowed, self.source)
        return (
            any(type(text) is not str for text in texts)
            or any(text is not None and type(text) is not str for text in optional)
            or not isinstance(self.write_id, int)
            or not isinstance(self.time, float)
            or not isinstance(self.position, int)
            or page_of(self.target) is None
            or self.action not in _ACTIONS
            or _rules(self.allowed) is None
        )

    def record(self) -> EditRecord:
        """Return the edit; a damaged one changes and allows nothing, and holds the readable texts."""
        row = report_damage(self) if self.is_damaged else self
        return EditRecord(
            id=LedgerId(row.id),
            write_id=row.write_id,
            group_id=row.group_id,
            time=row.time,
            target=page_of(row.target) or Target.MEMORY,
            step=Step(row.action, row.before, row.after, row.position),  # type: ignore[arg-type]  # one of the actions
            origin=row.origin,
            session_id=SessionId(row.session_id) if row.session_id else None,
            user_id=UserId(row.user_id),
            reason=row.reason,
            allowed=_rules(row.allowed) or frozenset(),
            undoes=LedgerId(row.undoes) if row.undoes else None,
            page_before=row.page_before,
            page_after=row.page_after,
            page_stamp=row.page_stamp,
            is_damaged=row is not self,
            project=row.target.removeprefix(PROJECT_PREFIX) if row.target.startswith(PROJECT_PREFIX) else None,
            source=SourceName(row.source) if row.source else None,
        )


@lru_cache(maxsize=20_000)
def _read_record(values: Values) -> EditRecord:
    """Parse the values of a row; cached, because a server reads the same rows again and again."""
    return LedgerRow(*values).record()


def _rules(allowed: str | None) -> frozenset[str] | None:
    try:
        names = json.loads(allowed) if allowed else []
    except ValueError:
        return None
    return frozenset(map(str, names)) if isinstance(names, list) else None


def salvage(path: Path, *, moment: str) -> tuple[int, str]:
    """Replace a damaged file by one with its readable rows; keep the damaged one under another name.

    Return how many rows there are, and that name. Raise Busy while another process has the ledger open.
    """
    from wellkept.storage.swap import Replacement, hold_alone  # lazy, like all of the salvage: hardly ever needed

    path = resolve_link(path)
    replacement = Replacement.of(path, moment)
    with hold_alone(path):
        try:
            replacement.begin()
            saved = _copy_rows(path, replacement.fresh)
            replacement.swap()
        except BaseException:
            replacement.abandon()
            raise
    return saved, replacement.aside.name


def _copy_rows(path: Path, fresh: Path) -> int:
    from wellkept.salvage.rows import describe_shapes, insert_row
    from wellkept.storage.foreign import open_copy

    rows: list[dict[str, Any]] = []
    with suppress(Unreadable), open_copy(path, rescue=(_TABLE,)) as tables:  # too damaged to find its table
        names = sorted(tables.columns(_TABLE) & {*LedgerRow._fields, "voided"})
        readable = tables.rows(f"SELECT {', '.join(names)} FROM {_TABLE} ORDER BY id")  # noqa: S608 - our names
        rows = [dict(zip(names, row, strict=True)) for row in readable]
    target = SqliteDatabase(
        fresh, application_id=APPLICATION_ID, migrations=sql_migrations("wellkept.memory"), durability="full"
    )
    with closing(target) as database:
        database.connection.execute("PRAGMA foreign_keys = OFF")  # an undo names an edit that may be lost
        with database.writing() as unit:
            shape = next(
                candidate for candidate in describe_shapes(unit) if candidate.table == _TABLE and not candidate.is_index
            )
            return sum(insert_row(unit, shape, row) for row in rows)


def rebuild_rows(unit: UnitOfWork, texts: Iterable[str]) -> LedgerRepair:
    """Rebuild the damaged rows where their checksum proves the text, and mark the others as damaged for good."""
    rebuilt, marked = list[LedgerId](), list[LedgerId]()
    selected: Iterable[Values] = unit.execute(SQL.whole, (0,))
    rows = [LedgerRow(*row) for row in selected]
    whole = [row for row in rows if not row.is_damaged]
    candidates = dict.fromkeys([*texts, *(text for row in whole for text in (row.before, row.after) if text)])
    for row in rows:
        if row.is_damaged:
            raw: Iterable[Values] = unit.execute(SQL.raw_texts, (row.id,))
            again = rebuild(row, next(iter(raw)), list(candidates))
            unit.execute(SQL.set_row, (again or report_damage(row).with_checksum())._asdict())
            (marked if again is None else rebuilt).append(LedgerId(row.id))
    return LedgerRepair(tuple(rebuilt), tuple(marked))


def rebuild(row: LedgerRow, raw: Sequence[bytes | None], texts: Sequence[str]) -> LedgerRow | None:
    """Return the row as it was written, proven by its checksum, or None.

    One of its texts is another known text, or differs from what was written by one bit; `raw` are the bytes of
    `before` and `after` as they are stored now.
    """
    if row.checksum is None:
        return None
    before, after = raw
    for candidate in (
        *(row._replace(before=text) for text in _possible(before, texts)),
        *(row._replace(after=text) for text in _possible(after, texts)),
    ):
        if candidate.with_checksum().checksum == row.checksum:
            return candidate
    return None


def _possible(data: bytes | None, texts: Sequence[str]) -> Iterator[str]:
    """Yield known texts, then every text that differs from `data` by one bit."""
    if data is None:
        return
    yield from texts
    if len(data) > _MOST_BYTES:
        return
    for index in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[index] ^= 1 << bit
            try:
                yield changed.decode()
            except UnicodeDecodeError:
                continue


def report_damage(row: LedgerRow) -> LedgerRow:
    """Return a damaged row as an archived text that says so, with valid values in every column."""
    texts = [_text(text) for text in (row.before, row.after) if text is not None]
    return LedgerRow(
        id=row.id,
        write_id=row.write_id if isinstance(row.write_id, int) else 0,
        group_id=_text(row.group_id),
        time=float(row.time) if isinstance(row.time, float | int) else 0.0,
        target=row.target if page_of(row.target) is not None else Target.MEMORY.value,
        action="archive",
        before=f"[damaged: {' → '.join(texts)}]",
        after=None,
        position=-1,
        origin=_text(row.origin),
        session_id=None if row.session_id is None else _text(row.session_id),
        user_id=_text(row.user_id),
        reason="damaged on the disk",
        allowed=None,
        # an undo names an earlier edit
        undoes=row.undoes if isinstance(row.undoes, int) and 0 < row.undoes < row.id else None,
        page_before=_text(row.page_before),
        page_after=_text(row.page_after),
        page_stamp=row.page_stamp if isinstance(row.page_stamp, int) else None,
        source=None if row.source is None else _text(row.source),
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
