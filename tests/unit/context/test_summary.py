"""The summary: asked of a model, checked, cut to its budget, or written by rule."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.context.summary import (
    MARKER,
    NAMES,
    Brief,
    Unreachable,
    Written,
    body_of,
    clip,
    find_citations,
    fit_sections,
    index_sources,
    is_summary,
    load_prompt,
    merge_sections,
    parse_sections,
    render_sections,
    summary_text,
    with_note,
    write_summary,
)
from wellkept.core.errors import ContextOverflow, ModelBusy, ModelError, ModelRefused
from wellkept.core.messages import Message, Role, StoredMessage
from wellkept.testing.context_contract import as_stored, conversation

GOOD = """<think>hm</think>## Goal
- build the parser [#1]
## Constraints & Preferences
- tabs, never spaces
## Progress
### Done
- wrote lexer.py [#3, #999]
## Next Steps
- write the grammar [#5]
"""


def words(text: str) -> int:
    return len(text.split())


@dataclass
class Model:
    """A summary model that answers from a function, and keeps what it was asked."""

    answer: Callable[[str], str]
    name: str = "test/summary"
    context_length: int = 100_000
    prompts: list[str] = field(default_factory=list)

    def complete(self, system: str, load_prompt: str, *, max_output_tokens: int) -> str:
        self.prompts.append(load_prompt)
        return self.answer(load_prompt)


def raising(error: ModelError) -> Callable[[str], str]:
    def answer(_: str) -> str:
        raise error

    return answer


def brief(model: Model | None = None, **more: object) -> Brief:
    return Brief(
        count=words, redact=lambda text: text.replace("hunter2", "[redacted]"), today="Sunday", model=model, **more
    )


def talk() -> list[StoredMessage]:
    return as_stored(
        [
            Message(Role.USER, "Build the parser in src/parser.py, the password is hunter2"),
            Message(Role.ASSISTANT, "We'll use a hand-written lexer. Next I write tests."),
            Message(Role.USER, "Always use tabs, never spaces."),
            Message(Role.TOOL, "Error: no such file src/lexer.py", tool_call_id="x", tool_name="terminal"),
            Message(Role.USER, "Go on with the grammar"),
        ]
    )


def test_a_good_answer_becomes_the_summary_with_every_line_cited() -> None:
    """Ids that were not shown are dropped, lines without one get the message they come from."""
    done = write_summary(talk(), 500, brief(Model(lambda _: GOOD)))

    assert isinstance(done, Written)
    assert not done.by_rule
    lines = [line for line in done.body.splitlines() if line.startswith("- ") and line != "- none"]
    assert lines == [
        "- build the parser [#1]",
        "- tabs, never spaces [#3]",
        "- wrote lexer.py [#3]",
        "- write the grammar [#5]",
    ]


def test_the_request_holds_date_focus_notes_and_no_secret() -> None:
    """What the model reads is redacted and says what the providers want kept."""
    model = Model(lambda _: GOOD)
    write_summary(talk(), 500, brief(model, focus_topic="the lexer", memory_context="likes hunter2 tea"))

    (text,) = model.prompts
    assert "Today is Sunday" in text
    assert "the lexer" in text
    assert "likes [redacted] tea" in text
    assert "#1 user: Build the parser" in text
    assert "hunter2" not in text


def test_a_second_summary_updates_the_first() -> None:
    """The earlier record is found by its marker and given to the model; its ids stay citable."""
    first = Message(Role.USER, summary_text("## Goal\n- the old goal [#77]\n", covered=talk()))
    rows = [*as_stored([first], first_id=90), *talk()]
    model = Model(lambda _: GOOD.replace("[#1]", "[#77]"))

    done = write_summary(rows, 500, brief(model))

    assert "- the old goal [#77]" in model.prompts[0]
    assert isinstance(done, Written)
    assert "- build the parser [#77]" in done.body


@pytest.mark.parametrize(
    "answer", ["", "   ", "I cannot do that.", "## Goal\n", "lorem ipsum\n" * 900, "## A\n## B\n## C\n"]
)
def test_nonsense_gives_a_summary_by_rule(answer: str) -> None:
    """Empty, chatty or shapeless answers are not taken; the person is told."""
    done = write_summary(talk(), 500, brief(Model(lambda _: answer)))

    assert isinstance(done, Written)
    assert done.by_rule
    assert "no usable summary" in done.note
    assert "Build the parser" in done.body


def test_an_answer_that_is_too_long_is_cut_to_its_budget() -> None:
    """Lines are let go, headings stay."""
    long = GOOD + "".join(f"- step number {place} with some words [#3]\n" for place in range(500))

    done = write_summary(talk(), 200, brief(Model(lambda _: long)))

    assert isinstance(done, Written)
    assert words(done.body) <= 200
    assert "## Critical Context" in done.body


@pytest.mark.parametrize("error", [ModelBusy("429"), ModelRefused("401")])
def test_key_quota_and_network_errors_abort(error: ModelError) -> None:
    """Nothing is written while the model may come back."""
    assert write_summary(talk(), 500, brief(Model(raising(error)))) == Unreachable(error)


def test_near_the_end_of_the_window_nobody_waits() -> None:
    """When the request could overflow, rules write what the model cannot."""
    done = write_summary(talk(), 500, brief(Model(raising(ModelBusy("down"))), must_end=True))

    assert isinstance(done, Written)
    assert done.by_rule


def test_other_failures_give_a_summary_by_rule() -> None:
    """A model that breaks is replaced, and the note says so."""
    done = write_summary(talk(), 500, brief(Model(raising(ModelError("bad stream")))))

    assert isinstance(done, Written)
    assert "bad stream" in done.note


def test_a_small_model_is_given_the_middle_in_parts() -> None:
    """Every message is in one of the parts, in order, and the record runs through them."""
    rows = conversation(40, words=40)
    model = Model(lambda _: GOOD, context_length=2_500)

    done = write_summary(rows, 100, brief(model))

    assert isinstance(done, Written)
    assert not done.by_rule
    assert len(model.prompts) > 1
    assert all(any(f"#{row.id} " in text for text in model.prompts) for row in rows)
    assert all(words(text) < 2_500 for text in model.prompts)
    assert "<record>" in model.prompts[1]


@pytest.mark.parametrize("claimed", [9_000, 128_000])
def test_a_window_smaller_than_it_says_makes_smaller_parts(claimed: int) -> None:
    """An overflow of the summary model is answered with parts smaller than what was sent, whatever it claims."""

    def answer(text: str) -> str:
        if words(text) > 3_000:
            raise ContextOverflow("too long")
        return GOOD

    done = write_summary(conversation(60, words=40), 100, brief(Model(answer, context_length=claimed)))

    assert isinstance(done, Written)
    assert not done.by_rule


def test_the_summary_by_rule_finds_goals_preferences_files_and_errors() -> None:
    """Each rule puts its finds into its section, with the id."""
    done = write_summary(talk(), 500, brief())
    assert isinstance(done, Written)
    found = parse_sections(done.body)

    assert found["Goal"][0].endswith("[#1]")
    assert "- Always use tabs, never spaces. [#3]" in found["Constraints & Preferences"]
    assert "- src/parser.py [#1]" in found["Relevant Files"]
    assert found["Blocked"] == ["- Error: no such file src/lexer.py [#4]"]
    assert found["Key Decisions"][0].startswith("- We'll use a hand-written lexer.")
    assert "hunter2" not in done.body


def test_a_summary_by_rule_keeps_the_earlier_one() -> None:
    """Lines of the record so far come first; what was in progress is replaced."""
    old = {"Goal": ["- old [#1]"], "In Progress": ["- that [#1]"]}

    both = merge_sections(old, {"Goal": ["- new [#2]", "- old [#1]"], "In Progress": ["- this [#2]"]})

    assert both["Goal"] == ["- old [#1]", "- new [#2]"]
    assert both["In Progress"] == ["- this [#2]"]


lines = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=60).map(
    lambda text: f"- x {text}"
)


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(lines, max_size=12)), st.integers(1, 300))
def test_a_fitted_summary_keeps_its_budget(sections: dict[str, list[str]], budget: int) -> None:
    """Whatever is in it, it fits."""
    assert len(fit_sections(sections, budget, count=len)) <= max(budget, 1)


@given(st.text(max_size=200), st.integers(1, 50))
def test_clipping_fits(text: str, budget: int) -> None:
    """The clipped text takes no more than it may."""
    assert len(clip(text, budget, count=len)) <= budget


def test_a_tiny_summary_keeps_its_ids() -> None:
    """Words go before ids: they lead to the originals."""
    sections = {"Goal": ["- " + "set the counters of every shelf " * 6 + "[#12, #40]"]}

    assert find_citations(fit_sections(sections, 20, count=lambda text: len(text) // 4)) == {12, 40}


@given(st.text(max_size=400))
def test_any_answer_is_read_without_harm(text: str) -> None:
    """No answer breaks the reader, and what it reads it writes again."""
    assert parse_sections(render_sections(parse_sections(text))) == dict(parse_sections(text)) | {
        name: [] for name in NAMES if name not in parse_sections(text)
    }


def test_citations_are_read_in_every_usual_form() -> None:
    """Lists, ranges and words between ids; a number in prose is not one."""
    assert find_citations("a [#1] b [#2, #3] c [#4–#6] d [#7 and #8] issue #99, [#10-12]") == {
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        10,
        12,
    }


def test_a_hostile_bracket_costs_no_time() -> None:
    """Long runs of digits are read in one go."""
    assert find_citations("[#" + "1" * 50_000 + " " * 50_000 + "x") == set()


def test_a_line_without_any_source_cites_the_span() -> None:
    """Nothing is left uncited."""
    assert index_sources(talk()).check("- zzz") == "- zzz [#1, #5]"


def test_the_summary_message_can_be_found_and_read_again() -> None:
    """Marker in front, body from the first heading on."""
    message = Message(Role.USER, summary_text("## Goal\n- x", covered=talk(), by_rule=True))

    assert is_summary(message)
    assert message.text.startswith(MARKER)
    assert "5 messages, #1 to #5" in message.text
    assert "by rule" in message.text
    assert body_of(message) == "## Goal\n- x"


def test_the_note_is_in_the_prompt_exactly_once() -> None:
    """From the second compaction on nothing is added."""
    once = with_note("You are kept.")

    assert with_note(once) == once
    assert once == f"You are kept.\n\n{load_prompt('note')}"
