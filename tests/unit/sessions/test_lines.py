"""Lines of a JSONL transcript."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.messages import Link, Origin, Role, State, ToolCall
from wellkept.sessions.lines import BadLine, MessageLine, SessionLine, parse


def line(**fields):
    return parse(json.dumps({"session_id": "s", "role": "user", "content": "hi", "timestamp": 5, **fields}).encode())


def test_the_shortest_line():
    """Four fields make a message; everything else has a default."""
    found = line()

    assert isinstance(found, MessageLine)
    assert (found.session.id, found.session.source, found.session.user_id) == ("s", "import:jsonl", "owner")
    assert (found.new.message.role, found.new.message.text, found.new.timestamp) == (Role.USER, "hi", 5.0)
    assert (found.state, found.new.origin) == (State.ACTIVE, Origin.PERSON)


def test_every_field_is_taken():
    """What a line says about its session and its message is kept."""
    call = {"id": "1", "name": "run", "arguments": {"x": 1}}
    found = line(
        role="Assistant", content=None, tool_calls=[call], external_id=7, title="T", source="web", project="/p", user_id="u",
        parent_session_id="p", link="branch", timestamp="2024-01-01T00:00:00Z", reasoning="r", token_count=3, state="compacted",
    )  # fmt: skip

    assert found.new.message.tool_calls == (ToolCall("1", "run", '{"x": 1}'),)
    assert (found.new.external_id, found.new.token_count, found.state) == ("7", 3, State.COMPACTED)
    assert (found.session.title, found.session.project, found.session.user_id) == ("T", "/p", "u")
    assert (found.session.parent_session_id, found.session.link) == ("p", Link.BRANCH)
    assert line(parent_session_id="p").session.link is Link.IMPORT


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"{", "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[1]", "object"),
        (b'{"role": "user", "content": "x", "timestamp": 1}', "session_id"),
        (b'{"session_id": "", "role": "user", "content": "x", "timestamp": 1}', "session_id"),
        (b'{"session_id": "s", "content": "x", "timestamp": 1}', "role"),
        (b'{"session_id": "s", "role": "robot", "content": "x", "timestamp": 1}', "robot"),
        (b'{"session_id": "s", "role": "user", "timestamp": 1}', "content"),
        (b'{"session_id": "s", "role": "user", "content": 5, "timestamp": 1}', "content"),
        (b'{"session_id": "s", "role": "user", "content": "x"}', "timestamp"),
        (b'{"session_id": "s", "role": "user", "content": "x", "timestamp": "soon"}', "timestamp"),
        (b'{"session_id": "s", "role": "user", "content": "x", "timestamp": 1, "link": "cousin"}', "cousin"),
        (b'{"session_id": "s", "role": "user", "content": "x", "timestamp": 1, "state": "rewound"}', "undone"),
        (b'{"type": "session", "session_id": "s"}', "started"),
    ],
)
def test_a_bad_line_says_what_is_wrong(raw, why):
    """Each mistake is named."""
    with pytest.raises(BadLine, match=why):
        parse(raw)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(lambda v: json.dumps(v).encode())
)
def test_no_bytes_break_the_reader(raw):
    """Any bytes are a line or a bad line."""
    with suppress(BadLine):
        assert isinstance(parse(raw), MessageLine | SessionLine)


fields = st.dictionaries(
    st.sampled_from(["session_id", "role", "content", "timestamp", "tool_calls", "external_id", "link", "metadata", "type", "started", "carried", "state"]),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["user", "session", "x", "2024-01-01"])
    | st.lists(st.integers() | st.dictionaries(st.sampled_from(["name", "arguments", "type", "text"]), st.text(max_size=3))),
)  # fmt: skip


@given(fields)
def test_no_object_breaks_the_reader(value):
    """Any object is a line or a bad line."""
    with suppress(BadLine):
        assert isinstance(parse(json.dumps(value).encode()), MessageLine | SessionLine)
