"""The manager under faults: whatever a provider does, the turn continues."""

import subprocess
import sys
import threading
import time

import pytest

from wellkept.core.events import Warned
from wellkept.core.tools import ToolContext
from wellkept.providers.base import LedgerRow
from wellkept.providers.writes import FinishedTurn
from wellkept.testing.provider_contract import Bench, ListedLedger, RecordingProvider, eventually

HOOKS = [
    "is_available",
    "initialize",
    "get_tool_schemas",
    "handle_tool_call",
    "system_prompt_block",
    "prefetch",
    "queue_prefetch",
    "sync_turn",
    "on_turn_start",
    "on_session_end",
    "on_session_switch",
    "on_pre_compress",
    "on_memory_write",
    "on_delegation",
    "shutdown",
]
MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
PATIENT = {"prefetch_timeout_seconds": 60, "start_timeout_seconds": 60, "switch_wait_seconds": 60}
"""For faults that end at once: a busy machine must not look like a provider that hangs."""
LIMITS = {
    "is_available": "start_timeout_seconds",
    "initialize": "start_timeout_seconds",
    "get_tool_schemas": "start_timeout_seconds",
    "handle_tool_call": "tool_timeout_seconds",
    "system_prompt_block": "prefetch_timeout_seconds",
    "prefetch": "prefetch_timeout_seconds",
    "on_turn_start": "prefetch_timeout_seconds",
    "on_session_switch": "prefetch_timeout_seconds",
    "on_pre_compress": "prefetch_timeout_seconds",
}
"""Hook → the setting that ends a call of it; deliveries and the exit end with the wait of a session switch."""


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def crash():
    raise RuntimeError("broken on order")


def leave_the_program():
    raise SystemExit(3)


def a_whole_life(bench, provider, healthy, settings, *, is_over=lambda _manager: True):
    """Run every boundary once, as the agent does, until `is_over`; return what was recalled and answered."""
    ledger = ListedLedger()
    context = bench.context(several=True, ledger=ledger)
    manager = bench.manager(provider, healthy, context=context, **settings)
    manager.system_prompt_block()
    recalled = manager.recall("q", session_id="s1", turn=1)
    answers = [tool.call({"query": "q"}, ToolContext(session_id="s1")) for tool in manager.tools()]
    bench.settle(manager, FinishedTurn(session_id="s1", key="1", user="q", assistant="a", messages=MESSAGES))
    ledger.rows.append(LedgerRow(ledger_id=1, action="add", target="user", before=None, after="x", origin="agent"))
    manager.writes.mirror_soon()
    manager.writes.queue_delegation("t", "r", session_id="s1", child_session_id="c1")
    manager.pre_compress(MESSAGES)
    manager.switch_session("s1", "compression")
    manager.writes.queue_session_end("s1", MESSAGES)
    # a short time-out of the exit is for the provider that hangs, and no race for the other one
    eventually(lambda: healthy.calls_of("sync_turn") and is_over(manager), seconds=60)
    manager.shutdown()
    return manager, recalled, answers


@pytest.mark.parametrize("fault", [crash, leave_the_program], ids=["raises", "exits"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_crash_in_any_hook_stops_nothing(bench, hook, fault):
    """The turn, the other provider and the exit continue; the failure is counted and shown."""
    broken, healthy = (
        RecordingProvider("broken", tools=("broken_add",)),
        RecordingProvider("healthy", recalled="known", tools=("healthy_add",)),
    )
    broken.faults[hook] = fault

    def has_failed(manager):
        """A recall is warmed only when nothing else is queued, so an early exit skips it."""
        return hook != "queue_prefetch" or next(
            each.health.last_error for each in manager.status() if each.name == "broken"
        )

    manager, recalled, answers = a_whole_life(bench, broken, healthy, PATIENT, is_over=has_failed)

    status = {each.name: each for each in manager.status()}
    assert recalled == "known"
    assert all(isinstance(answer, dict) for answer in answers)
    assert healthy.calls_of("sync_turn")
    assert healthy.calls_of("on_memory_write")
    assert healthy.calls_of("on_delegation")
    assert healthy.calls_of("on_session_end")
    assert healthy.calls_of("shutdown")
    assert "raised" in (status["broken"].health.last_error or "")
    assert status["healthy"].health.last_error is None


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hang_in_any_hook_delays_by_its_time_out_at_most(bench, released, hook):
    """The hook's own time-out ends the wait, and the other provider is served."""
    hanging, healthy = (
        RecordingProvider("hanging", tools=("hanging_add",)),
        RecordingProvider("healthy", recalled="known", tools=("healthy_add",)),
    )
    hanging.faults[hook] = lambda: released.wait(90) and None

    begun = time.monotonic()
    settings = {**PATIENT, LIMITS.get(hook, "switch_wait_seconds"): 1.0}
    _, recalled, _ = a_whole_life(bench, hanging, healthy, settings)

    assert recalled == "known"
    assert healthy.calls_of("sync_turn")
    assert time.monotonic() - begun < 45


def test_a_hanging_prefetch_is_not_asked_again_while_it_hangs(bench, released):
    """Only the first turn pays the time-out."""
    provider = RecordingProvider()
    calls = []
    provider.faults["prefetch"] = lambda: calls.append(1) or (released.wait(90) and None)
    manager = bench.manager(provider, prefetch_timeout_seconds=0.3)

    manager.recall("q", session_id="s1", turn=1)
    manager.recall("q", session_id="s1", turn=2)

    assert len(calls) == 1


def test_five_failures_pause_a_provider_in_the_next_process_too(bench):
    """The breaker's state is kept, so that short commands do not each pay for a provider that is down."""
    provider = RecordingProvider()
    provider.faults["prefetch"] = crash
    manager = bench.manager(provider)
    for number in range(7):
        provider.faults["on_turn_start"] = crash
        manager.recall("q", session_id="s1", turn=number)
    manager.shutdown()

    again = RecordingProvider(recalled="known")
    later = bench.manager(again)

    assert again.calls == []
    assert later.recall("q", session_id="s1", turn=1) == ""
    assert bench.audit.health("recording").paused_until > time.time() + 60


@pytest.mark.parametrize("garbage", [b"bytes", {"a": 1}, 7, ["x"], object()])
@pytest.mark.parametrize(
    "hook", ["prefetch", "system_prompt_block", "on_pre_compress", "get_tool_schemas", "handle_tool_call"]
)
def test_garbage_answers_break_nothing(bench, hook, garbage):
    """A wrong type is a failure of the provider, never of the turn."""
    broken, healthy = (
        RecordingProvider("broken", tools=("broken_add",)),
        RecordingProvider("healthy", recalled="known", tools=("healthy_add",)),
    )
    broken.faults[hook] = lambda: garbage
    _, recalled, answers = a_whole_life(bench, broken, healthy, PATIENT)

    assert recalled == "known"
    assert all(isinstance(answer, dict) for answer in answers)


def test_fifty_megabytes_are_cut_and_do_not_delay(bench):
    """Recalled text, prompt blocks and tool answers are bounded."""
    provider = RecordingProvider(tools=("recording_add",))
    huge = "fact about tea\n" * 3_500_000
    for hook in ("prefetch", "system_prompt_block", "on_pre_compress", "handle_tool_call"):
        provider.faults[hook] = lambda: huge
    manager = bench.manager(provider)

    recalled = manager.recall("q", session_id="s1", turn=1)
    block = manager.system_prompt_block()
    words = manager.pre_compress(MESSAGES)
    (answer,) = [tool.call({}, ToolContext(session_id="s1")) for tool in manager.tools()]

    assert max(len(recalled), len(block), len(words)) <= 16_000
    assert answer["success"] is False


def test_a_session_switch_drops_the_recall_that_is_under_way(bench):
    """What was recalled for an old session is not injected into a new one."""
    provider = RecordingProvider(recalled="of the old session")
    asked, go_on = threading.Event(), threading.Event()
    provider.faults["prefetch"] = lambda: (asked.set(), go_on.wait(5), None)[-1]
    manager = bench.manager(provider)
    results = []
    thread = threading.Thread(target=lambda: results.append(manager.recall("q", session_id="s1", turn=1)))
    thread.start()
    asked.wait(5)
    manager.switch_session("s2", "new")
    go_on.set()
    thread.join()

    assert results == [""]


def test_a_provider_that_cannot_start_is_reported_and_loses_nothing(bench):
    """Its turns wait in the outbox and go out when it can."""
    down = RecordingProvider()
    down.faults["initialize"] = crash
    manager = bench.manager(down)
    bench.settle(manager, FinishedTurn(session_id="s1", key="1", user="q", assistant="a"))
    manager.shutdown()

    assert any(isinstance(event, Warned) and "not in use" in event.message for event in bench.events)
    assert len(bench.outbox.items()) == 1
    up = RecordingProvider()
    bench.manager(up, session_id="s2")
    eventually(lambda: up.calls_of("sync_turn"))
    assert up.calls_of("sync_turn")[0].keywords["session_id"] == "s1"


def test_an_unavailable_provider_is_not_initialised(bench):
    """It is named at the start, with the reason."""
    provider = RecordingProvider()
    provider.available = False
    manager = bench.manager(provider)

    assert provider.calls_of("initialize") == []
    assert "not available" in manager.status()[0].problem
    assert manager.tools() == []


def test_failed_deliveries_are_tried_again_in_order(bench):
    """Three failures, then both turns arrive, the first one first."""
    provider = RecordingProvider()
    left = [1]
    provider.faults["sync_turn"] = lambda: crash() if left and left.pop() else None
    manager = bench.manager(provider)
    for key in ("1", "2"):
        bench.settle(manager, FinishedTurn(session_id="s1", key=key, user=key, assistant="a"))

    eventually(lambda: len(provider.calls_of("sync_turn")) == 2)
    assert [call.args[0] for call in provider.calls_of("sync_turn")] == ["1", "2"]
    eventually(lambda: bench.outbox.items() == [])


def test_a_hanging_provider_does_not_hold_the_exit(tmp_path):
    """The process ends although a thread of a provider never does."""
    script = f"""
import pathlib, threading
from wellkept.testing.provider_contract import Bench, RecordingProvider
provider = RecordingProvider()
for hook in ("prefetch", "queue_prefetch", "sync_turn", "shutdown"):
    provider.faults[hook] = threading.Event().wait
bench = Bench(pathlib.Path({str(tmp_path)!r}))
manager = bench.manager(provider, prefetch_timeout_seconds=0.2, switch_wait_seconds=0.2)
manager.recall("q", session_id="s1", turn=1)
manager.shutdown()
print("left")
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)

    assert (done.stdout.strip(), done.returncode) == ("left", 0), done.stderr
    assert time.monotonic() - begun < 45


def test_a_time_out_is_in_the_log(bench, released, caplog):
    """Time-outs are logged like errors, with the provider that caused them."""
    provider = RecordingProvider()
    provider.faults["prefetch"] = lambda: released.wait(10)
    manager = bench.manager(provider, prefetch_timeout_seconds=0.3)

    manager.recall("q", session_id="s1", turn=1)

    assert "recording: prefetch took longer than 0.3 s" in caplog.text


def test_an_error_is_one_short_line_without_secrets(bench):
    """What a provider raises is stored and shown, so it must not carry a key or a page of text."""

    def fail():
        raise RuntimeError(f"bad key sk-proj-{'a1B2' * 12} {'x' * 5_000}\nsecond line")

    provider = RecordingProvider()
    provider.faults["prefetch"] = fail
    manager = bench.manager(provider)
    manager.recall("q", session_id="s1", turn=1)

    error = manager.status()[0].health.last_error
    assert error.startswith("prefetch raised RuntimeError: bad key")
    assert "a1B2a1B2" not in error
    assert "second line" not in error
    assert len(error) < 300
