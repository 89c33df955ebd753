"""Texts for Telegram: parts that fit, code blocks that stay whole, markup that Telegram takes, and its limits."""

import re

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wellkept.cli.chat.slash import COMMANDS as CHAT_COMMANDS
from wellkept.gateway import slash
from wellkept.gateway.telegram import api
from wellkept.gateway.telegram.texts import MOST_UNITS, count_units, has_table, split_text, to_html
from wellkept.operations.slash_commands import COMMANDS

from .bot_api import read_html, units

QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
line = st.text(st.sampled_from("ab c`*_~[]()<>&|-#😀"), max_size=30) | st.sampled_from(
    [
        "```",
        "```python",
        "~~~",
        "    ```",
        "",
        "# head",
        "- point",
        "> quote",
        "| a | b |",
        "|---|---|",
        "`",
        "**",
        "x" * 90,
    ]
)
markdown = st.lists(line, max_size=40).map("\n".join)


_LONGEST_OPENING = 20


def bare(text):
    """Return a text without space and without the lines that open or close code blocks."""
    lines = [each for each in text.split("\n") if not re.fullmatch(r"[ \t]*(`{3,}|~{3,})[^\n`]*", each)]
    return "".join("".join(lines).split())


@QUIET
@given(markdown, st.integers(20, 80))
def test_parts_fit_and_lose_nothing(text, most):
    """Whatever the text, each part has at most so many UTF-16 units, and together they hold all of it, in order."""
    parts = split_text(text, most)
    assert all(0 < units(part) <= most for part in parts)
    said = iter("".join("".join(parts).split()))
    assert all(each in said for each in "".join(text.split()))
    # in a part hardly longer than it, a line of code that looks like an opening is cut, and `bare` cannot tell
    if most >= 2 * _LONGEST_OPENING or len(re.findall(r"(?m)^[ \t]*(?:`{3,}|~{3,})", text)) <= 1:
        assert "".join(bare(part) for part in parts) == bare(text)


@QUIET
@given(markdown)
def test_markup_is_what_telegram_takes(text):
    """Tags are closed and nested as the double demands, and people never see more than was written."""
    for part in split_text(text, 200):
        shown = read_html(to_html(part))
        assert units(shown) <= units(part)


@QUIET
@given(st.text(max_size=300))
def test_any_text_can_be_marked_up(text):
    """No character breaks the markup."""
    clean = text.encode("utf-8", "replace").decode()
    assert count_units(text) == units(text)
    read_html(to_html(clean))


def test_a_cut_code_block_is_closed_and_opened_again():
    """With its language; the text after it is not code."""
    code = "\n".join(f"line {number}" for number in range(40))
    parts = split_text(f"intro\n\n```python\n{code}\n```\n\nafter", 120)
    inside = [part for part in parts if "line" in part]
    assert len(inside) > 2
    assert all(part.count("```") == 2 for part in inside)
    assert all("```python\n" in part for part in inside)
    assert parts[0].startswith("intro")
    assert parts[-1].endswith("after")


def test_cuts_prefer_paragraphs_then_lines_then_words():
    """A word is cut only if it is longer than a part."""
    assert split_text("one two\nthree\n\nfour five six", 20) == ["one two\nthree", "four five six"]
    assert split_text("one two three\nfour five six", 20) == ["one two three", "four five six"]
    assert split_text("one two three four five six", 20) == ["one two three four", "five six"]
    assert split_text("x" * 50, 20) == ["x" * 20, "x" * 20, "x" * 10]
    assert split_text("😀" * 15, 20) == ["😀" * 10, "😀" * 5]
    # the opening of a block alone would be cut off for ever
    assert split_text("```python\n|---|---|\nabc\n```", 22) == ["```python\n|---|---\n```", "```python\n|\nabc\n```"]
    assert split_text("short") == ["short"]
    assert split_text(" \n \n") == []
    assert len(split_text("x" * MOST_UNITS)) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** and *it*", "<b>bold</b> and <i>it</i>"),
        ("__bold__ _it_ ~~no~~", "<b>bold</b> <i>it</i> <s>no</s>"),
        ("snake_case_name 2*3*4", "snake_case_name 2*3*4"),
        ("`a < b` & c", "<code>a &lt; b</code> &amp; c"),
        ('[x](https://a.example/?q=1&r="2")', '<a href="https://a.example/?q=1&amp;r=&quot;2&quot;">x</a>'),
        ("[x](https://a.example/?q=1&r=2)", '<a href="https://a.example/?q=1&amp;r=2">x</a>'),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("## Title **b**", "<b>Title b</b>"),
        ("- one\n  - two", "• one\n  • two"),
        ("> a\n> b", "<blockquote>a\nb</blockquote>"),
        ("```\na <b>\n```", "<pre>a &lt;b&gt;</pre>"),
        ("```py\nx", '<pre><code class="language-py">x</code></pre>'),
        ("open **bold", "open **bold"),
    ],
)  # fmt: skip
def test_markdown_as_telegram_shows_it(text, shown):
    """What is not understood stays as it is written."""
    assert to_html(text) == shown


def test_tables_are_recognised():
    """By the line below their head."""
    assert has_table("x\n| a | b |\n|:--|--:|\n| 1 | 2 |")
    assert not has_table("| a | b |\n| c | d |")
    assert to_html("| a |\n|-|\n| 1 |") == "<pre>| a |\n|-|\n| 1 |</pre>"


def test_hostile_markdown_is_read_in_time():
    """No text of one message keeps the server busy: at most a few seconds on a loaded machine."""
    with anyio.from_thread.start_blocking_portal() as portal:
        for text in (
            "**a " * 1_000,
            "[" * 4_096,
            "`" * 4_096,
            "*a" * 2_048,
            "_ " * 2_048,
            "~~a" * 1_300,
            "[a](" * 1_000,
        ):
            portal.call(anyio.to_thread.run_sync, to_html, text)


# limits


def test_a_chat_gets_a_message_per_second_after_a_burst(monkeypatch):
    """A group gets 20 in a minute, and drafts leave room for whole answers."""
    now, slept = [100.0], []

    async def sleep(seconds):
        slept.append(round(seconds, 2))
        now[0] += seconds

    monkeypatch.setattr(api.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(api.anyio, "sleep", sleep)
    pace = api.Pace()

    async def work():
        for _ in range(5):
            await pace.wait("7")
        assert slept == [0, 0, 0, 1.0, 1.0]
        slept.clear()
        for _ in range(20):
            await pace.wait("-100")
        assert slept == [0] * 18 + [3.0] * 2
        assert not pace.take_spare("-100")
        pace.block("7", 9)
        assert not pace.take_spare("7")
        slept.clear()
        await pace.wait("7")
        assert slept == [9.0]
        assert pace.take_spare("7")

    anyio.run(work)


def test_commands_of_the_chat_are_there():
    """What `kept chat` can do, a chat on a platform can do; each command has words and does something."""
    assert set(CHAT_COMMANDS) - {"quit"} <= set(slash.COMMANDS)
    assert all(command.words for command in slash.COMMANDS.values())
    idle = {name for name, command in COMMANDS.items() if command.run is None and command.run_async is None}
    assert idle == {"stop", "status", "help", "quit"}
