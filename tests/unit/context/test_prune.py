"""Pruning makes old output small, the same way every time."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from wellkept.context.messages import CLEARED, NO_IMAGE, REPEATED, prune, prune_as_marked
from wellkept.core.ids import MessageId
from wellkept.core.messages import ImagePart, Message, Role, TextPart, ToolCall
from wellkept.testing.context_contract import as_stored, conversation


def tool(text: str, call_id: str = "a") -> Message:
    return Message(Role.TOOL, text, tool_call_id=call_id, tool_name="read_file")


def calling(arguments: str, call_id: str = "a") -> Message:
    return Message(Role.ASSISTANT, "", tool_calls=(ToolCall(call_id, "read_file", arguments),))


def test_a_long_result_becomes_the_placeholder_and_one_line() -> None:
    """Results over 200 characters keep the name, the arguments and the size."""
    rows = as_stored([calling('{"path": "a.py"}'), tool("x\n" * 101), Message(Role.USER, "next")])

    text = prune(rows, head=0, through=MessageId(2))[1].message.text

    assert text == f'{CLEARED}\nread_file({{"path": "a.py"}}): 202 characters, 102 lines'


def test_200_characters_stay() -> None:
    """The limit is more than 200 characters."""
    rows = as_stored([calling("{}"), tool("x" * 200)])

    assert prune(rows, head=0, through=MessageId(2)) == rows


def test_identical_results_are_kept_once() -> None:
    """The second of two equal short results refers to the first."""
    same = "nothing to commit, working tree clean, branch main"
    rows = as_stored([calling("{}", "a"), tool(same, "a"), calling("{}", "b"), tool(same, "b")])

    small = prune(rows, head=0, through=MessageId(4))

    assert [row.message.text for row in small[1::2]] == [same, REPEATED]


def test_long_arguments_stay_valid_json() -> None:
    """A long value is cut inside its JSON; keys and short values stay."""
    rows = as_stored([calling(json.dumps({"path": "a.py", "edits": [{"text": "é" * 5_000}]}))])

    arguments = json.loads(prune(rows, head=0, through=MessageId(1))[0].message.tool_calls[0].arguments)

    assert arguments["path"] == "a.py"
    assert arguments["edits"][0]["text"] == "é" * 120 + "… [4,880 characters cut]"


def test_arguments_that_are_no_json_become_json() -> None:
    """Broken arguments are shortened into an object."""
    rows = as_stored([calling("{broken " * 500)])

    arguments = json.loads(prune(rows, head=0, through=MessageId(1))[0].message.tool_calls[0].arguments)

    assert list(arguments) == ["shortened"]


def test_old_images_are_dropped_and_their_text_stays() -> None:
    """An image outside the tail becomes a note."""
    rows = as_stored([Message(Role.USER, (TextPart("see"), ImagePart("image/png", "AA"))), Message(Role.USER, "now")])

    assert prune(rows, head=0, through=MessageId(1))[0].message.content == (TextPart("see"), TextPart(NO_IMAGE))


def test_head_and_tail_are_untouched() -> None:
    """Only what lies between is made small."""
    rows = conversation(10)

    small = prune(rows, head=4, through=rows[19].id)

    assert small[:4] == rows[:4]
    assert small[20:] == rows[20:]
    assert small[6].message.text.startswith(CLEARED)


def test_the_exact_text_of_a_pruned_row_is_not_replayed() -> None:
    """A row that became small has no other text that is sent in its place."""
    rows = as_stored([calling("{}"), tool("x" * 500)])
    rows[1] = replace(rows[1], api_content="x" * 500)

    assert prune(rows, head=0, through=MessageId(2))[1].api_content is None


@given(st.integers(0, 8), st.integers(1, 30), st.integers(0, 10))
def test_a_longer_conversation_keeps_the_pruned_prefix(head: int, cut: int, more: int) -> None:
    """The same mark gives the same bytes for the prefix, and again for its own result."""
    rows = conversation(12)
    through = rows[min(cut, 31)].id
    short = prune(rows[:36], head=head, through=through)

    assert prune(rows[: 36 + more], head=head, through=through)[:36] == short
    assert prune(short, head=head, through=through) == short


def test_a_mark_that_makes_no_sense_prunes_nothing() -> None:
    """What a session's note holds is not trusted."""
    rows = conversation(3)

    assert all(prune_as_marked(rows, mark) == rows for mark in (None, 3, {}, {"head": "x", "through": 2}))
    assert prune_as_marked(rows, {"head": 0, "through": 4}) == prune(rows, head=0, through=MessageId(4))
