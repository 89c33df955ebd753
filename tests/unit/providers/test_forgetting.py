"""Forgetting at providers: each is told and asked; one that cannot delete, fails or hangs is named."""

import pytest

from wellkept.core.ids import UserId
from wellkept.providers.base import ForgetRequest, LedgerRow, StartContext
from wellkept.providers.holographic import HolographicProvider
from wellkept.testing.provider_contract import Bench, ListedLedger, RecordingProvider, eventually

TEA = ForgetRequest(texts=("oolong",))


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


class Deleting(RecordingProvider):
    """A provider that can delete, but keeps a copy on request."""

    def __init__(self, *, holds=False, fault=None):
        super().__init__("deleting")
        self._holds, self._fault = holds, fault

    def forget_content(self, request):
        if self._fault is not None:
            self._fault()
        self._note("forget_content", request)
        return 2

    def holds_content(self, request):
        return self._holds


def ask(bench, *providers, **settings):
    manager = bench.manager(*providers, context=bench.context(several=True), **settings)
    return {answer.provider: answer for answer in manager.forget(TEA)}


def test_a_provider_is_told_and_confirms(bench):
    """The report says gone only for what the provider confirmed."""
    provider = Deleting()
    answer = ask(bench, provider)["deleting"]

    assert (answer.is_gone, answer.removed, answer.outcome) == (True, 2, "gone")
    assert provider.calls_of("forget_content")[0].args == (TEA,)
    assert "oolong" not in repr(TEA) + str(answer.as_json())


def test_a_provider_that_keeps_it_cannot_tell_or_cannot_delete_is_named(bench):
    """Three answers that are not gone."""
    assert ask(bench, Deleting(holds=True))["deleting"].outcome == "it still holds the content"
    assert ask(bench, Deleting(holds=None))["deleting"].outcome == "deleted, but it cannot verify that"
    cannot = ask(bench, RecordingProvider())["recording"]
    assert (cannot.is_gone, cannot.removed) == (False, None)
    assert "cannot delete" in cannot.outcome


def test_a_provider_that_fails_or_hangs_is_named_and_the_others_are_told(bench, released):
    """A deadline ends the wait."""

    def broken():
        raise RuntimeError("no connection")

    failed = ask(bench, Deleting(fault=broken), RecordingProvider())
    assert "no connection" in failed["deleting"].outcome
    assert set(failed) == {"deleting", "recording"}

    hanging = ask(bench, Deleting(fault=released.wait), delivery_timeout_seconds=0.2)
    assert "took longer" in hanging["deleting"].outcome


@pytest.mark.parametrize("request_", [TEA, ForgetRequest(session_ids=("s7",)), ForgetRequest(everything=True)])
def test_holographic_erases_facts_and_their_bytes_of_one_user(tmp_path, request_):
    """Text, words of the index, entities and log; another user's fact stays."""
    texts = {"owner": "Likes Oolong Xylophone from Taiwan", "ann": "Ann likes Oolong too"}
    providers = {}
    for user, text in texts.items():
        providers[user] = HolographicProvider()
        providers[user].initialize("s7", **StartContext(kept_home=str(tmp_path), user_id=UserId(user)).keywords())
        call = (
            {"action": "add", "content": text, "tags": "xylophone"}
            if user == "owner"
            else {"action": "add", "content": text}
        )
        providers[user].handle_tool_call("fact_store", call, session_id="s7")

    assert providers["owner"].forget_content(request_) == 1

    assert providers["owner"].holds_content(request_) is False
    assert providers["ann"].holds_content(TEA) is True
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir()).lower()
    assert b"xylophon" not in held
    assert b"taiwan" not in held
    for provider in providers.values():
        provider.shutdown()


def test_a_blanked_row_of_the_ledger_is_not_mirrored(bench):
    """Forget blanks the text of rows; there is nothing left to tell a provider that comes later."""
    rows = [
        LedgerRow(ledger_id=1, action="add", target="user", before=None, after="", origin="user"),
        LedgerRow(ledger_id=2, action="add", target="user", before=None, after="Likes tea", origin="user"),
        LedgerRow(ledger_id=3, action="remove", target="user", before="", after=None, origin="forget"),
    ]
    provider = RecordingProvider()
    bench.manager(provider, context=bench.context(ledger=ListedLedger(rows)))

    eventually(lambda: provider.calls_of("on_memory_write"))
    assert [call.args for call in provider.calls_of("on_memory_write")] == [("add", "user", "Likes tea")]
