"""The mirror of memory writes."""

import pytest

from wellkept.core.ids import UserId
from wellkept.providers.base import LedgerRow
from wellkept.providers.writes import Mirror, current_entries
from wellkept.testing.provider_contract import ListedLedger


def row(number, action, before, after, user_id=None):
    return LedgerRow(
        ledger_id=number,
        action=action,
        target="memory",
        before=before,
        after=after,
        origin="agent",
        session_id="s1",
        user_id=user_id,
    )


ROWS = [row(1, "add", None, "a"), row(2, "add", None, "b"), row(3, "replace", "a", "c"), row(4, "remove", "b", None)]


@pytest.fixture
def ledger():
    return ListedLedger(ROWS[:1])


def told(outbox):
    return [
        (item.payload["action"], item.payload["content"], item.payload["metadata"]["before"])
        for item in outbox.items("p")
    ]


def test_every_later_write_is_queued_once(bench, ledger):
    """The cursor moves with the queue; catching up twice adds nothing."""
    mirror = Mirror(bench.outbox, ledger)
    mirror.catch_up(["p"])
    ledger.rows = ROWS
    mirror.catch_up(["p"])
    mirror.catch_up(["p"])

    assert told(bench.outbox) == [("add", "a", None), ("add", "b", None), ("replace", "c", "a"), ("remove", "b", "b")]


def test_a_new_provider_gets_current_entries_not_removed_ones(bench):
    """A removed entry is never sent to a provider that came after its removal."""
    Mirror(bench.outbox, ListedLedger(ROWS)).catch_up(["p"])

    assert told(bench.outbox) == [("add", "c", None)]


def test_a_write_of_another_user_stays_in_its_lane(bench):
    """What a manager mirrors belongs to the user it was started for."""
    rows = [row(1, "add", None, "mine"), row(2, "add", None, "hers", user_id="anna")]
    ledger = ListedLedger(rows)
    anna = bench.outbox_of(UserId("anna"))
    Mirror(bench.outbox, ledger).catch_up(["p"])
    Mirror(anna, ledger).catch_up(["p"])

    assert told(bench.outbox) == [("add", "mine", None)]
    assert told(anna) == [("add", "hers", None)]
    assert [item.idempotency_key for item in anna.items()] == ["ledger:anna:2"]


def test_metadata_names_the_write(bench):
    """A provider can recognise a delivery it had before."""
    Mirror(bench.outbox, ListedLedger(ROWS[:1])).catch_up(["p"])

    (item,) = bench.outbox.items("p")
    assert item.idempotency_key == "ledger:1"
    assert set(item.payload["metadata"]) == {
        "ledger_id",
        "origin",
        "session_id",
        "user_id",
        "platform",
        "tool_name",
        "before",
    }


def test_current_entries_follow_replacements():
    """An entry that was replaced twice is listed once, with its last text."""
    rows = [row(1, "add", None, "a"), row(2, "replace", "a", "b"), row(3, "replace", "b", "c")]

    assert [(each.action, each.after) for each in current_entries(rows)] == [("add", "c")]


def test_secrets_on_a_page_are_not_mirrored(bench):
    """An entry that was written by hand may hold a key; providers get it redacted."""
    key = "sk-proj-" + "a1B2" * 12
    rows = [row(1, "add", None, "a"), row(2, "replace", key, f"new {key}"), row(3, "remove", f"new {key}", None)]
    ledger = ListedLedger(rows[:1])
    mirror = Mirror(bench.outbox, ledger)
    mirror.catch_up(["p"])
    ledger.rows = rows
    mirror.catch_up(["p"])

    assert [item.payload["action"] for item in bench.outbox.items("p")] == ["add", "replace", "remove"]
    assert "a1B2a1B2" not in repr([item.payload for item in bench.outbox.items("p")])
