"""The manager when everything goes well."""

import threading
import time

import pytest

from wellkept.core.events import Warned
from wellkept.core.tools import ToolContext
from wellkept.providers.base import ForgetRequest, LedgerRow, MemoryProvider, StartContext
from wellkept.providers.loading import PluginPolicy, PluginSource
from wellkept.providers.manager import ProviderManager, chosen_names, open_manager, open_providers
from wellkept.providers.outbox import Write
from wellkept.providers.settings import ProviderSettings
from wellkept.providers.writes import FinishedTurn
from wellkept.testing.provider_contract import ListedLedger, RecordingProvider, eventually

MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]


def turn(session="s1", key="1", user="hello", assistant="hi", **more):
    return FinishedTurn(session_id=session, key=key, user=user, assistant=assistant, messages=MESSAGES, **more)


def hooks(provider):
    return [call.hook for call in provider.calls]


def test_a_provider_is_told_where_it_runs(bench):
    """Both names of the home are given, and the identity of the session."""
    provider = RecordingProvider()
    bench.manager(provider)

    (call,) = provider.calls_of("initialize")
    assert call.args == ("s1",)
    assert call.keywords["kept_home"] == call.keywords["hermes_home"] == str(bench.home)
    assert set(call.keywords) >= {
        "platform",
        "agent_context",
        "agent_identity",
        "agent_workspace",
        "parent_session_id",
        "user_id",
        "user_name",
        "chat_id",
        "chat_name",
        "chat_type",
        "thread_id",
        "gateway_session_key",
        "session_title",
    }


def test_a_second_external_provider_is_refused_with_a_warning(bench):
    """One at a time, unless a list was configured; `builtin` does not count."""
    manager = bench.manager(RecordingProvider("builtin"), RecordingProvider("one"), RecordingProvider("two"))

    assert manager.providers == ["builtin", "one"]
    assert any(isinstance(event, Warned) and "'two'" in event.message for event in bench.events)


def test_recall_begins_the_turn_then_fetches(bench):
    """`on_turn_start` comes first, with the number of the turn; fences never reach a provider."""
    provider = RecordingProvider(recalled="likes tea")
    manager = bench.manager(provider)

    text = manager.recall("what do I like?<memory-context>x</memory-context>", session_id="s1", turn=3)

    assert text == "likes tea"
    assert [(call.hook, call.args) for call in provider.calls[-2:]] == [
        ("on_turn_start", (3, "what do I like?")),
        ("prefetch", ("what do I like?",)),
    ]


def test_a_fence_that_a_provider_returns_is_taken_off(bench, caplog):
    """The block is put on once, by us; whose fault that was is in the log."""
    manager = bench.manager(
        RecordingProvider(recalled="<memory-context>\n[System note: theirs]\n\nlikes tea\n</memory-context>")
    )

    assert manager.recall("q", session_id="s1", turn=1) == "likes tea"
    assert "recording: prefetch returned its own fence" in caplog.text


def test_a_finished_turn_is_synced_and_the_next_recall_warmed(bench):
    """Through the outbox, with its session id, its key, and without recalled text or secrets."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    bench.settle(
        manager, turn(user="hello<memory-context>old</memory-context>", assistant="key sk-proj-" + "a1B2" * 12)
    )

    eventually(lambda: provider.calls_of("sync_turn") and provider.calls_of("queue_prefetch"))
    (call,) = provider.calls_of("sync_turn")
    assert call.args[0] == "hello"
    assert "a1B2a1B2" not in call.args[1]
    assert call.keywords == {"session_id": "s1", "messages": MESSAGES, "idempotency_key": "turn:s1:1"}
    eventually(lambda: bench.outbox.items() == [])


@pytest.mark.parametrize("unfinished", [turn(interrupted=True), turn(assistant=" ")])
def test_an_interrupted_turn_is_neither_synced_nor_prefetched(bench, unfinished):
    """Only finished turns with an answer are reported."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    bench.settle(manager, unfinished)
    manager.shutdown()

    assert bench.outbox.items() == []
    assert provider.calls_of("sync_turn") == provider.calls_of("queue_prefetch") == []


def test_memory_writes_are_mirrored_in_order(bench):
    """Add, replace and remove reach the provider, whichever process made them."""
    rows = [
        LedgerRow(ledger_id=1, action="add", target="user", before=None, after="a", origin="agent", session_id="s0"),
        LedgerRow(ledger_id=2, action="replace", target="user", before="a", after="b", origin="background_review"),
        LedgerRow(ledger_id=3, action="remove", target="user", before="b", after=None, origin="cli"),
    ]
    ledger = ListedLedger()
    provider = RecordingProvider()
    manager = bench.manager(provider, context=bench.context(ledger=ledger))
    ledger.rows = rows
    manager.writes.mirror_soon()

    eventually(lambda: len(provider.calls_of("on_memory_write")) == 3)
    assert [call.args for call in provider.calls_of("on_memory_write")] == [
        ("add", "user", "a"),
        ("replace", "user", "b"),
        ("remove", "user", "b"),
    ]
    assert provider.calls_of("on_memory_write")[1].keywords["metadata"]["before"] == "a"


def test_writes_of_another_process_are_caught_up_at_start(bench):
    """What was written while no manager ran is mirrored by the next one."""
    ledger = ListedLedger()
    bench.manager(RecordingProvider(), context=bench.context(ledger=ledger)).shutdown()
    ledger.rows = [LedgerRow(ledger_id=7, action="add", target="memory", before=None, after="x", origin="cli")]
    provider = RecordingProvider()
    bench.manager(provider, context=bench.context(ledger=ledger))

    eventually(lambda: provider.calls_of("on_memory_write"))


def test_nothing_is_written_outside_primary_contexts(bench):
    """A scheduled run may recall, but leaves no trace in a provider."""
    provider = RecordingProvider(recalled="known")
    context = bench.context(
        start=StartContext(kept_home=str(bench.home), agent_context="cron"),
        ledger=ListedLedger(
            [
                LedgerRow(ledger_id=1, action="add", target="user", before=None, after="a", origin="agent"),
            ]
        ),
    )
    manager = bench.manager(provider, context=context)
    bench.settle(manager, turn())
    manager.writes.queue_session_end("s1", MESSAGES)
    manager.shutdown()

    assert manager.status()[0].waiting == 0
    assert not {"sync_turn", "on_memory_write", "on_session_end"} & set(hooks(provider))


def test_leaving_ends_the_session_then_shuts_down(bench):
    """The order of the boundary table, for exit and expiry."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    manager.writes.queue_session_end("s1", MESSAGES)
    manager.shutdown()

    assert hooks(provider)[-2:] == ["on_session_end", "shutdown"]
    assert provider.calls_of("on_session_end")[0].keywords == {"session_id": "s1"}


@pytest.mark.parametrize(
    ("reason", "parent", "reset"),
    [
        ("new", None, True),
        ("reset", None, True),
        ("resume", None, False),
        ("branch", "s0", False),
        ("compression", None, False),
    ],
)
def test_a_switch_tells_why_and_from_where(bench, reason, parent, reset):
    """Each boundary has its own reason, and its parent is the session left unless it is another."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    manager.switch_session("s2", reason, parent=parent)

    (call,) = provider.calls_of("on_session_switch")
    assert call.args == ("s2",)
    assert call.keywords == {"parent_session_id": parent or "s1", "reset": reset, "reason": reason}
    assert "shutdown" not in hooks(provider)


def test_a_slow_provider_takes_no_time_from_the_next(bench):
    """Each may use the whole time, because all are asked at once."""
    slow, slower = RecordingProvider("slow"), RecordingProvider("slower", tools=())
    both_asked = threading.Barrier(2, timeout=60)
    slow.faults["on_pre_compress"] = lambda: (both_asked.wait(), None)[1]
    slower.faults["on_pre_compress"] = lambda: (both_asked.wait(), None)[1]
    manager = bench.manager(slow, slower, context=bench.context(several=True), prefetch_timeout_seconds=90)

    words = manager.pre_compress(MESSAGES)

    assert words == "slow saved it.\nslower saved it."


def test_a_switch_waits_for_the_writes_of_the_session_left(bench):
    """The old session's turns are delivered before the provider is told of the new one."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    bench.settle(manager, turn())
    manager.writes.queue_session_end("s1", MESSAGES)
    manager.switch_session("s2", "new")

    order = [hook for hook in hooks(provider) if hook in {"sync_turn", "on_session_end", "on_session_switch"}]
    assert order == ["sync_turn", "on_session_end", "on_session_switch"]


def test_compaction_in_place_keeps_the_id(bench):
    """The provider is told of it under the same session id."""
    provider = RecordingProvider()
    manager = bench.manager(provider)

    words = manager.pre_compress(MESSAGES)
    manager.switch_session("s1", "compression")

    assert words == "recording saved it."
    assert provider.calls_of("on_session_switch")[0].args == ("s1",)


def test_idle_eviction_ends_no_session(bench):
    """Only `shutdown` is called."""
    provider = RecordingProvider()
    bench.manager(provider).shutdown()

    assert "on_session_end" not in hooks(provider)
    assert hooks(provider)[-1] == "shutdown"


def test_providers_shut_down_in_reverse_order(bench):
    """The last one registered closes first."""
    order = []
    one, two = RecordingProvider("one"), RecordingProvider("two", tools=())
    one.faults["shutdown"] = lambda: order.append("one")
    two.faults["shutdown"] = lambda: order.append("two")
    bench.manager(one, two, context=bench.context(several=True)).shutdown()

    assert order == ["two", "one"]


def test_a_delegation_is_reported(bench):
    """What a sub-agent did reaches the provider with the child's id."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    manager.writes.queue_delegation("look", "found", session_id="s1", child_session_id="c1")
    manager.shutdown()

    (call,) = provider.calls_of("on_delegation")
    assert (call.args, call.keywords) == (("look", "found"), {"child_session_id": "c1"})


def test_tools_are_routed_with_their_session(bench):
    """A call reaches the provider that brought the tool."""
    provider = RecordingProvider(tools=("recording_search", "recording_add"))
    manager = bench.manager(provider)
    tools = {tool.schema.name: tool for tool in manager.tools()}

    answer = tools["recording_add"].call({"x": 1}, ToolContext(session_id="s1", platform="web"))

    assert answer == {"success": True, "tool": "recording_add", "args": {"x": 1}}
    assert provider.calls_of("handle_tool_call")[0].keywords["platform"] == "web"


def test_tools_are_asked_for_once_the_provider_has_started(bench):
    """They may depend on its start: its mode is read there."""
    provider = RecordingProvider()
    manager = ProviderManager(bench.database, context=bench.context(), settings=ProviderSettings())
    manager.register(provider)

    early = manager.tools()
    manager.start("s1")

    assert early == []
    assert [tool.schema.name for tool in manager.tools()] == ["recording_search"]
    assert [call.hook for call in provider.calls] == ["is_available", "initialize", "get_tool_schemas"]
    manager.shutdown()


def test_a_provider_that_does_not_start_offers_no_tools(bench):
    """A model is not shown what cannot answer."""
    provider = RecordingProvider()
    provider.faults["initialize"] = lambda: 1 / 0
    manager = bench.manager(provider)

    assert manager.tools() == []
    assert "ZeroDivisionError" in manager.status()[0].problem


def test_a_start_that_takes_too_long_is_adopted_when_it_ends(bench):
    """The conversation begins without the provider and continues with it; nothing is initialised twice."""
    provider = RecordingProvider(recalled="likes tea")
    released = threading.Event()
    provider.faults["initialize"] = lambda: released.wait(20) and None
    manager = bench.manager(provider, start_timeout_seconds=0.1)
    early = manager.recall("q", session_id="s1", turn=1)
    bench.settle(manager, turn())

    released.set()

    eventually(lambda: manager.status()[0].ready)
    assert early == ""
    assert manager.recall("q", session_id="s1", turn=2) == "likes tea"
    eventually(lambda: provider.calls_of("sync_turn"))
    assert len(provider.calls_of("initialize")) == 1
    assert manager.status()[0].problem is None


def test_the_next_recall_is_warmed_after_the_turn_is_stored(bench):
    """A back end that indexes at once then recalls what was just said; never after the end."""
    provider = RecordingProvider()
    provider.faults["sync_turn"] = lambda: time.sleep(0.2)
    manager = bench.manager(provider)
    manager.turn_finished("hello", "hi", session_id="s1")
    eventually(lambda: provider.calls_of("queue_prefetch"))
    manager.turn_finished("again", "hi", session_id="s1")
    manager.shutdown()
    manager.turn_finished("late", "hi", session_id="s1")
    time.sleep(0.1)

    order = [call.hook for call in provider.calls if call.hook in {"sync_turn", "queue_prefetch", "shutdown"}]
    assert order[:2] == ["sync_turn", "queue_prefetch"]
    assert order[-1] == "shutdown"


def test_one_call_tells_of_a_turn(bench):
    """A key counts once; without one every call counts; interrupted turns and empty answers never."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    manager.turn_finished("a", "1", key="k", messages=MESSAGES)
    manager.turn_finished("a", "1", key="k")
    manager.turn_finished("b", "2")
    manager.turn_finished("b", "2")
    manager.turn_finished("c", "3", interrupted=True)
    manager.turn_finished("d", " ")

    eventually(lambda: len(provider.calls_of("sync_turn")) == 3)
    manager.shutdown()
    assert [call.args for call in provider.calls_of("sync_turn")] == [("a", "1"), ("b", "2"), ("b", "2")]
    assert provider.calls_of("sync_turn")[0].keywords["session_id"] == "s1"


def test_turns_never_count_back(bench):
    """Not in a resumed or shortened conversation; a new one begins at one."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    for number in (7, 8, 2):
        manager.recall("q", session_id="s1", turn=number)
    manager.switch_session("s2", "resume")
    manager.recall("q", session_id="s2", turn=1)
    manager.switch_session("s3", "new")
    manager.recall("q", session_id="s3", turn=1)

    assert [call.args[0] for call in provider.calls_of("on_turn_start")] == [7, 8, 9, 10, 1]


def test_core_names_cannot_be_taken(bench, caplog):
    """A provider's `memory` tool is skipped with a warning, and so is a duplicate."""
    manager = bench.manager(
        RecordingProvider(tools=("memory", "memory_recall", "mine", "mine")),
        context=bench.context(reserved_tools=frozenset({"memory"})),
    )

    assert [tool.schema.name for tool in manager.tools()] == ["mine"]
    assert "is taken" in caplog.text


def test_several_providers_share_one_neutral_search(bench):
    """Their own search tools give way, and recall is merged without duplicates."""
    one = RecordingProvider("one", recalled="- likes tea\n- has a dog", tools=("one_search", "one_add"))
    two = RecordingProvider("two", recalled="Likes tea.\nlives in Rome", tools=("two_recall",))
    manager = bench.manager(one, two, context=bench.context(several=True))
    tools = {tool.schema.name: tool for tool in manager.tools()}

    answer = tools["memory_recall"].call({"query": "me"}, ToolContext(session_id="s1"))

    assert list(tools) == ["memory_recall", "one_add"]
    assert answer == {"success": True, "recalled": "- likes tea\n- has a dog\nlives in Rome"}
    assert manager.recall("me", session_id="s1", turn=1) == answer["recalled"]
    assert tools["memory_recall"].call({"query": 7}, ToolContext())["success"] is False


def test_every_call_leaves_one_row_without_text(bench):
    """Provider, call, time, duration, outcome and sizes; nothing of what was said."""
    manager = bench.manager(RecordingProvider(recalled="likes tea"))
    manager.recall("what do I like?", session_id="s1", turn=1)
    manager.shutdown()

    rows = bench.audit.of_session("s1")
    assert [row.call for row in rows] == [
        "is_available",
        "initialize",
        "get_tool_schemas",
        "on_turn_start",
        "prefetch",
        "shutdown",
    ]
    fetched = rows[4]
    assert (fetched.provider, fetched.outcome, fetched.bytes_out, fetched.bytes_in) == ("recording", "ok", 15, 9)
    assert "tea" not in repr(rows)


def test_stats_add_up_hits_and_latency(bench):
    """What a provider is worth can be read off its calls."""
    provider = RecordingProvider(recalled="likes tea")
    manager = bench.manager(provider)
    manager.recall("one", session_id="s1", turn=1)
    provider.recalled = ""
    manager.recall("two", session_id="s1", turn=2)
    manager.shutdown()

    (stats,) = bench.audit.stats(days=1)
    assert (stats.recalls, stats.hits, stats.failures) == (2, 1, 0)
    assert stats.recall_p95_ms > 0


def test_a_hook_that_is_not_there_costs_nothing(bench):
    """A minimal provider gets no calls, rows or queued writes for hooks it lacks."""

    class Minimal(MemoryProvider):
        name = "minimal"

        def is_available(self):
            return True

        def initialize(self, session_id, **context):
            pass

        def get_tool_schemas(self):
            return []

    manager = bench.manager(Minimal())
    bench.settle(manager, turn())
    manager.writes.queue_session_end("s1", MESSAGES)
    manager.shutdown()

    assert bench.outbox.items() == []
    assert [row.call for row in bench.audit.of_session("s1")] == ["is_available", "initialize", "get_tool_schemas"]


def test_records_are_kept_for_a_while_and_forgotten_with_their_session(bench):
    """Old ones go by themselves, those of a forgotten session at once."""
    manager = bench.manager(RecordingProvider(recalled="x"))
    manager.recall("q", session_id="s1", turn=1)
    manager.shutdown()
    with bench.database.writing() as unit:
        unit.execute("UPDATE provider_calls SET started = 1 WHERE call = 'prefetch'")
    bench.audit.prune()

    assert "prefetch" not in [row.call for row in bench.audit.of_session("s1")]
    assert bench.audit.forget("s1") > 0
    assert bench.audit.of_session("s1") == []


def test_the_state_of_every_provider_is_reported(bench):
    """Ready or not, why not, and how much waits."""
    good, bad = RecordingProvider("good"), RecordingProvider("bad")
    bad.available = False
    manager = bench.manager(good, bad, context=bench.context(several=True))
    bench.outbox.add("bad", [Write(hook="sync_turn", session_id="s1", idempotency_key="1", payload={})])

    states = {state.name: state for state in manager.status()}

    assert (states["good"].ready, states["good"].waiting, states["good"].problem) == (True, 0, None)
    assert (states["bad"].ready, states["bad"].waiting) == (False, 1)
    assert states["bad"].problem
    warned = [event for event in bench.events if isinstance(event, Warned)]
    assert len(warned) == 1
    assert "'bad' is not in use" in warned[0].message
    assert "kept providers status" in warned[0].remedy


def test_the_text_for_the_prompt_is_limited_per_provider(bench):
    """A fence is taken off, empty text leaves no gap."""
    long, empty, fenced = RecordingProvider("long"), RecordingProvider("empty"), RecordingProvider("fenced")
    long.faults["system_prompt_block"] = lambda: "x" * 50_000
    empty.faults["system_prompt_block"] = lambda: "  \n"
    fenced.faults["system_prompt_block"] = lambda: "<memory-context>\nplain\n</memory-context>"
    manager = bench.manager(long, empty, fenced, context=bench.context(several=True))

    first, second = manager.system_prompt_block().split("\n\n")

    assert first == "x" * 8_000
    assert "plain" in second
    assert "<memory-context>" not in second


def test_a_tool_call_outside_a_conversation_starts_once(bench):
    """The second call finds the providers running."""
    provider = RecordingProvider()
    manager = ProviderManager(bench.database, context=bench.context(), settings=ProviderSettings())
    manager.register(provider)
    manager.start_for_tools("s1")
    manager.start_for_tools("s2")

    assert [call.args for call in provider.calls_of("initialize")] == [("s1",)]
    manager.close()
    manager.close()
    assert len(provider.calls_of("shutdown")) == 1


def test_recall_is_for_the_session_that_asked(bench):
    """A late answer is not given to another conversation."""
    manager = bench.manager(RecordingProvider(recalled="likes tea"))

    assert manager.recall("me", session_id="s1", turn=1) == "likes tea"
    assert manager.recall("me", session_id="other", turn=2) == ""


def test_recall_is_cut_with_a_log_entry(bench, caplog):
    """Under one budget for all providers."""
    manager = bench.manager(RecordingProvider(recalled="y" * 300), recall_max_chars=100)

    assert len(manager.recall("me", session_id="s1", turn=1)) <= 100
    assert "cut to 100 characters" in caplog.text


def test_the_neutral_search_names_what_failed(bench):
    """The others' answers are given."""
    good, bad = RecordingProvider("good", recalled="likes tea"), RecordingProvider("bad")
    manager = bench.manager(good, bad, context=bench.context(several=True))

    def crash():
        raise RuntimeError("boom")

    bad.faults["prefetch"] = crash
    search = next(tool for tool in manager.tools() if tool.schema.name == "memory_recall")
    answer = search.call({"query": "me"}, ToolContext(session_id="s1"))

    assert (answer["success"], answer["recalled"]) == (True, "likes tea")
    assert len(answer["failed"]) == 1
    assert "boom" in answer["failed"][0]
    assert search.call({"query": "  "}, ToolContext())["success"] is False


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        (None, []),
        ("", []),
        ("builtin", []),
        (" mem0 ", ["mem0"]),
        (["mem0", "builtin", " ", "honcho", "mem0"], ["mem0", "honcho"]),
    ],
)
def test_the_setting_names_the_external_providers(setting, names):
    """Each once, in the order given."""
    assert chosen_names(setting) == names


def test_a_provider_that_cannot_be_loaded_is_a_warning(bench, tmp_path):
    """The others are used; with none left there is no manager."""
    options = {
        "source": PluginSource(tmp_path / "plugins", {}, PluginPolicy()),
        "database": bench.database,
        "settings": ProviderSettings(),
        "context": bench.context(),
    }

    assert open_manager(None, **options) is None
    assert open_manager("no-such-provider", **options) is None
    (warned,) = [event for event in bench.events if isinstance(event, Warned)]
    assert "'no-such-provider' is not in use" in warned.message
    manager = open_manager(["no-such-provider", "holographic"], **options)
    assert manager.providers == ["holographic"]
    manager.close()


def test_a_library_opens_it_with_a_folder(tmp_path):
    """The folder is created, and holds the state."""
    manager = open_providers(tmp_path / "new" / "home")
    manager.register(RecordingProvider())
    manager.start("s1")

    assert manager.providers == ["recording"]
    assert (tmp_path / "new" / "home" / "state.db").exists()
    manager.close()


def test_a_turn_reaches_the_provider_with_the_text_as_it_was_said(bench):
    """Recalled text is removed from the message before a provider gets it."""
    provider = RecordingProvider()
    manager = bench.manager(provider)
    manager.recall("before <memory-context>secret</memory-context> after", session_id="s1", turn=3)

    (call,) = provider.calls_of("on_turn_start")
    assert call.args[0] == 3
    assert "secret" not in call.args[1]


def test_registering_tells_whether_it_worked(bench):
    """The first external provider is taken, a second one is not, nor one of the same name."""
    manager = bench.manager(RecordingProvider("one"))

    assert manager.register(RecordingProvider("two")) is False
    assert manager.register(RecordingProvider("one")) is False
    assert manager.register(RecordingProvider("builtin")) is True


def test_one_chosen_provider_keeps_its_own_search(bench, tmp_path):
    """Only two and more share the neutral one."""
    options = {
        "source": PluginSource(tmp_path / "plugins", {}, PluginPolicy()),
        "database": bench.database,
        "settings": ProviderSettings(),
        "context": bench.context(),
    }
    manager = open_manager("holographic", **options)

    assert manager.register(RecordingProvider("second")) is False
    manager.close()
    several = open_manager(["holographic", "mem0"], **options)
    assert several.register(RecordingProvider("third")) is True
    several.close()


def test_forgetting_starts_the_providers(bench):
    """They are asked also where no conversation has begun."""
    provider = RecordingProvider()
    manager = ProviderManager(bench.database, context=bench.context(), settings=ProviderSettings())
    manager.register(provider)

    manager.forget(ForgetRequest(texts=("okapi",)), only_find=True)

    assert "initialize" in hooks(provider)
    manager.close()


def test_what_was_written_last_is_queued_before_the_end(bench):
    """A write to the pages that nobody has mirrored yet is delivered, or waits for the next start."""
    ledger = ListedLedger()
    provider = RecordingProvider()
    manager = bench.manager(provider, context=bench.context(ledger=ledger), switch_wait_seconds=30)
    ledger.rows.append(LedgerRow(ledger_id=1, action="add", target="user", before=None, after="tea", origin="agent"))

    manager.close()

    assert "on_memory_write" in hooks(provider)
    assert [lane.delivered for lane in bench.outbox.lanes()] == [1]


def test_a_manager_can_be_opened_in_a_folder_that_is_not_there_yet(tmp_path):
    """The library makes the folder, with the database in it."""
    manager = open_providers(tmp_path / "new" / "home")

    assert manager.register(RecordingProvider()) is True
    manager.close()
    assert (tmp_path / "new" / "home" / "state.db").exists()


def test_turns_without_a_key_are_all_different(bench):
    """Each is delivered, also two with the same words."""
    provider = RecordingProvider()
    manager = bench.manager(provider, switch_wait_seconds=30)

    for _ in range(2):
        manager.turn_finished("hello", "hi", session_id="s1")
    manager.close()

    assert hooks(provider).count("sync_turn") == 2


def test_before_a_tool_call_what_waits_is_delivered_once(bench):
    """The first call starts the provider and waits for writes that belong to no conversation; the next ones do neither."""
    first = Write(
        hook="sync_turn", session_id="", idempotency_key="1", payload={"user": "u", "assistant": "a", "messages": []}
    )
    bench.outbox.add("recording", [first])
    provider = RecordingProvider()
    arrived = []
    provider.faults["sync_turn"] = lambda: time.sleep(0.2) or arrived.append(1)
    manager = ProviderManager(
        bench.database, context=bench.context(), settings=ProviderSettings(switch_wait_seconds=60)
    )
    manager.register(provider)

    manager.start_for_tools("s1")
    delivered = list(arrived)
    manager.start_for_tools("s2")
    manager.turn_finished("hello", "hi")
    manager.close()

    assert (delivered, hooks(provider).count("initialize")) == ([1], 1)
    assert provider.calls_of("sync_turn")[-1].keywords["session_id"] == "s2"
