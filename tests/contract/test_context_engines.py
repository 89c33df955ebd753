"""Every context engine keeps the same promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.context.engine import ContextEngine, Unchanged
from wellkept.context.lossless import Lossless
from wellkept.context.messages import faults, repair, request_messages
from wellkept.context.summarising import Compressor
from wellkept.core.messages import ImagePart, Message, Role, TextPart, ToolCall
from wellkept.testing.context_contract import (
    ContextEngineContract,
    as_stored,
    check_outcome,
    context_after,
    prepare_engine,
)

ENGINES = [Compressor, Lossless]


class TestCompressor(ContextEngineContract):
    def engine(self) -> ContextEngine:
        return Compressor()


class TestLossless(ContextEngineContract):
    def engine(self) -> ContextEngine:
        return Lossless()


sizes = st.sampled_from([0, 1, 7, 60, 900, 4_000])
ids = st.sampled_from(["a", "b", "c", "d"])
calls = st.builds(
    ToolCall,
    ids,
    st.sampled_from(["read_file", "terminal"]),
    st.sampled_from(["{}", "", '{"x": "' + "y" * 900 + '"}', "not json" * 99]),
)


@st.composite
def any_message(draw) -> Message:
    role = draw(st.sampled_from(list(Role)))
    text = draw(st.sampled_from(["go on ", "请看 ", "[CONTEXT COMPACTION] ", "```x``` "])) * draw(sizes)
    content = draw(
        st.sampled_from([text, (TextPart(text), ImagePart("image/png", "AA")), (ImagePart("image/png", "AA"),), ()])
    )
    return Message(
        role,
        content,
        tool_calls=tuple(draw(st.lists(calls, max_size=3))) if role is Role.ASSISTANT else (),
        tool_call_id=draw(ids) if role is Role.TOOL else None,
    )


any_list = st.lists(any_message(), max_size=40)


@pytest.mark.parametrize("make", ENGINES)
@given(messages=any_list, force=st.booleans(), window=st.sampled_from([2_000, 8_000, 32_000]))
@settings(max_examples=150, deadline=None)
def test_any_list_gives_a_valid_result_or_comes_back_unchanged(make, messages, force, window) -> None:
    """Whatever is given: valid, not longer, pairs intact, last user message kept, nothing lost."""
    rows = as_stored(messages)
    engine = prepare_engine(make(), rows, context_length=window, overhead_tokens=100)

    outcome = engine.compress(rows, force=force)

    check_outcome(engine, rows, outcome)


@pytest.mark.parametrize("make", ENGINES)
@given(messages=any_list)
@settings(max_examples=80, deadline=None)
def test_compacting_comes_to_rest(make, messages) -> None:
    """Repeated compaction reaches a context that it leaves alone, and never grows it."""
    rows = as_stored(messages)
    engine = prepare_engine(make(), rows, context_length=8_000, overhead_tokens=100)
    before = engine.measure(rows).total_of(request_messages(rows))
    for _ in range(6):
        outcome = engine.compress(rows)
        rows = context_after(rows, outcome)
        after = engine.measure(rows).total_of(request_messages(rows))
        assert after <= before
        before = after

    assert isinstance(engine.compress(rows), Unchanged)


@given(any_list)
@settings(max_examples=200, deadline=None)
def test_repair_is_valid_and_final(messages) -> None:
    """A repaired list has no fault, and repairing it again changes nothing."""
    once = repair(messages)

    assert faults(once) == []
    assert repair(once) == once
