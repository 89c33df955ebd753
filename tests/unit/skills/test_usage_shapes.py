"""Usage files of any shape: skill commands start from zero instead of failing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellkept.core.clock import SystemClock
from wellkept.skills.usage import OutcomeLog, UsageFile, parse_usage

SHAPES = {
    "no JSON": b"{",
    "a list": b"[1, 2]",
    "a list of records": b'[{"name": "a"}]',
    "nested": b"[" * 20_000 + b"]" * 20_000,
    "records that are no objects": b'{"a": 1, "b": [], "c": null}',
    "a state that is a list": b'{"a": {"state": []}}',
    "a state that is an object": b'{"a": {"state": {}}}',
    "times that are none": b'{"a": {"last_used_at": "yesterday", "created_at": "", "use_count": 3}}',
    "times without a zone": b'{"a": {"last_used_at": "2026-01-01T00:00:00"}}',
    "wrong kinds": b'{"a": {"use_count": "3", "pinned": "yes", "created_by": 7}}',
    "not UTF-8": b"\xff\xfe",
    "empty": b"",
}


@pytest.fixture
def skilled(run):
    """A home with a skill."""
    run("skills", "create", "greet", "--description", "Greets. Use for greetings.", "--file", "-", stdin=b"# Greet\n")


@pytest.mark.parametrize("raw", SHAPES.values(), ids=SHAPES.keys())
def test_a_usage_file_of_any_shape_is_read(tmp_path, raw):
    """What cannot be used counts from zero; the next change writes a sound file."""
    (tmp_path / ".usage.json").write_bytes(raw)
    usage = UsageFile(tmp_path, SystemClock())

    for use in usage.read().values():
        assert use.last_active is None or use.last_active >= ""
    usage.record_view("a", used=True)

    assert usage.of("a").use_count >= 1
    assert json.loads((tmp_path / ".usage.json").read_text())["a"]["state"] == "active"


@pytest.mark.parametrize("raw", SHAPES.values(), ids=SHAPES.keys())
def test_outcomes_of_any_shape_are_read(tmp_path, raw):
    """Rows with other fields or kinds are left out."""
    row = {"skill": "a", "version": "v", "session_id": "s", "turn": 1, "tool_errors": "x", "finished": True}
    lines = [raw, json.dumps({**row, "corrected": False, "time": ""}).encode(), b'{"corrects": [], "session_id": {}}']
    (tmp_path / ".outcomes.jsonl").write_bytes(b"\n".join(lines))

    assert OutcomeLog(tmp_path, SystemClock()).stats() == {}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner),
)


@given(
    st.dictionaries(
        st.text(max_size=5), st.dictionaries(st.sampled_from(["state", "use_count", "pinned", "last_used_at"]), values)
    )
)
@settings(max_examples=50)
def test_no_value_of_a_field_raises(rows):
    """Whatever a field holds, the record is read."""
    assert set(parse_usage(json.dumps(rows).encode())) == set(rows)
