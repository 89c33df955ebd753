"""The contract of every session store for receipts: stored, marked, bounded, forgotten, one user's only."""

from datetime import UTC, datetime, timedelta

from wellkept.core.clock import FixedClock
from wellkept.core.ids import MessageId, SessionId, UserId
from wellkept.sessions.ports import Sessions
from wellkept.sessions.receipts import Mark, NewReceipt, ReceiptId, ShownMessage, ShownPage, ShownSession
from wellkept.testing.session_store_contract import SessionStoreContract, said, session

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KIM = UserId("kim")
A, B = SessionId("a"), SessionId("b")


def talk(store: Sessions, name: SessionId, *words: str) -> list[MessageId]:
    """Store a session with user messages."""
    store.create(session(name))
    return store.append(name, [said(text) for text in words])


def record(
    store: Sessions, *messages: MessageId, owner: SessionId = A, query: str = "okapi", to: SessionId | None = None
) -> ReceiptId:
    """Store a receipt that shows these messages of session `owner`, given to session `to`."""
    shown = [ShownMessage(number, owner, 1.5, {"words": 1.5}) for number in messages]
    number = store.receipts.add(NewReceipt(kind="search", client="cli", query=query, session_id=to, shown=shown))
    assert number is not None
    return number


class ReceiptsContract(SessionStoreContract):
    """What models were shown."""

    def test_a_receipt_comes_back_as_it_was_given(self) -> None:
        """Kind, client, query, session, figures and everything shown, in order."""
        store = self.store(clock=FixedClock(NOW))
        (number,) = talk(store, A, "an okapi")
        shown = (ShownPage("memory"), ShownSession(A), ShownMessage(number, A, 2.25, {"words": 2.0, "date": 0.25}))
        given = NewReceipt(
            kind="start", client="claude-code", query="okapi?", session_id=B, project="/p", shown=shown, candidates=7
        )

        receipt_id = store.receipts.add(given)

        assert receipt_id is not None
        found = store.receipts.find(receipt_id)
        assert found is not None
        assert (found.content, found.created, found.marks) == (given, NOW.timestamp(), {})
        assert store.receipts.recent(limit=5) == [found]

    def test_receipts_are_listed_newest_first_by_page_and_filter(self) -> None:
        """`before` continues a list; kind, client and session narrow it."""
        store = self.store()
        first, second, third = (record(store, query=word) for word in ("one", "two", "three"))
        store.receipts.add(NewReceipt(kind="prompt", client="codex", session_id=B))

        assert [one.id for one in store.receipts.recent(limit=2, before=third)] == [second, first]
        assert [one.content.client for one in store.receipts.recent(limit=9, kind="prompt")] == ["codex"]
        assert [one.id for one in store.receipts.recent(limit=1, client="cli")] == [third]
        assert len(store.receipts.recent(limit=9, session_id=B)) == 1
        assert store.receipts.find(ReceiptId(10**30)) is None

    def test_marks_can_be_changed_and_removed(self) -> None:
        """A mark of a message replaces the one before; `never` counts until it is removed."""
        store = self.store()
        one, two = talk(store, A, "one okapi", "two okapis")
        receipt = record(store, one, two)

        store.receipts.mark(receipt, [one, two], Mark.NEVER)
        store.receipts.mark(receipt, [one], Mark.USEFUL)
        store.receipts.mark(receipt, [], Mark.WRONG)

        found = store.receipts.find(receipt)
        assert found is not None
        assert found.marks == {None: Mark.WRONG, one: Mark.USEFUL, two: Mark.NEVER}
        assert store.receipts.never_shown() == {two}
        assert store.receipts.unmark(receipt, two) == 1
        assert store.receipts.never_shown() == frozenset()
        assert store.receipts.unmark(receipt) == 2
        assert store.receipts.unmark(receipt) == 0

    def test_expired_receipts_go_and_never_stays(self) -> None:
        """After `receipt_days` a receipt is removed; what must never be recalled stays marked."""
        clock = FixedClock(NOW)
        store = self.store(clock=clock)
        (number,) = talk(store, A, "an okapi")
        old = record(store, number)
        store.receipts.mark(old, [number], Mark.NEVER)
        clock.moment = NOW + timedelta(days=91)
        for _ in range(70):
            record(store)

        assert store.receipts.find(old) is None
        assert store.receipts.never_shown() == {number}
        assert store.receipts.unmark(old) == 1

    def test_what_is_forgotten_leaves_no_receipt(self) -> None:
        """A forgotten session takes its receipts along, and forgotten words the queries that contain them."""
        store = self.store()
        (number,) = talk(store, A, "a secret okapi")
        (other,) = talk(store, B, "an emu")
        about_a = record(store, number, query="what was it?")
        given_to_a = record(store, other, owner=B, query="birds", to=A)
        asked = record(store, other, owner=B, query="the Secret one")
        store.receipts.mark(about_a, [number], Mark.NEVER)

        store.forgetting.carry_out(store.forgetting.plan_query("secret"))
        store.forgetting.carry_out(store.forgetting.plan_sessions([A]))

        assert store.receipts.find(asked) is None
        assert store.receipts.find(given_to_a) is None
        left = store.receipts.find(about_a)
        assert left is not None
        assert left.content.shown == ()
        assert store.receipts.never_shown() == frozenset()

    def test_receipts_of_another_user_do_not_exist(self) -> None:
        """Neither read, listed, marked nor forgotten by somebody else."""
        store = self.store()
        (number,) = talk(store, A, "an okapi")
        receipt = record(store, number)
        store.receipts.mark(receipt, [number], Mark.NEVER)
        kim = store.for_user(KIM)

        assert kim.receipts.find(receipt) is None
        assert kim.receipts.recent(limit=9) == []
        assert kim.receipts.never_shown() == frozenset()
        assert kim.receipts.unmark(receipt) == 0
        assert kim.receipts.forget_all() == 0
        kim.forgetting.carry_out(kim.forgetting.plan_query("okapi"))
        found = store.receipts.find(receipt)
        assert found is not None
        assert found.marks == {number: Mark.NEVER}

    def test_a_user_can_forget_all_receipts(self) -> None:
        """Every receipt and mark of that user goes, no one else's."""
        store = self.store()
        (number,) = talk(store, A, "an okapi")
        receipt = record(store, number)
        store.receipts.mark(receipt, [number], Mark.NEVER)
        theirs = record(store.for_user(KIM))

        assert store.receipts.forget_all() == 1
        assert store.receipts.recent(limit=9) == []
        assert store.receipts.never_shown() == frozenset()
        assert store.for_user(KIM).receipts.find(theirs) is not None
