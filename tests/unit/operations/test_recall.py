"""What a connected agent is given: the block of a session and passages for a prompt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.tools import ToolContext
from wellkept.memory.page import Add, Target
from wellkept.operations.memory import edit_entry
from wellkept.operations.recall import BLOCK_CHARS, Recipient, build_start_block, read_question, recall_for_prompt

START = 1_790_000_000.0


@pytest.fixture
def caller(home):
    app = open_app()
    yield app.caller()
    app.close()


def talk(caller, name, *texts, project="/p", title=None, role=Role.USER):
    store = caller.space.sessions
    store.create(Session(SessionId(name), "claude-code", START, project=project, title=title))
    messages = [NewMessage(Message(role, text), START + number, Origin.PERSON) for number, text in enumerate(texts)]
    return store.append(SessionId(name), messages)


def test_the_block_holds_pages_sessions_and_what_else_can_be_searched(caller):
    """Fenced; sessions of this project only, the newest first, at most three, and not the session itself."""
    edit_entry(caller, Add("The staging server is heron"))
    edit_entry(caller, Add("Ann, likes short answers"), Target.USER)
    for name in ("a", "b", "c", "d"):
        talk(caller, name, "words", title=f"Title {name}")
    talk(caller, "other", "words", project="/q", title="Elsewhere")

    block = build_start_block(caller, "/p", current=SessionId("d"))

    assert block is not None
    assert block.text.startswith("<memory-context>")
    assert block.text.endswith("</memory-context>")
    assert "The staging server is heron" in block.text
    assert "likes short answers" in block.text
    assert [f"session {name})" in block.text for name in "abcd"] == [True, True, True, False]
    assert "Elsewhere" not in block.text
    assert "5 messages of 5 past sessions" in block.text
    assert "session_search" in block.text
    assert block.mark in block.text
    assert block.summary == "kept: 2 entries, 3 past sessions of this project"


def test_a_session_without_a_title_is_named_by_its_first_words(caller):
    """What is said in it tells sessions apart."""
    talk(caller, "a", "Where is the harbour light?\nIt is dark.")

    block = build_start_block(caller, "/p")

    assert "Where is the harbour light?" in block.text
    assert "without a title" not in block.text


def test_the_mark_changes_with_the_memory_and_not_with_the_totals(caller):
    """So that a resumed session is given the block again only when it says something new."""
    edit_entry(caller, Add("one"))
    first = build_start_block(caller, "/p")
    talk(caller, "a", "words", project="/q")
    second = build_start_block(caller, "/p")
    edit_entry(caller, Add("two"))
    third = build_start_block(caller, "/p")

    assert first.mark == second.mark != third.mark


def test_an_empty_home_has_no_block(caller):
    """There is nothing to say and nothing to search."""
    assert build_start_block(caller, "/p") is None


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=900), max_size=30), st.lists(st.integers(1, 6_000), max_size=4))
def test_the_block_fits_for_any_page_sizes(tmp_path_factory, small, large):
    """Whatever the limits of the pages are set to, the block has at most 8,000 characters and says what to search."""
    from wellkept.operations.recall import _fit_pages

    pages = [
        "head\n" + "\n§\n".join(small),
        *("head\n" + "\n§\n".join("x" * 97 for _ in range(n // 97)) for n in large),
    ]
    shown = _fit_pages(pages, 5_000)

    assert sum(map(len, shown)) <= 5_000
    assert all(
        text == page or "more entries" in text or len(page) > 1_000 for text, page in zip(shown, pages, strict=True)
    )


def test_pages_with_raised_limits_are_cut_between_entries(home, monkeypatch):
    """The whole block, rendered from real pages of 60,000 characters."""
    monkeypatch.setenv("KEPT_MEMORY__MEMORY_CHAR_LIMIT", "60000")
    monkeypatch.setenv("KEPT_MEMORY__USER_CHAR_LIMIT", "60000")
    app = open_app()
    caller = app.caller()
    pages = home / "memories"
    pages.mkdir(parents=True)
    for name in ("MEMORY.md", "USER.md"):
        (pages / name).write_text(
            "\n§\n".join(f"entry {number} of the page {name}, plain words" for number in range(1_000))
        )
    block = build_start_block(caller, "/p")
    app.close()

    assert 7_500 < len(block.text) <= BLOCK_CHARS
    assert block.text.count("more entries: read them with the tool memory_read]") == 2
    assert "can be searched" in block.text


def test_passages_carry_ids_and_dates_and_leave_out_what_must_not_come(caller):
    """Not of the session itself, not given before, not what a tool printed."""
    (told,) = talk(caller, "old", "The staging server of the billing team is called heron-42")
    talk(caller, "own", "The staging server of the billing team is called osprey-7")
    talk(caller, "tool", "The staging server of the billing team is called attack-1", role=Role.TOOL)
    question = "How is the staging server of the billing team called?"

    found = recall_for_prompt(caller, question, Recipient(SessionId("own")))

    assert found is not None
    assert "heron-42" in found.text
    assert f"session old, message {told}" in found.text
    assert "osprey-7" not in found.text
    assert "attack-1" not in found.text
    assert [hit.message_id for hit in found.shown] == [told]
    assert recall_for_prompt(caller, question, Recipient(SessionId("own"), given=frozenset({told}))) is None
    assert recall_for_prompt(caller, "What is the boiling point of tungsten metal?", Recipient()) is None


def test_a_quoted_prompt_is_no_exact_phrase(caller):
    """opencode puts the prompt of `opencode run` in quotes; AND, OR and stars are words too."""
    talk(caller, "old", "The staging server of the billing team is called heron-42")

    for prompt in (
        '"How is the staging server of the billing team called"',
        "the staging* server AND billing NOT team",
    ):
        found = recall_for_prompt(caller, prompt, Recipient())

        assert found is not None, prompt


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "ok",
        "yes please",
        "continue",
        "/compact the parser now",
        "!ls -la project",
        "# remember parser",
        "the and of",
        "<private>parser staging</private> go",
        "<private> parser staging server",
    ],
)
def test_no_question_is_searched_for(prompt):
    """Commands, and fewer than two words that say something."""
    assert read_question(prompt) is None


@pytest.mark.parametrize(
    "prompt", ["parser staging", "/usr/bin/parser fails on staging", "解析器在哪里", "#42 parser broken"]
)
def test_a_question_is_searched_for(prompt):
    """A path is not a command, and scripts without spaces have words."""
    assert read_question(prompt) is not None


@pytest.fixture
def archived(home):
    """A caller whose dentist made room on a full page."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("memory: {memory_char_limit: 60}\n")
    app = open_app()
    caller = app.caller()
    edit_entry(caller, Add("The dentist is Dr Okafor"))
    edit_entry(caller, Add("The staging server runs on heron since March"))
    assert caller.space.memory.archived("memory") == ["The dentist is Dr Okafor"]
    yield caller
    app.close()


def test_what_made_room_is_recalled_for_a_prompt_about_it(archived):
    """The start block does not contain it any more; other prompts do not get it."""
    recalled = recall_for_prompt(archived, "What is the name of my dentist again?", Recipient())

    assert "The dentist is Dr Okafor" in recalled.text
    assert "archive/MEMORY.md" in recalled.text
    assert "Okafor" not in build_start_block(archived, None).text
    assert recall_for_prompt(archived, "Where does the staging server run today?", Recipient()) is None


def test_what_made_room_is_in_the_answer_of_the_search_tool(archived):
    """A model searches it with past conversations; without a hit the answer is as before."""
    search = next(tool for tool in archived.space.shared_tools() if tool.schema.name == "session_search")

    hit = search.call({"query": "dentist name"}, ToolContext())
    assert [entry["text"] for entry in hit["archive"]] == ["The dentist is Dr Okafor"]
    assert "archive" not in search.call({"query": "lighthouse keeper"}, ToolContext())


def test_what_no_longer_holds_is_not_recalled(caller):
    """Unless the question asks for the past."""
    talk(caller, "a", "The gate code of the garden is 4711.")
    talk(caller, "b", "The gate code of the garden is 4712 now.")

    now = recall_for_prompt(caller, "What is the gate code of the garden?", Recipient())
    before = recall_for_prompt(caller, "What was the gate code of the garden before?", Recipient())

    assert "4712" in now.text
    assert "4711" not in now.text
    assert "4711" in before.text
