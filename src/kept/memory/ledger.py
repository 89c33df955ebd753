"""The ledger: every accepted edit of the pages, so that each can be seen and undone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kept.core.ids import LedgerId, SessionId, UserId
from kept.memory.edits import Action, Author, Change, Entered, Step, Target, replayed, steps_between, undone
from kept.memory.page import page_hash
from kept.storage.files import APPLICATION_ID
from kept.storage.sql import sql_migrations, statements
from kept.storage.sqlite import Database

SQL = statements("kept.memory", "ledger.sql")


class Ledger:
    """The rows behind the pages. Writers call it under the page's lock; readers write nothing."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._db = Database(
            path,
            application_id=APPLICATION_ID,
            migrations=sql_migrations("kept.memory"),
            durability="full",
            read_only=read_only,
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def settle(self, target: Target, entries: tuple[str, ...], *, now: float, stamp: int) -> None:
        """Make the rows agree with the page as it was just read.

        A write whose page never came is voided; a page that matches no row was changed from outside
        and gets rows of that origin.
        """
        current = page_hash(entries)
        newest = self.newest(target)
        if current == (newest.page_after if newest is not None else page_hash(())):
            return
        if newest is not None and newest.never_came(current, stamp):
            with self._db.writing() as connection:
                connection.execute(SQL.void, (newest.write_id,))
            return
        known = self.replayed(target)
        steps = steps_between(known, entries)
        self.enter(target, Change(entries, steps), known, author=Author(origin="outside"), now=now)

    def enter(
        self,
        target: Target,
        change: Change,
        before: tuple[str, ...],
        *,
        author: Author,
        now: float,
        stamp: int | None = None,
    ) -> list[LedgerId]:
        """Append one write and return the ids of its rows, one per step."""
        of_all = {
            "group_id": author.group_id,
            "time": now,
            "target": target,
            "session_id": author.session_id,
            "user_id": author.user_id,
            "reason": author.reason,
            "allowed": json.dumps(sorted(author.allow)) if author.allow else None,
            "page_before": page_hash(before),
            "page_after": page_hash(change.entries),
            "page_stamp": stamp,
        }
        ids = []
        with self._db.writing() as connection:
            ((write_id,),) = connection.execute(SQL.next_write)
            for number, (step, origin) in enumerate(change.with_origins(author)):
                of_step = {
                    "write_id": write_id,
                    "action": step.action,
                    "before": step.before,
                    "after": step.after,
                    "position": step.position,
                    "origin": origin,
                    "undoes": change.undoes[number] if change.undoes else None,
                }
                ((ledger_id,),) = connection.execute(SQL.insert, of_all | of_step)
                ids.append(LedgerId(int(ledger_id)))
        return ids

    def replayed(self, target: Target) -> tuple[str, ...]:
        """Return the page as the rows build it."""
        return replayed(self.rows(target))

    def newest(self, target: Target) -> Entered | None:
        """Return the last row of a page that is not voided."""
        with self._db.reading() as connection:
            return next((_Row(*row).entered() for row in connection.execute(SQL.newest, (target,))), None)

    def rows(self, target: Target | None = None, *, after: int = 0, limit: int = -1) -> list[Entered]:
        """Return the rows of one page or of both, oldest first; voided ones left out."""
        bindings = {"target": target, "after": after, "limit": limit}
        with self._db.reading() as connection:
            return [_Row(*row).entered() for row in connection.execute(SQL.rows, bindings)]

    def since(self, ledger_id: int, *, limit: int = 1_000) -> list[Entered]:
        """Return the rows after `ledger_id`, oldest first: how a mirror catches up."""
        return self.rows(after=ledger_id, limit=limit)

    def knows(self, target: Target, entry: str) -> bool:
        """Whether this very entry was written through the ledger."""
        with self._db.reading() as connection:
            return connection.execute(SQL.known_after, (target, entry)).fetchone() is not None

    def wrote(self, target: Target, entry: str) -> bool:
        """Whether this very entry was written by kept, and not found on the page one day."""
        with self._db.reading() as connection:
            return connection.execute(SQL.written_after, (target, entry)).fetchone() is not None

    def last_change(self, target: Target, entry: str) -> int:
        """Return the row that last wrote this entry, 0 when none did."""
        with self._db.reading() as connection:
            (row,) = connection.execute(SQL.last_change, (target, entry)).fetchone() or (None,)
        return int(row or 0)

    def allowed(self, target: Target, entry: str) -> frozenset[str]:
        """Return the rules that a person let pass for this entry, and did not take back."""
        rows = self.rows(target)
        gone = undone(rows)
        return frozenset[str]().union(*(row.allowed for row in rows if row.step.after == entry and row.id not in gone))

    def blank(self, session_id: SessionId) -> list[LedgerId]:
        """Blank the texts of a forgotten session, keeping ids and hashes; return the rows."""
        with self._db.writing() as connection:
            return [LedgerId(row) for (row,) in connection.execute(SQL.blank_session, (session_id,))]

    def blank_entry(self, target: Target, entry: str) -> list[LedgerId]:
        """Blank this very entry wherever a row of its page shows it; return the rows."""
        with self._db.writing() as connection:
            rows = connection.execute(SQL.blank_entry, {"target": target, "entry": entry})
            return [LedgerId(row) for (row,) in rows]

    def blank_holding(self, words: Sequence[str]) -> list[LedgerId]:
        """Blank every text that holds any of `words`, in any case, keeping ids and hashes; return the rows."""
        folded = [word.casefold() for word in words if word.strip()]
        with self._db.writing() as connection:
            held = [
                LedgerId(int(str(number)))
                for number, *texts in connection.execute(SQL.texts)
                if any(word in str(text).casefold() for text in texts if text for word in folded)
            ]
            connection.executemany(SQL.blank_row, [(number,) for number in held])
        return held

    def erase_log(self) -> bool:
        """Let nothing that was blanked stay in the log; False while a reader keeps it."""
        with self._db.reading() as connection:
            rows = connection.execute(SQL.erase_log).fetchall()
        return all(row[0] == 0 for row in rows)


class _Row(NamedTuple):
    """The columns of the selects, in their order."""

    id: int
    write_id: int
    group_id: str
    time: float
    target: str
    action: Action
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

    def entered(self) -> Entered:
        return Entered(
            id=LedgerId(self.id),
            write_id=self.write_id,
            group_id=self.group_id,
            time=self.time,
            target=Target(self.target),
            step=Step(self.action, self.before, self.after, self.position),
            origin=self.origin,
            session_id=SessionId(self.session_id) if self.session_id else None,
            user_id=UserId(self.user_id),
            reason=self.reason,
            allowed=frozenset(json.loads(self.allowed)) if self.allowed else frozenset(),
            undoes=LedgerId(self.undoes) if self.undoes else None,
            page_before=self.page_before,
            page_after=self.page_after,
            page_stamp=self.page_stamp,
        )
