"""The compressor: when it acts, what it keeps, how it waits."""

import threading
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from wellkept.context.boundaries import Backoff, Window, load_backoff, needs_hygiene
from wellkept.context.engine import Compaction, Pruned, Unchanged, Why
from wellkept.context.summarising import Compressor
from wellkept.context.summary import MARKER, WithDeadline
from wellkept.core.clock import FixedClock
from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError
from wellkept.core.messages import Message, Role, Usage
from wellkept.testing.context_contract import as_stored, check_outcome, context_after, conversation, prepare_engine

GOOD = "## Goal\n- the parser [#1]\n## Progress\n- lots [#5]\n## Next Steps\n- more [#9]\n"


@dataclass
class Model:
    failure: ModelError | None = None
    name: str = "test/summary"
    context_length: int = 200_000
    calls: int = 0
    hold: threading.Event = field(default_factory=threading.Event)
    hangs: bool = False

    def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
        self.calls += 1
        if self.hangs:
            self.hold.wait(20)
        if self.failure is not None:
            raise self.failure
        return GOOD


def with_model(model: Model, *, context_length: int = 16_000, **more: object) -> Compressor:
    engine = prepare_engine(Compressor(), context_length=context_length)
    assert isinstance(engine, Compressor)
    engine.setup = replace(engine.setup, model=model, **more)
    return engine


def just_over(engine: Compressor) -> list:
    """A conversation above the threshold and far from the end of the window."""
    turns = 10
    while engine.measure(conversation(turns, with_tools=False)).total < engine.limits.threshold * 1.1:
        turns += 1
    return conversation(turns, with_tools=False)


def mostly_output() -> list:
    """A conversation above the threshold whose talk is short and whose tool output is long."""
    return [
        row
        if row.message.role is Role.TOOL
        else replace(row, message=replace(row.message, content=row.message.text[:80]))
        for row in conversation(28, words=60)
    ]


def test_pruning_alone_is_enough_when_tool_output_is_most_of_it() -> None:
    """Old output goes, no model is asked, ids stay."""
    model = Model()
    engine = with_model(model)
    rows = mostly_output()

    outcome = engine.compress(rows)

    assert isinstance(outcome, Pruned)
    assert model.calls == 0
    check_outcome(engine, rows, outcome)


def test_a_summary_is_announced_only_when_one_will_be_written() -> None:
    """Providers are asked for their text before messages leave, not before mere pruning."""
    engine = with_model(Model())
    to_prune, to_summarise = mostly_output(), just_over(engine)

    assert not engine.writes_summary(to_prune)
    assert not engine.writes_summary(conversation(2))
    assert engine.writes_summary(to_summarise)
    assert engine.writes_summary(to_prune, force=True)


def test_the_middle_becomes_one_marked_summary() -> None:
    """Head, summary, tail; the summary stands between two speakers."""
    engine = with_model(Model())
    rows = just_over(engine)

    outcome = engine.compress(rows)

    assert isinstance(outcome, Compaction)
    check_outcome(engine, rows, outcome)
    assert [message.text.startswith(MARKER) for message in outcome.messages].count(True) == 1
    assert outcome.kept_head == (1, 2)
    assert outcome.messages[:2] == (rows[0].message, rows[1].message)
    assert outcome.messages[-1] == rows[-1].message
    assert len(outcome.kept_tail) >= 20


def test_a_second_compaction_updates_the_first_after_a_restart() -> None:
    """One summary at a time, found by its marker in the stored messages."""
    engine = with_model(Model())
    rows = just_over(engine)
    first = context_after(rows, engine.compress(rows))
    grown = [*first, *(replace(row, id=row.id + 500) for row in just_over(engine))]

    outcome = with_model(Model()).compress(grown)

    assert isinstance(outcome, Compaction)
    assert sum(message.text.startswith(MARKER) for message in outcome.messages) == 1
    assert outcome.kept_head == (1, 2)


def test_a_wish_repeated_changes_nothing() -> None:
    """A forced compaction right after another finds nothing between head and tail."""
    engine = with_model(Model())
    rows = just_over(engine)
    done = engine.compress(rows, force=True)

    again = engine.compress(context_after(rows, done), force=True)

    assert isinstance(again, Unchanged)
    assert again.reason is Why.NOTHING_TO_COMPRESS


def test_an_outage_changes_nothing_and_cools_down_60_300_900() -> None:
    """The person is told once; the wait grows; the state survives a restart."""
    engine = with_model(Model(ModelBusy("503")))
    rows = just_over(engine)
    clock = engine.setup.clock
    assert isinstance(clock, FixedClock)
    waits, notes = [], []
    for _ in range(4):
        outcome = engine.compress(rows)
        assert isinstance(outcome, Unchanged)
        assert outcome.reason is Why.MODEL_UNREACHABLE
        notes.append(bool(outcome.note))
        waits.append(engine.backoff.cool_until - clock.now().timestamp())
        assert not engine.should_compress(9_000)
        clock.moment += timedelta(seconds=waits[-1] + 1)

    assert waits == [60, 300, 900, 900]
    assert notes == [True, False, False, False]
    assert load_backoff(engine.state()) == engine.backoff


def test_a_cool_down_leaves_the_model_alone() -> None:
    """Within the wait nothing is asked; a person's wish is."""
    model = Model(ModelBusy("503"))
    engine = with_model(model)
    rows = just_over(engine)
    engine.compress(rows)

    again = engine.compress(rows)
    engine.compress(rows, force=True)

    assert isinstance(again, Unchanged)
    assert again.reason is Why.COOLING_DOWN
    assert model.calls == 2


def test_close_to_overflow_an_outage_does_not_stop_the_compaction() -> None:
    """Beyond 0.85 of the window rules write the summary."""
    engine = with_model(Model(ModelBusy("503")))
    rows = conversation(60, with_tools=False)

    outcome = engine.compress(rows, current_tokens=15_000)

    assert isinstance(outcome, Compaction)
    assert outcome.by_rule
    assert outcome.tokens_after < engine.limits.threshold
    assert "unreachable" in outcome.note


def test_a_summary_by_rule_within_a_cool_down_does_not_end_it() -> None:
    """The model stays alone until its time is over, and the person is not told again."""
    clock, model = FixedClock(), Model(ModelBusy("503"))
    engine = with_model(model, clock=clock)
    engine.compress(just_over(engine))
    waits_until = engine.backoff.cool_until

    outcome = engine.compress(conversation(60, with_tools=False), current_tokens=15_000)

    assert isinstance(outcome, Compaction)
    assert (outcome.by_rule, outcome.note, model.calls) == (True, "", 1)
    assert (engine.backoff.cool_until, engine.backoff.failures) == (waits_until, 1)


def test_a_hanging_model_is_left_behind() -> None:
    """After the deadline the compaction counts as an outage."""
    model = Model(hangs=True)
    engine = with_model(model, deadline_seconds=0.05)

    outcome = engine.compress(just_over(engine))
    model.hold.set()

    assert isinstance(outcome, Unchanged)
    assert outcome.reason is Why.MODEL_UNREACHABLE


def test_a_model_that_crashes_is_an_error_of_the_model() -> None:
    """Even an error of a foreign kind comes back as one of ours."""

    class Broken(Model):
        def complete(self, system: str, prompt: str, *, max_output_tokens: int) -> str:
            raise ZeroDivisionError

    with pytest.raises(ModelError, match="without an answer"):
        WithDeadline(Broken(), 5, given_up=lambda: False).complete("", "", max_output_tokens=1)


def test_two_poor_compactions_stop_further_ones_until_a_reading_falls() -> None:
    """What saves under a tenth is not repeated; a real reading below the threshold lifts it."""
    engine = with_model(Model())
    rows = [
        *conversation(10, words=5, with_tools=False),
        *as_stored([Message(Role.USER, "word " * 10_000)], first_id=50),
    ]
    outcomes = [engine.compress(rows) for _ in range(3)]

    assert isinstance(outcomes[2], Unchanged)
    assert outcomes[2].reason is Why.INEFFECTIVE
    assert not engine.should_compress(9_000)
    for reading in (9_000, 7_900):
        engine.update_from_response(Usage(input_tokens=reading))
        assert not engine.should_compress(9_000)
    engine.update_from_response(Usage(input_tokens=5_000))
    assert engine.should_compress(9_000)


def test_a_reported_size_scales_the_estimate() -> None:
    """When the endpoint counts more than the estimate, the compaction still ends below the threshold."""
    engine = with_model(Model())
    rows = conversation(40, words=50, with_tools=False)
    estimate = engine.measure(rows).total

    outcome = engine.compress(rows, current_tokens=estimate * 2)

    assert isinstance(outcome, Compaction)
    assert outcome.tokens_after < engine.limits.threshold
    assert engine.measure([row for row in rows if row.id in outcome.kept_tail]).total * 2 < engine.limits.threshold


@pytest.mark.parametrize(("window", "overhead"), [(8_000, 2_500), (16_000, 5_000), (32_000, 8_000), (200_000, 12_000)])
def test_hundreds_of_turns_never_overflow(window: int, overhead: int) -> None:
    """Each compaction ends below the threshold, however small the window."""
    engine = prepare_engine(Compressor(), context_length=window, overhead_tokens=overhead)
    rows: list = []
    compactions = 0
    for row in conversation(400, words=40):
        rows.append(replace(row, id=row.id * 2))  # odd ids are left to summaries
        if row.message.role is Role.USER:
            continue
        total = engine.measure(rows).total
        assert total < window
        if engine.should_compress(total):
            outcome = engine.compress(rows, current_tokens=total)
            check_outcome(engine, rows, outcome)
            rows = context_after(rows, outcome)
            compactions += 1
            total = engine.measure(rows).total
            assert total < engine.limits.threshold
        engine.update_from_response(Usage(input_tokens=total))

    assert compactions > 0


def test_what_cannot_fit_is_named_with_its_sizes() -> None:
    """The error says how large the fixed part and the message are."""
    engine = prepare_engine(Compressor(), context_length=8_000, overhead_tokens=3_000)

    error = engine.overflow(as_stored([Message(Role.USER, "word " * 10_000)]))

    assert isinstance(error, ContextOverflow)
    assert "3,000" in str(error)
    assert "12,504" in str(error)
    assert engine.overflow(as_stored([Message(Role.USER, "hello")])) is None


def test_a_preview_asks_no_model() -> None:
    """It says what would be covered, and changes nothing."""
    model = Model()
    engine = with_model(model)

    preview = engine.preview(just_over(engine))

    assert preview is not None
    assert len(preview.covered) > 2
    assert preview.tokens_at_most < preview.tokens_before
    assert model.calls == 0


def test_another_model_brings_another_window() -> None:
    """The limits follow."""
    engine = with_model(Model())
    engine.update_model(Window(200_000))

    assert engine.limits.threshold == 100_000
    assert engine.get_status()["threshold_tokens"] == 100_000


@pytest.mark.parametrize(
    ("messages", "tokens", "reported", "enabled", "due"),
    [
        (10, 84_999, None, True, False),
        (10, 85_000, None, True, True),
        (10, 85_000, 10, True, False),
        (10, 10, 90_000, True, True),
        (3, 99_000, None, True, False),
        (4, 99_000, None, True, True),
        (5_000, 10, 10, True, True),
        (5_000, 99_000, None, False, False),
    ],
)
def test_hygiene_is_due_at_85_percent_or_5000_messages(messages, tokens, reported, enabled, due) -> None:
    """Reported tokens count first; four messages at least; only when enabled."""
    decided = needs_hygiene(messages, tokens=tokens, context_length=100_000, enabled=enabled, reported_tokens=reported)

    assert decided is due


def test_a_pace_that_cannot_be_read_is_a_fresh_start() -> None:
    """Notes of a session are not trusted."""
    assert (
        load_backoff("x") == load_backoff(None) == load_backoff({"failures": "many", "cool_until": True}) == Backoff()
    )
