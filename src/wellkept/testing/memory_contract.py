"""The contract of every storage for curated memory: pages that are replaced as a whole, and a ledger of edits.

Subclass both suites in a test module and return objects of your own implementation from `pages` and `ledger`.
"""

import threading
from collections.abc import Callable

from wellkept.core.errors import Busy, KeptError, Unreadable, UsageError
from wellkept.core.ids import OWNER, LedgerId, SessionId, UserId
from wellkept.memory.ledger import Ledger
from wellkept.memory.page import Add, Author, Change, Step, Target, page_hash, replay
from wellkept.memory.store import MemoryStore, Pages, Storage

ANN = UserId("ann")
M, U = Target.MEMORY, Target.USER


class PagesContract:
    """What holds for the pages of a user, wherever they are stored."""

    def pages(self, user: UserId = OWNER) -> Pages:
        """Return the pages of a user; every call in one test opens the same storage."""
        raise NotImplementedError

    def put(self, target: Target, raw: bytes) -> None:
        """Write the owner's page as another program would, without the lock."""
        raise NotImplementedError

    def test_a_missing_page_is_empty(self) -> None:
        """No bytes, no entries, stamp 0."""
        stored = self.pages().read(M)

        assert (stored.raw, stored.entries, stored.stamp, stored.target) == (b"", (), 0, M)

    def test_what_is_replaced_is_read(self) -> None:
        """The text as a whole, with a stamp; the other page is untouched."""
        pages = self._prepare()
        with pages.lock(M, timeout_seconds=5):
            pages.replace(M, "ä\n§\nb", expected=pages.read(M))

        assert self.pages().read(M).raw == "ä\n§\nb".encode()
        assert self.pages().read(M).entries == ("ä", "b")
        assert self.pages().read(M).stamp > 0
        assert self.pages().read(U).raw == b""

    def test_a_page_that_changed_meanwhile_is_not_replaced(self) -> None:
        """Compare and replace: what another program wrote after the read is kept."""
        pages = self._prepare()
        with pages.lock(M, timeout_seconds=5):
            expected = pages.read(M)
            self.put(M, b"by hand")
            assert isinstance(_error(lambda: pages.replace(M, "ours", expected=expected)), Busy)

        assert pages.read(M).raw == b"by hand"

    def test_one_writer_at_a_time(self) -> None:
        """A second writer waits for its timeout and gets Busy; readers and the other page do not wait."""
        pages = self._prepare()
        found: list[KeptError | None] = []

        def take() -> None:
            other = self.pages()
            other.read(M)
            with other.lock(U, timeout_seconds=0.05):
                pass
            found.append(_error(lambda: other.lock(M, timeout_seconds=0.05).__enter__()))

        with pages.lock(M, timeout_seconds=5):
            thread = threading.Thread(target=take)
            thread.start()
            thread.join()

        assert [type(error) for error in found] == [Busy]
        with pages.lock(M, timeout_seconds=5):
            pass

    def test_bytes_that_are_not_text_are_not_empty(self) -> None:
        """Their raw form can be read and backed up, their entries cannot."""
        pages = self._prepare()
        self.put(M, b"caf\xe9")

        assert pages.read(M).raw == b"caf\xe9"
        assert isinstance(_error(lambda: pages.read(M).entries), Unreadable)

    def test_a_backup_is_kept_once_per_content(self) -> None:
        """The same bytes give the same name, other bytes another one, even in the same second."""
        pages = self._prepare()
        first = pages.back_up(M, b"one", epoch=100)

        assert pages.back_up(M, b"one", epoch=200) == first
        assert pages.back_up(M, b"two", epoch=100) != first

    def test_the_newest_backups_are_kept(self) -> None:
        """Ten of them: a text that was dropped gets a new copy, one that is still there does not."""
        pages = self._prepare()
        names = [pages.back_up(M, str(number).encode(), epoch=100 + number) for number in range(12)]

        assert pages.back_up(M, b"2", epoch=200) == names[2]
        assert pages.back_up(M, b"1", epoch=200) != names[1]

    def test_a_project_has_a_page_only_where_there_is_one(self) -> None:
        """Its page is apart from all others, and is refused outside a project."""
        pages = self._prepare()
        own = pages.for_project("here-00000001")
        own.prepare()
        with own.lock(Target.PROJECT, timeout_seconds=5):
            own.replace(Target.PROJECT, "builds with make", expected=own.read(Target.PROJECT))

        assert own.read(Target.PROJECT).raw == b"builds with make"
        assert pages.for_project("there-00000002").read(Target.PROJECT).raw == b""
        assert isinstance(_error(lambda: pages.read(Target.PROJECT)), UsageError)

    def test_an_archive_is_apart_from_its_page(self) -> None:
        """It is written under the lock of the page, is no project of its own, and gets the new name of its project."""
        pages = self._prepare().for_project("here-00000001")
        for target in (M, Target.PROJECT):
            with pages.lock(target, timeout_seconds=5):
                pages.replace(target, "page", expected=pages.read(target))
                pages.archive().replace(target, "moved", expected=pages.archive().read(target))
        pages.rename_project("here-00000001", "there-00000002")

        renamed = self.pages().for_project("there-00000002")
        assert [renamed.read(target).raw for target in (M, Target.PROJECT)] == [b"page"] * 2
        assert [renamed.archive().read(target).raw for target in (M, U, Target.PROJECT)] == [b"moved", b"", b"moved"]
        assert (renamed.projects(), renamed.archive().name(M)) == (["there-00000002"], "archive/MEMORY.md")

    def test_users_have_pages_of_their_own(self) -> None:
        """What one user writes, another neither reads nor waits for."""
        mine, hers = self._prepare(), self._prepare(ANN)
        with mine.lock(M, timeout_seconds=5), hers.lock(M, timeout_seconds=0.05):
            mine.replace(M, "mine", expected=mine.read(M))
            hers.replace(M, "hers", expected=hers.read(M))

        assert (self.pages().read(M).raw, self.pages(ANN).read(M).raw) == (b"mine", b"hers")

    def _prepare(self, user: UserId = OWNER) -> Pages:
        pages = self.pages(user)
        pages.prepare()
        return pages


class LedgerContract:
    """What holds for the edits of a user, wherever they are recorded."""

    def ledger(self, user: UserId = OWNER) -> Ledger:
        """Return the ledger of a user; every call in one test opens the same storage."""
        raise NotImplementedError

    def test_an_empty_ledger_reads_as_empty(self) -> None:
        """Reading needs no earlier write."""
        ledger = self.ledger()

        assert (ledger.rows(), ledger.newest(M), ledger.contains(M, "x"), ledger.last_change(M, "x")) == (
            [], None, False, 0,
        )  # fmt: skip
        assert ledger.forget_session(SessionId("s")) == ledger.forget_entry(M, "x") == ledger.forget_words(["x"]) == []
        assert ledger.purge()

    def test_a_write_is_read_back_whole(self) -> None:
        """Every field of a row, with the hashes of the page before and after."""
        author = Author("agent", SessionId("s1"), "group", "asked", frozenset({"b", "a"}))
        ids = add(self.ledger(), "one", author=author, now=5.0, stamp=7)
        (row,) = self.ledger().rows()

        assert [row.id] == ids
        assert (row.time, row.target, row.step) == (5.0, M, Step("add", None, "one", 0))
        assert (row.origin, row.session_id, row.group_id, row.reason) == ("agent", "s1", "group", "asked")
        assert (row.user_id, row.allowed, row.undoes, row.page_stamp) == (OWNER, frozenset({"a", "b"}), None, 7)
        assert (row.page_before, row.page_after) == (page_hash(()), page_hash(("one",)))

    def test_steps_of_one_write_belong_together(self) -> None:
        """One write id for its steps and for what made room; the next write has another one."""
        ledger = self.ledger()
        steps = (Step("add", None, "a", 0), Step("add", None, "b", 1))
        change = Change(("b",), steps, overflow=(Step("remove", "a", None, 0),))
        ids = ledger.append(M, change, (), author=Author("agent"), now=1.0)
        add(ledger, "c")
        rows = ledger.rows()

        assert [row.id for row in rows[:3]] == ids == sorted(set(ids))
        assert [row.write_id == rows[0].write_id for row in rows] == [True, True, True, False]
        assert [row.origin for row in rows] == ["agent", "agent", "overflow", "user"]

    def test_an_undo_names_what_it_undoes(self) -> None:
        """One earlier row per step."""
        ledger = self.ledger()
        ids = add(ledger, "a")
        change = Change((), (Step("remove", "a", None, 0),), undoes=(ids[0],))
        ledger.append(M, change, ("a",), author=Author("undo"), now=2.0)

        assert [row.undoes for row in ledger.rows()] == [None, ids[0]]

    def test_rows_are_filtered_by_page_id_and_number(self) -> None:
        """Oldest first; `after` and `limit` let a reader catch up in batches."""
        ledger = self.ledger()
        first, second, third = (add(ledger, text, target=page)[0] for text, page in (("a", M), ("b", U), ("c", M)))

        assert [row.id for row in ledger.rows()] == [first, second, third]
        assert [row.id for row in ledger.rows(M)] == [first, third]
        assert [row.id for row in ledger.rows(after=first)] == [second, third]
        assert [row.id for row in ledger.rows(after=first, limit=1)] == [second]
        assert [row.id for row in ledger.rows(M, after=first, limit=5)] == [third]
        assert [row.id for page in (M, U) if (row := ledger.newest(page))] == [third, second]

    def test_a_voided_write_is_gone(self) -> None:
        """All its rows, from every way to read."""
        ledger = self.ledger()
        add(ledger, "kept")
        add(ledger, "lost")
        ledger.void(ledger.rows()[-1].write_id)

        assert [row.step.after for row in ledger.rows()] == ["kept"]
        assert (newest := ledger.newest(M)) is not None
        assert newest.step.after == "kept"
        assert not ledger.contains(M, "lost")
        assert not ledger.contains(M, "lost", outside=False)
        assert ledger.last_change(M, "lost") == 0

    def test_an_entry_is_known_by_page_and_origin(self) -> None:
        """What was found on a page is known, but was not written by kept."""
        ledger = self.ledger()
        add(ledger, "found", author=Author("outside"))
        add(ledger, "written")
        newest = add(ledger, "written")

        assert ledger.contains(M, "found")
        assert not ledger.contains(M, "found", outside=False)
        assert ledger.contains(M, "written", outside=False)
        assert not ledger.contains(U, "written")
        assert not ledger.contains(M, "writ")
        assert ledger.last_change(M, "written") == newest[0]
        assert ledger.last_change(U, "written") == 0

    def test_texts_are_forgotten_and_rows_stay(self) -> None:
        """By session, by entry of a page, or by words in any case; ids and hashes stay."""
        ledger = self.ledger()
        by_session = add(ledger, "said there", author=Author(session_id=SessionId("s")))
        by_entry = add(ledger, "this very entry")
        other_page = add(ledger, "this very entry", target=U)
        by_word = add(ledger, "Straße in ÅRHUS")
        before = [(row.id, row.page_after) for row in ledger.rows()]

        assert ledger.forget_session(SessionId("s")) == by_session
        assert ledger.forget_entry(M, "this very entry") == by_entry
        assert ledger.forget_words(["århus", "  "]) == by_word
        assert [(row.id, row.page_after) for row in ledger.rows()] == before
        assert [row.step.after for row in ledger.rows()] == ["", "", "this very entry", ""]
        assert [row.step.before for row in ledger.rows()] == [None] * 4
        assert ledger.rows(U)[0].id == other_page[0]
        assert ledger.purge()

    def test_users_have_ledgers_of_their_own(self) -> None:
        """Rows carry the user that the ledger was opened for; nobody reads, voids or forgets another's."""
        mine, hers = self.ledger(), self.ledger(ANN)
        add(mine, "okapi")
        add(hers, "okapi", author=Author(session_id=SessionId("s")))

        assert [row.user_id for row in self.ledger().rows()] == [OWNER]
        assert [row.user_id for row in self.ledger(ANN).rows()] == [ANN]
        assert mine.forget_session(SessionId("s")) == []
        mine.forget_entry(M, "okapi")
        mine.forget_words(["okapi"])
        assert [row.step.after for row in hers.rows()] == ["okapi"]
        mine.void(mine.rows()[0].write_id)
        assert (len(mine.rows()), len(hers.rows())) == (0, 1)
        assert not mine.contains(M, "okapi")


class StorageContract(PagesContract, LedgerContract):
    """Pages and ledger together, under a store."""

    def test_a_store_writes_through_both(self) -> None:
        """The page has the entry, the ledger leads to the same page, and undoing leads back."""
        from wellkept.memory.history import undo

        store = MemoryStore(Storage(self.pages(), self.ledger()))
        store.apply(M, Add("one"))
        store.apply(M, Add("two"))
        undo(store)

        assert self.pages().read(M).entries == replay(self.ledger().rows(M)) == ("one",)
        store.close()


def add(
    ledger: Ledger,
    text: str,
    *,
    target: Target = M,
    author: Author | None = None,
    now: float = 1.0,
    stamp: int | None = None,
) -> list[LedgerId]:
    """Append the addition of one entry to an empty page."""
    change = Change((text,), (Step("add", None, text, 0),))
    return ledger.append(target, change, (), author=author or Author(), now=now, stamp=stamp)


def _error(act: Callable[[], object]) -> KeptError | None:
    """Return the exception that `act` raises."""
    try:
        act()
    except KeptError as error:
        return error
    return None
