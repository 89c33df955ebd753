"""The storage ports of curated memory: the pages of one user, and the ledger of their edits.

`store.FilePages` and `ledger.SqliteLedger` implement the two ports; `wellkept.testing.memory_contract` has the suite
that every implementation must pass. An object is built for one user and never returns another user's data.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from wellkept.core.ids import LedgerId, SessionId
from wellkept.memory.page import Author, Change, EditRecord, LedgerRepair, StoredPage, Target


class Pages(Protocol):
    """The pages of one user."""

    def prepare(self) -> None:
        """Create what the first read or write needs, and remove what killed writers left behind."""

    def for_project(self, project: str | None) -> "Pages":
        """Return the same pages with that of a project, given by its folder."""

    def projects(self) -> list[str]:
        """Return the folders of all projects that have a page."""

    def find_project(self, project: str) -> str:
        """Return the folder in which a project's page is: the one without its name if that was forgotten."""

    def rename_project(self, old: str, new: str) -> None:
        """Give the folder of a project, which has a page, another name."""

    def name(self, target: Target) -> str:
        """Return the name of the page for messages, such as `MEMORY.md`."""

    def read(self, target: Target) -> StoredPage:
        """Return a page, empty when it does not exist; raises StorageError when it cannot be read."""

    def lock(self, target: Target, *, timeout_seconds: float) -> AbstractContextManager[None]:
        """Keep every other writer of this page out, or raise Busy after the timeout. Readers never wait."""

    def replace(self, target: Target, text: str, *, expected: StoredPage) -> None:
        """Replace a page durably and as a whole; call it under the lock.

        Raises Busy, and changes nothing, when the page no longer has the bytes of `expected`.
        """

    def back_up(self, target: Target, raw: bytes, *, epoch: int) -> str:
        """Keep a copy of the raw bytes, once per distinct content, the newest ten; return the copy's name."""


class Ledger(Protocol):
    """The edits of one user's pages, oldest first, in one sequence of ids. Reading creates nothing."""

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

    def void(self, write_id: int) -> None:
        """Remove a write that never reached its page; no method returns its rows again."""

    def for_project(self, project: str | None) -> "Ledger":
        """Return the same ledger as the sessions of a project see it: with the rows of that project's page."""

    def rows(
        self, target: Target | None = None, *, after: int = 0, limit: int | None = None, everywhere: bool = False
    ) -> list[EditRecord]:
        """Return the rows with an id greater than `after`, oldest first; other projects' only with `everywhere`."""

    def newest(self, target: Target) -> EditRecord | None:
        """Return the last row of a page."""

    def contains(self, target: Target, entry: str, *, outside: bool = True) -> bool:
        """Whether a row wrote this entry; with `outside=False`, whether a write through kept did."""

    def last_change(self, target: Target, entry: str) -> int:
        """Return the id of the last row that wrote this entry, 0 when none did."""

    def has_sources(self) -> bool:
        """Whether any row names a source; most ledgers have none."""

    def clean_entries(self, target: Target) -> Collection[bytes]:
        """Return the digests (`page.digest`) of entries of a page that were clean when it was last written.

        Derived data, which may be missing at any time.
        """

    def is_watched(self) -> bool:
        """Whether the pages were compared with the rows before, so that a difference is an edit from outside."""

    def watch(self) -> None:
        """Record that the pages agree with the rows; from now on a difference is an edit from outside."""

    def forget_session(self, session_id: SessionId) -> list[LedgerId]:
        """Blank the texts of a session's rows, keeping ids and hashes; return the rows."""

    def forget_entry(self, target: Target, entry: str) -> list[LedgerId]:
        """Blank this entry in every row of its page; return the rows."""

    def forget_words(self, words: Sequence[str]) -> list[LedgerId]:
        """Blank every text that contains one of `words`, ignoring case; return the rows."""

    def rename_sessions(self, words: Sequence[str], neutral_id: Callable[[str], str]) -> list[LedgerId]:
        """Replace the id of every session that contains one of `words`; return the rows that named one."""

    def rename_project(self, old: str, new: str) -> None:
        """Give the rows of a project's page the other name of the project."""

    def damaged(self) -> list[LedgerId]:
        """Return the rows that are not as they were written."""

    def repair(self, texts: Iterable[str]) -> LedgerRepair:
        """Rebuild damaged rows, as far as that can be proven, and mark the others; `texts` may be what they wrote."""

    def purge(self) -> bool:
        """Remove blanked text from logs and free pages as well; False while a reader prevents it."""

    def close(self) -> None:
        """Release the file or connection."""
